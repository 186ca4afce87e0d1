/* SPDX-License-Identifier: Apache-2.0 */
/* q3_k.c - products and fast decoding of q3_k (quant/q3_k.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/q3_k.h"

#include <stddef.h>

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q3_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        uint8_t sc[16];

        k_scales_3(sc, b->sc);
        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16, *h = b->hmask + g % 2 * 16;
            int shift = g % 8 / 2 * 2, bit = g / 2;

            u->sub[g] = (int8_t)(sc[g] - 32);
            u->scale[g / 2] = half_to_f32(b->d);
            for (int l = 0; l < 16; l++)
                u->code[16 * g + l] = (int8_t)((q[l] >> shift & 3) + (h[l] >> bit & 1) * 4 - 4);
        }
    }
}

CPU_INTS(q3_k)

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q3_k *b)
{
    const __m256i one = _mm256_set1_epi8(1), three = _mm256_set1_epi8(3);
    const __m256i four = _mm256_set1_epi8(4);
    __m256i h = _mm256_loadu_si256((const void *)b->hmask);
    uint8_t sc[16];

    k_scales_3(sc, b->sc);
    x86_scale(u->scale, _mm_sub_epi8(x86_load16(sc), _mm_set1_epi8(32)), _mm256_set1_ps(_cvtsh_ss(b->d)));
    for (int half = 0; half < 2; half++) {
        __m256i q = _mm256_loadu_si256((const void *)(b->qs + 32 * half));

        for (int k = 0; k < 4; k++, q = _mm256_srli_epi16(q, 2), h = _mm256_srli_epi16(h, 1)) {
            __m256i high = _mm256_slli_epi16(_mm256_and_si256(h, one), 2);
            __m256i v = _mm256_or_si256(_mm256_and_si256(q, three), high);

            x86_store32(u->v + 128 * half + 32 * k, _mm256_sub_epi8(v, four));
        }
    }
}

X86_DECODE_SCALED(struct quant_q3_k)

/* The 16 scales. */
TARGET_AVX2 static inline __m128i group_scales(const struct quant_q3_k *b)
{
    __m128i v = x86_load16((const char *)b + offsetof(struct quant_q3_k, sc) - 4);
    __m128i lo = _mm_srlv_epi32(_mm_shuffle_epi32(v, 0x99), _mm_setr_epi32(0, 0, 4, 4));
    __m128i hi = _mm_srlv_epi32(_mm_shuffle_epi32(v, 0xff), _mm_setr_epi32(0, 2, 4, 6));

    hi = _mm_slli_epi16(_mm_and_si128(hi, _mm_set1_epi8(3)), 4);
    return _mm_sub_epi8(_mm_or_si128(x86_low(lo), hi), _mm_set1_epi8(32));
}

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_q3_k *b)
{
    (void)min;
    x86_scales_16(t, group_scales(b));
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_q3_k *b, int g)
{
    const __m256i low = _mm256_set1_epi8(15);
    /* the first pair of bits in a nibble, or the second; less 4 where a bit of another nibble is not set */
    const __m256i pair = g % 2 == 0
                             ? _mm256_set1_epi32(0x03020100)
                             : _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303));
    const __m256i less = g % 4 == 0   ? _mm256_set1_epi16(0x00fc)
                         : g % 4 == 1 ? _mm256_set1_epi32(0x0000fcfc)
                         : g % 4 == 2 ? _mm256_set1_epi64x(0xfcfcfcfc)
                                      : _mm256_setr_epi64x(-0x0303030303030304, 0, -0x0303030303030304, 0);
    __m256i q = x86_load32(b->qs + g / 4 * 32), h = x86_load32(b->hmask);

    (void)t;
    q = _mm256_and_si256(g % 4 < 2 ? q : _mm256_srli_epi16(q, 4), low);
    h = _mm256_and_si256(g < 4 ? h : _mm256_srli_epi16(h, 4), low);
    x86_split_signed(w, _mm256_add_epi8(_mm256_shuffle_epi8(pair, q), _mm256_shuffle_epi8(less, h)));
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_q3_k *b)
{
    const __m512i three = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    __m512i mask = x86_twice(b->hmask);
    __m256i s = _mm256_cvtepi8_epi16(group_scales(b));

#define CODES(c, h) \
    do { \
        __m512i q = X86_SHIFT(x86_twice(b->qs + 32 * (c)), 2 * (h), 2 * (h) + 4); \
        __m512i t = X86_TURN(mask, 4 * (c) + (h)-2, 4 * (c) + (h)); \
        q = _mm512_or_si512(_mm512_and_si512(q, three), _mm512_and_si512(t, four)); \
        X86_STORE(u, c, h, X86_LESS(X86_EVEN(q), 4), X86_LESS(X86_ODD(q), 4), x86_two_words(s, 4 * (c) + (h))); \
    } while (0)
    CODES(0, 0);
    CODES(0, 1);
    CODES(1, 0);
    CODES(1, 1);
#undef CODES
    return _cvtsh_ss(b->d);
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q3_k *b)
{
    x86_subs(t, group_scales(b), 2);
    t->scale = _mm256_set1_ps(_cvtsh_ss(b->d));
}

X86_WORDS __m256i lane_codes(const struct quant_q3_k *b, int g)
{
    __m256i q = _mm256_srli_epi16(x86_load32(b->qs + g / 4 * 32), g % 4 * 2), h = x86_bit(x86_load32(b->hmask), g, 2);

    q = _mm256_and_si256(q, _mm256_set1_epi8(3));
    return _mm256_or_si256(q, _mm256_and_si256(h, _mm256_set1_epi8(4)));
}

#define BLOCK  struct quant_q3_k
#define N_MIN  0
#define SCALES 16
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_HALVES_8
#define MORE   4
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  4
#define SPAN 7
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q3_k *b)
{
    fours_subs(u, _cvtsh_ss(b->d), group_scales(b));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q3_k *b)
{
    const __m512i at = FOURS_DWORDS(0, 0, 0, 0, 8, 8, 8, 8);
    const __m512i two =
        _mm512_setr_epi64(FOURS_BITS(0, 2, 0), FOURS_BITS(2, 2, 0), FOURS_BITS(4, 2, 0), FOURS_BITS(6, 2, 0),
                          FOURS_BITS(0, 2, 0), FOURS_BITS(2, 2, 0), FOURS_BITS(4, 2, 0), FOURS_BITS(6, 2, 0));
    /* 124 more than 3 bits: bit 2 is also 7, and not 3 to 6 */
#define TOP(i) \
    (FOURS_BIT(i, 1, 2, 0) | FOURS_BIT(i, 1, 3, 0) | FOURS_BIT(i, 1, 4, 0) | FOURS_BIT(i, 1, 5, 0) | \
     FOURS_BIT(i, 1, 6, 0) | FOURS_BIT(i, 1, 7, 0))
    const __m512i top = _mm512_setr_epi64(TOP(0), TOP(1), TOP(2), TOP(3), TOP(4), TOP(5), TOP(6), TOP(7));
#undef TOP
    __m512i q = x86_load64(b->qs);

    fours_masks(v, b->hmask);
#define PART(k) \
    v[k] = _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8(_mm512_permutexvar_epi32(FOURS_PLUS(at, k), q), two, 0x7c), \
                            _mm512_gf2p8affine_epi64_epi8(v[k], top, 0));
    EACH_4(PART)
#undef PART
}

#define SUB_16 1
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_q3_k = {
    .type = QUANT_q3_k, X86_DECODERS.sub_16 = true, .ints = ints, .bytes = bytes_scalar, X86_INTS X86_LANES X86_FOURS
};
