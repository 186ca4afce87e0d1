/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - adapters: rows that have the same list of them go together, in two products, inputs to ranks to outputs. */
#include <string.h>

#include "cpu/cpu.h"

enum { SLICE = 8, COLUMNS = 256 }; /* ranks, and outputs, of a piece of work */

static const struct op_pair *pair_of(const struct op_adapt *a, const struct op_terms *t, int64_t row, int i)
{
    const int32_t which = i < t->max ? t->which[row * t->max + i] : -1;

    return which >= 0 ? &a->pair[which] : NULL;
}

void cpu_adapt_in(const struct cpu *c, const struct op_adapt *a, const struct op_terms *t, int64_t row, int64_t mat,
                  struct cpu_adapt_rows v, int64_t n_in, int from, int to)
{
    const struct op_pair *p;
    int at = 0; /* where the term's numbers begin */

    for (int i = 0; (p = pair_of(a, t, row, i)) != NULL && at < to; i++) {
        const int rank = p->a != NULL ? p->rank : 0;
        const int j0 = from > at ? from - at : 0, j1 = to - at < rank ? to - at : rank;
        const float s = t->scale[row * t->max + i] * p->scale;

        if (j0 < j1) {
            const int64_t skip = (mat * rank + j0) * n_in;

            if (p->half)
                c->kern->dots_half(v.h, at + j0, (const uint16_t *)p->a + skip, n_in, j1 - j0, v.x, v.n, n_in);
            else
                c->kern->dots(v.h, at + j0, p->a + skip, n_in, j1 - j0, v.x, v.n, n_in);
            for (int k = 0; k < v.n; k++)
                c->kern->scale(v.h[k] + at + j0, v.h[k] + at + j0, NULL, s, j1 - j0);
        }
        at += rank;
    }
}

void cpu_adapt_out(const struct cpu *c, const struct op_adapt *a, const struct op_terms *t, int64_t row, int64_t mat,
                   struct cpu_adapt_rows v, int64_t at, int64_t n_y)
{
    const float *h[CPU_ADAPT_ROWS];
    float *y[CPU_ADAPT_ROWS];
    const struct op_pair *p;

    for (int k = 0; k < v.n; k++) {
        h[k] = v.h[k];
        y[k] = v.y[k] + at;
    }
    for (int i = 0; (p = pair_of(a, t, row, i)) != NULL; i++) {
        const int64_t skip = mat * p->rank * a->n_out + a->first + at;

        if (p->a == NULL)
            continue;
        if (p->half)
            c->kern->mix_half(y, h, v.n, (const uint16_t *)p->b + skip, a->n_out, p->rank, n_y);
        else
            c->kern->mix(y, h, v.n, p->b + skip, a->n_out, p->rank, n_y);
        for (int k = 0; k < v.n; k++)
            h[k] += p->rank;
    }
}

/* Rows that follow each other and have the same list. */
struct some_rows {
    int32_t first, n;
};

struct adapt {
    const struct cpu *c;
    const struct op_adapt *a;
    int n;
    const struct op_terms *t;
    struct tensor x;
    const int32_t *token;
    struct some_rows *some;
    int64_t n_some;
    float **h, **y;                      /* [n][rows] */
    const float **xs;                    /* [rows] */
    int64_t pieces[OP_PRODUCTS_MAX + 1]; /* where each product's pieces of work begin; the end */
};

static bool same_list(const struct op_terms *t, int64_t r, int64_t s)
{
    const size_t n = (size_t)t->max;

    return memcmp(t->which + r * t->max, t->which + s * t->max, n * sizeof *t->which) == 0 &&
           memcmp(t->scale + r * t->max, t->scale + s * t->max, n * sizeof *t->scale) == 0;
}

static void find_some(struct adapt *w, int64_t rows)
{
    struct some_rows *last = NULL;

    for (int64_t r = 0; r < rows; r++) {
        if (w->t->which[r * w->t->max] < 0) {
            last = NULL;
            continue;
        }
        if (last == NULL || last->n == CPU_ADAPT_ROWS || !same_list(w->t, last->first, r)) {
            last = &w->some[w->n_some++];
            *last = (struct some_rows){ (int32_t)r, 0 };
        }
        last->n++;
    }
}

/* Piece number i: of which product, which rows, and which part of those. */
struct piece {
    const struct op_adapt *a;
    struct some_rows some;
    struct cpu_adapt_rows v;
    int64_t part;
};

