/* SPDX-License-Identifier: Apache-2.0 */
/* q5_1.h - 5 bits, scale and minimum: 32 elements in 24 bytes. */
#ifndef QUANT_Q5_1_H
#define QUANT_Q5_1_H
#include <assert.h>
#include <stdint.h>

struct quant_q5_1 {
    uint16_t d;     /* f16 scale */
    uint16_t m;     /* f16 minimum */
    uint8_t qh[4];  /* little-endian: bit j is the fifth bit of element j */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31 */
};
static_assert(sizeof(struct quant_q5_1) == 24, "the block on disk");
#endif
