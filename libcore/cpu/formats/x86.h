/* SPDX-License-Identifier: Apache-2.0 */
/* x86.h - what the AVX2 and AVX-512 decoders share.                             room: cpu
 *
 * TARGET_AVX2 and TARGET_AVX512 (base/simd.h) leave out FMA and the code is built without contraction, so a product and
 * a difference stay two roundings, as in the scalar code.
 */
#ifndef CPU_FORMATS_X86_H
#define CPU_FORMATS_X86_H

#include "base/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define X86_DECODER   .decode_avx2 = decode_avx2,
#define X86_DECODERS  X86_DECODER.decode_avx512 = decode_avx512,
#define X86_INTS_AVX2 .ints_avx2 = ints_avx2, .dots_avx2 = dots_avx2, .tile_avx2 = tile_avx2,
#define X86_INTS_32   X86_INTS_AVX2.dots_vnni = dots_vnni,
#define X86_LANES \
    .dots_i8_avx2 = dots_i8_avx2, .two_i8_avx2 = two_i8_avx2, .low = LOW, .span = SPAN, .codes_avx2 = codes_avx2,
#define X86_LAID_AVX2 .lay_avx2 = lay_avx2,
#define X86_FOURS     .dots_i8_vbmi = dots_i8_vbmi, .dots_i8_near = dots_i8_near, .pair_vbmi = pair_vbmi,
#define X86_COLUMNS   .columns_vbmi = columns_vbmi,
#define X86_LAID      .lay = lay_rows, .dots_laid = dots_laid, .columns_laid = columns_laid, .tiles_laid = tiles_laid,
#define X86_INTS      X86_INTS_AVX2.ints_avx512 = ints_avx512, .dots_vnni = dots_vnni,

/* F(0) F(1) ... */
#define EACH_1(F)  F(0)
#define EACH_2(F)  EACH_1(F) F(1)
#define EACH_3(F)  EACH_2(F) F(2)
#define EACH_4(F)  EACH_3(F) F(3)
#define EACH_5(F)  EACH_4(F) F(4)
#define EACH_6(F)  EACH_5(F) F(5)
#define EACH_7(F)  EACH_6(F) F(6)
#define EACH_8(F)  EACH_7(F) F(7)
#define EACH_10(F) EACH_8(F) F(8) F(9)
#define EACH_12(F) EACH_10(F) F(10) F(11)
#define EACH_14(F) EACH_12(F) F(12) F(13)
#define EACH_16(F) EACH_14(F) F(14) F(15)

/* y[0..15] = scale v, v 16 signed bytes. */
TARGET_AVX2 static inline void x86_scale(float *y, __m128i v, __m256 scale)
{
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));

    _mm256_storeu_ps(y, _mm256_mul_ps(scale, lo));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(scale, hi));
}

/* y[0..15] = scale v - min. */
TARGET_AVX2 static inline void x86_scale_min(float *y, __m128i v, __m256 scale, __m256 min)
{
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));

    _mm256_storeu_ps(y, _mm256_sub_ps(_mm256_mul_ps(scale, lo), min));
    _mm256_storeu_ps(y + 8, _mm256_sub_ps(_mm256_mul_ps(scale, hi), min));
}

/* A block of 256, unpacked: y = scale v or scale v - min, scale and min one for each 16. */
struct x86_block {
    _Alignas(64) int8_t v[256];
    float scale[16];
    float min[16];
};

TARGET_AVX2 static inline void x86_store32(int8_t *p, __m256i v)
{
    _mm256_store_si256((void *)p, v);
}

/* From 8 scales and 8 minima (quant/k_scales.h), each for 32 elements. */
TARGET_AVX2 static inline void x86_scales_45(struct x86_block *u, __m128i sm, float d, float dmin)
{
    x86_scale(u->scale, _mm_unpacklo_epi8(sm, sm), _mm256_set1_ps(d));
    x86_scale(u->min, _mm_unpackhi_epi8(sm, sm), _mm256_set1_ps(dmin));
}

TARGET_AVX2 static inline void x86_block_avx2(float *y, const int8_t v[256], const float scale[16])
{
    for (int g = 0; g < 16; g++)
        x86_scale(y + 16 * g, _mm_load_si128((const void *)(v + 16 * g)), _mm256_broadcast_ss(scale + g));
}

