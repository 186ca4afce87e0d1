/* SPDX-License-Identifier: Apache-2.0 */
/* attn.c - the KV cache and attention.
 *
 * Attention takes keys in blocks of one page (OP_KV_PAGE positions, aligned). Within a block: scores,
 * their maximum m, weights exp(s - m), their sum l, and the weighted sum o of the values, positions
 * ascending. Blocks are merged in ascending order: with M = max(m, m_b),
 *   l = l exp(m - M) + l_b exp(m_b - M), o likewise (Milakov & Gimelshein 2018). */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

/* Where the key (value) of head h at position pos lives. */
static unsigned char *kv_at(const struct op_kv *kv, int slot, int64_t pos, int h, bool value)
{
    int64_t k_bytes = quant_row_bytes(kv->type_k, kv->dim_k);
    int64_t v_bytes = quant_row_bytes(kv->type_v, kv->dim_v);
    unsigned char *page = kv->pages + (size_t)kv->page[slot][pos / OP_KV_PAGE] * kv->page_bytes;
    int64_t row = (int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE;

    return value ? page + (int64_t)kv->n_head * OP_KV_PAGE * k_bytes + row * v_bytes : page + row * k_bytes;
}

struct store {
    struct tensor k, v;
    const struct op_kv *kv;
    const struct op_rows *r;
};

static void store_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct store *t = ctx;
    const struct op_kv *kv = t->kv;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i];

        for (int j = s->row; j < s->row + s->n; j++)
            for (int h = 0; h < kv->n_head; h++) {
                int64_t pos = s->pos + (j - s->row);

                quant_types[kv->type_k]->encode(kv_at(kv, s->slot, pos, h, false),
                                                cpu_row(t->k, j) + (int64_t)h * kv->dim_k, kv->dim_k, NULL);
                quant_types[kv->type_v]->encode(kv_at(kv, s->slot, pos, h, true),
                                                cpu_row(t->v, j) + (int64_t)h * kv->dim_v, kv->dim_v, NULL);
            }
    }
}

void cpu_kv_store(void *ctx, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct store t = { k, v, kv, r };

    pool_for(c->pool, r->n_seq, 1, store_piece, &t);
}

/* A piece of attention is a block of rows of one sequence and some query heads of one KV head: at most
 * QUERIES queries (row, head), which share every decoded key and value. */
enum { QUERIES = 16 };

struct attn {
    const struct cpu *c;
    struct tensor y, q;
    const struct op_kv *kv;
    float scale;
    const struct op_rows *r;
    int group;        /* query heads for each KV head */
    int heads, parts; /* of them in a piece; pieces for a group */
    int rows;         /* in a piece */
    float *buf;
    int64_t buf_floats; /* of each worker */
};

/* What a piece works with: for each query its row and what is known so far. */
struct piece {
    const struct op_seq *s;
    int h, n;      /* KV head; queries, by row, then by head */
    int64_t first; /* position of the first row */
    const float *q[QUERIES];
    float *y[QUERIES], *score[QUERIES], *o[QUERIES], *ob[QUERIES];
    float m[QUERIES], l[QUERIES];
    float *panel;
};

/* Scratch of a worker: one decoded panel; for each query the scores and weighted sums of a block and of all
 * blocks. */
static int64_t worker_floats(const struct op_kv *kv)
{
    int64_t dim = kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v;

    return CPU_PANEL * dim + QUERIES * (OP_KV_PAGE + 2 * (int64_t)kv->dim_v);
}

/* Keys or values of a piece's head, positions pos .. pos + n - 1 within a page, as float rows: how many
 * at a time is for panel_step() to say. */
static const float *decode_panel(const struct attn *t, const struct piece *p, int64_t pos, int n, bool value)
{
    const unsigned char *at = kv_at(t->kv, p->s->slot, pos, p->h, value);
    int type = value ? t->kv->type_v : t->kv->type_k, dim = value ? t->kv->dim_v : t->kv->dim_k;

    if (type == QUANT_f32)
        return (const float *)(const void *)at;
    t->c->decode[type](p->panel, at, (int64_t)n * dim); /* without heads of rows, they are one row */
    return p->panel;
}

static int panel_step(int type)
{
    return type == QUANT_f32 ? OP_KV_PAGE : CPU_PANEL;
}

/* The keys of a block that query i sees, when there are n up to the last row. */
static int keys_seen(const struct attn *t, const struct piece *p, int64_t p0, int i)
{
    int64_t n = p->first + i / t->heads + 1 - p0;

    return n < OP_KV_PAGE ? (int)n : OP_KV_PAGE;
}

