/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - random rows in a quantised format, with a given root mean square.
 *
 * Types that can be encoded encode normal numbers. Of the others the codes and inner scales are
 * random bits, which every pattern of allows, and the f16 scale of each block is set so that values
 * have the wanted size: measured by decoding with a trial scale first.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/quant.h"
#include "shape/internal.h"

#define TRIAL 0x1p-8f /* exact in f16, with room for the minima's factor */

/* Where a block keeps its scale, and the offset of minima, which are `centre` scales below zero so
 * that values centre on it. */
static const struct layout {
    int type;
    size_t d, min;
    float centre; /* 0: no minima */
} layouts[] = {
    { QUANT_q2_k, offsetof(struct quant_q2_k, d), offsetof(struct quant_q2_k, dmin), 1.5f },
    { QUANT_q3_k, offsetof(struct quant_q3_k, d), 0, 0 },
    { QUANT_q4_k, offsetof(struct quant_q4_k, d), offsetof(struct quant_q4_k, dmin), 7.5f },
    { QUANT_q5_k, offsetof(struct quant_q5_k, d), offsetof(struct quant_q5_k, dmin), 15.5f },
    { QUANT_q6_k, offsetof(struct quant_q6_k, d), 0, 0 },
    { QUANT_q4_1, offsetof(struct quant_q4_1, d), offsetof(struct quant_q4_1, m), -7.5f },
    { QUANT_q5_0, offsetof(struct quant_q5_0, d), 0, 0 },
    { QUANT_q5_1, offsetof(struct quant_q5_1, d), offsetof(struct quant_q5_1, m), -15.5f },
    { QUANT_iq4_nl, offsetof(struct quant_iq4_nl, d), 0, 0 },
    { QUANT_iq4_xs, offsetof(struct quant_iq4_xs, d), 0, 0 },
    { QUANT_iq3_s, offsetof(struct quant_iq3_s, d), 0, 0 },
    { QUANT_iq3_xxs, offsetof(struct quant_iq3_xxs, d), 0, 0 },
    { QUANT_iq2_s, offsetof(struct quant_iq2_s, d), 0, 0 },
    { QUANT_iq2_xs, offsetof(struct quant_iq2_xs, d), 0, 0 },
    { QUANT_iq2_xxs, offsetof(struct quant_iq2_xxs, d), 0, 0 },
};

static const struct layout *layout_of(int type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

bool shape_can_fill(int type)
{
    return quant_types[type]->encode != NULL || layout_of(type) != NULL;
}

static void set_scale(unsigned char *rows, int64_t n_blocks, const struct layout *l, float scale)
{
    uint16_t d = quant_f32_to_f16(scale), m = quant_f32_to_f16(scale * l->centre);

    for (int64_t i = 0; i < n_blocks; i++, rows += quant_types[l->type]->block_bytes) {
        memcpy(rows + l->d, &d, sizeof d);
        if (l->centre != 0.0f)
            memcpy(rows + l->min, &m, sizeof m);
    }
}

static void random_bits(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 16) {
        uint32_t bits[4];

        rng_block(bits, seed, 4, i / 16);
        memcpy(p + i, bits, n - i < 16 ? n - i : 16);
    }
}

enum err_code shape_fill(unsigned char *rows, int type, int64_t ne0, int64_t n_rows, uint64_t seed, struct err *e)
{
    const struct quant_type *q = quant_types[type];
    const struct layout *l = layout_of(type);
    size_t row_bytes = (size_t)quant_row_bytes(type, ne0);
    double rms = 0, want = 1 / sqrt((double)ne0);
    float *x = malloc((size_t)ne0 * sizeof *x);

    if (x == NULL)
        return err_nomem(e);
    if (q->encode == NULL) {
        random_bits(rows, (size_t)n_rows * row_bytes, seed);
        set_scale(rows, n_rows * (ne0 / q->block_elems), l, TRIAL);
    }
    for (int64_t r = 0; r < n_rows; r++) {
        unsigned char *row = rows + (size_t)r * row_bytes;

        if (q->encode == NULL) {
            q->decode(x, row, ne0);
            for (int64_t j = 0; j < ne0; j++)
                rms += (double)x[j] * (double)x[j];
            continue;
        }
        for (int64_t j = 0; j < ne0; j++)
            x[j] = (float)want * rng_gauss(seed, 2, (uint64_t)(r * ne0 + j));
        q->encode(row, x, ne0, NULL);
    }
    free(x);
    if (q->encode == NULL) {
        rms = sqrt(rms / (double)(n_rows * ne0));
        set_scale(rows, n_rows * (ne0 / q->block_elems), l, (float)(want / rms) * TRIAL);
    }
    return ERR_OK;
}
