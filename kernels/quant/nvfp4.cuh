/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.cuh - 4-bit floats with an 8-bit float for each 16 */
#ifndef KERNELS_QUANT_NVFP4_CUH
#define KERNELS_QUANT_NVFP4_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/nvfp4.h"
}

template <> struct wq<QUANT_nvfp4> {
    typedef quant_nvfp4 block;
    enum { ELEMS = 64, HEAD = 0, HALF = 1, MIN = 0 };
    UNIT_BY_UNIT
    /* Half of an E4M3 number without sign; its NaN counts as 0. */
    static __device__ __forceinline__ float half_scale(uint32_t v)
    {
        uint32_t exp = v >> 3 & 15u, man = v & 7u;

        return v == 0x7f ? 0.0f : exp == 0 ? (float)man * 0x1p-10f : __uint_as_float((exp + 119) << 23 | man << 20);
    }
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 2) * 36;

#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *q = b + 4 + 8 * (i % 2 * 2 + h);

            u.d[h] = half_scale(b[i % 2 * 2 + h]);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t v = u32_at(q + 4 * j);

                u.w[4 * h + j] = look16(v & 0x0f0f0f0fu, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
                u.w[4 * h + j + 2] = look16(v >> 4 & 0x0f0f0f0fu, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
            }
        }
    }
};
#endif
