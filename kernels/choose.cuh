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

/* The largest keys, the lower number where two are alike; number lane * EACH + j is a lane's key[j], which is used up. The
 * way through a turn is what counts: the first lane that has the largest has the lowest number. */
template <int EACH> /* a power of two */
static __device__ __forceinline__ void pick_best(uint32_t key[EACH], int n_used, int *expert)
{
    const int lane = threadIdx.x & 31;

#pragma unroll 1
    for (int k = 0; k < n_used; k++) {
        uint32_t best[EACH], hits = 0;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            best[j] = key[j];
#pragma unroll
        for (int half = EACH / 2; half > 0; half /= 2)
#pragma unroll
            for (int j = 0; j < half; j++)
                best[j] = max(best[j], best[j + half]);
        const uint32_t most = __reduce_max_sync(0xffffffffu, best[0]);
        const int first = __ffs((int)__ballot_sync(0xffffffffu, best[0] == most)) - 1;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            hits |= key[j] == most ? 1u << j : 0u;
        if (lane == first) {
            const int at = __ffs((int)hits) - 1;

            expert[k] = most > 0 ? lane * EACH + at : k;
#pragma unroll
            for (int j = 0; j < EACH; j++)
                key[j] = j == at ? 0u : key[j];
        }
        __syncwarp();
    }
}
#endif
