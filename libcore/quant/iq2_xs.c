/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xs.c - x = d (s + 1/2) / 4 times a signed magnitude, s 4 bits for each 16. */
#include "quant/iq2_xs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq2_xs(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 32; g++) {
            int s = b->sc[g / 4] >> g % 4 / 2 * 4 & 15;
            float scale = d * (0.5f + (float)s) * 0.25f;

            iq_octet(y + 8 * g, scale, quant_iq2xs_grid[b->qs[g] & 511], iq_signs(b->qs[g] >> 9));
        }
    }
}

const struct quant_type quant_type_iq2_xs = {
    .name = "iq2_xs",
    .id = 17,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_xs),
    .decode = decode_iq2_xs,
};
