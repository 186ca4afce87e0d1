/* SPDX-License-Identifier: Apache-2.0 */
/* q2_0.h - 2 bits: -1, 0, 1, 2: 64 elements in 18 bytes. */
#ifndef QUANT_Q2_0_H
#define QUANT_Q2_0_H
#include <assert.h>
#include <stdint.h>

struct quant_q2_0 {
    uint16_t d;     /* f16 scale */
    uint8_t qs[16]; /* four consecutive elements a byte, lowest bits first */
};
static_assert(sizeof(struct quant_q2_0) == 18, "the block on disk");
#endif
