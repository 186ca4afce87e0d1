/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_xxs.h - 3.06 bits, code book of 256 quads of magnitudes: 256 elements in 98 bytes. */
#ifndef QUANT_IQ3_XXS_H
#define QUANT_IQ3_XXS_H
#include <assert.h>
#include <stdint.h>

struct quant_iq3_xxs {
    uint16_t d;      /* f16 scale */
    uint8_t qs[64];  /* a code per 4 */
    uint8_t aux[32]; /* per 32 a little-endian u32: 4 sign codes of 7 bits, 4 bits scale */
};
static_assert(sizeof(struct quant_iq3_xxs) == 98, "the block on disk");
#endif
