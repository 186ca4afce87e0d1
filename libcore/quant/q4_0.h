/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.h - 4 bits, symmetric: 32 elements in 18 bytes. */
#ifndef QUANT_Q4_0_H
#define QUANT_Q4_0_H
#include <assert.h>
#include <stdint.h>

struct quant_q4_0 {
    uint16_t d;     /* f16 scale */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31; each minus 8 */
};
static_assert(sizeof(struct quant_q4_0) == 18, "the block on disk");
#endif
