/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.h - 3.44 bits, code book of 512 quads of magnitudes: 256 elements in 110 bytes. */
#ifndef QUANT_IQ3_S_H
#define QUANT_IQ3_S_H
#include <assert.h>
#include <stdint.h>

struct quant_iq3_s {
    uint16_t d;        /* f16 scale */
    uint8_t qs[64];    /* low 8 bits of the code of each group of 4 */
    uint8_t qh[8];     /* high bit of each of 8 codes */
    uint8_t signs[32]; /* bit j of byte i set: element 8 i + j is negative */
    uint8_t sc[4];     /* a nibble per 32 */
};
static_assert(sizeof(struct quant_iq3_s) == 110, "the block on disk");
#endif
