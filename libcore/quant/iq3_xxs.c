/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_xxs.c - x = d (s + 1/2) / 2 times a signed magnitude, s 4 bits for each 32. */
#include "quant/iq3_xxs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void quad(float *y, float scale, unsigned entry, unsigned signs)
{
    static const float value[16] = { 4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62 };

    for (unsigned k = 0; k < 4; k++)
        y[k] = scale * value[(entry >> 4 * k & 7u) | (signs >> k & 1u) << 3];
}

static void decode_iq3_xxs(float *y, const void *row, int64_t n)
{
    const struct quant_iq3_xxs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++) {
            uint32_t aux;

            memcpy(&aux, b->aux + 4 * g, sizeof(aux));
            float scale = d * (0.5f + (float)(aux >> 28)) * 0.5f;

            for (int l = 0; l < 8; l++) {
                unsigned signs = iq_signs(aux >> l / 2 * 7 & 127u) >> l % 2 * 4;

                quad(y + 32 * g + 4 * l, scale, quant_iq3xxs_grid[b->qs[8 * g + l]], signs);
            }
        }
    }
}

const struct quant_type quant_type_iq3_xxs = {
    .name = "iq3_xxs",
    .id = 18,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq3_xxs),
    .decode = decode_iq3_xxs,
};
