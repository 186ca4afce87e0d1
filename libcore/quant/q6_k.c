/* SPDX-License-Identifier: Apache-2.0 */
/* q6_k.c - x = (d s) (q - 32), s 8 bits for each 16 elements. */
#include "quant/q6_k.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q6_k(float *y, const void *row, int64_t n)
{
    const struct quant_q6_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 16; g++) {
            const uint8_t *lo = b->ql + g / 8 * 64 + g % 4 * 16;
            const uint8_t *hi = b->qh + g / 8 * 32 + g % 2 * 16;
            float scale = d * (float)b->sc[g];
            int nibble = g % 8 / 4 * 4, pair = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++) {
                int v = (lo[l] >> nibble & 15) | (hi[l] >> pair & 3) << 4;

                y[16 * g + l] = scale * (float)(v - 32);
            }
        }
    }
}

const struct quant_type quant_type_q6_k = {
    .name = "q6_k",
    .id = 14,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q6_k),
    .decode = decode_q6_k,
};
