/* SPDX-License-Identifier: Apache-2.0 */
/* net.h - the DFlash block network with its gradient.                        room: train
 *
 * The formulas of model/dflash.c, in float32, for many blocks at once. A block sees its context only
 * up to its own start, so blocks of one text share the context's keys and values.
 * With f a context row's features, x the embedding of a block's tokens:
 *   g = RMS(fc f, enc.output_norm)
 *   each layer: a = RMS(x, attn_norm);  x += Wo attention(a, g);  m = RMS(x, ffn_norm)
 *               x += down(silu(gate m) * (up m))
 *   logits = head RMS(x, output_norm)
 * (block diffusion drafting: arXiv 2602.06036.) Embedding and head are the target's and frozen.
 * The backward pass computes attention's weights again from the stored log of their sum (Chen et
 * al., arXiv 1604.06174; Dao et al., arXiv 2205.14135); everything else that it needs is kept.
 */
#ifndef TRAIN_NET_H
#define TRAIN_NET_H
#include "ops/math.h"

enum { TRAIN_TAPS_MAX = 16, TRAIN_BLOCK_MAX = DEV_BLOCK_MAX };

struct train_shape {
    int n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim;
    int n_tap, tap[TRAIN_TAPS_MAX]; /* output rows of these layers of the target, in this order */
    int block;                      /* tokens of the largest block, <= TRAIN_BLOCK_MAX */
    int64_t ctx_tokens;             /* positions that may occur */
    int32_t mask;                   /* the token of a place to be guessed */
    float rope_base, eps;
};

struct train_tensor {
    char name[64];
    int64_t n_in, n_out; /* n_out 1: a norm's weights */
    int64_t at;          /* in net.w: [n_out][n_in] */
};

/* Rows of a block are its newest token, then masks. All pointers but feature are to the host's memory. */
struct train_batch {
    int64_t n_context;       /* rows */
    const uint16_t *feature; /* [...][n_tap * n_embd] BF16, in net.m's memory */
    const int32_t *from;     /* [n_context] which of these is the row's */
    const int32_t *pos;      /* [n_context] of a row in its text */
    int n_block;
    const struct dev_block *block;
    int64_t n_row;
    const int32_t *token; /* [n_row] input tokens */
    const int32_t *want;  /* [n_row] the right output tokens; -1: the row does not count */
    const float *weight;  /* [n_row] of the loss at this row */
};

struct train_net {
    struct train_shape s;
    struct train_tensor *tensor;
    int n_tensor;
    int64_t n_params;
    float *w;                /* [n_params] on the host */
    float *at, *grad;        /* [n_params] in m's memory: what passes use; at is w where m is the host */
    struct dev_math *m;      /* not owned */
    struct train_work *work; /* memory of a pass */
};

/* The target's embedding and head, frozen. */
struct train_target {
    int64_t n_vocab;
    const float *head; /* [n_vocab][n_embd] in the memory of the network's m */
    void (*embed)(const void *ctx, int32_t token, float *row);
    const void *ctx;
};

/* All weights are 0. m is not owned. ERR_NOMEM; ERR_UNSUPPORTED: a GPU, and heads of more than DEV_HEAD_MAX elements.
 */
MUST_CHECK enum err_code train_net_open(struct train_net *net, const struct train_shape *s, struct dev_math *m,
                                        struct err *e);
void train_net_close(struct train_net *net); /* zeros are allowed */
void train_net_push(struct train_net *net);  /* w was changed: passes use it from now on */
void train_net_pull(struct train_net *net);  /* w = what passes use */
/* Sets the weights for a new training: norms are 1; matrices are normal noise of variance 1 / (4 n_in), or 1 / (2
 * n_layer) of that for matrices that write to the residual stream. */
void train_net_init(struct train_net *net, uint64_t seed);

struct train_loss {
    double sum, weight; /* of weighted cross entropy, in nats, and of the weights */
    int64_t right, n;   /* right guesses, and all guesses that count */
};
/* This and train_net_guess() take memory if a batch is larger than all before: ERR_NOMEM. */
/* net.grad = the gradient of sum / weight. At least one row of the batch must count. What is asked for may still be
 * under way when it returns; train_net_loss() waits for it: ERR_DEVICE. */
MUST_CHECK enum err_code train_net_step(struct train_net *net, const struct train_target *t,
                                        const struct train_batch *b, struct err *e);
MUST_CHECK enum err_code train_net_loss(struct train_net *net, struct train_loss *loss, struct err *e);
/* best [n_row]: the most likely token of each row; the batch's want and weight are not used. logits [n_row][n_vocab]:
 * for tests; NULL: not wanted. again: the contexts are the same as in the last pass. */
MUST_CHECK enum err_code train_net_guess(struct train_net *net, const struct train_target *t,
                                         const struct train_batch *b, bool again, int32_t *best, float *logits,
                                         struct err *e);
/* Gives back the memory of passes until the next one. */
void train_net_give_room(struct train_net *net);
/* Bytes that a pass over n rows takes at most. */
int64_t train_net_bytes(const struct train_shape *s, const struct dev_math *m, int64_t n_context, int64_t n_row,
                        int64_t n_block, int64_t n_vocab);
#endif
