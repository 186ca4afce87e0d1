/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room grad: bound matrices, one pass and what it keeps of a layer.
 *
 * Rows are those of all sequences, one after the other. dX is the gradient of the loss with respect to X. */
#ifndef GRAD_INTERNAL_H
#define GRAD_INTERNAL_H
#include <math.h>

#include "arch/arch.h"
#include "base/arena.h"
#include "grad/grad.h"
#include "grad/loops.h"

struct pool;

/* Numbers of matrices; -1: none. */
struct attn_at {
    int q, k, v, o;
    const float *q_norm, *k_norm; /* [dim_k] */
};
struct gdn_at {
    int qkv, z, alpha, beta, ba, out;
    const float *conv;            /* [taps][channels] */
    const float *dt_bias, *a;     /* [n_v] */
    const float *norm;            /* [dim_v] */
};
struct glu_at {
    int gate, up, down;
};
struct moe_at {
    int router, shared_router;
    struct glu_at routed, shared;
};
struct layer_at {
    const float   *mix_norm, *ffn_norm; /* [n_embd] */
    struct attn_at attn;
    struct gdn_at  gdn;
    struct glu_at  dense;
    struct moe_at  moe;
};

struct layer_acts;

struct grad {
    const struct gguf  *gguf;
    struct pool        *pool;
    unsigned            simd;
    struct arena        arena;
    struct arch_plan         plan;
    struct grad_matrix *mat;
    int                 n_mat, embd, head;
    const float        *out_norm;
    int                 n_trunk;   /* layers of the main stack */
    int                 mix;       /* of a multi-token-prediction block: eh_proj; -1: this is the main stack */
    const float        *embd_norm, *hidden_norm, *trunk_norm; /* the same; trunk_norm: the main stack's last */
    struct layer_at    *layer;
    struct layer_acts  *kept;      /* [n_layer], for grad_batch.keep */
    float              *rope_freq; /* [n_rot / 2] */
    int64_t             tile;      /* floats of the largest tile */
    float              *memory;    /* of passes, kept from one to the next */
    int64_t             memory_floats;
};

/* Memory of a pass: a stack of floats; who takes sets `used` back at the end. base NULL: only counted, and the pass then
 * computes nothing. */
struct stack {
    float  *base;
    int64_t used, top;
};
float   *grad_take(struct stack *s, int64_t n);
float   *grad_zeros(struct stack *s, int64_t n);
int32_t *grad_take_ints(struct stack *s, int64_t n);
int64_t *grad_take_longs(struct stack *s, int64_t n);

struct pass {
    struct grad             *g;
    const struct grad_batch *b;
    const struct grad_loops *loops;
    struct stack             stack;
    int64_t                  n;        /* rows */
    const int64_t           *first;    /* [n_seq + 1] first row of each sequence */
    const int32_t           *all_rows; /* 0, 1, 2 ... */
    float                   *tile;     /* decoded rows */
    struct grad_tools        tools;
    float                   *both;     /* with a mix: [rows][2 n_embd] that it multiplies */
    float                   *low;      /* adapters' narrow rows and their gradients: [2][rows][rank] */
    int                      lowest;   /* layers below need no gradients */
};

const struct grad_loops *grad_loops(unsigned simd);

/* Which matrix, and the rows of the batch that it is for, ascending; NULL: all. */
struct at {
    int            matrix, expert;
    const int32_t *row;
};
int64_t grad_tile_rows(const struct grad_matrix *m);
void grad_mat_forward(const struct pass *p, struct at at, float *y, const float *x, int64_t n);
/* dx += W^T dy, where dx is not NULL; what adapters and the trace get. */
void grad_mat_backward(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n);

/* y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w over n_rows rows of n floats; y may be x. */
void grad_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows);
void grad_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                    int64_t n_rows); /* dx += */

/* What a layer keeps between its forward and its backward pass. */
struct attn_acts {
    float *qg, *k, *v, *q_turned, *k_turned, *peak, *o, *gated; /* peak: log of the sum of weights, [rows][heads] */
};
struct gdn_acts {
    float *qkv, *mixed, *z, *alpha, *beta, *ba, *q, *k, *o, *gated;
};
struct glu_acts {
    float *gate, *up, *h, *out;
};
struct moe_acts {
    float          *logits, *prob, *weight; /* [rows][experts], the same, [rows][used] */
    int32_t        *expert, *row, *place;   /* [rows][used]; of pairs by expert: their row, place in expert */
    int64_t        *first;                  /* [experts + 1] pairs of each expert */
    float          *x;                      /* [pairs][n_embd] */
    struct glu_acts routed, shared;
    float          *open;                   /* [rows] the shared expert's gate, before the sigmoid */
};
struct layer_acts {
    float           *normed, *mid, *ffn_in; /* norm of the layer's input; after the mixer; its norm */
    struct attn_acts attn;
    struct gdn_acts  gdn;
    struct glu_acts  dense;
    struct moe_acts  moe;
};

void grad_attn_take(struct pass *p, struct attn_acts *a);
void grad_attn_forward(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *y, const float *x);
void grad_attn_backward(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dx, const float *dy,
                        const float *x);
void grad_gdn_take(struct pass *p, struct gdn_acts *a);
void grad_gdn_forward(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, float *y, const float *x);
void grad_gdn_backward(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, float *dx, const float *dy,
                       const float *x);
void grad_glu_take(struct pass *p, struct glu_acts *a, int64_t n, int64_t n_ff);
/* a->out = down(silu(gate x) * (up x)) */
void grad_glu_forward(struct pass *p, const struct glu_at *w, struct at at, const struct glu_acts *a, const float *x,
                      int64_t n);
void grad_glu_backward(struct pass *p, const struct glu_at *w, struct at at, const struct glu_acts *a, float *dx,
                       const float *dout, const float *x, int64_t n);
void grad_moe_take(struct pass *p, struct moe_acts *a);
void grad_moe_forward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *y, const float *x);
void grad_moe_backward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *dx, const float *dy,
                       const float *x);

/* The loss of rows of the last layer's output x, and its gradient dx, which holds zeros (NULL: forward only). */
double grad_loss(struct pass *p, float *dx, const float *x);

/* For pieces of rows: fn(ctx, begin, end, worker) with a grain that is worth a thread. */
int64_t grad_grain(int64_t work_each);

static inline float grad_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
#endif
