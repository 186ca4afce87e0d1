/* SPDX-License-Identifier: Apache-2.0 */
/* hadamard.cuh - walsh-Hadamard rotation of a head by one warp: op_hadamard().   room: kernels */
#ifndef KERNELS_COMMON_HADAMARD_CUH
#define KERNELS_COMMON_HADAMARD_CUH
#include "kernels/device/cuda.h"

/* A block of 32 * E columns of op_hadamard(), by a warp: column i is lane i % 32's. y may be x. */
template <int E> static __device__ __forceinline__ void hadamard_block(float *y, const float *x, float s)
{
    int lane = threadIdx.x & 31;
    float v[E];

#pragma unroll
    for (int j = 0; j < E; j++)
        v[j] = x[lane + 32 * j];
#pragma unroll
    for (int half = 1; half < 32; half *= 2)
#pragma unroll
        for (int j = 0; j < E; j++) {
            float other = __shfl_xor_sync(0xffffffffu, v[j], half);

            v[j] = (lane & half) == 0 ? __fadd_rn(v[j], other) : __fsub_rn(other, v[j]);
        }
#pragma unroll
    for (int half = 1; half < E; half *= 2)
#pragma unroll
        for (int j = 0; j < E; j++)
            if ((j & half) == 0) {
                float a = v[j], b = v[j + half];

                v[j] = __fadd_rn(a, b);
                v[j + half] = __fsub_rn(a, b);
            }
#pragma unroll
    for (int j = 0; j < E; j++)
        y[lane + 32 * j] = __fmul_rn(v[j], s);
}

/* n is one of 32 .. 1024. */
static __device__ __forceinline__ void hadamard_warp(float *y, const float *x, int n)
{
    float s = __fdiv_rn(1.0f, __fsqrt_rn((float)n));

    switch (n) {
    case 32:
        hadamard_block<1>(y, x, s);
        break;
    case 64:
        hadamard_block<2>(y, x, s);
        break;
    case 128:
        hadamard_block<4>(y, x, s);
        break;
    case 256:
        hadamard_block<8>(y, x, s);
        break;
    case 512:
        hadamard_block<16>(y, x, s);
        break;
    default:
        hadamard_block<32>(y, x, s);
        break;
    }
}
#endif
