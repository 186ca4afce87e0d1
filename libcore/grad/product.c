/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - products of matrices of floats, and of stored matrices that are decoded piece by piece. */
#include <string.h>

#include "base/pool.h"
#include "cpu/format.h"
#include "grad/internal.h"
#include "quant/quant.h"

enum {
    PANELS = 4, /* panels of columns in a piece */
    WIDE = PANELS * GRAD_COLS,
    ROWS = 240,     /* and rows in it, at least */
    EACH = 3,       /* pieces of a thread */
    DEEP = 512,     /* of k at a time */
    TILE = 1 << 19, /* floats of a decoded part of a matrix */
};

size_t grad_product_floats(int n_threads)
{
    return (size_t)n_threads * DEEP * WIDE;
}

struct job {
    const struct grad_product *g;
    const struct grad_loops *loops;
    float *scratch;
    int64_t n_wide, rows; /* pieces beside each other, rows of each */
};

/* Columns first .. of b, k from .. to, as panels; columns past the end are zeros. */
static void pack_panels(float *to, const struct grad_product *g, int64_t first, int64_t k0, int64_t k)
{
    for (int p = 0; p < PANELS && first + p * GRAD_COLS < g->n; p++, to += k * GRAD_COLS) {
        int64_t col = first + p * GRAD_COLS, n = g->n - col < GRAD_COLS ? g->n - col : GRAD_COLS;
        const float *b = g->b + k0 * g->b_k + col * g->b_col;

        if (n < GRAD_COLS)
            memset(to, 0, (size_t)(k * GRAD_COLS) * sizeof *to);
        if (g->b_col == 1) {
            for (int64_t t = 0; t < k; t++)
                memcpy(to + t * GRAD_COLS, b + t * g->b_k, (size_t)n * sizeof *to);
        } else {
            for (int64_t j = 0; j < n; j++)
                for (int64_t t = 0; t < k; t++)
                    to[t * GRAD_COLS + j] = b[j * g->b_col + t];
        }
    }
}

/* Sums of some rows and up to GRAD_COLS columns. */
static void put_sums(const struct job *j, const float *sums, int64_t row, int64_t rows, int64_t col, bool add)
{
    const struct grad_product *g = j->g;
    int64_t n = g->n - col < GRAD_COLS ? g->n - col : GRAD_COLS;

    for (int64_t i = 0; i < rows; i++) {
        float *c = g->c + (row + i) * g->c_row + col;
        const float *s = sums + i * GRAD_COLS;

        if (n == GRAD_COLS)
            j->loops->put(c, s, g->scale, add);
        else
            for (int64_t k = 0; k < n; k++)
                c[k] = add ? c[k] + g->scale * s[k] : g->scale * s[k];
    }
}

static void multiply(const struct job *j, const float *packed, int64_t row, int64_t end, int64_t col, int64_t k0,
                     int64_t k)
{
    const struct grad_product *g = j->g;
    const float *a[GRAD_ROWS_MAX];
    float sums[GRAD_ROWS_MAX * GRAD_COLS];

    for (; row < end; row += j->loops->rows) {
        int64_t n = end - row < j->loops->rows ? end - row : j->loops->rows;

        for (int64_t i = 0; i < j->loops->rows; i++)
            a[i] = g->a + (row + (i < n ? i : n - 1)) * g->a_row + k0 * g->a_k;
        for (int p = 0; p < PANELS && col + p * GRAD_COLS < g->n; p++) {
            j->loops->panel(sums, a, g->a_k, packed + p * k * GRAD_COLS, k);
            put_sums(j, sums, row, n, col + p * GRAD_COLS, g->add || k0 > 0);
        }
    }
}

static void product_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct grad_product *g = j->g;
    float *packed = j->scratch + (int64_t)worker * DEEP * WIDE;

    for (int64_t i = begin; i < end; i++) {
        int64_t col = i % j->n_wide * WIDE, row = i / j->n_wide * j->rows;

        for (int64_t k0 = 0; k0 < g->k; k0 += DEEP) {
            int64_t k = g->k - k0 < DEEP ? g->k - k0 : DEEP;

            pack_panels(packed, g, col, k0, k);
            multiply(j, packed, row, g->m - row < j->rows ? g->m : row + j->rows, col, k0, k);
        }
    }
}

