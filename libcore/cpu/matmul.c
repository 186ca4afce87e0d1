/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - products with stored weights: rows are decoded a panel at a time, each once, and used for
 * every row of x. Panels are of floats or, where the type has them, of whole numbers. */
#include <string.h>

#include "cpu/cpu.h"

enum { L1_BYTES = 24576 }; /* of panels and of activations, each about half of a first-level cache */

const float *cpu_weights(const struct cpu *c, struct tensor w, int64_t e, int64_t w0, int n, float *buf)
{
    int64_t row_bytes = quant_row_bytes(w.type, w.ne[0]);
    const unsigned char *at = (const unsigned char *)w.data + (e * w.pitch + w0) * row_bytes;

    if (w.type == QUANT_f32)
        return (const float *)(const void *)at;
    for (int i = 0; i < n; i++)
        c->decode[w.type](buf + i * w.ne[0], at + i * row_bytes, w.ne[0]);
    return buf;
}

/* Rows decoded at a time: few and wide ones would not stay in the first-level cache until they are used,
 * which is soon if x has few rows; with many, a large panel saves passes over x. */
static int panel_rows(int64_t bytes, int nx)
{
    if (nx > 3 || CPU_PANEL * bytes <= L1_BYTES)
        return CPU_PANEL;
    return CPU_PANEL / 2 * bytes <= L1_BYTES ? CPU_PANEL / 2 : CPU_PANEL / 4;
}

/* Rows of x taken at a time: a block that stays, with the panel, in the first-level cache, or where the
 * panel alone fills that, one that stays in the second. */
static int block_rows(int64_t bytes)
{
    enum { L2_BYTES = 262144, UNIT = 12 }; /* rows that the kernels take at a time divide UNIT */
    int64_t n = (CPU_PANEL * bytes <= L1_BYTES ? L1_BYTES : L2_BYTES) / (bytes > 0 ? bytes : 1) / UNIT * UNIT;

    return n < UNIT ? UNIT : n > 4096 ? 4096 : (int)n;
}

/* Rows as whole numbers at a time: as many as stay in the second-level cache while all of x passes by. */
static int int_panel_rows(int64_t bytes, int nx)
{
    enum { L2_BYTES = 262144 };
    int64_t n = L2_BYTES / (bytes > 0 ? bytes : 1) / CPU_PANEL * CPU_PANEL;

    if (nx <= 8 || n <= CPU_PANEL)
        return panel_rows(bytes, nx);
    return n < CPU_INT_PANEL ? (int)n : CPU_INT_PANEL;
}

size_t cpu_acts_need(const struct cpu *c, int type, int64_t n, int64_t k)
{
    if (c->int_decode[type] == NULL || !cpu_int_row(k))
        return 0;
    return (size_t)n * (sizeof(void *) + (size_t)(cpu_int_whole(k) / 256) * sizeof(struct cpu_act_block)) + 128;
}

void cpu_round(const struct cpu *c, struct cpu_act_block *a, const float *x, int64_t k, int type)
{
    int64_t rest = k % 256;
    float last[256] = { 0 };

    c->round(a, x, k - rest, cpu_acts_top(type, c->acts));
    if (rest == 0)
        return;
    memcpy(last, x + k - rest, (size_t)rest * sizeof *last);
    c->round(a + k / 256, last, 256, cpu_acts_top(type, c->acts));
}

struct cpu_act_block **cpu_acts_room(const struct cpu *c, int type, int64_t n, int64_t k)
{
    if (c->int_decode[type] == NULL || !cpu_int_row(k))
        return NULL;
    int64_t blocks = cpu_int_whole(k) / 256;
    struct cpu_act_block **rows = dev_scratch_bytes(c->dev, (size_t)n * sizeof *rows);
    struct cpu_act_block *acts = dev_scratch_bytes(c->dev, (size_t)(n * blocks) * sizeof *acts);

    for (int64_t j = 0; j < n; j++)
        rows[j] = acts + j * blocks;
    return rows;
}

struct rounding {
    const struct cpu *c;
    const float *const *x;
    struct cpu_act_block **acts;
    int64_t k;
    int type;
};

