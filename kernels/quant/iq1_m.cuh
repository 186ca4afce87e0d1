/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_m.cuh - code book of ternary octets, scales for each 16, shift for each 8 */
#ifndef KERNELS_QUANT_IQ1_M_CUH
#define KERNELS_QUANT_IQ1_M_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq1_m.h"
}

template <> struct wq<QUANT_iq1_m> {
    typedef quant_iq1_m block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 56;
        int g = i % 8;
        uint32_t top =
            u16_at(b + 48) >> 12 | u16_at(b + 50) >> 12 << 4 | u16_at(b + 52) >> 12 << 8 | (u16_at(b + 54) & 0xf000u);
        float d = half_of(top);

#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t s = u16_at(b + 48 + g / 2 * 2) >> (g % 2 * 2 + j) * 3 & 7u;

            u.d[j] = d * (float)(2 * s + 1) * 0.125f;
        }
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t h = b[32 + 2 * g + l / 2] >> l % 2 * 4 & 15u, shift = h >= 8 ? 0x09090909u : 0x07070707u;
            uint2 e = tab->iq1s[b[4 * g + l] | (h & 7u) << 8];

            u.w[2 * l] = minus4(e.x, shift);
            u.w[2 * l + 1] = minus4(e.y, shift);
        }
    }
};
#endif
