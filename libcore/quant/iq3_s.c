/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.c - x = d (2 s + 1) times a signed odd magnitude, s 4 bits for each 32. */
#include "quant/iq3_s.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 64; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 8] >> g % 8 & 1u) << 8;
            unsigned entry = quant_iq3s_grid[code], signs = b->signs[g / 2] >> g % 2 * 4;
            float    scale = d * (float)(1 + 2 * (b->sc[g / 16] >> g % 16 / 8 * 4 & 15));

            for (unsigned k = 0; k < 4; k++) {
                int mag = (int)(entry >> 4 * k & 7u) * 2 + 1;

                y[4 * g + (int)k] = scale * (float)((signs >> k & 1u) != 0 ? -mag : mag);
            }
        }
    }
}

#if defined(__x86_64__)
static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* The digits of the 8 quads of group g of 32 elements, as bytes. */
TARGET_AVX2 static inline void digits(__m128i v[2], const struct quant_iq3_s *b, int g)
{
    const uint8_t  *q = b->qs + 8 * g;
    const uint16_t *grid = quant_iq3s_grid;
    unsigned        h = (unsigned)b->qh[g] << 8;
    int             e[8];

    for (int l = 0; l < 8; l++)
        e[l] = grid[q[l] | (h >> l & 256u)];
    __m128i packed = _mm_packus_epi32(_mm_setr_epi32(e[0], e[1], e[2], e[3]),
                                      _mm_setr_epi32(e[4], e[5], e[6], e[7]));
    __m128i lo = x86_low(packed), hi = x86_high(packed);

    v[0] = _mm_unpacklo_epi8(lo, hi);
    v[1] = _mm_unpackhi_epi8(lo, hi);
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;
    const __m128i spread = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i bits = _mm_set1_epi64x((int64_t)0x8040201008040201u);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int     s = b->sc[g / 2] >> g % 2 * 4 & 15;
            __m256  scale = _mm256_set1_ps(d * (float)(1 + 2 * s));
            __m128i v[2];

            digits(v, b, g);
            for (int l = 0; l < 2; l++) {
                __m128i odd = _mm_add_epi8(_mm_add_epi8(v[l], v[l]), _mm_set1_epi8(1));
                __m128i signs = _mm_set1_epi16((short)load_u16(b->signs + 4 * g + 2 * l));
                __m128i minus = _mm_and_si128(_mm_shuffle_epi8(signs, spread), bits);

                minus = _mm_cmpeq_epi8(minus, bits);
                odd = _mm_sub_epi8(_mm_xor_si128(odd, minus), minus);
                x86_scale(y + 32 * g + 16 * l, odd, scale);
            }
        }
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;
    const __m512  codes = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, /* and negative */
                                         -1, -3, -5, -7, -9, -11, -13, -15);
    const __m512i eight = _mm512_set1_epi32(8);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int     s = b->sc[g / 2] >> g % 2 * 4 & 15;
            __m512  table = _mm512_mul_ps(codes, _mm512_set1_ps(d * (float)(1 + 2 * s)));
            __m128i v[2];

            digits(v, b, g);
            for (int l = 0; l < 2; l++) {
                __m512i   q = _mm512_cvtepu8_epi32(v[l]);
                __mmask16 minus = load_u16(b->signs + 4 * g + 2 * l);

                q = _mm512_mask_or_epi32(q, minus, q, eight);
                _mm512_storeu_ps(y + 32 * g + 16 * l, _mm512_permutexvar_ps(q, table));
            }
        }
    }
}
#endif

const struct quant_type quant_type_iq3_s = {
    .name = "iq3_s",
    .id = 21,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq3_s),
    .decode = decode,
    X86_DECODERS
};
