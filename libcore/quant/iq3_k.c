/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_k.c - x = d s value(q), s odd, 4 bits and a sign for each 16. */
#include "quant/iq3_k.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq3_k(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16, *h = b->qh + g % 2 * 16;
            const int8_t *value = quant_iq3nl_values + (b->extra >> g & 1) * 8;
            int s = 2 * (b->sl[g / 2] >> g % 2 * 4 & 15) + 1;
            float scale = d * (float)((b->sh >> g & 1) != 0 ? -s : s);
            int shift = g % 8 / 2 * 2, bit = g / 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)value[(q[l] >> shift & 3) | (h[l] >> bit & 1) << 2];
        }
    }
}

const struct quant_type quant_type_iq3_k = {
    .name = "iq3_k",
    .id = 138,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq3_k),
    .decode = decode_iq3_k,
};
