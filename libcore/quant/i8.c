/* SPDX-License-Identifier: Apache-2.0 */
/* i8.c - 8-bit integers. */
#include "quant/quant.h"

static void decode_i8(float *y, const void *row, int64_t n)
{
    const int8_t *v = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = (float)v[i];
}

const struct quant_type quant_type_i8 = {
    .name = "i8",
    .id = 24,
    .block_elems = 1,
    .block_bytes = sizeof(int8_t),
    .decode = decode_i8,
};
