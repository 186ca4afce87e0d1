/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.c - products and fast decoding of iq3_s (quant/iq3_s.c). */
#include "cpu/format.h"
#include "cpu/formats/iq_bytes.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq3_s.h"
#include "quant/iq_grids.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 64; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 8] >> g % 8 & 1u) << 8;
            unsigned entry = quant_iq3s_grid[code], signs = b->signs[g / 2] >> g % 2 * 4;

            u->sub[g / 4] = (int8_t)(1 + 2 * (b->sc[g / 16] >> g % 16 / 8 * 4 & 15));
            u->scale[g / 8] = half_to_f32(b->d);
            for (unsigned k = 0; k < 4; k++) {
                int mag = (int)(entry >> 4 * k & 7u) * 2 + 1;

                u->code[4 * g + (int)k] = (int8_t)((signs >> k & 1u) != 0 ? -mag : mag);
            }
        }
}

CPU_INTS(iq3_s)

#if defined(__x86_64__)
/* d (2 s + 1) of the 8 groups of 32. */
TARGET_AVX2 static inline void scales(float scale[8], const struct quant_iq3_s *b)
{
    int nibbles;

    memcpy(&nibbles, b->sc, sizeof(nibbles));
    __m128i s = _mm_cvtsi32_si128(nibbles);

    s = _mm_unpacklo_epi8(x86_low(s), x86_high(s));
    s = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    _mm256_storeu_ps(scale,
                     _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(b->d)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s))));
}

/* A bit of qh is the high byte of each place; eights of places lie in the order of unpacking. */
X86_WORDS void fill_book(struct x86_book *t, const struct quant_iq3_s *b)
{
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u), one = _mm256_set1_epi8(1);

    for (int k = 0; k < 64; k += 32) {
        int32_t four;

        memcpy(&four, b->qh + k / 8, sizeof(four));
        __m256i h = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(four), spread), bits);
        __m256i q = x86_load32(b->qs + k);

        h = _mm256_min_epu8(h, one);
        _mm256_storeu_si256((void *)(t->at + k), _mm256_unpacklo_epi8(q, h));
        _mm256_storeu_si256((void *)(t->at + k + 16), _mm256_unpackhi_epi8(q, h));
    }
}

X86_WORDS __m256i group_magnitudes(const struct x86_book *t, const struct quant_iq3_s *b, int g)
{
    (void)b;
    return x86_quads(cpu_iq3s_bytes, t->at + g / 4 * 32 + g % 2 * 16 + g / 2 % 2 * 8);
}

X86_WORDS const uint8_t *group_signs(const struct x86_book *t, const struct quant_iq3_s *b, int g)
{
    (void)t;
    return b->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq3_s)

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;
    struct x86_block u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float scale[8];

        scales(scale, b);
        group_codes(u.v, b);
        for (int g = 0; g < 16; g++)
            u.scale[g] = scale[g / 2];
        x86_block_avx2(y, u.v, u.scale);
    }
}

/* 32 entries of the 128 from grid on, by the low 7 bits of code; bit6 says where bit 6 is set. */
TARGET_AVX512 static inline __m512i quarter(const uint16_t *grid, __m512i code, __mmask32 bit6)
{
    const __m512i *t = (const void *)grid;

    return _mm512_mask_blend_epi16(bit6, _mm512_permutex2var_epi16(t[0], code, t[1]),
                                   _mm512_permutex2var_epi16(t[2], code, t[3]));
}

/* The entries of the 32 codes from q on, whose bits 8 are in h. All of the grid passes by: 1024
 * bytes are 16 registers, which takes fewer steps than 32 loads. */
TARGET_AVX512 static inline __m512i look_up(const uint8_t *q, __mmask32 h)
{
    const uint16_t *grid = quant_iq3s_grid;
    __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)q));
    __mmask32 bit6 = _mm512_test_epi16_mask(code, _mm512_set1_epi16(64));
    __mmask32 bit7 = _mm512_test_epi16_mask(code, _mm512_set1_epi16(128));
    __m512i lo = _mm512_mask_blend_epi16(bit7, quarter(grid, code, bit6), quarter(grid + 128, code, bit6));
    __m512i hi = _mm512_mask_blend_epi16(bit7, quarter(grid + 256, code, bit6), quarter(grid + 384, code, bit6));

    return _mm512_mask_blend_epi16(h, lo, hi);
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;
    const __m512 codes = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, /* and negative */
                                        -1, -3, -5, -7, -9, -11, -13, -15);
    const __m512i eight = _mm512_set1_epi32(8), low = _mm512_set1_epi8(15);

    for (int64_t i = 0; i < n / 256; i++, b++) {
        float scale[8];
        uint32_t h[2], signs[8];

        scales(scale, b);
        memcpy(h, b->qh, sizeof(h));
        memcpy(signs, b->signs, sizeof(signs));
        for (int half = 0; half < 2; half++) {
            _Alignas(64) uint8_t v[2][4][16]; /* digits: first and second 16 of 4 groups of 32 */
            __m512i e = look_up(b->qs + 32 * half, h[half]);
            __m512i lo = _mm512_and_si512(e, low);
            __m512i hi = _mm512_and_si512(_mm512_srli_epi16(e, 4), low);

            _mm512_store_si512(v[0], _mm512_unpacklo_epi8(lo, hi));
            _mm512_store_si512(v[1], _mm512_unpackhi_epi8(lo, hi));
            for (int g = 0; g < 4; g++, y += 32) {
                uint32_t minus = signs[4 * half + g];
                __m512 table = _mm512_mul_ps(codes, _mm512_set1_ps(scale[4 * half + g]));
                __m512i q0 = _mm512_cvtepu8_epi32(x86_load16(v[0][g]));
                __m512i q1 = _mm512_cvtepu8_epi32(x86_load16(v[1][g]));

                q0 = _mm512_mask_or_epi32(q0, (__mmask16)minus, q0, eight);
                q1 = _mm512_mask_or_epi32(q1, (__mmask16)(minus >> 16), q1, eight);
                _mm512_storeu_ps(y, _mm512_permutexvar_ps(q0, table));
                _mm512_storeu_ps(y + 16, _mm512_permutexvar_ps(q1, table));
            }
        }
    }
}

