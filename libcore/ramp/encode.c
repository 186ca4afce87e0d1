/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - rows of a tensor in another type, and what is lost with them.          room: ramp */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "cpu/format.h"
#include "quant/quant.h"
#include "ramp/internal.h"

/* The slowest types encode a quarter of a million elements a second and thread. */
enum { SAMPLE_ELEMS = 1 << 18, WEIGHTED_ELEMS = 1 << 18, BATCH_ELEMS_EACH = 1 << 16, BATCH_ELEMS_MOST = 1 << 19 };
#define LENGTHEN_MOST 2.0

enum err_code ramp_encoding_open(struct ramp_encoding *c, int64_t longest, int64_t rows_max,
                                 const struct ramp_coder *by, struct err *e)
{
    *c = (struct ramp_encoding){
        .pool = by->pool, .simd = by->simd, .effort = by->effort, .unbiased = by->unbiased, .rows_max = rows_max
    };
    c->longest = (longest + 15) / 16 * 16;
    c->rows = calloc((size_t)c->longest * (size_t)pool_size(by->pool) * 2 + 1, sizeof *c->rows);
    c->bad = malloc((size_t)rows_max + 1);
    if (c->rows != NULL && c->bad != NULL)
        return ERR_OK;
    ramp_encoding_close(c);
    return err_nomem(e);
}

int64_t ramp_batch_rows(const struct ramp_coder *by, int64_t n)
{
    int64_t elems = (int64_t)BATCH_ELEMS_EACH * pool_size(by->pool);

    elems = elems < BATCH_ELEMS_MOST ? elems : BATCH_ELEMS_MOST;
    return n < elems ? elems / n : 1;
}

void ramp_encoding_close(struct ramp_encoding *c)
{
    free(c->rows);
    free(c->bad);
    c->rows = NULL;
    c->bad = NULL;
}

static bool all_finite(const float *x, int64_t n)
{
    bool finite = true;

    for (int64_t i = 0; i < n; i++)
        finite &= fabsf(x[i]) < INFINITY;
    return finite;
}

/* Where a type's blocks have their f16 scales; second -1: one. */
static const struct {
    int type, first, second;
} scales[] = {
    { QUANT_q4_0, 0, -1 },   { QUANT_q4_1, 0, 2 },    { QUANT_q5_0, 0, -1 },    { QUANT_q5_1, 0, 2 },
    { QUANT_q8_0, 0, -1 },   { QUANT_q2_k, 80, 82 },  { QUANT_q3_k, 108, -1 },  { QUANT_q4_k, 0, 2 },
    { QUANT_q5_k, 0, 2 },    { QUANT_q6_k, 208, -1 }, { QUANT_iq1_s, 0, -1 },   { QUANT_iq2_xxs, 0, -1 },
    { QUANT_iq2_xs, 0, -1 }, { QUANT_iq2_s, 0, -1 },  { QUANT_iq3_xxs, 0, -1 }, { QUANT_iq3_s, 0, -1 },
    { QUANT_iq4_nl, 0, -1 }, { QUANT_iq4_xs, 0, -1 }, { QUANT_q1_0, 0, -1 },    { QUANT_q2_0, 0, -1 },
    { QUANT_iq2_k, 0, -1 },  { QUANT_iq3_k, 0, -1 },  { QUANT_iq4_k, 0, -1 },   { QUANT_iq5_k, 0, -1 },
    { QUANT_iq6_k, 0, -1 },
};

static void scale_by(unsigned char *at, float factor)
{
    uint16_t h;

    memcpy(&h, at, sizeof h);
    h = quant_f32_to_f16(quant_f16_to_f32(h) * factor);
    if ((h & 0x7c00) == 0x7c00) /* beyond f16: stays */
        return;
    memcpy(at, &h, sizeof h);
}

/* The least error makes blocks shorter: with <q, x> = <q, q> the part of x that is lost is not replaced, and products
 * with what x was made for come out too small by that part, in every layer alike. Scales by <x, x> / <q, x> bring them
 * back. */
static void lengthen(unsigned char *row, int type, const float *x, float *q, int64_t n, const float *weights,
                     quant_decode_fn *decode)
{
    const struct quant_type *t = quant_types[type];
    size_t k = 0;

    while (k < sizeof scales / sizeof *scales && scales[k].type != type)
        k++;
    if (k == sizeof scales / sizeof *scales)
        return;
    decode(q, row, n);
    for (int64_t at = 0; at < n; at += t->block_elems, row += t->block_bytes) {
        double xx = 0, qx = 0;

        for (int64_t i = at; i < at + t->block_elems; i++) {
            double w = weights != NULL ? (double)weights[i] : 1;

            xx += w * (double)x[i] * (double)x[i];
            qx += w * (double)q[i] * (double)x[i];
        }
        if (!(qx > 0 && xx > qx && xx < LENGTHEN_MOST * qx))
            continue;
        scale_by(row + scales[k].first, (float)(xx / qx));
        if (scales[k].second >= 0)
            scale_by(row + scales[k].second, (float)(xx / qx));
    }
}

