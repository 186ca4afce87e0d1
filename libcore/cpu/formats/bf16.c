/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.c - fast decoding of bf16 (quant/bf16.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"

#if defined(__x86_64__)
TARGET_AVX2 static inline __m256 floats_avx2(const uint16_t *h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x86_load16(h)), 16));
}

TARGET_AVX512 static inline __m512 floats_avx512(const uint16_t *h)
{
    __m256i v = _mm256_loadu_si256((const void *)h);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, floats_avx2(h + i));
    quant_types[QUANT_bf16]->decode(y + i, h + i, n - i);
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, floats_avx512(h + i));
    quant_types[QUANT_bf16]->decode(y + i, h + i, n - i);
}
#endif

const struct cpu_format cpu_format_bf16 = { .type = QUANT_bf16, X86_DECODERS };
