/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - products of float matrices for training.                               room: train
 *
 * Matrices are row-major; ld is the distance between rows in floats. If the build found OpenBLAS
 * (-DCHIMERE_BLAS), its sgemm computes the products, else the loops of grad/loops.h. The order of sums
 * is not fixed here, so trained weights may differ in the last bits from machine to machine.
 */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H
#include "ops/math.h"

struct grad_loops;
struct pool;

struct train_gemms {
    struct pool *pool; /* not owned */
    const struct grad_loops *loops;
    const char *name; /* what computes them: "openblas" or "loops" */
};
struct train_gemms train_gemm_open(struct pool *pool);
/* c[m][n] = a[m][k] b[k][n] + beta c, beta 0 or 1, in this thread. With beta 0, c is not read. */
void train_gemm_one(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct dev_matrix a,
                    struct dev_matrix b, float beta, float *c, int64_t ld);
/* The same by all threads of the pool. */
void train_gemm(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct dev_matrix a, struct dev_matrix b,
                float beta, float *c, int64_t ld);
/* Address space that products by n threads take beside their matrices. OpenBLAS waits for ever if it does not get it.
 */
int64_t train_gemm_bytes(int n_threads);
/* An OpenBLAS that is older than the processor uses its slowest kernels. This gives the value that its environment
 * variable OPENBLAS_CORETYPE should have at the next start, by base/simd.h. NULL: it knows the processor. */
const char *train_gemm_core(unsigned simd);
#endif