static int64_t row_at(const struct ramp_encoding *c, int64_t i)
{
    return c->pick != NULL ? c->pick[c->first + i * c->step] : c->first + i * c->step;
}

static void encode_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct ramp_encoding *c = ctx;
    const int64_t n = c->t->ne[0];
    size_t in_bytes = (size_t)quant_row_bytes(c->t->type, n), bytes = (size_t)quant_row_bytes(c->type, n);
    float *x = c->rows + worker * c->longest;
    quant_fit_fn *fit = quant_fitter(c->type, c->simd);
    quant_decode_fn *decode = cpu_decoder(c->t->type, c->simd);

    for (int64_t i = begin; i < end; i++) {
        int64_t row = row_at(c, i);

        decode(x, (const char *)c->t->data + (size_t)row * in_bytes, n);
        ramp_merge_row(c->merge, c->t, row, x);
        c->bad[i] = !all_finite(x, n);
        fit(c->out + (size_t)i * bytes, x, n, c->weights, c->effort);
        if (c->unbiased && !c->bad[i])
            lengthen(c->out + (size_t)i * bytes, c->type, x, c->rows + (pool_size(c->pool) + worker) * c->longest, n,
                     c->weights, cpu_decoder(c->type, c->simd));
    }
}

enum err_code ramp_encode(struct ramp_encoding *c, void *out, int64_t first, int64_t step, int64_t n, struct err *e)
{
    c->out = out;
    c->first = first;
    c->step = step;
    pool_for(c->pool, n, 1 + 16384 / c->t->ne[0], encode_rows, c);
    for (int64_t i = 0; i < n; i++)
        if (c->bad[i])
            return err_set(e, ERR_FORMAT, "%.*s: row %lld has a value that is not finite", STR_ARG(c->t->name),
                           (long long)row_at(c, i));
    return ERR_OK;
}

enum err_code ramp_recode(void **data, const struct gguf_tensor *t, const struct ramp_coder *c, int type,
                          const struct progress *progress, struct err *e)
{
    int64_t rows = t->ne[1] * t->ne[2] * t->ne[3], batch = ramp_batch_rows(c, t->ne[0]);
    size_t bytes = (size_t)quant_row_bytes(type, t->ne[0]);
    struct ramp_encoding k = { 0 };
    unsigned char *to = aligned_alloc(64, ((size_t)rows * bytes + 63) / 64 * 64);
    enum err_code rc = ERR_OK;

    if (to == NULL)
        return err_set(e, ERR_NOMEM, "%.*s: no memory for it as %s", STR_ARG(t->name), quant_types[type]->name);
    rc = ramp_encoding_open(&k, t->ne[0], batch, c, e);
    k.t = t;
    k.type = type;
    for (int64_t i = 0; i < rows && rc == ERR_OK; i += batch) {
        rc = ramp_encode(&k, to + (size_t)i * bytes, i, 1, rows - i < batch ? rows - i : batch, e);
        if (rc == ERR_OK && !progress_tick(progress, (uint64_t)i, (uint64_t)rows))
            rc = err_set(e, ERR_CANCEL, "interrupted");
    }
    ramp_encoding_close(&k);
    if (rc)
        free(to);
    else
        *data = to;
    return rc;
}

enum err_code ramp_error(double *out, const struct gguf_tensor *t, const struct ramp_coder *c, int type, struct err *e)
{
    const int64_t n = t->ne[0], rows = t->ne[1] * t->ne[2] * t->ne[3];
    int64_t some = SAMPLE_ELEMS / n + 1, step = rows > some ? rows / some : 1;
    size_t bytes = (size_t)quant_row_bytes(type, n);
    struct ramp_encoding k = { 0 };
    double error = 0, of = 0;
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    unsigned char *to;
    enum err_code rc = ERR_OK;

    some = some < rows ? some : rows;
    to = malloc((size_t)some * bytes);
    if (x == NULL || y == NULL || to == NULL)
        rc = err_nomem(e);
    if (rc == ERR_OK)
        rc = ramp_encoding_open(&k, n, some, c, e);
    k.t = t;
    k.type = type;
    if (rc == ERR_OK)
        rc = ramp_encode(&k, to, 0, step, some, e);
    for (int64_t i = 0; rc == ERR_OK && i < some; i++) {
        cpu_decoder(t->type, c->simd)(x, (const char *)t->data + i * step * quant_row_bytes(t->type, n), n);
        cpu_decoder(type, c->simd)(y, to + (size_t)i * bytes, n);
        for (int64_t j = 0; j < n; j++) {
            double d = (double)y[j] - (double)x[j];

            error += d * d;
            of += (double)x[j] * (double)x[j];
        }
    }
    ramp_encoding_close(&k);
    free(x);
    free(y);
    free(to);
    if (rc == ERR_OK)
        *out = of > 0 ? error / of : 0;
    return rc;
}

