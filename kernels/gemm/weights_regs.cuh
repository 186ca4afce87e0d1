/* SPDX-License-Identifier: Apache-2.0 */
/* weights_regs.cuh - rows of weights as a tensor core's first operand, straight from memory.  room: kernels (base quant ops)
 *
 * Lane 4 g + c of a warp has 8 elements of every unit of its row: words 2 c and 2 c + 1, or c and c + 4 where that is
 * how a format is stored (APART). A block is 8 units. frag<TYPE>:
 *   load    what a lane needs of the block at `at`, of which n units exist (8 but for formats of 32); BLOCK bytes;
 *           ANY: wherever it lies, in shared memory too
 *   words   those two words of unit u of the block, TIMES the weights; signed bytes, or not (SIGNED)
 *   scale   of unit 4 half + c: d / TIMES, where there is a minimum also m. Where a unit has two scales (HALVES): of
 *           half c % 2 of unit 2 quarter + c / 2.
 *   scales  (q4_k, q5_k) the same of both halves at once
 *   numbers (is_whole()) as scale, but the whole numbers that d, dmin are multiplied with, over TIMES where units differ
 *   integers  those whole numbers, as integers, whatever TIMES are; bits of signed ones
 *   factors those: d, over TIMES where all are alike, and -dmin
 *   whole   (one sum or two a group) of units 2 c and 2 c + 1: sum of number i, i a unit's sum of TIMES w q, and of min s
 * d times TIMES w is exact wherever d w is: TIMES are powers of two. What `words` looks up it takes from iq3s of
 * struct tables, or of copied_tables in shared memory. */
#ifndef KERNELS_GEMM_WEIGHTS_REGS_CUH
#define KERNELS_GEMM_WEIGHTS_REGS_CUH
#include "kernels/quant/all.cuh"

template <int TYPE> struct frag;

/* TIMES of odd units are those of even ones times 2 to this power. */
static __host__ __device__ constexpr int odd_bits(int type)
{
    return type == QUANT_q4_k ? 4 : 0;
}

/* COPIES of each entry, side by side, each for every COPIES-th lane: fewer lanes meet in a bank. */
template <int COPIES> struct __align__(16) copied_tables {
    uint32_t iq3s[512 * COPIES];
};
typedef copied_tables<1> near_tables;

/* What a format looks up, by all threads of a block. */
template <int TYPE, int COPIES>
static __device__ __forceinline__ void bring_tables(copied_tables<COPIES> &to, const struct tables *from)
{
    if (TYPE == QUANT_iq3_s)
#pragma unroll 2
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            const uint32_t v = from->iq3s[i];

#pragma unroll
            for (int j = 0; j < COPIES; j++)
                to.iq3s[i * COPIES + j] = v;
        }
}

/* Entry `code`. Where it lies in shared memory is one multiply-add: logic and shifts share a pipe that is
 * busier. */
static __device__ __forceinline__ uint32_t look_up(const struct tables *tab, uint32_t code)
{
    return __ldg(tab->iq3s + code);
}

template <int COPIES>
static __device__ __forceinline__ uint32_t look_up(const copied_tables<COPIES> *tab, uint32_t code)
{
    uint32_t at;

    asm("mad.lo.u32 %0, %1, %2, %3;"
        : "=r"(at)
        : "r"(code), "n"(COPIES * 4), "r"((uint32_t)__cvta_generic_to_shared(tab->iq3s + threadIdx.x % COPIES)));
    return *(const uint32_t *)__cvta_shared_to_generic(at);
}

template <bool ANY, class T>
static __device__ __forceinline__ T read_as(const uint8_t *at)
{
    return ANY ? *(const T *)at : __ldg((const T *)at);
}

