/* SPDX-License-Identifier: Apache-2.0 */
/* i64.c - 64-bit integers, rounded to float. */
#include "quant/quant.h"

static void decode_i64(float *y, const void *row, int64_t n)
{
    const int64_t *v = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = (float)v[i];
}

const struct quant_type quant_type_i64 = {
    .name = "i64",
    .id = 27,
    .block_elems = 1,
    .block_bytes = sizeof(int64_t),
    .decode = decode_i64,
};
