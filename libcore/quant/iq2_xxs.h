/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xxs.h - 2.06 bits, code book of 256 octets of magnitudes: 256 elements in 66 bytes. */
#ifndef QUANT_IQ2_XXS_H
#define QUANT_IQ2_XXS_H
#include <assert.h>
#include <stdint.h>

struct quant_iq2_xxs {
    uint16_t d;     /* f16 scale */
    uint8_t qs[64]; /* per 32: 4 codes, then u32: 4 sign codes of 7 bits, 4 bits scale */
};
static_assert(sizeof(struct quant_iq2_xxs) == 66, "the block on disk");
#endif
