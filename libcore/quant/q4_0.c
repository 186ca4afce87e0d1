/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.c - x = d (q - 8). */
#include "quant/q4_0.h"

#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 16; j++) {
            y[j] = (float)((b->qs[j] & 15) - 8) * d;
            y[j + 16] = (float)((b->qs[j] >> 4) - 8) * d;
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;
    const __m128i eight = _mm_set1_epi8(8);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256  d = _mm256_set1_ps(_cvtsh_ss(b->d));
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
#endif

const struct quant_type quant_type_q4_0 = {
    .name = "q4_0",
    .id = 2,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q4_0),
    .decode = decode,
    X86_DECODERS
};
