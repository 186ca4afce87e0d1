/* SPDX-License-Identifier: Apache-2.0 */
/* tq1_0.h - 1.69 bits, five ternary digits a byte: 256 elements in 54 bytes. */
#ifndef QUANT_TQ1_0_H
#define QUANT_TQ1_0_H
#include <assert.h>
#include <stdint.h>

struct quant_tq1_0 {
    uint8_t qs[48]; /* 32 bytes for 160 elements, 16 bytes for 80 */
    uint8_t qh[4];  /* four digits a byte: the last 16 elements */
    uint16_t d;     /* f16 scale */
};
static_assert(sizeof(struct quant_tq1_0) == 54, "the block on disk");
#endif
