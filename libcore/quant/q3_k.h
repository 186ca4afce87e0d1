/* SPDX-License-Identifier: Apache-2.0 */
/* q3_k.h - 3 bits, 16 groups of 16 with 6-bit scale: 256 elements in 110 bytes. */
#ifndef QUANT_Q3_K_H
#define QUANT_Q3_K_H
#include <assert.h>
#include <stdint.h>

struct quant_q3_k {
    uint8_t hmask[32]; /* bit b of byte l: high bit of element 32 b + l; clear means minus 4 */
    uint8_t qs[64];    /* low 2 bits, laid out as in q2_k */
    uint8_t sc[12];    /* 16 scales of 6 bits, plus 32: low nibbles in 8 bytes, high pairs in 4 */
    uint16_t d;        /* f16: scale of the scales */
};
static_assert(sizeof(struct quant_q3_k) == 110, "the block on disk");
#endif
