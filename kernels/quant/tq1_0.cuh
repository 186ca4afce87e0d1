/* SPDX-License-Identifier: Apache-2.0 */
/* tq1_0.cuh - five ternary digits a byte */
#ifndef KERNELS_QUANT_TQ1_0_CUH
#define KERNELS_QUANT_TQ1_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/tq1_0.h"
}

template <> struct wq<QUANT_tq1_0> {
    typedef quant_tq1_0 block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    /* Element e of a block: see libcore/quant/tq1_0.c for the order. */
    static __device__ __forceinline__ int digit(const uint8_t *b, int e)
    {
        int k = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        int q = b[e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4];
        int left = q * (k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81) & 255;

        return (left * 3 >> 8) - 1;
    }
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 8) * 54;
        int e = i % 8 * 32;

        u.d[0] = half_at(b + 52);
#pragma unroll
        for (int j = 0; j < 8; j++, e += 4)
            u.w[j] = bytes4(digit(b, e), digit(b, e + 1), digit(b, e + 2), digit(b, e + 3));
    }
};
#endif
