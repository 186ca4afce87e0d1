/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xxs.c - products and fast decoding of iq2_xxs (quant/iq2_xxs.c). */
#include "cpu/format.h"
#include "cpu/formats/iq_bytes.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq2_xxs.h"
#include "quant/iq_grids.h"

/* d / 8 times odd numbers times magnitudes. */
static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq2_xxs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 32; g++) {
            const uint8_t *q = b->qs + g / 4 * 8;
            uint32_t aux;

            memcpy(&aux, q + 4, sizeof(aux));
            u->sub[g / 2] = (int8_t)(aux >> 28 << 1 | 1u);
            u->scale[g / 4] = half_to_f32(b->d) * 0.125f;
            iq_octet_bytes(u->code + 8 * g, quant_iq2xxs_grid[q[g % 4]], iq_signs(aux >> g % 4 * 7 & 127u));
        }
}

CPU_INTS(iq2_xxs)

#if defined(__x86_64__)
/* Every other number of 32 bits, from the first or the second on: 4 codes each, or signs and a scale. */
X86_WORDS __m256i numbers(const struct quant_iq2_xxs *b, int second)
{
    __m256 lo = _mm256_loadu_ps((const void *)b->qs), hi = _mm256_loadu_ps((const void *)(b->qs + 32));
    __m256i v = _mm256_castps_si256(second ? _mm256_shuffle_ps(lo, hi, 0xdd) : _mm256_shuffle_ps(lo, hi, 0x88));

    return _mm256_permute4x64_epi64(v, 0xd8);
}

X86_WORDS void fill_book(struct x86_book *t, const struct quant_iq2_xxs *b)
{
    x86_places(t->at, numbers(b, 0));
    x86_signs_28(t->signs, numbers(b, 1));
}

X86_WORDS __m256i group_magnitudes(const struct x86_book *t, const struct quant_iq2_xxs *b, int g)
{
    (void)b;
    return x86_octets(cpu_iq2xxs_bytes, t->at + 4 * g);
}

X86_WORDS const uint8_t *group_signs(const struct x86_book *t, const struct quant_iq2_xxs *b, int g)
{
    (void)b;
    return t->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq2_xxs)

TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_iq2_xxs *b)
{
    float d = _cvtsh_ss(b->d);

    group_codes(u->v, b);
    for (int g = 0; g < 8; g++) {
        uint32_t aux;

        memcpy(&aux, b->qs + 8 * g + 4, sizeof(aux));
        u->scale[2 * g] = u->scale[2 * g + 1] = d * (0.5f + (float)(aux >> 28)) * 0.25f;
    }
}

X86_DECODE_SCALED(struct quant_iq2_xxs)

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_iq2_xxs *b)
{
    (void)min;
    x86_scales_32(t, x86_top_scales(numbers(b, 1)));
    fill_book(&t->book, b);
    return _cvtsh_ss(b->d) * 0.125f;
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq2_xxs *b)
{
    __m256 f = _mm256_set1_ps(_cvtsh_ss(b->d) * 0.125f);

    t->scale = _mm256_mul_ps(f, _mm256_cvtepi32_ps(x86_top_scales(numbers(b, 1))));
}

#define BLOCK  struct quant_iq2_xxs
#define N_MIN  0
#define SCALES 8
#define NO_AVX512
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_4
#define BOOK
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  43
#define SPAN 86
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq2_xxs *b)
{
    fours_scales(u, _cvtsh_ss(b->d) * 0.125f, x86_top_scales(numbers(b, 1)));
}

X86_VBMI void fours_pair(__m512i v[2][4], const struct quant_iq2_xxs *b, const struct quant_iq2_xxs *b1)
{
    /* of two blocks, whose groups are 8 bytes, the 8 codes of two groups each in turn */
    const __m512i at = _mm512_setr_epi32(0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
    const __m512i fields = FOURS_FIELDS(32, 32, 7);
    __m512i q0 = x86_load64(b->qs), q1 = x86_load64(b1->qs), code = _mm512_permutex2var_epi32(q0, at, q1);
    __mmask64 bit7 = _mm512_movepi8_mask(code);
    __m512i low = fours_look_256(cpu_iq2xxs_halves, code, bit7);
    __m512i high = fours_look_256(cpu_iq2xxs_halves + 256, code, bit7);

    fours_octets(v[0], _mm512_unpacklo_epi8(low, high), fours_signs(_mm512_multishift_epi64_epi8(fields, q0)));
    fours_octets(v[1], _mm512_unpackhi_epi8(low, high), fours_signs(_mm512_multishift_epi64_epi8(fields, q1)));
}

#define SUB_16 0
#define FOURS_PAIR
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq2_xxs = {
    .type = QUANT_iq2_xxs, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_AVX2 X86_LANES X86_FOURS
};
