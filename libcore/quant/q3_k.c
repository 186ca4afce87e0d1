/* SPDX-License-Identifier: Apache-2.0 */
/* q3_k.c - x = (d (s - 32)) (q - 4), s 6 bits for each 16 elements. */
#include "quant/q3_k.h"

#include <stddef.h>

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/quant.h"

static void decode_q3_k(float *y, const void *row, int64_t n)
{
    const struct quant_q3_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);
        uint8_t sc[16];

        k_scales_3(sc, b->sc);
        for (int g = 0; g < 16; g++) {
            const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16, *h = b->hmask + g % 2 * 16;
            float scale = d * (float)(sc[g] - 32);
            int shift = g % 8 / 2 * 2, bit = g / 2;

            for (int l = 0; l < 16; l++)
                y[16 * g + l] = scale * (float)((q[l] >> shift & 3) + (h[l] >> bit & 1) * 4 - 4);
        }
    }
}

const struct quant_type quant_type_q3_k = {
    .name = "q3_k",
    .id = 11,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q3_k),
    .decode = decode_q3_k,
};
