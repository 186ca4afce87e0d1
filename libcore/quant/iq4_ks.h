/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_ks.h - 4.31 bits, non-linear codes, scales per 32 and row: 256 elements in 136 bytes. */
#ifndef QUANT_IQ4_KS_H
#define QUANT_IQ4_KS_H
#include <assert.h>
#include <stdint.h>

struct quant_iq4_ks {
    uint8_t sc[8];   /* bits 1-7 the scale plus 127, bit 0: shifted half of the table */
    uint8_t qs[128]; /* 16 bytes for 32: low nibbles the first 16, high the others */
};
static_assert(sizeof(struct quant_iq4_ks) == 136, "the block on disk");
#endif
