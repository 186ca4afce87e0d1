/* SPDX-License-Identifier: Apache-2.0 */
/* q4_k.cuh - 4 bits, 6-bit scale and minimum for each 32 */
#ifndef KERNELS_QUANT_Q4_K_CUH
#define KERNELS_QUANT_Q4_K_CUH
#include "kernels/quant/k.cuh"
extern "C" {
#include "quant/q4_k.h"
}

template <> struct wq<QUANT_q4_k> {
    typedef quant_q4_k block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 1 };
    struct raw {
        uint4 head, q[2];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint4 *b = (const uint4 *)(row + (int64_t)(pair / 4) * 144);

        r.head = b[0];
        r.q[0] = b[1 + pair % 4 * 2];
        r.q[1] = b[1 + 1 + pair % 4 * 2];
    }
    /* whole numbers and the block's factors, as k_pair() has them */
    static __device__ __forceinline__ void unpack_a8(const raw &r, int pair, unit u[2], const struct tables *)
    {
        uint32_t q[8] = { r.q[0].x, r.q[0].y, r.q[0].z, r.q[0].w, r.q[1].x, r.q[1].y, r.q[1].z, r.q[1].w };

        k_pair(r.head, pair, u);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u[0].w[j] = (int)(q[j] & 0x0f0f0f0fu);
            u[1].w[j] = (int)(q[j] >> 4 & 0x0f0f0f0fu);
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_a8(r, pair, u, tab);
        k_scaled(u);
    }
};

template <> struct frag<QUANT_q4_k> {
    enum { BLOCK = 144, HALVES = 0, MIN = 1, SIGNED = 0, APART = 0, ODD = 4, SCALES = 1 };
    struct raw {
        uint4 head;
        uint2 q[4];
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        r.head = read_as<ANY, uint4>(at);
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = read_as<ANY, uint2>(at + 16 + 32 * j + 8 * c);
    }
    /* odd units lie in the upper half of each byte and stay there: times 16 */
    template <class T> static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        uint32_t mask = u % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u;

        w[0] = r.q[u / 2].x & mask;
        w[1] = r.q[u / 2].y & mask;
    }
    static __device__ __forceinline__ void integers(const raw &r, int half, int c, uint32_t &n, uint32_t &m)
    {
        k_integers(r.head, half, c, n, m);
    }
    static __device__ __forceinline__ void numbers(const raw &r, int half, int c, float &n, float &m)
    {
        k_numbers(r.head, half, c, n, m);
        n = c % 2 == 0 ? n : __fmul_rn(n, 0.0625f);
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int c, float &d, float &m)
    {
        numbers(r, half, c, d, m);
        d = __fmul_rn(half_of(r.head.x & 0xffffu), d);
        m = __fmul_rn(half_of(r.head.x >> 16), m);
    }
    static __device__ __forceinline__ void scales(const raw &r, int c, float d[2], float m[2])
    {
        k_scales(r.head, c, __fmul_rn(half_of(r.head.x & 0xffffu), c % 2 == 0 ? 1.0f : 0.0625f), d, m);
    }
    static __device__ __forceinline__ int2 scaled_sums(const raw &r, int c, int i0, int i1, const int s[2])
    {
        return k_scaled_sums(r.head, c, i0, i1 >> 4, s);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return k_factors(r.head);
    }
};

template <> struct group<QUANT_q4_k> : k_group<QUANT_q4_k> {
};
#endif
