/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_nl.c - x = d value(q). */
#include "quant/iq4_nl.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"

static void decode_iq4_nl(float *y, const void *row, int64_t n)
{
    const struct quant_iq4_nl *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 16; j++) {
            y[j] = d * (float)quant_iq4nl_values[b->qs[j] & 15];
            y[j + 16] = d * (float)quant_iq4nl_values[b->qs[j] >> 4];
        }
    }
}

const struct quant_type quant_type_iq4_nl = {
    .name = "iq4_nl",
    .id = 20,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_iq4_nl),
    .decode = decode_iq4_nl,
};
