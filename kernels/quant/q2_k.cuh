/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.cuh - 2 bits, scale and minimum of 4 bits for each 16 */
#ifndef KERNELS_QUANT_Q2_K_CUH
#define KERNELS_QUANT_Q2_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q2_k.h"
}

template <> struct wq<QUANT_q2_k> {
    typedef quant_q2_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 1 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 84;
        int g = i % 8;
        float d = half_at(b + 80), dmin = half_at(b + 82);

#pragma unroll
        for (int j = 0; j < 2; j++) {
            int sc = b[2 * g + j];

            u.d[j] = d * (float)(sc & 15);
            u.m[j] = dmin * (float)(sc >> 4);
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            u.w[j] = (int)(u32_at(b + 16 + g / 4 * 32 + 4 * j) >> g % 4 * 2 & 0x03030303u);
    }
};
#endif
