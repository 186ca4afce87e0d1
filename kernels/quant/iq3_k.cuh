/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_k.cuh - non-linear codes of 3 bits, 5-bit scales for each 16 */
#ifndef KERNELS_QUANT_IQ3_K_CUH
#define KERNELS_QUANT_IQ3_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq3_k.h"
}

template <> struct wq<QUANT_iq3_k> {
    typedef quant_iq3_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 110;
        int g = i % 8;
        uint32_t extra = u16_at(b + 2) >> 2 * g, minus = u16_at(b + 4) >> 2 * g;
        float d = half_at(b);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            int s = 2 * (b[6 + g] >> 4 * h & 15) + 1;
            bool shifted = extra >> h & 1u;

            u.d[h] = d * (float)(minus >> h & 1u ? -s : s);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t q = u32_at(b + 14 + g / 4 * 32 + 16 * h + 4 * j) >> g % 4 * 2 & 0x03030303u;

                q |= (u32_at(b + 78 + 16 * h + 4 * j) >> g & 0x01010101u) << 2;
                u.w[4 * h + j] =
                    look16(q, shifted ? 0xfaeddcc5u : 0xf6e9d8c1u, shifted ? 0x33201105u : 0x2f1c0d01u, 0, 0);
            }
        }
    }
};
#endif