TARGET_AVX2 static inline void x86_block_min_avx2(float *y, const int8_t v[256], const float scale[16],
                                                  const float min[16])
{
    for (int g = 0; g < 16; g++)
        x86_scale_min(y + 16 * g, _mm_load_si128((const void *)(v + 16 * g)), _mm256_broadcast_ss(scale + g),
                      _mm256_broadcast_ss(min + g));
}

TARGET_AVX2 static inline __m128i x86_load16(const void *p)
{
    return _mm_loadu_si128(p);
}

/* The low and high nibbles of 16 bytes. */
TARGET_AVX2 static inline __m128i x86_low(__m128i v)
{
    return _mm_and_si128(v, _mm_set1_epi8(15));
}

TARGET_AVX2 static inline __m128i x86_high(__m128i v)
{
    return _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
}

/* 32 bytes, those negated whose bits in the 4 bytes at signs are set. */
TARGET_AVX2 static inline __m256i x86_negate_32(__m256i v, const uint8_t signs[4])
{
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    int32_t s;

    memcpy(&s, signs, sizeof(s));
    __m256i minus = _mm256_shuffle_epi8(_mm256_set1_epi32(s), spread);

    minus = _mm256_cmpeq_epi8(_mm256_and_si256(minus, bits), bits);
    return _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
}

/* Sign codes of 7 bits (iq_signs()), in the low bits of bytes, completed: bit 7 is their parity. */
TARGET_AVX2 static inline __m256i x86_signs(__m256i codes)
{
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i odd = _mm256_setr_epi64x((int64_t)0x8000008000808000, 0x0080800080000080, (int64_t)0x8000008000808000,
                                           0x0080800080000080);
    __m256i fold = _mm256_xor_si256(codes, _mm256_srli_epi16(codes, 4));

    return _mm256_or_si256(codes, _mm256_shuffle_epi8(odd, _mm256_and_si256(fold, low)));
}

/* Four sign codes, the lowest 28 bits of each of 8 numbers: as bytes. */
TARGET_AVX2 static inline void x86_signs_28(uint8_t out[32], __m256i v)
{
    const __m256i seven = _mm256_set1_epi32(127);
    __m256i b0 = _mm256_and_si256(v, seven),
            b1 = _mm256_and_si256(_mm256_slli_epi32(v, 1), _mm256_slli_epi32(seven, 8));
    __m256i b2 = _mm256_and_si256(_mm256_slli_epi32(v, 2), _mm256_slli_epi32(seven, 16));
    __m256i b3 = _mm256_and_si256(_mm256_slli_epi32(v, 3), _mm256_slli_epi32(seven, 24));

    v = _mm256_or_si256(_mm256_or_si256(b0, b1), _mm256_or_si256(b2, b3));
    _mm256_storeu_si256((void *)out, x86_signs(v));
}

/* 16 signed bytes as floats. */
TARGET_AVX512 static inline __m512 x86_floats(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

TARGET_AVX512 static inline void x86_block_avx512(float *y, const int8_t v[256], const float scale[16])
{
    for (int g = 0; g < 16; g++) {
        __m512 q = x86_floats(_mm_load_si128((const void *)(v + 16 * g)));

        _mm512_storeu_ps(y + 16 * g, _mm512_mul_ps(q, _mm512_set1_ps(scale[g])));
    }
}

TARGET_AVX512 static inline void x86_block_min_avx512(float *y, const int8_t v[256], const float scale[16],
                                                      const float min[16])
{
    for (int g = 0; g < 16; g++) {
        __m512 q = x86_floats(_mm_load_si128((const void *)(v + 16 * g)));

        q = _mm512_mul_ps(q, _mm512_set1_ps(scale[g]));
        _mm512_storeu_ps(y + 16 * g, _mm512_sub_ps(q, _mm512_set1_ps(min[g])));
    }
}

/* Codes of 4 bits in bytes, whose products stand in a table: 16 low nibbles, 16 high nibbles. */
TARGET_AVX512 static inline void x86_look_up(float *lo, float *hi, const uint8_t *q, __m512 table_lo, __m512 table_hi)
{
    __m512i v = _mm512_cvtepu8_epi32(x86_load16(q));

    _mm512_storeu_ps(lo, _mm512_permutexvar_ps(v, table_lo));
    _mm512_storeu_ps(hi, _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), table_hi));
}

