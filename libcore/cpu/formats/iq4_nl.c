/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_nl.c - products and fast decoding of iq4_nl (quant/iq4_nl.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq4_nl.h"
#include "quant/iq_grids.h"

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const struct quant_iq4_nl *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = half_to_f32(b->d);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = quant_iq4nl_values[b->qs[j] & 15];
                u->code[32 * g + j + 16] = quant_iq4nl_values[b->qs[j] >> 4];
            }
        }
}

CPU_INTS(iq4_nl)

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_nl *b = row;
    const __m128i value = x86_load16(quant_iq4nl_values);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(_cvtsh_ss(b->d));
        __m128i q = x86_load16(b->qs);

        x86_scale(y, _mm_shuffle_epi8(value, x86_low(q)), d);
        x86_scale(y + 16, _mm_shuffle_epi8(value, x86_high(q)), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_nl *b = row;
    const __m512 value = x86_floats(x86_load16(quant_iq4nl_values));

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(_cvtsh_ss(b->d)));

        x86_look_up(y, y + 16, b->qs, table, table);
    }
}

TARGET_AVX2 static inline float scale_32(const struct quant_iq4_nl *b)
{
    return _cvtsh_ss(b->d);
}

X86_WORDS void words(__m256i w[2], const struct quant_iq4_nl *b)
{
    x86_split_signed(w, x86_values(x86_nibbles(b->qs), quant_iq4nl_values));
}

X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq4_nl *b)
{
    x86_half_scales(t, b, sizeof(*b));
}

X86_WORDS __m256i lane_codes(const struct quant_iq4_nl *b, int g, int h)
{
    return x86_values(x86_nibble(x86_load_two(b[g].qs, b[g + 4].qs), h > 0), quant_iq4nl_values);
}

#define BLOCK struct quant_iq4_nl
#include "cpu/formats/acts16_32_body.h"

#define IN_256 8
#define SUMS   X86_SUMS_2
#define N_MIN  0
#define HALVES
#define SIGNED
#include "cpu/formats/acts8_avx2_body.h"

#define LOW  127
#define SPAN 240
#include "cpu/formats/acts8_codes_body.h"

X86_VBMI void fours_scale(struct cpu_code_block *u, const struct quant_iq4_nl *b)
{
    _mm256_store_ps(u->scale, fours_halves((const char *)b, sizeof(*b)));
}

X86_VBMI void fours_codes(__m512i v[4], const struct quant_iq4_nl *b)
{
    fours_nibbles(v, (const char *)b, sizeof(*b), quant_iq4nl_values);
}

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq4_nl = {
    .type = QUANT_iq4_nl, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_AVX2 X86_LANES X86_FOURS
};
