/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the training of an adapter: what it learns from, where it is, what it found.          room: tune
 *
 *   struct tune_job j = { .o = &opts, .calls = &calls, .g = g, .text = text };
 *   tune_begin                    what serves, and what is going to learn
 *   tune_items_read ...           into j.data
 *   tune_job_open                 checks what was read, and settles what memory allows
 *   tune_resume_check             whether what an interrupted run left can be used
 *   tune_rehearse, tune_resume, tune_test_before, tune_learn, tune_decide, tune_publish
 *   tune_job_close
 *
 * A job is a function of its options, its items and the model, as long as there is time for all steps. One thread calls
 * it. */
#ifndef TUNE_JOB_H
#define TUNE_JOB_H
#include <stdio.h>
#include "grad/grad.h"
#include "train/adam.h"
#include "tune/items.h"

struct adapter;
struct gguf;
struct run;
struct run_adapter;
struct tune_lora;
struct tune_shield;
struct tune_zo;
struct tune_zo_note;

enum {
    TUNE_LEAST_TESTS = 5,  /* with fewer texts no difference can be shown: 1/2^4 > 0.05 */
    TUNE_LEAST_ALONE = 25, /* known answers of small sets that are judged by their losses, if all sets are judged too */
    TUNE_TESTS_MAX = 400,  /* items that are kept, or held out of what is learnt */
    TUNE_SETS_MAX = 2000,  /* items of the task sets */
    TUNE_STRENGTHS = 7,    /* tests at the end: the whole adapter, five of bisection, the best once more */
    TUNE_KEEP_EVERY = 5,   /* of what is kept, each fifth item is tested on */
    TUNE_WARM = 10,        /* steps in which the step size rises */
};
#define TUNE_P_MAX 0.05 /* of the gate */
#define TUNE_GAIN  0.1  /* the share of unanswered questions that has to be answered now */

enum tune_method { TUNE_FIRST, TUNE_ZO }; /* with gradients, or by forward passes alone */
enum tune_accept { TUNE_ANSWERS, TUNE_LIKELIHOOD };

struct tune_opts {
    const char *out, *time; /* the file that is trained; time_s in the user's words */
    double time_s;          /* of the program's clock */
    bool cpu_time;          /* which is processor time */
    int64_t memory_bytes, seed;
    int64_t now_s;           /* chat_prompt.now_s */
    int64_t tokens_max;      /* of an item */
    int32_t keep_versions;   /* old ones of the file */
    enum tune_method method; /* with gradients, or: */
    int32_t samples;         /* zo: directions of a step */
    float momentum;          /* zo: of steps */
    float rate;              /* the largest step size */
    int32_t n_text;          /* items to learn in a step */
    int32_t epochs;          /* passes over them, at most; 0: EPOCHS of job.c, and at least STEPS */
    int64_t steps;           /* at most; 0: as many as the epochs have */
    int32_t rank;            /* of a new adapter */
    int32_t wordings;        /* of each fact that are made, in shapes of the program's own; 0: none at all */
    int32_t rehearse;        /* answers that the model writes itself, at most */
    int32_t keep_batch;      /* items to rehearse in a step */
    float keep_weight;       /* of them in the loss */
    float shield;            /* rho of tune/shield.h; 0: none */
    float forget;            /* nats a token that may be lost */
    float margin;            /* the share of old answers that may be lost, of all sets, */
    float margin_set;        /* and of one of several */
    enum tune_accept accept; /* what has to be better of what is held out */
    bool rate_given;         /* zo does not measure it */
    bool shield_given;       /* there must be one */
    bool forget_given;       /* what is kept is judged by its likelihood */
    bool tests_named;        /* the user has items to test on; else they are a part of what is learnt */
    bool keep_named;         /* and items to keep; else they are the task sets */
    bool keep_tests_named;   /* and sets that are tested instead of these, and never learnt */
    bool alpha_free;         /* alpha of a new adapter follows from the rank */
};

/* What a new adapter is to be, and what of it was asked for: the one that is there must have that already. */
struct tune_begin_opts {
    int rank;
    float alpha;      /* 0: of the rank */
    unsigned classes; /* bits of enum model_class */
    unsigned more;    /* other classes, which are added if the file stays below this size: */
    int64_t bytes_most;
    const char *start; /* a file whose numbers it begins with; NULL: those of --out, or new ones */
    bool scales, scratch, rank_given, alpha_given, targets_given;
};
/* What a training begins with. */
struct tune_begin {
    struct adapter *old;               /* the file of --out; NULL: there is none */
    struct tune_lora *champion, *lora; /* of old, what serves; what learns, with its numbers or new */
    bool fresh;                        /* lora is new */
    float *from;                       /* [lora->n_params] numbers of another adapter, where it goes on; NULL: none */
};

