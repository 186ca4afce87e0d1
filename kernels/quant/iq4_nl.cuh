/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_nl.cuh - codes of a non-linear table */
#ifndef KERNELS_QUANT_IQ4_NL_CUH
#define KERNELS_QUANT_IQ4_NL_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq4_nl.h"
}

template <> struct wq<QUANT_iq4_nl> {
    typedef quant_iq4_nl block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)i * 18;

        u.d[0] = half_at(b);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t q = u32_at(b + 2 + 4 * j);

            u.w[j] = iq4_codes(q & 0x0f0f0f0fu);
            u.w[j + 4] = iq4_codes(q >> 4 & 0x0f0f0f0fu);
        }
    }
};
#endif
