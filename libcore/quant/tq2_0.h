/* SPDX-License-Identifier: Apache-2.0 */
/* tq2_0.h - ternary in 2 bits: 256 elements in 66 bytes. */
#ifndef QUANT_TQ2_0_H
#define QUANT_TQ2_0_H
#include <assert.h>
#include <stdint.h>

struct quant_tq2_0 {
    uint8_t qs[64]; /* 32 bytes a half of 128; byte l holds elements l, l+32, l+64, l+96 */
    uint16_t d;     /* f16 scale */
};
static_assert(sizeof(struct quant_tq2_0) == 66, "the block on disk");
#endif
