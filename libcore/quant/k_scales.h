/* SPDX-License-Identifier: Apache-2.0 */
/* k_scales.h - the packed scales of q4_k, q5_k and q3_k. */
#ifndef QUANT_K_SCALES_H
#define QUANT_K_SCALES_H
#include <stdint.h>
#include <string.h>

/* 12 bytes of q4_k and q5_k: 8 scales to sm[0..7], 8 minima to sm[8..15], each 0 to 63. The first
 * four of both are the low 6 bits of bytes 0-3 and 4-7, whose top bits complete the other four. */
static inline void k_scales_45(uint8_t sm[16], const uint8_t sc[12])
{
    uint32_t a[3], out[4];

    memcpy(a, sc, sizeof(a));
    out[0] = a[0] & 0x3f3f3f3fu;
    out[1] = (a[2] & 0x0f0f0f0fu) | (a[0] >> 2 & 0x30303030u);
    out[2] = a[1] & 0x3f3f3f3fu;
    out[3] = (a[2] >> 4 & 0x0f0f0f0fu) | (a[1] >> 2 & 0x30303030u);
    memcpy(sm, out, sizeof(out));
}

/* 12 bytes of q3_k: 16 scales, each 0 to 63 (32 is zero). */
static inline void k_scales_3(uint8_t s[16], const uint8_t sc[12])
{
    uint32_t a[3], out[4];

    memcpy(a, sc, sizeof(a));
    out[0] = (a[0] & 0x0f0f0f0fu) | (a[2] & 0x03030303u) << 4;
    out[1] = (a[1] & 0x0f0f0f0fu) | (a[2] >> 2 & 0x03030303u) << 4;
    out[2] = (a[0] >> 4 & 0x0f0f0f0fu) | (a[2] >> 4 & 0x03030303u) << 4;
    out[3] = (a[1] >> 4 & 0x0f0f0f0fu) | (a[2] >> 6 & 0x03030303u) << 4;
    memcpy(s, out, sizeof(out));
}
#endif
