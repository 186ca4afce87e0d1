/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.h - 2 bits, 16 groups of 16 with 4-bit scale and minimum: 256 elements in 84 bytes. */
#ifndef QUANT_Q2_K_H
#define QUANT_Q2_K_H
#include <assert.h>
#include <stdint.h>

struct quant_q2_k {
    uint8_t sc[16]; /* group: low nibble scale, high nibble minimum */
    uint8_t qs[64]; /* 32 bytes a half of 128; byte l holds elements l, l+32, l+64, l+96 */
    uint16_t d;     /* f16: scale of the scales */
    uint16_t dmin;  /* f16: scale of the minima */
};
static_assert(sizeof(struct quant_q2_k) == 84, "the block on disk");
#endif
