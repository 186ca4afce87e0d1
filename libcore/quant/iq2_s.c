/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_s.c - x = d (s + 1/2) / 4 times a signed magnitude, s 4 bits for each 16. */
#include "quant/iq2_s.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq2_s(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_s *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 32; g++) {
            unsigned code = b->qs[g] | (b->qh[g / 4] >> g % 4 * 2 & 3u) << 8;
            int s = b->sc[g / 4] >> g % 4 / 2 * 4 & 15;

            iq_octet(y + 8 * g, d * (0.5f + (float)s) * 0.25f, quant_iq2s_grid[code], b->signs[g]);
        }
    }
}

const struct quant_type quant_type_iq2_s = {
    .name = "iq2_s",
    .id = 22,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_s),
    .decode = decode_iq2_s,
};
