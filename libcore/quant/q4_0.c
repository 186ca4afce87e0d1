/* SPDX-License-Identifier: Apache-2.0 */
/* q4_0.c - x = d (q - 8). */
#include "quant/q4_0.h"

#include "quant/encode.h"
#include "quant/half.h"
#include "quant/quant.h"

static void decode_q4_0(float *y, const void *row, int64_t n)
{
    const struct quant_q4_0 *b = row;

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_to_f32(b->d);

        for (int j = 0; j < 16; j++) {
            y[j] = (float)((b->qs[j] & 15) - 8) * d;
            y[j + 16] = (float)((b->qs[j] >> 4) - 8) * d;
        }
    }
}

/* True when the largest magnitude, max, is reached by a negative element. Codes reach from -8 to 7,
 * so the scale gets the sign that makes the largest element -8. */
static bool max_is_negative(const float *x, float max)
{
    int found = 0;

    for (int j = 0; j < 32; j++)
        found |= x[j] == -max;
    return found != 0;
}

static void encode_q4_0(void *row, const float *x, int64_t n, const float *importance)
{
    struct quant_q4_0 *b = row;

    (void)importance;
    for (int64_t i = 0; i < n / 32; i++, b++, x += 32) {
        int32_t bits = encode_max_bits(x);

        if (bits >= 0x7f800000) {
            b->d = ENCODE_NAN;
            memset(b->qs, 0, sizeof(b->qs));
            continue;
        }
        float max = half_bits_f32((uint32_t)bits);
        uint16_t d = encode_scale(max, 8.0f);
        float inverse = d != 0 ? 1.0f / half_to_f32(d) : 0.0f;

        if (!max_is_negative(x, max)) {
            d |= 0x8000u;
            inverse = -inverse;
        }
        b->d = d;
        for (int j = 0; j < 16; j++) {
            int lo = encode_round(x[j] * inverse, -8.0f, 7.0f) + 8;
            int hi = encode_round(x[j + 16] * inverse, -8.0f, 7.0f) + 8;

            b->qs[j] = (uint8_t)(lo | hi << 4);
        }
    }
}

const struct quant_type quant_type_q4_0 = {
    .name = "q4_0",
    .id = 2,
    .block_elems = 32,
    .block_bytes = sizeof(struct quant_q4_0),
    .decode = decode_q4_0,
    .encode = encode_q4_0,
};
