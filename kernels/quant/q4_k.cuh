/* SPDX-License-Identifier: Apache-2.0 */
/* q4_k.cuh - 4 bits, 6-bit scale and minimum for each 32 */
#ifndef KERNELS_QUANT_Q4_K_CUH
#define KERNELS_QUANT_Q4_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q4_k.h"
}

template <> struct wq<QUANT_q4_k> {
    typedef quant_q4_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 1 };
    struct raw {
        uint4 head, q[2];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint4 *b = (const uint4 *)(row + (int64_t)(pair / 4) * 144);

        r.head = b[0];
        r.q[0] = b[1 + pair % 4 * 2];
        r.q[1] = b[1 + 1 + pair % 4 * 2];
    }
    /* whole numbers and the block's factors, as k_pair() has them */
    static __device__ __forceinline__ void unpack_whole(const raw &r, int pair, unit u[2], const struct tables *)
    {
        uint32_t q[8] = { r.q[0].x, r.q[0].y, r.q[0].z, r.q[0].w, r.q[1].x, r.q[1].y, r.q[1].z, r.q[1].w };

        k_pair(r.head, pair, u);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u[0].w[j] = (int)(q[j] & 0x0f0f0f0fu);
            u[1].w[j] = (int)(q[j] >> 4 & 0x0f0f0f0fu);
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_whole(r, pair, u, tab);
        k_scaled(u);
    }
};
#endif
