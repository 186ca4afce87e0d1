/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room grad, and for devices: bound matrices, one pass and what it keeps of a layer, the
 * operations that it is made of.
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
    const float *conv;        /* [taps][channels] */
    const float *dt_bias, *a; /* [n_v] */
    const float *norm;        /* [dim_v] */
};
struct glu_at {
    int gate, up, down;
};
struct moe_at {
    int router, shared_router;
    struct glu_at routed, shared;
};
struct layer_at {
    const float *mix_norm, *ffn_norm; /* [n_embd] */
    struct attn_at attn;
    struct gdn_at gdn;
    struct glu_at dense;
    struct moe_at moe;
};

struct layer_acts;
struct grad_ops;

/* Vectors are the device's. */
struct grad {
    const struct gguf *gguf;
    const struct grad_ops *ops;
    struct dev *dev;                 /* NULL: the host */
    const struct progress *progress; /* of passes whose batch has none */
    void *device;                    /* the operations' own */
    struct pool *pool;
    unsigned simd;
    struct arena arena;
    struct arch_plan plan;
    struct grad_matrix *mat;
    int n_mat, embd, head;
    const float *out_norm;
    int n_trunk; /* layers of the main stack */
    int mix;     /* of a multi-token-prediction block: eh_proj; -1: this is the main stack */
    const float *embd_norm, *hidden_norm, *trunk_norm; /* the same; trunk_norm: the main stack's last */
    struct layer_at *layer;
    struct layer_acts *kept; /* [n_layer], for grad_batch.keep */
    const float *rope_freq;  /* [n_rot / 2] */
    int64_t tile;            /* floats of the largest tile */
    float *memory;           /* of passes, kept from one to the next */
    int64_t memory_floats;
};

/* Memory of a pass: a stack of floats of the device; who takes sets `used` back at the end. base NULL: only counted,
 * and the pass then computes nothing. */
struct stack {
    float *base;
    int64_t used, top;
};
float *grad_take(struct stack *s, int64_t n);
int32_t *grad_take_ints(struct stack *s, int64_t n);
int64_t *grad_take_longs(struct stack *s, int64_t n);

struct pass {
    struct grad *g;
    const struct grad_batch *b;
    const struct grad_loops *loops;
    struct stack stack;
    int64_t n; /* rows */
    int rank;  /* the adapters' highest */
    bool backward;
    const int64_t *first;    /* [n_seq + 1] first row of each sequence, on the host */
    const int32_t *all_rows; /* 0, 1, 2 ... */
    float *tile;             /* decoded rows */
    struct grad_tools tools;
    float *both;  /* with a mix: [rows][2 n_embd] that it multiplies */
    float *low;   /* adapters' narrow rows and their gradients: [2][rows][rank] */
    int lowest;   /* layers below need no gradients */
    bool stopped; /* the caller's progress said so */
};
float *grad_zeros(struct pass *p, int64_t n);

const struct grad_loops *grad_loops(unsigned simd);

struct moe_acts;
/* Which matrix, and the rows that it is for: pairs, sorted by expert, or rows of the batch, ascending; both NULL: all.
 */
struct at {
    int matrix;
    const struct moe_acts *pairs;
    const int32_t *row;
};
int64_t grad_tile_rows(const struct grad_matrix *m);
/* The next rows with a loss, from row *i of sequence *s on: how many, at most max. */
int64_t grad_loss_rows(const struct pass *p, int *s, int *i, int64_t max, int32_t *row, int32_t *seq);
int64_t grad_loss_rows_max(const struct pass *p);

/* What a layer keeps between its forward and its backward pass. */
struct attn_acts {
    float *qg, *k, *v, *q_turned, *k_turned, *peak, *o, *gated; /* peak: log of the sum of weights, [rows][heads] */
};
struct gdn_acts {
    float *qkv, *mixed, *z, *alpha, *beta, *ba, *q, *k, *o, *gated;
};
/* Of the products; of beta and alpha together in gdn_acts.ba. */
struct gdn_grads {
    float *qkv, *z, *alpha, *beta;
};
struct glu_acts {
    float *gate, *up, *h, *out;
};
struct moe_acts {
    float *logits, *prob, *weight; /* [rows][experts], the same, [rows][used] */
    int32_t *expert, *row, *place; /* [rows][used]; of pairs by expert: their row, place in expert */
    int64_t *first;                /* [experts + 1] pairs of each expert */
    float *x;                      /* [pairs][n_embd] */
    struct glu_acts routed, shared;
    float *open; /* [rows] the shared expert's gate, before the sigmoid */
};
struct layer_acts {
    float *normed, *mid, *ffn_in; /* norm of the layer's input; after the mixer; its norm */
    struct attn_acts attn;
    struct gdn_acts gdn;
    struct glu_acts dense;
    struct moe_acts moe;
};

struct moe_grads {
    float *out, *pair, *logits, *weight, *shared, *open; /* of pairs' outputs and inputs; of [rows] ... */
};

/* What a device does. Those that take memory of the stack do so, and nothing else, where its base is NULL; the others
 * are not called then. A device's failure is sticky: end() says it. */
