/* SPDX-License-Identifier: Apache-2.0 */
/* weights_group128.cuh - rows of weights of a group of 128 elements in shared memory.           room: kernels (base quant ops)
 *
 * What gemm/gemm_r17_a8_mma.cu and gemm/gemm_r64_a8_wgmma.cuh multiply: GROUP_ROWS rows of formats whose sums stay whole numbers (gemm/sums.cuh), as they are
 * stored. group<TYPE>, with `at` where the rows are and c a lane's place among four:
 *   SIZE     bytes; MIN: there are minima; SIGNED: bytes have signs; BOOK: bytes of what lookups need, near
 *   source   what a thread of T copies of each group: find() once for a block of rows, copy() each time
 *   bytes    of units 2 pair and 2 pair + 1 the word 4 half + c
 *   halves   of row h of two all such words: even elements and odd ones, times the unit's scale, times 2^-24
 *   scales   of the four units, a byte each; mins, where there are minima
 *   d, dmin
 * skew: what skew_of() gives of a row's odd() and the group: rows of some formats begin anywhere. */
#ifndef KERNELS_GEMM_WEIGHTS_GROUP128_CUH
#define KERNELS_GEMM_WEIGHTS_GROUP128_CUH
#include "kernels/common/tma.cuh"
#include "kernels/gemm/weights_regs.cuh"

enum { GROUP_ROWS = 128 };

/* Rows of a block; those from the middle on may be another matrix's, the same ones. */
struct block_rows {
    const uint8_t *w[2];
    uint32_t       row_bytes;
    int            last;   /* that exists */
    bool           paired;
    __device__ __forceinline__ const uint8_t *row(int r) const
    {
        const int half = GROUP_ROWS / 2;

        return (paired && r >= half ? w[1] : w[0]) + (uint64_t)row_bytes * (unsigned)min(paired ? r % half : r, last);
    }
};

/* A first operand of wgmma of a group: of each unit and half of it even elements of two rows, then odd ones. */
typedef uint32_t group_halves[4][2][4];

/* n or, for bytes that have their four bits in the upper half, n / 16, n being byte u of v, twice. */
static __device__ __forceinline__ __half2 scale_halves(uint32_t v, int u, bool upper)
{
    const uint32_t n = __byte_perm(v, 0x64646464u, 0x4040u | u * 0x0101u); /* 1,024 + n */

    return __hfma2(*(const __half2 *)&n, __float2half2_rn(upper ? 0.0625f : 1.0f), __float2half2_rn(upper ? -64.0f : -1024.0f));
}

static __device__ __forceinline__ uint32_t times_halves(uint32_t v, __half2 by)
{
    const __half2 r = __hmul2(*(const __half2 *)&v, by);

    return *(const uint32_t *)&r;
}

/* Q4_K and Q5_K: of each row 64 bytes of nibbles, its head and, of five bits, the block's 32 bytes of fifth ones. */
template <int TYPE> struct k_group {
    enum {
        HIGH = TYPE == QUANT_q5_k, BLOCK = frag<TYPE>::BLOCK, NIBBLES = BLOCK - 128, HEAD_AT = GROUP_ROWS * 64,
        HIGH_AT = HEAD_AT + GROUP_ROWS * 16, SIZE = HIGH_AT + HIGH * GROUP_ROWS * 32, MIN = 1, SIGNED = 0, BOOK = 0,
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

    static __device__ __forceinline__ void halves(group_halves &to, int h, const uint8_t *at, int r, uint32_t skew, int group,
                                                  int c, const void *)
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
                    const uint32_t mask = u == 0 ? 0x000f000fu : 0x00f000f0u, fifth = u == 0 ? 0x00100010u : 0x01000100u;
                    const __half2 by = scale_halves(scale, pair * 2 + u, u == 1);
                    const int up = (u == 0 ? 4 : 7) - 2 * pair; /* 2 at least */

                    to[pair * 2 + u][half][h] = times_halves((v & mask) | (HIGH ? f << up & fifth : 0), by);
                    to[pair * 2 + u][half][2 + h] = times_halves((v >> 8 & mask) | (HIGH ? f >> 8 << up & fifth : 0), by);
                }
            }
        }
    }
};
template <int TYPE> struct group;
template <> struct group<QUANT_q4_k> : k_group<QUANT_q4_k> {
};
template <> struct group<QUANT_q5_k> : k_group<QUANT_q5_k> {
};

/* Rows that begin at multiples of 2 are copied in words from multiples of 4: LANES threads have a row's, one each. */
template <int T, int LANES> struct word_source {
    enum { EACH = GROUP_ROWS * LANES / T };
    const uint8_t *w[2];
    uint32_t       row[EACH];
    int            further; /* of the second group */

    __device__ __forceinline__ void find(const block_rows &b, int tid, int first, int more)
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int r = e * (T / LANES) + tid / LANES;

            row[e] = (uint32_t)(b.row(r) - (b.paired && r >= GROUP_ROWS / 2 ? b.w[1] : b.w[0])) + (uint32_t)first;
        }
        w[0] = b.w[0];
        w[1] = b.paired ? b.w[1] : b.w[0];
        further = more;
    }
    static __device__ __forceinline__ const uint8_t *even(const uint8_t *p)
    {
        return (const uint8_t *)((uintptr_t)p & ~(uintptr_t)3);
    }
    template <int BLOCK, int PITCH>
    __device__ __forceinline__ void copy(uint8_t *at, int group, int tid) const
    {
        const int more = group / 2 * BLOCK + group % 2 * further;

        at += tid / LANES * PITCH + tid % LANES * 4;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            copy4(at + e * (T / LANES) * PITCH, even(w[e >= EACH / 2] + row[e] + more));
    }
};

