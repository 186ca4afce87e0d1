/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.c - fast decoding of nvfp4 (quant/nvfp4.c). */
#include "cpu/format.h"
#include "cpu/formats/x86.h"
#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/nvfp4.h"

#if defined(__x86_64__)
TARGET_AVX2 static inline __m128i values(const uint8_t *q)
{
    __m128i v = _mm_loadl_epi64((const void *)q);

    v = _mm_unpacklo_epi64(x86_low(v), x86_high(v));
    return _mm_shuffle_epi8(x86_load16(quant_fp4_values), v);
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_nvfp4 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        for (int g = 0; g < 4; g++)
            x86_scale(y + 16 * g, values(b->qs + 8 * g), _mm256_set1_ps(nvfp4_half_scale(b->d[g])));
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_nvfp4 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        for (int g = 0; g < 4; g++) {
            __m512 d = _mm512_set1_ps(nvfp4_half_scale(b->d[g]));

            _mm512_storeu_ps(y + 16 * g, _mm512_mul_ps(d, x86_floats(values(b->qs + 8 * g))));
        }
    }
}
#endif

const struct cpu_format cpu_format_nvfp4 = { .type = QUANT_nvfp4, X86_DECODERS };
