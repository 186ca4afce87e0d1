/* SPDX-License-Identifier: Apache-2.0 */
/* iq5_k.h - 5.5 bits, non-linear codes, 6-bit scales per 16: 256 elements in 176 bytes. */
#ifndef QUANT_IQ5_K_H
#define QUANT_IQ5_K_H
#include <assert.h>
#include <stdint.h>

struct quant_iq5_k {
    uint16_t d;      /* f16 scale */
    uint16_t extra;  /* bit g: group g of 16 uses the shifted half of the table */
    uint8_t sh[4];   /* high 2 bits of each scale */
    uint8_t sl[8];   /* low 4 bits of each scale */
    uint8_t qs[128]; /* 32 bytes for 64 elements: low nibbles the first 32, high the others */
    uint8_t qh[32];  /* bit b of byte l: fifth bit of element 32 b + l */
};
static_assert(sizeof(struct quant_iq5_k) == 176, "the block on disk");
#endif
