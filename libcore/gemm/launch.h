/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - the table of which launches operations become on a GPU.                  room: gemm
 *
 * In steps of up to GEMM_FEW_ROWS rows, operations that follow each other share launches if their shapes allow it:
 * these are the fusions. kernels/device/launch.cu recognises the operations among those that were recorded, and asks
 * the functions here about their shapes. All other operations are launched one by one. launches_test counts what a step
 * of a model becomes by this table and that of model/launches.c, and compares that with what a GPU launched.
 */
#ifndef GEMM_LAUNCH_H
#define GEMM_LAUNCH_H
#include "gemm/gemm.h"

enum gemm_fusion {
    GEMM_FUSE_MIXTURE, /* norm, router, experts, shared expert, residual */
    GEMM_FUSE_ATTN,    /* norm, products, heads, KV rows, attention, gate, product, residual */
    GEMM_FUSE_NORM,    /* norm, products of its output */
    GEMM_FUSE_GATE,    /* activation function or gate, product, residual */
    GEMM_FUSE_DELTA,   /* convolution, gated delta rule, gated norm, product, residual */
    GEMM_FUSE_ADD,     /* product, residual */
    GEMM_N_FUSIONS,
    GEMM_ALONE = GEMM_N_FUSIONS
};
const char *gemm_fusion_name(enum gemm_fusion f); /* "mixture" ... "alone" */

/* What decides about the shapes. A kernel may still refuse for want of shared memory, as it does for no known model. */
bool gemm_fuses_width(int64_t k); /* a row of k elements is rounded by the launch that multiplies it */
bool gemm_fuses_norm(int64_t k);  /* so is the RMS norm of such a row */
bool gemm_fuses_product(int type, int64_t rows, int64_t k);

struct gemm_attn {
    int64_t n_head, dim_k, dim_v; /* of queries; elements of a head */
    bool eight;                   /* activations of 8 bits */
};
bool gemm_fuses_attn(const struct gemm_attn *a);

struct gemm_delta {
    int64_t dim, dim_v, group; /* elements of a key's, a value's head; of the gated norm */
    int taps;
    bool plain_conv; /* no bias, SiLU after it */
    bool eight;
};
bool gemm_fuses_delta(const struct gemm_delta *d);

struct gemm_mixture {
    int n_expert, n_used, n_group;
    int64_t n_embd, ff, shared; /* hidden elements of an expert, of the shared one; 0: there is none */
    int gate, up, down;         /* types; gate -1: there is none */
    bool eight;                 /* activations of 8 bits */
    int sm;                     /* of the device */
};
bool gemm_fuses_mixture(const struct gemm_mixture *m, int64_t rows);
enum { GEMM_CHOICE_EXPERTS = 512, GEMM_CHOICE_USED = 10 }; /* of a mixture, at most */

/* A kernel of a fusion, or of an operation alone. Numbers are for products with matrices of one format; those of
 * another format have a launch more, but for a few rows of q8_0 (MOST_BESIDE in kernels/device/fused.cuh). */
enum gemm_uses { GEMM_USES_ANY, GEMM_USES_FEW, GEMM_USES_MANY }; /* gemm_few_uses() */
struct gemm_launch {
    enum gemm_fusion fusion;
    /* Alone: the operations, with the same launches each; products are "matmul" and "moe", or "matmul f32" and "moe
     * f32" if weights are floats. A fusion: its first products are of weights that are "f32", or of such that
     * activations are "rounded" for. NULL: any. */
    const char *ops;
    int64_t rows_min, rows_max; /* of the step */
    unsigned acts;
    int sm;             /* 90: only there, and before rows with 0 for the same operation; 0: any */
    const char *kernel; /* its file in kernels/, without .cu or .cuh */
    int n, more;        /* launches; how many more there can be, as the note says */
    enum gemm_uses uses;
    const char *note; /* or NULL */
};
const struct gemm_launch *gemm_launch_at(int i); /* NULL past the last */
#endif
