/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_s.c - x = d (2 s + 1) (code + shift), s 3 bits and a shift of 1/8 or -1/8 for each 32. */
#include "quant/iq1_s.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq1_s(float *y, const void *row, int64_t n)
{
    const struct quant_iq1_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 32; g++) {
            unsigned h = b->qh[g / 4], code = b->qs[g] | (h >> g % 4 * 3 & 7u) << 8;
            float scale = d * (float)(2 * (h >> 12 & 7u) + 1);

            iq_ternary_octet(y + 8 * g, scale, quant_iq1s_grid[code], (h & 0x8000u) != 0);
        }
    }
}

const struct quant_type quant_type_iq1_s = {
    .name = "iq1_s",
    .id = 19,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq1_s),
    .decode = decode_iq1_s,
};
