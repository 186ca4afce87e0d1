/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_s.c - x = d (s + 1/2) / 4 times a signed magnitude, s 4 bits for each 16. */
#include "quant/iq2_s.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 32; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 4] >> g % 4 * 2 & 3u) << 8;
            int      s = b->sc[g / 4] >> g % 4 / 2 * 4 & 15;

            iq_octet(y + 8 * g, d * (0.5f + (float)s) * 0.25f, quant_iq2s_grid[code], b->signs[g]);
        }
    }
}

/* d / 8 times odd numbers times magnitudes. */
static void bytes_scalar(struct quant_bytes *u, const void *row, int64_t n)
{
    const struct quant_iq2_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 32; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 4] >> g % 4 * 2 & 3u) << 8;

            u->sub[g / 2] = (int8_t)(2 * (b->sc[g / 4] >> g % 4 / 2 * 4 & 15) + 1);
            u->scale[g / 4] = half_to_f32(b->d) * 0.125f;
            iq_octet_bytes(u->code + 8 * g, quant_iq2s_grid[code], b->signs[g]);
        }
}

QUANT_INTS(iq2_s)

#if defined(__x86_64__)
X86_WORDS void places(struct x86_book *t, const struct quant_iq2_s *b)
{
    const __m256i spread = _mm256_setr_epi64x((int64_t)0x8000800080008000, (int64_t)0x8001800180018001,
                                              (int64_t)0x8002800280028002, (int64_t)0x8003800380038003);
    const __m256i up = _mm256_set1_epi64x(0x0001000400100040);

    for (int k = 0; k < 32; k += 16) { /* 2 bits of qh for each code, moved to bits 6 and 7, then to 8 and 9 */
        int32_t four;

        memcpy(&four, b->qh + k / 4, sizeof(four));
        __m256i h = _mm256_mullo_epi16(_mm256_shuffle_epi8(_mm256_set1_epi32(four), spread), up);

        h = _mm256_slli_epi16(_mm256_and_si256(h, _mm256_set1_epi16(192)), 2);
        h = _mm256_or_si256(h, _mm256_cvtepu8_epi16(x86_load16(b->qs + k)));
        _mm256_storeu_si256((void *)(t->at + k), h);
    }
}

X86_WORDS __m256i magnitudes(const struct x86_book *t, const struct quant_iq2_s *b, int g)
{
    (void)b;
    return x86_octets(quant_iq2s_bytes, t->at + 4 * g);
}

X86_WORDS const uint8_t *signs(const struct x86_book *t, const struct quant_iq2_s *b, int g)
{
    (void)t;
    return b->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq2_s)

TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_iq2_s *b)
{
    float d = _cvtsh_ss(b->d);

    codes(u->v, b);
    for (int g = 0; g < 8; g++) {
        u->scale[2 * g] = d * (0.5f + (float)(b->sc[g] & 15)) * 0.25f;
        u->scale[2 * g + 1] = d * (0.5f + (float)(b->sc[g] >> 4)) * 0.25f;
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_s *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx2(y, u.v, u.scale);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_s *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx512(y, u.v, u.scale);
    }
}

X86_VBMI void bytes(struct x86_bytes v[4], const struct x86_taken *t, const struct quant_iq2_s *b)
{
    (void)b;
    x86_octets_256(v, quant_iq2s_bytes, &t->book);
}

#define BLOCK   struct quant_iq2_s
#define N_MIN   0
#define SCALES  16
#define NO_AVX512
#include "quant/iq2_body.h"
#include "quant/ints_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_HALVES_4
#define BOOK
#include "quant/lanes_body.h"

#define LOW  43
#define SPAN 86
#include "quant/codes_body.h"

#define KIND X86_SIGNED
#include "quant/bytes_body.h"
#endif

const struct quant_type quant_type_iq2_s = {
    .name = "iq2_s",
    .id = 22,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_s),
    .decode = decode,
    X86_DECODERS
    .sub_16 = true,
    .ints = ints,
    .bytes = bytes_scalar,
    X86_INTS_AVX2
    X86_LANES
    X86_BYTES
};
