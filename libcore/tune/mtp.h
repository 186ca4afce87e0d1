/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.h - an adapter of a model's multi-token-prediction block learns from texts of the model.      room: tune
 *
 * The block takes a token's hidden row and the token after it, and guesses the token that follows (model/mtp.c). Only
 * low-rank changes to its matrices are trained (adapt/adapt.h); its weights and the model stay as they are stored.
 * Loss: cross entropy of the tokens that the model wrote, from the second on, each guessed from rows of the model
 * itself. When drafting several tokens the block gets its own rows; that case is not trained. The texts of a step are
 * drawn as in train/dflash.h. */
#ifndef TUNE_MTP_H
#define TUNE_MTP_H
#include "train/adam.h"
#include "train/net.h"
#include "train/texts.h"

struct grad;
struct grad_adapter;
struct grad_seq;
struct tune_lora;

struct tune_mtp_opts {
    int n_text; /* texts in a step */
    float rate; /* the largest step size */
    int n_warm; /* steps before it */
    uint64_t seed;
    int64_t rows_max; /* rows of a pass, at least the tokens of the longest text */
};
/* Features of the texts: one row for each token, of the main stack's last layer. */
struct tune_mtp {
    struct tune_mtp_opts o;
    struct grad *g;         /* grad_open_nextn(); not owned */
    struct tune_lora *lora; /* of g; not owned */
    struct train_adam adam;
    float *gradient;              /* [n_params] */
    struct grad_adapter *adapter; /* [lora->n] */
    double spent_s;               /* time that went into it so far */
    /* of a pass */
    struct grad_seq *seq;                 /* [rows_max] */
    float *hidden;                        /* [rows_max][n_embd] */
    int32_t *target;                      /* [rows_max] */
    unsigned char *right;                 /* [rows_max] the likeliest token is the target */
    int64_t *first;                       /* [rows_max] first row of a sequence */
    const struct train_text_entry **text; /* [n_text] */
};
/* ERR_NOMEM. */
MUST_CHECK enum err_code tune_mtp_open(struct tune_mtp *t, struct grad *g, struct tune_lora *lora,
                                       const struct tune_mtp_opts *o, struct err *e);
void tune_mtp_close(struct tune_mtp *t);
/* Bytes that it takes at most, without the mapping of the grad's file. */
int64_t tune_mtp_bytes(const struct grad *g, const struct tune_lora *lora, int64_t rows_max);

/* One step of AdamW; part: how much of the whole job is done, 0 .. 1. At least one text must have three tokens.
 * ERR_FORMAT: the loss is not finite; nothing has changed. */
MUST_CHECK enum err_code tune_mtp_step(struct tune_mtp *t, struct train_texts *texts, double part,
                                       struct train_loss *loss, struct err *e);
/* Simulates drafting of each text. steps [texts->n]: steps of the model, each with one guess, to the end of the text;
 * lora NULL: the block without an adapter. A step gives the guess, if it is right, and one more token
 * (train_walk_tokens() in all). */
MUST_CHECK enum err_code tune_mtp_walk(struct tune_mtp *t, const struct tune_lora *lora,
                                       const struct train_texts *texts, int64_t *steps, const struct progress *progress,
                                       struct err *e);
/* Write and read adapter, moments and time spent: train/half.h. */
MUST_CHECK enum err_code tune_mtp_save(const struct tune_mtp *t, const char *path, struct str job, struct err *e);
MUST_CHECK enum err_code tune_mtp_load(struct tune_mtp *t, const char *path, struct str job, struct err *e);
#endif