/* The keys *from .. *to - 1 of a block's n are outside of the window of query i. */
static bool is_hidden(const struct attn *t, const struct piece *p, int64_t p0, int i, int n, int *from, int *to)
{
    const struct op_kv *kv = t->kv;
    int64_t first = kv->always - p0, end = p->first + i / t->heads - kv->window - p0;

    *from = first > 0 ? (int)(first < n ? first : n) : 0;
    *to = end < n ? (int)(end > *from ? end : *from) : n;
    return kv->window > 0 && *to > *from;
}

/* Query i sees nothing of a block. */
static bool sees_none(const struct attn *t, const struct piece *p, int64_t p0, int i)
{
    int from, to, n = keys_seen(t, p, p0, i);

    return is_hidden(t, p, p0, i, n, &from, &to) && from == 0 && to == n;
}

/* Scores become weights; the block's factor is folded into them, so that merging is one addition. */
static void weigh_scores(const struct attn *t, struct piece *p, int64_t p0, int i, int n)
{
    const struct cpu_kernels *kern = t->c->kern;
    int from = 0, to = 0;
    const bool hidden = is_hidden(t, p, p0, i, n, &from, &to);

    if (hidden && to - from == n) {
        memset(p->score[i], 0, (size_t)n * sizeof *p->score[i]);
        return;
    }
    for (int k = from; hidden && k < to; k++)
        p->score[i][k] = -INFINITY;
    float sum, mb = kern->softmax(p->score[i], t->scale, &sum, n);
    float top = mb > p->m[i] ? mb : p->m[i], e[2] = { p->m[i], mb };

    kern->exp_sub(e, e, top, 2);
    p->l[i] = p->l[i] * e[0] + sum * e[1];
    p->m[i] = top;
    kern->scale(p->o[i], p->o[i], NULL, e[0], t->kv->dim_v);
    kern->scale(p->score[i], p->score[i], NULL, e[1], n);
    if (hidden)
        memset(p->score[i] + from, 0, (size_t)(to - from) * sizeof *p->score[i]);
    memset(p->ob[i], 0, (size_t)t->kv->dim_v * sizeof *p->ob[i]);
}

/* Weighted sum of values i0 .. of a block for queries from `q0`; the last rows see more of them. */
static void sum_values(const struct attn *t, struct piece *p, int64_t p0, int q0, int n)
{
    const struct op_kv *kv = t->kv;
    const struct cpu_kernels *kern = t->c->kern;
    int step = panel_step(kv->type_v), common = keys_seen(t, p, p0, q0);

    for (int i = 0; i < n; i += step) {
        int np = n - i < step ? n - i : step, all = common - i < np ? common - i : np;
        const float *v = decode_panel(t, p, p0 + i, np, true), *w[QUERIES];

        all = all > 0 ? all : 0;
        for (int j = q0; j < p->n; j++)
            w[j] = p->score[j] + i;
        kern->mix(p->ob + q0, w + q0, p->n - q0, v, kv->dim_v, all, kv->dim_v);
        for (int j = q0; j < p->n; j++) {
            int more = keys_seen(t, p, p0, j) - i;

            more = more < np ? more : np;
            w[j] += all;
            if (more > all)
                kern->mix(p->ob + j, w + j, 1, v + (int64_t)all * kv->dim_v, kv->dim_v, more - all, kv->dim_v);
        }
    }
    for (int j = q0; j < p->n; j++)
        if (!sees_none(t, p, p0, j))
            kern->axpy(p->o[j], p->ob[j], 1.0f, kv->dim_v);
}

static void attend_piece(const struct attn *t, struct piece *p, int n_rows)
{
    const struct op_kv *kv = t->kv;
    int64_t end = p->first + n_rows;

    for (int64_t p0 = 0; p0 < end && !cpu_stopped(t->c); p0 += OP_KV_PAGE) {
        int n = end - p0 < OP_KV_PAGE ? (int)(end - p0) : OP_KV_PAGE, step = panel_step(kv->type_k);
        int q0 = p0 > p->first ? (int)(p0 - p->first) * t->heads : 0; /* rows before see nothing of it */

        if (kv->window > 0 && p0 >= kv->always && p0 + OP_KV_PAGE <= p->first - kv->window)
            continue; /* no query sees any of it */
        for (int i = 0; i < n; i += step) {
            int np = n - i < step ? n - i : step;
            const float *k = decode_panel(t, p, p0 + i, np, false);

            t->c->kern->dots(p->score + q0, i, k, kv->dim_k, np, p->q + q0, p->n - q0, kv->dim_k);
        }
        for (int j = q0; j < p->n; j++)
            weigh_scores(t, p, p0, j, keys_seen(t, p, p0, j));
        sum_values(t, p, p0, q0, n);
    }
    for (int j = 0; j < p->n; j++)
        t->c->kern->scale(p->y[j], p->o[j], NULL, p->l[j] > 0 ? 1.0f / p->l[j] : 0, kv->dim_v);
}