struct grad_ops {
    void (*close)(void *device);
    const float *(*vector)(struct grad *g, const float *v, int64_t n); /* a copy that it reads; NULL: no room */
    float *(*memory)(struct grad *g, int64_t floats);                  /* of passes; NULL: no room */
    int64_t (*room)(const struct grad *g);    /* bytes that are left for passes; NULL: the host's */
    int64_t (*longest)(const struct grad *g); /* tokens of a sequence; NULL: any number */
    /* Around a pass. False: it does not begin, and end() says why. end: adds to the adapters' gradients. */
    bool (*begin)(struct pass *p);
    enum err_code (*end)(struct pass *p, struct err *e);

    void (*zero)(const struct pass *p, float *x, int64_t n);
    void (*copy)(const struct pass *p, float *to, const float *from, int64_t n);
    void (*add)(const struct pass *p, float *y, const float *x, int64_t n); /* y += x */
    void (*embed)(const struct pass *p, float *x);
    void (*embed_back)(const struct pass *p, const float *dx); /* for the trace */
    /* y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w over n_rows rows of n floats; y may be x. */
    void (*norm)(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows);
    void (*norm_back)(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                      int64_t n_rows); /* dx += */
    void (*product)(const struct pass *p, struct at at, float *y, const float *x, int64_t n);
    /* dx += W^T dy, where dx is not NULL; what adapters and the trace get. */
    void (*product_back)(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n);
    /* From the products qg, k, v to gated; back from dgated (changed) to theirs. */
    void (*attn)(struct pass *p, const struct attn_at *w, const struct attn_acts *a);
    void (*attn_back)(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                      float *dk, float *dv);
    /* From the products qkv, z, and alpha and beta or ba, to gated, and back. */
    void (*gdn)(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a);
    void (*gdn_back)(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                     const struct gdn_grads *d);
    /* h = silu(gate) * up, n of them; back: gate and up become their gradients, h is scratch. */
    void (*glu)(const struct pass *p, const struct glu_acts *a, int64_t n);
    void (*glu_back)(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n);
    /* From the router's logits: experts, their weights, pairs by expert, and the rows x for each pair. */
    void (*route)(const struct pass *p, const struct moe_acts *a, const float *x);
    void (*moe_sum)(const struct pass *p, const struct moe_acts *a, float *y);
    void (*moe_sum_back)(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *d);
    void (*gather_back)(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair); /* dx += */
    /* The loss of rows of the last layer's output x, and its gradient dx, which holds zeros (NULL: forward only). */
    double (*loss)(struct pass *p, float *dx, const float *x);

    /* Outside passes. Memory of parameters, all NULL: the host's. */
    float *(*params_take)(struct grad *g, int64_t n);
    void (*params_give)(struct grad *g, float *p);
    void (*params_copy)(struct grad *g, float *to, const float *from, int64_t n);
    void (*noise_pairs)(struct grad *g, const struct grad_noise *n, float *moved, const float *from, float size);
    void (*noise_add)(struct grad *g, const struct grad_noise *n, float *theta, float *u, float beta,
                      const float *part);
};
extern const struct grad_ops grad_host_ops;

/* The host's, by file. */
void grad_host_embed(const struct pass *p, float *x);
void grad_host_attn(struct pass *p, const struct attn_at *w, const struct attn_acts *a);
void grad_host_attn_back(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                         float *dk, float *dv);
void grad_host_gdn(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a);
void grad_host_gdn_back(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                        const struct gdn_grads *d);
void grad_host_glu(const struct pass *p, const struct glu_acts *a, int64_t n);
void grad_host_glu_back(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n);
void grad_host_route(const struct pass *p, const struct moe_acts *a, const float *x);
void grad_host_moe_sum(const struct pass *p, const struct moe_acts *a, float *y);
void grad_host_moe_sum_back(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *d);
void grad_host_gather_back(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair);
void grad_host_product(const struct pass *p, struct at at, float *y, const float *x, int64_t n);
void grad_host_product_back(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n);
double grad_host_loss(struct pass *p, float *dx, const float *x);
/* Normals of one of the noise's tensors and samples from place `at` on, a multiple of 4. */
void grad_normals_from(float *z, int64_t n, const struct grad_noise *noise, int tensor, int sample, int64_t at);
void grad_host_noise_pairs(struct grad *g, const struct grad_noise *n, float *moved, const float *from, float size);
void grad_host_noise_add(struct grad *g, const struct grad_noise *n, float *theta, float *u, float beta,
                         const float *part);
void grad_host_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows);
void grad_host_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                         int64_t n_rows);

/* The order of operations of a layer's parts, for every device. */
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
/* Changes a. */
void grad_glu_backward(struct pass *p, const struct glu_at *w, struct at at, const struct glu_acts *a, float *dx,
                       const float *dout, const float *x, int64_t n);
void grad_moe_take(struct pass *p, struct moe_acts *a);
void grad_moe_forward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *y, const float *x);
void grad_moe_backward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *dx, const float *dy,
                       const float *x);

/* Of a device that has a copy of its own: see ops/table.h for the context. */
typedef enum err_code grad_opener(struct grad *g, void *dev_context, int64_t most_bytes, struct err *e);
#ifdef CHIMERE_CUDA
grad_opener cuda_grad_open;
#endif

/* For pieces of rows: fn(ctx, begin, end, worker) with a grain that is worth a thread. */
int64_t grad_grain(int64_t work_each);

static inline float grad_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
#endif
