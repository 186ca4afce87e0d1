/* SPDX-License-Identifier: Apache-2.0 */
/* f16.c - fast decoding of f16 (quant/f16.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(x86_load16(h + i)));
    if (i < n)
        quant_types[QUANT_f16]->decode(y + i, h + i, n - i);
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t i = 0;

#define SIXTEEN(k) \
    _mm512_storeu_ps(y + i + 16 * (k), _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(h + i + 16 * (k)))));
    for (; i + 64 <= n; i += 64) {
        EACH_4(SIXTEEN)
    }
    for (; i + 16 <= n; i += 16)
        SIXTEEN(0)
#undef SIXTEEN
    if (i < n)
        quant_types[QUANT_f16]->decode(y + i, h + i, n - i);
}
#endif

const struct cpu_format cpu_format_f16 = { .type = QUANT_f16, X86_DECODERS };
