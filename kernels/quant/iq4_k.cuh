/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_k.cuh - non-linear codes of 4 bits, 6-bit scales for each 16 */
#ifndef KERNELS_QUANT_IQ4_K_CUH
#define KERNELS_QUANT_IQ4_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq4_k.h"
}

template <> struct wq<QUANT_iq4_k> {
    typedef quant_iq4_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 144;
        int g = i % 8;
        uint32_t extra = u16_at(b + 2) >> 2 * g;
        float d = half_at(b);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            int k = 2 * g + h, s = (b[8 + g] >> 4 * h & 15) | (b[4 + k / 4] >> k % 4 * 2 & 3) << 4;
            bool shifted = extra >> h & 1u;

            u.d[h] = d * (float)(s - 32);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t q = u32_at(b + 16 + 16 * g + 4 * j) >> 4 * h & 0x0f0f0f0fu;

                u.w[4 * h + j] = shifted ? look16(q, 0xc3b19c85u, 0xfaeee1d3u, 0x2a1d1105u, 0x755d4939u) : iq4_codes(q);
            }
        }
    }
};
#endif
