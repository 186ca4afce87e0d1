/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.h - 6 bits, 16 groups of 16 with 8-bit scale: 256 elements in 210 bytes. */
#ifndef QUANT_Q6_K_H
#define QUANT_Q6_K_H
#include <assert.h>
#include <stdint.h>

struct quant_q6_k {
    uint8_t ql[128]; /* 64 bytes a half of 128: low nibbles elements 0-63, high 64-127 */
    uint8_t qh[64];  /* 32 bytes a half; byte l: bits 4-5 of elements l, l+32, l+64, l+96 */
    int8_t sc[16];
    uint16_t d; /* f16: scale of the scales */
};
static_assert(sizeof(struct quant_q6_k) == 210, "the block on disk");
#endif
