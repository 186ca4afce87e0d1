/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.h - small networks that guess what comes after a model's rows, on the model's device.
 * room: model
 *
 * There are two kinds. MTP is the multi-token-prediction block of the model's own file: it takes
 * the hidden row of a token and the token after it, and guesses one token at a time, each from its
 * own last output. (DeepSeek-V3, 2024) DFlash is a separate file: from the hidden rows of several
 * layers it guesses a block of tokens in one pass, in which every token of the block sees all
 * others (block diffusion: arXiv 2602.06036). Both use the model's embedding and its output matrix,
 * and read rows of `tap` layers that a step leaves on the device.
 *
 * A drafter has n_seq slots. The context of a slot is the rows that it was given, in order; their
 * keys and values stay in the drafter's memory, those of guesses do not. Rows that cannot be used
 * yet may be saved. One thread, that of the model's steps. Nothing is allocated after
 * model_drafter_reserve().
 */
#ifndef MODEL_DRAFTER_H
#define MODEL_DRAFTER_H
#include "base/base.h"

struct gguf;
struct model;
struct model_drafter;
struct model_taps; /* model/forward.h */

enum { MODEL_TAPS_MAX = 16, MODEL_GUESSES_MAX = 16 };

/* The block of the model's own file, opened with model_opts.nextn. adapter: a file of changes to its
 * matrices (adapt/adapt.h); NULL: none. ERR_UNSUPPORTED: no block, or the file has another matrix. */
MUST_CHECK enum err_code model_drafter_mtp(struct model_drafter **out, const struct model *m, const char *adapter,
                                           struct err *e);
/* A file of architecture "dflash"; it and m outlive the drafter. ERR_FORMAT: it is damaged, or not
 * one for this model: the message says why. ERR_UNSUPPORTED: another architecture, or a tensor that
 * is not of this one. */
MUST_CHECK enum err_code model_drafter_dflash(struct model_drafter **out, const struct model *m, const struct gguf *g,
                                              struct err *e);
void model_drafter_close(struct model_drafter *d); /* NULL is allowed */

struct model_drafter_info {
    int n_max;  /* guesses for a slot in one call, <= MODEL_GUESSES_MAX */
    bool block; /* makes all guesses in one pass; trained for 3, 7, 15 guesses and so on */
    int n_embd; /* floats of a layer's row */
    int n_tap;
    int tap[MODEL_TAPS_MAX]; /* layers of the model whose output rows are read, in this order */
};
const struct model_drafter_info *model_drafter_info(const struct model_drafter *d);

/* Takes memory for n_seq slots of ctx_tokens rows, n_saved saved rows, and scratch. ERR_NOMEM. */
MUST_CHECK enum err_code model_drafter_reserve(struct model_drafter *d, int n_seq, int64_t ctx_tokens, int n_saved,
                                               struct err *e);

/* From now on guesses are among these n tokens alone, which ascend: only their rows of the output matrix are read, from
 * a copy, and probabilities are among them. On the host; on other devices nothing happens. Once, after
 * model_drafter_reserve(). (FR-Spec, arXiv 2502.14856) */
MUST_CHECK enum err_code model_drafter_narrow(struct model_drafter *d, const int32_t *token, int n, struct err *e);

/* The most rows that a context can have, guesses included. */
int64_t model_drafter_ctx(const struct model_drafter *d);
/* Keeps the first `rows` rows of the slot's context. */
void model_drafter_crop(struct model_drafter *d, int slot, int64_t rows);
void model_drafter_fork(struct model_drafter *d, int dst, int src);

/* Copies rows row[0 .. n) of the taps to the saved rows from `at` on. */
MUST_CHECK enum err_code model_drafter_save(struct model_drafter *d, const struct model_taps *t, const int32_t *row,
                                            int n, int at, struct err *e);
/* Saved rows from[0 .. n) become the first n; from ascends. */
MUST_CHECK enum err_code model_drafter_keep(struct model_drafter *d, const int32_t *from, int n, struct err *e);

/* A row for the context of a slot. */
struct model_drafter_row {
    int slot;
    bool saved; /* `row` is the number of a saved row, not of a row of the taps */
    int32_t row;
    int32_t next; /* the token after it */
};
/* Guesses after `token`, the newest one, whose hidden row is not known yet. */
struct model_drafter_ask {
    int slot;
    int32_t token;
    int n;          /* 1 .. info.n_max */
    int32_t *guess; /* [n] out: the most likely token of each place */
    float *p;       /* [n] out: its probability, DFlash's without regard to the others */
};
/* First the rows join the contexts: those of a slot follow one another. Then the guesses, for every
 * slot once, in the order of slots. MTP guesses only for a slot whose newest row is among these
 * rows: others have guess[0] = -1. The caller ensures that contexts and guesses fit. */
MUST_CHECK enum err_code model_drafter_run(struct model_drafter *d, const struct model_taps *t,
                                           const struct model_drafter_row *row, int n_row,
                                           const struct model_drafter_ask *ask, int n_ask, struct err *e);
#endif
