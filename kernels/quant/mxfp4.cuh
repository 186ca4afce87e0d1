/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.cuh - 4-bit floats with a power of two */
#ifndef KERNELS_QUANT_MXFP4_CUH
#define KERNELS_QUANT_MXFP4_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/mxfp4.h"
}

template <> struct wq<QUANT_mxfp4> {
    typedef quant_mxfp4 block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)i * 17;
        uint32_t e = b[0];

        /* half of 2^(e - 127): the table holds doubled values */
        u.d[0] = __uint_as_float(e < 2 ? 0x200000u << e : (e - 1) << 23);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint8_t *p = b + 1 + 4 * j;
            uint32_t q = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;

            u.w[j] = look16(q & 0x0f0f0f0fu, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
            u.w[j + 4] = look16(q >> 4 & 0x0f0f0f0fu, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
        }
    }
};
#endif
