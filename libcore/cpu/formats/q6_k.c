/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.c - products and fast decoding of q6_k (quant/q6_k.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_columns.h"
#include "quant/half.h"
#include "quant/q6_k.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 16; g++) {
            const uint8_t *lo = b->ql + g / 8 * 64 + g % 4 * 16;
            const uint8_t *hi = b->qh + g / 8 * 32 + g % 2 * 16;
            int nibble = g % 8 / 4 * 4, pair = g % 8 / 2 * 2;

            u->sub[g] = b->sc[g];
            u->scale[g / 2] = half_to_f32(b->d);
            for (int l = 0; l < 16; l++)
                u->code[16 * g + l] = (int8_t)(((lo[l] >> nibble & 15) | (hi[l] >> pair & 3) << 4) - 32);
        }
}

CPU_INTS(q6_k)

#if defined(__x86_64__)
/* 32 elements: the low nibbles of the bytes q, bits 4 and 5 of the bytes h, minus 32. */
TARGET_AVX2 static inline __m256i six(__m256i q, __m256i h)
{
    __m256i lo = _mm256_and_si256(q, _mm256_set1_epi8(15));
    __m256i hi = _mm256_and_si256(h, _mm256_set1_epi8(48));

    return _mm256_sub_epi8(_mm256_or_si256(lo, hi), _mm256_set1_epi8(32));
}

TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_q6_k *b)
{
    x86_scale(u->scale, x86_load16(b->sc), _mm256_set1_ps(_cvtsh_ss(b->d)));
    for (int half = 0; half < 2; half++) {
        __m256i q0 = _mm256_loadu_si256((const void *)(b->ql + 64 * half));
        __m256i q1 = _mm256_loadu_si256((const void *)(b->ql + 64 * half + 32));
        __m256i h = _mm256_loadu_si256((const void *)(b->qh + 32 * half));
        int8_t *v = u->v + 128 * half;

        x86_store32(v, six(q0, _mm256_slli_epi16(h, 4)));
        x86_store32(v + 32, six(q1, _mm256_slli_epi16(h, 2)));
        x86_store32(v + 64, six(_mm256_srli_epi16(q0, 4), h));
        x86_store32(v + 96, six(_mm256_srli_epi16(q1, 4), _mm256_srli_epi16(h, 2)));
    }
}

X86_DECODE_SCALED(struct quant_q6_k)

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_q6_k *b)
{
    (void)min;
    x86_scales_16(t, x86_load16(b->sc));
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_q6_k *b, int g)
{
    /* what the first pair of high bits in a nibble, and the second, add to four bits, less 32 */
    const __m256i first = _mm256_set1_epi32(0x1000f0e0);
    const __m256i second = _mm256_broadcastsi128_si256(_mm_setr_epi32(-0x1f1f1f20, -0x0f0f0f10, 0, 0x10101010));
    const __m256i low = _mm256_set1_epi8(15);
    __m256i q = x86_load32(b->ql + g / 4 * 64 + g % 2 * 32), h = x86_load32(b->qh + g / 4 * 32);

    (void)t;
    q = _mm256_and_si256(g % 4 < 2 ? q : _mm256_srli_epi16(q, 4), low);
    h = _mm256_and_si256(g % 4 < 2 ? h : _mm256_srli_epi16(h, 4), low);
    x86_split_signed(w, _mm256_add_epi8(q, _mm256_shuffle_epi8(g % 2 == 0 ? first : second, h)));
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_q6_k *b)
{
    const __m512i low = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);
    __m256i s = _mm256_cvtepi8_epi16(x86_load16(b->sc));

#define CODES(c, h) \
    do { \
        __m512i q = X86_SHIFT(x86_twice(b->ql + 64 * (c) + 32 * (h)), 0, 4); \
        __m512i t = X86_TURN(x86_twice(b->qh + 32 * (c)), 2 * (h)-4, 2 * (h)); \
        q = _mm512_or_si512(_mm512_and_si512(q, low), _mm512_and_si512(t, top)); \
        X86_STORE(u, c, h, X86_LESS(X86_EVEN(q), 32), X86_LESS(X86_ODD(q), 32), x86_two_words(s, 4 * (c) + (h))); \
    } while (0)
    CODES(0, 0);
    CODES(0, 1);
    CODES(1, 0);
    CODES(1, 1);
#undef CODES
    return _cvtsh_ss(b->d);
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q6_k *b)
{
    x86_subs(t, x86_load16(b->sc), 5);
    t->scale = _mm256_set1_ps(_cvtsh_ss(b->d));
}

