/* SPDX-License-Identifier: Apache-2.0 */
/* unit.cuh - stored weights as whole numbers.   room: kernels
 *
 * 32 consecutive elements of a row are a unit, two units a pair. A format gives a unit as signed bytes, in order, and
 * for each half of 16 a scale and, where it has them, a minimum: element = d * w - m, the value that the decoder of the
 * same name in libcore/quant gives (gemm/sums.cuh: has_a8_sums()). wq<TYPE>::load() fetches what a pair needs, unpack()
 * spreads it: between them other loads may be in flight. Loads may read up to 3 bytes past a row's end.
 *
 * quant/NAME.cuh has all GPU code of a format. The six of GEMM_COMMON are unpacked in two more places: straight
 * to the registers of an mma, four lanes a row (frag<>, regs.cuh), and the four of GEMM_A8 from 128 elements in
 * shared memory (group<>, group.cuh). The weights are the same, but other threads get them: made from units each byte
 * would move once more, and products of a few rows are bound by instructions as it is (bench/gpu.md). */
#ifndef KERNELS_QUANT_UNIT_CUH
#define KERNELS_QUANT_UNIT_CUH
#include <cuda_fp16.h>
#include "kernels/device/cuda.h"

struct unit {
    int w[8];
    float d[2], m[2];
};

template <int TYPE> struct wq;

static __device__ __forceinline__ float half_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half(*(const unsigned short *)p));
}

static __device__ __forceinline__ float half_of(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

static __device__ __forceinline__ uint32_t u16_at(const uint8_t *p)
{
    return *(const uint16_t *)p;
}

/* 4 bytes at an address that is a multiple of 2. */
static __device__ __forceinline__ uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

/* 16 (8) bytes at any address. */
static __device__ __forceinline__ uint4 any16(const uint8_t *p)
{
    const uint32_t *a = (const uint32_t *)((uintptr_t)p & ~(uintptr_t)3);
    unsigned s = ((unsigned)(uintptr_t)p & 3u) * 8u;
    uint32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], a4 = s ? a[4] : 0;

    return make_uint4(__funnelshift_r(a0, a1, s), __funnelshift_r(a1, a2, s), __funnelshift_r(a2, a3, s),
                      __funnelshift_r(a3, a4, s));
}

static __device__ __forceinline__ uint2 any8(const uint8_t *p)
{
    const uint32_t *a = (const uint32_t *)((uintptr_t)p & ~(uintptr_t)3);
    unsigned s = ((unsigned)(uintptr_t)p & 3u) * 8u;
    uint32_t a0 = a[0], a1 = a[1], a2 = s ? a[2] : 0;

    return make_uint2(__funnelshift_r(a0, a1, s), __funnelshift_r(a1, a2, s));
}

static __device__ __forceinline__ int bytes4(int a, int b, int c, int d)
{
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (int)((unsigned)d << 24);
}

/* Each byte minus k, for bytes 0 .. 127 and k up to 128. */
static __device__ __forceinline__ int minus4(uint32_t v, uint32_t k)
{
    return (int)(((v | 0x80808080u) - k) ^ 0x80808080u);
}

/* Bytes of 4 bits: 255 where set. */
static __device__ __forceinline__ uint32_t mask4(uint32_t bits)
{
    uint32_t m;

    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(m) : "r"((bits & 15u) * 0x10204080u)); /* each byte's sign */
    return m;
}

/* Bytes, none zero, negated where a bit is set. */
static __device__ __forceinline__ int negate4(uint32_t v, uint32_t bits)
{
    uint32_t m = mask4(bits);

    return (int)((v ^ m) + (m & 0x01010101u));
}

/* 4 entries of a table of 16 bytes by 4 codes, one a byte. */
static __device__ __forceinline__ int look16(uint32_t code, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3)
{
    uint32_t s = code & 0x07070707u, m = (code >> 3 & 0x01010101u) * 255u;

    s = (s | s >> 4) & 0x00770077u;
    s = (s | s >> 8) & 0x7777u;
    return (int)((__byte_perm(t0, t1, s) & ~m) | (__byte_perm(t2, t3, s) & m));
}

/* The same of iq4_nl's 16 values, which iq4_xs, iq4_k and iq4_ks have, too. */
static __device__ __forceinline__ int iq4_codes(uint32_t code)
{
    return look16(code, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
}

/* 7 bits of signs and the eighth that makes the number of minus signs even. */
static __device__ __forceinline__ uint32_t even_signs(uint32_t code)
{
    return code | (uint32_t)(__popc(code) & 1) << 7;
}

/* For formats that are read where they are needed. */
#define UNIT_BY_UNIT \
    struct raw { \
        const uint8_t *row; \
    }; \
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int) \
    { \
        r.row = row; \
    } \
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int n, const struct tables *tab) \
    { \
        one(r.row, 2 * pair, u[0], tab); \
        if (n > 1) \
            one(r.row, 2 * pair + 1, u[1], tab); \
    }
#endif