/* Only inlined are their results registers; the compiler alone decides otherwise for some. */
#define X86_WORDS TARGET_AVX2 __attribute__((always_inline)) static inline
#define X86_DOTS  TARGET_DOTS __attribute__((always_inline)) static inline
#define X86_VNNI  TARGET_VNNI __attribute__((always_inline)) static inline
#define X86_WHOLE TARGET_AVX512 __attribute__((always_inline)) static inline

/* Of formats with a code book: the places of entries, and bytes of signs. */
struct x86_book {
    _Alignas(32) uint16_t at[64];
    uint8_t signs[32];
};

/* What acts16_256_body.h takes of a block once: whole scales (of groups of 32 or 16); minima. */
struct x86_taken {
    struct x86_book book;
    int32_t s[16];
    _Alignas(32) float min[16];
    float scale;
};

/* 32 magnitudes of an iq2 format: four entries of its code book (quant/iq_grids.h). */
X86_WORDS __m256i x86_octets(const uint64_t *grid, const uint16_t at[4])
{
    __m128d lo = _mm_loadh_pd(_mm_load_sd((const void *)(grid + at[0])), (const void *)(grid + at[1]));
    __m128d hi = _mm_loadh_pd(_mm_load_sd((const void *)(grid + at[2])), (const void *)(grid + at[3]));

    return _mm256_castpd_si256(_mm256_insertf128_pd(_mm256_castpd128_pd256(lo), hi, 1));
}

/* Places come from memory at once: loads are what such formats wait for. */
X86_WORDS __m128i x86_four(const uint32_t *grid, const uint16_t at[4])
{
    uint64_t four;

    memcpy(&four, at, sizeof(four));
    uint32_t a = (uint32_t)four, b = (uint32_t)(four >> 32);
    __m128i v = _mm_cvtsi32_si128((int)grid[(uint16_t)a]);

    v = _mm_insert_epi32(v, (int)grid[a >> 16], 1);
    v = _mm_insert_epi32(v, (int)grid[(uint16_t)b], 2);
    return _mm_insert_epi32(v, (int)grid[b >> 16], 3);
}

/* Of an iq3 format: eight entries. */
X86_WORDS __m256i x86_quads(const uint32_t *grid, const uint16_t at[8])
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(x86_four(grid, at)), x86_four(grid, at + 4), 1);
}

/* 32 bytes as places. */
X86_WORDS void x86_places(uint16_t at[32], __m256i bytes)
{
    _mm256_storeu_si256((void *)at, _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes)));
    _mm256_storeu_si256((void *)(at + 16), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1)));
}

/* Tiles (struct cpu_int_tile) from the code for 2, 4, 6 and 8 vectors: ROW(n) takes the blocks of one row from b on,
 * vectors x0 ... */
#define TILE_VECTOR(j) const struct cpu_act_block *x##j = p->x[j] + p->first;
#define TILE_OF(TARGET, name, ROW, n, row_blocks) \
    TARGET static void name##_##n(const struct cpu_int_tile *p) \
    { \
        float *sum = p->sum, *less = p->less; \
\
        EACH_##n(TILE_VECTOR) for (int r = 0; r < p->n_rows; r++, sum += 8 * (n), less += 8 * (n)) \
        { \
            const BLOCK *b = (const BLOCK *)((const char *)p->rows + r * p->row_bytes) + p->first * (row_blocks); \
\
            ROW(n) \
        } \
    }
