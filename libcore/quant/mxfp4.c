/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.c - x = 2^(e - 127) times a 4-bit float. */
#include "quant/mxfp4.h"

#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_mxfp4(float *y, const void *row, int64_t n)
{
    const struct quant_mxfp4 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = mxfp4_half_scale(b->e);

        for (int j = 0; j < 16; j++) {
            y[j] = (float)quant_fp4_values[b->qs[j] & 15] * d;
            y[j + 16] = (float)quant_fp4_values[b->qs[j] >> 4] * d;
        }
    }
}

const struct quant_type quant_type_mxfp4 = {
    .name = "mxfp4",
    .id = 39,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_mxfp4),
    .decode = decode_mxfp4,
};
