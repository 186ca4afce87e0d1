/* SPDX-License-Identifier: Apache-2.0 */
/* q5_0.c - products and fast decoding of q5_0 (quant/q5_0.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/q5_0.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_q5_0 *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            uint32_t qh;

            memcpy(&qh, b->qh, sizeof(qh));
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = half_to_f32(b->d);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = (int8_t)(((b->qs[j] & 15) | (int)(qh >> j & 1u) << 4) - 16);
                u->code[32 * g + j + 16] = (int8_t)((b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1u) << 4) - 16);
            }
        }
}

CPU_INTS(q5_0)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_q5_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));
        __m256i v = _mm256_sub_epi8(x86_five_bits(b->qs, b->qh), _mm256_set1_epi8(16));

        x86_scale(y, _mm256_castsi256_si128(v), d);
        x86_scale(y + 16, _mm256_extracti128_si256(v, 1), d);
    }
}

TARGET_AVX2 static inline float scale_32(const struct quant_q5_0 *b)
{
    return _cvtsh_ss(b->d);
}

X86_WORDS void group_words(__m256i w[2], const struct quant_q5_0 *b)
{
    x86_split_signed(w, _mm256_sub_epi8(x86_five_bits(b->qs, b->qh), _mm256_set1_epi8(16)));
}

/* The same: 16 less where a fifth bit is not set. */
X86_VNNI void words_vnni(__m256i w[2], const struct quant_q5_0 *b)
{
    __m256i v = x86_nibbles(b->qs);
    uint32_t h;

    memcpy(&h, b->qh, sizeof(h));
    x86_split_signed(w, _mm256_mask_sub_epi8(v, ~h, v, _mm256_set1_epi8(16)));
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_q5_0 *b)
{
    x86_half_scales(t, b, sizeof(*b));
}

X86_WORDS __m256i lane_codes(const struct quant_q5_0 *b, int g, int h)
{
    const __m128i spread = _mm_set_epi64x(0x0101010101010101, 0);
    uint16_t first, second;

    memcpy(&first, b[g].qh + 2 * h, sizeof(first));
    memcpy(&second, b[g + 4].qh + 2 * h, sizeof(second));
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(first)), _mm_cvtsi32_si128(second), 1);

    v = _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(spread));
    return _mm256_or_si256(x86_nibble(x86_load_two(b[g].qs, b[g + 4].qs), h > 0), x86_sixteens(v));
}

#define BLOCK      struct quant_q5_0
#define WORDS_VNNI words_vnni
#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_8
#define MORE   16
#define N_MIN  0
#define HALVES
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  16
#define SPAN 31
#include "cpu/formats/acts8_codes_body.h"

/* Bytes of 8 blocks by where they are; those of mask are beyond 127. */
X86_VBMI __m512i bytes_at(const struct quant_q5_0 *b, __m512i at, __mmask64 mask)
{
    const char *p = (const char *)b;
    __m512i v = _mm512_permutex2var_epi8(_mm512_loadu_si512(p), at, _mm512_loadu_si512(p + 64));

    /* the last 64 begin at 112 */
    return _mm512_mask_permutexvar_epi8(v, mask, _mm512_add_epi8(at, _mm512_set1_epi8(16)),
                                        _mm512_loadu_si512(p + 112));
}
/* The same 8 bytes of all blocks, and more than 127 of these places. */
#define BYTE_OF(g, at, i) ((int64_t)((uint64_t)((22 * (g) + (at) + (i)) & 255) << 8 * (i)))
#define EIGHT_OF(g, at) \
    (BYTE_OF(g, at, 0) | BYTE_OF(g, at, 1) | BYTE_OF(g, at, 2) | BYTE_OF(g, at, 3) | BYTE_OF(g, at, 4) | \
     BYTE_OF(g, at, 5) | BYTE_OF(g, at, 6) | BYTE_OF(g, at, 7))
#define EIGHTS(at) \
    _mm512_setr_epi64(EIGHT_OF(0, at), EIGHT_OF(1, at), EIGHT_OF(2, at), EIGHT_OF(3, at), EIGHT_OF(4, at), \
                      EIGHT_OF(5, at), EIGHT_OF(6, at), EIGHT_OF(7, at))
#define BEYOND(at) _mm512_movepi8_mask(at)

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_q5_0 *b)
{
    const __m512i at =
        _mm512_castsi128_si512(_mm_setr_epi8(0, 1, 22, 23, 44, 45, 66, 67, 88, 89, 110, 111, -124, -123, -102, -101));

    _mm256_store_ps(u->scale, _mm256_cvtph_ps(_mm512_castsi512_si128(bytes_at(b, at, 0xf000))));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_q5_0 *b)
{
    /* 112 and five bits; further bits are any */
    const __m256i half = _mm256_add_epi8(_mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                                          18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31),
                                         _mm256_set1_epi8(112));
    const __m512i table = _mm512_broadcast_i64x4(half);
    const __m512i low = FOURS_FIELDS(0, 4, 8), high = FOURS_FIELDS(32, 36, 8);
    const __m512i at_h = EIGHTS(2), at = EIGHTS(6), at_2 = EIGHTS(14);
    __m512i h = bytes_at(b, at_h, BEYOND(at_h));
    __m512i first = bytes_at(b, at, BEYOND(at)), second = bytes_at(b, at_2, BEYOND(at_2));

#define PART(k) \
    v[k] = fours_blend(_mm512_multishift_epi64_epi8((k) % 2 == 0 ? low : high, (k) < 2 ? first : second), \
                       FOURS_SIGNS(k, 4, h), _mm512_set1_epi8(16)); \
    v[k] = _mm512_permutexvar_epi8(v[k], table);
    EACH_4(PART)
#undef PART
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_q5_0 = {
    .type = QUANT_q5_0, X86_DECODER.ints = ints, .bytes = bytes_scalar, X86_INTS_32 X86_LANES X86_FOURS
};
