/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_xxs.cuh - code book of quads, scale for each 32 */
#ifndef KERNELS_QUANT_IQ3_XXS_CUH
#define KERNELS_QUANT_IQ3_XXS_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq3_xxs.h"
}

template <> struct wq<QUANT_iq3_xxs> {
    typedef quant_iq3_xxs block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *tab)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 98;
        int g = i % 8;
        uint32_t aux = u32_at(b + 66 + 4 * g);

        u.d[0] = half_at(b) * (0.5f + (float)(aux >> 28)) * 0.5f;
#pragma unroll
        for (int l = 0; l < 8; l++)
            u.w[l] = negate4(tab->iq3xxs[b[2 + 8 * g + l]], even_signs(aux >> l / 2 * 7 & 127u) >> l % 2 * 4);
    }
};
#endif
