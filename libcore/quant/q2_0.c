/* SPDX-License-Identifier: Apache-2.0 */
/* q2_0.c - x = d (q - 1). */
#include "quant/q2_0.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q2_0(float *y, const void *row, int64_t n)
{
    const struct quant_q2_0 *b = row;

    for (int64_t i = 0; i < n / 64; i++, b++, y += 64) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 64; j++)
            y[j] = (float)((b->qs[j / 4] >> j % 4 * 2 & 3) - 1) * d;
    }
}

const struct quant_type quant_type_q2_0 = {
    .name = "q2_0",
    .id = 42,
    .block_elems = 64,
    .block_bytes = sizeof(struct quant_q2_0),
    .decode = decode_q2_0,
};
