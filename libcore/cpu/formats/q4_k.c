/* SPDX-License-Identifier: Apache-2.0 */
/* q4_k.c - products and fast decoding of q4_k (quant/q4_k.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_columns.h"
#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/q4_k.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q4_k *b = row;

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
                u->code[32 * g + l] = (int8_t)(q[l] >> shift & 15);
        }
    }
}

CPU_INTS(q4_k)

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q4_k *b)
{
    const __m256i low = _mm256_set1_epi8(15);
    uint8_t sm[16];

    k_scales_45(sm, b->sc);
    x86_scales_45(u, x86_load16(sm), _cvtsh_ss(b->d), _cvtsh_ss(b->dmin));
    for (int g = 0; g < 8; g += 2) {
        __m256i q = _mm256_loadu_si256((const void *)(b->qs + 16 * g));

        x86_store32(u->v + 32 * g, _mm256_and_si256(q, low));
        x86_store32(u->v + 32 * g + 32, _mm256_and_si256(_mm256_srli_epi16(q, 4), low));
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q4_k *b = row;
    struct x86_block u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_min_avx2(y, u.v, u.scale, u.min);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_q4_k *b = row;
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    struct x86_block u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        x86_scales_45(&u, x86_load16(sm), _cvtsh_ss(b->d), _cvtsh_ss(b->dmin));
        for (int g = 0; g < 8; g += 2) {
            __m512 lo = _mm512_mul_ps(codes, _mm512_set1_ps(u.scale[2 * g]));
            __m512 hi = _mm512_mul_ps(codes, _mm512_set1_ps(u.scale[2 * g + 2]));

            lo = _mm512_sub_ps(lo, _mm512_set1_ps(u.min[2 * g]));
            hi = _mm512_sub_ps(hi, _mm512_set1_ps(u.min[2 * g + 2]));
            x86_look_up(y + 32 * g, y + 32 * g + 32, b->qs + 16 * g, lo, hi);
            x86_look_up(y + 32 * g + 16, y + 32 * g + 48, b->qs + 16 * g + 16, lo, hi);
        }
    }
}

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_q4_k *b)
{
    return x86_take_45(t, min, b);
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_q4_k *b, int g)
{
    const __m256i low = _mm256_set1_epi16(15);
    __m256i q = x86_load32(b->qs + g / 2 * 32);

    (void)t;
    w[0] = _mm256_and_si256(g % 2 == 0 ? q : _mm256_srli_epi16(q, 4), low);
    w[1] = g % 2 == 0 ? _mm256_and_si256(_mm256_srli_epi16(q, 8), low) : _mm256_srli_epi16(q, 12);
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_q4_k *b)
{
    const __m512i low = _mm512_set1_epi16(15);
    __m128i sm = x86_scales_minima(b);
    __m256i s = _mm256_cvtepu8_epi16(sm);

    u->min = _mm512_castps256_ps512(x86_floats_of(_mm_unpackhi_epi64(sm, sm), _cvtsh_ss(b->dmin)));
#define HALF(c) \
    do { \
        __m512i q = _mm512_loadu_si512(b->qs + 64 * (c)), q1 = _mm512_srli_epi16(q, 4); \
        X86_STORE(u, c, 0, _mm512_and_si512(q, low), _mm512_and_si512(_mm512_srli_epi16(q, 8), low), \
                  x86_word(s, 4 * (c))); \
        X86_STORE(u, c, 1, _mm512_and_si512(q1, low), _mm512_srli_epi16(q, 12), x86_word(s, 4 * (c) + 1)); \
    } while (0)
    HALF(0);
    HALF(1);
#undef HALF
    return _cvtsh_ss(b->d);
}

X86_WORDS __m256i lane_codes(const struct quant_q4_k *b, int g, int h)
{
    const uint8_t *p = b->qs + g / 2 * 32 + 16 * h;

    return x86_nibble(x86_load_two(p, p + 64), g % 2 > 0);
}

#define BLOCK  struct quant_q4_k
#define N_MIN  8
#define SCALES 8
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_8
#define HALVES
#define SCALES_45
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  0
#define SPAN 15
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q4_k *b)
{
    const __m512i at = FOURS_DWORDS(0, 0, 8, 8, 16, 16, 24, 24), nibble = FOURS_NIBBLES;
    __m512i q0 = x86_load64(b->qs), q1 = x86_load64(b->qs + 64);

#define PART(k) v[k] = _mm512_gf2p8affine_epi64_epi8(_mm512_permutex2var_epi32(q0, FOURS_PLUS(at, k), q1), nibble, 0);
    EACH_4(PART)
#undef PART
}

#define SUB_16 0
#define SCALES_45
#include "cpu/formats/acts8_vbmi_body.h"

enum { HEAD = 256, PARTS = 4, PART = 512 };

X86_VBMI void lay_block(char *head, char *part, const char *const row[16], int64_t at)
{
    columns_lay_4(head, row, at);
    for (int p = 0; p < PARTS; p++)
        columns_lay_8(part + p * PART, row, at + 16 + 32 * p);
}

X86_VBMI void columns_numbers(const struct columns_numbers *to, const char *head)
{
    columns_scales_45(to, head);
}

X86_VBMI __m512i columns_code(const char *head, const char *part, int g, const int odd, const int i, const bool more)
{
    (void)head;
    (void)g;
    (void)more;
    return columns_move(columns_dword(part, i), FOURS_BITS(4 * odd, 4, 0));
}

#include "cpu/formats/acts8_laid_body.h"
#endif

const struct cpu_format cpu_format_q4_k = { .type = QUANT_q4_k,
                                            X86_DECODERS.n_min = 8,
                                            .ints = ints,
                                            .bytes = bytes_scalar,
                                            X86_INTS X86_LANES X86_FOURS X86_COLUMNS X86_LAID };
