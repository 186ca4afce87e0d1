/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.c - products and fast decoding of q4_0 (quant/q4_0.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/q4_0.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = half_to_f32(b->d);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = (int8_t)((b->qs[j] & 15) - 8);
                u->code[32 * g + j + 16] = (int8_t)((b->qs[j] >> 4) - 8);
            }
        }
}

CPU_INTS(q4_0)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;
    const __m128i eight = _mm_set1_epi8(8);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));
        __m128i q = x86_load16(b->qs);

        x86_scale(y, _mm_sub_epi8(x86_low(q), eight), d);
        x86_scale(y + 16, _mm_sub_epi8(x86_high(q), eight), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;
    const __m512 codes = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 table = _mm512_mul_ps(codes, _mm512_set1_ps(_cvtsh_ss(b->d)));

        x86_look_up(y, y + 16, b->qs, table, table);
    }
}

TARGET_AVX2 static inline float scale_32(const struct quant_q4_0 *b)
{
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct quant_q4_0 *b)
{
    x86_split_signed(w, _mm256_sub_epi8(x86_nibbles(b->qs), _mm256_set1_epi8(8)));
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q4_0 *b)
{
    x86_half_scales(t, b, sizeof(*b));
}

X86_WORDS __m256i lane_codes(const struct quant_q4_0 *b, int g, int h)
{
    return x86_nibble(x86_load_two(b[g].qs, b[g + 4].qs), h > 0);
}

#define BLOCK struct quant_q4_0
#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_8
#define MORE   8
#define N_MIN  0
#define HALVES
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  8
#define SPAN 15
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q4_0 *b)
{
    _mm256_store_ps(u->scale, fours_halves((const char *)b, sizeof(*b)));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q4_0 *b)
{
    static const int8_t values[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 };

    fours_nibbles(v, (const char *)b, sizeof(*b), values);
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_q4_0 = {
    .type = QUANT_q4_0, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_32 X86_LANES X86_FOURS
};
