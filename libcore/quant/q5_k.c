/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.c - x = (d s) q - (dmin m), s and m 6 bits for each 32 elements. */
#include "quant/q5_k.h"

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float   d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + g / 2 * 32;
            float          scale = d * (float)sm[g], min = dmin * (float)sm[8 + g];
            int            shift = g % 2 * 4;

            for (int l = 0; l < 32; l++) {
                int v = (q[l] >> shift & 15) | (b->qh[l] >> g & 1) << 4;

                y[32 * g + l] = scale * (float)v - min;
            }
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q5_k *b)
{
    const __m256i one = _mm256_set1_epi8(1), low = _mm256_set1_epi8(15);
    __m256i       h = _mm256_loadu_si256((const void *)b->qh);
    uint8_t       sm[16];

    k_scales_45(sm, b->sc);
    x86_scales_45(u, x86_load16(sm), _cvtsh_ss(b->d), _cvtsh_ss(b->dmin));
    for (int g = 0; g < 8; g += 2) {
        __m256i q = _mm256_loadu_si256((const void *)(b->qs + 16 * g));

        for (int k = 0; k < 2; k++, q = _mm256_srli_epi16(q, 4), h = _mm256_srli_epi16(h, 1)) {
            __m256i high = _mm256_slli_epi16(_mm256_and_si256(h, one), 4);

            x86_store32(u->v + 32 * (g + k), _mm256_or_si256(_mm256_and_si256(q, low), high));
        }
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_min_avx2(y, u.v, u.scale, u.min);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_min_avx512(y, u.v, u.scale, u.min);
    }
}
#endif

const struct quant_type quant_type_q5_k = {
    .name = "q5_k",
    .id = 13,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q5_k),
    .decode = decode,
    X86_DECODERS
};