#define X86_TILES(TARGET, name, ROW, row_blocks) \
    TILE_OF(TARGET, name, ROW, 2, row_blocks) \
    TILE_OF(TARGET, name, ROW, 4, row_blocks) \
    TILE_OF(TARGET, name, ROW, 6, row_blocks) \
    TILE_OF(TARGET, name, ROW, 8, row_blocks) \
    static void name(const struct cpu_int_tile *p) \
    { \
        static cpu_int_tile_fn *const by_n[] = { name##_2, name##_4, name##_6, name##_8 }; \
\
        by_n[p->n / 2 - 1](p); \
    }

/* The sum of a row's lanes as cpu/format.h states it. */
TARGET_DOTS static inline float x86_fold(__m256 a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

TARGET_AVX2 static inline __m256i x86_load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* The numbers of 32 bits at each place of 4 or 8 registers side by side; of 4, in each half. Not loops: gcc 12 leaves
 * them in memory. */
X86_WORDS void x86_turn_4(__m256i v[4])
{
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);

    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
}

X86_WORDS void x86_turn_8(__m256i v[8])
{
    __m256i w;

    x86_turn_4(v);
    x86_turn_4(v + 4);
#define HALVES_OF(i) \
    w = _mm256_permute2x128_si256(v[i], v[(i) + 4], 0x31); \
    v[i] = _mm256_permute2x128_si256(v[i], v[(i) + 4], 0x20); \
    v[(i) + 4] = w;
    EACH_4(HALVES_OF)
#undef HALVES_OF
}

/* The even and the odd bytes of v as words. */
X86_WORDS void x86_split(__m256i w[2], __m256i v)
{
    w[0] = _mm256_and_si256(v, _mm256_set1_epi16(255));
    w[1] = _mm256_srli_epi16(v, 8);
}

X86_WORDS void x86_split_signed(__m256i w[2], __m256i v)
{
    w[0] = _mm256_maddubs_epi16(_mm256_set1_epi16(1), v);
    w[1] = _mm256_srai_epi16(v, 8);
}

/* 32 nibbles as bytes: the low ones of 16 bytes, then the high ones. */
X86_WORDS __m256i x86_nibbles(const void *p)
{
    __m256i q = _mm256_broadcastsi128_si256(x86_load16(p));

    q = _mm256_srlv_epi64(q, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(q, _mm256_set1_epi8(15));
}

/* 16 where a bit is set: of 8 bytes in a row those of one byte of v. */
X86_WORDS __m256i x86_sixteens(__m256i v)
{
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u);

    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bits), bits), _mm256_set1_epi8(16));
}

/* 32 numbers of five bits: nibbles as above, and the fifth bits in order. */
X86_WORDS __m256i x86_five_bits(const void *qs, const void *qh)
{
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    int32_t h;

    memcpy(&h, qh, sizeof(h));
    return _mm256_or_si256(x86_nibbles(qs), x86_sixteens(_mm256_shuffle_epi8(_mm256_set1_epi32(h), spread)));
}

/* Values of 16, by nibbles. */
X86_WORDS __m256i x86_values(__m256i nibbles, const int8_t *values)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(x86_load16(values)), nibbles);
}

/* 32 products of bytes, added by twos: activations x, at most 127, with signed codes; with codes that are not, less
 * `less` times x. */
X86_WORDS __m256i x86_pairs(__m256i codes, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
}

/* Bit `from` of each byte moved to bit `to`; the other bits are moved too. */
X86_WORDS __m256i x86_bit(__m256i v, int from, int to)
{
    return from < to ? _mm256_slli_epi16(v, to - from) : from > to ? _mm256_srli_epi16(v, from - to) : v;
}

/* Scales of 8 groups, or 16, from signed bytes. */
X86_WORDS void x86_scales_8(struct x86_taken *t, __m128i v)
{
    _mm256_storeu_si256((void *)t->s, _mm256_cvtepi8_epi32(v));
}

X86_WORDS void x86_scales_16(struct x86_taken *t, __m128i v)
{
    x86_scales_8(t, v);
    _mm256_storeu_si256((void *)(t->s + 8), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));
}

/* Of 8 groups, from numbers of 32 bits. */
X86_WORDS void x86_scales_32(struct x86_taken *t, __m256i v)
{
    _mm256_storeu_si256((void *)t->s, v);
}

/* The odd scales 2 s + 1 of 8 numbers whose 4 highest bits are s. */
X86_WORDS __m256i x86_top_scales(__m256i v)
{
    return _mm256_or_si256(_mm256_srli_epi32(v, 27), _mm256_set1_epi32(1));
}

/* 8 bytes, each times f. */
TARGET_AVX2 static inline __m256 x86_floats_of(__m128i bytes, float f)
{
    return _mm256_mul_ps(_mm256_set1_ps(f), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}

/* The scales and minima of q4_k and q5_k (quant/k_scales.h), as bytes; p: the block, whose bytes 4 to 15
 * they are. */
TARGET_AVX2 static inline __m128i x86_scales_minima(const void *p)
{
    const __m128i at = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i up = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i keep = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    __m128i v = x86_load16(p);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(v, at), _mm_setr_epi32(0, 0, 0, 4));
    __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(v, up), 2);

    return _mm_or_si128(_mm_and_si128(low, keep), _mm_and_si128(high, _mm_set1_epi8(0x30)));
}

