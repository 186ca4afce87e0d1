/* SPDX-License-Identifier: Apache-2.0 */
/* k.cuh - what q4_k and q5_k share: 6-bit scales and minima in 12 bytes.          room: kernels */
#ifndef KERNELS_QUANT_K_CUH
#define KERNELS_QUANT_K_CUH
#include "kernels/quant/group.cuh"

/* A K-quant's pair: d and m are the units' numbers of 6 bits; behind the minima the block's factors, dmin then d. */
static __device__ __forceinline__ void k_pair(const uint4 &head, int pair, unit u[2])
{
    int g = pair % 4 * 2;
    uint32_t low = g < 4 ? head.y >> 8 * g : (head.w >> 8 * (g - 4) & 0x0f0fu) | (head.y >> 8 * (g - 4) >> 2 & 0x3030u);
    uint32_t min =
        g < 4 ? head.z >> 8 * g : (head.w >> 8 * (g - 4) >> 4 & 0x0f0fu) | (head.z >> 8 * (g - 4) >> 2 & 0x3030u);

    u[0].d[0] = (float)(low & 63u);
    u[1].d[0] = (float)(low >> 8 & 63u);
    u[0].m[0] = (float)(min & 63u);
    u[1].m[0] = (float)(min >> 8 & 63u);
    u[1].m[1] = half_of(head.x & 0xffffu);
    u[0].m[1] = half_of(head.x >> 16);
}

/* Scales and minima of those numbers. */
static __device__ __forceinline__ void k_scaled(unit u[2])
{
    u[0].d[0] *= u[1].m[1];
    u[1].d[0] *= u[1].m[1];
    u[0].m[0] *= u[0].m[1];
    u[1].m[0] *= u[0].m[1];
}

/* Scale and minimum of 6 bits each of unit 4 half + c of a K-quant's 12 bytes: y, z, w are bytes c of its words. */
static __device__ __forceinline__ void k_integers(const uint4 &head, int half, int c, uint32_t &n, uint32_t &m)
{
    uint32_t y = __byte_perm(head.y, 0, 0x4440 | c), z = __byte_perm(head.z, 0, 0x4440 | c);
    uint32_t w = __byte_perm(head.w, 0, 0x4440 | c);

    n = half == 0 ? y & 63u : (w & 15u) | (y >> 2 & 0x30u);
    m = half == 0 ? z & 63u : w >> 4 | (z >> 2 & 0x30u);
}

static __device__ __forceinline__ void k_numbers(const uint4 &head, int half, int c, float &n, float &m)
{
    uint32_t s, o;

    k_integers(head, half, c, s, o);
    n = small_float(s);
    m = small_float(o);
}

/* d and -dmin of a K-quant. */
static __device__ __forceinline__ float2 k_factors(const uint4 &head)
{
    return make_float2(half_of(head.x & 0xffffu), half_of(head.x >> 16 ^ 0x8000u));
}

/* Four of a K-quant's numbers of 6 bits, a byte each, those of units 4 half and on: own has the low bits of the first
 * half, shared those of the second. */
static __device__ __forceinline__ uint32_t k_bytes(uint32_t own, uint32_t shared, int half)
{
    return half == 0 ? own & 0x3f3f3f3fu : (shared & 0x0f0f0f0fu) | (own >> 2 & 0x30303030u);
}

/* Of units 2 c and 2 c + 1 of a K-quant's block: sums of scale i and of min s. */
static __device__ __forceinline__ int2 k_scaled_sums(const uint4 &head, int c, int i0, int i1, const int s[2])
{
    const uint32_t scale = k_bytes(head.y, head.w, c / 2) >> c % 2 * 16,
                   min = k_bytes(head.z, head.w >> 4, c / 2) >> c % 2 * 16;

    return make_int2(i0 * (int)(scale & 255u) + i1 * (int)(scale >> 8 & 255u),
                     s[0] * (int)(min & 255u) + s[1] * (int)(min >> 8 & 255u));
}

/* d and m of units c and 4 + c of a K-quant, as scale(), d for the first ones' numbers: bits of 2^23 + number, from
 * which the multiplication takes 2^23 d away; it rounds once. Of a d that is infinite it makes NaN, where scale() has
 * infinity. */
static __device__ __forceinline__ void k_scales(const uint4 &head, int c, float d, float to[2], float m[2])
{
    const float dmin = half_of(head.x >> 16);
    const uint32_t p = __byte_perm(head.y, head.z, 0x4040u + c * 0x1111u),
                   t = __byte_perm(head.w, 0, 0x44u + c * 0x1100u);
    const uint32_t n = (p & 0x00003f3fu) | (p >> 2 & 0x30300000u) | (t & 0x000f0000u) | (t >> 4 & 0x0f000000u);

#pragma unroll
    for (int j = 0; j < 2; j++) {
        to[j] = __fmaf_rn(d, __uint_as_float(__byte_perm(n, 0x4b000000u, 0x7440u + 2 * j)), __fmul_rn(d, -8388608.0f));
        m[j] = __fmaf_rn(dmin, __uint_as_float(__byte_perm(n, 0x4b000000u, 0x7441u + 2 * j)),
                         __fmul_rn(dmin, -8388608.0f));
    }
}

