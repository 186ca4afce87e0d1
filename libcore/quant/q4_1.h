/* SPDX-License-Identifier: Apache-2.0 */
/* q4_1.h - 4 bits, scale and minimum: 32 elements in 20 bytes. */
#ifndef QUANT_Q4_1_H
#define QUANT_Q4_1_H
#include <assert.h>
#include <stdint.h>

struct quant_q4_1 {
    uint16_t d;     /* f16 scale */
    uint16_t m;     /* f16 minimum */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31 */
};
static_assert(sizeof(struct quant_q4_1) == 20, "the block on disk");
#endif
