/* SPDX-License-Identifier: Apache-2.0 */
/* i16.c - 16-bit integers. */
#include "quant/quant.h"

static void decode_i16(float *y, const void *row, int64_t n)
{
    const int16_t *v = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = (float)v[i];
}

const struct quant_type quant_type_i16 = {
    .name = "i16",
    .id = 25,
    .block_elems = 1,
    .block_bytes = sizeof(int16_t),
    .decode = decode_i16,
};
