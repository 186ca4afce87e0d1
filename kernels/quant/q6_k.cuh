/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.cuh - 6 bits, 8-bit scales for each 16 */
#ifndef KERNELS_QUANT_Q6_K_CUH
#define KERNELS_QUANT_Q6_K_CUH
#include "kernels/quant/group.cuh"
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
    /* whole numbers and the block's factor */
    static __device__ __forceinline__ void unpack_a8(const raw &r, int pair, unit u[2], const struct tables *)
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

                u[i].w[j] =
                    minus4((q >> nibble & 0x0f0f0f0fu) | (hi[j] >> (two + 2 * i) & 0x03030303u) << 4, 0x20202020u);
            }
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_a8(r, pair, u, tab);
#pragma unroll
        for (int i = 0; i < 4; i++)
            u[i / 2].d[i % 2] *= u[1].m[1];
    }
};

template <> struct frag<QUANT_q6_k> {
    enum { BLOCK = 210, HALVES = 1, MIN = 0, SIGNED = 1, APART = 0, ODD = 0, SCALES = 0 };
    struct raw {
        uint2 lo[4], hi[2];
        uint32_t sc, d; /* sc: a byte for each quarter of the block */
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        const unsigned more = after4(at);
        const uint8_t *from = at - more + 8 * c;

#pragma unroll
        for (int j = 0; j < 4; j++)
            r.lo[j] = read8<ANY>(from + 32 * j, 8 * more);
#pragma unroll
        for (int j = 0; j < 2; j++)
            r.hi[j] = read8<ANY>(from + 128 + 32 * j, 8 * more);
        r.sc = (uint32_t)at[192 + c] | (uint32_t)at[196 + c] << 8 | (uint32_t)at[200 + c] << 16 |
               (uint32_t)at[204 + c] << 24;
        r.d = u16_at(at + 208);
    }
    /* Six bits at the upper end of a byte: times 4. Top bits turned over take 32 away; that is done for all of hi at
     * once. */
    static __device__ __forceinline__ uint32_t word(uint32_t lo, uint32_t hi, int u)
    {
        const int two = u % 4 * 2;
        const uint32_t q = u % 4 < 2 ? lo << 2 : lo >> 2, h = hi ^ 0xaaaaaaaau;

        return (q & 0x3c3c3c3cu) | ((two < 6 ? h << (6 - two) : h) & 0xc0c0c0c0u);
    }
    template <class T> static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        const uint2 &lo = r.lo[u / 4 * 2 + u % 2], &hi = r.hi[u / 4];

        w[0] = word(lo.x, hi.x, u);
        w[1] = word(lo.y, hi.y, u);
    }
    static __device__ __forceinline__ void integers(const raw &r, int quarter, int, uint32_t &n, uint32_t &)
    {
        n = (uint32_t)(int8_t)(r.sc >> 8 * quarter);
    }
    static __device__ __forceinline__ void numbers(const raw &r, int quarter, int, float &n, float &)
    {
        n = (float)(int8_t)(r.sc >> 8 * quarter);
    }
    static __device__ __forceinline__ void scale(const raw &r, int quarter, int, float &d, float &)
    {
        d = __fmul_rn(__fmul_rn(half_of(r.d), (float)(int8_t)(r.sc >> 8 * quarter)), 0.25f);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return make_float2(__fmul_rn(half_of(r.d), 0.25f), 0.0f);
    }
};

/* Of each row, in words: 17 of low four bits, 9 of high two, 3 of scales, one with d. Rows begin at multiples of 2, and
 * all of it at skew, as above. A weight times its scale is no half: it is two, of its upper three bits less 32 and of
 * its lower three; and the operand has room for two units, one of which is used while the other is made. */
