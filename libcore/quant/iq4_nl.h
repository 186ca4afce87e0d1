/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_nl.h - 4 bits, codes of a non-linear table: 32 elements in 18 bytes. */
#ifndef QUANT_IQ4_NL_H
#define QUANT_IQ4_NL_H
#include <assert.h>
#include <stdint.h>

struct quant_iq4_nl {
    uint16_t d;     /* f16 scale */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31 */
};
static_assert(sizeof(struct quant_iq4_nl) == 18, "the block on disk");
#endif
