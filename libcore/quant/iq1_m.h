/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_m.h - 1.75 bits, code book of 2048 ternary octets: 256 elements in 56 bytes. */
#ifndef QUANT_IQ1_M_H
#define QUANT_IQ1_M_H
#include <assert.h>
#include <stdint.h>

struct quant_iq1_m {
    uint8_t qs[32]; /* low 8 bits of the code of each group of 8 */
    uint8_t qh[16]; /* a nibble a group: 3 high bits of the code, sign of the shift */
    uint16_t sc[4]; /* each 4 scales of 3 bits, one per 16; the top nibbles are the f16 scale */
};
static_assert(sizeof(struct quant_iq1_m) == 56, "the block on disk");
#endif
