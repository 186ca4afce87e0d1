/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.cuh - adapters, as nodes have them and kernels take them.   room: kernels (base quant ops)
 *
 * Of a node with adapters i[0] > 0: terms of a list; i[1]: adapters, of which p[0] has one op_pair each, of op_moe for
 * gate, up and down, one after the other; i[2]: op_terms.floats; i[3]: of op_moe which of the three there are, bit by
 * bit; p[3]: lists of adapt_term, of rows of x. Where outputs are in the matrices: of op_adapt t[2].pitch and .from as
 * of weights, and p[1]: tokens; of op_moe those of its matrices. */
#ifndef KERNELS_ADAPT_ADAPT_CUH
#define KERNELS_ADAPT_ADAPT_CUH
#include "kernels/device/cuda.h"

struct adapt_term {
    int   which; /* -1: the list ends */
    float scale;
};

/* What is added to y, rows of n outputs: those from `first` on of matrix mat, or of the row's expert. */
struct adapt_job {
    float         *y;
    const op_pair *pair; /* [adapters] */
    int64_t        y_stride, n_out, mat;
    int            n, first;
    int            slices; /* set by the launch */
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
    float       *y[3];
    int64_t      stride, n, n_in, x_stride;
    const float *x;
    int          per_x;
};
void cuda_adapt_experts(struct cuda *c, const struct node *v, const struct adapt_experts *e);
#endif
