/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_k.c - x = d (s - 8) value(q), s 4 bits for each 16. */
#include "quant/iq2_k.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq2_k(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
            const int8_t *value = quant_iq2nl_values + (b->extra >> g & 1) * 4;
            float scale = d * (float)((b->sc[g / 2] >> g % 2 * 4 & 15) - 8);
            int shift = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)value[q[l] >> shift & 3];
        }
    }
}

const struct quant_type quant_type_iq2_k = {
    .name = "iq2_k",
    .id = 137,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_k),
    .decode = decode_iq2_k,
};
