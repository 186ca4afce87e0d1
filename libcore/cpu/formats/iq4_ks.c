/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_ks.c - fast decoding of iq4_ks (quant/iq4_ks.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"
#include "quant/iq4_ks.h"
#include "quant/iq_grids.h"

#include <string.h>

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_ks *b = (const void *)((const unsigned char *)row + sizeof(float));
    float d;

    memcpy(&d, row, sizeof(d));
    for (int64_t i = 0; i < n / 256; i++, b++) {
        for (int g = 0; g < 8; g++, y += 32) {
            const int8_t *value = quant_iq4k_values + (b->sc[g] & 1) * 16;
            float s = d * (float)((b->sc[g] & 254) - 127);
            __m256 scale = _mm256_set1_ps(s);
            __m128i q = x86_load16(b->qs + 16 * g), v = x86_load16(value);

            x86_scale(y, _mm_shuffle_epi8(v, x86_low(q)), scale);
            x86_scale(y + 16, _mm_shuffle_epi8(v, x86_high(q)), scale);
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_ks *b = (const void *)((const unsigned char *)row + sizeof(float));
    float d;

    memcpy(&d, row, sizeof(d));
    for (int64_t i = 0; i < n / 256; i++, b++) {
        for (int g = 0; g < 8; g++, y += 32) {
            const int8_t *value = quant_iq4k_values + (b->sc[g] & 1) * 16;
            float s = d * (float)((b->sc[g] & 254) - 127);
            __m512 t = _mm512_mul_ps(x86_floats(x86_load16(value)), _mm512_set1_ps(s));

            x86_look_up(y, y + 16, b->qs + 16 * g, t, t);
        }
    }
}
#endif

const struct cpu_format cpu_format_iq4_ks = { .type = QUANT_iq4_ks, X86_DECODERS };
