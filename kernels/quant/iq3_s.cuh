/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.cuh - code book of quads, plain signs, scale for each 32 */
#ifndef KERNELS_QUANT_IQ3_S_CUH
#define KERNELS_QUANT_IQ3_S_CUH
#include "kernels/quant/group.cuh"
extern "C" {
#include "quant/iq3_s.h"
}

template <> struct wq<QUANT_iq3_s> {
    typedef quant_iq3_s block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint4 q;
        uint2 sign;
        uint32_t d, qh, sc;
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint8_t *b = row + (int64_t)(pair / 4) * 110;
        int j = pair % 4;

        r.q = any16(b + 2 + 16 * j);
        r.sign = any8(b + 74 + 8 * j);
        r.d = u16_at(b);
        r.qh = u16_at(b + 66 + 2 * j);
        r.sc = b[106 + j];
    }
    /* whole numbers and the block's factor */
    static __device__ __forceinline__ void unpack_a8(const raw &r, int, unit u[2], const struct tables *tab)
    {
        uint32_t q[4] = { r.q.x, r.q.y, r.q.z, r.q.w };

        u[1].m[1] = half_of(r.d);

#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t sign = i == 0 ? r.sign.x : r.sign.y, h = r.qh >> 8 * i;

            u[i].d[0] = (float)(1 + 2 * (r.sc >> 4 * i & 15u));
#pragma unroll
            for (int l = 0; l < 8; l++)
                u[i].w[l] =
                    negate4(tab->iq3s[(q[2 * i + l / 4] >> l % 4 * 8 & 255u) | (h >> l & 1u) << 8], sign >> 4 * l);
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_a8(r, pair, u, tab);
        u[0].d[0] *= u[1].m[1];
        u[1].d[0] *= u[1].m[1];
    }
};

template <> struct frag<QUANT_iq3_s> {
    enum { BLOCK = 110, HALVES = 0, MIN = 0, SIGNED = 1, APART = 0, ODD = 0, SCALES = 0 };
    struct raw {
        uint32_t q[4], sign[2]; /* two codes of every unit, a byte of signs */
        uint2 h[2];             /* a byte of every unit: the ninth bit of its first code, of its second */
        uint32_t d, sc;
    };
    template <bool ANY = false> static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        const uint8_t *s = at + 74 + c;
        const unsigned more = after4(at + 66);
        const uint2 h = read8<ANY>(at + 66 - more, 8 * more);

#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = u16_at(at + 2 + 16 * j + 2 * c) | u16_at(at + 10 + 16 * j + 2 * c) << 16;
#pragma unroll
        for (int j = 0; j < 2; j++)
            r.sign[j] = (uint32_t)s[16 * j] | (uint32_t)s[16 * j + 4] << 8 | (uint32_t)s[16 * j + 8] << 16 |
                        (uint32_t)s[16 * j + 12] << 24;
#pragma unroll
        for (int j = 0; j < 2; j++)
            r.h[j] = make_uint2(h.x >> (2 * c + j) & 0x01010101u, h.y >> (2 * c + j) & 0x01010101u);
        r.d = u16_at(at);
        r.sc = u32_at(at + 106);
    }
    /* Code i of a unit: a byte of q, one of h, and that one's uppermost bit, which is zero, twice. */
    static __device__ __forceinline__ uint32_t code(const raw &r, int u, int i)
    {
        uint32_t v;

        asm("prmt.b32 %0, %1, %2, %3;"
            : "=r"(v)
            : "r"(r.q[u / 2]), "r"(u < 4 ? r.h[i].x : r.h[i].y), "r"(0xcc40 + 0x1110 * (u % 4) + u % 2 * 2 + i));
        return v;
    }
    /* Odd bytes, negated where a bit is set: all but the lowest bit turned over. Of `spread` the bits are the uppermost
     * ones of bytes, the first one's that of the last byte. */
    static __device__ __forceinline__ uint32_t odd4(uint32_t v, uint32_t spread)
    {
        uint32_t m;

        asm("prmt.b32 %0, %1, %1, 0x89ab;" : "=r"(m) : "r"(spread));
        return (v ^ m) | 0x01010101u;
    }
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *tab)
    {
        const uint32_t sign = __byte_perm(r.sign[u / 4], 0, 0x4440 + u % 4);

        w[0] = odd4(look_up(tab, code(r, u, 0)), sign * 0x80402010u); /* 8 bits, 9 apart, do not meet */
        w[1] = odd4(look_up(tab, code(r, u, 1)), sign * 0x08040201u);
    }
    static __device__ __forceinline__ void integers(const raw &r, int half, int c, uint32_t &n, uint32_t &)
    {
        n = 1u + 2u * (r.sc >> (16 * half + 4 * c) & 15u);
    }
    static __device__ __forceinline__ void numbers(const raw &r, int half, int c, float &n, float &)
    {
        uint32_t s, none;

        integers(r, half, c, s, none);
        n = small_float(s);
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int c, float &d, float &m)
    {
        numbers(r, half, c, d, m);
        d = __fmul_rn(half_of(r.d), d);
    }
    static __device__ __forceinline__ int2 scaled_sums(const raw &r, int c, int i0, int i1, const int *)
    {
        return make_int2(
            i0 * (int)(1u + 2u * (r.sc >> 8 * c & 15u)) + i1 * (int)(1u + 2u * (r.sc >> (8 * c + 4) & 15u)), 0);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return make_float2(half_of(r.d), 0.0f);
    }
};

