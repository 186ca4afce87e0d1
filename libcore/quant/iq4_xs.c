/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.c - x = d (s - 32) value(q), s 6 bits for each 32. */
#include "quant/iq4_xs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            int            s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            float          scale = d * (float)(s - 32);

            for (int j = 0; j < 16; j++) {
                y[32 * g + j] = scale * (float)quant_iq4nl_values[q[j] & 15];
                y[32 * g + j + 16] = scale * (float)quant_iq4nl_values[q[j] >> 4];
            }
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    const __m128i value = x86_load16(quant_iq4nl_values);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int     s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m256  scale = _mm256_set1_ps(d * (float)(s - 32));
            __m128i q = x86_load16(b->qs + 16 * g);

            x86_scale(y + 32 * g, _mm_shuffle_epi8(value, x86_low(q)), scale);
            x86_scale(y + 32 * g + 16, _mm_shuffle_epi8(value, x86_high(q)), scale);
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    const __m512 value = x86_floats(x86_load16(quant_iq4nl_values));

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int    s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(d * (float)(s - 32)));

            x86_look_up(y + 32 * g, y + 32 * g + 16, b->qs + 16 * g, table, table);
        }
    }
}
#endif

const struct quant_type quant_type_iq4_xs = {
    .name = "iq4_xs",
    .id = 23,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq4_xs),
    .decode = decode,
    X86_DECODERS
};
