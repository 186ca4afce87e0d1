/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.h - 4-bit floats E2M1 with an 8-bit float scale per 16: 64 elements in 36 bytes. */
#ifndef QUANT_NVFP4_H
#define QUANT_NVFP4_H
#include <assert.h>
#include <stdint.h>

#include "quant/half.h"

struct quant_nvfp4 {
    uint8_t d[4];   /* unsigned E4M3 */
    uint8_t qs[32]; /* 8 bytes for 16: low nibbles the first 8, high the others */
};
static_assert(sizeof(struct quant_nvfp4) == 36, "the block on disk");

/* Half of an unsigned E4M3 number, because the table holds doubled values. The top bit is ignored;
 * 0x7f, E4M3's NaN, counts as 0. */
static inline float nvfp4_half_scale(uint8_t v)
{
    uint32_t exp = v >> 3 & 15u, man = v & 7u;

    if (v == 0x7f)
        return 0.0f;
    if (exp == 0)
        return (float)man * 0x1p-10f;
    return half_bits_f32((exp + 119) << 23 | man << 20);
}
#endif
