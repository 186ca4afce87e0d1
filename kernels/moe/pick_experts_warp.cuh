/* SPDX-License-Identifier: Apache-2.0 */
/* pick_experts_warp.cuh - top-k experts of a token, by a warp.   room: kernels */
#ifndef KERNELS_MOE_PICK_EXPERTS_WARP_CUH
#define KERNELS_MOE_PICK_EXPERTS_WARP_CUH
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

/* Whether number i of key `a` comes before number j of key `b`. */
static __device__ __forceinline__ bool comes_first(uint32_t a, int i, uint32_t b, int j)
{
    return a > b || (a == b && i < j);
}

/* A lane's keys, the largest first, and their numbers, which begin as 0, 1 ...: Batcher's odd-even merge sort, from
 * runs of P keys and pairs K apart on. */
template <int EACH, int P = 1, int K = 1>
static __device__ __forceinline__ void sort_keys(uint32_t key[EACH], int at[EACH])
{
#pragma unroll
    for (int a = K % P; a + K < EACH; a++) {
        const int b = a + K;

        if ((a - K % P) % (2 * K) >= K || a / (2 * P) != b / (2 * P))
            continue;
        const bool right = comes_first(key[a], at[a], key[b], at[b]);
        const uint32_t ka = key[a], kb = key[b];
        const int na = at[a], nb = at[b];

        key[a] = right ? ka : kb;
        key[b] = right ? kb : ka;
        at[a] = right ? na : nb;
        at[b] = right ? nb : na;
    }
    if constexpr (K > 1)
        sort_keys<EACH, P, K / 2>(key, at);
    else if constexpr (2 * P < EACH)
        sort_keys<EACH, 2 * P, 2 * P>(key, at);
}

/* The largest keys, the lower number where two are alike; number lane * EACH + j is a lane's key[j], which is used up.
 * Of lanes that have the largest the first one has the lowest number. The way through a turn is what counts: keys are
 * in order before the first. expert: in shared memory, where its place is found once. */
template <int EACH> /* a power of two, 16 at most */
static __device__ __forceinline__ void pick_best(uint32_t key[EACH], int n_used, int *expert)
{
    static_assert(EACH <= 16, "a number has 4 bits");
    const int lane = threadIdx.x & 31;
    const uint32_t before = (1u << lane) - 1;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(expert);
    int at[EACH];
    uint64_t numbers = 0; /* 4 bits each */

#pragma unroll
    for (int j = 0; j < EACH; j++)
        at[j] = j;
    asm volatile("" : "+r"(to));
    sort_keys<EACH>(key, at);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        numbers |= (uint64_t)at[j] << 4 * j;
#pragma unroll 1
    for (int k = 0; k < n_used; k++) {
        const uint32_t most = __reduce_max_sync(0xffffffffu, key[0]);
        const uint32_t have = __ballot_sync(0xffffffffu, key[0] == most);
        const bool mine = key[0] == most && (have & before) == 0;

        if (mine)
            asm volatile("st.shared.s32 [%0], %1;" ::"r"(to + 4 * k),
                         "r"(most > 0 ? lane * EACH + (int)(numbers & 15) : k)
                         : "memory");
#pragma unroll
        for (int j = 0; j < EACH; j++)
            key[j] = !mine ? key[j] : j + 1 < EACH ? key[j + 1] : 0u;
        numbers = mine ? numbers >> 4 : numbers;
    }
    __syncwarp();
}
#endif
