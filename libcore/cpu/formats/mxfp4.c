/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.c - products and fast decoding of mxfp4 (quant/mxfp4.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/mxfp4.h"

#define BLOCK         struct quant_mxfp4
#define VALUES        quant_fp4_values
#define SCALE(b)      mxfp4_half_scale((b)->e)
#define SCALE_AVX2(b) mxfp4_half_scale((b)->e)
#include "cpu/formats/nibbles_32_body.h"

CPU_INTS(mxfp4)

#if defined(__x86_64__)
X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_mxfp4 *b)
{
    __m128i words = _mm_and_si128(x86_words_8(b, sizeof(*b)), _mm_set1_epi16(255));
    __m256i e = _mm256_cvtepu16_epi32(words), small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

    t->scale = _mm256_castsi256_ps(_mm256_blendv_epi8(v, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_8
#define N_MIN  0
#define HALVES
#define SIGNED
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  12
#define SPAN 24
#include "cpu/formats/acts8_codes_body.h"

/* mxfp4_half_scale() of 8. */
X86_VBMI __m256 half_scales(const struct quant_mxfp4 *b)
{
    const __m512i at = _mm512_set1_epi64(FOURS_BYTES(0, sizeof(*b), 2 * sizeof(*b), 3 * sizeof(*b), 0) |
                                         FOURS_BYTES(0, sizeof(*b), 2 * sizeof(*b), 3 * sizeof(*b), 4));
    __m512i bytes = fours_fetch((const char *)b, 4 * sizeof(*b), at, 0xf0);
    __m256i e = _mm256_cvtepu8_epi32(_mm512_castsi512_si128(bytes));
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

    return _mm256_castsi256_ps(_mm256_blendv_epi8(v, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_mxfp4 *b)
{
    _mm256_store_ps(u->scale, half_scales(b));
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_mxfp4 = {
    .type = QUANT_mxfp4, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_32 X86_LANES X86_FOURS
};
