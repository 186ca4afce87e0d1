/* SPDX-License-Identifier: Apache-2.0 */
/* iq6_k.h - 6.63 bits, non-linear codes, 8-bit scales per 16: 256 elements in 212 bytes. */
#ifndef QUANT_IQ6_K_H
#define QUANT_IQ6_K_H
#include <assert.h>
#include <stdint.h>

struct quant_iq6_k {
    uint16_t d;     /* f16 scale */
    uint16_t extra; /* bit g: group g of 16 uses the shifted half of the table */
    int8_t sc[16];
    uint8_t qs[128]; /* 32 bytes for 64 elements: low nibbles the first 32, high the others */
    uint8_t qh[64];  /* 32 bytes a half; byte l: bits 4-5 of elements l, l+32, l+64, l+96 */
};
static_assert(sizeof(struct quant_iq6_k) == 212, "the block on disk");

/* The values of the codes are this cubic, not rounded to whole numbers. */
static inline float quant_iq6k_value(int q)
{
    float v = (float)q;

    return -127.0f + v * (6.2568f + v * (-0.11218f + v * 0.0011972f));
}
#endif
