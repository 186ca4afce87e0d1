/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_vbmi.h - products with activations of 8 bits by AVX-512 with VNNI, VBMI and GFNI.
 *                                                                               room: cpu
 * In each 64 bytes of codes and of activations dword j has elements of the 16 from 16 j on: four
 * vpdpbusd give the sums of these 16 without moving anything. The file of a format unpacks its
 * blocks with what is here, to codes that are 128 more where any may be negative;
 * acts8_vbmi_body.h makes of them the products of a row, and for several vectors pairs of rows in steps.
 * Bits of codes move by matrices (GFNI) and as fields of qwords (VBMI), entries of code books are
 * found by permutations of 64 bytes.
 */
#ifndef CPU_FORMATS_ACTS8_VBMI_H
#define CPU_FORMATS_ACTS8_VBMI_H
#include "cpu/format.h"
#include "cpu/formats/x86.h"

#if defined(__x86_64__)
#define X86_VBMI TARGET_VBMI __attribute__((always_inline)) static inline

/* Sums of 16 products each; more: codes are 128 more. */
X86_VBMI __m512i fours_products(const __m512i v[4], const struct cpu_act_block *x, bool more)
{
    __m512i d = more ? _mm512_load_si512(x->less) : _mm512_setzero_si512();

    d = _mm512_dpbusd_epi32(d, v[0], _mm512_load_si512(x->fours));
    d = _mm512_dpbusd_epi32(d, v[1], _mm512_load_si512(x->fours + 64));
    d = _mm512_dpbusd_epi32(d, v[2], _mm512_load_si512(x->fours + 128));
    return _mm512_dpbusd_epi32(d, v[3], _mm512_load_si512(x->fours + 192));
}

/* Of two registers. */
#define FOURS_EVEN _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define FOURS_ODD  _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

/* From two sums the lanes of both: whole numbers that floats hold. */
X86_VBMI __m512 fours_lanes(__m512i d0, __m512i d1)
{
    return _mm512_cvtepi32_ps(
        _mm512_add_epi32(_mm512_permutex2var_epi32(d0, FOURS_EVEN, d1), _mm512_permutex2var_epi32(d0, FOURS_ODD, d1)));
}

/* The same with sub-scales. */
X86_VBMI __m512 fours_lanes_16(__m512i d0, __m512i d1, __m512 sub0, __m512 sub1)
{
    __m512 f0 = _mm512_mul_ps(_mm512_cvtepi32_ps(d0), sub0), f1 = _mm512_mul_ps(_mm512_cvtepi32_ps(d1), sub1);

    return _mm512_add_ps(_mm512_permutex2var_ps(f0, FOURS_EVEN, f1), _mm512_permutex2var_ps(f0, FOURS_ODD, f1));
}

/* n bits of each byte from bit `from` on moved to bit `to`, others being 0: as a matrix of bits,
 * whose byte 7 - i says what bit i is the sum of. */
#define FOURS_BIT(from, n, to, i) ((i) < (n) ? (int64_t)((uint64_t)1 << ((from) + (i)) << 8 * (7 - (to) - (i))) : 0)
#define FOURS_BITS(from, n, to) \
    (FOURS_BIT(from, n, to, 0) | FOURS_BIT(from, n, to, 1) | FOURS_BIT(from, n, to, 2) | FOURS_BIT(from, n, to, 3))
/* Fields of 8 bits of a qword from these bits on. */
#define FOURS_FIELD(at, i) ((int64_t)((uint64_t)((at)&63) << 8 * (i)))
#define FOURS_BYTES(a, b, c, d, i) \
    (FOURS_FIELD(a, i) | FOURS_FIELD(b, (i) + 1) | FOURS_FIELD(c, (i) + 2) | FOURS_FIELD(d, (i) + 3))
/* Those of the first four bytes are `step` bits apart from bit `first` on, of the others from
 * `second` on. */
#define FOURS_FIELDS(first, second, step) \
    _mm512_set1_epi64(FOURS_BYTES(first, (first) + (step), (first) + 2 * (step), (first) + 3 * (step), 0) | \
                      FOURS_BYTES(second, (second) + (step), (second) + 2 * (step), (second) + 3 * (step), 4))
/* 8 bytes in a row. */
#define FOURS_NEXT(at) \
    (FOURS_BYTES(at, (at) + 1, (at) + 2, (at) + 3, 0) | FOURS_BYTES((at) + 4, (at) + 5, (at) + 6, (at) + 7, 4))
/* Qwords in turn. */
#define FOURS_TURNS(a, b)   _mm512_setr_epi64(a, b, a, b, a, b, a, b)
#define FOURS_TURNS_2(a, b) _mm512_setr_epi64(a, a, b, b, a, a, b, b)
#define FOURS_NIBBLES       FOURS_TURNS(FOURS_BITS(0, 4, 0), FOURS_BITS(4, 4, 0))
/* For groups of 32, each a qword of a register: dwords of a source, the second four dwords further
 * on. */