/* Rows row .. row + n_rows - 1 of sequence s; part: which query heads of KV head h. */
static void start_piece(const struct attn *t, struct piece *p, const struct op_seq *s, int row, int n_rows, int h,
                        int part, float *buf)
{
    const struct op_kv *kv = t->kv;
    int64_t dim = kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v;

    *p = (struct piece){ .s = s, .h = h, .n = n_rows * t->heads, .first = s->pos + (row - s->row), .panel = buf };
    buf += CPU_PANEL * dim;
    for (int j = 0; j < p->n; j++, buf += OP_KV_PAGE + 2 * (int64_t)kv->dim_v) {
        int64_t head = (int64_t)h * t->group + part * t->heads + j % t->heads;

        p->q[j] = cpu_row(t->q, row + j / t->heads) + head * kv->dim_k;
        p->y[j] = cpu_row(t->y, row + j / t->heads) + head * kv->dim_v;
        p->score[j] = buf;
        p->o[j] = buf + OP_KV_PAGE;
        p->ob[j] = p->o[j] + kv->dim_v;
        p->m[j] = -INFINITY;
        p->l[j] = 0.0f;
        memset(p->o[j], 0, (size_t)kv->dim_v * sizeof *p->o[j]);
    }
}

static void attend_rows(const struct attn *t, const struct op_seq *s, int row, int h, int part, float *buf)
{
    int n_rows = s->row + s->n - row < t->rows ? s->row + s->n - row : t->rows;
    struct piece p;

    start_piece(t, &p, s, row, n_rows, h, part, buf);
    attend_piece(t, &p, n_rows);
}

/* Pieces by sequence, then block of rows, KV head and part of its group. */
static int64_t seq_pieces(const struct attn *t, const struct op_seq *s)
{
    return (int64_t)((s->n + t->rows - 1) / t->rows) * t->kv->n_head * t->parts;
}

static void attn_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct attn *t = ctx;
    const struct op_seq *s = t->r->seq;
    int64_t at = 0, each = (int64_t)t->kv->n_head * t->parts;

    for (int64_t i = begin; i < end; i++) {
        while (i - at >= seq_pieces(t, s))
            at += seq_pieces(t, s++);
        attend_rows(t, s, s->row + (int)((i - at) / each) * t->rows, (int)((i - at) % each / t->parts),
                    (int)((i - at) % t->parts), t->buf + worker * t->buf_floats);
    }
}

size_t cpu_attn_need(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, const struct op_rows *r)
{
    const struct cpu *c = ctx;

    (void)y;
    (void)q;
    (void)r;
    return (size_t)pool_size(c->pool) * (size_t)worker_floats(kv) * sizeof(float) + 64;
}

static struct attn start_attn(struct cpu *c, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                              const struct op_rows *r)
{
    struct attn t = { .c = c,
                      .y = y,
                      .q = q,
                      .kv = kv,
                      .scale = scale,
                      .r = r,
                      .group = (int)(q.ne[0] / kv->dim_k) / kv->n_head,
                      .buf = dev_scratch_bytes(c->dev, cpu_attn_need(c, y, q, kv, r)),
                      .buf_floats = worker_floats(kv) };

    t.parts = (t.group + QUERIES - 1) / QUERIES;
    while (t.group % t.parts != 0)
        t.parts++;
    t.heads = t.group / t.parts;
    t.rows = QUERIES / t.heads;
    return t;
}

void cpu_attn(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale, const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct attn t = start_attn(c, y, q, kv, scale, r);
    int64_t n = 0, keys = 0;

    for (int i = 0; i < r->n_seq; i++) {
        n += seq_pieces(&t, &r->seq[i]);
        keys += (r->seq[i].pos + r->seq[i].n) * r->seq[i].n;
    }
    int64_t cost = keys * t.group * kv->n_head * (kv->dim_k + kv->dim_v) / n;
    pool_for(c->pool, n, cpu_grain(c, n, cost, 1), attn_piece, &t);
    dev_release(c->dev, mark);
}

/* ---- over chosen blocks ---- */

unsigned char *cpu_index_at(const struct op_kv *kv, int slot, int64_t pos)
{
    int64_t before = kv->n_head * (quant_row_bytes(kv->type_k, kv->dim_k) + quant_row_bytes(kv->type_v, kv->dim_v));

    return kv->pages + (size_t)kv->page[slot][pos / OP_KV_PAGE] * kv->page_bytes + OP_KV_PAGE * before +
           pos % OP_KV_PAGE * quant_row_bytes(kv->type_x, kv->dim_x);
}

struct picked {
    struct attn t;
    const int32_t *pick;
    const struct op_index *a;
};

