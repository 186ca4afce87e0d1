/* SPDX-License-Identifier: Apache-2.0 */
/* tq1_0.c - x = d (digit - 1). */
#include "quant/tq1_0.h"

#include "quant/half.h"
#include "quant/quant.h"

/* A byte is a fraction in base 3, scaled to 256 and rounded up: the integer part of three times the
 * fraction is the first digit, what is left holds the next. m bytes give n digits each, the first
 * digits of all bytes first. */
static void decode_digits(float *y, const uint8_t *q, int m, int n, float d)
{
    static const uint8_t pow3[5] = { 1, 3, 9, 27, 81 };

    for (int k = 0; k < n; k++)
        for (int j = 0; j < m; j++) {
            int left = q[j] * pow3[k] & 255;

            y[k * m + j] = (float)((left * 3 >> 8) - 1) * d;
        }
}

static void decode_tq1_0(float *y, const void *row, int64_t n)
{
    const struct quant_tq1_0 *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        decode_digits(y, b->qs, 32, 5, d);
        decode_digits(y + 160, b->qs + 32, 16, 5, d);
        decode_digits(y + 240, b->qh, 4, 4, d);
    }
}

const struct quant_type quant_type_tq1_0 = {
    .name = "tq1_0",
    .id = 34,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_tq1_0),
    .decode = decode_tq1_0,
};
