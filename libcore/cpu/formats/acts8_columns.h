/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_columns.h - 16 rows of blocks turned to columns, for tiles of AMX (struct cpu_columns).   room: cpu
 *
 * Each register holds the same 4 bytes of 16 rows, one row per lane. Rows are transposed while still packed, and
 * unpacked after: a byte with bits of several elements is moved once, and a scale is computed for 16 rows at a time.
 */
#ifndef CPU_FORMATS_ACTS8_COLUMNS_H
#define CPU_FORMATS_ACTS8_COLUMNS_H
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"

#if defined(__x86_64__)
/* Dwords 0 to 3 of each quarter of four registers, so that quarter q of v[i] has dword i of quarters q. */
X86_VBMI void columns_turn_4(__m512i v[4])
{
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);

    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

/* 16 rows by pairs: p in the lower half of a register, the other in the upper one, so that columns_turn() leaves all in
 * order. */
static inline int columns_first(int p)
{
    return p < 4 ? p : p + 4;
}
static inline int columns_second(int p)
{
    return columns_first(p) + 4;
}

/* 8 dwords of both rows of each of 8 pairs; what is left are 16 of the same dword. */
X86_VBMI void columns_turn(__m512i v[8])
{
    columns_turn_4(v);
    columns_turn_4(v + 4);
#define LANES_OF(i) \
    { \
        const __m512i w = _mm512_shuffle_i32x4(v[i], v[(i) + 4], 0x88); \
\
        v[(i) + 4] = _mm512_shuffle_i32x4(v[i], v[(i) + 4], 0xdd); \
        v[i] = w; \
    }
    EACH_4(LANES_OF)
#undef LANES_OF
}

/* 32 bytes of each row, `at` bytes from its beginning. */
X86_VBMI void columns_32(__m512i v[8], const char *const row[16], int64_t at)
{
#define LOAD(p) \
    v[p] = _mm512_inserti64x4(_mm512_castsi256_si512(x86_load32(row[columns_first(p)] + at)), \
                              x86_load32(row[columns_second(p)] + at), 1);
    EACH_8(LOAD)
#undef LOAD
    columns_turn(v);
}

/* What comes next (struct cpu_columns), once for each columns_32() of codes. */
X86_VBMI void columns_fetch(struct cpu_columns *to)
{
    for (int i = 0; i < to->lines; i++, to->next += 64)
        _mm_prefetch(to->next, _MM_HINT_T1);
}

/* 16 bytes of each. */
X86_VBMI void columns_16(__m512i v[4], const char *const row[16], int64_t at)
{
#define LOAD(i) \
    v[i] = _mm512_castsi128_si512(x86_load16(row[i] + at)); \
    v[i] = _mm512_inserti32x4(v[i], x86_load16(row[(i) + 4] + at), 1); \
    v[i] = _mm512_inserti32x4(v[i], x86_load16(row[(i) + 8] + at), 2); \
    v[i] = _mm512_inserti32x4(v[i], x86_load16(row[(i) + 12] + at), 3);
    EACH_4(LOAD)
#undef LOAD
    columns_turn_4(v);
}

/* 16 floats from the lower or the upper words of v. */
X86_VBMI __m512 columns_halves(__m512i v, bool upper)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(upper ? _mm512_srli_epi32(v, 16) : v));
}

/* Bits of dwords of v from bit `from` on. */
X86_VBMI __m512i columns_bits(__m512i v, int from, int mask)
{
    return _mm512_and_si512(_mm512_srl_epi32(v, _mm_cvtsi32_si128(from)), _mm512_set1_epi32(mask));
}

/* Where numbers of 256 elements of 16 rows go, of each group of 32 `pitch` further on. */
struct columns_numbers {
    float (*scale)[16];
    float (*min)[2][16], (*sub)[2][16];
    int64_t pitch;
};

/* Dwords of each row from byte `at` on, laid out from `to` on. */
X86_VBMI void columns_lay_8(char *to, const char *const row[16], int64_t at)
{
    __m512i v[8];

    columns_32(v, row, at);
#define GIVE(i) _mm512_storeu_si512(to + 64 * (i), v[i]);
    EACH_8(GIVE)
#undef GIVE
}
X86_VBMI void columns_lay_4(char *to, const char *const row[16], int64_t at)
{
    __m512i v[4];

    columns_16(v, row, at);
#define GIVE(i) _mm512_storeu_si512(to + 64 * (i), v[i]);
    EACH_4(GIVE)
#undef GIVE
}

/* Dword i of a block laid out. */
X86_VBMI __m512i columns_dword(const char *laid, int64_t i)
{
    return x86_load64(laid + 64 * i);
}

/* Bits of bytes: one of FOURS_BITS(). */
X86_VBMI __m512i columns_move(__m512i v, int64_t bits)
{
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(bits), 0);
}

/* Scales and minima of blocks that begin with d, dmin and 12 bytes (quant/k_scales.h). */
X86_VBMI void columns_scales_45(const struct columns_numbers *to, const char *laid)
{
    const __m512i v[4] = { columns_dword(laid, 0), columns_dword(laid, 1), columns_dword(laid, 2),
                           columns_dword(laid, 3) };
    const __m512 d = columns_halves(v[0], false), dmin = columns_halves(v[0], true);

#define GROUP(g) \
    { \
        const int bit = (g) % 4 * 8; \
        const __m512i s = (g) < 4 ? columns_bits(v[1], bit, 63) \
                                  : _mm512_or_si512(columns_bits(v[3], bit, 15), \
                                                    _mm512_slli_epi32(columns_bits(v[1], bit + 6, 3), 4)); \
        const __m512i m = (g) < 4 ? columns_bits(v[2], bit, 63) \
                                  : _mm512_or_si512(columns_bits(v[3], bit + 4, 15), \
                                                    _mm512_slli_epi32(columns_bits(v[2], bit + 6, 3), 4)); \
\
        _mm512_store_ps(to->scale[(g)*to->pitch], _mm512_mul_ps(d, _mm512_cvtepi32_ps(s))); \
        _mm512_store_ps(to->min[(g)*to->pitch][0], _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(m))); \
    }
    EACH_8(GROUP)
#undef GROUP
}
#endif
#endif
