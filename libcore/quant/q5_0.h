/* SPDX-License-Identifier: Apache-2.0 */
/* q5_0.h - 5 bits, symmetric: 32 elements in 22 bytes. */
#ifndef QUANT_Q5_0_H
#define QUANT_Q5_0_H
#include <assert.h>
#include <stdint.h>

struct quant_q5_0 {
    uint16_t d;     /* f16 scale */
    uint8_t qh[4];  /* little-endian: bit j is the fifth bit of element j */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31; the five bits minus 16 */
};
static_assert(sizeof(struct quant_q5_0) == 22, "the block on disk");
#endif
