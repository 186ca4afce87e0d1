/* SPDX-License-Identifier: Apache-2.0 */
/* iq_grids.h - code books of the iq formats, as packed digits.                  room: quant
 *
 * An entry of a grid is 16 bits. Grids of octets: digit k, 2 bits from bit 2k, is element k; it
 * stands for -1, 0, 1 (iq1s) or for the magnitudes 8, 25, 43 (iq2). Grids of quads: 4 bits from bit
 * 4k, standing for the magnitudes 4, 12, 20, 28, 36, 44, 52, 62 (iq3xxs) or 1, 3, 5 ... 15 (iq3s).
 */
#ifndef QUANT_IQ_GRIDS_H
#define QUANT_IQ_GRIDS_H
#include <stdbool.h>
#include <stdint.h>

extern const uint16_t quant_iq1s_grid[2048];
extern const uint16_t quant_iq2xxs_grid[256];
extern const uint16_t quant_iq2xs_grid[512];
extern const uint16_t quant_iq2s_grid[1024];
extern const uint16_t quant_iq3xxs_grid[256];
extern const uint16_t quant_iq3s_grid[512];

/* Values of codes; the ik formats have a second half, the shifted values. */
extern const int8_t quant_fp4_values[16]; /* twice the value of a 4-bit float E2M1 */
extern const int8_t quant_iq4nl_values[16];
extern const int8_t quant_iq2nl_values[8];
extern const int8_t quant_iq3nl_values[16];
extern const int8_t quant_iq4k_values[32];
extern const int8_t quant_iq5nl_values[64];

/* The 8 signs of a code of 7 bits. Bit 7 is set so that the number of minus signs is even. */
static inline unsigned iq_signs(unsigned code)
{
    return code | (0x6996u >> ((code ^ code >> 4) & 15u) & 1u) << 7;
}

/* Four entries side by side, the first lowest. */
static inline uint64_t iq_pack(uint16_t e0, uint16_t e1, uint16_t e2, uint16_t e3)
{
    return e0 | (uint32_t)e1 << 16 | (uint64_t)(e2 | (uint32_t)e3 << 16) << 32;
}

static inline int iq_magnitude(unsigned digit)
{
    return digit == 0 ? 8 : digit == 1 ? 25 : digit == 2 ? 43 : 0;
}

/* 8 elements of an octet of magnitudes. */
static inline void iq_octet(float *y, float scale, unsigned entry, unsigned signs)
{
    static const float value[2][4] = { { 8.0f, 25.0f, 43.0f, 0.0f },
                                       { -8.0f, -25.0f, -43.0f, 0.0f } };

    for (unsigned k = 0; k < 8; k++)
        y[k] = scale * value[signs >> k & 1u][entry >> 2 * k & 3u];
}

/* The same before their scale. */
static inline void iq_octet_bytes(int8_t *code, unsigned entry, unsigned signs)
{
    for (unsigned k = 0; k < 8; k++) {
        int m = iq_magnitude(entry >> 2 * k & 3u);

        code[k] = (int8_t)((signs >> k & 1u) != 0 ? -m : m);
    }
}

/* 8 elements of iq1: scale times (digit - 1 plus or minus 1/8). */
static inline void iq_ternary_octet(float *y, float scale, unsigned entry, bool minus)
{
    float shift = minus ? -0.125f : 0.125f;

    for (unsigned k = 0; k < 8; k++)
        y[k] = scale * ((float)((int)(entry >> 2 * k & 3u) - 1) + shift);
}
#endif
