/* SPDX-License-Identifier: Apache-2.0 */
/* f64.c - doubles, rounded to float. */
#include "quant/quant.h"

static void decode_f64(float *y, const void *row, int64_t n)
{
    const double *v = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = (float)v[i];
}

const struct quant_type quant_type_f64 = {
    .name = "f64",
    .id = 28,
    .block_elems = 1,
    .block_bytes = sizeof(double),
    .decode = decode_f64,
};