/* Q4_K and Q5_K: of each row 64 bytes of nibbles, its head and, of five bits, the block's 32 bytes of fifth ones. */
template <int TYPE> struct k_group {
    enum {
        HIGH = TYPE == QUANT_q5_k,
        BLOCK = frag<TYPE>::BLOCK,
        NIBBLES = BLOCK - 128,
        HEAD_AT = GROUP_ROWS * 64,
        HIGH_AT = HEAD_AT + GROUP_ROWS * 16,
        SIZE = HIGH_AT + HIGH * GROUP_ROWS * 32,
        MIN = 1,
        SIGNED = 0,
        BOOK = 0,
    };

    /* Where chunk i of row r lies: 8 rows meet in no bank. */
    static __device__ __forceinline__ int chunk_at(int r, int i)
    {
        return r * 64 + (i ^ (r >> 1 & 3)) * 16;
    }
    static __device__ __forceinline__ int high_at(int r, int i)
    {
        return HIGH_AT + r * 32 + (i ^ (r >> 2 & 1)) * 16;
    }

    template <int T> struct source {
        enum { EACH = GROUP_ROWS * 4 / T, HIGHS = HIGH * GROUP_ROWS * 2 / T };
        const uint8_t *chunk[EACH], *head, *high[HIGHS > 0 ? (int)HIGHS : 1];

        __device__ __forceinline__ void find(const block_rows &b, int tid)
        {
#pragma unroll
            for (int e = 0; e < EACH; e++)
                chunk[e] = b.row(e * (T / 4) + tid / 4) + NIBBLES + tid % 4 * 16;
#pragma unroll
            for (int e = 0; e < HIGHS; e++)
                high[e] = b.row(e * (T / 2) + tid / 2) + 16 + tid % 2 * 16;
            head = b.row(tid % GROUP_ROWS);
        }
        __device__ __forceinline__ void copy(uint8_t *at, int group, int tid) const
        {
            const int block = group / 2 * BLOCK;

#pragma unroll
            for (int e = 0; e < EACH; e++)
                copy16(at + chunk_at(e * (T / 4) + tid / 4, tid % 4), chunk[e] + block + group % 2 * 64);
#pragma unroll
            for (int e = 0; e < HIGHS; e++)
                copy16(at + high_at(e * (T / 2) + tid / 2, tid % 2), high[e] + block);
            if (T == GROUP_ROWS || tid < GROUP_ROWS)
                copy16(at + HEAD_AT + tid * 16, head + block);
        }
    };

    static __device__ __forceinline__ uint32_t odd(const uint8_t *)
    {
        return 0;
    }
    static __device__ __forceinline__ uint32_t skew_of(uint32_t, int)
    {
        return 0;
    }
    static __device__ __forceinline__ uint4 head(const uint8_t *at, int r)
    {
        return *(const uint4 *)(at + HEAD_AT + r * 16);
    }
    static __device__ __forceinline__ uint32_t scales(const uint8_t *at, int r, uint32_t, int group)
    {
        const uint4 h = head(at, r);

        return k_bytes(h.y, h.w, group % 2);
    }
    static __device__ __forceinline__ uint32_t mins(const uint8_t *at, int r, int group)
    {
        const uint4 h = head(at, r);

        return k_bytes(h.z, h.w >> 4, group % 2);
    }
    static __device__ __forceinline__ float d(const uint8_t *at, int r, uint32_t)
    {
        return half_of(*(const uint32_t *)(at + HEAD_AT + r * 16) & 0xffffu);
    }
    static __device__ __forceinline__ float dmin(const uint8_t *at, int r)
    {
        return half_of(*(const uint32_t *)(at + HEAD_AT + r * 16) >> 16);
    }

    /* The nibbles of both units; the fifth bits, the group's lowest first. */
    static __device__ __forceinline__ uint32_t nibbles(const uint8_t *at, int r, int pair, int half, int c)
    {
        return *(const uint32_t *)(at + chunk_at(r, pair * 2 + half) + c * 4);
    }
    static __device__ __forceinline__ uint32_t fifths(const uint8_t *at, int r, int half, int c, int group)
    {
        return HIGH ? *(const uint32_t *)(at + high_at(r, half) + c * 4) >> group % 2 * 4 : 0;
    }
    static __device__ __forceinline__ void bytes(uint32_t w[2], const uint8_t *at, int r, uint32_t, int group, int pair,
                                                 int half, int c, const void *)
    {
        const uint32_t v = nibbles(at, r, pair, half, c), h = fifths(at, r, half, c, group) >> 2 * pair;

        w[0] = (v & 0x0f0f0f0fu) | (HIGH ? h << 4 & 0x10101010u : 0);
        w[1] = (v >> 4 & 0x0f0f0f0fu) | (HIGH ? h << 3 & 0x10101010u : 0);
    }

    static __device__ __forceinline__ void halves(group_halves &to, int h, const uint8_t *at, int r, uint32_t skew,
                                                  int group, int c, const void *)
    {
        const uint32_t scale = scales(at, r, skew, group);

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t f = fifths(at, r, half, c, group);

#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                const uint32_t v = nibbles(at, r, pair, half, c);

#pragma unroll
                for (int u = 0; u < 2; u++) { /* bit 2 pair + u goes to 4, or to 8 */
                    const uint32_t mask = u == 0 ? 0x000f000fu : 0x00f000f0u,
                                   fifth = u == 0 ? 0x00100010u : 0x01000100u;
                    const __half2 by = scale_halves(scale, pair * 2 + u, u == 1);
                    const int up = (u == 0 ? 4 : 7) - 2 * pair; /* 2 at least */

                    to[pair * 2 + u][half][h] = times_halves((v & mask) | (HIGH ? f << up & fifth : 0), by);
                    to[pair * 2 + u][half][2 + h] =
                        times_halves((v >> 8 & mask) | (HIGH ? f >> 8 << up & fifth : 0), by);
                }
            }
        }
    }
};
#endif
