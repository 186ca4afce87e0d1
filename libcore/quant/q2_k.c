/* SPDX-License-Identifier: Apache-2.0 */
/* q2_k.c - x = (d s) q - (dmin m), s and m 4 bits for each 16 elements. */
#include "quant/q2_k.h"

#include "quant/half.h"
#include "quant/quant.h"

static void decode_q2_k(float *y, const void *row, int64_t n)
{
    const struct quant_q2_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);

        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
            float scale = d * (float)(b->sc[g] & 15), min = dmin * (float)(b->sc[g] >> 4);
            int shift = g % 8 / 2 * 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

const struct quant_type quant_type_q2_k = {
    .name = "q2_k",
    .id = 10,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q2_k),
    .decode = decode_q2_k,
};
