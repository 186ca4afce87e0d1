/* SPDX-License-Identifier: Apache-2.0 */
/* q4_1.c - x = d q + m. */
#include "quant/q4_1.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q4_1(float *y, const void *row, int64_t n)
{
    const struct quant_q4_1 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d), m = half_to_f32(b->m);

        for (int j = 0; j < 16; j++) {
            y[j] = (float)(b->qs[j] & 15) * d + m;
            y[j + 16] = (float)(b->qs[j] >> 4) * d + m;
        }
    }
}

const struct quant_type quant_type_q4_1 = {
    .name = "q4_1",
    .id = 3,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q4_1),
    .decode = decode_q4_1,
};
