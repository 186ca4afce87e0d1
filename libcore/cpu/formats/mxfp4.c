/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.c - products and fast decoding of mxfp4 (quant/mxfp4.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/mxfp4.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_mxfp4 *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = mxfp4_half_scale(b->e);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = quant_fp4_values[b->qs[j] & 15];
                u->code[32 * g + j + 16] = quant_fp4_values[b->qs[j] >> 4];
            }
        }
}

CPU_INTS(mxfp4)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_mxfp4 *b = row;
    const __m128i value = x86_load16(quant_fp4_values);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(mxfp4_half_scale(b->e));
        __m128i q = x86_load16(b->qs);

        x86_scale(y, _mm_shuffle_epi8(value, x86_low(q)), d);
        x86_scale(y + 16, _mm_shuffle_epi8(value, x86_high(q)), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_mxfp4 *b = row;
    const __m512 value = x86_floats(x86_load16(quant_fp4_values));

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(mxfp4_half_scale(b->e)));

        x86_look_up(y, y + 16, b->qs, table, table);
    }
}

TARGET_AVX2 static inline float scale_32(const struct quant_mxfp4 *b)
{
    return mxfp4_half_scale(b->e);
}

X86_WORDS void words(__m256i w[2], const struct quant_mxfp4 *b)
{
    x86_split_signed(w, x86_values(x86_nibbles(b->qs), quant_fp4_values));
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_mxfp4 *b)
{
    __m128i words = _mm_and_si128(x86_words_8(b, sizeof(*b)), _mm_set1_epi16(255));
    __m256i e = _mm256_cvtepu16_epi32(words), small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

    t->scale = _mm256_castsi256_ps(_mm256_blendv_epi8(v, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

X86_WORDS __m256i lane_codes(const struct quant_mxfp4 *b, int g, int h)
{
    return x86_values(x86_nibble(x86_load_two(b[g].qs, b[g + 4].qs), h > 0), quant_fp4_values);
}

#define BLOCK struct quant_mxfp4
#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_8
#define N_MIN  0
#define HALVES
#define SIGNED
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  12
#define SPAN 24
#include "cpu/formats/acts8_codes_body.h"

/* mxfp4_half_scale() of 8. */
X86_VBMI __m256 half_scales(const struct quant_mxfp4 *b)
{
    const __m512i at = _mm512_set1_epi64(FOURS_BYTES(0, sizeof(*b), 2 * sizeof(*b), 3 * sizeof(*b), 0) |
                                         FOURS_BYTES(0, sizeof(*b), 2 * sizeof(*b), 3 * sizeof(*b), 4));
    __m512i bytes = fours_fetch((const char *)b, 4 * sizeof(*b), at, 0xf0);
    __m256i e = _mm256_cvtepu8_epi32(_mm512_castsi512_si128(bytes));
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

    return _mm256_castsi256_ps(_mm256_blendv_epi8(v, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_mxfp4 *b)
{
    _mm256_store_ps(u->scale, half_scales(b));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_mxfp4 *b)
{
    fours_nibbles(v, (const char *)b, sizeof(*b), quant_fp4_values);
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_mxfp4 = {
    .type = QUANT_mxfp4, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_AVX2 X86_LANES X86_FOURS
};
