/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.c - x = (d s) (q - 32), s 8 bits for each 16 elements. */
#include "quant/q6_k.h"

#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *lo = b->ql + g / 8 * 64 + g % 4 * 16;
            const uint8_t *hi = b->qh + g / 8 * 32 + g % 2 * 16;
            float          scale = d * (float)b->sc[g];
            int            nibble = g % 8 / 4 * 4, pair = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++) {
                int v = (lo[l] >> nibble & 15) | (hi[l] >> pair & 3) << 4;

                y[16 * g + l] = scale * (float)(v - 32);
            }
        }
    }
}

#if defined(__x86_64__)
/* Elements 16 g to 16 g + 15: nibbles of ql with pairs of bits of qh above them, minus 32. */
TARGET_AVX2 static inline __m128i six(const struct quant_q6_k *b, int g)
{
    __m128i lo = x86_load16(b->ql + g / 8 * 64 + g % 4 * 16);
    __m128i hi = x86_load16(b->qh + g / 8 * 32 + g % 2 * 16);
    int     pair = g % 8 / 2;

    lo = g % 8 < 4 ? x86_low(lo) : x86_high(lo);
    hi = pair < 2 ? _mm_slli_epi16(hi, 4 - 2 * pair) : _mm_srli_epi16(hi, 2 * pair - 4);
    hi = _mm_and_si128(hi, _mm_set1_epi8(48));
    return _mm_sub_epi8(_mm_or_si128(lo, hi), _mm_set1_epi8(32));
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 16; g++)
            x86_scale(y + 16 * g, six(b, g), _mm256_set1_ps(d * (float)b->sc[g]));
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 16; g++) {
            __m512 scale = _mm512_set1_ps(d * (float)b->sc[g]);

            _mm512_storeu_ps(y + 16 * g, _mm512_mul_ps(scale, x86_floats(six(b, g))));
        }
    }
}
#endif

const struct quant_type quant_type_q6_k = {
    .name = "q6_k",
    .id = 14,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q6_k),
    .decode = decode,
    X86_DECODERS
};
