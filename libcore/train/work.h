/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - inside the room train: memory of a pass of the block network, and its attention. */
#ifndef TRAIN_WORK_H
#define TRAIN_WORK_H
#include "train/gemm.h"
#include "train/net.h"

/* The order of net.tensor: these, then those of each layer. */
enum { FC, ENC_NORM, OUT_NORM, FIRST_LAYER };
enum { ATTN_NORM, ATTN_Q, ATTN_K, ATTN_V, ATTN_OUTPUT, Q_NORM, K_NORM, FFN_NORM, FFN_GATE, FFN_UP, FFN_DOWN, EACH };

struct train_layer {
    /* of the rows of blocks: [n_row][...] */
    float *x, *inv_a, *a; /* what comes in; its norm */
    float *q0, *inv_q, *q; /* queries: as they come, and normed and rotated */
    float *k0, *inv_k, *k, *v;
    float *o, *lse;        /* attention's output, and [n_row][n_head] log of the sum of its weights */
    float *x1, *inv_m, *m, *gate, *up;
    /* of the rows of contexts */
    float *kc0, *inv_kc, *kc, *vc;
};

/* Blocks of one text. */
struct train_text {
    int     first, n; /* blocks */
    int64_t row, n_row, context, n_context;
};

/* What attention needs of both directions; d...: gradients. */
struct train_attend {
    const struct train_shape *s;
    const struct train_gemms *gemms;
    const struct train_batch *b;
    const struct train_text  *text;
    const float *q, *k, *v, *kc, *vc;
    float       *o, *lse;
    const float *d_o;
    float       *dq, *dk, *dv, *dkc, *dvc; /* of contexts: added to */
    float       *scratch;
    int64_t      part; /* floats of a thread's scratch */
};

enum { TRAIN_ATTEND_ROWS = 256 }; /* rows of blocks whose attention weights are in memory at a time */

struct train_work {
    float              *mem;
    int64_t             n_context, n_row; /* that there is room for */
    struct train_layer *layer;
    float *turn;           /* [positions][head_dim / 2] of (cos, sin) */
    int32_t *pos;          /* [n_row] */
    struct train_text *text;
    int n_text;
    /* contexts */
    float *f, *g0, *inv_g, *g, *dg, *dkc, *dvc;
    /* blocks */
    float *x, *inv_y, *y, *dx, *d1, *d2, *dq, *dk, *dv, *h;
    /* rows whose guess counts */
    float *picked, *d_picked, *logits, *loss, *weight;
    int32_t *want, *best, *place;
    int64_t n_chunk; /* rows of logits */
    float *attend;
    int64_t attend_part;
};

/* Takes memory for the batch if there is not enough yet. ERR_NOMEM. */
MUST_CHECK enum err_code train_net_room(struct train_net *net, const struct train_batch *b, int64_t n_vocab,
                                        struct err *e);

void train_attend(struct pool *pool, const struct train_attend *a, int n_text);
void train_attend_back(struct pool *pool, const struct train_attend *a, int n_text);
#endif
