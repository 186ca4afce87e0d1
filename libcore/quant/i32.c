/* SPDX-License-Identifier: Apache-2.0 */
/* i32.c - 32-bit integers, rounded to float. */
#include "quant/quant.h"

static void decode_i32(float *y, const void *row, int64_t n)
{
    const int32_t *v = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = (float)v[i];
}

const struct quant_type quant_type_i32 = {
    .name = "i32",
    .id = 26,
    .block_elems = 1,
    .block_bytes = sizeof(int32_t),
    .decode = decode_i32,
};
