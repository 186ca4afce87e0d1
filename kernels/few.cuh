/* SPDX-License-Identifier: Apache-2.0 */
/* few.cuh - products of stored rows with 2 to 16 rows of activations.    room: kernels (base quant ops) */
#ifndef KERNELS_FEW_CUH
#define KERNELS_FEW_CUH
#include "kernels/fused.cuh"
#include "kernels/moe.cuh"

/* A matrix, or those of experts. Of type f32 only where few_part.floats are there, and not with `act`. */
struct few_job {
    const uint8_t *w;
    int64_t        expert_bytes;
    float         *y, *res;       /* [column] rows; res += scale times y, or NULL */
    int64_t        y_stride;
    int            row_bytes, n_rows, type, first; /* first: the part's first group that is its own */
};

/* Columns are rows of x, or, with a list, pairs: column i of a chunk is pair list[first + i], of row list[...] / div of
 * x. `act`: job 0 is gate and job 1, of its format, up, and act(gate) up comes out, rounded; of one job, act(up). */
struct few_part {
    struct few_job             job[JOBS];
    int                        n, k, nx;
    const uint8_t             *x;           /* rounded */
    const float               *floats;      /* not rounded */
    int64_t                    floats_stride;
    const int                 *list, *n_chunk;
    const struct expert_chunk *chunk;
    int                        most, div;   /* with a list: chunks at most */
    bool                       act;
    int                        how;         /* enum op_act */
    uint8_t                   *rounded;     /* [column] rows of n_rows */
    /* set by the launch: tasks are groups of rows times spans of columns, or chunks; 2^32 through how many follow each
     * other of which only the span, or the group, differs, rounded up */
    int                        groups, spans;
    uint32_t                   inverse;
};

/* Up to two parts, the first with a list only where it is alone. */
struct few_args {
    struct few_part      part[2];
    int                  n;
    int64_t              res_stride;
    float                scale;
    struct past_move     past;
    const struct tables *tab;
    int                  pitch; /* of a column in shared memory; set by the launch */
};
enum { FEW_COLUMNS = 4 }; /* of a chunk of pairs, at most */
void cuda_few(struct cuda *c, struct few_args *f);
/* The jobs of a as the only part; res: what the first one's output is added to. */
void cuda_few_matvec(struct cuda *c, struct few_args *f, const struct mv_args *a, float *res);

/* Rows of a mixture of experts, from the router's logits on: choice, products, the shared expert's (sh_down NULL: none),
 * sums, the addition (or NULL). Rounded rows are where cuda_ws() of the mixture begins; where the shared expert's hidden
 * rows would be are its rounded ones. */
struct few_moe {
    const struct node *route, *moe, *sh_gate, *sh_up, *sh_glu, *sh_down, *open, *add;
};
bool cuda_few_moe_fits(const struct node *route, const struct node *moe);
void cuda_few_moe(struct cuda *c, const struct few_moe *m);

static inline struct few_job few_job_of(struct tensor w, float *y, int64_t y_stride)
{
    const int64_t bytes = quant_row_bytes(w.type, w.ne[0]);

    return (struct few_job){ (const uint8_t *)w.data, w.pitch * bytes, y, NULL, y_stride, (int)bytes, (int)w.ne[1], w.type, 0 };
}
#endif
