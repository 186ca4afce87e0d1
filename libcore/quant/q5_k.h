/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.h - 5 bits, 8 groups of 32 with 6-bit scale and minimum: 256 elements in 176 bytes. */
#ifndef QUANT_Q5_K_H
#define QUANT_Q5_K_H
#include <assert.h>
#include <stdint.h>

struct quant_q5_k {
    uint16_t d;      /* f16: scale of the scales */
    uint16_t dmin;   /* f16: scale of the minima */
    uint8_t sc[12];  /* 8 scales and 8 minima: quant/k_scales.h */
    uint8_t qh[32];  /* bit g of byte l: fifth bit of element 32 g + l */
    uint8_t qs[128]; /* 32 bytes for 64 elements: low nibbles the first 32, high the others */
};
static_assert(sizeof(struct quant_q5_k) == 176, "the block on disk");
#endif
