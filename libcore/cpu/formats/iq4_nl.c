/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_nl.c - products and fast decoding of iq4_nl (quant/iq4_nl.c). */
#include "cpu/format.h"
#include "cpu/formats/acts8_vbmi.h"
#include "quant/half.h"
#include "quant/iq4_nl.h"
#include "quant/iq_grids.h"

#define BLOCK         struct quant_iq4_nl
#define VALUES        quant_iq4nl_values
#define SCALE(b)      half_to_f32((b)->d)
#define SCALE_AVX2(b) _cvtsh_ss((b)->d)
#include "cpu/formats/nibbles_32_body.h"

CPU_INTS(iq4_nl)

#if defined(__x86_64__)
X86_WORDS void lanes_take(struct x86_lanes *t, const struct quant_iq4_nl *b)
{
    x86_half_scales(t, b, sizeof(*b));
}

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

#define SUB_16 0
#include "cpu/formats/acts8_vbmi_body.h"
#endif

const struct cpu_format cpu_format_iq4_nl = {
    .type = QUANT_iq4_nl, X86_DECODERS.ints = ints, .bytes = bytes_scalar, X86_INTS_32 X86_LANES X86_FOURS
};