/* Of each row, in words: 9 with the 32 codes, 5 of signs, 2 of ninth bits, one with scales, one with d. Rows begin at
 * multiples of 2, and words are copied from multiples of 4: what is looked for begins at skew, 0 or 2; only d, and the
 * scales of odd groups, at the other. */
template <> struct group<QUANT_iq3_s> {
    enum {
        BLOCK = frag<QUANT_iq3_s>::BLOCK,
        SIGNS_AT = 36,
        NINTHS_AT = 56,
        SCALES_AT = 64,
        D_AT = 68,
        PITCH = 72,
        SIZE = GROUP_ROWS * PITCH,
        MIN = 0,
        SIGNED = 1,
        BOOK = sizeof(copied_tables<4>),
    };

    template <int T> struct source {
        word_source<T, 16> words;
        const uint8_t *own;

        __device__ __forceinline__ void find(const block_rows &b, int tid)
        {
            const int i = tid % 16;

            words.find(b, tid,
                       i < 9    ? 2 + 4 * i
                       : i < 14 ? 74 + 4 * (i - 9)
                                : 66 + 4 * (i - 14),
                       i < 9    ? 32
                       : i < 14 ? 16
                                : 4);
            own = b.row(tid % GROUP_ROWS);
        }
        __device__ __forceinline__ void copy(uint8_t *at, int group, int tid) const
        {
            const uint8_t *from = own + group / 2 * BLOCK;

            words.template copy<BLOCK, PITCH>(at, group, tid);
            if (T == GROUP_ROWS || tid < GROUP_ROWS) {
                copy4(at + tid * PITCH + SCALES_AT, words.even(from + 106 + group % 2 * 2));
                copy4(at + tid * PITCH + D_AT, words.even(from));
            }
        }
    };

    static __device__ __forceinline__ uint32_t odd(const uint8_t *row)
    {
        return (uint32_t)(uintptr_t)row & 2u;
    }
    static __device__ __forceinline__ uint32_t skew_of(uint32_t odd, int group)
    {
        return (odd + (uint32_t)(group / 2 * BLOCK) + 2u) & 2u;
    }
    /* 1 + 2 n */
    static __device__ __forceinline__ uint32_t scales(const uint8_t *at, int r, uint32_t skew, int group)
    {
        uint32_t n = *(const uint16_t *)(at + r * PITCH + SCALES_AT + (skew + group % 2 * 2) % 4);

        n = (n | n << 8) & 0x00ff00ffu;
        return (n << 1 & 0x001e001eu) + (n << 5 & 0x1e001e00u) + 0x01010101u;
    }
    static __device__ __forceinline__ float d(const uint8_t *at, int r, uint32_t skew)
    {
        return half_of(*(const uint16_t *)(at + r * PITCH + D_AT + (skew ^ 2u)));
    }

    /* Where a lane begins in a row: codes, signs, ninth bits. Code 4 half + c of a unit, its signs in the low four
     * bits. */
    struct place {
        const uint8_t *code, *sign, *ninth;
        int shift;
        const uint8_t *book;
    };
    static __device__ __forceinline__ place find(const uint8_t *at, int r, uint32_t skew, int c, const void *book)
    {
        const uint8_t *row = at + r * PITCH + skew;

        return { row + c, row + SIGNS_AT + c / 2, row + NINTHS_AT, c % 2 * 4, (const uint8_t *)book + c * 4 };
    }
    static __device__ __forceinline__ uint32_t quad(const place &p, int unit, int half, uint32_t ninths,
                                                    uint32_t &signs)
    {
        const uint32_t code = p.code[unit * 8 + half * 4] | (ninths >> half * 4 & 0x100u);

        signs = p.sign[unit * 4 + half * 2] >> p.shift;
        return *(const uint32_t *)(p.book + code * 16);
    }
    static __device__ __forceinline__ uint32_t ninths(const place &p, int unit, int c)
    {
        return (uint32_t)p.ninth[unit] << (8 - c);
    }
    static __device__ __forceinline__ void bytes(uint32_t w[2], const uint8_t *at, int r, uint32_t skew, int, int pair,
                                                 int half, int c, const void *book)
    {
        const place p = find(at, r, skew, c, book);

#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t signs, v = quad(p, pair * 2 + u, half, ninths(p, pair * 2 + u, c), signs);

            w[u] = (uint32_t)negate4(v, signs);
        }
    }
    static __device__ __forceinline__ void halves(group_halves &to, int h, const uint8_t *at, int r, uint32_t skew,
                                                  int group, int c, const void *book)
    {
        const uint32_t scale = scales(at, r, skew, group);
        const place p = find(at, r, skew, c, book);

#pragma unroll
        for (int u = 0; u < 4; u++) {
            const uint32_t ninth = ninths(p, u, c);
            const __half2 by = scale_halves(scale, u, false);

#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t signs, v = quad(p, u, half, ninth, signs);

                signs &= 15u; /* bits 0 and 2 go to 15 and 31, so do 1 and 3 */
                to[u][half][h] = times_halves(v & 0x00ff00ffu, by) ^ (signs * 0x20008000u & 0x80008000u);
                to[u][half][2 + h] = times_halves(v >> 8 & 0x00ff00ffu, by) ^ (signs * 0x10004000u & 0x80008000u);
            }
        }
    }
};
#endif
