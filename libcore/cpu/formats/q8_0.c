/* SPDX-License-Identifier: Apache-2.0 */
/* q8_0.c - products and fast decoding of q8_0 (quant/q8_0.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_columns.h"
#include "quant/half.h"
#include "quant/q8_0.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = half_to_f32(b->d);
            memcpy(u->code + 32 * g, b->qs, 32);
        }
}

CPU_INTS(q8_0)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));

        x86_scale(y, x86_load16(b->qs), d);
        x86_scale(y + 16, x86_load16(b->qs + 16), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 d = _mm512_set1_ps(_cvtsh_ss(b->d));

        _mm512_storeu_ps(y, _mm512_mul_ps(d, x86_floats(x86_load16(b->qs))));
        _mm512_storeu_ps(y + 16, _mm512_mul_ps(d, x86_floats(x86_load16(b->qs + 16))));
    }
}

TARGET_AVX2 static inline float scale_32(const struct quant_q8_0 *b)
{
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct quant_q8_0 *b)
{
    x86_split_signed(w, x86_load32(b->qs));
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q8_0 *b)
{
    x86_half_scales(t, b, sizeof(*b));
}

X86_WORDS __m256i lane_codes(const struct quant_q8_0 *b, int g)
{
    return x86_load32(b[g].qs);
}

#define BLOCK struct quant_q8_0
#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_2
#define N_MIN  0
#define SIGNED
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  128
#define SPAN 255
#include "cpu/formats/acts8_codes_body.h"

TARGET_AVX2 static void lay_avx2(void *to, const void *rows, int64_t row_bytes, int64_t n)
{
    char *scale = to;

    for (int r = 0; r < CPU_LAID; r++, scale += row_bytes) {
        const struct quant_q8_0 *b = (const void *)((const char *)rows + r * row_bytes);
        char *code = scale + n / 16;

        for (int64_t g = 0; g < n / 32; g++)
            memcpy(scale + 2 * g, &b[g].d, 2);
        for (int64_t i = 0; i < n / 256; i++, b += 8, code += 256) {
            __m256i v[8];

            codes_take(v, b);
            codes_turn(v);
#define GIVE(i) _mm256_storeu_si256((void *)(code + 32 * (i)), v[i]);
            EACH_8(GIVE)
#undef GIVE
        }
    }
}

/* The scales of 8 blocks: 64 bytes have two of them. */
X86_VBMI __m256 halves(const struct quant_q8_0 *b)
{
    const __m512i at = _mm512_set1_epi32(0x23220100);
    __m512i v = _mm512_permutexvar_epi8(at, _mm512_loadu_si512(b));

    v = _mm512_mask_permutexvar_epi8(v, 0xf0, at, _mm512_loadu_si512(b + 2));
    v = _mm512_mask_permutexvar_epi8(v, 0xf00, at, _mm512_loadu_si512(b + 4));
    v = _mm512_mask_permutexvar_epi8(v, 0xf000, at, _mm512_loadu_si512(b + 6));
    return _mm256_cvtph_ps(_mm512_castsi512_si128(v));
}

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q8_0 *b)
{
    _mm256_store_ps(u->scale, halves(b));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q8_0 *b)
{
    /* of two registers dwords 0 and 1 of each four of both, or 2 and 3; of such pairs the first halves or the second */
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i at_2 = _mm512_add_epi32(at, _mm512_set1_epi32(2)), more = _mm512_set1_epi8(-128);
#define TWO(g) \
    _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(x86_load32(b[g].qs)), x86_load32(b[(g) + 1].qs), 1), \
                     more)
    __m512i q0 = TWO(0), q1 = TWO(2), q2 = TWO(4), q3 = TWO(6);
#undef TWO
    __m512i lo = _mm512_permutex2var_epi32(q0, at, q1), hi = _mm512_permutex2var_epi32(q2, at, q3);

    v[0] = _mm512_shuffle_i64x2(lo, hi, 0x44);
    v[1] = _mm512_shuffle_i64x2(lo, hi, 0xee);
    lo = _mm512_permutex2var_epi32(q0, at_2, q1);
    hi = _mm512_permutex2var_epi32(q2, at_2, q3);
    v[2] = _mm512_shuffle_i64x2(lo, hi, 0x44);
    v[3] = _mm512_shuffle_i64x2(lo, hi, 0xee);
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"

enum { HEAD = 256, PARTS = 8, PART = 512 }; /* two scales a dword */

/* Codes are 128 more. */
X86_VBMI void lay_block(char *head, char *part, const char *const row[16], int64_t at)
{
    for (int g = 0; g < 8; g++, at += (int64_t)sizeof(struct quant_q8_0)) {
        __m512i v[8];

        columns_32(v, row, at + (int64_t)offsetof(struct quant_q8_0, qs));
#define GIVE(i) _mm512_storeu_si512(part + g * PART + 64 * (i), _mm512_xor_si512(v[i], _mm512_set1_epi8(-128)));
        EACH_8(GIVE)
#undef GIVE
        for (int r = 0; r < 16; r++)
            memcpy(head + g / 2 * 64 + g % 2 * 2 + 4 * r, row[r] + at, 2);
    }
}

X86_VBMI void columns_numbers(const struct columns_numbers *to, const char *head)
{
#define TWO(i) \
    _mm512_store_ps(to->scale[2 * (i)*to->pitch], columns_halves(columns_dword(head, i), false)); \
    _mm512_store_ps(to->scale[(2 * (i) + 1) * to->pitch], columns_halves(columns_dword(head, i), true));
    EACH_4(TWO)
#undef TWO
}

X86_VBMI __m512i columns_code(const char *head, const char *part, int g, const int odd, const int i, const bool more)
{
    const __m512i v = columns_dword(part, i);

    (void)head;
    (void)g;
    (void)odd;
    return more ? v : _mm512_xor_si512(v, _mm512_set1_epi8(-128));
}

#include "cpu/formats/acts8_laid_body.h"
#endif

const struct cpu_format cpu_format_q8_0 = { .type = QUANT_q8_0,
                                            X86_DECODERS.ints = ints,
                                            .bytes = bytes_scalar,
                                            X86_INTS_32 X86_LANES X86_LAID_AVX2 X86_FOURS X86_COLUMNS X86_LAID };
