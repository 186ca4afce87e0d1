/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.h - inside chimere-draft-train: what drafters of all kinds have in common.        room: cmd */
#ifndef DRAFT_TRAIN_DRAFTER_H
#define DRAFT_TRAIN_DRAFTER_H
#include "base/io.h"
#include "base/pool.h"
#include "draft-train/program.h"
#include "train/net.h"
#include "train/texts.h"
#include "train/writer.h"

enum { TRAIN_SIZES = 3 }; /* of blocks that are tested, at most */

struct cli_train_drafter;

/* A kind of drafter. Functions with an error: ERR_IO, ERR_NOMEM, ERR_FORMAT, ERR_ARG, ERR_CANCEL. */
struct cli_train_kind {
    const char *command, *products; /* products: what computes them; NULL: d->math */
    bool on_gpu;                    /* its steps may run there */
    int n_warm;                     /* steps in which the step size rises */
    int n_early;                    /* steps after which a new one is tested early; 0: it is not */
    /* With the model: what is at --out, if anything (d->had), and the layers that are tapped. */
    enum err_code (*choose)(struct cli_train_drafter *d, struct err *e);
    /* With prompts and run: bytes of the network, *host of them in the host's memory where d->math has another; what
     * it is (d->name begins with a hash of it); and its opening. */
    int64_t (*bytes)(const struct cli_train_drafter *d, int64_t *host);
    enum err_code (*open)(struct cli_train_drafter *d, struct err *e);
    void (*close)(struct cli_train_drafter *d);
    void (*note)(const struct cli_train_drafter *d, char *text, size_t bytes);        /* the shape, for d->name */
    enum err_code (*begin)(struct cli_train_drafter *d, bool resumed, struct err *e); /* the weights to begin with */
    /* A step, which may still be under way when this returns; and its end. */
    enum err_code (*step)(struct cli_train_drafter *d, double part, struct err *e);
    enum err_code (*loss)(struct cli_train_drafter *d, struct train_loss *loss, struct err *e);
    int (*size_at)(const struct cli_train_drafter *d, int i); /* of blocks, largest first; 0: no more */
    /* Steps of the model for the tests, with blocks of this size: of the old drafter, or of the new one. */
    enum err_code (*walk)(struct cli_train_drafter *d, bool old, int size, int64_t *steps, const struct progress *p,
                          struct err *e);
    enum err_code (*save)(struct cli_train_drafter *d, struct err *e); /* to d->half */
    enum err_code (*write)(struct cli_train_drafter *d,
                           struct err *e); /* to d->fresh; from then on walk() is of what was written */
};

struct cli_train_drafter {
    const struct cli_train_kind *kind;
    const struct cli_train_options *o;
    const struct cli *cli;
    struct cli_opened x;
    struct cli_train_data data;
    struct cli_train_report report;
    struct io_lock *lock;
    struct pool *pool;
    struct dev_math *math; /* what computes steps */
    struct run *run;
    bool old, had; /* a file is at --out; there is something to compare with: that, or the model's block */
    int n_tap, tap[TRAIN_TAPS_MAX];
    int64_t ctx_tokens;
    const int64_t *step; /* how many were taken, set when the network is opened, */
    int64_t n_params;    /* like this */
    const char *products;
    struct train_writer *writer;
    struct train_texts texts, tests;
    int64_t *steps[1 + TRAIN_SIZES]; /* [tests.n]: of the old one; of the new one by block size */
    char *fresh, *half;              /* paths of what is new (NULL: nothing yet), and of what was interrupted */
    char name[160];                  /* of the job */
    double from_ms, stop_ms;         /* of what is going on */
    double before_s;                 /* spent before this process */
    /* prompts in some order, again and again */
    int64_t *order, at, pass, pass_first;
    int64_t early;          /* steps until the early test; 0: it is over */
    int64_t asked;          /* tests: prompts that were given out; texts that the first one went over */
    double walk_s, whole_s; /* what a test takes; when steps end */
    double first_s;         /* spent before this process took its first step, */
    int64_t first_step;     /* which is this one */
};

double cli_train_spent_s(const struct cli_train_drafter *d);
/* All of it: the exit status, or cli_fail()'s. */
int cli_train_drafter(struct cli_train_drafter *d, const struct cli_train_options *o, const struct cli *cli,
                      char *const *files);
#endif
