/* SPDX-License-Identifier: Apache-2.0 */
/* q8_0.c - x = d q. */
#include "quant/q8_0.h"

#include "quant/encode.h"
#include "quant/half.h"
#include "quant/quant.h"

static void decode_q8_0(float *y, const void *row, int64_t n)
{
    const struct quant_q8_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 32; j++)
            y[j] = (float)b->qs[j] * d;
    }
}

static void encode_q8_0(void *row, const float *x, int64_t n, const float *importance)
{
    struct quant_q8_0 *b = row;

    (void)importance;
    for (int64_t i = 0; i < n / 32; i++, b++, x += 32) {
        int32_t bits = encode_max_bits(x);

        if (bits >= 0x7f800000) {
            b->d = ENCODE_NAN;
            memset(b->qs, 0, sizeof(b->qs));
            continue;
        }
        b->d = encode_scale(half_bits_f32((uint32_t)bits), 127.0f);
        float inverse = b->d != 0 ? 1.0f / half_to_f32(b->d) : 0.0f;

        for (int j = 0; j < 32; j++)
            b->qs[j] = (int8_t)encode_round(x[j] * inverse, -127.0f, 127.0f);
    }
}

const struct quant_type quant_type_q8_0 = {
    .name = "q8_0",
    .id = 8,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q8_0),
    .decode = decode_q8_0,
    .encode = encode_q8_0,
};
