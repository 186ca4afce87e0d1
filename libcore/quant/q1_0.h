/* SPDX-License-Identifier: Apache-2.0 */
/* q1_0.h - signs: 128 elements in 18 bytes. */
#ifndef QUANT_Q1_0_H
#define QUANT_Q1_0_H
#include <assert.h>
#include <stdint.h>

struct quant_q1_0 {
    uint16_t d;     /* f16 scale */
    uint8_t qs[16]; /* bit set: plus, else minus */
};
static_assert(sizeof(struct quant_q1_0) == 18, "the block on disk");
#endif
