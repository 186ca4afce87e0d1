/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.h - 4-bit floats E2M1 with a power of two (OCP microscaling): 32 elements in 17 bytes. */
#ifndef QUANT_MXFP4_H
#define QUANT_MXFP4_H
#include <assert.h>
#include <stdint.h>

#include "quant/half.h"

struct quant_mxfp4 {
    uint8_t e;      /* E8M0 */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31 */
};
static_assert(sizeof(struct quant_mxfp4) == 17, "the block on disk");

/* 2^(e - 128): half the scale, because the table holds doubled values. Below 2^-126 it is subnormal. */
static inline float mxfp4_half_scale(uint32_t e)
{
    return half_bits_f32(e < 2 ? 0x200000u << e : (e - 1) << 23);
}
#endif
