/* SPDX-License-Identifier: Apache-2.0 */
/* q5_0.c - x = d (q - 16). */
#include "quant/q5_0.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q5_0(float *y, const void *row, int64_t n)
{
    const struct quant_q5_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);
        uint32_t qh;

        memcpy(&qh, b->qh, sizeof(qh));
        for (int j = 0; j < 16; j++) {
            int lo = (b->qs[j] & 15) | (int)(qh >> j & 1u) << 4;
            int hi = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1u) << 4;

            y[j] = (float)(lo - 16) * d;
            y[j + 16] = (float)(hi - 16) * d;
        }
    }
}

const struct quant_type quant_type_q5_0 = {
    .name = "q5_0",
    .id = 6,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q5_0),
    .decode = decode_q5_0,
};