#define FOURS_DWORDS(a, b, c, d, e, f, g, h) \
    _mm512_setr_epi32(a, (a) + 4, b, (b) + 4, c, (c) + 4, d, (d) + 4, e, (e) + 4, f, (f) + 4, g, (g) + 4, h, (h) + 4)
/* 8 times a, then b. */
#define FOURS_HALVES(a, b)    _mm512_setr_epi32(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b)
#define FOURS_PLUS(dwords, k) _mm512_add_epi32(dwords, _mm512_set1_epi32(k))

/* Bits of b where mask is set, else of a. */
X86_VBMI __m512i fours_blend(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi64(a, b, mask, 0xd8);
}

/* All scales d, and the sub-scales. */
X86_VBMI void fours_subs(struct cpu_code_block *u, float d, __m128i sub)
{
    _mm256_store_ps(u->scale, _mm256_set1_ps(d));
    _mm512_store_ps(u->sub_f, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sub)));
}

/* Scales d times s, 8 numbers. */
X86_VBMI void fours_scales(struct cpu_code_block *u, float d, __m256i s)
{
    _mm256_store_ps(u->scale, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(s)));
}

/* Scales and minima of up to four blocks that begin as those of x86_take_45(). */
X86_VBMI void fours_scales_45(struct cpu_code_block *u, const void *row, int64_t bytes, int n)
{
    const __m512i at = _mm512_set4_epi32(0x0f0e0d0c, 0x0b0a0908, 0x0f0e0d0c, 0x07060504);
    const __m512i up = _mm512_set4_epi32(0x0b0a0908, -1, 0x07060504, -1);
    const __m512i keep = _mm512_set4_epi32(0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f);
    const char *b = row;
    __m512i v = _mm512_inserti32x4(_mm512_castsi128_si512(x86_load16(b)), x86_load16(b + (n > 1 ? bytes : 0)), 1);

    v = _mm512_inserti32x4(v, x86_load16(b + (n > 2 ? 2 * bytes : 0)), 2);
    v = _mm512_inserti32x4(v, x86_load16(b + (n > 3 ? 3 * bytes : 0)), 3);
    __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi8(v, at), _mm512_set4_epi32(4, 0, 0, 0));
    __m512i high = _mm512_srli_epi16(_mm512_shuffle_epi8(v, up), 2);
    __m512i sm = x86_merge(_mm512_and_si512(low, keep), high, _mm512_set1_epi8(0x30));
    __m128i d = _mm512_castsi512_si128(_mm512_permutexvar_epi32(_mm512_set4_epi32(12, 8, 4, 0), v));
    __m512 scale = _mm512_castps256_ps512(_mm256_cvtph_ps(d));

    /* a block's 8 scales and 8 minima lie side by side */
#define BLOCK_45(j) \
    if (j < n) \
        _mm512_store_ps(u[j].scale, \
                        _mm512_mul_ps(_mm512_permutexvar_ps(FOURS_HALVES(2 * (j), 2 * (j) + 1), scale), \
                                      _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(sm, j)))));
    EACH_4(BLOCK_45)
#undef BLOCK_45
}

/* One of 16 values for each 4 bits, of which the first 8 bytes of each group's 16 are in `first`:
 * their low nibbles are the first 16 elements. */
X86_VBMI void fours_values(__m512i v[4], __m512i first, __m512i second, const int8_t *values)
{
    const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(x86_load16(values), _mm_set1_epi8(-128)));
    const __m512i low = FOURS_FIELDS(0, 4, 8), high = FOURS_FIELDS(32, 36, 8);

    /* the table four times: bits 4 and 5 are the next nibble's */
    v[0] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(low, first), table);
    v[1] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(high, first), table);
    v[2] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(low, second), table);
    v[3] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(high, second), table);
}

/* Bytes of the 64 from p on, and where mask is set of those from `second` bytes further on. */
X86_VBMI __m512i fours_fetch(const char *p, int64_t second, __m512i at, __mmask64 mask)
{
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(at, _mm512_loadu_si512(p)), mask, at,
                                        _mm512_loadu_si512(p + second));
}

/* A block from 8 of `size` bytes, whose last 16 are as in fours_values(): the first half of each,
 * then the second. */
X86_VBMI void fours_nibbles(__m512i v[4], const char *b, int size, const int8_t *values)
{
    const __m512i at = _mm512_setr_epi64(FOURS_NEXT(0), FOURS_NEXT(size), FOURS_NEXT(2 * size), FOURS_NEXT(3 * size),
                                         FOURS_NEXT(0), FOURS_NEXT(size), FOURS_NEXT(2 * size), FOURS_NEXT(3 * size));
    const __mmask64 upper = 0xffffffff00000000;

    /* the last end with the blocks */
    fours_values(
        v, fours_fetch(b + size - 16, 4 * size, at, upper),
        fours_fetch(b + 4 * size - 64, 4 * size, _mm512_add_epi8(at, _mm512_set1_epi8((char)(56 - 3 * size))), upper),
        values);
}