static void round_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct rounding *a = ctx;

    (void)worker;
    for (int64_t j = begin; j < end; j++)
        cpu_round(a->c, a->acts[j], a->x[j], a->k, a->type);
}

const struct cpu_act_block **cpu_acts(const struct cpu *c, int type, const float *const *x, int64_t n, int64_t k)
{
    struct rounding a = { c, x, cpu_acts_room(c, type, n, k), k, type };

    if (a.acts != NULL)
        pool_for(c->pool, n, cpu_grain(c, n, 2 * k, 1), round_piece, &a);
    return (const struct cpu_act_block **)a.acts;
}

/* Rows of k elements, a multiple of 256, that begin row_bytes apart. */
struct int_rows {
    const char *rows;
    int64_t row_bytes, n, k;
    int type;
    bool laid;
};

/* y[j][at + i] = <row i, x_j>, in whole numbers. */
static void rows_ints(const struct cpu *c, struct cpu_rows v, int64_t at, struct int_rows w, float *buf)
{
    const struct cpu_format *f = cpu_format_of(w.type);
    bool follow = w.row_bytes == quant_row_bytes(w.type, w.k); /* each other */
    int panel = int_panel_rows(5 * w.k / 2, v.n);
    struct cpu_ints_panel p = { .u = (void *)buf, .n_min = f->n_min, .groups = quant_types[w.type]->block_elems == 32 };

    if (v.n == 1 && !w.laid && c->int_dots[w.type] != NULL) { /* straight from the stored rows */
        for (int64_t i = 0, m = follow ? w.n : 1; i < w.n; i += m)
            c->int_dots[w.type](v.y[0] + at + i, w.rows + i * w.row_bytes, w.row_bytes, (int)m, v.acts[0], w.k);
        return;
    }
    if (follow && v.n == 2 && !w.laid && c->int_two[w.type] != NULL) {
        c->int_two[w.type]((float *const[]){ v.y[0] + at, v.y[1] + at }, w.rows, (int)w.n, v.acts, w.k);
        return;
    }
    if (follow && c->int_tile[w.type] != NULL && v.n <= CPU_TILE_VECTORS) { /* with more a panel is faster */
        c->ints->rows(v.y, at, &(struct cpu_ints_rows){ c->int_tile[w.type], w.rows, w.row_bytes, (int)w.n, p.n_min },
                      v.acts, v.n, w.k);
        return;
    }
    if (c->acts == QUANT_ACTS_I8) {
        c->bytes->dots((struct cpu_bytes_rows){ f, w.rows, w.row_bytes, w.n, w.laid, v.next },
                       (struct cpu_bytes_vectors){ v.y, at, v.acts, v.n, v.kept }, w.k, buf);
        return;
    }
    for (int64_t r = 0; r < w.n; r += panel) {
        p.n = w.n - r < panel ? (int)(w.n - r) : panel;
        for (int64_t i = 0, m = follow ? p.n : 1; i < p.n; i += m)
            c->int_decode[w.type](p.u + i * (w.k / 256), w.rows + (r + i) * w.row_bytes, m * w.k);
        c->ints->dots(v.y, at + r, &p, v.acts, v.n, w.k);
    }
}

/* Floats from where in a buffer a row may lie that is made up to a multiple of 256: none takes more bytes than q8_0. */
static int64_t whole_at(const struct cpu *c, int64_t k)
{
    int64_t ints = (int64_t)sizeof(struct cpu_int_block) / 4 * CPU_INT_PANEL * ((k + 255) / 256),
            floats = CPU_PANEL * k;
    int64_t bytes = (int64_t)(c->bytes->need(k) + 63) / 64 * 16;

    floats = (ints > floats ? ints : floats) + 15;
    return (bytes > floats ? bytes : floats) / 16 * 16;
}

int64_t cpu_panel_floats(const struct cpu *c, int64_t k)
{
    bool whole = k % 256 == 0 || !cpu_int_row(k);

    return whole_at(c, k) + (whole ? 0 : (quant_row_bytes(QUANT_q8_0, cpu_int_whole(k)) + 63) / 64 * 16);
}

/* cpu_product in whole numbers. A row that ends within a block of 256 is read on into the next one, whose elements meet
 * zeros; the last of the matrix is copied. (Only weights that are not finite would tell.) */
