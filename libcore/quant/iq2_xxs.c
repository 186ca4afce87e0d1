/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xxs.c - x = d (s + 1/2) / 4 times a signed magnitude, s 4 bits for each 32. */
#include "quant/iq2_xxs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq2_xxs(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_xxs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 8 * g;
            uint32_t aux;

            memcpy(&aux, q + 4, sizeof(aux));
            float scale = d * (0.5f + (float)(aux >> 28)) * 0.25f;

            for (int l = 0; l < 4; l++)
                iq_octet(y + 32 * g + 8 * l, scale, quant_iq2xxs_grid[q[l]], iq_signs(aux >> 7 * l & 127u));
        }
    }
}

const struct quant_type quant_type_iq2_xxs = {
    .name = "iq2_xxs",
    .id = 16,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_xxs),
    .decode = decode_iq2_xxs,
};