X86_WORDS __m256i lane_codes(const struct quant_q6_k *b, int g)
{
    __m256i q = x86_load32(b->ql + g / 4 * 64 + g % 2 * 32), h = x86_bit(x86_load32(b->qh + g / 4 * 32), g % 4 * 2, 4);

    q = x86_nibble(q, g % 4 >= 2);
    return _mm256_or_si256(q, _mm256_and_si256(h, _mm256_set1_epi8(48)));
}

#define BLOCK  struct quant_q6_k
#define N_MIN  0
#define SCALES 16
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_HALVES_4
#define MORE   32
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  32
#define SPAN 63
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q6_k *b)
{
    fours_subs(u, _cvtsh_ss(b->d), x86_load16(b->sc));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q6_k *b)
{
    const __m512i at = FOURS_DWORDS(0, 8, 0, 8, 16, 24, 16, 24), at_h = FOURS_DWORDS(0, 0, 0, 0, 8, 8, 8, 8);
    const __m512i nibble = FOURS_TURNS_2(FOURS_BITS(0, 4, 0), FOURS_BITS(4, 4, 0));
    /* 96 more than 6 bits: bit 5 is also 7, and not 6 */
#define TOP(i) (FOURS_BITS(i, 2, 4) | FOURS_BITS((i) + 1, 1, 6) | FOURS_BITS((i) + 1, 1, 7))
    const __m512i top = _mm512_setr_epi64(TOP(0), TOP(2), TOP(4), TOP(6), TOP(0), TOP(2), TOP(4), TOP(6));
#undef TOP
    __m512i q0 = x86_load64(b->ql), q1 = x86_load64(b->ql + 64), h = x86_load64(b->qh);

#define PART(k) \
    v[k] = _mm512_xor_si512( \
        _mm512_gf2p8affine_epi64_epi8(_mm512_permutex2var_epi32(q0, FOURS_PLUS(at, k), q1), nibble, 0x60), \
        _mm512_gf2p8affine_epi64_epi8(_mm512_permutexvar_epi32(FOURS_PLUS(at_h, k), h), top, 0));
    EACH_4(PART)
#undef PART
}

#define SUB_16 1
#include "cpu/formats/acts8_vbmi_body.h"

enum { HEAD = 256 + 32, PARTS = 2, PART = 1536 };

X86_VBMI void lay_block(char *head, char *part, const char *const row[16], int64_t at)
{
    columns_lay_4(head, row, at + 192);
    for (int r = 0; r < 16; r++)
        memcpy(head + 256 + 2 * r, row[r] + at + 208, 2);
    for (int p = 0; p < PARTS; p++) {
        columns_lay_8(part + p * PART, row, at + 64 * p);
        columns_lay_8(part + p * PART + 512, row, at + 64 * p + 32);
        columns_lay_8(part + p * PART + 1024, row, at + 128 + 32 * p);
    }
}

/* Codes are taken four times, so that 6 bits end where a byte does, and sub-scales by a quarter: no float changes. */
X86_VBMI void columns_numbers(const struct columns_numbers *to, const char *head)
{
    const __m512 d = _mm512_cvtph_ps(x86_load32(head + 256)), quarter = _mm512_set1_ps(0.25f);

#define SUB(g, half) \
    _mm512_store_ps( \
        to->sub[(g)*to->pitch][half], \
        _mm512_mul_ps(quarter, \
                      _mm512_cvtepi32_ps(_mm512_srai_epi32( \
                          _mm512_slli_epi32(columns_dword(head, (g) / 2), 24 - (g) % 2 * 16 - 8 * (half)), 24))));
#define NUMBERS(g) \
    _mm512_store_ps(to->scale[(g)*to->pitch], d); \
    SUB(g, 0) \
    SUB(g, 1)
    EACH_8(NUMBERS)
#undef NUMBERS
#undef SUB
}

X86_VBMI __m512i columns_code(const char *head, const char *part, int g, const int odd, const int i, const bool more)
{
    const int nibble = g % 4 / 2 * 4;
    const __m512i v = _mm512_or_si512(columns_move(columns_dword(part, 8 * odd + i), FOURS_BITS(0, 4, 2) << nibble),
                                      columns_move(columns_dword(part, 16 + i), FOURS_BITS(2 * odd, 2, 6) << nibble));

    (void)head;
    return more ? v : _mm512_xor_si512(v, _mm512_set1_epi8(-128)); /* they are 32 more as they are stored */
}

#include "cpu/formats/acts8_laid_body.h"
#endif

const struct cpu_format cpu_format_q6_k = { .type = QUANT_q6_k,
                                            X86_DECODERS.wide = true,
                                            .sub_16 = true,
                                            .ints = ints,
                                            .bytes = bytes_scalar,
                                            X86_INTS X86_LANES X86_FOURS X86_COLUMNS X86_LAID };
