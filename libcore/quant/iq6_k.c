/* SPDX-License-Identifier: Apache-2.0 */
/* iq6_k.c - x = d s value(q), s 8 bits for each 16. */
#include "quant/iq6_k.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq6_k(float *y, const void *row, int64_t n)
{
    const struct quant_iq6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 4 * 32 + g % 2 * 16;
            const uint8_t *h = b->qh + g / 8 * 32 + g % 2 * 16;
            float scale = d * (float)b->sc[g], more = (float)(b->extra >> g & 1);
            int shift = g % 4 / 2 * 4, pair = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++) {
                int code = (q[l] >> shift & 15) | (h[l] >> pair & 3) << 4;

                y[16 * g + l] = scale * (quant_iq6k_value(code) + more);
            }
        }
    }
}

const struct quant_type quant_type_iq6_k = {
    .name = "iq6_k",
    .id = 141,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq6_k),
    .decode = decode_iq6_k,
};
