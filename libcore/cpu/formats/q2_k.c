/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.c - products and fast decoding of q2_k (quant/q2_k.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/q2_k.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
            int shift = g % 8 / 2 * 2;

            u->sub[g] = (int8_t)(b->sc[g] & 15);
            u->scale[g / 2] = d;
            u->min[g % 2 * 8 + g / 2] = dmin * (float)(b->sc[g] >> 4);
            for (int l = 0; l < 16; l++)
                u->code[16 * g + l] = (int8_t)(q[l] >> shift & 3);
        }
    }
}

CPU_INTS(q2_k)

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q2_k *b)
{
    const __m256i three = _mm256_set1_epi8(3);
    __m128i sc = x86_load16(b->sc);

    x86_scale(u->scale, x86_low(sc), _mm256_set1_ps(_cvtsh_ss(b->d)));
    x86_scale(u->min, x86_high(sc), _mm256_set1_ps(_cvtsh_ss(b->dmin)));
    for (int half = 0; half < 2; half++) {
        __m256i q = _mm256_loadu_si256((const void *)(b->qs + 32 * half));

        for (int k = 0; k < 4; k++, q = _mm256_srli_epi16(q, 2))
            x86_store32(u->v + 128 * half + 32 * k, _mm256_and_si256(q, three));
    }
}

X86_DECODE_MIN(struct quant_q2_k)

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_q2_k *b)
{
    __m128i sc = x86_load16(b->sc), s = x86_low(sc), m = x86_high(sc);
    float dmin = _cvtsh_ss(b->dmin);

    x86_scales_16(t, s);
    min[0] = x86_floats_of(m, dmin);
    min[1] = x86_floats_of(_mm_unpackhi_epi64(m, m), dmin);
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_q2_k *b, int g)
{
    __m256i q = x86_load32(b->qs + g / 4 * 32), three = _mm256_set1_epi16(3);

    (void)t;
    w[0] = _mm256_and_si256(_mm256_srli_epi16(q, g % 4 * 2), three);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(q, g % 4 * 2 + 8), three);
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_q2_k *b)
{
    const __m512i three = _mm512_set1_epi16(3);
    __m128i sc = x86_load16(b->sc);
    __m256i s = _mm256_cvtepu8_epi16(x86_low(sc));

    u->min = x86_times(x86_high(sc), _cvtsh_ss(b->dmin));
#define CODES(c, h) \
    do { \
        __m512i q = X86_SHIFT(x86_twice(b->qs + 32 * (c)), 2 * (h), 2 * (h) + 4); \
        X86_STORE(u, c, h, _mm512_and_si512(q, three), _mm512_and_si512(_mm512_srli_epi16(q, 8), three), \
                  x86_two_words(s, 4 * (c) + (h))); \
    } while (0)
    CODES(0, 0);
    CODES(0, 1);
    CODES(1, 0);
    CODES(1, 1);
#undef CODES
    return _cvtsh_ss(b->d);
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q2_k *b)
{
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m128i sc = x86_load16(b->sc), m = _mm_shuffle_epi8(x86_high(sc), even_odd);
    __m128 d;
    int32_t both;

    memcpy(&both, &b->d, sizeof(both));
    d = _mm_cvtph_ps(_mm_cvtsi32_si128(both));
    x86_subs(t, x86_low(sc), 0);
    t->scale = _mm256_broadcastss_ps(d);
    d = _mm_movehdup_ps(d);
    t->min[0] = x86_floats_of(m, _mm_cvtss_f32(d));
    t->min[1] = x86_floats_of(_mm_unpackhi_epi64(m, m), _mm_cvtss_f32(d));
}

X86_WORDS __m256i lane_codes(const struct quant_q2_k *b, int g)
{
    return _mm256_and_si256(_mm256_srli_epi16(x86_load32(b->qs + g / 4 * 32), g % 4 * 2), _mm256_set1_epi8(3));
}

#define BLOCK  struct quant_q2_k
#define N_MIN  16
#define SCALES 16
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_HALVES_8
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  0
#define SPAN 3
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q2_k *b)
{
    const __m128i halves = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m128i sc = x86_load16(b->sc);

    fours_subs(u, _cvtsh_ss(b->d), x86_low(sc));
    _mm512_storeu_ps(u->min, x86_times(_mm_shuffle_epi8(x86_high(sc), halves), _cvtsh_ss(b->dmin)));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q2_k *b)
{
    const __m512i at = FOURS_DWORDS(0, 0, 0, 0, 8, 8, 8, 8);
    const __m512i two =
        _mm512_setr_epi64(FOURS_BITS(0, 2, 0), FOURS_BITS(2, 2, 0), FOURS_BITS(4, 2, 0), FOURS_BITS(6, 2, 0),
                          FOURS_BITS(0, 2, 0), FOURS_BITS(2, 2, 0), FOURS_BITS(4, 2, 0), FOURS_BITS(6, 2, 0));
    __m512i q = x86_load64(b->qs);

#define PART(k) v[k] = _mm512_gf2p8affine_epi64_epi8(_mm512_permutexvar_epi32(FOURS_PLUS(at, k), q), two, 0);
    EACH_4(PART)
#undef PART
}

#define SUB_16 1
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_q2_k = { .type = QUANT_q2_k,
                                            X86_DECODERS.n_min = 16,
                                            .sub_16 = true,
                                            .ints = ints,
                                            .bytes = bytes_scalar,
                                            X86_INTS X86_LANES X86_FOURS };