/* Their whole scales and minima; the scale of the block is returned. It begins with that and the minima's. */
X86_WORDS float x86_take_45(struct x86_taken *t, __m256 *min, const void *p)
{
    __m128i sm = x86_scales_minima(p), m = _mm_unpackhi_epi64(sm, sm);
    __m128 d = _mm_cvtph_ps(x86_load16(p));

    x86_scales_8(t, sm);
    *min = _mm256_mul_ps(_mm256_broadcastss_ps(_mm_movehdup_ps(d)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(m)));
    return _mm_cvtss_f32(d);
}

/* What acts8_avx2_body.h takes of 256 elements: scales of groups (or, where halves have whole ones, of the block),
 * minima as in cpu_byte_block; scales of halves as numbers of 32 bits, the first ones of groups 0 to 3, their second
 * ones, those of groups 4 to 7, and as words in the order of the row, times what codes are more by. */
struct x86_lanes {
    __m256 scale, min[2];
    __m256i sub[2], less;
};

/* How many products have a sum that fits a word; likewise of halves of groups, where those have scales. */
enum x86_sums { X86_SUMS_8, X86_SUMS_4, X86_SUMS_2, X86_SUMS_HALVES_8, X86_SUMS_HALVES_4 };

/* 16 bytes, then 16 others. */
X86_WORDS __m256i x86_load_two(const void *p, const void *q)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(x86_load16(p)), x86_load16(q), 1);
}

/* The low nibble of each byte, or the high one. */
X86_WORDS __m256i x86_nibble(__m256i q, bool high)
{
    return _mm256_and_si256(high ? _mm256_srli_epi16(q, 4) : q, _mm256_set1_epi8(15));
}

/* Words added by twos; those of two registers by twos and twos again, as words. */
X86_WORDS __m256i x86_twos(__m256i p)
{
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}

X86_WORDS __m256i x86_fours(__m256i p, __m256i q)
{
    return _mm256_packs_epi32(x86_twos(p), x86_twos(q));
}

/* Numbers of 32 bits, each two of a register added: of a, then of b, in either half. */
X86_WORDS __m256i x86_add_twos(__m256i a, __m256i b)
{
    __m256 p = _mm256_castsi256_ps(a), q = _mm256_castsi256_ps(b);

    return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(p, q, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(p, q, 0xdd)));
}

/* Each four added: of a, b, c and d, in either half. */
X86_WORDS __m256i x86_add_fours(__m256i a, __m256i b, __m256i c, __m256i d)
{
    a = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    c = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c));
}

/* The sums of four groups' products, two in a word: of the first 16 of each, then of the others. */
X86_WORDS __m256i x86_sum_4(__m256i p0, __m256i p1, __m256i p2, __m256i p3, enum x86_sums sums)
{
    if (sums == X86_SUMS_2)
        return x86_add_fours(x86_twos(p0), x86_twos(p1), x86_twos(p2), x86_twos(p3));
    p0 = x86_fours(p0, p1);
    p2 = x86_fours(p2, p3);
    if (sums == X86_SUMS_8 || sums == X86_SUMS_HALVES_8)
        return x86_twos(x86_fours(p0, p2));
    return x86_add_twos(x86_twos(p0), x86_twos(p2));
}

/* Of 8 groups, from words that are sums of 4 products (of 2 with X86_SUMS_2: then first halves, then second ones), in
 * groups g and g + 4. */
X86_WORDS __m256i x86_sum_8(__m256i p0, __m256i p1, __m256i p2, __m256i p3, enum x86_sums sums)
{
    if (sums == X86_SUMS_8)
        return x86_add_twos(x86_twos(x86_fours(p0, p1)), x86_twos(x86_fours(p2, p3)));
    if (sums == X86_SUMS_4)
        return x86_add_fours(x86_twos(p0), x86_twos(p1), x86_twos(p2), x86_twos(p3));
    return x86_add_fours(p0, p1, p2, p3);
}

/* Scales of 16 halves from signed bytes in the order of the row; less: what codes are more by, 0 or a power of two. */
X86_WORDS void x86_subs(struct x86_lanes *t, __m128i s, int log_less)
{
    const __m128i first = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    __m128i v = _mm_shuffle_epi8(s, first);

    t->sub[0] = _mm256_cvtepi8_epi32(v);
    t->sub[1] = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v));
    t->less = _mm256_slli_epi16(_mm256_cvtepi8_epi16(s), log_less);
}

