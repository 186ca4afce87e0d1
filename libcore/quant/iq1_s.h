/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_s.h - 1.56 bits, code book of 2048 ternary octets: 256 elements in 50 bytes. */
#ifndef QUANT_IQ1_S_H
#define QUANT_IQ1_S_H
#include <assert.h>
#include <stdint.h>

struct quant_iq1_s {
    uint16_t d;     /* f16 scale */
    uint8_t qs[32]; /* low 8 bits of the code of each group of 8 */
    uint16_t qh[8]; /* per 32: 4 times 3 high bits of a code, 3 bits scale, sign of the shift */
};
static_assert(sizeof(struct quant_iq1_s) == 50, "the block on disk");
#endif
