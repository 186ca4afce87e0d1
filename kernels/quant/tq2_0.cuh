/* SPDX-License-Identifier: Apache-2.0 */
/* tq2_0.cuh - ternary in 2 bits */
#ifndef KERNELS_QUANT_TQ2_0_CUH
#define KERNELS_QUANT_TQ2_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/tq2_0.h"
}

template <> struct wq<QUANT_tq2_0> {
    typedef quant_tq2_0 block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 66;
        int g = i % 8;

        u.d[0] = half_at(b + 64);
#pragma unroll
        for (int j = 0; j < 8; j++)
            u.w[j] = minus4(u32_at(b + g / 4 * 32 + 4 * j) >> g % 4 * 2 & 0x03030303u, 0x01010101u);
    }
};
#endif
