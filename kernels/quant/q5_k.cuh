/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.cuh - 5 bits, 6-bit scale and minimum for each 32 */
#ifndef KERNELS_QUANT_Q5_K_CUH
#define KERNELS_QUANT_Q5_K_CUH
#include "kernels/quant/k.cuh"
extern "C" {
#include "quant/q5_k.h"
}

template <> struct wq<QUANT_q5_k> {
    typedef quant_q5_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 1 };
    struct raw {
        uint4 head, q[2];
        uint4 qh[2];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint4 *b = (const uint4 *)(row + (int64_t)(pair / 4) * 176);

        r.head = b[0];
        r.qh[0] = b[1];
        r.qh[1] = b[2];
        r.q[0] = b[3 + pair % 4 * 2];
        r.q[1] = b[3 + 1 + pair % 4 * 2];
    }
    /* whole numbers and the block's factors, as k_pair() has them */
    static __device__ __forceinline__ void unpack_a8(const raw &r, int pair, unit u[2], const struct tables *)
    {
        uint32_t q[8] = { r.q[0].x, r.q[0].y, r.q[0].z, r.q[0].w, r.q[1].x, r.q[1].y, r.q[1].z, r.q[1].w };
        uint32_t h[8] = { r.qh[0].x, r.qh[0].y, r.qh[0].z, r.qh[0].w, r.qh[1].x, r.qh[1].y, r.qh[1].z, r.qh[1].w };
        const int g = pair % 4 * 2;

        k_pair(r.head, pair, u);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u[0].w[j] = (int)((q[j] & 0x0f0f0f0fu) | (h[j] >> g & 0x01010101u) << 4);
            u[1].w[j] = (int)((q[j] >> 4 & 0x0f0f0f0fu) | (h[j] >> (g + 1) & 0x01010101u) << 4);
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_a8(r, pair, u, tab);
        k_scaled(u);
    }
};

template <> struct frag<QUANT_q5_k> {
    enum { BLOCK = 176, HALVES = 0, MIN = 1, SIGNED = 0, APART = 0, ODD = 0, SCALES = 1 };
    struct raw {
        uint4 head;
        uint2 h, q[4];
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        r.head = read_as<ANY, uint4>(at);
        r.h = read_as<ANY, uint2>(at + 16 + 8 * c);
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = read_as<ANY, uint2>(at + 48 + 32 * j + 8 * c);
    }
    /* The fifth bit comes from below: shifts to the left are products, which the compiler must not join with the
     * other. */
    static __device__ __forceinline__ uint32_t word(uint32_t q, uint32_t h, int u)
    {
        if (u >= 4)
            asm("shr.b32 %0, %1, 4;" : "=r"(h) : "r"(h));
        return (q >> u % 2 * 4 & 0x0f0f0f0fu) | (h << (4 - u % 4) & 0x10101010u);
    }
    template <class T> static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        w[0] = word(r.q[u / 2].x, r.h.x, u);
        w[1] = word(r.q[u / 2].y, r.h.y, u);
    }
    static __device__ __forceinline__ void integers(const raw &r, int half, int c, uint32_t &n, uint32_t &m)
    {
        k_integers(r.head, half, c, n, m);
    }
    static __device__ __forceinline__ void numbers(const raw &r, int half, int c, float &n, float &m)
    {
        k_numbers(r.head, half, c, n, m);
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int c, float &d, float &m)
    {
        numbers(r, half, c, d, m);
        d = __fmul_rn(half_of(r.head.x & 0xffffu), d);
        m = __fmul_rn(half_of(r.head.x >> 16), m);
    }
    static __device__ __forceinline__ void scales(const raw &r, int c, float d[2], float m[2])
    {
        k_scales(r.head, c, half_of(r.head.x & 0xffffu), d, m);
    }
    static __device__ __forceinline__ int2 scaled_sums(const raw &r, int c, int i0, int i1, const int s[2])
    {
        return k_scaled_sums(r.head, c, i0, i1, s);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return k_factors(r.head);
    }
};

template <> struct group<QUANT_q5_k> : k_group<QUANT_q5_k> {
};
#endif
