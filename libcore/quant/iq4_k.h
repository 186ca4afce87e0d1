/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_k.h - 4.5 bits, non-linear codes, 6-bit scales per 16: 256 elements in 144 bytes. */
#ifndef QUANT_IQ4_K_H
#define QUANT_IQ4_K_H
#include <assert.h>
#include <stdint.h>

struct quant_iq4_k {
    uint16_t d;      /* f16 scale */
    uint16_t extra;  /* bit g: group g of 16 uses the shifted half of the table */
    uint8_t sh[4];   /* high 2 bits of each scale */
    uint8_t sl[8];   /* low 4 bits of each scale */
    uint8_t qs[128]; /* 16 bytes for 32: low nibbles the first 16, high the others */
};
static_assert(sizeof(struct quant_iq4_k) == 144, "the block on disk");
#endif
