/* SPDX-License-Identifier: Apache-2.0 */
/* q1_0.cuh - signs */
#ifndef KERNELS_QUANT_Q1_0_CUH
#define KERNELS_QUANT_Q1_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q1_0.h"
}

template <> struct wq<QUANT_q1_0> {
    typedef quant_q1_0 block;
    enum { ELEMS = 128, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 4) * 18;
        uint32_t s = ~u32_at(b + 2 + i % 4 * 4);

        u.d[0] = half_at(b);
#pragma unroll
        for (int j = 0; j < 8; j++)
            u.w[j] = negate4(0x01010101u, s >> 4 * j);
    }
};
#endif
