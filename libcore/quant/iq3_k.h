/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_k.h - 3.44 bits, non-linear codes, 5-bit scales per 16: 256 elements in 110 bytes. */
#ifndef QUANT_IQ3_K_H
#define QUANT_IQ3_K_H
#include <assert.h>
#include <stdint.h>

struct quant_iq3_k {
    uint16_t d;     /* f16 scale */
    uint16_t extra; /* bit g: group g of 16 uses the shifted half of the table */
    uint16_t sh;    /* bit g: the scale is negative */
    uint8_t sl[8];  /* a nibble a group: twice it plus 1 is the scale */
    uint8_t qs[64]; /* low 2 bits, 32 bytes a half: elements l, l+32, l+64, l+96 */
    uint8_t qh[32]; /* bit b of byte l: high bit of element 32 b + l */
};
static_assert(sizeof(struct quant_iq3_k) == 110, "the block on disk");
#endif