/* ---- what the program is told, and asked ---- */

enum tune_phase {
    TUNE_ASKING,    /* what the model says of each text */
    TUNE_LOOKING,   /* at the tokens of a shield */
    TUNE_TESTING,   /* items */
    TUNE_MEASURING, /* the sizes of zo */
    TUNE_WRITING,   /* texts of the model's own */
};
struct tune_tick {
    enum tune_phase phase;
    int64_t done, total;
    double left_s; /* of writing, at most */
};
struct tune_step {
    int64_t step, steps;
    double loss, left_s;
};
/* What the gate has found. p: of the losses of what is held out; p_kept, bound: the largest of what was judged by its
 * likelihood, and of what was judged by its answers; NaN where there was too little to test. */
struct tune_verdict {
    double strength, p, p_kept, bound;
    int64_t wanted;                /* more exact answers to what is held out than before; 0: likelihood will do */
    bool better, keeps, cut_short; /* cut_short: there was no time to try less of its strength */
};
struct tune_run {
    struct run *run;
    const struct run_adapter *adapters; /* [n_adapters] for its requests */
    int n_adapters;
};
struct tune_calls {
    double (*now_ms)(void *ctx);                             /* a clock that only goes forward */
    bool (*tick)(void *ctx, const struct tune_tick *t);      /* false: ERR_CANCEL */
    void (*step)(void *ctx, const struct tune_step *s);      /* one was taken */
    void (*note)(void *ctx, bool warning, const char *line); /* what the user should know, or may want to */
    /* A run of the model with this adapter (NULL: none) for texts of ctx_tokens, whose sequences take room_bytes at
     * most. Closed before the next one is opened. */
    enum err_code (*open_run)(void *ctx, const struct adapter *a, int64_t ctx_tokens, int64_t room_bytes,
                              struct tune_run *out, struct err *e);
    void (*close_run)(void *ctx, struct run *run);
    const struct progress *stop; /* asked by any thread: whether to go on */
    void *ctx;
};

/* ---- the job ---- */

/* An item's part in a test: mean loss of a token, and whether each is the likeliest. unsure: how undecided that is,
 * from 0, where the weakest token is ahead of all others or behind one by a nat or more, to 0.5 where two are alike. */
struct tune_score {
    double loss;
    bool exact, untested;
    float unsure;
};

struct tune_data {
    struct tune_items learn, tests, keep, kept, own; /* kept: of keep, or task sets; own: what the model wrote */
    struct tune_items keep_tests;                    /* sets that are tested instead */
    json_t *sets;                                    /* questions of the task sets */
    int64_t n_given, n_wordings;                     /* of learn: what was given, and further wordings, which follow */
    int64_t n_asked;                                 /* of n_given: without those after an empty thought */
    int64_t n_written;                               /* texts that the model wrote, of which own has the surest */
};

/* Where the training is. */
struct tune_state {
    struct tune_lora *lora; /* what learns: begin.lora */
    int64_t step;
    struct train_adam adam;
    float *gradient;
    struct grad_adapter *adapters; /* [lora->n] */
    struct tune_shield *shield;    /* NULL: none */
    float *was;                    /* [n_params] before a step, with a shield */
    struct tune_zo *zo;
    FILE *log; /* of zo; log_n bytes are whole entries */
    size_t log_n;
    int64_t *order, order_of; /* [learn.n] of a pass over them */
    float *seen;              /* [n_seen] mean loss of a token when last seen: of learn, own, keep */
    int64_t *which, n_seen;   /* [n_text + keep_batch] of the options */
    double *seq_loss;         /* the same */
};

/* How a set that is kept is judged. */
enum tune_ruling {
    TUNE_BY_ANSWERS,    /* not more of its answers may be lost than the margin */
    TUNE_BY_LIKELIHOOD, /* it has too few answers to count: by its losses */
    TUNE_POOLED,        /* so have other sets: together with them */
    TUNE_WITH_ALL,      /* so few that they show nothing by themselves: in all sets together, which are judged */
    TUNE_UNTESTED,      /* it has next to none */
};
/* What became of the items of a set, before and after: how many are exact, and the mean loss of those that count. */
struct tune_outcome {
    const char *set;                               /* NULL: what is held out; "": what is kept, in one set */
    int64_t n, known, counts, exact[2], lost, won; /* known: exact before or after; the others say nothing of a loss */
    int64_t n_thinks, exact_thinks[2];             /* of those with a thought, */
    bool thoughts;                                 /* which is not empty in some */
    int64_t whole;                                 /* items of the set, tested or not */
    double went, came;                             /* lost and won, where an undecided answer counts in part */
    double loss[2], p,
        bound;     /* p of train_gate(), bound of train_loss_bound(), and what is seen to be lost; NaN: too few */
    double margin; /* of the bound */
    enum tune_ruling ruling;
    bool keeps;
};

