/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xs.cuh - code book of octets, scales for each 16 */
#ifndef KERNELS_QUANT_IQ2_XS_CUH
#define KERNELS_QUANT_IQ2_XS_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq2_xs.h"
}

template <> struct wq<QUANT_iq2_xs> {
    typedef quant_iq2_xs block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 74;
        int g = i % 8, sc = b[66 + g];
        float d = half_at(b);

        u.d[0] = d * (0.5f + (float)(sc & 15)) * 0.25f;
        u.d[1] = d * (0.5f + (float)(sc >> 4)) * 0.25f;
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t q = u16_at(b + 2 + 8 * g + 2 * l), s = even_signs(q >> 9);
            uint2 e = tab->iq2xs[q & 511u];

            u.w[2 * l] = negate4(e.x, s);
            u.w[2 * l + 1] = negate4(e.y, s >> 4);
        }
    }
};
#endif
