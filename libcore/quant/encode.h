/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - helpers that the rounding encoders share.                          room: quant
 *
 * These encoders round to nearest and ignore importance. The scale is rounded to f16 first, and
 * elements are divided by the rounded scale. Loops have no branches, so a compiler can turn
 * them into vector code.
 */
#ifndef QUANT_ENCODE_H
#define QUANT_ENCODE_H
#include "quant/half.h"

enum {
    ENCODE_NAN = 0x7e00,     /* f16: the scale of a block that is not all finite */
    ENCODE_MAX_F16 = 0x7bff, /* the largest finite f16 */
};

/* The largest magnitude of 32 floats, as bits: infinity and NaN compare above all numbers. */
static inline int32_t encode_max_bits(const float *x)
{
    int32_t max = 0;

    for (int j = 0; j < 32; j++) {
        int32_t bits = (int32_t)(half_f32_bits(x[j]) & 0x7fffffffu);

        max = bits > max ? bits : max;
    }
    return max;
}

/* The f16 scale >= 0 with which a magnitude of max becomes about `codes`. Where f16 is coarse, a
 * scale that would cut the largest element by more than half a code is rounded up instead. */
static inline uint16_t encode_scale(float max, float codes)
{
    uint16_t d = half_of_f32(max / codes);

    if (d > ENCODE_MAX_F16)
        return ENCODE_MAX_F16;
    if (half_to_f32(d) * (codes + 0.5f) < max && d < ENCODE_MAX_F16)
        d++;
    return d;
}

/* To the nearest whole number, ties to even, within [min, max] (small numbers). */
static inline int encode_round(float v, float min, float max)
{
    v = v < min ? min : v;
    v = v > max ? max : v;
    return (int)((v + 12582912.0f) - 12582912.0f); /* 1.5 * 2^23: units are whole numbers */
}
#endif
