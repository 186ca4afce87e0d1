/* SPDX-License-Identifier: Apache-2.0 */
/* q1_0.c - x = d or -d. */
#include "quant/q1_0.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q1_0(float *y, const void *row, int64_t n)
{
    const struct quant_q1_0 *b = row;

    for (int64_t i = 0; i < n / 128; i++, b++, y += 128) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 128; j++)
            y[j] = (b->qs[j / 8] >> j % 8 & 1) != 0 ? d : -d;
    }
}

const struct quant_type quant_type_q1_0 = {
    .name = "q1_0",
    .id = 41,
    .block_elems = 128,
    .block_bytes = sizeof(struct quant_q1_0),
    .decode = decode_q1_0,
};
