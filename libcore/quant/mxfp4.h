/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.h - 4-bit floats E2M1 with a power of two (OCP microscaling): 32 elements in 17 bytes. */
#ifndef QUANT_MXFP4_H
#define QUANT_MXFP4_H
#include <assert.h>
#include <stdint.h>

struct quant_mxfp4 {
    uint8_t e;      /* E8M0 */
    uint8_t qs[16]; /* low nibbles: elements 0-15, high: 16-31 */
};
static_assert(sizeof(struct quant_mxfp4) == 17, "the block on disk");
#endif