/* The scales of halves, as both words of a pair: of the first ones, of the second. */
X86_WORDS void x86_put_subs(int32_t sub[16], const struct x86_lanes *t)
{
    __m256i lo = _mm256_blend_epi16(t->sub[0], _mm256_slli_epi32(t->sub[0], 16), 0xaa);
    __m256i hi = _mm256_blend_epi16(t->sub[1], _mm256_slli_epi32(t->sub[1], 16), 0xaa);

    _mm256_storeu_si256((void *)sub, _mm256_permute2x128_si256(lo, hi, 0x20));
    _mm256_storeu_si256((void *)(sub + 8), _mm256_permute2x128_si256(lo, hi, 0x31));
}

/* 8 signed bytes, times f, as the scales of groups. */
X86_WORDS void x86_group_scales(struct x86_lanes *t, __m128i s, __m256 f)
{
    t->scale = _mm256_mul_ps(f, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s)));
}

/* The scales and minima of two blocks of q4_k or q5_k, as x86_scales_minima() has them, and the scales of both. */
struct x86_two_45 {
    _Alignas(32) uint8_t sm[2][16];
    float d[2][2];
};

X86_WORDS void x86_take_two_45(struct x86_two_45 *t, const void *p, const void *q)
{
    const __m256i at =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m256i up =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    const __m256i keep = _mm256_broadcastsi128_si256(_mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    __m256i v = x86_load_two(p, q), d = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
    __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi8(v, at), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(_mm256_shuffle_epi8(v, up), 2), _mm256_set1_epi8(0x30));

    _mm256_store_si256((void *)t->sm, _mm256_or_si256(_mm256_and_si256(low, keep), high));
    _mm_storeu_ps(t->d[0], _mm_cvtph_ps(_mm256_castsi256_si128(d)));
}

X86_WORDS void x86_lanes_45(struct x86_lanes *t, const struct x86_two_45 *two, int k)
{
    const uint8_t *sm = two->sm[k];
    __m256i m = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(sm + 8)));

    x86_group_scales(t, _mm_loadl_epi64((const void *)sm), _mm256_broadcast_ss(two->d[k]));
    t->min[0] = _mm256_mul_ps(_mm256_broadcast_ss(two->d[k] + 1), _mm256_cvtepi32_ps(m));
}

/* 8 words, `step` bytes apart. */
X86_WORDS __m128i x86_words_8(const void *p, size_t step)
{
    const char *at = p;

#define WORD(i) _mm_loadu_si32(at + (i)*step)
    __m128i lo = _mm_unpacklo_epi32(_mm_unpacklo_epi16(WORD(0), WORD(1)), _mm_unpacklo_epi16(WORD(2), WORD(3)));
    __m128i hi = _mm_unpacklo_epi32(_mm_unpacklo_epi16(WORD(4), WORD(5)), _mm_unpacklo_epi16(WORD(6), WORD(7)));
#undef WORD
    return _mm_unpacklo_epi64(lo, hi);
}

/* As halves, the scales of groups. */
X86_WORDS void x86_half_scales(struct x86_lanes *t, const void *p, size_t step)
{
    t->scale = _mm256_cvtph_ps(x86_words_8(p, step));
}

/* A block of 256 as whole numbers, 32 to a register, in the order of cpu_int_place(), and its minima. */
struct x86_ints {
    __m512i w[8];
    __m512 min; /* of 8, the low half */
};

/* Two registers of u, c of 2 and h of 2: the words of v, each byte of which is a code of group 4 c + h (the
 * first 32) or 4 c + 2 + h, less `less`, times s. */
#define X86_STORE(u, c, h, even, odd, s) \
    do { \
        (u)->w[4 * (c) + 2 * (h)] = _mm512_mullo_epi16(even, s); \
        (u)->w[4 * (c) + 2 * (h) + 1] = _mm512_mullo_epi16(odd, s); \
    } while (0)
#define X86_EVEN(v)       _mm512_and_si512(v, _mm512_set1_epi16(255))
#define X86_ODD(v)        _mm512_srli_epi16(v, 8)
#define X86_LESS(w, less) _mm512_sub_epi16(w, _mm512_set1_epi16(less))

/* v's first half shifted right by `first` bits, its second by `second`; or rotated. */
#define X86_SHIFT(v, first, second) \
    _mm512_srlv_epi64(v, _mm512_setr_epi64(first, first, first, first, second, second, second, second))
