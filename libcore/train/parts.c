/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - layers of the block network without products, and their gradients: operations of ops/math.h. */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "quant/quant.h"
#include "train/host.h"

enum { GRAIN = 16 /* rows in a piece of work */, FLOATS = 1 << 14 /* floats in one */ };

struct job {
    float *y, *z;
    const float *x, *inv, *w, *dy;
    const uint16_t *half;
    const int32_t *id;
    int32_t *best;
    int64_t rows, dim;
    int heads;
    float eps, by, ax;
    double total;
    bool flag;
};

/* ---- norms ---- */

static void rms_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->dim;
        float *y = j->y + r * j->dim, sum = 0, inv;

        for (int64_t i = 0; i < j->dim; i++)
            sum += x[i] * x[i];
        inv = 1.0f / sqrtf(sum / (float)j->dim + j->eps);
        j->z[r] = inv;
        for (int64_t i = 0; i < j->dim; i++)
            y[i] = x[i] * inv * j->w[i];
    }
}

static void rms(struct dev_math *m, float *y, float *inv, const float *x, const float *w, int64_t rows, int64_t dim,
                float eps)
{
    struct job j = { .y = y, .z = inv, .x = x, .w = w, .dim = dim, .eps = eps };

    pool_for(train_host_pool(m), rows, GRAIN, rms_rows, &j);
}

/* With n = x inv: dx = inv (w dy - n mean(n w dy)). */
static void rms_back_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->dim, *dy = j->dy + r * j->dim, inv = j->inv[r];
        float *dx = j->y + r * j->dim, sum = 0, scale;

        for (int64_t i = 0; i < j->dim; i++)
            sum += j->w[i] * dy[i] * x[i];
        scale = sum * inv * inv / (float)j->dim;
        for (int64_t i = 0; i < j->dim; i++) {
            const float d = inv * (j->w[i] * dy[i] - x[i] * scale);

            dx[i] = j->flag ? dx[i] + d : d;
        }
    }
}

/* dw = sum over rows of dy x inv, by columns. */
static void rms_back_weights(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t r = 0; r < j->rows; r++) {
        const float *x = j->x + r * j->dim, *dy = j->dy + r * j->dim, inv = j->inv[r];

        for (int64_t i = begin; i < end; i++)
            j->z[i] += dy[i] * x[i] * inv;
    }
}

static void rms_back(struct dev_math *m, float *dx, bool adds, float *dw, const float *dy, const float *x,
                     const float *inv, const float *w, int64_t rows, int64_t dim)
{
    enum { COLUMNS = 64 };
    struct job j = { .y = dx, .z = dw, .x = x, .inv = inv, .w = w, .dy = dy, .rows = rows, .dim = dim, .flag = adds };

    if (dw != NULL)
        pool_for(train_host_pool(m), dim, COLUMNS, rms_back_weights, &j);
    if (dx != NULL)
        pool_for(train_host_pool(m), rows, GRAIN, rms_back_rows, &j);
}

/* ---- positions ---- */

static void rope_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const int64_t half = j->dim / 2;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int h = 0; h < j->heads; h++) {
            const float *turn = j->w + (int64_t)j->id[r] * j->dim;
            float *x = j->y + (r * j->heads + h) * j->dim;

            for (int64_t i = 0; i < half; i++) {
                const float c = turn[2 * i], s = j->flag ? -turn[2 * i + 1] : turn[2 * i + 1];
                const float p = x[i], q = x[i + half];

                x[i] = p * c - q * s;
                x[i + half] = q * c + p * s;
            }
        }
}

static void rope(struct dev_math *m, float *x, const int32_t *pos, int64_t rows, int heads, int64_t dim,
                 const float *turn, bool back)
{
    struct job j = { .y = x, .id = pos, .w = turn, .heads = heads, .dim = dim, .flag = back };

    pool_for(train_host_pool(m), rows, GRAIN, rope_rows, &j);
}

/* ---- the feed-forward part ---- */

static void glu_floats(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        j->y[i] = j->x[i] / (1.0f + expf(-j->x[i])) * j->w[i];
}

static void glu(struct dev_math *m, float *h, const float *gate, const float *up, int64_t n)
{
    struct job j = { .y = h, .x = gate, .w = up };

    pool_for(train_host_pool(m), n, FLOATS, glu_floats, &j);
}

static void glu_back_floats(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float x = j->y[i], s = 1.0f / (1.0f + expf(-x));

        j->y[i] = j->dy[i] * j->z[i] * s * (1.0f + x * (1.0f - s));
        j->z[i] = j->dy[i] * x * s;
    }
}

static void glu_back(struct dev_math *m, float *gate, float *up, const float *dh, int64_t n)
{
    struct job j = { .y = gate, .z = up, .dy = dh };

    pool_for(train_host_pool(m), n, FLOATS, glu_back_floats, &j);
}

