/* SPDX-License-Identifier: Apache-2.0 */
/* iq1_m.c - x = d (2 s + 1) (code + shift), s 3 bits for each 16, a shift for each 8. */
#include "quant/iq1_m.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq1_m(float *y, const void *row, int64_t n)
{
    const struct quant_iq1_m *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unsigned top = (unsigned)(b->sc[0] >> 12 | (b->sc[1] >> 12) << 4 | (b->sc[2] >> 12) << 8);
        float d = half_to_f32((uint16_t)(top | (b->sc[3] & 0xf000u)));

        for (int g = 0; g < 32; g++) {
            unsigned h = b->qh[g / 2] >> g % 2 * 4 & 15u, code = b->qs[g] | (h & 7u) << 8;
            unsigned s = b->sc[g / 8] >> g % 8 / 2 * 3 & 7u;

            iq_ternary_octet(y + 8 * g, d * (float)(2 * s + 1), quant_iq1s_grid[code], h >= 8);
        }
    }
}

const struct quant_type quant_type_iq1_m = {
    .name = "iq1_m",
    .id = 29,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq1_m),
    .decode = decode_iq1_m,
};
