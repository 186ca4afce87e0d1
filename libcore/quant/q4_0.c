/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.c - x = d (q - 8). */
#include "quant/q4_0.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 16; j++) {
            y[j] = (float)((b->qs[j] & 15) - 8) * d;
            y[j + 16] = (float)((b->qs[j] >> 4) - 8) * d;
        }
    }
}

const struct quant_type quant_type_q4_0 = {
    .name = "q4_0",
    .id = 2,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q4_0),
    .decode = decode,
};
