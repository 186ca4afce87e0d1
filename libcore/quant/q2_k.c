/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.c - x = (d s) q - (dmin m), s and m 4 bits for each 16 elements. */
#include "quant/q2_k.h"

#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
            float          scale = d * (float)(b->sc[g] & 15), min = dmin * (float)(b->sc[g] >> 4);
            int            shift = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;
    const __m128i three = _mm_set1_epi8(3);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);

        for (int g = 0; g < 16; g++) {
            __m128i q = x86_load16(b->qs + g / 8 * 32 + g % 2 * 16);
            __m256  scale = _mm256_set1_ps(d * (float)(b->sc[g] & 15));
            __m256  min = _mm256_set1_ps(dmin * (float)(b->sc[g] >> 4));

            q = _mm_and_si128(_mm_srli_epi16(q, g % 8 / 2 * 2), three);
            x86_scale_min(y + 16 * g, q, scale, min);
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);

        for (int g = 0; g < 16; g++) {
            __m512i q = _mm512_cvtepu8_epi32(x86_load16(b->qs + g / 8 * 32 + g % 2 * 16));
            __m512  table = _mm512_mul_ps(codes, _mm512_set1_ps(d * (float)(b->sc[g] & 15)));

            table = _mm512_sub_ps(table, _mm512_set1_ps(dmin * (float)(b->sc[g] >> 4)));
            q = _mm512_srli_epi32(q, (unsigned)g % 8 / 2 * 2);
            _mm512_storeu_ps(y + 16 * g, _mm512_permutevar_ps(table, q));
        }
    }
}
#endif

const struct quant_type quant_type_q2_k = {
    .name = "q2_k",
    .id = 10,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q2_k),
    .decode = decode,
    X86_DECODERS
};
