/* SPDX-License-Identifier: Apache-2.0 */
/* math.cuh - inside the GPU's operations of training (ops/math.h).                 room: kernels */
#ifndef KERNELS_TRAIN_MATH_CUH
#define KERNELS_TRAIN_MATH_CUH
#include <cuda_runtime.h>
#ifdef CHIMERE_CUBLAS
#include <cublas_v2.h>

/* Functions that are looked up in cuBLAS: cublasDestroy(), cublasGemmEx() and cublasGemmStridedBatchedEx(). */
typedef cublasStatus_t blas_destroy(cublasHandle_t handle);
typedef cublasStatus_t blas_gemm(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int m,
                                 int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
                                 const void *b, cudaDataType type_b, int ldb, const void *beta, void *c,
                                 cudaDataType type_c, int ldc, cublasComputeType_t by, cublasGemmAlgo_t algorithm);
typedef cublasStatus_t blas_gemms(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int m,
                                  int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
                                  long long next_a, const void *b, cudaDataType type_b, int ldb, long long next_b,
                                  const void *beta, void *c, cudaDataType type_c, int ldc, long long next_c, int count,
                                  cublasComputeType_t by, cublasGemmAlgo_t algorithm);
#endif
extern "C" {
#include "base/base.h"
#include "ops/math.h"
}

enum { MATH_PINNED = 16 << 20, MATH_PARTS = 128 };

struct cuda_math {
    struct dev_math m; /* first: it is what callers have */
    int id;
    cudaStream_t stream;
    cudaError_t bad; /* sticky */
    const char *bad_at;
    bool bad_product;
    unsigned char *pinned[2]; /* MATH_PINNED bytes each, for put() */
    cudaEvent_t sent[2], end;
    int turn;
    float *part; /* sums of parts: cuda_math_part() */
    int64_t n_part;
    double *norm; /* of adam(): MATH_PARTS sums, then the norm */
#ifdef CHIMERE_CUBLAS
    cublasHandle_t blas;
    blas_destroy *destroy;
    blas_gemm *gemm;
    blas_gemms *gemms;
#endif
};

static inline struct cuda_math *cuda_math_of(struct dev_math *m)
{
    return (struct cuda_math *)m;
}

void cuda_math_fail(struct cuda_math *c, cudaError_t e, const char *at);
/* n floats until the next call; NULL: there is no room, which is noted. */
float *cuda_math_part(struct cuda_math *c, int64_t n);

#define MATH_TRY(c, call) cuda_math_fail((c), (call), #call)
/* Nothing is launched after a failure, or for nothing. */
#define MATH_LAUNCH(c, kernel, grid, block, smem, ...) \
    do { \
        if ((c)->bad == cudaSuccess) { \
            kernel<<<(grid), (block), (smem), (c)->stream>>>(__VA_ARGS__); \
            cuda_math_fail((c), cudaGetLastError(), #kernel); \
        } \
    } while (0)

static inline unsigned math_grid(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

/* The operations by file: they fill their part of the table. */
void cuda_math_rows(struct dev_math *m);   /* rows.cu */
void cuda_math_loss(struct dev_math *m);   /* loss.cu */
void cuda_math_attend(struct dev_math *m); /* attend.cu */
#endif
