/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - inside chimere-draft-train: one training of an adapter, shared by the files of the command lora.  room: cmd */
#ifndef DRAFT_TRAIN_JOB_H
#define DRAFT_TRAIN_JOB_H
#include <stdio.h>
#include "draft-train/lora.h"
#include "grad/grad.h"
#include "train/adam.h"

struct io_lock;
struct tune_shield;
struct tune_zo;

enum {
    TRAIN_TESTS_MAX = 400, /* items of --keep, or held out of what is learnt */
    TRAIN_SETS_MAX = 2000, /* items of the task sets */
    TRAIN_STRENGTHS = 7,   /* tests at the end: the whole adapter, five of bisection, the best once more */
    TRAIN_KEEP_EVERY = 5,  /* of --keep, each fifth item is tested on */
};

/* An item's part in a test: mean loss of a token, and whether each is the likeliest. */
struct train_score {
    double loss;
    bool exact;
};

struct train_lora {
    const struct train_options *o;
    const struct cli *cli;
    struct cli_opened x;
    struct train_report report;
    struct io_lock *lock;
    struct grad *g;
    struct train_begin begin;                         /* what serves */
    struct tune_lora *lora;                           /* what learns: begin.lora */
    struct train_items items, tests, keep, kept, own; /* own: what the model wrote */
    json_t *sets;                                     /* questions of the task sets */
    struct train_score *before[2], *after[2];         /* of tests, of kept */
    struct train_adam adam;
    float *gradient;
    struct grad_adapter *adapters; /* [lora->n] */
    struct tune_shield *shield;    /* NULL: none */
    float *was;                    /* [n_params] before a step, with a shield */
    struct tune_zo *zo;
    FILE *log; /* of zo; log_n bytes are whole entries */
    size_t log_n;
    char *fresh, *half; /* paths of what is new (NULL: nothing yet), of what was interrupted */
    char name[200];
    int64_t *order, order_of; /* [items.n] of a pass over them */
    float *seen;              /* [n_seen] mean loss of a token when last seen: of items, own, keep */
    int64_t *which, n_seen;   /* [n_text + keep_batch] of a step */
    double *seq_loss;         /* the same */
    int64_t own_tokens;       /* of a question and an answer that the model writes, at most */
    int64_t rows_max, step, steps, keep_at;
    int64_t room_bytes; /* of --memory for the model while it writes: on a GPU, which has a memory of its own, all */
    bool keep_layers, shielded;
    int64_t step_first; /* of this process */
    double from_ms, before_s, test_s, learn_from_s;
};

/* Seconds since the training began, those of interrupted runs included. */
double cli_train_lora_s(const struct train_lora *j);

/* ---- judge.c: tests and the gate ---- */

struct grad_seq cli_train_seq(const struct train_item *item, double weight);
/* Items first .. that fit a pass, at most `most`. */
int cli_train_fitting(const struct train_lora *j, const struct train_items *s, int64_t first, struct grad_seq *seq,
                      int most);
/* Scores of the tests and of what is kept, with an adapter; NULL: the bare model's. */
MUST_CHECK enum err_code cli_train_test(struct train_lora *j, const struct tune_lora *l,
                                        struct train_score *const score[2], struct err *e);
/* Seconds for an item, by the first few. */
MUST_CHECK enum err_code cli_train_test_some(struct train_lora *j, double *each_s, struct err *e);
/* After the test before training: a message if there are too few items to see what is forgotten. */
void cli_train_warn_untested(const struct train_lora *j);
/* Writes the new one, as strong as it can be without forgetting, and tests what was written; prints what became of each set and
 * publishes what is better and has forgotten nothing. *status: the program's. */
MUST_CHECK enum err_code cli_train_decide(struct train_lora *j, int *status, struct err *e);

/* ---- rehearse.c ---- */

/* Collects what the model is to say as it does, and the shield of it. */
MUST_CHECK enum err_code cli_train_rehearse(struct train_lora *j, struct err *e);

/* ---- batch.c ---- */

MUST_CHECK enum err_code cli_train_batch_open(struct train_lora *j, struct err *e);
/* What is rehearsed as number i of all steps that take it in turn, also below 0; and where it is. */
int64_t cli_train_rehearsed(const struct train_lora *j, int64_t i);
const struct train_item *cli_train_rehearsed_at(const struct train_lora *j, int64_t i);
/* seq [n_text + keep_batch] of a step; their losses' weights: of what is learnt the mean over its tokens, of what is
 * rehearsed keep_weight times that. Returns how many. */
int cli_train_batch(struct train_lora *j, int64_t step, struct grad_seq *seq);
/* Notes the losses of the batch. */
void cli_train_batch_seen(struct train_lora *j, const struct grad_seq *seq, const double *loss, int n);

/* ---- learn.c ---- */

/* All steps, as long as there is time. */
MUST_CHECK enum err_code cli_train_learn(struct train_lora *j, struct err *e);
void cli_train_end_steps(struct train_lora *j); /* gives back what only steps need */
/* Whether the file that an interrupted run left is of the same command: ERR_ARG says that it is not, ERR_FORMAT that it is
 * damaged; one of a training that has published its result is removed. To be called before the model writes anything. */
MUST_CHECK enum err_code cli_train_check_half(struct train_lora *j, struct err *e);
/* Goes on from what is in it. */
MUST_CHECK enum err_code cli_train_resume(struct train_lora *j, struct err *e);
#endif
