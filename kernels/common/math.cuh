/* SPDX-License-Identifier: Apache-2.0 */
/* math.cuh - sums in a fixed order, the largest, and the activation functions of the models.   room: kernels */
#ifndef KERNELS_COMMON_MATH_CUH
#define KERNELS_COMMON_MATH_CUH
#include "kernels/device/cuda.h"

static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, half));
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, half));
    return v;
}

/* One value for all of a block of 256 threads, from the one that each warp has; tmp: 8 floats. */
template <float join(float, float)> static __device__ __forceinline__ float join_warps(float v, float *tmp)
{
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        tmp[threadIdx.x / 32] = v;
    __syncthreads();
    v = tmp[0];
#pragma unroll
    for (int i = 1; i < 8; i++)
        v = join(v, tmp[i]);
    return v;
}

/* Sum over a block of 256 threads, for all of them; tmp: 8 floats. */
static __device__ __forceinline__ float block_sum(float v, float *tmp)
{
    return join_warps<__fadd_rn>(warp_sum(v), tmp);
}

/* The largest over a block of 256 threads, for all of them; tmp: 8 floats. */
static __device__ __forceinline__ float block_max(float v, float *tmp)
{
    return join_warps<fmaxf>(warp_max(v), tmp);
}

static __device__ __forceinline__ float sigmoid(float x)
{
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}

static __device__ __forceinline__ float silu(float x)
{
    return __fdiv_rn(x, __fadd_rn(1.0f, expf(-x)));
}

static __device__ __forceinline__ float softplus(float x)
{
    return __fadd_rn(fmaxf(x, 0.0f), log1pf(expf(-fabsf(x))));
}

/* What a norm multiplies with: sums of squares of more than NORM_WARP elements are a block's, of fewer a warp's. */
enum { NORM_WARP = 512 };
static __device__ __forceinline__ float norm_factor(float sum, int n, float eps)
{
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps)));
}

/* Where the inputs of a row are logged; at counts from the first of the step. */
static __device__ __forceinline__ float *log_row(const op_log &log, const op_seq &s, int at)
{
    const unsigned row = (unsigned)((int)s.pos + at) % (unsigned)log.rows;

    return log.data + s.slot * log.floats + row * log.width;
}
#endif
