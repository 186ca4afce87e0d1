/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_ks.cuh - non-linear codes of 4 bits, 8-bit scale for each 32, one for the row */
#ifndef KERNELS_QUANT_IQ4_KS_CUH
#define KERNELS_QUANT_IQ4_KS_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq4_ks.h"
}

template <> struct wq<QUANT_iq4_ks> {
    typedef quant_iq4_ks block;
    enum { ELEMS = 256, HEAD = 4, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + 4 + (int64_t)(i / 8) * 136;
        int g = i % 8, sc = b[g];

        u.d[0] = *(const float *)row * (float)((sc & 254) - 127);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t q = *(const uint32_t *)(b + 8 + 16 * g + 4 * j), lo = q & 0x0f0f0f0fu, hi = q >> 4 & 0x0f0f0f0fu;

            u.w[j] = sc & 1 ? look16(lo, 0xc3b19c85u, 0xfaeee1d3u, 0x2a1d1105u, 0x755d4939u) : iq4_codes(lo);
            u.w[j + 4] = sc & 1 ? look16(hi, 0xc3b19c85u, 0xfaeee1d3u, 0x2a1d1105u, 0x755d4939u) : iq4_codes(hi);
        }
    }
};
#endif
