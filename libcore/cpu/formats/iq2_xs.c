/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xs.c - products and fast decoding of iq2_xs (quant/iq2_xs.c). */
#include "cpu/format.h"
#include "cpu/formats/iq_bytes.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq2_xs.h"
#include "quant/iq_grids.h"

/* d / 8 times odd numbers times magnitudes. */
static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq2_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 32; g++) {
            u->sub[g / 2] = (int8_t)(2 * (b->sc[g / 4] >> g % 4 / 2 * 4 & 15) + 1);
            u->scale[g / 4] = half_to_f32(b->d) * 0.125f;
            iq_octet_bytes(u->code + 8 * g, quant_iq2xs_grid[b->qs[g] & 511], iq_signs(b->qs[g] >> 9));
        }
}

CPU_INTS(iq2_xs)

#if defined(__x86_64__)
X86_WORDS void fill_book(struct x86_book *t, const struct quant_iq2_xs *b)
{
    const __m256i nine = _mm256_set1_epi16(511);
    __m256i q0 = x86_load32(b->qs), q1 = x86_load32(b->qs + 16);

    _mm256_storeu_si256((void *)t->at, _mm256_and_si256(q0, nine));
    _mm256_storeu_si256((void *)(t->at + 16), _mm256_and_si256(q1, nine));
    q0 = _mm256_packus_epi16(_mm256_srli_epi16(q0, 9), _mm256_srli_epi16(q1, 9));
    _mm256_storeu_si256((void *)t->signs, x86_signs(_mm256_permute4x64_epi64(q0, 0xd8)));
}

X86_WORDS __m256i group_magnitudes(const struct x86_book *t, const struct quant_iq2_xs *b, int g)
{
    (void)b;
    return x86_octets(cpu_iq2xs_bytes, t->at + 4 * g);
}

X86_WORDS const uint8_t *group_signs(const struct x86_book *t, const struct quant_iq2_xs *b, int g)
{
    (void)b;
    return t->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq2_xs)

#define BLOCK  struct quant_iq2_xs
#define N_MIN  0
#define SCALES 16
#define NO_AVX512
#include "cpu/formats/iq2_body.h"
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_HALVES_4
#define BOOK
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  43
#define SPAN 86
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq2_xs *b)
{
    fours_subs(u, _cvtsh_ss(b->d) * 0.125f, odd_scales(b));
}

/* The low bytes of 8 words, from byte `at` on. */
#define LOWS(at) \
    (FOURS_BYTES(at, (at) + 2, (at) + 4, (at) + 6, 0) | FOURS_BYTES((at) + 8, (at) + 10, (at) + 12, (at) + 14, 4))

X86_VBMI void fours_pair(__m512i v[2][4], const struct quant_iq2_xs *b, const struct quant_iq2_xs *b1)
{
    const __m512i fields = FOURS_FIELDS(9, 9, 16);
    const uint8_t *first = cpu_iq2xs_halves, *second = first + 512;
    const int64_t other = 0x4040404040404040;
    const __m512i low = _mm512_setr_epi64(LOWS(0), LOWS(0) | other, LOWS(16), LOWS(16) | other, LOWS(32),
                                          LOWS(32) | other, LOWS(48), LOWS(48) | other);
    __m512i q0 = x86_load64(b->qs), q1 = x86_load64(b1->qs);
    __m512i code = _mm512_permutex2var_epi8(q0, low, q1);
    __m512i top = _mm512_permutex2var_epi8(q0, _mm512_add_epi8(low, _mm512_set1_epi8(1)), q1);
    __mmask64 bit7 = _mm512_movepi8_mask(code), bit8 = _mm512_test_epi8_mask(top, _mm512_set1_epi8(1));

#define LOOK(half) \
    _mm512_mask_blend_epi8(bit8, fours_look_256(half, code, bit7), fours_look_256((half) + 256, code, bit7))
    __m512i lo = LOOK(first), hi = LOOK(second);
#undef LOOK
    fours_octets(v[0], _mm512_unpacklo_epi8(lo, hi), fours_signs(_mm512_multishift_epi64_epi8(fields, q0)));
    fours_octets(v[1], _mm512_unpackhi_epi8(lo, hi), fours_signs(_mm512_multishift_epi64_epi8(fields, q1)));
}

#define SUB_16 1
#define FOURS_PAIR
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq2_xs = { .type = QUANT_iq2_xs,
                                              X86_DECODERS.sub_16 = true,
                                              .ints = ints,
                                              .bytes = bytes_scalar,
                                              X86_INTS_AVX2 X86_LANES X86_FOURS };