template <> struct group<QUANT_q6_k> {
    enum {
        BLOCK = frag<QUANT_q6_k>::BLOCK,
        HIGH_AT = 68,
        SCALES_AT = 104,
        D_AT = 116,
        PITCH = 120,
        SIZE = GROUP_ROWS * PITCH,
        MIN = 0,
        SIGNED = 1,
        BOOK = 0,
    };

    template <int T> struct source {
        word_source<T, 32> words;

        __device__ __forceinline__ void find(const block_rows &b, int tid)
        {
            const int i = tid % 32;

            words.find(b, tid,
                       i < 17   ? 4 * i
                       : i < 26 ? 128 + 4 * (i - 17)
                       : i < 29 ? 192 + 4 * (i - 26)
                                : 208,
                       i < 17   ? 64
                       : i < 26 ? 32
                       : i < 29 ? 8
                                : 0);
        }
        __device__ __forceinline__ void copy(uint8_t *at, int group, int tid) const
        {
            if (tid % 32 < PITCH / 4)
                words.template copy<BLOCK, PITCH>(at, group, tid);
        }
    };

    static __device__ __forceinline__ uint32_t odd(const uint8_t *row)
    {
        return (uint32_t)(uintptr_t)row & 2u;
    }
    static __device__ __forceinline__ uint32_t skew_of(uint32_t odd, int group)
    {
        return (odd + (uint32_t)(group / 2 * BLOCK)) & 2u;
    }
    static __device__ __forceinline__ float d(const uint8_t *at, int r, uint32_t skew)
    {
        return half_of(*(const uint16_t *)(at + r * PITCH + D_AT + skew));
    }
    static __device__ __forceinline__ uint32_t low(const uint8_t *at, int r, uint32_t skew, int unit, int half, int c)
    {
        return u32_at(at + r * PITCH + skew + unit % 2 * 32 + half * 16 + c * 4);
    }
    static __device__ __forceinline__ uint32_t high(const uint8_t *at, int r, uint32_t skew, int half, int c)
    {
        return u32_at(at + r * PITCH + HIGH_AT + skew + half * 16 + c * 4);
    }
    /* Of a unit: two bytes. */
    static __device__ __forceinline__ uint32_t unit_scales(const uint8_t *at, int r, uint32_t skew, int unit)
    {
        return *(const uint16_t *)(at + r * PITCH + SCALES_AT + skew + unit * 2);
    }
    static __device__ __forceinline__ uint32_t unit_bytes(const uint8_t *at, int r, uint32_t skew, int unit, int half,
                                                          int c)
    {
        return (uint32_t)minus4((low(at, r, skew, unit, half, c) >> unit / 2 * 4 & 0x0f0f0f0fu) |
                                    (high(at, r, skew, half, c) >> unit * 2 & 0x03030303u) << 4,
                                0x20202020u);
    }
    /* Of row h: to[part][half], parts upper and lower; highs: high() of either half. */
    static __device__ __forceinline__ void unit_halves(uint32_t (*to)[2][4], int h, const uint8_t *at, int r,
                                                       uint32_t skew, int unit, int c, const uint32_t highs[2])
    {
        const bool up = unit >= 2; /* in the upper half of a byte: times 16 */
        const uint32_t both = unit_scales(at, r, skew, unit) ^ 0x8080u, lowest = up ? 0x00700070u : 0x00070007u;
        const uint32_t third = up ? 0x00800080u : 0x00080008u, high = up ? 0x03000300u : 0x00300030u;

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t n = __byte_perm(both, 0x64646464u, 0x4040u | half * 0x0101u); /* 1,152 + s */
            const __half2 by = __hfma2(*(const __half2 *)&n, __float2half2_rn(up ? 0.0625f : 1.0f),
                                       __float2half2_rn(up ? -72.0f : -1152.0f));
            const __half2 less = __hmul2(by, __float2half2_rn(up ? -0x1p-15f : -0x1p-19f)); /* 32 */
            const uint32_t v = low(at, r, skew, unit, half, c), two = highs[half] << (unit % 2 == 0 ? 4 : 2);
            const uint32_t two8 = highs[half] >> 8 << (unit % 2 == 0 ? 4 : 2);
            const uint32_t even = (v & third) | (two & high), odd = (v >> 8 & third) | (two8 & high);
            const __half2 e = __hfma2(*(const __half2 *)&even, by, less), o = __hfma2(*(const __half2 *)&odd, by, less);

            to[0][half][h] = *(const uint32_t *)&e;
            to[0][half][2 + h] = *(const uint32_t *)&o;
            to[1][half][h] = times_halves(v & lowest, by);
            to[1][half][2 + h] = times_halves(v >> 8 & lowest, by);
        }
    }
};
#endif