#define X86_TURN(v, first, second) \
    _mm512_rorv_epi64(v, _mm512_setr_epi64((first)&63, (first)&63, (first)&63, (first)&63, (second)&63, (second)&63, \
                                           (second)&63, (second)&63))

TARGET_AVX512 static inline __m512i x86_twice(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
}

/* a, and of b what is in mask. */
TARGET_AVX512 static inline __m512i x86_merge(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi64(a, b, mask, 0xf8);
}

/* For registers c, h: word g of s for the first 16 and g + 2 for the others, g = 4 c + h. */
TARGET_AVX512 static inline __m512i x86_word(__m256i s, int g)
{
    __m512i at = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);

    at = _mm512_add_epi16(at, _mm512_set1_epi16((short)g));
    return _mm512_permutexvar_epi16(at, _mm512_castsi256_si512(s));
}

/* The same with two scales a group: words 2 g, 2 g + 1, 2 g + 4 and 2 g + 5 of s, each 8 times. */
TARGET_AVX512 static inline __m512i x86_two_words(__m256i s, int g)
{
    __m512i at = _mm512_setr_epi64(0, 0, 0x0001000100010001, 0x0001000100010001, 0x0004000400040004, 0x0004000400040004,
                                   0x0005000500050005, 0x0005000500050005);

    at = _mm512_add_epi16(at, _mm512_set1_epi16((short)(2 * g)));
    return _mm512_permutexvar_epi16(at, _mm512_castsi256_si512(s));
}

static inline int32_t x86_dword(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* 64 bytes that are used twice: gcc 12 would load them twice, which here means lines that two loads share. */
TARGET_AVX512 static inline __m512i x86_load64(const void *p)
{
    __m512i v = _mm512_loadu_si512(p);

    __asm__("" : "+v"(v));
    return v;
}

/* 16 bytes, each times f. */
TARGET_AVX512 static inline __m512 x86_times(__m128i v, float f)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v)), _mm512_set1_ps(f));
}
#else
#define X86_DECODER
#define X86_DECODERS
#define X86_INTS
#define X86_INTS_AVX2
#define X86_INTS_32
#define X86_LANES
#define X86_LAID_AVX2
#define X86_FOURS
#define X86_COLUMNS
#define X86_LAID
#endif

/* decode_avx2() and decode_avx512() from a format's unpack(), of codes and scales, or of minima, too. */
#define X86_DECODE(target, name, block, write) \
    target static void name(float *y, const void *row, int64_t n) \
    { \
        const block *b = row; \
        struct x86_block u; \
\
        for (int64_t i = 0; i < n / 256; i++, b++, y += 256) { \
            unpack(&u, b); \
            write; \
        } \
    }
#define X86_DECODE_SCALED(block) \
    X86_DECODE(TARGET_AVX2, decode_avx2, block, x86_block_avx2(y, u.v, u.scale)) \
    X86_DECODE(TARGET_AVX512, decode_avx512, block, x86_block_avx512(y, u.v, u.scale))
#define X86_DECODE_MIN(block) \
    X86_DECODE(TARGET_AVX2, decode_avx2, block, x86_block_min_avx2(y, u.v, u.scale, u.min)) \
    X86_DECODE(TARGET_AVX512, decode_avx512, block, x86_block_min_avx512(y, u.v, u.scale, u.min))

/* From the fill_book(), group_magnitudes() and group_signs() of a format with a code book: group_words() and pairs(),
 * as acts16_256_body.h wants them, and group_codes(), a block's 256 as signed bytes. */
#define X86_CODE_BOOK(block) \
    X86_WORDS __m256i entries(const struct x86_book *t, const block *b, int g) \
    { \
        return x86_negate_32(group_magnitudes(t, b, g), group_signs(t, b, g)); \
    } \
\
    X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const block *b, int g) \
    { \
        x86_split_signed(w, entries(&t->book, b, g)); \
    } \
\
    X86_WORDS __m256i pairs(const struct x86_book *t, const block *b, int g, __m256i x) \
    { \
        return _mm256_maddubs_epi16(group_magnitudes(t, b, g), x86_negate_32(x, group_signs(t, b, g))); \
    } \
\
    TARGET_AVX2 static inline void group_codes(int8_t *v, const block *b) \
    { \
        struct x86_book t; \
\
        fill_book(&t, b); \
        for (int g = 0; g < 8; g++) \
            x86_store32(v + 32 * g, entries(&t, b, g)); \
    }
#endif
