/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.c - x = (d s) q - (dmin m), s and m 6 bits for each 32 elements. */
#include "quant/q5_k.h"

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + g / 2 * 32;
            float          scale = d * (float)sm[g], min = dmin * (float)sm[8 + g];
            int            shift = g % 2 * 4;

            for (int l = 0; l < 32; l++) {
                int v = (q[l] >> shift & 15) | (b->qh[l] >> g & 1) << 4;

                y[32 * g + l] = scale * (float)v - min;
            }
        }
    }
}

#if defined(__x86_64__)
/* Five bits of 16 elements: a nibble, and bit g of the bytes of h. */
TARGET_AVX2 static inline __m128i five(__m128i nibble, __m128i h, int g)
{
    __m128i bit = _mm_and_si128(h, _mm_set1_epi8((char)(1 << g)));
    __m128i clear = _mm_cmpeq_epi8(bit, _mm_setzero_si128());

    return _mm_or_si128(nibble, _mm_andnot_si128(clear, _mm_set1_epi8(16)));
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g += 2) {
            __m256 scale_lo = _mm256_set1_ps(d * (float)sm[g]);
            __m256 scale_hi = _mm256_set1_ps(d * (float)sm[g + 1]);
            __m256 min_lo = _mm256_set1_ps(dmin * (float)sm[g + 8]);
            __m256 min_hi = _mm256_set1_ps(dmin * (float)sm[g + 9]);

            for (int l = 0; l < 32; l += 16) {
                __m128i q = x86_load16(b->qs + 16 * g + l), h = x86_load16(b->qh + l);

                x86_scale_min(y + 32 * g + l, five(x86_low(q), h, g), scale_lo, min_lo);
                x86_scale_min(y + 32 * g + l + 32, five(x86_high(q), h, g + 1), scale_hi, min_hi);
            }
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g++) {
            __m512 scale = _mm512_set1_ps(d * (float)sm[g]);
            __m512 min = _mm512_set1_ps(dmin * (float)sm[g + 8]);

            for (int l = 0; l < 32; l += 16) {
                __m128i q = x86_load16(b->qs + g / 2 * 32 + l), h = x86_load16(b->qh + l);
                __m512  v = x86_floats(five(g % 2 == 0 ? x86_low(q) : x86_high(q), h, g));

                _mm512_storeu_ps(y + 32 * g + l, _mm512_sub_ps(_mm512_mul_ps(scale, v), min));
            }
        }
    }
}
#endif

const struct quant_type quant_type_q5_k = {
    .name = "q5_k",
    .id = 13,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q5_k),
    .decode = decode,
    X86_DECODERS
};
