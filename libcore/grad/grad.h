/* SPDX-License-Identifier: Apache-2.0 */
/* grad.h - the gradient of a loss through a frozen model.                  room: grad
 *
 * A forward and a backward pass in float32 through the stored weights. These never change; they are decoded to float, a
 * few rows of a matrix at a time, whenever they are used. Adapters beside the matrices can be trained (LoRA, Hu et al.
 * 2021): y = W x + scale * b (a x) and every matrix can be watched: its inputs x and the gradients dy of its outputs,
 * row by row, for measures of sensitivity (second moments of both: Martens & Grosse 2015; Theis et al. 2018).
 *
 * Families: what arch/qwen.c makes, qwen35moe, qwen35 and qwen3next: gated attention, gated delta nets (Yang et al.
 * 2024), routed experts with a shared one, or dense feed-forwards. The choice of experts counts as a constant; the
 * gradient flows through their weights. A multi-token-prediction block is not part of the pass, but can be opened as a
 * separate grad: its inputs are rows of the main stack (grad_seq.hidden), which count as constants.
 *
 * Memory: of each layer only the inputs are kept; before its backward pass a layer is computed again, and then
 * everything of this one layer is kept (Chen et al. 2016). grad_bytes() says how much that is. Numbers: every sum has
 * an order that depends neither on threads nor on the processor's instruction set; a row's results in the forward pass
 * do not depend on the other rows. A GPU sums in another order than the host, the same one as long as it has the same
 * memory for decoded weights. Threads: one caller at a time; the work is shared by a pool of the grad's own.
 */
#ifndef GRAD_GRAD_H
#define GRAD_GRAD_H
#include "base/base.h"

struct gguf;
struct grad;
struct pool;

/* n_threads 0: as many as there are processors. ERR_UNSUPPORTED for other families, ERR_FORMAT where tensors are
 * missing or have another shape. The gguf must outlive it. */
MUST_CHECK enum err_code grad_open(struct grad **out, const struct gguf *g, int n_threads, struct err *e);
/* The same on a device of ops.h: "cpu" as above, "cuda" or "cuda:N" for a GPU of at most that many bytes of memory (0:
 * what is free). Weights are there as floats where these fit into half of it, else as they are stored, as many as fit
 * into three quarters; the rest is sent whenever it is used. Passes take what is left. As dev_open(); ERR_NOMEM. */
MUST_CHECK enum err_code grad_open_on(struct grad **out, const struct gguf *g, const char *device, int64_t most_bytes,
                                      int n_threads, struct err *e);
/* Opens the model's first multi-token-prediction block (model/drafter.h) as if it were a model of one layer.
 * ERR_UNSUPPORTED: there is none. */
MUST_CHECK enum err_code grad_open_nextn(struct grad **out, const struct gguf *g, int n_threads, struct err *e);
/* For a block's grad: turns n output rows of the main stack's last layer into the rows that the output matrix
 * multiplies. */
void grad_hidden(const struct grad *g, float *rows, int64_t n);
/* Returns weight times -log p of the target in a row of n logits. The logits are replaced by its gradient, weight * (p
 * - [target]). */
double grad_cross_entropy(float *logits, int32_t n, int32_t target, float weight);

/* A model's prediction after a token: its most likely tokens one by one, and the sum of all others. */
enum { GRAD_SOFT = 24 };
struct grad_soft {
    int32_t id[GRAD_SOFT]; /* -1: the vocabulary is smaller */
    float p[GRAD_SOFT];
};
void grad_soft_of(struct grad_soft *to, const float *logits, int32_t n);
/* Returns weight times the divergence of a row of n logits (probabilities q) from the prediction `said` (p),
 *     KL = sum over i of p[i] log(p[i] / q[i])
 * where all tokens that are not in `said` count as one. The logits are replaced by its gradient. This loss keeps a
 * model that learns something else close to what it was (Hinton et al. 2015; Li and Hoiem 2016). */
double grad_divergence(const struct grad_soft *said, float *logits, int32_t n, float weight);
void grad_close(struct grad *g); /* NULL is allowed */
int grad_n_embd(const struct grad *g);
int32_t grad_n_vocab(const struct grad *g);
int grad_n_layer(const struct grad *g);       /* of the main stack */
struct pool *grad_pool(const struct grad *g); /* between passes others may use it */

/* The matrices in the order of layers; token_embd.weight is the first (of a block after eh_proj), the output's the last
 * (the same one again, where the model has one for both). */
struct grad_matrix {
    const char *name; /* "blk.0.attn_qkv.weight" */
    int64_t n_in, n_out;
    int64_t n_expert; /* 1: not experts */
    int layer;        /* of the pass; -1: none */
    int type;         /* row of quant_types[] */
    const void *data; /* [n_expert][n_out] stored rows */
};
int grad_n_matrices(const struct grad *g);
const struct grad_matrix *grad_matrix_at(const struct grad *g, int i);
int grad_matrix_find(const struct grad *g, struct str name); /* -1: none */

/* An adapter of one matrix, not token_embd.weight. It adds to the rows of the sequences from .. to - 1, so that several
 * adapters can be tried side by side in one pass. Several may be at one matrix: they add up. */
