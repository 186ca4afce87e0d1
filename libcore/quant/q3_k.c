/* SPDX-License-Identifier: Apache-2.0 */
/* q3_k.c - x = (d (s - 32)) (q - 4), s 6 bits for each 16 elements. */
#include "quant/q3_k.h"

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q3_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = half_to_f32(b->d);
        uint8_t sc[16];

        k_scales_3(sc, b->sc);
        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16, *h = b->hmask + g % 2 * 16;
            float          scale = d * (float)(sc[g] - 32);
            int            shift = g % 8 / 2 * 2, bit = g / 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)((q[l] >> shift & 3) + (h[l] >> bit & 1) * 4 - 4);
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q3_k *b = row;
    const __m128i three = _mm_set1_epi8(3), four = _mm_set1_epi8(4);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = _cvtsh_ss(b->d);
        uint8_t sc[16];

        k_scales_3(sc, b->sc);
        for (int g = 0; g < 16; g++) {
            __m128i q = x86_load16(b->qs + g / 8 * 32 + g % 2 * 16);
            __m128i h = x86_load16(b->hmask + g % 2 * 16);
            __m128i bit = _mm_set1_epi8((char)(1 << g / 2));

            q = _mm_and_si128(_mm_srli_epi16(q, g % 8 / 2 * 2), three);
            h = _mm_cmpeq_epi8(_mm_and_si128(h, bit), _mm_setzero_si128());
            q = _mm_sub_epi8(q, _mm_and_si128(h, four));
            x86_scale(y + 16 * g, q, _mm256_set1_ps(d * (float)(sc[g] - 32)));
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q3_k *b = row;
    const __m512  codes = _mm512_setr_ps(-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3);
    const __m512i three = _mm512_set1_epi32(3);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = _cvtsh_ss(b->d);
        uint8_t sc[16];

        k_scales_3(sc, b->sc);
        for (unsigned g = 0; g < 16; g++) {
            __m512i q = _mm512_cvtepu8_epi32(x86_load16(b->qs + g / 8 * 32 + g % 2 * 16));
            __m512i h = _mm512_cvtepu8_epi32(x86_load16(b->hmask + g % 2 * 16));
            __m512  table = _mm512_mul_ps(codes, _mm512_set1_ps(d * (float)(sc[g] - 32)));

            /* Index: two bits of q, the high bit above them; the table does not see bit 3. */
            q = _mm512_srli_epi32(q, g % 8 / 2 * 2);
            h = _mm512_srli_epi32(_mm512_slli_epi32(h, 2), g / 2);
            q = _mm512_ternarylogic_epi32(three, q, h, 0xca);
            _mm512_storeu_ps(y + 16 * g, _mm512_permutexvar_ps(q, table));
        }
    }
}
#endif

const struct quant_type quant_type_q3_k = {
    .name = "q3_k",
    .id = 11,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q3_k),
    .decode = decode,
    X86_DECODERS
};
