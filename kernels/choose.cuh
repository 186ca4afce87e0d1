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
template <int EACH>
static __device__ __forceinline__ void pick_best(uint32_t key[EACH], int n_used, int *expert)
{
    const int lane = threadIdx.x & 31;

    for (int k = 0; k < n_used; k++) {
        uint32_t best = 0;
        int at = 0;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (key[j] > best) {
                best = key[j];
                at = lane + 32 * j;
            }
        uint32_t most = __reduce_max_sync(0xffffffffu, best);
        int e = most > 0 ? (int)__reduce_min_sync(0xffffffffu, best == most ? (unsigned)at : ~0u) : k;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            key[j] = lane + 32 * j == e ? 0 : key[j];
        if (lane == 0)
            expert[k] = e;
    }
}
#endif
