/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.cuh - 6 bits, 8-bit scales for each 16 */
#ifndef KERNELS_QUANT_Q6_K_CUH
#define KERNELS_QUANT_Q6_K_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/q6_k.h"
}

template <> struct wq<QUANT_q6_k> {
    typedef quant_q6_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 1, MIN = 0 };
    struct raw {
        uint4 lo[4], hi[2];
        uint32_t sc, d;
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint8_t *b = row + (int64_t)(pair / 4) * 210;
        int half = pair % 4 / 2;

#pragma unroll
        for (int j = 0; j < 4; j++)
            r.lo[j] = any16(b + 64 * half + 16 * j);
        r.hi[0] = any16(b + 128 + 32 * half);
        r.hi[1] = any16(b + 144 + 32 * half);
        r.sc = u32_at(b + 192 + pair % 4 * 4);
        r.d = u16_at(b + 208);
    }
    /* as q4_k.cuh */
    static __device__ __forceinline__ void unpack_whole(const raw &r, int pair, unit u[2], const struct tables *)
    {
        uint32_t hi[8] = { r.hi[0].x, r.hi[0].y, r.hi[0].z, r.hi[0].w, r.hi[1].x, r.hi[1].y, r.hi[1].z, r.hi[1].w };
        int nibble = pair % 2 * 4, two = pair % 2 * 4;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            u[i].d[0] = (float)(int8_t)(r.sc >> 16 * i);
            u[i].d[1] = (float)(int8_t)(r.sc >> (16 * i + 8));
            u[i].m[1] = half_of(r.d);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const uint4 &q4 = r.lo[2 * i + j / 4];
                uint32_t q = j % 4 == 0 ? q4.x : j % 4 == 1 ? q4.y : j % 4 == 2 ? q4.z : q4.w;

                u[i].w[j] = minus4((q >> nibble & 0x0f0f0f0fu) | (hi[j] >> (two + 2 * i) & 0x03030303u) << 4,
                                   0x20202020u);
            }
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_whole(r, pair, u, tab);
#pragma unroll
        for (int i = 0; i < 4; i++)
            u[i / 2].d[i % 2] *= u[1].m[1];
    }
};
#endif
