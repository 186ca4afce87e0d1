/* SPDX-License-Identifier: Apache-2.0 */
/* fit_body.h - encoders for files, compiled once for each instruction set.      room: quant
 *
 * The including file defines FIT (storage and target of a function) and FIT_TABLE (the table's
 * name). Sums go in a fixed order and nothing is fused, so every set gives the same bytes.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/encode.h"
#include "quant/fit.h"
#include "quant/iq1_m.h"
#include "quant/iq1_s.h"
#include "quant/iq2_k.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_k.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_k.h"
#include "quant/iq4_ks.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/iq5_k.h"
#include "quant/iq6_k.h"
#include "quant/iq_grids.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/q1_0.h"
#include "quant/q2_0.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

/* A block's elements and weights, scaled so that no square below is too large. */
struct fit_block {
    float x[256], w[256];
};

/* Loads block i of n elements. Values beyond 1e12, which no f16 scale reaches, are cut; NaN becomes 0.
 * Weights are divided by the largest one. None stays exactly 0, so that elements that do not count are
 * still rounded sensibly. If all weights of a block are 0, all elements count alike. */
FIT void load_block(struct fit_block *b, const float *x, const float *importance, int64_t i, int n)
{
    float most = 0.0f;

    x += i * n;
    for (int j = 0; j < n; j++) {
        float v = x[j];

        v = v > 1e12f ? 1e12f : v;
        v = v < -1e12f ? -1e12f : v;
        b->x[j] = v == v ? v : 0.0f;
        b->w[j] = 1.0f;
    }
    if (importance == NULL)
        return;
    for (int j = 0; j < n; j++)
        most = importance[i * n + j] > most ? importance[i * n + j] : most;
    for (int j = 0; most > 0.0f && j < n; j++) {
        float w = importance[i * n + j] / most;

        b->w[j] = w > 1e-6f ? w : 1e-6f;
    }
}

#define FIT_INLINE FIT __attribute__((always_inline)) inline
enum { LANES = 16 };
#define EACH_LANE for (int k = 0; k < LANES; k++)

/* Several groups of a row, each in its own lane, so that one vector operation works on all of them. Sums go in the order of
 * elements, so they do not depend on the instruction set. */
struct strip {
    int   n; /* elements of a group */
    float x[256][LANES], w[256][LANES];
};

/* Loads blocks from number `at` on, cut into groups. `of`: how many blocks there are; lanes without one get zeros. */
FIT void load_strip(struct strip *s, const float *x, const float *importance, int64_t at, int64_t of, int block, int group)
{
    struct fit_block t;
    int              in_block = block / group;

    s->n = group;
    for (int k = 0; k < LANES; k += in_block, at++) {
        if (at < of)
            load_block(&t, x, importance, at, block);
        for (int j = 0; j < block; j++) {
            s->x[j % group][k + j / group] = at < of ? t.x[j] : 0.0f;
            s->w[j % group][k + j / group] = at < of ? t.w[j] : 1.0f;
        }
    }
}

FIT float max_of(const float *x, int n)
{
    float max = 0.0f;

    for (int i = 0; i < n; i++)
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    return max;
}

#include "quant/fit_levels_body.h"
#include "quant/fit_min_body.h"
#include "quant/fit_book_body.h"
#include "quant/fit_tables_body.h"

quant_fit_fn *const FIT_TABLE[QUANT_N] = {
    [QUANT_q4_0] = fit_q4_0,     [QUANT_q4_1] = fit_q4_1,       [QUANT_q5_0] = fit_q5_0,
    [QUANT_q5_1] = fit_q5_1,     [QUANT_q8_0] = fit_q8_0,       [QUANT_q2_k] = fit_q2_k,
    [QUANT_q3_k] = fit_q3_k,     [QUANT_q4_k] = fit_q4_k,       [QUANT_q5_k] = fit_q5_k,
    [QUANT_q6_k] = fit_q6_k,     [QUANT_iq1_s] = fit_iq1_s,     [QUANT_iq1_m] = fit_iq1_m,
    [QUANT_iq2_xxs] = fit_iq2_xxs, [QUANT_iq2_xs] = fit_iq2_xs, [QUANT_iq2_s] = fit_iq2_s,
    [QUANT_iq3_xxs] = fit_iq3_xxs, [QUANT_iq3_s] = fit_iq3_s,   [QUANT_iq4_nl] = fit_iq4_nl,
    [QUANT_iq4_xs] = fit_iq4_xs, [QUANT_mxfp4] = fit_mxfp4,     [QUANT_nvfp4] = fit_nvfp4,
    [QUANT_tq1_0] = fit_tq1_0,   [QUANT_tq2_0] = fit_tq2_0,     [QUANT_q1_0] = fit_q1_0,
    [QUANT_q2_0] = fit_q2_0,     [QUANT_iq2_k] = fit_iq2_k,     [QUANT_iq3_k] = fit_iq3_k,
    [QUANT_iq4_k] = fit_iq4_k,   [QUANT_iq4_ks] = fit_iq4_ks,   [QUANT_iq5_k] = fit_iq5_k,
    [QUANT_iq6_k] = fit_iq6_k,
};
