/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_s.cuh - code book of ternary octets, scale and shift for each 32 */
#ifndef KERNELS_QUANT_IQ1_S_CUH
#define KERNELS_QUANT_IQ1_S_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq1_s.h"
}

template <> struct wq<QUANT_iq1_s> {
    typedef quant_iq1_s block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 50;
        int g = i % 8;
        uint32_t h = u16_at(b + 34 + 2 * g), shift = h & 0x8000u ? 0x09090909u : 0x07070707u;

        u.d[0] = half_at(b) * (float)(2 * (h >> 12 & 7u) + 1) * 0.125f; /* eighths: 8 (code - 1) + 1 or - 1 */
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint2 e = tab->iq1s[b[2 + 4 * g + l] | (h >> 3 * l & 7u) << 8];

            u.w[2 * l] = minus4(e.x, shift);
            u.w[2 * l + 1] = minus4(e.y, shift);
        }
    }
};
#endif
