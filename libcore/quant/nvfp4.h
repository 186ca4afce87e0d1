/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.h - 4-bit floats E2M1 with an 8-bit float scale per 16: 64 elements in 36 bytes. */
#ifndef QUANT_NVFP4_H
#define QUANT_NVFP4_H
#include <assert.h>
#include <stdint.h>

struct quant_nvfp4 {
    uint8_t d[4];   /* unsigned E4M3 */
    uint8_t qs[32]; /* 8 bytes for 16: low nibbles the first 8, high the others */
};
static_assert(sizeof(struct quant_nvfp4) == 36, "the block on disk");
#endif
