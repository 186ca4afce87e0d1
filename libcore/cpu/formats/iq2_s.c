/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_s.c - products and fast decoding of iq2_s (quant/iq2_s.c). */
#include "cpu/format.h"
#include "cpu/formats/iq_bytes.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq2_s.h"
#include "quant/iq_grids.h"

/* d / 8 times odd numbers times magnitudes. */
static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
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

CPU_INTS(iq2_s)

#if defined(__x86_64__)
X86_WORDS void fill_book(struct x86_book *t, const struct quant_iq2_s *b)
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

X86_WORDS __m256i group_magnitudes(const struct x86_book *t, const struct quant_iq2_s *b, int g)
{
    (void)b;
    return x86_octets(cpu_iq2s_bytes, t->at + 4 * g);
}

X86_WORDS const uint8_t *group_signs(const struct x86_book *t, const struct quant_iq2_s *b, int g)
{
    (void)t;
    return b->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq2_s)

#define BLOCK  struct quant_iq2_s
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

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq2_s *b)
{
    fours_subs(u, _cvtsh_ss(b->d) * 0.125f, odd_scales(b));
}

/* 64 entries, half of each, by the low 8 bits of codes and masks of bits 7, 8 and 9. */
X86_VBMI __m512i look_up(const uint8_t half[1024], __m512i code, const __mmask64 bit[3])
{
    __m512i a = fours_look_256(half, code, bit[0]), b = fours_look_256(half + 256, code, bit[0]);
    __m512i c = fours_look_256(half + 512, code, bit[0]), d = fours_look_256(half + 768, code, bit[0]);

    return _mm512_mask_blend_epi8(bit[2], _mm512_mask_blend_epi8(bit[1], a, b), _mm512_mask_blend_epi8(bit[1], c, d));
}

X86_VBMI void fours_pair(__m512i v[2][4], const struct quant_iq2_s *b, const struct quant_iq2_s *b1)
{
    /* of two blocks 8 codes each in turn, and their high bits: fields whose two highest are these */
    const __m512i at = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), at_h = _mm512_setr_epi64(0, 1, 0, 1, 0, 1, 0, 1);
    const __m512i fields = _mm512_add_epi8(
        FOURS_FIELDS(-6, 2, 2), _mm512_setr_epi64(0, 0, 0x1010101010101010, 0x1010101010101010, 0x2020202020202020,
                                                  0x2020202020202020, 0x3030303030303030, 0x3030303030303030));
    __m512i code = _mm512_permutex2var_epi64(_mm512_castsi256_si512(x86_load32(b->qs)), at,
                                             _mm512_castsi256_si512(x86_load32(b1->qs)));
    __m128i h = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)b->qh), _mm_loadl_epi64((const void *)b1->qh));
    __m512i top = _mm512_multishift_epi64_epi8(fields, _mm512_permutexvar_epi64(at_h, _mm512_castsi128_si512(h)));
    const __mmask64 bit[3] = { _mm512_movepi8_mask(code), _mm512_movepi8_mask(_mm512_add_epi8(top, top)),
                               _mm512_movepi8_mask(top) };
    __m512i low = look_up(cpu_iq2s_halves, code, bit), high = look_up(cpu_iq2s_halves + 1024, code, bit);

    fours_octets(v[0], _mm512_unpacklo_epi8(low, high), fours_wide(b->signs));
    fours_octets(v[1], _mm512_unpackhi_epi8(low, high), fours_wide(b1->signs));
}

#define SUB_16 1
#define FOURS_PAIR
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq2_s = { .type = QUANT_iq2_s,
                                             X86_DECODERS.sub_16 = true,
                                             .ints = ints,
                                             .bytes = bytes_scalar,
                                             X86_INTS_AVX2 X86_LANES X86_FOURS };