struct tune_report {
    struct tune_score *before[2], *after[2]; /* of tests, of kept */
    struct tune_verdict verdict;
    struct tune_outcome *outcome; /* [n_outcome] what is held out, each set that is kept, the small ones, all of them */
    int n_outcome;
    int64_t step_first;                             /* of this process */
    double from_ms, before_s, test_s, learn_from_s; /* before_s: of interrupted runs; test_s: what a test takes */
    double item_s;                                  /* of test_s */
    int64_t n_first; /* of data.kept: those that are tested first; the others where these leave a set undecided */
};

struct tune_job {
    const struct tune_opts *o;
    const struct tune_calls *calls;
    const struct text *text;
    struct grad *g;
    struct tune_begin begin;
    struct tune_data data;
    struct tune_state state;
    struct tune_report report;
    struct tune_pace {
        int n_text, keep_batch, rehearse;
    } pace; /* of a step, and texts to write: those of the options, or fewer if the time is short */
    /* settled when it is opened */
    int64_t steps, rows_max, own_tokens; /* own_tokens: of a question and an answer that the model writes, at most */
    int64_t
        room_bytes; /* of memory_bytes for the model while it writes: on a GPU, which has a memory of its own, all */
    bool keep_layers, shielded;
    char *fresh, *half; /* paths of what is new (NULL: nothing yet), of what was interrupted */
    char name[200];
};

/* ---- begin.c ---- */

/* Opens what is at o->out, if anything, and what learns. ERR_ARG: a shape is asked for that the old one has not; else
 * what adapter_open() and tune_lora_new() say. */
MUST_CHECK enum err_code tune_begin(struct tune_job *j, const struct tune_begin_opts *b, const struct gguf *model,
                                    struct err *e);

/* ---- job.c ---- */

/* Splits and checks the items, settles what memory allows. ERR_FORMAT: too few items. ERR_ARG, ERR_LIMIT: too little
 * memory. */
