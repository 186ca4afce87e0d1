/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_ks.c - x = d (s - 127) value(q), s even, 8 bits for each 32; d a float before the row. */
#include "quant/iq4_ks.h"

#include "quant/iq_grids.h"
#include "quant/quant.h"

#include <string.h>

static void decode_iq4_ks(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_ks *b = (const void *)((const unsigned char *)row + sizeof(float));
    float d;

    memcpy(&d, row, sizeof(d));
    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = b->qs + 16 * g;
            const int8_t *value = quant_iq4k_values + (b->sc[g] & 1) * 16;
            float scale = d * (float)((b->sc[g] & 254) - 127);

            for (int j = 0; j < 16; j++) {
                y[32 * g + j] = scale * (float)value[q[j] & 15];
                y[32 * g + j + 16] = scale * (float)value[q[j] >> 4];
            }
        }
    }
}

const struct quant_type quant_type_iq4_ks = {
    .name = "iq4_ks",
    .id = 144,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq4_ks),
    .head_bytes = sizeof(float),
    .decode = decode_iq4_ks,
};
