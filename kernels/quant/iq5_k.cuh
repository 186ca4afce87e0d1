/* SPDX-License-Identifier: Apache-2.0 */
/* iq5_k.cuh - non-linear codes of 5 bits, 6-bit scales for each 16 */
#ifndef KERNELS_QUANT_IQ5_K_CUH
#define KERNELS_QUANT_IQ5_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq5_k.h"
}

template <> struct wq<QUANT_iq5_k> {
    typedef quant_iq5_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 176;
        int g = i % 8;
        uint32_t extra = u16_at(b + 2) >> 2 * g;
        float d = half_at(b);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            int k = 2 * g + h, s = (b[8 + g] >> 4 * h & 15) | (b[4 + k / 4] >> k % 4 * 2 & 3) << 4;
            uint32_t shift = extra >> h & 1u ? 0x02020202u : 0; /* the shifted values are 2 more */

            u.d[h] = d * (float)(s - 32);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t q = u32_at(b + 16 + g / 2 * 32 + 16 * h + 4 * j) >> g % 2 * 4 & 0x0f0f0f0fu;
                uint32_t m = (u32_at(b + 144 + 16 * h + 4 * j) >> g & 0x01010101u) * 255u;
                uint32_t lo = (uint32_t)look16(q, 0xa4998e82u, 0xc7bfb6adu, 0xe2dcd5ceu, 0xfaf4eee8u);
                uint32_t hi = (uint32_t)look16(q, 0x110b05ffu, 0x2b241d17u, 0x4d443b33u, 0x796d6157u);

                u.w[4 * h + j] = (int)__vadd4((lo & ~m) | (hi & m), shift);
            }
        }
    }
};
#endif
