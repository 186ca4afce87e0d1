/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16.cuh - GEMM for 2 to 16 tokens: what its three kernels are called with.   room: kernels */
#ifndef KERNELS_GEMM_GEMM_R2_16_CUH
#define KERNELS_GEMM_GEMM_R2_16_CUH
#include "kernels/device/fused.cuh"
#include "kernels/moe/moe_r17.cuh"

/* A matrix. Of type f32 only where r2_16_args.floats are there. */
struct r2_16_job {
    const uint8_t *w;
    float *y, *res; /* [column] rows; res += scale times y, or NULL */
    int64_t y_stride;
    bool boxed;                         /* set by the launch: there is box[] of it */
    int row_bytes, n_rows, type, first; /* first: its first task, or beside others its first block, of such */
    int longer;                         /* set by the launch: how many tasks, from the first on, have one strip more */
};

/* Columns are rows of x. */
struct r2_16_args {
    CUtensorMap box[JOBS]; /* of jobs whose rows come to a stage so (gemm/weights_smem.cuh) */
    struct r2_16_job job[JOBS];
    int n, n_beside, k, nx; /* jobs, then those beside them */
    const uint8_t *x;       /* rounded */
    const float *floats;    /* not rounded */
    int64_t floats_stride, res_stride;
    float scale;
    struct past_move past;
    const struct tables *tab;
    int held; /* blocks of the launch before, which still have their room when these look for theirs */
    /* set by the launch: tasks: the number of strips of a matrix in each, some have one more, times one of the spans of
     * columns; blocks: that have tasks; before them those of small matrices, and their rows; pitch: of a column in
     * shared memory */
    int tasks, blocks, beside, beside_rows, strips, spans, pitch;
    bool paired; /* two blocks, a cluster, have the same columns, of which each brings half to both */
    bool staged; /* weights go through shared memory */
    bool eight;  /* how x is rounded */
};
/* The jobs of a; res: what the first one's output is added to. */
void cuda_r2_16_matvec(struct cuda *c, struct r2_16_args *f, const struct mv_args *a, float *res);

/* Such jobs of one format, with nt times four columns a block, if their shapes are the kernel's; false: nothing is
 * launched. */
bool cuda_r2_16_large(struct cuda *c, struct r2_16_args *f, int nt, int type);
bool cuda_r2_16_resident(struct cuda *c, struct r2_16_args *f, int nt, int type);

int cuda_attn_smem(struct cuda *c); /* attn/attn_r2_16.cu: bytes of shared memory that a block can have */

/* Experts of up to R2_16_MAX rows, but of more than one: formats and shapes for which cuda_moe_r2_16() is there. */
enum { MOE_R2_16_K = 16384 };
bool cuda_is_moe_r2_16(const struct node *v);
size_t cuda_moe_r2_16_ws(const struct node *v);
void cuda_moe_r2_16(struct cuda *c, const struct node *v);
/* hid of pairs: act(gate) hid, or without a gate act(hid), when adapters have added to both; what they add to the
 * pairs' outputs. */
void cuda_activate(struct cuda *c, const struct node *moe, float *hid, float *gate);
void cuda_mix(struct cuda *c, struct tensor y, struct tensor weight, const float *out,
              int64_t stride); /* op_moe_sum() */
void cuda_adapt_down(struct cuda *c, const struct node *moe, float *out, int64_t stride, const float *hid);

/* Such rows from the router's logits and the shared expert's first products on (sh_down NULL: it has none): choice,
 * products, sums, the addition (or NULL). Rounded rows are where cuda_ws() of the mixture begins. */
struct moe_r2_16 {
    const struct node *route, *moe, *sh_gate, *sh_up, *sh_glu, *sh_down, *open, *add;
    const struct node *sh_added;  /* adapters of the shared expert's second product; or NULL */
    const struct node *out, *sum; /* some experts are the host's, and the sum is there; NULL: all are here */
};
void cuda_moe_r2_16_fused(struct cuda *c, const struct moe_r2_16 *m);
/* Up to FEW_ROWS rows from the router's logits on, all of whose experts are here, without adapters, as
 * moe_r17_columns.cu has them; the rounded rows are there. */
bool cuda_is_moe_columns(struct cuda *c, const struct node *v);
void cuda_moe_columns_fused(struct cuda *c, const struct moe_r2_16 *m);
void cuda_moe_shared(struct cuda *c, const struct moe_r2_16 *m, const uint8_t *rounded); /* its second product */
void cuda_moe_mix(struct cuda *c, const struct moe_r2_16 *m, const float *out); /* the sum of pairs, and the rest */
#endif
