/* SPDX-License-Identifier: Apache-2.0 */
/* f16.c - IEEE half floats. */
#include "quant/quant.h"

#include "quant/half.h"

static void decode_f16(float *y, const void *row, int64_t n)
{
    const uint16_t *h = row;

    for (int64_t i = 0; i < n; i++)
        y[i] = half_to_f32(h[i]);
}

static void encode_f16(void *row, const float *x, int64_t n, const float *importance)
{
    uint16_t *h = row;

    (void)importance;
    for (int64_t i = 0; i < n; i++)
        h[i] = half_of_f32(x[i]);
}

const struct quant_type quant_type_f16 = {
    .name = "f16",
    .id = 1,
    .block_elems = 1,
    .block_bytes = sizeof(uint16_t),
    .decode = decode_f16,
    .encode = encode_f16,
};