static void product_ints(const struct cpu *c, struct cpu_rows v, struct tensor w, int64_t e, int64_t at, int64_t n,
                         float *buf)
{
    int64_t k = w.ne[0], row_bytes = quant_row_bytes(w.type, k), whole = cpu_int_whole(k);
    struct int_rows rows = {
        (const char *)w.data + (e * w.pitch + at) * row_bytes, row_bytes, n, whole, w.type, w.laid
    };
    bool last = k != whole && at + n == w.ne[1];

    rows.n -= last;
    if (rows.n > 0)
        rows_ints(c, v, at, rows, buf);
    if (!last)
        return;
    char *copy = (char *)(buf + whole_at(c, k));

    memset(copy, 0, (size_t)quant_row_bytes(w.type, whole));
    memcpy(copy, rows.rows + rows.n * row_bytes, (size_t)row_bytes);
    rows.rows = copy;
    rows.n = 1;
    rows_ints(c, v, at + n - 1, rows, buf);
}

static void expert_product(const struct cpu *c, struct cpu_rows v, struct tensor w, int64_t e, int64_t at, int64_t n,
                           float *buf)
{
    int64_t k = w.ne[0];
    int panel = panel_rows(4 * k, v.n), block = block_rows(4 * k);

    if (v.acts != NULL) {
        product_ints(c, v, w, e, at, n, buf);
        return;
    }
    for (int64_t r = at; r < at + n; r += panel) {
        int rows = at + n - r < panel ? (int)(at + n - r) : panel;
        const float *wr = cpu_weights(c, w, e, r, rows, buf);

        for (int j = 0; j < v.n; j += block)
            c->kern->dots(v.y + j, r, wr, k, rows, v.x + j, v.n - j < block ? v.n - j : block, k);
    }
}

/* Rows of a matrix between two questions whether to go on: some milliseconds. */
static int64_t rows_between(const struct cpu *c, const struct cpu_rows *v, int64_t k, int64_t n)
{
    enum { ROWS = CPU_INT_PANEL, PRODUCTS = 1 << 28 };
    int64_t most = PRODUCTS / (k * v->n + 1) / ROWS * ROWS;

    return c->stop == NULL ? n : most < ROWS ? ROWS : most;
}

void cpu_product(const struct cpu *c, struct cpu_rows v, struct tensor w, int64_t e, int64_t at, int64_t n, float *buf)
{
    int64_t most = rows_between(c, &v, w.ne[0], n);

    for (int64_t i = 0; i < n; i += most) {
        int64_t m = n - i < most ? n - i : most;

        if (!cpu_stopped(c))
            expert_product(c, v, w, e, at + i, m, buf);
        else
            for (int j = 0; j < v.n; j++)
                memset(v.y[j] + at + i, 0, (size_t)m * sizeof(float));
    }
}

struct embed {
    const struct cpu *c;
    struct tensor y, w;
    const int32_t *token;
    struct op_ids ids;
    float scale;
};

static void embed_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct embed *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *y = cpu_row(a->y, r);
        int32_t t = a->token[r];
        const float *w = cpu_weights(a->c, a->w, 0, t >= 0 ? t : a->ids.at[(-1 - t) * a->ids.stride], 1, y);

        if (w != y)
            memcpy(y, w, (size_t)a->w.ne[0] * sizeof *y);
        if (a->scale != 1.0f)
            a->c->kern->scale(y, y, NULL, a->scale, a->w.ne[0]);
    }
}

void cpu_embed(void *ctx, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids, float scale)
{
    struct cpu *c = ctx;
    struct embed a = { c, y, w, token, { NULL, 0 }, scale };

    if (ids != NULL)
        a.ids = *ids;
    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), embed_piece, &a);
}

bool cpu_same_acts(const struct cpu *c, int a, int b)
{
    if (c->int_decode[a] == NULL || c->int_decode[b] == NULL)
        return c->int_decode[a] == c->int_decode[b];
    return cpu_acts_top(a, c->acts) == cpu_acts_top(b, c->acts);
}