/* 8 bytes, which begin `shift` bits (0 or 16) after a multiple of 4. */
template <bool ANY>
static __device__ __forceinline__ uint2 read8(const uint8_t *at, unsigned shift)
{
    const uint32_t a0 = read_as<ANY, uint32_t>(at), a1 = read_as<ANY, uint32_t>(at + 4);
    const uint32_t a2 = shift > 0 ? read_as<ANY, uint32_t>(at + 8) : 0u;

    return make_uint2(__funnelshift_r(a0, a1, shift), __funnelshift_r(a1, a2, shift));
}

/* How many bytes after a multiple of 4 a multiple of 2 is. */
static __device__ __forceinline__ unsigned after4(const uint8_t *at)
{
    return (unsigned)(uintptr_t)at & 2u;
}

/* 0 .. 255 as a float, by an addition: conversions are slow. */
static __device__ __forceinline__ float small_float(uint32_t v)
{
    return __fsub_rn(__uint_as_float(v | 0x4b000000u), 8388608.0f);
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
static __device__ __forceinline__ int2 k_whole(const uint4 &head, int c, int i0, int i1, const int s[2])
{
    const uint32_t scale = k_bytes(head.y, head.w, c / 2) >> c % 2 * 16, min = k_bytes(head.z, head.w >> 4, c / 2) >> c % 2 * 16;

    return make_int2(i0 * (int)(scale & 255u) + i1 * (int)(scale >> 8 & 255u),
                     s[0] * (int)(min & 255u) + s[1] * (int)(min >> 8 & 255u));
}

/* d and m of units c and 4 + c of a K-quant, as scale(), d for the first ones' numbers: bits of 2^23 + number, from
 * which the multiplication takes 2^23 d away; it rounds once. Of a d that is infinite it makes NaN, where scale() has
 * infinity. */
static __device__ __forceinline__ void k_scales(const uint4 &head, int c, float d, float to[2], float m[2])
{
    const float dmin = half_of(head.x >> 16);
    const uint32_t p = __byte_perm(head.y, head.z, 0x4040u + c * 0x1111u), t = __byte_perm(head.w, 0, 0x44u + c * 0x1100u);
    const uint32_t n = (p & 0x00003f3fu) | (p >> 2 & 0x30300000u) | (t & 0x000f0000u) | (t >> 4 & 0x0f000000u);

#pragma unroll
    for (int j = 0; j < 2; j++) {
        to[j] = __fmaf_rn(d, __uint_as_float(__byte_perm(n, 0x4b000000u, 0x7440u + 2 * j)), __fmul_rn(d, -8388608.0f));
        m[j] = __fmaf_rn(dmin, __uint_as_float(__byte_perm(n, 0x4b000000u, 0x7441u + 2 * j)), __fmul_rn(dmin, -8388608.0f));
    }
}

template <> struct frag<QUANT_q4_k> {
    enum { BLOCK = 144, HALVES = 0, MIN = 1, SIGNED = 0, APART = 0 };
    struct raw {
        uint4 head;
        uint2 q[4];
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        r.head = read_as<ANY, uint4>(at);
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = read_as<ANY, uint2>(at + 16 + 32 * j + 8 * c);
    }
    /* odd units lie in the upper half of each byte and stay there: times 16 */
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
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
    static __device__ __forceinline__ int2 whole(const raw &r, int c, int i0, int i1, const int s[2])
    {
        return k_whole(r.head, c, i0, i1 >> 4, s);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return k_factors(r.head);
    }
};

template <> struct frag<QUANT_q5_k> {
    enum { BLOCK = 176, HALVES = 0, MIN = 1, SIGNED = 0, APART = 0 };
    struct raw {
        uint4 head;
        uint2 h, q[4];
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
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
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
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
    static __device__ __forceinline__ int2 whole(const raw &r, int c, int i0, int i1, const int s[2])
    {
        return k_whole(r.head, c, i0, i1, s);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return k_factors(r.head);
    }
};

template <> struct frag<QUANT_q6_k> {
    enum { BLOCK = 210, HALVES = 1, MIN = 0, SIGNED = 1, APART = 0 };
    struct raw {
        uint2    lo[4], hi[2];
        uint32_t sc, d; /* sc: a byte for each quarter of the block */
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
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
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
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

template <> struct frag<QUANT_q8_0> {
    enum { BLOCK = 272, HALVES = 0, MIN = 0, SIGNED = 1, APART = 0 };
    struct raw {
        uint2    q[8];
        uint32_t d; /* of units c and 4 + c */
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int n, int c)
    {
        const unsigned more = after4(at);
        const uint8_t *even = at + more + 8 * c, *odd = at - more + 2 + 8 * c; /* one and the other every 34 bytes */

#pragma unroll
        for (int j = 0; j < 8; j++)
            r.q[j] = j >= n ? make_uint2(0, 0) : read8<ANY>((j % 2 == 0 ? even : odd) + 34 * j, j % 2 == 0 ? 16 - 8 * more : 8 * more);
        r.d = (c < n ? u16_at(at + 34 * c) : 0) | (4 + c < n ? u16_at(at + 34 * (4 + c)) : 0) << 16;
    }
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        w[0] = r.q[u].x;
        w[1] = r.q[u].y;
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int, float &d, float &)
    {
        d = half_of(half == 0 ? r.d & 0xffffu : r.d >> 16);
    }
};

template <> struct frag<QUANT_iq3_s> {
    enum { BLOCK = 110, HALVES = 0, MIN = 0, SIGNED = 1, APART = 0 };
    struct raw {
        uint32_t q[4], sign[2]; /* two codes of every unit, a byte of signs */
        uint2    h[2];          /* a byte of every unit: the ninth bit of its first code, of its second */
        uint32_t d, sc;
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
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
    static __device__ __forceinline__ int2 whole(const raw &r, int c, int i0, int i1, const int *)
    {
        return make_int2(i0 * (int)(1u + 2u * (r.sc >> 8 * c & 15u)) + i1 * (int)(1u + 2u * (r.sc >> (8 * c + 4) & 15u)), 0);
    }
    static __device__ __forceinline__ float2 factors(const raw &r)
    {
        return make_float2(half_of(r.d), 0.0f);
    }
};

template <> struct frag<QUANT_iq4_xs> {
    enum { BLOCK = 136, HALVES = 0, MIN = 0, SIGNED = 1, APART = 1 };
    struct raw {
        uint2    head;
        uint32_t q[8];
    };
    template <bool ANY = false>
    static __device__ __forceinline__ void load(raw &r, const uint8_t *at, int, int c)
    {
        r.head = read_as<ANY, uint2>(at);
#pragma unroll
        for (int j = 0; j < 8; j++)
            r.q[j] = read_as<ANY, uint32_t>(at + 8 + 16 * j + 4 * c);
    }
    template <class T>
    static __device__ __forceinline__ void words(const raw &r, int u, int, uint32_t w[2], const T *)
    {
        w[0] = (uint32_t)look16(r.q[u] & 0x0f0f0f0fu, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
        w[1] = (uint32_t)look16(r.q[u] >> 4 & 0x0f0f0f0fu, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
    }
    static __device__ __forceinline__ void scale(const raw &r, int half, int c, float &d, float &)
    {
        int u = 4 * half + c;
        uint32_t s = (r.head.y >> 4 * u & 15u) | (r.head.x >> 16 >> 2 * u & 3u) << 4;

        d = __fmul_rn(half_of(r.head.x & 0xffffu), __fsub_rn(small_float(s), 32.0f));
    }
};

/* frag<TYPE>::scale() of all halves, or quarters. */
template <int TYPE>
static __device__ __forceinline__ void all_scales(const typename frag<TYPE>::raw &r, int c, float *d, float *m)
{
    if constexpr (TYPE == QUANT_q4_k || TYPE == QUANT_q5_k) {
        frag<TYPE>::scales(r, c, d, m);
    } else {
#pragma unroll
        for (int j = 0; j < (frag<TYPE>::HALVES ? 4 : 2); j++)
            frag<TYPE>::scale(r, j, c, d[j], m[j]);
    }
}
#endif
