/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - conversions of 16-bit floats, for the inner loops of this room.      room: quant
 *
 * The same bits as the processor's own instructions (VCVTPH2PS, VCVTPS2PH to nearest even): NaN
 * stays NaN and becomes quiet, keeping its sign and upper payload. Written without branches that
 * a compiler cannot turn into selects.
 */
#ifndef QUANT_HALF_H
#define QUANT_HALF_H
#include <stdint.h>
#include <string.h>

static inline float half_bits_f32(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t half_f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float half_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu;
    uint32_t normal = (mag << 13) + (112u << 23);
    uint32_t small = half_f32_bits((float)(int32_t)mag * 0x1p-24f); /* subnormals: exact */
    uint32_t special = 0x7f800000u | mag << 13 | (mag > 0x7c00u ? 0x400000u : 0u);
    uint32_t u = mag < 0x400u ? small : mag < 0x7c00u ? normal : special;

    return half_bits_f32(sign | u);
}

static inline uint16_t half_of_f32(float f)
{
    uint32_t u = half_f32_bits(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    /* Adding 0.5 leaves units of 2^-24, a subnormal half's, in the sum's low bits. */
    uint32_t small = half_f32_bits(half_bits_f32(mag) + 0.5f) - 0x3f000000u;
    uint32_t normal = (mag - (112u << 23) + 0xfffu + (mag >> 13 & 1u)) >> 13;
    uint32_t special = mag > 0x7f800000u ? 0x7e00u | (mag >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t h = mag < 0x38800000u ? small : mag < 0x47800000u ? normal : special;

    return (uint16_t)(sign | h);
}

static inline float half_bf16_to_f32(uint16_t h)
{
    return half_bits_f32((uint32_t)h << 16);
}

static inline uint16_t half_bf16_of_f32(float f)
{
    uint32_t u = half_f32_bits(f);
    uint32_t quiet = u >> 16 | 0x40u, near = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;

    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : near);
}
#endif
