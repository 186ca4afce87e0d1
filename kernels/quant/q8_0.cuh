/* SPDX-License-Identifier: Apache-2.0 */
/* q8_0.cuh - 8 bits, symmetric */
#ifndef KERNELS_QUANT_Q8_0_CUH
#define KERNELS_QUANT_Q8_0_CUH
#include "kernels/quant/regs.cuh"
extern "C" {
#include "quant/q8_0.h"
}

template <> struct wq<QUANT_q8_0> {
    typedef quant_q8_0 block;
    enum { ELEMS = 32, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint4 q[4];
        uint32_t d[2];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint8_t *b = row + (int64_t)pair * 68;

        r.d[0] = u16_at(b);
        r.q[0] = any16(b + 2);
        r.q[1] = any16(b + 18);
        r.d[1] = u16_at(b + 34);
        r.q[2] = any16(b + 36);
        r.q[3] = any16(b + 52);
    }
    static __device__ __forceinline__ void unpack(const raw &r, int, unit u[2], int, const struct tables *)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int *w = u[i / 2].w + i % 2 * 4;

            w[0] = (int)r.q[i].x;
            w[1] = (int)r.q[i].y;
            w[2] = (int)r.q[i].z;
            w[3] = (int)r.q[i].w;
        }
        u[0].d[0] = half_of(r.d[0]);
        u[1].d[0] = half_of(r.d[1]);
    }
};

template <> struct frag<QUANT_q8_0> {
    enum { BLOCK = 272, HALVES = 0, MIN = 0, SIGNED = 1, APART = 0, ODD = 0, SCALES = 0 };
    struct raw {
        uint2 q[8];
        uint32_t d; /* of units c and 4 + c */
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int n, int c)
    {
        const unsigned more = after4(at);
        const uint8_t *even = at + more + 8 * c, *odd = at - more + 2 + 8 * c; /* one and the other every 34 bytes */

#pragma unroll
        for (int j = 0; j < 8; j++)
            r.q[j] = j >= n ? make_uint2(0, 0)
                            : read8<ANY>((j % 2 == 0 ? even : odd) + 34 * j, j % 2 == 0 ? 16 - 8 * more : 8 * more);
        r.d = (c < n ? u16_at(at + 34 * c) : 0) | (4 + c < n ? u16_at(at + 34 * (4 + c)) : 0) << 16;
    }
    template <class T> static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        w[0] = r.q[u].x;
        w[1] = r.q[u].y;
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int, float &d, float &)
    {
        d = half_of(half == 0 ? r.d & 0xffffu : r.d >> 16);
    }
};
#endif