/* What a query takes, in ascending order: positions `at` .. `end` - 1, then the next block. */
struct walk {
    const int32_t *pick;
    int left, ratio;
    int64_t at, end, pos;
};

static bool next_block(struct walk *w)
{
    if (w->left < 0)
        return false;
    if (w->left-- == 0) { /* the unfinished block */
        w->at = (w->pos + 1) / w->ratio * w->ratio;
        w->end = w->pos + 1;
    } else {
        w->at = (int64_t)*w->pick++ * w->ratio;
        w->end = w->at + w->ratio;
    }
    return true;
}

/* Pieces of one page, of positions that follow each other. */
struct page_part {
    int n_parts, n;
    int64_t at[OP_KV_PAGE];
    int len[OP_KV_PAGE];
};

static void take_page(struct page_part *t, struct walk *w)
{
    int64_t page;

    t->n_parts = t->n = 0;
    while (w->at == w->end)
        if (!next_block(w))
            return;
    page = w->at / OP_KV_PAGE;
    do {
        int64_t left = (page + 1) * OP_KV_PAGE - w->at, n = w->end - w->at < left ? w->end - w->at : left;

        if (n > 0) {
            t->at[t->n_parts] = w->at;
            t->len[t->n_parts++] = (int)n;
            t->n += (int)n;
            w->at += n;
        }
    } while (w->at / OP_KV_PAGE == page && (w->at < w->end || (next_block(w) && w->at / OP_KV_PAGE == page)));
}

static void attend_picked(const struct picked *k, struct piece *p, struct walk w)
{
    const struct attn *t = &k->t;
    const struct op_kv *kv = t->kv;
    struct page_part part;

    for (take_page(&part, &w); part.n > 0 && !cpu_stopped(t->c); take_page(&part, &w)) {
        int at = 0, step = panel_step(kv->type_k);

        for (int i = 0; i < part.n_parts; i++)
            for (int j = 0, np; j < part.len[i]; j += np, at += np) {
                np = part.len[i] - j < step ? part.len[i] - j : step;
                t->c->kern->dots(p->score, at, decode_panel(t, p, part.at[i] + j, np, false), kv->dim_k, np, p->q, p->n,
                                 kv->dim_k);
            }
        for (int j = 0; j < p->n; j++)
            weigh_scores(t, p, 0, j, part.n);
        step = panel_step(kv->type_v);
        at = 0;
        for (int i = 0; i < part.n_parts; i++)
            for (int j = 0, np; j < part.len[i]; j += np, at += np) {
                const float *weight[QUERIES];

                np = part.len[i] - j < step ? part.len[i] - j : step;
                for (int q = 0; q < p->n; q++)
                    weight[q] = p->score[q] + at;
                t->c->kern->mix(p->ob, weight, p->n, decode_panel(t, p, part.at[i] + j, np, true), kv->dim_v, np,
                                kv->dim_v);
            }
        for (int j = 0; j < p->n; j++)
            t->c->kern->axpy(p->o[j], p->ob[j], 1.0f, kv->dim_v);
    }
    for (int j = 0; j < p->n; j++)
        t->c->kern->scale(p->y[j], p->o[j], NULL, p->l[j] > 0 ? 1.0f / p->l[j] : 0, kv->dim_v);
}

/* A piece: a row, a KV head and some of its query heads. */
static void picked_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct picked *k = ctx;
    const struct attn *t = &k->t;
    const struct op_seq *s = t->r->seq;
    int64_t each = (int64_t)t->kv->n_head * t->parts, at = 0;

    for (int64_t i = begin; i < end; i++) {
        while (i - at >= s->n * each)
            at += s++->n * each;
        int row = s->row + (int)((i - at) / each);
        int64_t pos = s->pos + (row - s->row);
        struct piece p;

        start_piece(t, &p, s, row, 1, (int)((i - at) % each / t->parts), (int)((i - at) % t->parts),
                    t->buf + worker * t->buf_floats);
        attend_picked(k, &p, (struct walk){ k->pick + (int64_t)row * k->a->most, k->a->most, k->a->ratio, 0, 0, pos });
    }
}

void cpu_attn_picked(void *ctx, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                     float scale, const struct op_index *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct picked k = { start_attn(c, y, q, kv, scale, r), pick, a };
    int64_t n = 0;

    for (int i = 0; i < r->n_seq; i++)
        n += (int64_t)r->seq[i].n * kv->n_head * k.t.parts;
    int64_t cost = (int64_t)(a->most + 1) * a->ratio * k.t.heads * (kv->dim_k + kv->dim_v);
    pool_for(c->pool, n, cpu_grain(c, n, cost, 1), picked_piece, &k);
    dev_release(c->dev, mark);
}
