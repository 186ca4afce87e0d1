/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_k.c - fast decoding of iq4_k (quant/iq4_k.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"
#include "quant/iq4_k.h"
#include "quant/iq_grids.h"

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++, y += 32) {
            const int8_t *value0 = quant_iq4k_values + (b->extra >> 2 * g & 1) * 16;
            const int8_t *value1 = quant_iq4k_values + (b->extra >> 2 * g >> 1 & 1) * 16;
            int h = b->sh[g / 2] >> g % 2 * 4;
            float s0 = d * (float)(((b->sl[g] & 15) | (h & 3) << 4) - 32);
            float s1 = d * (float)((b->sl[g] >> 4 | (h & 12) << 2) - 32);
            __m128i q = x86_load16(b->qs + 16 * g);

            x86_scale(y, _mm_shuffle_epi8(x86_load16(value0), x86_low(q)), _mm256_set1_ps(s0));
            x86_scale(y + 16, _mm_shuffle_epi8(x86_load16(value1), x86_high(q)), _mm256_set1_ps(s1));
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++, y += 32) {
            const int8_t *value0 = quant_iq4k_values + (b->extra >> 2 * g & 1) * 16;
            const int8_t *value1 = quant_iq4k_values + (b->extra >> 2 * g >> 1 & 1) * 16;
            int h = b->sh[g / 2] >> g % 2 * 4;
            float s0 = d * (float)(((b->sl[g] & 15) | (h & 3) << 4) - 32);
            float s1 = d * (float)((b->sl[g] >> 4 | (h & 12) << 2) - 32);
            __m512 t0 = _mm512_mul_ps(x86_floats(x86_load16(value0)), _mm512_set1_ps(s0));
            __m512 t1 = _mm512_mul_ps(x86_floats(x86_load16(value1)), _mm512_set1_ps(s1));

            x86_look_up(y, y + 16, b->qs + 16 * g, t0, t1);
        }
    }
}
#endif

const struct cpu_format cpu_format_iq4_k = { .type = QUANT_iq4_k, X86_DECODERS };
