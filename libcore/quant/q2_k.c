/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.c - x = (d s) q - (dmin m), s and m 4 bits for each 16 elements. */
#include "quant/q2_k.h"

#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
            float          scale = d * (float)(b->sc[g] & 15), min = dmin * (float)(b->sc[g] >> 4);
            int            shift = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q2_k *b)
{
    const __m256i three = _mm256_set1_epi8(3);
    __m128i       sc = x86_load16(b->sc);

    x86_scale(u->scale, x86_low(sc), _mm256_set1_ps(_cvtsh_ss(b->d)));
    x86_scale(u->min, x86_high(sc), _mm256_set1_ps(_cvtsh_ss(b->dmin)));
    for (int half = 0; half < 2; half++) {
        __m256i q = _mm256_loadu_si256((const void *)(b->qs + 32 * half));

        for (int k = 0; k < 4; k++, q = _mm256_srli_epi16(q, 2))
            x86_store32(u->v + 128 * half + 32 * k, _mm256_and_si256(q, three));
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_min_avx2(y, u.v, u.scale, u.min);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_min_avx512(y, u.v, u.scale, u.min);
    }
}
#endif

const struct quant_type quant_type_q2_k = {
    .name = "q2_k",
    .id = 10,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q2_k),
    .decode = decode,
    X86_DECODERS
};
