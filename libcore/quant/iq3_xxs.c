/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_xxs.c - x = d (s + 1/2) / 2 times a signed magnitude, s 4 bits for each 32. */
#include "quant/iq3_xxs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void quad(float *y, float scale, unsigned entry, unsigned signs)
{
    static const float value[16] = { 4,  12,  20,  28,  36,  44,  52,  62,
                                     -4, -12, -20, -28, -36, -44, -52, -62 };

    for (unsigned k = 0; k < 4; k++)
        y[k] = scale * value[(entry >> 4 * k & 7u) | (signs >> k & 1u) << 3];
}

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_xxs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            uint32_t aux;

            memcpy(&aux, b->aux + 4 * g, sizeof(aux));
            float scale = d * (0.5f + (float)(aux >> 28)) * 0.5f;

            for (int l = 0; l < 8; l++) {
                unsigned signs = iq_signs(aux >> l / 2 * 7 & 127u) >> l % 2 * 4;

                quad(y + 32 * g + 4 * l, scale, quant_iq3xxs_grid[b->qs[8 * g + l]], signs);
            }
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_iq3_xxs *b)
{
    const uint16_t *grid = quant_iq3xxs_grid;
    const __m128i   value = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);
    float           d = _cvtsh_ss(b->d);

    for (int g = 0; g < 8; g++) {
        const uint8_t *q = b->qs + 8 * g;
        uint32_t       aux, signs;

        memcpy(&aux, b->aux + 4 * g, sizeof(aux));
        signs = iq_signs_4(aux);
        __m128i e = _mm_set_epi64x(
            (int64_t)iq_pack(grid[q[4]], grid[q[5]], grid[q[6]], grid[q[7]]),
            (int64_t)iq_pack(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]]));
        __m128i lo = _mm_shuffle_epi8(value, x86_low(e)), hi = _mm_shuffle_epi8(value, x86_high(e));

        x86_store16(u->v + 32 * g, x86_negate(_mm_unpacklo_epi8(lo, hi), signs));
        x86_store16(u->v + 32 * g + 16, x86_negate(_mm_unpackhi_epi8(lo, hi), signs >> 16));
        u->scale[2 * g] = u->scale[2 * g + 1] = d * (0.5f + (float)(aux >> 28)) * 0.5f;
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_xxs *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx2(y, u.v, u.scale);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_xxs *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx512(y, u.v, u.scale);
    }
}
#endif

const struct quant_type quant_type_iq3_xxs = {
    .name = "iq3_xxs",
    .id = 18,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq3_xxs),
    .decode = decode,
    X86_DECODERS
};