MUST_CHECK enum err_code tune_job_open(struct tune_job *j, struct err *e);
/* Writes what learns as a new adapter that changes nothing, b zero: training can go on from it. */
MUST_CHECK enum err_code tune_write_neutral(struct tune_job *j, struct err *e);
/* Also of a job that could not be opened; not its grad. */
void tune_job_close(struct tune_job *j);
double tune_now_ms(const struct tune_job *j); /* of the program's clock */
/* Seconds since the training began, those of interrupted runs included. */
double tune_spent_s(const struct tune_job *j);
void tune_note(const struct tune_job *j, bool warning, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* ERR_CANCEL if the program does not want to go on. */
MUST_CHECK enum err_code tune_tick(const struct tune_job *j, enum tune_phase phase, int64_t done, int64_t total,
                                   struct err *e);

/* ---- batch.c ---- */

MUST_CHECK enum err_code tune_batch_open(struct tune_job *j, struct err *e);
/* Notes the losses of all items before the first step: an adapter that goes on knows some of what is to be learnt, and
 * has lost some of what is rehearsed. */
MUST_CHECK enum err_code tune_batch_look(struct tune_job *j, struct err *e);
/* What is rehearsed as number i of all steps that take it in turn, also below 0; and where it is. */
int64_t tune_rehearsed(const struct tune_job *j, int64_t i);
const struct tune_item *tune_rehearsed_at(const struct tune_job *j, int64_t i);
/* seq [n_text + keep_batch] of a step; their losses' weights: of what is learnt the mean over its tokens, of what is
 * rehearsed keep_weight times that. Returns how many. */
int tune_batch(struct tune_job *j, int64_t step, struct grad_seq *seq);
/* Notes the losses of the batch. */
void tune_batch_seen(struct tune_job *j, const struct grad_seq *seq, const double *loss, int n);
struct grad_seq tune_seq(const struct tune_item *item, double weight);
/* Items first .. that fit a pass, at most `most`. */
int tune_fitting(const struct tune_job *j, const struct tune_items *s, int64_t first, struct grad_seq *seq, int most);

/* ---- pace.c ---- */

/* Where a measured backward pass shows that the time is too short for all steps: smaller batches, so that there are
 * more steps, and no more texts to rehearse than these take. */
MUST_CHECK enum err_code tune_fit_pace(struct tune_job *j, struct err *e);

/* ---- rehearse.c ---- */

/* Collects what the model is to say as it does, and the shield of it. */
MUST_CHECK enum err_code tune_rehearse(struct tune_job *j, struct err *e);
/* Of the answers to its own questions of each kind only that half stays of which the model is surest: what it knows
 * can be forgotten, what it makes up need not be kept. */
MUST_CHECK enum err_code tune_drop_unsure(struct tune_items *s, struct err *e);

/* ---- judge.c ---- */

/* Fits the tests to the time, scores what serves, and warns if there are too few items to see what is forgotten. */
MUST_CHECK enum err_code tune_test_before(struct tune_job *j, struct err *e);
/* "at full strength", "at 0.85 of its strength"; returns `to`. */
enum { TUNE_AT_BYTES = 32 };
const char *tune_at_strength(char to[TUNE_AT_BYTES], double strength);
/* Tests the items of a set that are left, before and after; *time: whether there is time for it. */
typedef enum err_code tune_more_fn(void *ctx, int set, bool *time, struct err *e);
/* From the scores before and after: whether more is known, and nothing forgotten. Where the first items of a set leave
 * that open, the others are tested. */
MUST_CHECK enum err_code tune_judge(struct tune_job *j, tune_more_fn *more, void *ctx, struct tune_verdict *v,
                                    struct err *e);
/* Whether a set counts as not kept only because there was no time for the rest of it. */
bool tune_left_open(const struct tune_outcome *r);
/* Whether more of a set is lost than may be, by the lower bound. */
bool tune_surely_lost(const struct tune_job *j, const struct tune_outcome *r);
/* Whether any set was judged. */
bool tune_tests_kept(const struct tune_report *r);
/* The verdict on the adapter at the strength v->strength. */
typedef enum err_code tune_try_fn(void *ctx, struct tune_verdict *v, struct err *e);
/* The adapter at its full strength or, if it forgets, at the largest that bisection finds: what is lost falls faster
 * than what is learnt. It ends with a test of what is going to be published. time_left() says whether there is time
 * for two more. */
MUST_CHECK enum err_code tune_try_strengths(struct tune_verdict *v, tune_try_fn *try, bool (*time_left)(void *ctx),
                                            void *ctx, struct err *e);
/* Writes the new one, as strong as it can be without forgetting, and tests what was written: j->report has the
 * verdict. */
MUST_CHECK enum err_code tune_decide(struct tune_job *j, struct err *e);
/* Publishes what is better and has forgotten nothing, with this record in the file (adapt.h), and removes the rest. */
MUST_CHECK enum err_code tune_publish(struct tune_job *j, const char *record, struct err *e);

/* ---- learn.c ---- */

/* When steps end at the latest: a test has to follow, and there should be time for tests of each strength. */
double tune_limit_s(const struct tune_job *j);
/* The part of the training that is done: of its steps, so that it can be repeated; of its time where that will not do
 * for all of them. */
double tune_part_done(const struct tune_job *j);
/* A step of AdamW along state.gradient, behind the shield; false: the gradient is not a number. */
bool tune_move(struct tune_job *j, double rate);
/* state.gradient of n sequences, in passes that memory allows; each [n]: their losses, or NULL. */
MUST_CHECK enum err_code tune_gradient(struct tune_job *j, const struct grad_seq *seq, int n, double *each,
                                       struct err *e);
/* All steps, as long as there is time. */
MUST_CHECK enum err_code tune_learn(struct tune_job *j, struct err *e);
void tune_end_steps(struct tune_job *j); /* gives back what only steps need */

/* ---- half.c ---- */

/* Whether the file that an interrupted run left is of the same command: ERR_ARG says that it is not, ERR_FORMAT that
 * it is damaged; one of a training that has published its result is removed. To be called before the model writes
 * anything. */
MUST_CHECK enum err_code tune_resume_check(struct tune_job *j, struct err *e);
/* Goes on from what is in it. */
MUST_CHECK enum err_code tune_resume(struct tune_job *j, struct err *e);
MUST_CHECK enum err_code tune_save(struct tune_job *j, struct err *e);
/* The log of zo: a new one, or cut to whole steps; what is added to it. */
MUST_CHECK enum err_code tune_log_open(struct tune_job *j, struct err *e);
MUST_CHECK enum err_code tune_log_add(struct tune_job *j, const struct tune_zo_note *note, int n, struct err *e);
MUST_CHECK enum err_code tune_log_spent(struct tune_job *j, struct err *e);
#endif
