/* SPDX-License-Identifier: Apache-2.0 */
/* choose.cuh - the best experts of a row, by a warp.                 room: kernels (base quant ops) */
#ifndef KERNELS_CHOOSE_CUH
#define KERNELS_CHOOSE_CUH
#include <math_constants.h>
#include <stdint.h>

/* Floats in an order of whole numbers; 0 for what may not be chosen. */
static __device__ __forceinline__ uint32_t key_of(float s)
{
    uint32_t u = __float_as_uint(s);

    if (!(s > -CUDART_INF_F))
        return 0;
    u = s == 0.0f ? 0 : u; /* both zeros are alike */
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The largest keys, the lower number where two are alike; number lane + 32 j is a lane's key[j], which is used up. */
template <int EACH> /* a power of two */
static __device__ __forceinline__ void pick_best(uint32_t key[EACH], int n_used, int *expert)
{
    const int lane = threadIdx.x & 31;

#pragma unroll 1
    for (int k = 0; k < n_used; k++) {
        uint32_t best[EACH];
        int at = 32 * EACH;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            best[j] = key[j];
#pragma unroll
        for (int half = EACH / 2; half > 0; half /= 2) /* the way through it is what counts */
#pragma unroll
            for (int j = 0; j < half; j++)
                best[j] = max(best[j], best[j + half]);
        const uint32_t most = __reduce_max_sync(0xffffffffu, best[0]);
#pragma unroll
        for (int j = EACH - 1; j >= 0; j--)
            at = key[j] == most ? lane + 32 * j : at;
        const int e = most > 0 ? (int)__reduce_min_sync(0xffffffffu, (unsigned)at) : k;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            key[j] = lane + 32 * j == e ? 0 : key[j];
        if (lane == 0)
            expert[k] = e;
    }
}
#endif