struct grad_adapter {
    int matrix, rank; /* rank 0: y = (1 + b) (W x), b [n_expert][n_out]; forward passes alone, one at a matrix */
    float scale;
    const float *a; /* [n_expert][rank][n_in] */
    const float *b; /* [n_expert][n_out][rank] */
    float *da, *db; /* their gradients are added to these; NULL: not wanted */
    int from, to;
};

/* Rows i with target[i] >= 0 have a loss, weight * -log p(target[i]), or the divergence from what was said there; each
 * sequence is on its own from position 0. */
struct grad_seq {
    const int32_t *token, *target; /* [n] ids; a target less than n_vocab */
    int n;
    float weight;
    const float *hidden; /* of a block: [n][n_embd], what the output matrix multiplies for the token before each
                              (grad_hidden); NULL: of the main stack */
    const struct grad_soft
        *said; /* predictions for the rows with a target, one after the other; NULL: use the targets */
};
/* Replaces these losses: returns the loss of one row, and replaces its logits by the gradient of that loss with respect
 * to them. Called from any thread, rows in any order. */
typedef double grad_loss_fn(void *ctx, int seq, int row, float *logits, int32_t n_vocab);
/* After the products of a matrix (of one expert) with n rows: x [n][n_in], dy [n][n_out], and which of the batch's rows
 * they are, counted through its sequences. x is NULL for token_embd.weight, whose dy are the gradients of its chosen
 * rows. */
typedef void grad_trace_fn(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy,
                           const int32_t *row);

struct grad_batch {
    const struct grad_seq *seq;
    int n_seq;
    const struct grad_adapter *adapter;
    int n_adapter;
    grad_loss_fn *loss; /* NULL: as the sequences say */
    void *loss_ctx;
    grad_trace_fn *trace; /* NULL: none */
    void *trace_ctx;
    double *seq_loss;                /* [n_seq] the loss of each sequence; NULL: not wanted */
    const struct progress *progress; /* told after each layer, forward or backward; NULL: that of the grad */
    bool keep; /* everything of all layers stays until the backward pass: more memory, less time */
};
/* *loss: the sum over rows, in double, rows in order. A loss that is not finite is no error. ERR_ARG: a token, target
 * or adapter that the model does not have, or no rows. ERR_NOMEM. ERR_CANCEL: the progress said so; gradients may be
 * there in part then. */
MUST_CHECK enum err_code grad_forward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e);
/* Also adds gradients to the adapters' da and db, and calls trace. */
MUST_CHECK enum err_code grad_backward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e);

/* The most bytes that a pass takes, without the file's mapping and the caller's memory: for n_rows rows in all and
 * adapters of up to this rank; keep: as in the batch. They are the device's, which has grad_room() for them; -1: it is
 * the host. */
int64_t grad_bytes(const struct grad *g, int64_t n_rows, int rank, bool keep);
int64_t grad_room(const struct grad *g);
int64_t grad_longest(const struct grad *g); /* tokens of a sequence */
/* For passes whose batch has no progress of its own; NULL: nobody is told, as at first. p outlives g. */
void grad_set_progress(struct grad *g, const struct progress *p);
int64_t grad_host_bytes(const struct grad *g,
                        int64_t n_rows); /* and what a pass on another device takes of the host's */

/* Parameters that stay where the pass is computed: adapters whose a and b are parts of them are used there. Zeros at
 * first; on the host memory like any other. A device's failure is told by the next pass. */
MUST_CHECK enum err_code grad_params_open(float **out, struct grad *g, int64_t n, struct err *e);
void grad_params_close(struct grad *g, float *p); /* NULL is allowed */
/* Among them, and to and from the host's memory; from NULL: zeros. */
void grad_params_copy(struct grad *g, float *to, const float *from, int64_t n);

/* Noise of all parameters: Philox4x32-10 (Salmon et al. 2011) with counter (block, tensor, step, sample) and key seed;
 * a block gives four normals by Box and Muller. */
struct grad_noise {
    uint64_t seed;
    uint32_t step, sample; /* the first of: */
    int samples;           /* at most 512 */
    const int64_t *tensor; /* [n_tensor + 1] where tensors begin in the parameters */
    int n_tensor;
};
void grad_normals(float *z, int64_t n, uint64_t seed, uint32_t tensor, uint32_t step,
                  uint32_t sample); /* of one, on the host */
/* moved[2 k] = from + size z_k, moved[2 k + 1] = from - size z_k */
void grad_noise_pairs(struct grad *g, const struct grad_noise *n, float *moved, const float *from, float size);
/* u = beta u + sum over k of part[k] z_k, theta -= u; u NULL: as if it had been zeros */
void grad_noise_add(struct grad *g, const struct grad_noise *n, float *theta, float *u, float beta, const float *part);

/* For others that train: c[i][j] (+)= scale * sum over k of a[i * a_row + k * a_k] * b[k * b_k + j * b_col], one of b_k
 * and b_col is 1; k in ascending order by fused multiply-adds in blocks of 512, whose sums are added up. */
struct grad_product {
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_row, a_k, b_k, b_col;
    float *c; /* [m][c_row] */
    int64_t c_row;
    float scale;
    bool add;
};
struct grad_tools {
    struct pool *pool;
    unsigned simd;  /* simd_features() */
    float *scratch; /* grad_product_floats() for a pool of n threads */
};
void grad_product(const struct grad_tools *t, const struct grad_product *g);
size_t grad_product_floats(int n_threads);
#endif
