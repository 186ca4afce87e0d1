/* SPDX-License-Identifier: Apache-2.0 */
/* q5_k.c - x = (d s) q - (dmin m), s and m 6 bits for each 32 elements. */
#include "quant/q5_k.h"

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/quant.h"

static void decode_q5_k(float *y, const void *row, int64_t n)
{
    const struct quant_q5_k *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d), dmin = half_to_f32(b->dmin);
        uint8_t sm[16];

        k_scales_45(sm, b->sc);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + g / 2 * 32;
            float scale = d * (float)sm[g], min = dmin * (float)sm[8 + g];
            int shift = g % 2 * 4;

            for (int l = 0; l < 32; l++) {
                int v = (q[l] >> shift & 15) | (b->qh[l] >> g & 1) << 4;

                y[32 * g + l] = scale * (float)v - min;
            }
        }
    }
}

const struct quant_type quant_type_q5_k = {
    .name = "q5_k",
    .id = 13,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_q5_k),
    .decode = decode_q5_k,
};
