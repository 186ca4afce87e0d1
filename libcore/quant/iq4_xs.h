/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.h - 4.25 bits, non-linear codes, 6-bit scales per 32: 256 elements in 136 bytes. */
#ifndef QUANT_IQ4_XS_H
#define QUANT_IQ4_XS_H
#include <assert.h>
#include <stdint.h>

struct quant_iq4_xs {
    uint16_t d;      /* f16 scale */
    uint16_t sh;     /* high 2 bits of each scale */
    uint8_t sl[4];   /* low 4 bits of each scale */
    uint8_t qs[128]; /* 16 bytes for 32: low nibbles the first 16, high the others */
};
static_assert(sizeof(struct quant_iq4_xs) == 136, "the block on disk");
#endif
