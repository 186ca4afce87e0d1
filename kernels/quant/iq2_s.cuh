/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_s.cuh - code book of octets, plain signs, scales for each 16 */
#ifndef KERNELS_QUANT_IQ2_S_CUH
#define KERNELS_QUANT_IQ2_S_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq2_s.h"
}

template <> struct wq<QUANT_iq2_s> {
    typedef quant_iq2_s block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 82;
        int g = i % 8, sc = b[74 + g];
        float d = half_at(b);

        u.d[0] = d * (0.5f + (float)(sc & 15)) * 0.25f;
        u.d[1] = d * (0.5f + (float)(sc >> 4)) * 0.25f;
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t s = b[34 + 4 * g + l];
            uint2 e = tab->iq2s[b[2 + 4 * g + l] | (b[66 + g] >> 2 * l & 3u) << 8];

            u.w[2 * l] = negate4(e.x, s);
            u.w[2 * l + 1] = negate4(e.y, s >> 4);
        }
    }
};
#endif
