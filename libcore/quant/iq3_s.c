/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.c - x = d (2 s + 1) times a signed odd magnitude, s 4 bits for each 32. */
#include "quant/iq3_s.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq3_s(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 64; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 8] >> g % 8 & 1u) << 8;
            unsigned entry = quant_iq3s_grid[code], signs = b->signs[g / 2] >> g % 2 * 4;
            float scale = d * (float)(1 + 2 * (b->sc[g / 16] >> g % 16 / 8 * 4 & 15));

            for (unsigned k = 0; k < 4; k++) {
                int mag = (int)(entry >> 4 * k & 7u) * 2 + 1;

                y[4 * g + (int)k] = scale * (float)((signs >> k & 1u) != 0 ? -mag : mag);
            }
        }
    }
}

const struct quant_type quant_type_iq3_s = {
    .name = "iq3_s",
    .id = 21,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq3_s),
    .decode = decode_iq3_s,
};
