/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.c - x = d (s - 32) value(q), s 6 bits for each 32. */
#include "quant/iq4_xs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq4_xs(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            int s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            float scale = d * (float)(s - 32);

            for (int j = 0; j < 16; j++) {
                y[32 * g + j] = scale * (float)quant_iq4nl_values[q[j] & 15];
                y[32 * g + j + 16] = scale * (float)quant_iq4nl_values[q[j] >> 4];
            }
        }
    }
}

const struct quant_type quant_type_iq4_xs = {
    .name = "iq4_xs",
    .id = 23,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq4_xs),
    .decode = decode_iq4_xs,
};
