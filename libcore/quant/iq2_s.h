/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_s.h - 2.56 bits, code book of 1024 octets of magnitudes: 256 elements in 82 bytes. */
#ifndef QUANT_IQ2_S_H
#define QUANT_IQ2_S_H
#include <assert.h>
#include <stdint.h>

struct quant_iq2_s {
    uint16_t d;        /* f16 scale */
    uint8_t qs[32];    /* low 8 bits of the code of each group of 8 */
    uint8_t signs[32]; /* bit j set: element j of the group is negative */
    uint8_t qh[8];     /* 2 high bits of each of 4 codes */
    uint8_t sc[8];     /* a nibble per 16 */
};
static_assert(sizeof(struct quant_iq2_s) == 82, "the block on disk");
#endif
