/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - inside the room train: memory of a pass of the block network. */
#ifndef TRAIN_WORK_H
#define TRAIN_WORK_H
#include "train/net.h"

/* The order of net.tensor: these, then those of each layer. */
enum { FC, ENC_NORM, OUT_NORM, FIRST_LAYER };
enum { ATTN_NORM, ATTN_Q, ATTN_K, ATTN_V, ATTN_OUTPUT, Q_NORM, K_NORM, FFN_NORM, FFN_GATE, FFN_UP, FFN_DOWN, EACH };

struct train_layer {
    /* of the rows of blocks: [n_row][...] */
    float *x, *inv_a, *a;  /* what comes in; its norm */
    float *q0, *inv_q, *q; /* queries: as they come, and normed and rotated */
    float *k0, *inv_k, *k, *v;
    float *o, *lse; /* attention's output, and [n_row][n_head] log of the sum of its weights */
    float *x1, *inv_m, *m, *gate, *up;
    /* of the rows of contexts */
    float *kc0, *inv_kc, *kc, *vc;
};

/* What a batch is made of. */
struct train_ids {
    struct dev_block *block;
    struct dev_text *text;
    int32_t *from, *context_pos; /* [n_context] */
    int32_t *pos, *embed;        /* [n_row] position; which of `first` is its token */
    int32_t *place, *want;       /* rows whose guess counts: which they are, and the right tokens */
    float *weight, *first; /* of these rows; [1 + n_block][n_embd] the mask's embedding and those of newest tokens */
};

struct train_work {
    void *mem, *ids, *host_mem; /* of the network's m; of the host, for: */
    struct train_ids dev, host; /* one memory where m is the host */
    int64_t ids_bytes;
    int64_t n_context, n_row, n_block; /* that there is room for */
    struct train_layer *layer;
    float *turn;         /* [positions][head_dim / 2] of (cos, sin) */
    int n_text, n_count; /* texts; rows whose guess counts */
    int64_t seen_max;    /* context rows of a text */
    double total;        /* of the weights */
    /* contexts */
    float *f, *g0, *inv_g, *g, *dg, *dkc, *dvc;
    /* blocks */
    float *x, *inv_y, *y, *dx, *d1, *d2, *dq, *dk, *dv, *h;
    /* rows whose guess counts */
    float *picked, *d_picked, *logits, *loss;
    int32_t *best;
    float *host_loss; /* of the host */
    int32_t *host_best;
    int64_t n_chunk; /* rows of logits */
    float *attend;
};

/* Takes memory for the batch if there is not enough yet. ERR_NOMEM. */
MUST_CHECK enum err_code train_net_room(struct train_net *net, const struct train_batch *b, int64_t n_vocab,
                                        struct err *e);
#endif
