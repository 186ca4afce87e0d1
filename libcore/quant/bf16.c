/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.c - the upper halves of floats. */
#include "quant/quant.h"

#include "quant/half.h"

static void decode_bf16(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = half_bf16_to_f32(h[i]);
}

static void encode_bf16(void *row, const float *x, int64_t n, const float *importance)
{
    uint16_t *h = row;

    (void)importance;
    for (int64_t i = 0; i < n; i++)
        h[i] = half_bf16_of_f32(x[i]);
}

const struct quant_type quant_type_bf16 = {
    .name = "bf16",
    .id = 30,
    .block_elems = 1,
    .block_bytes = sizeof(uint16_t),
    .decode = decode_bf16,
    .encode = encode_bf16,
};
