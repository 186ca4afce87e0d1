/* SPDX-License-Identifier: Apache-2.0 */
/* f16.c - IEEE half floats. */
#include "quant/quant.h"

#include "quant/half.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = half_to_f32(h[i]);
}

static void encode(void *row, const float *x, int64_t n, const float *importance)
{
    uint16_t *h = row;

    (void)importance;
    for (int64_t i = 0; i < n; i++)
        h[i] = half_of_f32(x[i]);
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t         i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(x86_load16(h + i)));
    if (i < n)
        decode(y + i, h + i, n - i);
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;
    int64_t         i = 0;

#define SIXTEEN(k) _mm512_storeu_ps(y + i + 16 * (k), _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(h + i + 16 * (k)))));
    for (; i + 64 <= n; i += 64) {
        EACH_4(SIXTEEN)
    }
    for (; i + 16 <= n; i += 16)
        SIXTEEN(0)
#undef SIXTEEN
    if (i < n)
        decode(y + i, h + i, n - i);
}
#endif

const struct quant_type quant_type_f16 = {
    .name = "f16",
    .id = 1,
    .block_elems = 1,
    .block_bytes = sizeof(uint16_t),
    .decode = decode,
    X86_DECODERS
    .encode = encode,
};