void grad_product(const struct grad_tools *t, const struct grad_product *g)
{
    struct job j = { g, grad_loops(t->simd), t->scratch, (g->n + WIDE - 1) / WIDE, 0 };
    const int64_t high = j.n_wide * g->m / (EACH * pool_size(t->pool)); /* each piece packs its columns again */

    j.rows = (high / ROWS + 1) * ROWS;
    if (g->m > 0)
        pool_for(t->pool, j.n_wide * ((g->m + j.rows - 1) / j.rows), 1, product_piece, &j);
}

/* Rows of a stored matrix to floats. */
struct decode {
    float *to;
    const unsigned char *from;
    int64_t n_in, row_bytes;
    quant_decode_fn *fn;
};

static void decode_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct decode *d = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        d->fn(d->to + i * d->n_in, d->from + i * d->row_bytes, d->n_in);
}

/* Rows of a tile: whole panels, and at least one. */
int64_t grad_tile_rows(const struct grad_matrix *m)
{
    int64_t n = TILE / m->n_in / WIDE * WIDE;

    n = n < WIDE ? WIDE : n;
    return n < m->n_out ? n : m->n_out;
}

static const float *decode_rows(const struct pass *p, const struct grad_matrix *m, int64_t row, int64_t n)
{
    struct decode d = { p->tile, m->data, m->n_in, quant_row_bytes(m->type, m->n_in),
                        cpu_decoder(m->type, p->g->simd) };

    if (m->type == QUANT_f32)
        return (const float *)m->data + row * m->n_in;
    d.from += row * d.row_bytes;
    pool_for(p->g->pool, n, 1 + 8192 / m->n_in, decode_piece, &d);
    return p->tile;
}

/* The rows of a product that an adapter is for: begin .. end - 1 of n. */
static void adapter_rows(const struct pass *p, const struct grad_adapter *a, const int32_t *row, int64_t n,
                         int64_t *begin, int64_t *end)
{
    int64_t from = p->first[a->from], to = p->first[a->to];

    *begin = 0;
    if (row == NULL) { /* all rows of the batch */
        *begin = from;
        *end = to;
        return;
    }
    while (*begin < n && row[*begin] < from)
        ++*begin;
    for (*end = *begin; *end < n && row[*end] < to; ++*end)
        ;
}

struct spot {
    const struct grad_matrix *m;
    const float *a, *b;
    int64_t expert, begin, n;
};

/* One expert's part of a product, or all of it. */
struct part {
    int matrix, expert;
    const int32_t *row; /* as in struct at */
    int64_t first, n;
};

static struct part part_of(const struct at *at, int expert, int64_t n)
{
    const int64_t *first = at->pairs != NULL ? at->pairs->first : NULL;

    if (first == NULL)
        return (struct part){ at->matrix, 0, at->row, 0, n };
    return (struct part){ at->matrix, expert, at->pairs->row + first[expert], first[expert],
                          first[expert + 1] - first[expert] };
}

/* False: no rows of this product. */
static bool adapter_at(const struct pass *p, const struct grad_adapter *ad, const struct part *at, struct spot *s)
{
    int64_t end = 0;

    if (ad->matrix != at->matrix)
        return false;
    s->m = &p->g->mat[at->matrix];
    s->expert = at->expert;
    s->a = ad->a + at->expert * ad->rank * s->m->n_in;
    s->b = ad->b + at->expert * (ad->rank > 0 ? ad->rank : 1) * s->m->n_out;
    adapter_rows(p, ad, at->row, at->n, &s->begin, &end);
    s->n = end - s->begin;
    return s->n > 0;
}

/* p->low = x a^T, [n][rank] */
static void go_low(const struct pass *p, const struct grad_adapter *ad, const struct spot *s, const float *x)
{
    grad_product(&p->tools, &(struct grad_product){ s->n, ad->rank, s->m->n_in, x + s->begin * s->m->n_in, s->a,
                                                    s->m->n_in, 1, 1, s->m->n_in, p->low, ad->rank, 1.0f, false });
}

static void stretch(const struct spot *s, float *y)
{
    for (int64_t i = s->begin; i < s->begin + s->n; i++)
        for (int64_t o = 0; o < s->m->n_out; o++)
            y[i * s->m->n_out + o] *= 1.0f + s->b[o];
}