static struct piece piece_at(const struct adapt *w, int64_t i)
{
    int64_t rows = w->a[0].y.ne[1], k;
    struct piece p;
    int m = 0;

    while (i >= w->pieces[m + 1])
        m++;
    i -= w->pieces[m];
    k = i % w->n_some;
    p = (struct piece){ &w->a[m], w->some[k], { 0 }, i / w->n_some };
    p.v = (struct cpu_adapt_rows){ w->h + m * rows + p.some.first, w->y + m * rows + p.some.first, w->xs + p.some.first,
                                   p.some.n };
    return p;
}

static void in_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct adapt *w = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct piece p = piece_at(w, i);

        cpu_adapt_in(w->c, p.a, w->t, p.some.first, p.a->mat, p.v, w->x.ne[0], (int)p.part * SLICE,
                     (int)(p.part + 1) * SLICE);
    }
}

static void out_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct adapt *w = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct piece p = piece_at(w, i);
        const int64_t at = p.part * COLUMNS, left = p.a->y.ne[0] - at;

        cpu_adapt_out(w->c, p.a, w->t, p.some.first, p.a->mat, p.v, at, left < COLUMNS ? left : COLUMNS);
    }
}

/* The rows of a that tokens have. */
static void look_up(const struct adapt *w, const struct op_adapt *a, float *const *h)
{
    for (int64_t r = 0; r < a->y.ne[1]; r++) {
        const struct op_pair *p;
        int at = 0;

        for (int i = 0; (p = pair_of(a, w->t, r, i)) != NULL; i++) {
            if (p->a == NULL)
                continue;
            w->c->kern->scale(h[r] + at, p->a + (int64_t)w->token[r] * p->rank, NULL,
                              w->t->scale[r * w->t->max + i] * p->scale, p->rank);
            at += p->rank;
        }
    }
}

size_t cpu_adapt_need(void *ctx, const struct op_adapt *a, int n, const struct op_terms *t)
{
    const size_t rows = (size_t)a[0].y.ne[1];

    (void)ctx;
    return rows * (size_t)n * ((size_t)t->floats * sizeof(float) + 2 * sizeof(float *)) +
           rows * (sizeof(struct some_rows) + sizeof(float *)) + (size_t)(5 * 64);
}

void cpu_adapt(void *ctx, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
               const struct op_terms *t)
{
    struct cpu *c = ctx;
    const size_t mark = dev_mark(c->dev), rows = (size_t)a[0].y.ne[1];
    struct adapt w = { c,
                       a,
                       n,
                       t,
                       x,
                       token,
                       dev_scratch_bytes(c->dev, rows * sizeof(struct some_rows)),
                       0,
                       dev_scratch_bytes(c->dev, rows * (size_t)n * sizeof(float *)),
                       dev_scratch_bytes(c->dev, rows * (size_t)n * sizeof(float *)),
                       dev_scratch_bytes(c->dev, rows * sizeof(float *)),
                       { 0 } };
    float *h = dev_scratch_bytes(c->dev, rows * (size_t)n * (size_t)t->floats * sizeof *h);

    find_some(&w, (int64_t)rows);
    if (w.n_some == 0) {
        dev_release(c->dev, mark);
        return;
    }
    for (size_t i = 0; i < rows * (size_t)n; i++) {
        w.h[i] = h + i * (size_t)t->floats;
        w.y[i] = cpu_row(a[i / rows].y, (int64_t)(i % rows));
    }
    for (size_t r = 0; r < rows && token == NULL; r++)
        w.xs[r] = cpu_row(x, (int64_t)r);
    for (int i = 0; i < n; i++)
        w.pieces[i + 1] = w.pieces[i] + w.n_some * ((t->floats + SLICE - 1) / SLICE);
    if (token != NULL)
        look_up(&w, &a[0], w.h);
    else
        pool_for(c->pool, w.pieces[n], cpu_grain(c, w.pieces[n], 2 * SLICE * x.ne[0], 1), in_piece, &w);
    for (int i = 0; i < n; i++)
        w.pieces[i + 1] = w.pieces[i] + w.n_some * ((a[i].y.ne[0] + COLUMNS - 1) / COLUMNS);
    pool_for(c->pool, w.pieces[n], cpu_grain(c, w.pieces[n], (int64_t)2 * COLUMNS * t->floats, 1), out_piece, &w);
    dev_release(c->dev, mark);
}