/* ---- errors that are weighted by what they do ---- */

struct weighing {
    const struct gguf_tensor *t;
    const float *rows, *columns; /* [matrices][ne1], [matrices][ne0] */
    int64_t *pick;
    int64_t n_pick;
    double scale; /* from the rows that were picked to all */
    unsigned char *to;
    float *x, *y;
};

/* A row's weight times the weighted square of v. */
static double weighed(const struct weighing *k, int64_t row, const float *v)
{
    const float *c = k->columns + row / k->t->ne[1] * k->t->ne[0];
    double sum = 0;

    for (int64_t i = 0; i < k->t->ne[0]; i++)
        sum += (double)c[i] * (double)v[i] * (double)v[i];
    return (double)k->rows[row] * sum;
}

/* Rows that count, or some of them, evenly spread. */
static enum err_code pick_rows(struct weighing *k, const struct ramp_coder *c, const struct progress *progress,
                               struct err *e)
{
    const int64_t n = k->t->ne[0], all = k->t->ne[1] * k->t->ne[2] * k->t->ne[3], some = WEIGHTED_ELEMS / n + 1;
    quant_decode_fn *decode = cpu_decoder(k->t->type, c->simd);
    int64_t used = 0;
    double of_all = 0, of_picked = 0;

    k->pick = malloc(((size_t)all + 1) * sizeof *k->pick);
    if (k->pick == NULL)
        return err_nomem(e);
    for (int64_t r = 0; r < all; r++)
        if (k->rows[r] > 0.0f)
            k->pick[used++] = r;
    k->n_pick = used < some ? used : some;
    k->scale = 1;
    for (int64_t i = 0, at = 0; used > some && i < used; i++) {
        double w;

        decode(k->x, (const char *)k->t->data + k->pick[i] * quant_row_bytes(k->t->type, n), n);
        w = weighed(k, k->pick[i], k->x);
        of_all += w;
        if (i != at * used / some) /* each place is at or before the one that is read next */
            continue;
        of_picked += w;
        k->pick[at++] = k->pick[i];
        if (!progress_tick(progress, (uint64_t)i, (uint64_t)used))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    if (of_picked > 0)
        k->scale = of_all / of_picked;
    return ERR_OK;
}

static enum err_code weighed_error(double *out, struct weighing *k, struct ramp_encoding *by,
                                   const struct ramp_coder *c, const struct progress *progress, struct err *e)
{
    const int64_t n = k->t->ne[0], batch = ramp_batch_rows(c, n);
    size_t bytes = (size_t)quant_row_bytes(by->type, n);
    double sum = 0;

    by->pick = k->pick;
    for (int64_t i = 0; i < k->n_pick; i += batch) {
        int64_t m = k->n_pick - i < batch ? k->n_pick - i : batch;

        if (ramp_encode(by, k->to, i, 1, m, e))
            return e->code;
        for (int64_t r = 0; r < m; r++) {
            int64_t row = k->pick[i + r];

            cpu_decoder(k->t->type, c->simd)(k->x, (const char *)k->t->data + row * quant_row_bytes(k->t->type, n), n);
            cpu_decoder(by->type, c->simd)(k->y, k->to + (size_t)r * bytes, n);
            for (int64_t j = 0; j < n; j++)
                k->y[j] -= k->x[j];
            sum += weighed(k, row, k->y);
        }
        if (!progress_tick(progress, (uint64_t)(i + m), (uint64_t)k->n_pick))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    *out = sum * k->scale;
    return ERR_OK;
}

enum err_code ramp_weighted_errors(double out[], const struct gguf_tensor *t, const struct ramp_coder *c,
                                   const int *types, size_t n_types, const float *rows, const float *columns,
                                   const struct progress *progress, struct err *e)
{
    const int64_t n = t->ne[0], batch = ramp_batch_rows(c, n);
    struct weighing k = { .t = t, .rows = rows, .columns = columns };
    struct ramp_encoding by = { 0 };
    enum err_code rc = ERR_OK;

    k.x = malloc((size_t)n * sizeof *k.x);
    k.y = malloc((size_t)n * sizeof *k.y);
    k.to = malloc((size_t)(n * batch) * sizeof(float)); /* no type takes more */
    if (k.x == NULL || k.y == NULL || k.to == NULL)
        rc = err_nomem(e);
    if (rc == ERR_OK)
        rc = pick_rows(&k, c, progress, e);
    if (rc == ERR_OK)
        rc = ramp_encoding_open(&by, n, batch, c, e);
    by.t = t;
    for (size_t i = 0; i < n_types && rc == ERR_OK; i++) {
        by.type = types[i];
        if (types[i] != t->type)
            rc = weighed_error(&out[types[i]], &k, &by, c, progress, e);
    }
    ramp_encoding_close(&by);
    free(k.pick);
    free(k.x);
    free(k.y);
    free(k.to);
    return rc;
}
