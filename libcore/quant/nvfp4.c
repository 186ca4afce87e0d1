/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.c - x = a scale of 8 bits for each 16 times a 4-bit float. */
#include "quant/nvfp4.h"

#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_nvfp4(float *y, const void *row, int64_t n)
{
    const struct quant_nvfp4 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        for (int g = 0; g < 4; g++) {
            const uint8_t *q = b->qs + 8 * g;
            float d = nvfp4_half_scale(b->d[g]);

            for (int j = 0; j < 8; j++) {
                y[16 * g + j] = (float)quant_fp4_values[q[j] & 15] * d;
                y[16 * g + j + 8] = (float)quant_fp4_values[q[j] >> 4] * d;
            }
        }
    }
}

const struct quant_type quant_type_nvfp4 = {
    .name = "nvfp4",
    .id = 40,
    .block_elems = 64,
    .block_bytes = sizeof(struct quant_nvfp4),
    .decode = decode_nvfp4,
};
