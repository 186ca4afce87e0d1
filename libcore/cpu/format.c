/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - the fast code of each type, found by type, and what of it a processor runs. */
#include "cpu/format.h"

#include "base/simd.h"

#include <assert.h>

enum { BYTES = SIMD_AVX512_VNNI | SIMD_AVX512_VBMI }; /* what formats/acts8_vbmi_body.h takes */

#define CPU_FORMAT(name) extern const struct cpu_format cpu_format_##name;
#include "cpu/formats.def"
#undef CPU_FORMAT

static const struct cpu_format *const formats[QUANT_N] = {
#define CPU_FORMAT(name) [QUANT_##name] = &cpu_format_##name,
#include "cpu/formats.def"
#undef CPU_FORMAT
};

const struct cpu_format *cpu_format_of(int type)
{
    static const struct cpu_format none;

    assert(type >= 0 && type < QUANT_N);
    return formats[type] != NULL ? formats[type] : &none;
}

void cpu_ints_of(struct cpu_int_block *u, const void *row, int64_t n, const struct cpu_format *f)
{
    const unsigned char *block = row;
    const struct quant_type *t = quant_types[f->type];

    for (int64_t at = 0; at < n; at += CPU_INT_BLOCK, u++, block += CPU_INT_BLOCK / t->block_elems * t->block_bytes) {
        struct cpu_byte_block b;

        f->bytes(&b, block, CPU_INT_BLOCK);
        for (int i = 0; i < CPU_INT_BLOCK; i++)
            u->w[cpu_int_place(i)] = (int16_t)(b.sub[i / 16] * b.code[i]);
        for (int i = 0; i < (t->block_elems == 32 ? 8 : 16); i++)
            u->scale[i] = b.scale[i % 8];
        for (int i = 0; i < f->n_min; i++)
            u->min[i] = b.min[f->n_min == 8 ? i : i % 2 * 8 + i / 2];
    }
}

int cpu_acts_top(int type, enum quant_acts_type acts)
{
    assert(type >= 0 && type < QUANT_N && acts != QUANT_ACTS_F32);
    return acts == QUANT_ACTS_I8 ? 127 : cpu_format_of(type)->wide ? 16383 : 32767;
}

quant_decode_fn *cpu_decoder(int type, unsigned simd)
{
    const struct cpu_format *t = cpu_format_of(type);

    if ((simd & SIMD_AVX512) != 0 && t->decode_avx512 != NULL)
        return t->decode_avx512;
    if ((simd & SIMD_AVX2) != 0 && t->decode_avx2 != NULL)
        return t->decode_avx2;
    return quant_types[type]->decode;
}

cpu_ints_fn *cpu_int_decoder(int type, unsigned simd)
{
    const struct cpu_format *t = cpu_format_of(type);

    if ((simd & SIMD_AVX512) != 0 && t->ints_avx512 != NULL)
        return t->ints_avx512;
    if ((simd & SIMD_AVX2) != 0 && t->ints_avx2 != NULL)
        return t->ints_avx2;
    return t->ints;
}

cpu_int_dots_fn *cpu_int_dotter(int type, enum quant_acts_type acts, unsigned simd)
{
    const struct cpu_format *t = cpu_format_of(type);

    if (acts == QUANT_ACTS_I8 && (simd & BYTES) == BYTES && t->dots_i8_vbmi != NULL)
        return (simd & SIMD_AMX_INT8) != 0 ? t->dots_i8_near : t->dots_i8_vbmi;
    if (acts != QUANT_ACTS_I8 && (simd & SIMD_AVX512_VNNI) != 0 && t->dots_vnni != NULL)
        return t->dots_vnni;
    return (simd & SIMD_AVX2) == 0 ? NULL : acts == QUANT_ACTS_I8 ? t->dots_i8_avx2 : t->dots_avx2;
}

cpu_int_two_fn *cpu_int_twos(int type, enum quant_acts_type acts, unsigned simd)
{
    return acts == QUANT_ACTS_I8 && (simd & SIMD_AVX2) != 0 && (simd & BYTES) != BYTES
               ? cpu_format_of(type)->two_i8_avx2
               : NULL;
}

cpu_lay_fn *cpu_layer(int type, enum quant_acts_type acts, unsigned simd)
{
    const struct cpu_format *t = cpu_format_of(type);

    if (acts != QUANT_ACTS_I8)
        return NULL;
    if ((simd & BYTES) == BYTES)
        return t->lay;
    return (simd & (SIMD_AVX2 | SIMD_AVX512_VNNI | SIMD_AVX_VNNI)) == SIMD_AVX2 ? t->lay_avx2 : NULL;
}

cpu_int_tile_fn *cpu_int_tiler(int type, enum quant_acts_type acts, unsigned simd)
{
    return acts != QUANT_ACTS_I8 && (simd & (SIMD_AVX2 | SIMD_AVX512)) == SIMD_AVX2 ? cpu_format_of(type)->tile_avx2
                                                                                    : NULL;
}
