/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.c - x = d (s - 32) value(q), s 6 bits for each 32. */
#include "quant/iq4_xs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            int            s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            float          scale = d * (float)(s - 32);

            for (int j = 0; j < 16; j++) {
                y[32 * g + j] = scale * (float)quant_iq4nl_values[q[j] & 15];
                y[32 * g + j + 16] = scale * (float)quant_iq4nl_values[q[j] >> 4];
            }
        }
    }
}

static void ints(struct quant_ints *u, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        quant_ints_scale(u, half_to_f32(b->d));
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            int s = ((b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4) - 32;

            for (int j = 0; j < 16; j++) {
                u->w[32 * g + j] = (int16_t)(s * quant_iq4nl_values[q[j] & 15]);
                u->w[32 * g + j + 16] = (int16_t)(s * quant_iq4nl_values[q[j] >> 4]);
            }
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    const __m128i value = x86_load16(quant_iq4nl_values);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int     s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m256  scale = _mm256_set1_ps(d * (float)(s - 32));
            __m128i q = x86_load16(b->qs + 16 * g);

            x86_scale(y + 32 * g, _mm_shuffle_epi8(value, x86_low(q)), scale);
            x86_scale(y + 32 * g + 16, _mm_shuffle_epi8(value, x86_high(q)), scale);
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    const __m512 value = x86_floats(x86_load16(quant_iq4nl_values));

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int    s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(d * (float)(s - 32)));

            x86_look_up(y + 32 * g, y + 32 * g + 16, b->qs + 16 * g, table, table);
        }
    }
}

TARGET_AVX2 static inline float parts(struct x86_block *u, int8_t s[16], const struct quant_iq4_xs *b)
{
    const __m128i value = x86_load16(quant_iq4nl_values);

    for (int g = 0; g < 8; g++) {
        __m128i q = x86_load16(b->qs + 16 * g);
        int     scale = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;

        x86_store16(u->v + 32 * g, _mm_shuffle_epi8(value, x86_low(q)));
        x86_store16(u->v + 32 * g + 16, _mm_shuffle_epi8(value, x86_high(q)));
        s[2 * g] = s[2 * g + 1] = (int8_t)(scale - 32);
    }
    return _cvtsh_ss(b->d);
}

TARGET_AVX512 static inline __m256i scales(const struct quant_iq4_xs *b)
{
    int nibbles;

    memcpy(&nibbles, b->sl, sizeof(nibbles));
    __m128i sl = _mm_cvtsi32_si128(nibbles), sh = _mm_set1_epi16((short)b->sh);

    sl = _mm_cvtepu8_epi16(_mm_unpacklo_epi8(x86_low(sl), x86_high(sl)));
    sh = _mm_srlv_epi16(sh, _mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14));
    sh = _mm_slli_epi16(_mm_and_si128(sh, _mm_set1_epi16(3)), 4);
    return _mm256_castsi128_si256(_mm_sub_epi16(_mm_or_si128(sl, sh), _mm_set1_epi16(32)));
}

X86_WHOLE float whole(struct x86_ints *u, const struct quant_iq4_xs *b)
{
    const __m512i value = _mm512_broadcast_i32x4(x86_load16(quant_iq4nl_values));
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m256i       s = scales(b);

#define TWO(g, v) \
    u->w[g] = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(_mm512_castsi512_si256(v)), x86_word(s, g)); \
    u->w[(g) + 1] = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(v, 1)), \
                                       x86_word(s, (g) + 1))
#define HALF(k) \
    do { \
        __m512i q = _mm512_loadu_si512(b->qs + 64 * (k)); \
        __m512i lo = _mm512_shuffle_epi8(value, _mm512_and_si512(q, low)); \
        __m512i hi = _mm512_shuffle_epi8(value, _mm512_and_si512(_mm512_srli_epi16(q, 4), low)); \
        q = _mm512_permutex2var_epi64(lo, first, hi); \
        lo = _mm512_permutex2var_epi64(lo, second, hi); \
        TWO(4 * (k), q); \
        TWO(4 * (k) + 2, lo); \
    } while (0)
    HALF(0);
    HALF(1);
#undef HALF
#undef TWO
    return _cvtsh_ss(b->d);
}

#define BLOCK   struct quant_iq4_xs
#define HAS_MIN false
#include "quant/ints_body.h"
#endif

const struct quant_type quant_type_iq4_xs = {
    .name = "iq4_xs",
    .id = 23,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq4_xs),
    .decode = decode,
    X86_DECODERS
    .ints = ints,
    X86_INTS
};
