/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.cuh - codes of a non-linear table, 6-bit scale for each 32 */
#ifndef KERNELS_QUANT_IQ4_XS_CUH
#define KERNELS_QUANT_IQ4_XS_CUH
#include "kernels/quant/regs.cuh"
extern "C" {
#include "quant/iq4_xs.h"
}

template <> struct wq<QUANT_iq4_xs> {
    typedef quant_iq4_xs block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint2 head;
        uint2 q[4];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint2 *b = (const uint2 *)(row + (int64_t)(pair / 4) * 136);

        r.head = b[0];
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = b[1 + pair % 4 * 4 + j];
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *)
    {
        float d = half_of(r.head.x & 0xffffu);
        uint32_t high = r.head.x >> 16 >> pair % 4 * 4, low = r.head.y >> pair % 4 * 8;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t q[4] = { r.q[2 * i].x, r.q[2 * i].y, r.q[2 * i + 1].x, r.q[2 * i + 1].y };

            u[i].d[0] = d * (float)((int)((low >> 4 * i & 15u) | (high >> 2 * i & 3u) << 4) - 32);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u[i].w[j] = iq4_codes(q[j] & 0x0f0f0f0fu);
                u[i].w[j + 4] = iq4_codes(q[j] >> 4 & 0x0f0f0f0fu);
            }
        }
    }
};

template <> struct frag<QUANT_iq4_xs> {
    enum { BLOCK = 136, HALVES = 0, MIN = 0, SIGNED = 1, APART = 1, ODD = 0, SCALES = 0 };
    struct raw {
        uint2 head;
        uint32_t q[8];
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        r.head = read_as<ANY, uint2>(at);
#pragma unroll
        for (int j = 0; j < 8; j++)
            r.q[j] = read_as<ANY, uint32_t>(at + 8 + 16 * j + 4 * c);
    }
    template <class T> static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        w[0] = (uint32_t)iq4_codes(r.q[u] & 0x0f0f0f0fu);
        w[1] = (uint32_t)iq4_codes(r.q[u] >> 4 & 0x0f0f0f0fu);
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int c, float &d, float &)
    {
        int u = 4 * half + c;
        uint32_t s = (r.head.y >> 4 * u & 15u) | (r.head.x >> 16 >> 2 * u & 3u) << 4;

        d = __fmul_rn(half_of(r.head.x & 0xffffu), __fsub_rn(small_float(s), 32.0f));
    }
};
#endif
