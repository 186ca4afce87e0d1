/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_k.h - 2.38 bits, non-linear codes, 4-bit scales per 16: 256 elements in 76 bytes. */
#ifndef QUANT_IQ2_K_H
#define QUANT_IQ2_K_H
#include <assert.h>
#include <stdint.h>

struct quant_iq2_k {
    uint16_t d;     /* f16 scale */
    uint16_t extra; /* bit g: group g of 16 uses the shifted half of the table */
    uint8_t sc[8];  /* a nibble a group, minus 8 */
    uint8_t qs[64]; /* 32 bytes a half of 128; byte l holds elements l, l+32, l+64, l+96 */
};
static_assert(sizeof(struct quant_iq2_k) == 76, "the block on disk");
#endif
