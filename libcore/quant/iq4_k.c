/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_k.c - x = d (s - 32) value(q), s 6 bits for each 16. */
#include "quant/iq4_k.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq4_k(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 2 * 16;
            const int8_t *value = quant_iq4k_values + (b->extra >> g & 1) * 16;
            int s = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh[g / 4] >> g % 4 * 2 & 3) << 4;
            float scale = d * (float)(s - 32);

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)value[q[l] >> g % 2 * 4 & 15];
        }
    }
}

const struct quant_type quant_type_iq4_k = {
    .name = "iq4_k",
    .id = 139,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq4_k),
    .decode = decode_iq4_k,
};
