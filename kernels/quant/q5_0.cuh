/* SPDX-License-Identifier: Apache-2.0 */
/* q5_0.cuh - 5 bits, symmetric */
#ifndef KERNELS_QUANT_Q5_0_CUH
#define KERNELS_QUANT_Q5_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q5_0.h"
}

template <> struct wq<QUANT_q5_0> {
    typedef quant_q5_0 block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)i * 22;
        uint32_t h = u32_at(b + 2);

        u.d[0] = half_at(b);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t q = u32_at(b + 6 + 4 * j);

            u.w[j] = minus4((q & 0x0f0f0f0fu) | (mask4(h >> 4 * j) & 0x10101010u), 0x10101010u);
            u.w[j + 4] = minus4((q >> 4 & 0x0f0f0f0fu) | (mask4(h >> (16 + 4 * j)) & 0x10101010u), 0x10101010u);
        }
    }
};
#endif
