/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_k.cuh - non-linear codes of 2 bits, 4-bit scales for each 16 */
#ifndef KERNELS_QUANT_IQ2_K_CUH
#define KERNELS_QUANT_IQ2_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq2_k.h"
}

template <> struct wq<QUANT_iq2_k> {
    typedef quant_iq2_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 76;
        int g = i % 8;
        uint32_t extra = u16_at(b + 2) >> 2 * g;
        float d = half_at(b);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t table = extra >> h & 1u ? 0x1606f8e6u : 0x1101f3e1u;

            u.d[h] = d * (float)((b[4 + g] >> 4 * h & 15) - 8);
#pragma unroll
            for (int j = 0; j < 4; j++)
                u.w[4 * h + j] =
                    look16(u32_at(b + 12 + g / 4 * 32 + 16 * h + 4 * j) >> g % 4 * 2 & 0x03030303u, table, 0, 0, 0);
        }
    }
};
#endif