static void part_forward(const struct pass *p, const struct part *at, float *y, const float *x)
{
    const struct grad_matrix *m = &p->g->mat[at->matrix];
    int64_t tile = grad_tile_rows(m);
    struct spot s;

    for (int64_t o = 0; o < m->n_out && at->n > 0; o += tile) {
        int64_t rows = m->n_out - o < tile ? m->n_out - o : tile;
        const float *w = decode_rows(p, m, at->expert * m->n_out + o, rows);

        grad_product(&p->tools, &(struct grad_product){ at->n, rows, m->n_in, x, w, m->n_in, 1, 1, m->n_in, y + o,
                                                        m->n_out, 1.0f, false });
    }
    for (int i = 0; i < p->b->n_adapter; i++) {
        const struct grad_adapter *ad = &p->b->adapter[i];

        if (!adapter_at(p, ad, at, &s))
            continue;
        if (ad->rank == 0) {
            stretch(&s, y);
            continue;
        }
        go_low(p, ad, &s, x);
        grad_product(&p->tools, &(struct grad_product){ s.n, m->n_out, ad->rank, p->low, s.b, ad->rank, 1, 1, ad->rank,
                                                        y + s.begin * m->n_out, m->n_out, ad->scale, true });
    }
}

void grad_host_product(const struct pass *p, struct at at, float *y, const float *x, int64_t n)
{
    const struct grad_matrix *m = &p->g->mat[at.matrix];

    for (int e = 0; e < (at.pairs != NULL ? m->n_expert : 1); e++) {
        const struct part part = part_of(&at, e, n);

        part_forward(p, &part, y + part.first * m->n_out, x + part.first * m->n_in);
    }
}

static void adapter_back(const struct pass *p, const struct grad_adapter *ad, const struct spot *s, float *dx,
                         const float *dy, const float *x)
{
    int64_t r = ad->rank, n_in = s->m->n_in, n_out = s->m->n_out;
    float *dlow = p->low + s->n * r;

    dy += s->begin * n_out;
    x += s->begin * n_in;
    if (ad->db != NULL) {
        go_low(p, ad, &(struct spot){ s->m, s->a, s->b, s->expert, 0, s->n }, x);
        grad_product(&p->tools, &(struct grad_product){ n_out, r, s->n, dy, p->low, 1, n_out, r, 1,
                                                        ad->db + s->expert * r * n_out, r, ad->scale, true });
    }
    grad_product(&p->tools,
                 &(struct grad_product){ s->n, r, n_out, dy, s->b, n_out, 1, r, 1, dlow, r, ad->scale, false });
    if (ad->da != NULL)
        grad_product(&p->tools, &(struct grad_product){ r, n_in, s->n, dlow, x, 1, r, n_in, 1,
                                                        ad->da + s->expert * r * n_in, n_in, 1.0f, true });
    if (dx != NULL)
        grad_product(&p->tools, &(struct grad_product){ s->n, n_in, r, dlow, s->a, r, 1, n_in, 1, dx + s->begin * n_in,
                                                        n_in, 1.0f, true });
}

static void part_backward(const struct pass *p, const struct part *at, float *dx, const float *dy, const float *x)
{
    const struct grad_matrix *m = &p->g->mat[at->matrix];
    int64_t tile = grad_tile_rows(m);
    struct spot s;

    if (at->n == 0)
        return;
    for (int64_t o = 0; o < m->n_out && dx != NULL; o += tile) {
        int64_t rows = m->n_out - o < tile ? m->n_out - o : tile;
        const float *w = decode_rows(p, m, at->expert * m->n_out + o, rows);

        grad_product(&p->tools, &(struct grad_product){ at->n, m->n_in, rows, dy + o, w, m->n_out, 1, m->n_in, 1, dx,
                                                        m->n_in, 1.0f, true });
    }
    for (int i = 0; i < p->b->n_adapter; i++)
        if (adapter_at(p, &p->b->adapter[i], at, &s))
            adapter_back(p, &p->b->adapter[i], &s, dx, dy, x);
    if (p->b->trace != NULL)
        p->b->trace(p->b->trace_ctx, at->matrix, at->expert, at->n, x, dy, at->row != NULL ? at->row : p->all_rows);
}

void grad_host_product_back(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n)
{
    const struct grad_matrix *m = &p->g->mat[at.matrix];

    for (int e = 0; e < (at.pairs != NULL ? m->n_expert : 1); e++) {
        const struct part part = part_of(&at, e, n);

        part_backward(p, &part, dx == NULL ? NULL : dx + part.first * m->n_in, dy + part.first * m->n_out,
                      x + part.first * m->n_in);
    }
}
