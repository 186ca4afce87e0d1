/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - products of float matrices for training.                               room: train
 *
 * Matrices are row-major; ld is the distance of rows in floats. Where the build found OpenBLAS
 * (-DCHIMERE_BLAS) its sgemm computes them, else the loops of grad/loops.h. Sums have no stated order
 * here: what is trained may differ in the last bits from machine to machine.
 */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H
#include "base/base.h"

struct grad_loops;
struct pool;

struct train_matrix {
    const float *v;
    int64_t      ld;
    bool         turned; /* its transpose is meant */
};
struct train_gemms {
    struct pool             *pool; /* not owned */
    const struct grad_loops *loops;
    const char              *name; /* what computes them: "openblas" or "loops" */
};
struct train_gemms train_gemm_open(struct pool *pool);
/* c[m][n] = a[m][k] b[k][n] + beta c, beta 0 or 1, in this thread. With beta 0, c is not read. */
void train_gemm_one(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct train_matrix a,
                    struct train_matrix b, float beta, float *c, int64_t ld);
/* The same by all threads of the pool. */
void train_gemm(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct train_matrix a,
                struct train_matrix b, float beta, float *c, int64_t ld);
/* OpenBLAS takes the slowest kernels where it was loaded on a processor that is newer than itself: what its environment
 * variable OPENBLAS_CORETYPE should say for the next start, by base/simd.h. NULL: it knows the processor. */
const char *train_gemm_core(unsigned simd);
#endif
