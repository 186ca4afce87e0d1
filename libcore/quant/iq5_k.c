/* SPDX-License-Identifier: Apache-2.0 */
/* iq5_k.c - x = d (s - 32) value(q), s 6 bits for each 16. */
#include "quant/iq5_k.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq5_k(float *y, const void *row, int64_t n)
{
    const struct quant_iq5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 4 * 32 + g % 2 * 16, *h = b->qh + g % 2 * 16;
            const int8_t *value = quant_iq5nl_values + (b->extra >> g & 1) * 32;
            int s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh[g / 4] >> g % 4 * 2 & 3) << 4;
            float scale = d * (float)(s - 32);
            int shift = g % 4 / 2 * 4, bit = g / 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)value[(q[l] >> shift & 15) | (h[l] >> bit & 1) << 4];
        }
    }
}

const struct quant_type quant_type_iq5_k = {
    .name = "iq5_k",
    .id = 140,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq5_k),
    .decode = decode_iq5_k,
};
