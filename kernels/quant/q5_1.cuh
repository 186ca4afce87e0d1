/* SPDX-License-Identifier: Apache-2.0 */
/* q5_1.cuh - 5 bits, scale and minimum */
#ifndef KERNELS_QUANT_Q5_1_CUH
#define KERNELS_QUANT_Q5_1_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q5_1.h"
}

template <> struct wq<QUANT_q5_1> {
    typedef quant_q5_1 block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 1 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)i * 24;
        uint32_t h = u32_at(b + 4);

        u.d[0] = half_at(b);
        u.m[0] = -half_at(b + 2);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t q = u32_at(b + 8 + 4 * j);

            u.w[j] = (int)((q & 0x0f0f0f0fu) | (mask4(h >> 4 * j) & 0x10101010u));
            u.w[j + 4] = (int)((q >> 4 & 0x0f0f0f0fu) | (mask4(h >> (16 + 4 * j)) & 0x10101010u));
        }
    }
};
#endif
