/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xs.h - 2.31 bits, code book of 512 octets of magnitudes: 256 elements in 74 bytes. */
#ifndef QUANT_IQ2_XS_H
#define QUANT_IQ2_XS_H
#include <assert.h>
#include <stdint.h>

struct quant_iq2_xs {
    uint16_t d;      /* f16 scale */
    uint16_t qs[32]; /* per 8: code of 9 bits, sign code of 7 */
    uint8_t sc[8];   /* a nibble per 16 */
};
static_assert(sizeof(struct quant_iq2_xs) == 74, "the block on disk");
#endif