static void add_floats(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        j->y[i] += j->x[i];
}

static void add_rows(struct dev_math *m, float *y, const float *x, int64_t n)
{
    struct job j = { .y = y, .x = x };

    pool_for(train_host_pool(m), n, FLOATS, add_floats, &j);
}

static void blend_floats(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        j->y[i] = j->by * j->y[i] + j->ax * j->x[i];
}

static void blend_rows(struct dev_math *m, float *y, float by, float ax, const float *x, int64_t n, bool checked)
{
    struct job j = { .y = y, .x = x, .by = by, .ax = ax };

    if (!checked || isfinite(train_host_of(m)->norm))
        pool_for(train_host_pool(m), n, FLOATS, blend_floats, &j);
}

static void unit_matrices(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (float *x = j->y + begin * j->dim; begin < end; begin++, x += j->dim) {
        double sum = 0;

        for (int64_t i = 0; i < j->dim; i++)
            sum += (double)x[i] * (double)x[i];
        const float scale = 1.0f / ((float)sqrt(sum) + j->eps);

        for (int64_t i = 0; i < j->dim; i++)
            x[i] *= scale;
    }
}

static void unit_rows(struct dev_math *m, float *x, int64_t count, int64_t n, float eps)
{
    struct job j = { .y = x, .dim = n, .eps = eps };

    pool_for(train_host_pool(m), count, 1, unit_matrices, &j);
}

/* ---- the loss ---- */

static int32_t best_of(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

static void best_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        j->best[r] = best_of(j->x + r * j->dim, j->dim);
}

static void best_logits(struct dev_math *m, const float *logits, int32_t *to, int64_t rows, int64_t n)
{
    struct job j = { .x = logits, .best = to, .dim = n };

    pool_for(train_host_pool(m), rows, 1, best_rows, &j);
}

static void loss_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *x = j->y + r * j->dim, max;
        const int32_t best = best_of(x, j->dim), want = j->id[r];
        const float part = (float)((double)j->w[r] / j->total), chosen = x[want];
        double sum = 0;

        max = x[best];
        for (int64_t i = 0; i < j->dim; i++) {
            x[i] = expf(x[i] - max);
            sum += (double)x[i];
        }
        j->z[r] = (float)((double)max + log(sum) - (double)chosen);
        j->best[r] = best;
        for (int64_t i = 0; i < j->dim; i++)
            x[i] *= part / (float)sum;
        x[want] -= part;
    }
}

static void cross_entropy(struct dev_math *m, float *logits, const int32_t *want, const float *weight, double total,
                          float *loss, int32_t *to, int64_t rows, int64_t n)
{
    struct job j = { .y = logits, .id = want, .w = weight, .total = total, .z = loss, .best = to, .dim = n };

    pool_for(train_host_pool(m), rows, 1, loss_rows, &j);
}

/* ---- rows that move ---- */

static void gather_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        memcpy(j->y + i * j->dim, j->x + j->id[i] * j->dim, (size_t)j->dim * sizeof(float));
}

static void gather_by_index(struct dev_math *m, float *to, const float *from, const int32_t *index, int64_t rows,
                            int64_t dim)
{
    struct job j = { .y = to, .x = from, .id = index, .dim = dim };

    pool_for(train_host_pool(m), rows, GRAIN, gather_rows, &j);
}

static void scatter_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        memcpy(j->y + j->id[i] * j->dim, j->x + i * j->dim, (size_t)j->dim * sizeof(float));
}

static void scatter(struct dev_math *m, float *to, const int32_t *index, const float *from, int64_t rows, int64_t dim)
{
    struct job j = { .y = to, .x = from, .id = index, .dim = dim };

    pool_for(train_host_pool(m), rows, GRAIN, scatter_rows, &j);
}

static void widen_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        quant_types[QUANT_bf16]->decode(j->y + i * j->dim, j->half + j->id[i] * j->dim, j->dim);
}

static void widen(struct dev_math *m, float *to, const uint16_t *from, const int32_t *index, int64_t rows, int64_t dim)
{
    struct job j = { .y = to, .half = from, .id = index, .dim = dim };

    pool_for(train_host_pool(m), rows, GRAIN, widen_rows, &j);
}

void train_host_parts(struct dev_math *m)
{
    m->rms = rms;
    m->rms_back = rms_back;
    m->rope = rope;
    m->glu = glu;
    m->glu_back = glu_back;
    m->add = add_rows;
    m->blend = blend_rows;
    m->unit = unit_rows;
    m->gather = gather_by_index;
    m->scatter = scatter;
    m->widen = widen;
    m->cross_entropy = cross_entropy;
    m->best = best_logits;
}
