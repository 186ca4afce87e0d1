/* SPDX-License-Identifier: Apache-2.0 */
/* f32.c - floats as they are. */
#include "quant/quant.h"

#include <string.h>

static void decode_f32(float *y, const void *row, int64_t n)
{
    memcpy(y, row, (size_t)n * sizeof(float));
}

static void encode_f32(void *row, const float *x, int64_t n, const float *importance)
{
    (void)importance;
    memcpy(row, x, (size_t)n * sizeof(float));
}

const struct quant_type quant_type_f32 = {
    .name = "f32",
    .id = 0,
    .block_elems = 1,
    .block_bytes = sizeof(float),
    .decode = decode_f32,
    .encode = encode_f32,
};