/* The scales of the 8 groups of 32. */
TARGET_AVX2 static inline __m128i odd_scales(const struct quant_iq3_s *b)
{
    int nibbles;

    memcpy(&nibbles, b->sc, sizeof(nibbles));
    __m128i s = _mm_cvtsi32_si128(nibbles);

    s = _mm_unpacklo_epi8(x86_low(s), x86_high(s));
    return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_iq3_s *b)
{
    (void)min;
    x86_scales_8(t, odd_scales(b));
    fill_book(&t->book, b);
    return _cvtsh_ss(b->d);
}

/* 32 magnitudes from their digits, times s, signed: the even bits of signs[g] and signs[g + 2], or the odd. */
TARGET_AVX512 static inline __m512i signed_words(__m256i digits, const uint8_t *signs, __m512i s, int odd)
{
    __m512i w = _mm512_cvtepu8_epi16(digits);
    uint32_t first, second;

    w = _mm512_add_epi16(_mm512_add_epi16(w, w), _mm512_set1_epi16(1));
    w = _mm512_mullo_epi16(w, s);
    memcpy(&first, signs, sizeof(first));
    memcpy(&second, signs + 8, sizeof(second));
    first = first >> odd & 0x55555555u;
    second = second >> odd & 0x55555555u;
    /* every other bit of 32: as 16 */
    uint64_t m = first | (uint64_t)second << 32;

    m = (m | m >> 1) & 0x3333333333333333u;
    m = (m | m >> 2) & 0x0f0f0f0f0f0f0f0fu;
    m = (m | m >> 4) & 0x00ff00ff00ff00ffu;
    m = (m | m >> 8) & 0x0000ffff0000ffffu;
    return _mm512_mask_sub_epi16(w, (__mmask32)(m | m >> 16), _mm512_setzero_si512(), w);
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_iq3_s *b)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m256i s = _mm256_cvtepu8_epi16(odd_scales(b));
    uint32_t codes[2];

    memcpy(codes, b->qh, sizeof(codes));
    /* An entry is a word of four digits: 0 and 2 are the low nibbles, even elements. */
#define TWO(c, h, pick) \
    do { \
        __m512i scale = x86_word(s, 4 * (c) + (h)); \
        const uint8_t *group_signs = b->signs + 16 * (c) + 4 * (h); \
        u->w[4 * (c) + 2 * (h)] = \
            signed_words(_mm512_castsi512_si256(_mm512_shuffle_i64x2(lo, lo, pick)), group_signs, scale, 0); \
        u->w[4 * (c) + 2 * (h) + 1] = \
            signed_words(_mm512_castsi512_si256(_mm512_shuffle_i64x2(hi, hi, pick)), group_signs, scale, 1); \
    } while (0)
#define HALF(c) \
    do { \
        __m512i e = look_up(b->qs + 32 * (c), codes[c]); \
        __m512i lo = _mm512_and_si512(e, low); \
        __m512i hi = _mm512_and_si512(_mm512_srli_epi16(e, 4), low); \
        TWO(c, 0, 0x08); \
        TWO(c, 1, 0x0d); \
    } while (0)
    HALF(0);
    HALF(1);
#undef HALF
#undef TWO
    return _cvtsh_ss(b->d);
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq3_s *b)
{
    x86_group_scales(t, odd_scales(b), _mm256_set1_ps(_cvtsh_ss(b->d)));
}

#define BLOCK  struct quant_iq3_s
#define N_MIN  0
#define SCALES 8
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_8
#define BOOK
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  15
#define SPAN 30
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq3_s *b)
{
    fours_scales(u, _cvtsh_ss(b->d), _mm256_cvtepi8_epi32(odd_scales(b)));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_iq3_s *b)
{
    /* 128 and 1, 3 ... 15; 128 less these */
    const __m512i table = _mm512_set4_epi32(0x71737577, 0x797b7d7f, (int)0x8f8d8b89u, (int)0x87858381u);
    const uint8_t *low = cpu_iq3s_packed;
    __m512i code = x86_load64(b->qs), words[2], signs = fours_wide(b->signs);
    __mmask64 bit7 = _mm512_movepi8_mask(code), bit8;

    memcpy(&bit8, b->qh, sizeof(bit8));
    __m512i l = _mm512_mask_blend_epi8(bit8, fours_look_256(low, code, bit7), fours_look_256(low + 256, code, bit7));

    fours_quads(words, l, fours_upper(fours_look_256(low + 512, code, bit7), bit8));
#define PART(k) \
    v[k] = fours_blend(FOURS_DIGITS(k, 0, words), FOURS_SIGNS(k, 3, signs), _mm512_set1_epi8(8)); \
    v[k] = _mm512_permutexvar_epi8(v[k], table);
    EACH_4(PART)
#undef PART
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq3_s = {
    .type = QUANT_iq3_s, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS X86_LANES X86_FOURS
};
