/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.c - products and fast decoding of q5_k (quant/q5_k.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_columns.h"
#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/q5_k.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + g / 2 * 32;
            int shift = g % 2 * 4;

            u->sub[2 * g] = u->sub[2 * g + 1] = (int8_t)sm[g];
            u->scale[g] = d;
            u->min[g] = dmin * (float)sm[8 + g];
            for (int l = 0; l < 32; l++)
                u->code[32 * g + l] = (int8_t)((q[l] >> shift & 15) | (b->qh[l] >> g & 1) << 4);
        }
    }
}

CPU_INTS(q5_k)

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q5_k *b)
{
    const __m256i one = _mm256_set1_epi8(1), low = _mm256_set1_epi8(15);
    __m256i h = _mm256_loadu_si256((const void *)b->qh);
    uint8_t sm[16];

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

X86_DECODE_MIN(struct quant_q5_k)

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_q5_k *b)
{
    return x86_take_45(t, min, b);
}

X86_WORDS __m256i group_codes(const struct quant_q5_k *b, int g)
{
    __m256i q = x86_load32(b->qs + g / 2 * 32), h = x86_bit(x86_load32(b->qh), g, 4);

    q = _mm256_and_si256(g % 2 == 0 ? q : _mm256_srli_epi16(q, 4), _mm256_set1_epi8(15));
    return _mm256_or_si256(q, _mm256_and_si256(h, _mm256_set1_epi8(16)));
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_q5_k *b, int g)
{
    (void)t;
    x86_split(w, group_codes(b, g));
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_q5_k *b)
{
    const __m512i low = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
    __m512i qh = x86_twice(b->qh);
    __m128i sm = x86_scales_minima(b);
    __m256i s = _mm256_cvtepu8_epi16(sm);

    u->min = _mm512_castps256_ps512(x86_floats_of(_mm_unpackhi_epi64(sm, sm), _cvtsh_ss(b->dmin)));
#define CODES(c, h) \
    do { \
        __m512i q = _mm512_srli_epi16(_mm512_loadu_si512(b->qs + 64 * (c)), 4 * (h)); \
        __m512i top = X86_TURN(qh, 4 * (c) + (h)-4, 4 * (c) + (h)-2); \
        q = _mm512_or_si512(_mm512_and_si512(q, low), _mm512_and_si512(top, fifth)); \
        X86_STORE(u, c, h, X86_EVEN(q), X86_ODD(q), x86_word(s, 4 * (c) + (h))); \
    } while (0)
    CODES(0, 0);
    CODES(0, 1);
    CODES(1, 0);
    CODES(1, 1);
#undef CODES
    return _cvtsh_ss(b->d);
}

X86_WORDS __m256i lane_codes(const struct quant_q5_k *b, int g, int h)
{
    const uint8_t *p = b->qs + g / 2 * 32 + 16 * h;
    __m256i q = x86_load_two(p, p + 64), top = _mm256_broadcastsi128_si256(x86_load16(b->qh + 16 * h));

    top = x86_bit(_mm256_srlv_epi32(top, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), g, 4);
    return _mm256_or_si256(x86_nibble(q, g % 2 > 0), _mm256_and_si256(top, _mm256_set1_epi8(16)));
}

#define BLOCK  struct quant_q5_k
#define N_MIN  8
#define SCALES 8
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_8
#define HALVES
#define SCALES_45
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  0
#define SPAN 31
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q5_k *b)
{
    const __m512i at = FOURS_DWORDS(0, 0, 8, 8, 16, 16, 24, 24), nibble = FOURS_NIBBLES;
    const __m512i fifth =
        _mm512_setr_epi64(FOURS_BITS(0, 1, 4), FOURS_BITS(1, 1, 4), FOURS_BITS(2, 1, 4), FOURS_BITS(3, 1, 4),
                          FOURS_BITS(4, 1, 4), FOURS_BITS(5, 1, 4), FOURS_BITS(6, 1, 4), FOURS_BITS(7, 1, 4));
    __m512i q0 = x86_load64(b->qs), q1 = x86_load64(b->qs + 64);

    fours_masks(v, b->qh);
#define PART(k) \
    v[k] = _mm512_or_si512( \
        _mm512_gf2p8affine_epi64_epi8(_mm512_permutex2var_epi32(q0, FOURS_PLUS(at, k), q1), nibble, 0), \
        _mm512_gf2p8affine_epi64_epi8(v[k], fifth, 0));
    EACH_4(PART)
#undef PART
}

#define SUB_16 0
#define SCALES_45
#include "cpu/formats/acts8_vbmi_body.h"

enum { HEAD = 256 + 512, PARTS = 4, PART = 512 };

X86_VBMI void lay_block(char *head, char *part, const char *const row[16], int64_t at)
{
    columns_lay_4(head, row, at);
    columns_lay_8(head + 256, row, at + 16);
    for (int p = 0; p < PARTS; p++)
        columns_lay_8(part + p * PART, row, at + 48 + 32 * p);
}

X86_VBMI void columns_numbers(const struct columns_numbers *to, const char *head)
{
    columns_scales_45(to, head);
}

X86_VBMI __m512i columns_code(const char *head, const char *part, int g, const int odd, const int i, const bool more)
{
    (void)more;
    return _mm512_or_si512(columns_move(columns_dword(part, i), FOURS_BITS(4 * odd, 4, 0)),
                           columns_move(columns_dword(head, 4 + i), FOURS_BITS(odd, 1, 4) << g));
}

#include "cpu/formats/acts8_laid_body.h"
#endif

const struct cpu_format cpu_format_q5_k = { .type = QUANT_q5_k,
                                            X86_DECODERS.n_min = 8,
                                            .ints = ints,
                                            .bytes = bytes_scalar,
                                            X86_INTS X86_LANES X86_FOURS X86_COLUMNS X86_LAID };
