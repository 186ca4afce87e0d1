/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.h - a DFlash drafter learns from texts of its model.                       room: train
 *
 * A block begins at a token that the model wrote, its anchor; the tokens after it are what is to be
 * guessed. Loss: cross entropy at places k = 1 .. B - 1 with weight exp(-(k - 1) / gamma), gamma 7
 * for blocks of more than 8 and 4 for others, since a guess counts only after all before it.
 * (arXiv 2602.06036) Blocks have B, B / 2 or B / 4 tokens at 60, 22 and 18 %, so that each size may
 * be used. A text comes in proportion to (tokens written)^0.75.
 */
#ifndef TRAIN_DFLASH_H
#define TRAIN_DFLASH_H
#include "train/adam.h"
#include "train/file.h"
#include "train/texts.h"

struct gguf;
struct pool;

struct train_dflash_opts {
    int      n_text, n_anchor; /* texts in a step, and blocks of each */
    float    rate;             /* the largest step size */
    int      n_warm;           /* steps before it */
    uint64_t seed;
};
struct train_dflash {
    struct train_dflash_opts o;
    struct train_net         net;
    struct train_adam        adam;
    struct train_frozen      frozen;
    unsigned char           *decayed; /* [n_params]: of a matrix */
    double                   spent_s; /* time that went into it so far */
    int64_t                  bad;     /* steps in a row whose gradient was no number */
    struct train_draw       *draw;    /* memory for a batch */
};
/* New weights. ERR_FORMAT, ERR_NOMEM. */
MUST_CHECK enum err_code train_dflash_open(struct train_dflash *d, const struct train_shape *s, const struct gguf *model,
                                           struct pool *pool, const struct train_dflash_opts *o, struct err *e);
void train_dflash_close(struct train_dflash *d);
/* Bytes that it takes at most, texts of up to ctx_tokens; without the frozen matrices of the target. */
int64_t train_dflash_bytes(const struct train_shape *s, const struct train_dflash_opts *o, int64_t n_vocab, int threads);

/* One step of AdamW at this part of the whole job, 0 .. 1. There is some text. A gradient that is no number changes
 * nothing; after 20 in a row: ERR_FORMAT. */
MUST_CHECK enum err_code train_dflash_step(struct train_dflash *d, struct train_texts *t, double part,
                                           struct train_loss *loss, struct err *e);

/* Weights, moments and time spent in a file, complete or not at all; `job` says what it is of. */
MUST_CHECK enum err_code train_dflash_save(const struct train_dflash *d, const char *path, struct str job, struct err *e);
/* ERR_ARG: the file is of another job. ERR_FORMAT: it is damaged. */
MUST_CHECK enum err_code train_dflash_load(struct train_dflash *d, const char *path, struct str job, struct err *e);

enum { TRAIN_WALK_TEXTS = 16 }; /* that are tested at once */
/* Drafting of text[i] as it would go: a block after each place where the last one ended, B tokens with its anchor.
 * steps[i]: of the target; its pass over the prompt and the token from that are not counted. A step gives the accepted
 * guesses and the one token that the target adds, but none after the last one. tick: after each group of texts. */
MUST_CHECK enum err_code train_walk(struct train_net *net, const struct train_target *target,
                                    const struct train_texts *t, int block, int64_t *steps,
                                    const struct progress *progress, struct err *e);
/* Tokens of a text that these steps give. */
int64_t train_walk_tokens(const struct train_text_entry *text);
#endif