/* Products with the same x, rows of all matrices in one list of panels. */
struct products {
    const struct cpu *c;
    const struct op_product *p;
    int n;
    int64_t first[OP_PRODUCTS_MAX + 1]; /* panel of each, and behind the last */
    struct cpu_rows v[OP_PRODUCTS_MAX];
    float *buf; /* panel_bytes() for each worker */
    int64_t buf_floats;
    struct cpu_bytes_kept *kept; /* [workers] */
};

static void products_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct products *a = ctx;

    for (int i = 0; i < a->n; i++) {
        struct cpu_rows v = a->v[i];
        int64_t from = begin > a->first[i] ? begin : a->first[i];
        int64_t to = end < a->first[i + 1] ? end : a->first[i + 1];

        if (from >= to)
            continue;
        from = (from - a->first[i]) * CPU_PANEL;
        to = (to - a->first[i]) * CPU_PANEL;
        to = to < a->p[i].w.ne[1] ? to : a->p[i].w.ne[1];
        v.kept = a->kept + worker;
        cpu_product(a->c, v, a->p[i].w, 0, from, to - from, a->buf + (int64_t)worker * a->buf_floats);
    }
}

static size_t panel_bytes(const struct cpu *c, int64_t k)
{
    return (size_t)pool_size(c->pool) * (size_t)cpu_panel_floats(c, k) * sizeof(float);
}

static size_t kept_bytes(const struct cpu *c)
{
    return (size_t)pool_size(c->pool) * sizeof(struct cpu_bytes_kept);
}

size_t cpu_matmuls_need(void *ctx, const struct op_product *p, int n, struct tensor x)
{
    const struct cpu *c = ctx;
    size_t rows = (size_t)x.ne[1] * sizeof(void *) + 64,
           need = panel_bytes(c, x.ne[0]) + rows + 64 + kept_bytes(c) + 64;

    for (int i = 0; i < n; i++)
        need += rows + cpu_acts_need(c, p[i].w.type, x.ne[1], x.ne[0]);
    return need;
}

size_t cpu_matmul_need(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    return cpu_matmuls_need(ctx, &(struct op_product){ y, w }, 1, x);
}

/* x rounded for product i: once for all that take the same. */
static const struct cpu_act_block *const *acts_for(const struct products *a, int i, int64_t k)
{
    for (int j = 0; j < i; j++)
        if (cpu_same_acts(a->c, a->p[i].w.type, a->p[j].w.type))
            return a->v[j].acts;
    return cpu_acts(a->c, a->p[i].w.type, a->v[i].x, a->v[i].n, k);
}

void cpu_matmuls(void *ctx, const struct op_product *p, int n, struct tensor x)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    const float **xs = dev_scratch_bytes(c->dev, (size_t)x.ne[1] * sizeof *xs);
    struct products a = { .c = c,
                          .p = p,
                          .n = n,
                          .buf = dev_scratch_bytes(c->dev, panel_bytes(c, x.ne[0])),
                          .buf_floats = cpu_panel_floats(c, x.ne[0]),
                          .kept = memset(dev_scratch_bytes(c->dev, kept_bytes(c)), 0, kept_bytes(c)) };

    for (int64_t r = 0; r < x.ne[1]; r++)
        xs[r] = cpu_row(x, r);
    for (int i = 0; i < n; i++) {
        float **ys = dev_scratch_bytes(c->dev, (size_t)x.ne[1] * sizeof *ys);

        for (int64_t r = 0; r < x.ne[1]; r++)
            ys[r] = cpu_row(p[i].y, r);
        a.v[i] = (struct cpu_rows){ ys, xs, NULL, (int)x.ne[1], NULL, NULL };
        a.v[i].acts = acts_for(&a, i, x.ne[0]);
        a.first[i + 1] = a.first[i] + (p[i].w.ne[1] + CPU_PANEL - 1) / CPU_PANEL;
    }
    pool_for(c->pool, a.first[n], cpu_grain(c, a.first[n], CPU_PANEL * x.ne[0] * x.ne[1], 1), products_piece, &a);
    dev_release(c->dev, mark);
}

void cpu_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    cpu_matmuls(ctx, &(struct op_product){ y, w }, 1, x);
}
