/* SPDX-License-Identifier: Apache-2.0 */
/* q8_0.c - x = d q. */
#include "quant/q8_0.h"

#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 32; j++)
            y[j] = (float)b->qs[j] * d;
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));

        x86_scale(y, x86_load16(b->qs), d);
        x86_scale(y + 16, x86_load16(b->qs + 16), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 d = _mm512_set1_ps(_cvtsh_ss(b->d));

        _mm512_storeu_ps(y, _mm512_mul_ps(d, x86_floats(x86_load16(b->qs))));
        _mm512_storeu_ps(y + 16, _mm512_mul_ps(d, x86_floats(x86_load16(b->qs + 16))));
    }
}
#endif

const struct quant_type quant_type_q8_0 = {
    .name = "q8_0",
    .id = 8,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q8_0),
    .decode = decode,
    X86_DECODERS
};