/* Of each row, in words: 9 with the 32 codes, 5 of signs, 2 of ninth bits, one with scales, one with d. Rows begin at
 * multiples of 2, and words are copied from multiples of 4: what is looked for begins at skew, 0 or 2; only d, and the
 * scales of odd groups, at the other. */
template <> struct group<QUANT_iq3_s> {
    enum {
        BLOCK = frag<QUANT_iq3_s>::BLOCK, SIGNS_AT = 36, NINTHS_AT = 56, SCALES_AT = 64, D_AT = 68, PITCH = 72,
        SIZE = GROUP_ROWS * PITCH, MIN = 0, SIGNED = 1, BOOK = sizeof(copied_tables<4>),
    };

    template <int T> struct source {
        word_source<T, 16> words;
        const uint8_t     *own;

        __device__ __forceinline__ void find(const block_rows &b, int tid)
        {
            const int i = tid % 16;

            words.find(b, tid, i < 9 ? 2 + 4 * i : i < 14 ? 74 + 4 * (i - 9) : 66 + 4 * (i - 14), i < 9 ? 32 : i < 14 ? 16 : 4);
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
        int            shift;
        const uint8_t *book;
    };
    static __device__ __forceinline__ place find(const uint8_t *at, int r, uint32_t skew, int c, const void *book)
    {
        const uint8_t *row = at + r * PITCH + skew;

        return { row + c, row + SIGNS_AT + c / 2, row + NINTHS_AT, c % 2 * 4, (const uint8_t *)book + c * 4 };
    }
    static __device__ __forceinline__ uint32_t quad(const place &p, int unit, int half, uint32_t ninths, uint32_t &signs)
    {
        const uint32_t code = p.code[unit * 8 + half * 4] | (ninths >> half * 4 & 0x100u);

        signs = p.sign[unit * 4 + half * 2] >> p.shift;
        return *(const uint32_t *)(p.book + code * 16);
    }
    static __device__ __forceinline__ uint32_t ninths(const place &p, int unit, int c)
    {
        return (uint32_t)p.ninth[unit] << (8 - c);
    }
    static __device__ __forceinline__ void bytes(uint32_t w[2], const uint8_t *at, int r, uint32_t skew, int, int pair, int half,
                                                 int c, const void *book)
    {
        const place p = find(at, r, skew, c, book);

#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t signs, v = quad(p, pair * 2 + u, half, ninths(p, pair * 2 + u, c), signs);

            w[u] = (uint32_t)negate4(v, signs);
        }
    }
    static __device__ __forceinline__ void halves(group_halves &to, int h, const uint8_t *at, int r, uint32_t skew, int group,
                                                  int c, const void *book)
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

/* Of each row, in words: 17 of low four bits, 9 of high two, 3 of scales, one with d. Rows begin at multiples of 2, and
 * all of it at skew, as above. A weight times its scale is no half: it is two, of its upper three bits less 32 and of
 * its lower three; and the operand has room for two units, one of which is used while the other is made. */
template <> struct group<QUANT_q6_k> {
    enum {
        BLOCK = frag<QUANT_q6_k>::BLOCK, HIGH_AT = 68, SCALES_AT = 104, D_AT = 116, PITCH = 120, SIZE = GROUP_ROWS * PITCH,
        MIN = 0, SIGNED = 1, BOOK = 0,
    };

    template <int T> struct source {
        word_source<T, 32> words;

        __device__ __forceinline__ void find(const block_rows &b, int tid)
        {
            const int i = tid % 32;

            words.find(b, tid, i < 17 ? 4 * i : i < 26 ? 128 + 4 * (i - 17) : i < 29 ? 192 + 4 * (i - 26) : 208,
                       i < 17 ? 64 : i < 26 ? 32 : i < 29 ? 8 : 0);
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
    static __device__ __forceinline__ uint32_t unit_bytes(const uint8_t *at, int r, uint32_t skew, int unit, int half, int c)
    {
        return (uint32_t)minus4((low(at, r, skew, unit, half, c) >> unit / 2 * 4 & 0x0f0f0f0fu) |
                                    (high(at, r, skew, half, c) >> unit * 2 & 0x03030303u) << 4,
                                0x20202020u);
    }
    /* Of row h: to[part][half], parts upper and lower; highs: high() of either half. */
    static __device__ __forceinline__ void unit_halves(uint32_t (*to)[2][4], int h, const uint8_t *at, int r, uint32_t skew,
                                                       int unit, int c, const uint32_t highs[2])
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
