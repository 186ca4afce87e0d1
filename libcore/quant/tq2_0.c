/* SPDX-License-Identifier: Apache-2.0 */
/* tq2_0.c - x = d (q - 1). */
#include "quant/tq2_0.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_tq2_0(float *y, const void *row, int64_t n)
{
    const struct quant_tq2_0 *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 8; g++)
            for (int l = 0; l < 32; l++)
                y[32 * g + l] = (float)((b->qs[g / 4 * 32 + l] >> g % 4 * 2 & 3) - 1) * d;
    }
}

const struct quant_type quant_type_tq2_0 = {
    .name = "tq2_0",
    .id = 35,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_tq2_0),
    .decode = decode_tq2_0,
};
