/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.cuh - 4 bits, symmetric */
#ifndef KERNELS_QUANT_Q4_0_CUH
#define KERNELS_QUANT_Q4_0_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q4_0.h"
}

template <> struct wq<QUANT_q4_0> {
    typedef quant_q4_0 block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint4 q[2];
        uint32_t d[2];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint8_t *b = row + (int64_t)pair * 36;

        r.d[0] = u16_at(b);
        r.q[0] = any16(b + 2);
        r.d[1] = u16_at(b + 18);
        r.q[1] = any16(b + 20);
    }
    static __device__ __forceinline__ void unpack(const raw &r, int, unit u[2], int, const struct tables *)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t q[4] = { r.q[i].x, r.q[i].y, r.q[i].z, r.q[i].w };

            u[i].d[0] = half_of(r.d[i]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u[i].w[j] = minus4(q[j] & 0x0f0f0f0fu, 0x08080808u);
                u[i].w[j + 4] = minus4(q[j] >> 4 & 0x0f0f0f0fu, 0x08080808u);
            }
        }
    }
};
#endif
