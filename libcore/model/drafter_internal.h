/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_internal.h - inside the room model: what both kinds of drafters share. */
#ifndef MODEL_DRAFTER_INTERNAL_H
#define MODEL_DRAFTER_INTERNAL_H
#include "model/adapter.h"
#include "model/drafter.h"
#include "model/forward.h"
#include "model/internal.h"
#include "state/state.h"

enum { DRAFT_ROWS = 256 }; /* context rows in one device step */

/* Positions of the same rows: as they are stored; as DFlash's queries see the keys; and both of these
 * counted from the first page of a window. */
enum { AS_STORED, AS_SEEN, AS_STORED_IN_WINDOW, AS_SEEN_IN_WINDOW, DRAFT_VIEWS };

/* Rows of one device step. */
struct drafter_batch {
    int n, n_seq;
    int32_t *token;                  /* [rows] */
    int32_t *pos[DRAFT_VIEWS];       /* [rows] */
    struct op_seq *seq[DRAFT_VIEWS]; /* [rows] */
};

struct drafter_kind {
    /* Adds rows to contexts, between dev_begin() and dev_end(). x: the gathered rows of taps, as d->batch has them. */
    void (*take)(struct model_drafter *d, struct tensor x);
    /* Also between these two, after the last take: makes all guesses; returns the number of answers. */
    int (*guess)(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask);
    /* After dev_end(): the guesses from the answers. */
    void (*finish)(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask);
    void (*measure)(struct model_drafter *d, int n_ask); /* the scratch that guess takes */
};

struct model_drafter {
    const struct drafter_kind *kind;
    const struct model *target;
    struct model_drafter_info info;
    struct model net;         /* layers, plan and rotary frequencies of the drafter; never opened */
    struct state *state;      /* keys and values of the slots */
    struct tensor embd, head; /* the target's, unless the block has its own */
    struct tensor mix;        /* MTP: eh_proj; DFlash: fc */
    struct {
        int32_t *token;      /* [n] ascending: model_drafter_narrow(); NULL: all */
        unsigned char *rows; /* [n] of the output matrix, copied when guesses are first made */
        int n;
        bool copied;
    } narrow;
    const float *embd_norm, *hidden_norm, *out_norm;
    int32_t mask;   /* DFlash: the token of a place to be guessed */
    int window;     /* DFlash: keys that windowed layers see before the block */
    bool *windowed; /* [layers] */
    int64_t width;  /* floats of a row of all taps */
    int n_seq, n_saved;
    float *saved[2];               /* [n_saved][width] on the device; the first one is in use */
    struct adapter *changes;       /* MTP: of the block; NULL: none */
    struct model_adapter *adapter; /* the same on the device */
    struct model_adapt adapt;      /* every row has it */
    float *last;                   /* MTP: [n_seq][n_embd] on the device: outputs that the next guesses come from */
    /* of n_seq * MODEL_GUESSES_MAX guesses: on the device, on the host */
    unsigned char *digest, *answer;
    struct drafter_batch batch;
    int32_t *order, *pick; /* [rows] */
    int n_last;
    int *last_of;         /* [n_seq] row of `last` of a slot; -1: none */
    int64_t *rows_before; /* MTP: [n_seq] rows of each ask's context before its guesses */
    int *live;            /* [n_seq] asks that MTP still guesses for */
    float *inv_temp;      /* [n_seq * MODEL_GUESSES_MAX] ones: op_top */
    const int32_t **page; /* [n_seq] pages from the first of a window on */
    bool measuring;
    /* For tests: where intermediate results of the next run are copied to on the host, or NULL. */
    struct {
        float *fused;  /* DFlash: [rows][n_embd] what context rows become */
        float *logits; /* [guesses][n_vocab]: all first ones come first (MTP), or ask by ask (DFlash) */
        float *hidden; /* MTP: [..][n_embd] the rows that the output matrix multiplies, in the order of logits */
    } trace;
};

enum err_code model_draft_open(struct model_drafter **out, const struct model *m, const struct drafter_kind *kind,
                               struct err *e);
/* Rows of a view for an operation. */
struct op_rows model_draft_rows(const struct model_drafter *d, int view);
/* Appends n rows to d->batch, at the positions that follow those the slot has. d->batch begins with n = n_seq = 0. */
void model_draft_append(struct model_drafter *d, int slot, int n);
/* Computes keys and values of the normed rows x and adds them to those of layer i in kv: rotated by the positions of
 * `turn`, stored at the positions of `store`. */
void model_draft_remember(const struct step *s, int i, struct tensor x, const struct op_kv *kv,
                          const struct op_rows *turn, const struct op_rows *store);
/* The rows of d->batch are now part of their slots. */
void model_draft_advance(struct model_drafter *d);
/* Computes the logits of n rows x and the best token of each: answers r, r + 1 and so on, which are on the host when
 * the step has ended. */
void model_draft_head(struct model_drafter *d, struct tensor x, int64_t r);
/* The tokens of all answers, where they are on the device. */
struct op_ids model_draft_ids(const struct model_drafter *d);
/* The token of answer r and its probability; -1: no logit was finite. */
int32_t model_draft_answer(const struct model_drafter *d, int64_t r, float *p);
/* Copies rows to a trace and moves the trace's pointer behind them. */
void model_draft_note(struct model_drafter *d, float **trace, struct tensor x);
#endif
