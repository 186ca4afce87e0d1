/* SPDX-License-Identifier: Apache-2.0 */
/* q8_0.h - 8 bits, symmetric: 32 elements in 34 bytes. */
#ifndef QUANT_Q8_0_H
#define QUANT_Q8_0_H
#include <assert.h>
#include <stdint.h>

struct quant_q8_0 {
    uint16_t d; /* f16 scale */
    int8_t qs[32];
};
static_assert(sizeof(struct quant_q8_0) == 34, "the block on disk");
#endif