/* The scales that 8 blocks begin with. */
X86_VBMI __m256 fours_halves(const char *b, int size)
{
    const int64_t at =
        FOURS_BYTES(0, 1, size, size + 1, 0) | FOURS_BYTES(2 * size, 2 * size + 1, 3 * size, 3 * size + 1, 4);

    return _mm256_cvtph_ps(_mm512_castsi512_si128(fours_fetch(b, 4 * size, _mm512_set1_epi64(at), 0xff00)));
}

/* Bytes of a table of 128 by 64 codes, whose bit 7 may be any. */
X86_VBMI __m512i fours_look_128(const uint8_t table[128], __m512i code)
{
    const __m512i *t = (const void *)table;

    return _mm512_permutex2var_epi8(t[0], code, t[1]);
}

/* The same of 256; bit7: of the codes. */
X86_VBMI __m512i fours_look_256(const uint8_t table[256], __m512i code, __mmask64 bit7)
{
    return _mm512_mask_blend_epi8(bit7, fours_look_128(table, code), fours_look_128(table + 128, code));
}

/* Low nibbles of bytes, or where mask is set the high ones; bits above these are any. */
X86_VBMI __m512i fours_upper(__m512i v, __mmask64 mask)
{
    const __m512i high = _mm512_set1_epi64(FOURS_BITS(4, 4, 0));

    return _mm512_mask_gf2p8affine_epi64_epi8(v, mask, v, high, 0);
}

/* Signs as codes of 7 bits, the low bits of each byte, completed (iq_signs()). */
X86_VBMI __m512i fours_signs(__m512i v)
{
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(FOURS_BITS(0, 4, 0) | FOURS_BITS(4, 3, 4) | 0x7f), 0);
}

/* 8 dwords, each the low half of a qword. */
X86_VBMI __m512i fours_wide(const void *p)
{
    return _mm512_cvtepu32_epi64(x86_load32(p));
}

/* Dwords k and k + 4 of 32 bytes, k < 4, in all qwords of a register: by loads, for permutations
 * are what takes time. */
X86_VBMI void fours_masks(__m512i v[4], const void *p)
{
    _Alignas(32) int64_t q[4];

    _mm256_store_si256((void *)q,
                       _mm256_permutevar8x32_epi32(x86_load32(p), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    __asm__("" : "+m"(q));
    v[0] = _mm512_set1_epi64(q[0]);
    v[1] = _mm512_set1_epi64(q[1]);
    v[2] = _mm512_set1_epi64(q[2]);
    v[3] = _mm512_set1_epi64(q[3]);
}

/* Of the 32 signs of each group, in a qword, those of the elements of register k as bit `at`. */
#define FOURS_SIGNS(k, at, signs) \
    _mm512_multishift_epi64_epi8(FOURS_FIELDS(4 * (k) - (at), 16 + 4 * (k) - (at), 1), signs)

/* Entries of an iq3 code book (iq_grids.h, `packed`) in words: of each 16 the entries 0 4 1 5 and 8
 * 12 9 13, then 2 6 3 7 and 10 14 11 15, which is the order of elements of registers 0 and 1, 2 and
 * 3. */
X86_VBMI void fours_quads(__m512i words[2], __m512i low, __m512i high)
{
    const __m512i order = _mm512_set4_epi32(0x0f0b0e0a, 0x07030602, 0x0d090c08, 0x05010400);

    low = _mm512_shuffle_epi8(low, order);
    high = _mm512_shuffle_epi8(high, order);
    words[0] = _mm512_unpacklo_epi8(low, high);
    words[1] = _mm512_unpackhi_epi8(low, high);
}
/* Their digits, from bit `at` of bytes on. */
#define FOURS_DIGITS(k, at, words) \
    _mm512_multishift_epi64_epi8(FOURS_FIELDS((k) % 2 * 32 - (at), (k) % 2 * 32 + 16 - (at), 3), (words)[(k) / 2])

/* A block of an iq2 format: its 32 entries in order, each a word of 8 digits, and its signs. */
X86_VBMI void fours_octets(__m512i v[4], __m512i entries, __m512i signs)
{
    /* 128 and a digit's 8, 25 or 43; 128 less these: bits above the sign's are any */
    const __m512i table = _mm512_set1_epi64(0x0055677800ab9988);

#define OCTETS(k) \
    v[k] = fours_blend(_mm512_multishift_epi64_epi8(FOURS_FIELDS(8 * (k), 32 + 8 * (k), 2), entries), \
                       FOURS_SIGNS(k, 2, signs), _mm512_set1_epi8(4)); \
    v[k] = _mm512_permutexvar_epi8(v[k], table);
    EACH_4(OCTETS)
#undef OCTETS
}
#endif
#endif
