/* SPDX-License-Identifier: Apache-2.0 */
/* q2_0.cuh - 2 bits: -1 to 2 */
#ifndef KERNELS_QUANT_Q2_0_CUH
#define KERNELS_QUANT_Q2_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q2_0.h"
}

template <> struct wq<QUANT_q2_0> {
    typedef quant_q2_0 block;
    enum { ELEMS = 64, HEAD = 0, HALF = 0, MIN = 0 };
    UNIT_BY_UNIT
    static __device__ __forceinline__ void one(const uint8_t *row, int i, unit &u, const struct tables *)
    {
        const uint8_t *b = row + (int64_t)(i / 2) * 18;

        u.d[0] = half_at(b);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t q = b[2 + i % 2 * 8 + j];

            q = (q & 3u) | (q & 12u) << 6 | (q & 48u) << 12 | (q & 192u) << 18;
            u.w[j] = minus4(q, 0x01010101u);
        }
    }
};
#endif
