/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.c - x = a scale of 8 bits for each 16 times a 4-bit float. */
#include "quant/nvfp4.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

/* Half of an E4M3 number without sign, for the table holds doubled values. The top bit is ignored;
 * 0x7f, E4M3's NaN, counts as 0. */
static float half_scale(uint8_t v)
{
    uint32_t exp = v >> 3 & 15u, man = v & 7u;

    if (v == 0x7f)
        return 0.0f;
    if (exp == 0)
        return (float)man * 0x1p-10f;
    return half_bits_f32((exp + 119) << 23 | man << 20);
}

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_nvfp4 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        for (int g = 0; g < 4; g++) {
            const uint8_t *q = b->qs + 8 * g;
            float          d = half_scale(b->d[g]);

            for (int j = 0; j < 8; j++) {
                y[16 * g + j] = (float)quant_fp4_values[q[j] & 15] * d;
                y[16 * g + j + 8] = (float)quant_fp4_values[q[j] >> 4] * d;
            }
        }
    }
}

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
            x86_scale(y + 16 * g, values(b->qs + 8 * g), _mm256_set1_ps(half_scale(b->d[g])));
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_nvfp4 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        for (int g = 0; g < 4; g++) {
            __m512 d = _mm512_set1_ps(half_scale(b->d[g]));

            _mm512_storeu_ps(y + 16 * g, _mm512_mul_ps(d, x86_floats(values(b->qs + 8 * g))));
        }
    }
}
#endif

const struct quant_type quant_type_nvfp4 = {
    .name = "nvfp4",
    .id = 40,
    .block_elems = 64,
    .block_bytes = sizeof(struct quant_nvfp4),
    .decode = decode,
    X86_DECODERS
};
