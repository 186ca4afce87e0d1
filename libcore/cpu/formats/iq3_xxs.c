/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_xxs.c - products and fast decoding of iq3_xxs (quant/iq3_xxs.c). */
#include "cpu/format.h"
#include "cpu/formats/iq_bytes.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq3_xxs.h"
#include "quant/iq_grids.h"

/* d / 4 times odd numbers times magnitudes. */
static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq3_xxs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++)
        for (int g = 0; g < 64; g++) {
            static const int value[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
            uint32_t aux;

            memcpy(&aux, b->aux + g / 8 * 4, sizeof(aux));
            unsigned entry = quant_iq3xxs_grid[b->qs[g]];
            unsigned signs = iq_signs(aux >> g % 8 / 2 * 7 & 127u) >> g % 2 * 4;

            u->sub[g / 4] = (int8_t)(aux >> 28 << 1 | 1u);
            u->scale[g / 8] = half_to_f32(b->d) * 0.25f;
            for (unsigned k = 0; k < 4; k++) {
                int m = value[entry >> 4 * k & 7u];

                u->code[4 * g + (int)k] = (int8_t)((signs >> k & 1u) != 0 ? -m : m);
            }
        }
}

CPU_INTS(iq3_xxs)

#if defined(__x86_64__)
X86_WORDS void fill_book(struct x86_book *t, const struct quant_iq3_xxs *b)
{
    x86_places(t->at, x86_load32(b->qs));
    x86_places(t->at + 32, x86_load32(b->qs + 32));
    x86_signs_28(t->signs, x86_load32(b->aux));
}

X86_WORDS __m256i group_magnitudes(const struct x86_book *t, const struct quant_iq3_xxs *b, int g)
{
    (void)b;
    return x86_quads(cpu_iq3xxs_bytes, t->at + 8 * g);
}

X86_WORDS const uint8_t *group_signs(const struct x86_book *t, const struct quant_iq3_xxs *b, int g)
{
    (void)b;
    return t->signs + 4 * g;
}

X86_CODE_BOOK(struct quant_iq3_xxs)

TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_iq3_xxs *b)
{
    float d = _cvtsh_ss(b->d);

    group_codes(u->v, b);
    for (int g = 0; g < 8; g++) {
        uint32_t aux;

        memcpy(&aux, b->aux + 4 * g, sizeof(aux));
        u->scale[2 * g] = u->scale[2 * g + 1] = d * (0.5f + (float)(aux >> 28)) * 0.5f;
    }
}

X86_DECODE_SCALED(struct quant_iq3_xxs)

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const struct quant_iq3_xxs *b)
{
    (void)min;
    x86_scales_32(t, x86_top_scales(x86_load32(b->aux)));
    fill_book(&t->book, b);
    return _cvtsh_ss(b->d) * 0.25f;
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq3_xxs *b)
{
    __m256 f = _mm256_set1_ps(_cvtsh_ss(b->d) * 0.25f);

    t->scale = _mm256_mul_ps(f, _mm256_cvtepi32_ps(x86_top_scales(x86_load32(b->aux))));
}

#define BLOCK  struct quant_iq3_xxs
#define N_MIN  0
#define SCALES 8
#define NO_AVX512
#include "cpu/formats/acts16_256_body.h"

#define IN_256 1
#define SUMS   X86_SUMS_4
#define BOOK
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  62
#define SPAN 124
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq3_xxs *b)
{
    fours_scales(u, _cvtsh_ss(b->d) * 0.25f, x86_top_scales(x86_load32(b->aux)));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_iq3_xxs *b)
{
    /* 128 and 4, 12, 20, 28, 36, 44, 52, 62; 128 less these */
    const __m512i table = _mm512_set4_epi32(0x424c545c, 0x646c747c, (int)0xbeb4aca4u, (int)0x9c948c84u);
    const uint8_t *low = cpu_iq3xxs_packed;
    __m512i code = x86_load64(b->qs), words[2];
    __mmask64 bit7 = _mm512_movepi8_mask(code);
    __m512i signs = fours_signs(_mm512_multishift_epi64_epi8(FOURS_FIELDS(0, 0, 7), fours_wide(b->aux)));

    fours_quads(words, fours_look_256(low, code, bit7), fours_upper(fours_look_128(low + 256, code), bit7));
#define PART(k) \
    v[k] = fours_blend(FOURS_DIGITS(k, 0, words), FOURS_SIGNS(k, 3, signs), _mm512_set1_epi8(8)); \
    v[k] = _mm512_permutexvar_epi8(v[k], table);
    EACH_4(PART)
#undef PART
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq3_xxs = {
    .type = QUANT_iq3_xxs, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_AVX2 X86_LANES X86_FOURS
};
