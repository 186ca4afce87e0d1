/* SPDX-License-Identifier: Apache-2.0 */
/* q4_1.c - fast decoding of q4_1 (quant/q4_1.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"
#include "quant/q4_1.h"

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q4_1 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d)), less = _mm256_set1_ps(-_cvtsh_ss(b->m));
        __m256i v = x86_nibbles(b->qs);

        x86_scale_min(y, _mm256_castsi256_si128(v), d, less);
        x86_scale_min(y + 16, _mm256_extracti128_si256(v, 1), d, less);
    }
}
#endif

const struct cpu_format cpu_format_q4_1 = { .type = QUANT_q4_1, X86_DECODER };
