/* SPDX-License-Identifier: Apache-2.0 */
/* grad.cuh - gradients on the GPU: what belongs to one struct grad, and the operations by file (grad/internal.h).
 *                                                              room: kernels
 *
 * Every sum has a fixed order. In the forward pass it depends neither on the other rows nor on the tiles. */
#ifndef KERNELS_GRAD_GRAD_CUH
#define KERNELS_GRAD_GRAD_CUH
#include "kernels/device/cuda.h"
extern "C" {
#include "grad/internal.h"
}

/* An adapter on the device, as in grad_adapter. */
struct member {
    const float *a, *b;
    float *da, *db; /* NULL: not wanted */
    float scale;
    int from, to;
};
/* Adapters of one matrix and rank for different rows: one launch has all of them. */
struct round {
    int matrix, rank, first, n; /* of cgrad.member */
    bool learns;
};

/* Where rows of sequences begin: those of expert e and sequence s at cut[e * n + s]; of them all, cut[e * n + n - 1] is
 * the end. */
struct cuts {
    const int *cut;
    int n; /* sequences and one more */
};

struct loss_row {
    int row, target, said; /* said: -1, or the number of a grad_soft */
    float weight;
};

struct params {
    float *v;
    int64_t n;
    struct params *next;
};

/* Why a pass did not begin. */
enum bad { BAD_NOTHING, BAD_ROOM, BAD_LONG };

struct cgrad {
    struct cuda *c;
    int n_mat, n_vector;
    int64_t most; /* bytes */
    float **vector;
    const float **floats;   /* [n_mat] a matrix's decoded rows; NULL: */
    unsigned char **stored; /* [n_mat] as in the file; NULL: it is sent when it is used */
    float *tile;            /* decoded rows of a product */
    unsigned char *raw;     /* and the same as they are stored */
    int64_t tile_floats, raw_bytes, held;
    float *memory;
    int64_t memory_floats;
    /* Of a pass: */
    unsigned char *pinned, *sent; /* what the host says, and its copy */
    size_t sent_cap;
    int *cut_experts; /* [experts][n_seq + 1] of the layer that is computed */
    int64_t cut_cap;
    float *adapters; /* a, b, and their gradients */
    int64_t adapters_cap, n_adapt;
    int *order; /* [adapters] by matrix */
    const int64_t *places;
    struct params *params;
    unsigned char *noise; /* what is told of it */
    int64_t noise_cap;
    const float *words; /* [rows][n_embd] */
    enum bad bad;
    struct cuts all, experts, lossy;
    const int *of;             /* [rows] their sequence */
    struct loss_row *loss_row; /* on the device */
    struct grad_soft *said;
    double *loss; /* [loss rows] */
    int n_loss;
    const int *loss_cut; /* [chunks][n_seq + 1] */
    struct member *member;
    struct round *round; /* on the host */
    int n_round, round_cap;
    float *low;        /* [2][pairs][rank] */
    double *loss_host; /* pinned, with the rest */
};

static inline struct cgrad *cgrad_of(const struct pass *p)
{
    return (struct cgrad *)p->g->device;
}

/* open.cu */
void *cuda_grad_take(struct cgrad *g, int64_t bytes); /* NULL: there is no room */
void cuda_grad_give(struct cgrad *g, void *p, int64_t bytes);
/* Other memory where fewer than n elements have room; false: there is none for them, and *p is NULL. */
template <class T> static inline bool cuda_grad_grow(struct cgrad *g, T **p, int64_t *cap, int64_t n)
{
    if (n > *cap) {
        cuda_grad_give(g, *p, *cap * (int64_t)sizeof **p);
        *p = (T *)cuda_grad_take(g, n * (int64_t)sizeof **p);
        *cap = *p == NULL ? 0 : n;
    }
    return n <= *cap;
}
/* n rows of a matrix, counted through its experts, as floats. */
const float *cuda_grad_weights(const struct pass *p, int matrix, int64_t first, int64_t n);
int64_t cuda_grad_tile_rows(const struct pass *p, int matrix);

/* The operations, by file. */
void cuda_grad_product(const struct pass *p, struct at at, float *y, const float *x, int64_t n);
void cuda_grad_product_back(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n);
void cuda_grad_zero(const struct pass *p, float *x, int64_t n);
void cuda_grad_copy(const struct pass *p, float *to, const float *from, int64_t n);
void cuda_grad_add(const struct pass *p, float *y, const float *x, int64_t n);
void cuda_grad_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows);
void cuda_grad_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                         int64_t n_rows);
void cuda_grad_glu(const struct pass *p, const struct glu_acts *a, int64_t n);
void cuda_grad_glu_back(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n);
void cuda_grad_attn(struct pass *p, const struct attn_at *w, const struct attn_acts *a);
void cuda_grad_attn_back(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                         float *dk, float *dv);
void cuda_grad_gdn(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a);
void cuda_grad_gdn_back(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                        const struct gdn_grads *d);
void cuda_grad_route(const struct pass *p, const struct moe_acts *a, const float *x);
void cuda_grad_moe_sum(const struct pass *p, const struct moe_acts *a, float *y);
void cuda_grad_moe_sum_back(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *d);
void cuda_grad_gather_back(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair);
double cuda_grad_loss(struct pass *p, float *dx, const float *x);
void cuda_grad_noise_pairs(struct grad *gr, const struct grad_noise *from, float *moved, const float *theta,
                           float size);
void cuda_grad_noise_add(struct grad *gr, const struct grad_noise *from, float *theta, float *u, float beta,
                         const float *part);
float *cuda_grad_params_take(struct grad *gr, int64_t n);
void cuda_grad_params_give(struct grad *gr, float *v);
void cuda_grad_params_copy(struct grad *gr, float *to, const float *from, int64_t n);
bool cuda_grad_is_param(const struct cgrad *g, const float *v);
/* Rows of a sequence at most, 0 if there are no kernels for heads of this width; and whether there are for these. */
int64_t cuda_grad_attn_rows(const struct arch_plan *p);
bool cuda_grad_gdn_fits(const struct arch_plan *p);

static inline dim3 grid_of(int64_t n, int64_t each)
{
    return dim3((unsigned)ceil_div(n > 0 ? n : 1, each));
}
#endif
