/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.c - products and fast decoding of iq4_xs (quant/iq4_xs.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_columns.h"
#include "quant/half.h"
#include "quant/iq4_xs.h"
#include "quant/iq_grids.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            int s = ((b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4) - 32;

            u->sub[2 * g] = u->sub[2 * g + 1] = (int8_t)s;
            u->scale[g] = half_to_f32(b->d);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = quant_iq4nl_values[q[j] & 15];
                u->code[32 * g + j + 16] = quant_iq4nl_values[q[j] >> 4];
            }
        }
}

CPU_INTS(iq4_xs)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    const __m128i value = x86_load16(quant_iq4nl_values);

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = _cvtsh_ss(b->d);

        for (int g = 0; g < 8; g++) {
            int s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m256 scale = _mm256_set1_ps(d * (float)(s - 32));
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
            int s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(d * (float)(s - 32)));

            x86_look_up(y + 32 * g, y + 32 * g + 16, b->qs + 16 * g, table, table);
        }
    }
}

/* The scales of the 8 groups of 32. */
TARGET_AVX2 static inline __m256i group_scales(const struct quant_iq4_xs *b)
{
    const __m256i low = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i high = _mm256_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26); /* of d and sh: bits to 4 and 5 */
    int d_sh, sl;

    memcpy(&d_sh, b, sizeof(d_sh));
    memcpy(&sl, b->sl, sizeof(sl));
    __m256i s = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(sl), low), _mm256_set1_epi32(15));
    __m256i h = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(d_sh), high), _mm256_set1_epi32(48));

    return _mm256_sub_epi32(_mm256_or_si256(s, h), _mm256_set1_epi32(32));
}

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_iq4_xs *b)
{
    (void)min;
    x86_scales_32(t, group_scales(b));
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct x86_taken *t, const struct quant_iq4_xs *b, int g)
{
    (void)t;
    x86_split_signed(w, x86_values(x86_nibbles(b->qs + 16 * g), quant_iq4nl_values));
}

X86_WHOLE float unpack_block(struct x86_ints *u, const struct quant_iq4_xs *b)
{
    const __m512i value = _mm512_broadcast_i32x4(x86_load16(quant_iq4nl_values));
    const __m512i nibble = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4), low = _mm512_set1_epi8(15);
    __m256i s = _mm256_castsi128_si256(_mm256_cvtepi32_epi16(group_scales(b)));

#define CODES(c, h, pick) \
    do { \
        __m512i q = _mm512_loadu_si512(b->qs + 64 * (c)); \
        q = _mm512_srlv_epi64(_mm512_shuffle_i64x2(q, q, pick), nibble); \
        q = _mm512_shuffle_epi8(value, _mm512_and_si512(q, low)); \
        X86_STORE(u, c, h, _mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), _mm512_srai_epi16(q, 8), \
                  x86_word(s, 4 * (c) + (h))); \
    } while (0)
    CODES(0, 0, 0xa0);
    CODES(0, 1, 0xf5);
    CODES(1, 0, 0xa0);
    CODES(1, 1, 0xf5);
#undef CODES
    return _cvtsh_ss(b->d);
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq4_xs *b)
{
    t->scale = _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(b->d)), _mm256_cvtepi32_ps(group_scales(b)));
}

X86_WORDS __m256i lane_codes(const struct quant_iq4_xs *b, int g, int h)
{
    __m256i q = x86_load_two(b->qs + 16 * g, b->qs + 16 * g + 64);

    q = x86_nibble(q, h > 0);
    return x86_values(q, quant_iq4nl_values);
}

#define BLOCK  struct quant_iq4_xs
#define N_MIN  0
#define SCALES 8
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_2
#define HALVES
#define SIGNED
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  127
#define SPAN 240
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq4_xs *b)
{
    fours_scales(u, _cvtsh_ss(b->d), group_scales(b));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_iq4_xs *b)
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14),
                  odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    __m512i q0 = x86_load64(b->qs), q1 = x86_load64(b->qs + 64);

    fours_values(v, _mm512_permutex2var_epi64(q0, even, q1), _mm512_permutex2var_epi64(q0, odd, q1),
                 quant_iq4nl_values);
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"

enum { HEAD = 128, PARTS = 8, PART = 256 };

X86_VBMI void lay_block(char *head, char *part, const char *const row[16], int64_t at)
{
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 2; i++)
            memcpy(head + 64 * i + 4 * r, row[r] + at + 4 * i, 4);
    for (int p = 0; p < PARTS; p++)
        columns_lay_4(part + p * PART, row, at + 8 + 16 * p);
}

X86_VBMI void columns_numbers(const struct columns_numbers *to, const char *head)
{
    const __m512i first = columns_dword(head, 0), low = columns_dword(head, 1);
    const __m512 d = columns_halves(first, false);

#define NUMBERS(g) \
    { \
        const __m512i s = _mm512_or_si512(columns_bits(low, 4 * (g), 15), \
                                          _mm512_slli_epi32(columns_bits(first, 16 + 2 * (g), 3), 4)); \
\
        _mm512_store_ps(to->scale[(g)*to->pitch], \
                        _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_sub_epi32(s, _mm512_set1_epi32(32))))); \
    }
    EACH_8(NUMBERS)
#undef NUMBERS
}

X86_VBMI __m512i columns_code(const char *head, const char *part, int g, const int odd, const int i, const bool more)
{
    /* four times: bits 4 and 5 of what is looked up may be any */
    const __m512i values =
        _mm512_broadcast_i32x4(_mm_xor_si128(x86_load16(quant_iq4nl_values), _mm_set1_epi8(more ? -128 : 0)));
    const __m512i v = columns_dword(part, i % 4);

    (void)head;
    (void)g;
    (void)odd;
    return _mm512_permutexvar_epi8(i < 4 ? v : _mm512_srli_epi16(v, 4), values);
}

#include "cpu/formats/acts8_laid_body.h"
#endif

const struct cpu_format cpu_format_iq4_xs = { .type = QUANT_iq4_xs,
                                              X86_DECODERS.wide = true,
                                              .ints = ints,
                                              .bytes = bytes_scalar,
                                              X86_INTS X86_LANES X86_FOURS X86_COLUMNS X86_LAID };
