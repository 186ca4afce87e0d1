/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.cuh - adapters, as nodes have them and kernels take them.   room: kernels
 *
 * Of a node with adapters i[0] > 0: terms of a list; i[1]: adapters, of which p[0] has one op_pair each, of op_moe for
 * gate, up and down, one after the other; i[2]: op_terms.floats; i[3]: of op_moe which of the three there are, bit by
 * bit; p[3]: lists of adapt_term, of rows of x. Where outputs are in the matrices: of op_adapt t[2].pitch and .from as
 * of weights, and p[1]: tokens; of op_moe those of its matrices. */
#ifndef KERNELS_ADAPT_ADAPT_CUH
#define KERNELS_ADAPT_ADAPT_CUH
#include "kernels/device/cuda.h"

struct adapt_term {
    int which; /* -1: the list ends */
    float scale;
};

/* What is added to y, rows of n outputs: those from `first` on of matrix mat, or of the row's expert. */
struct adapt_job {
    float *y;
    const op_pair *pair; /* [adapters] */
    int64_t y_stride, n_out, mat;
    int n, first;
    int slices; /* set by the launch */
};

static inline bool adapted(const struct node *v)
{
    return v->i[0] > 0;
}

/* An adapt node and those after it that go along; how many. */
int cuda_adapt(struct cuda *c, const struct node *v, int n);

/* What adapters of a mixture's experts add to rows of pairs that are there: y[i] of gate, up, down; NULL: not now. The
 * input of pair p is x[p / per_x]. */
struct adapt_experts {
    float *y[3];
    int64_t stride, n, n_in, x_stride;
    const float *x;
    int per_x;
};
void cuda_adapt_experts(struct cuda *c, const struct node *v, const struct adapt_experts *e);

/* Of one row, between experts' first products and their second: what adapters add to both of the first, these
 * activated, and what of the second does not depend on its outputs: h[expert of the launch][floats], for
 * adapted_down(). */
struct adapt_part {
    const op_pair *pair; /* [adapters]; NULL: none */
    int64_t n_out, mat;  /* mat: of the first expert */
    int first;
};
struct adapt_expert {
    float *gate, *hid; /* rows of ff; gate NULL: there is none */
    int ff;
    struct adapt_part part[3]; /* of gate, up, down */
};
struct adapt_middle {
    struct adapt_expert e[2]; /* the routed ones, rows of each; the shared one */
    const struct adapt_term *list;
    int max, floats, routed, used, n_in, act; /* routed: that are adapted; used: that there are */
    bool near;                                /* as adapt_down */
    const int *expert, *slot;
    const float *x;
    float *h;
};
/* What is added to output o of the second product of expert `of` of the launch, matrix `mat`. list NULL: nothing. */
struct adapt_down {
    struct adapt_part part[2]; /* of routed experts, of the shared one */
    const struct adapt_term *list;
    const float *h;
    int max, floats;
    bool near; /* lists are of one term of at most NEAR_RANKS: adapted_near() */
};
enum { NEAR_RANKS = 16, NEAR_ROWS = 16, NEAR_EXPERTS = 11 };
struct adapt_near {
    float b[NEAR_EXPERTS][NEAR_RANKS][NEAR_ROWS];
    int rank[NEAR_EXPERTS];
};
/* By a whole block, before the inputs are ready: outputs o .. o + rows - 1 of the experts' b, of expert[0 .. used - 1]
 * and, if there are more, of the shared one. */
static __device__ __noinline__ void bring_near(adapt_near &s, const adapt_down &a, const int *expert, int used,
                                               int experts, int o, int rows)
{
    const int which = a.list[0].which;

    for (int i = threadIdx.x; i < experts * NEAR_RANKS * NEAR_ROWS; i += blockDim.x) {
        const int of = i / (NEAR_RANKS * NEAR_ROWS), j = i / NEAR_ROWS % NEAR_RANKS, row = i % NEAR_ROWS;
        const adapt_part &part = a.part[of >= used];
        op_pair p = { NULL, NULL, 0, 0.0f };

        if (part.pair != NULL && which >= 0)
            p = part.pair[which];
        const int64_t mat = part.mat + (of < used ? __ldcg(expert + of) : 0);
        s.b[of][j][row] = p.a != NULL && j < p.rank && row < rows
                              ? p.b[(mat * p.rank + j) * part.n_out + part.first + o + row]
                              : 0.0f;
        if (j + row == 0)
            s.rank[of] = p.a != NULL ? p.rank : 0;
    }
}

/* adapted_down() of what was brought, for output o + row. */
static __device__ __forceinline__ float adapted_near(const adapt_near &s, const adapt_down &a, float v, int of, int row)
{
    const float *h = a.h + (int64_t)of * a.floats;
    float its[NEAR_RANKS];

#pragma unroll
    for (int j = 0; j < NEAR_RANKS; j++)
        its[j] = j < s.rank[of] ? h[j] : 0.0f;
#pragma unroll
    for (int j = 0; j < NEAR_RANKS; j++)
        if (j < s.rank[of])
            v = __fmaf_rn(its[j], s.b[of][j][row], v);
    return v;
}

static __device__ __noinline__ float adapted_down(const adapt_down &a, float v, int of, bool routed, int64_t mat, int o)
{
    const adapt_part &part = a.part[!routed];
    const float *h = a.h + (int64_t)of * a.floats;

#pragma unroll 1
    for (int i = 0; part.pair != NULL && i < a.max && a.list[i].which >= 0; i++) {
        const op_pair p = part.pair[a.list[i].which];
        const float *b = p.b + (mat + part.mat) * p.rank * part.n_out + part.first + o;

        if (p.a == NULL)
            continue;
#pragma unroll 8
        for (int j = 0; j < p.rank; j++)
            v = __fmaf_rn(h[j], b[j * part.n_out], v);
        h += p.rank;
    }
    return v;
}
struct adapt_part cuda_adapt_part(const struct node *v,
                                  int number); /* number: 0 gate, 1 up, 2 down; of an adapt node all */
void cuda_adapt_between(struct cuda *c, const struct adapt_middle *a, int experts); /* experts: with the shared one */
#endif
