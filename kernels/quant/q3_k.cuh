/* SPDX-License-Identifier: Apache-2.0 */
/* q3_k.cuh - 3 bits, scales of 6 bits for each 16 */
#ifndef KERNELS_QUANT_Q3_K_CUH
#define KERNELS_QUANT_Q3_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q3_k.h"
}

template <> struct wq<QUANT_q3_k> {
    typedef quant_q3_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 110;
        int g = i % 8;
        float d = half_at(b + 108);

#pragma unroll
        for (int j = 0; j < 2; j++) {
            int k = 2 * g + j, low = b[96 + k % 8] >> k / 8 * 4 & 15, high = b[104 + k % 4] >> k / 4 * 2 & 3;

            u.d[j] = d * (float)((low | high << 4) - 32);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t q = u32_at(b + 32 + g / 4 * 32 + 4 * j) >> g % 4 * 2 & 0x03030303u;
            uint32_t h = u32_at(b + 4 * j) >> g & 0x01010101u;

            u.w[j] = minus4(q | h << 2, 0x04040404u);
        }
    }
};
#endif
