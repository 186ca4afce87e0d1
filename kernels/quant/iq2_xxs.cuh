/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xxs.cuh - code book of octets, scale for each 32 */
#ifndef KERNELS_QUANT_IQ2_XXS_CUH
#define KERNELS_QUANT_IQ2_XXS_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq2_xxs.h"
}

template <> struct wq<QUANT_iq2_xxs> {
    typedef quant_iq2_xxs block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *q = row + (int64_t)(i / 8) * 66 + 2 + i % 8 * 8;
        uint32_t aux = u32_at(q + 4);

        u.d[0] = half_at(row + (int64_t)(i / 8) * 66) * (0.5f + (float)(aux >> 28)) * 0.25f;
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint2 e = tab->iq2xxs[q[l]];
            uint32_t s = even_signs(aux >> 7 * l & 127u);

            u.w[2 * l] = negate4(e.x, s);
            u.w[2 * l + 1] = negate4(e.y, s >> 4);
        }
    }
};
#endif
