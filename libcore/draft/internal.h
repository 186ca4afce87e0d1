/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room draft: what a drafter is. */
#ifndef DRAFT_INTERNAL_H
#define DRAFT_INTERNAL_H
#include "draft/draft.h"

/* The tokens of a sequence that are certain: token[0 .. fed) are evaluated. */
struct draft_text {
    int32_t *token; /* [cap] */
    int64_t n, fed;
};

/* What a drafter is asked about one sequence. */
struct draft_ask {
    int seq;
    int n; /* in: guesses wanted, at least 1; out: those made */
    int32_t guess[GEN_DRAFT_MAX];
    float p[GEN_DRAFT_MAX]; /* how sure the drafter is of each, 0 .. 1, if those before are right */
};

/* What a drafter is opened with. */
struct draft_source {
    const struct draft_opts *opts;
    const struct gguf *file; /* types with a file; outlives the drafter */
};

/* What drafters work on, once there is a run. */
struct draft_env {
    struct run *run;
    const struct draft_text *text; /* [n_seq] */
};

/* A row of drafters.def. Functions that have nothing to do may be NULL, except open, close and
 * guess. */
struct draft_type {
    const char *name;
    bool file; /* needs one */
    bool free; /* guesses cost no time: they are made before a drafter is chosen */
    enum err_code (*open)(void **out, const struct draft_source *s, struct err *e);
    void (*close)(void *of);
    /* Layers whose output rows it reads, at most MODEL_TAPS_MAX. */
    int (*taps)(const void *of, int *layers);
    /* How many guesses to ask for if n >= 1 are wanted; may be more or fewer than n. */
    int (*fit)(const void *of, int n);
    enum err_code (*attach)(void *of, const struct draft_env *env, struct err *e);
    void (*cut)(void *of, int seq, int64_t n); /* the text has only its first n tokens left */
    void (*fork)(void *of, int dst, int src);  /* the text of dst is now that of src */
    /* Tokens pos .. pos + n - 1 were evaluated in the run's last step. */
    void (*settle)(void *of, int seq, int64_t pos, int n);
    /* Fills the asks, which are in the order of sequences. Called before each step, also with n 0,
     * because the next step overwrites what the last one left on the device. *late: it had to catch
     * up first, so the time of this call says nothing about later ones. */
    enum err_code (*guess)(void *of, struct draft_ask *ask, int n, bool *late, struct err *e);
    /* Guesses may be among these tokens alone, which ascend. Once, before the first step. */
    enum err_code (*narrow)(void *of, const int32_t *token, int n, struct err *e);
};

/* ---- width.c: which drafter, how many guesses ---- */

struct draft_width;
MUST_CHECK enum err_code draft_width_open(struct draft_width **out, int n_type, int n_seq, struct err *e);
void draft_width_close(struct draft_width *w); /* NULL is allowed */
/* What is known of costs and guesses, for another process. Times are in steps of one row. */
struct draft_learnt {
    double row[GEN_COSTS]; /* a step by its rows; 0: not known */
    double budget;
    struct draft_learnt_type {
        double call[GEN_DRAFT_MAX + 1]; /* by guesses asked for; 0: not known */
        double kept[GEN_DRAFT_MAX];     /* the share of right guesses by place */
        double sure[GEN_DRAFT_MAX];     /* and by class of how sure the drafter was */
        int tries, pause;
    } type[DRAFT_OPEN_MAX];
};
/* False: too little was measured. */
bool draft_width_tell(const struct draft_width *w, struct draft_learnt *out);
/* Begins with what another process told, before the first step. False: a number is out of range, nothing has changed.
 */
bool draft_width_recall(struct draft_width *w, const struct draft_learnt *l);

/* The sequence begins another text: drops what was learnt from it. */
void draft_width_begin(struct draft_width *w, int seq);

/* A step with n answers is being composed; the step before has ended. */
void draft_width_step(struct draft_width *w, const struct gen_cost *cost, int n);
void draft_width_again(struct draft_width *w, int n); /* the same step, now that guesses are made */

/* The best choice for one answer, and how good it is. Answers are chosen one after the other. */
struct draft_choice {
    int type;      /* -1: no guesses */
    int n;         /* guesses to ask for, or to use */
    bool trial;    /* made to measure, although it does not pay */
    double rate;   /* tokens a millisecond of the whole step */
    double tokens; /* expected, beside the one that is certain */
    double ms;     /* of guessing */
};
struct draft_choice draft_width_none(const struct draft_width *w);
/* Sets *best to as many of these guesses as pay, if that is better than what it has. */
void draft_width_made(const struct draft_width *w, int type, const struct draft_ask *a, struct draft_choice *best);
/* Sets *best to a trial of these guesses, if nothing pays and it is time for a trial: the measured cost of rows may be
 * wrong. */
void draft_width_try(const struct draft_width *w, int type, const struct draft_ask *a, struct draft_choice *best);
/* Sets *best to asking this drafter, if that is better or it is time for a trial. */
void draft_width_promise(const struct draft_width *w, int type, const struct draft_type *t, const void *of, int seq,
                         int n_max, struct draft_choice *best);
/* The choice was taken: its rows are part of the step now. */
void draft_width_take(struct draft_width *w, const struct draft_choice *c, int seq, bool asked);

/* The drafter that was asked was not ready: if that was its first trial, it is still to come. */
void draft_width_nothing(struct draft_width *w, int type);

/* A call of a drafter for at most n guesses of a sequence took `ms`. late: other calls will not take as long. */
void draft_width_spent(struct draft_width *w, int type, int n, double ms, bool late);
/* A drafter made n_made guesses with these p for a sequence; n of them were checked, the first
 * n_kept were right. n 0: none was worth its row. */
void draft_width_learn(struct draft_width *w, int type, int seq, const float *p, int n_made, int n, int n_kept);

/* ---- counts.c: how often tokens are part of answers ---- */

struct draft_counts {
    uint32_t *of; /* [n_vocab] */
    int32_t n_vocab;
    uint64_t all;
};
MUST_CHECK enum err_code draft_counts_open(struct draft_counts *c, int32_t n_vocab, struct err *e);
void draft_counts_close(struct draft_counts *c);
void draft_counts_add(struct draft_counts *c, int32_t token);
/* The likeliest tokens, an eighth of the vocabulary, ascending, which the caller frees: those that were counted, then
 * those with the lowest ids, the shortest and most frequent ones of most tokenizers. NULL: too few were counted, or
 * memory is out. */
int32_t *draft_counts_best(const struct draft_counts *c, int *n);
/* Tokens and their counts as one list; NULL: memory is out. */
struct json_t *draft_counts_json(const struct draft_counts *c);
/* False: it is no such list, and nothing has changed. */
bool draft_counts_read(struct draft_counts *c, const struct json_t *list);

/* ---- learnt.c: the same as JSON ---- */

struct json_t;
/* NULL: memory is out. */
struct json_t *draft_learnt_json(const struct draft_learnt *l, const char *const *names, int n);
/* False: it is no such object, or one of drafters with other names. */
bool draft_learnt_read(struct draft_learnt *out, const struct json_t *o, const char *const *names, int n);
#endif
