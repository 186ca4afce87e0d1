/* SPDX-License-Identifier: Apache-2.0 */
/* q5_1.c - x = d q + m. */
#include "quant/q5_1.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q5_1(float *y, const void *row, int64_t n)
{
    const struct quant_q5_1 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d), m = half_to_f32(b->m);
        uint32_t qh;

        memcpy(&qh, b->qh, sizeof(qh));
        for (int j = 0; j < 16; j++) {
            int lo = (b->qs[j] & 15) | (int)(qh >> j & 1u) << 4;
            int hi = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1u) << 4;

            y[j] = (float)lo * d + m;
            y[j + 16] = (float)hi * d + m;
        }
    }
}

const struct quant_type quant_type_q5_1 = {
    .name = "q5_1",
    .id = 7,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q5_1),
    .decode = decode_q5_1,
};
