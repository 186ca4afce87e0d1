/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c - mixture of experts: rows grouped by expert, each expert's weights decoded once.
 *
 * A pair is one use of an expert by a row: pair = row * n_used + k. Pairs are listed by the expert's matrix, in
 * ascending order within one; the list decides only who shares a decoded weight row.
 *
 * First and second products are one job of the pool: a thread that finds no more rows of the first goes on with the
 * second, of which an expert's begin when its first ones are done. That ends, as whoever takes rows computes them at
 * once, and nobody waits before all rows of the first products are taken. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "cpu/cache.h"
#include "cpu/cpu.h"
#include "cpu/share.h"

struct moe {
    const struct cpu *c;
    const struct op_moe *a;
    struct tensor x, pair_out; /* [pairs, by number] */
    int32_t *first;            /* [experts + 1] where each expert's pairs begin in the list */
    int32_t *active;           /* experts that have pairs */
    int32_t n_active;
    int64_t n_listed;
    const float **in;                              /* [pairs, listed] input row */
    float **hid, **gate, **out;                    /* [pairs, listed] up or activated; gate; expert's output */
    const struct cpu_act_block **in_up, **in_gate; /* [pairs, listed] rounded; NULL: floats are taken */
    struct cpu_act_block **hid_acts;
    float *buf; /* decoded panels, one for each worker */
    struct cpu_share up, down;
    atomic_int *left; /* [active] rows of the first products that are not done; DONE: the second may begin */
    int64_t *pair;    /* [pairs, listed] its number */
    float *h;         /* [pairs, listed][3][adapters' floats] a x of gate, up and down */
    const void **at;  /* [active][CPU_PARTS] where their matrices are; NULL: in the tensors */
};
enum { DONE = -1 };

static const struct cpu_act_block *const *acts_at(const struct cpu_act_block *const *a, int32_t p)
{
    return a == NULL ? NULL : a + p;
}

static int64_t panel_floats(const struct cpu *c, const struct op_moe *a)
{
    return cpu_panel_floats(c, a->up.ne[0] > a->down.ne[0] ? a->up.ne[0] : a->down.ne[0]);
}

enum { OF_GATE, OF_UP, OF_DOWN };

/* The matrices of all experts, or that of the `of`-th active one alone, and its number there. */
static struct tensor matrices(const struct moe *m, int which, int32_t of, int32_t *number)
{
    struct tensor w = which == OF_GATE ? m->a->gate : which == OF_UP ? m->a->up : m->a->down;

    *number = m->at == NULL ? m->active[of] : 0;
    if (m->at != NULL && w.data != NULL)
        w.data = (void *)(uintptr_t)m->at[CPU_PARTS * of + which]; /* never written */
    return w;
}

/* Where rows of an active expert's matrix begin that are multiplied next; p NULL: none. */
static const char *rows_at(const struct moe *m, int which, const struct cpu_piece *p)
{
    struct tensor w;
    int32_t number;

    if (p == NULL)
        return NULL;
    w = matrices(m, which, p->of, &number);
    if (w.data == NULL)
        return NULL;
    return (const char *)w.data + (number * w.pitch + p->row) * quant_row_bytes(w.type, w.ne[0]);
}

static void product(const struct moe *m, struct cpu_rows v, int which, const struct cpu_piece *at, float *buf)
{
    int32_t number;
    const struct tensor w = matrices(m, which, at->of, &number);

    cpu_product(m->c, v, w, number, at->row, at->n, buf);
}

/* ---- adapters ---- */

static const struct op_adapt *adapt_of(const struct moe *m, int which)
{
    const struct op_moe_adapt *a = m->a->adapt;
    const struct op_adapt *all[3];

    if (a == NULL)
        return NULL;
    all[OF_GATE] = &a->gate;
    all[OF_UP] = &a->up;
    all[OF_DOWN] = &a->down;
    return all[which]->pair != NULL ? all[which] : NULL;
}

static float *h_of(const struct moe *m, int32_t p, int which)
{
    return m->h + ((int64_t)p * 3 + which) * m->a->adapt->terms->floats;
}

/* What adapters make of the input x of a listed pair. */
static void adapt_in(const struct moe *m, int32_t p, int which, const float *x, int64_t n_in)
{
    const struct op_adapt *a = adapt_of(m, which);
    const struct op_terms *t = m->a->adapt->terms;
    const int64_t row = m->pair[p] / m->a->n_used;
    float *h = h_of(m, p, which);

    if (a != NULL)
        cpu_adapt_in(m->c, a, t, row, m->a->expert[m->pair[p]], (struct cpu_adapt_rows){ &h, NULL, &x, 1 }, n_in, 0,
                     t->floats);
}

/* And what that adds to its outputs at .. at + n - 1. */
static void adapt_out(const struct moe *m, int32_t p, int which, float *y, int64_t at, int64_t n)
{
    const struct op_adapt *a = adapt_of(m, which);
    float *h;

    if (a == NULL)
        return;
    h = h_of(m, p, which);
    cpu_adapt_out(m->c, a, m->a->adapt->terms, m->pair[p] / m->a->n_used, m->a->expert[m->pair[p]],
                  (struct cpu_adapt_rows){ &h, &y, NULL, 1 }, at, n);
}

static void adapt_in_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe *m = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        adapt_in(m, (int32_t)(i / 2), i % 2 == 0 ? OF_GATE : OF_UP, m->in[i / 2], m->x.ne[0]);
}

static void up_piece(const struct moe *m, const struct cpu_piece *at, const struct cpu_piece *next, float *buf)
{
    const struct op_moe *a = m->a;
    int32_t e = m->active[at->of], p0 = m->first[e], np = m->first[e + 1] - p0;
    struct cpu_bytes_kept kept = { 0 };
    struct cpu_rows up = { m->hid + p0, m->in + p0, acts_at(m->in_up, p0), np, rows_at(m, OF_GATE, at), &kept };
    struct cpu_rows gate = { m->gate + p0, m->in + p0, acts_at(m->in_gate, p0), np, rows_at(m, OF_UP, next), &kept };

    if (a->gate.data == NULL)
        up.next = rows_at(m, OF_UP, next);
    product(m, up, OF_UP, at, buf);
    if (a->gate.data != NULL)
        product(m, gate, OF_GATE, at, buf);
    for (int32_t p = p0; p < p0 + np && a->adapt != NULL; p++) {
        adapt_out(m, p, OF_UP, m->hid[p], at->row, at->n);
        adapt_out(m, p, OF_GATE, m->gate[p], at->row, at->n);
    }
    for (int32_t p = p0; p < p0 + np; p++)
        cpu_act(m->c, m->hid[p] + at->row, a->gate.data != NULL ? m->gate[p] + at->row : NULL, m->hid[p] + at->row,
                at->n, a->act);
    if (atomic_fetch_sub(&m->left[at->of], (int)at->n) > at->n)
        return;
    for (int32_t p = p0; p < p0 + np && m->hid_acts != NULL; p++) /* the last to come rounds them */
        cpu_round(m->c, m->hid_acts[p], m->hid[p], a->down.ne[0], a->down.type);
    for (int32_t p = p0; p < p0 + np && a->adapt != NULL; p++)
        adapt_in(m, p, OF_DOWN, m->hid[p], a->down.ne[0]);
    atomic_store(&m->left[at->of], DONE);
}

static void down_piece(const struct moe *m, const struct cpu_piece *at, const struct cpu_piece *next, float *buf)
{
    int32_t e = m->active[at->of], p0 = m->first[e];
    const struct cpu_act_block *const *acts = (const struct cpu_act_block *const *)m->hid_acts;
    struct cpu_rows v = { m->out + p0,          (const float *const *)(m->hid + p0), acts_at(acts, p0),
                          m->first[e + 1] - p0, rows_at(m, OF_DOWN, next),           NULL };

    for (int i = 0; atomic_load(&m->left[at->of]) != DONE; i++)
        if (i > 1000)
            sched_yield(); /* who computes it may need the processor */
    product(m, v, OF_DOWN, at, buf);
    for (int32_t p = p0; p < p0 + v.n && m->a->adapt != NULL; p++)
        adapt_out(m, p, OF_DOWN, m->out[p], at->row, at->n);
}

/* All that is left, by one worker. */
static void work(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe *m = ctx;
    float *buf = m->buf + worker * panel_floats(m->c, m->a);
    struct cpu_piece at, next;

    (void)begin;
    (void)end;
    for (at.step = 0; cpu_take(&m->up, worker, &at);)
        up_piece(m, &at, cpu_after(&m->up, worker, &at, &next) ? &next : NULL, buf);
    for (at.step = 0; cpu_take(&m->down, worker, &at);)
        down_piece(m, &at, cpu_after(&m->down, worker, &at, &next) ? &next : NULL, buf);
}

/* The matrix of a pair's expert; -1: it is not here. */
static int32_t matrix_of(const struct op_moe *a, int64_t pair)
{
    return a->slot == NULL ? a->expert[pair] : a->slot[a->expert[pair]];
}

/* Lists the pairs by expert: counting sort. */
static void list_pairs(struct moe *m, float *hid, float *gate)
{
    const struct op_moe *a = m->a;
    int64_t pairs = m->x.ne[1] * a->n_used, ff = a->up.ne[1];
    int32_t n_expert = (int32_t)a->up.ne[2];

    memset(m->first, 0, ((size_t)n_expert + 1) * sizeof *m->first);
    for (int64_t p = 0; p < pairs; p++)
        if (matrix_of(a, p) >= 0)
            m->first[matrix_of(a, p) + 1]++;
    for (int32_t e = 0; e < n_expert; e++) {
        if (m->first[e + 1] > 0)
            m->active[m->n_active++] = e;
        m->first[e + 1] += m->first[e];
    }
    m->n_listed = m->first[n_expert];
    for (int64_t p = 0; p < pairs; p++) {
        if (matrix_of(a, p) < 0)
            continue;
        int32_t at = m->first[matrix_of(a, p)]++;

        m->in[at] = cpu_row(m->x, p / a->n_used);
        m->hid[at] = hid + at * ff;
        m->gate[at] = gate + at * ff;
        m->out[at] = cpu_row(m->pair_out, p);
        m->pair[at] = p;
    }
    for (int32_t e = n_expert; e > 0; e--)
        m->first[e] = m->first[e - 1];
    m->first[0] = 0;
}

/* The row of x that a listed pair takes. */
static int64_t row_of(const struct moe *m, int32_t p)
{
    return (m->in[p] - (const float *)m->x.data) / m->x.stride;
}

/* The rows of x that pairs take, rounded for weights of this type, for each pair; NULL where those take floats. */
static const struct cpu_act_block **pair_acts(const struct moe *m, int type)
{
    const struct cpu *c = m->c;
    int64_t n = m->x.ne[1], pairs = n * m->a->n_used, used = 0;
    const float **rows = dev_scratch_bytes(c->dev, (size_t)n * sizeof *rows);
    int32_t *at = dev_scratch_bytes(c->dev, (size_t)n * sizeof *at); /* where a row is among those; -1: not yet */
    const struct cpu_act_block **out = dev_scratch_bytes(c->dev, (size_t)pairs * sizeof *out);

    for (int64_t r = 0; r < n; r++)
        at[r] = -1;
    for (int32_t p = 0; p < m->n_listed; p++)
        if (at[row_of(m, p)] < 0) {
            at[row_of(m, p)] = (int32_t)used;
            rows[used++] = m->in[p];
        }
    const struct cpu_act_block **acts = cpu_acts(c, type, rows, used, m->x.ne[0]);
    for (int32_t p = 0; acts != NULL && p < m->n_listed; p++)
        out[p] = acts[at[row_of(m, p)]];
    return acts == NULL ? NULL : out;
}

static size_t pair_acts_need(const struct cpu *c, int type, int64_t n, int64_t pairs, int64_t k)
{
    return (size_t)n * (sizeof(float *) + sizeof(int32_t)) + (size_t)pairs * sizeof(void *) + 192 +
           cpu_acts_need(c, type, n, k);
}

static size_t h_bytes(const struct op_moe *a, size_t pairs)
{
    return a->adapt == NULL ? 0 : pairs * 3 * (size_t)a->adapt->terms->floats * sizeof(float);
}

static size_t cached_need(const struct op_moe *a)
{
    const size_t each = sizeof(struct cpu_use) + sizeof(int32_t) + CPU_PARTS * sizeof(void *);

    return a->cached == 0 ? 0 : (size_t)a->up.ne[2] * each + (size_t)(3 * 64);
}

size_t cpu_moe_need(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    const struct cpu *c = ctx;
    size_t pairs = (size_t)(x.ne[1] * a->n_used), f = sizeof(float);

    return 2 * ((size_t)a->up.ne[2] + 1) * sizeof(int32_t) + 4 * pairs * sizeof(void *) + pairs * sizeof(int64_t) +
           h_bytes(a, pairs) + pairs * (2 * (size_t)a->up.ne[1] + (size_t)y.ne[0]) * f +
           (size_t)pool_size(c->pool) * (size_t)panel_floats(c, a) * f + 2 * cpu_share_bytes(c) +
           (size_t)a->up.ne[2] * sizeof(atomic_int) + (size_t)(18 * 64) + cached_need(a) +
           pair_acts_need(c, a->up.type, x.ne[1], (int64_t)pairs, x.ne[0]) +
           pair_acts_need(c, a->gate.type, x.ne[1], (int64_t)pairs, x.ne[0]) +
           cpu_acts_need(c, a->down.type, (int64_t)pairs, a->down.ne[0]);
}

/* Shares the rows of the active experts out and lets all threads that are worth it compute. */
static void run_experts(struct moe *m)
{
    const struct cpu *c = m->c;
    int64_t ff = m->a->up.ne[1], n_embd = m->a->down.ne[1], workers = pool_size(c->pool), pairs = 0;
    size_t mark = dev_mark(c->dev);

    cpu_share_out(c, &m->up, ff, m->n_active);
    cpu_share_out(c, &m->down, n_embd, m->n_active);
    m->left = dev_scratch_bytes(c->dev, (size_t)m->n_active * sizeof *m->left);
    for (int32_t i = 0; i < m->n_active; i++) {
        atomic_init(&m->left[i], (int)ff);
        pairs += m->first[m->active[i] + 1] - m->first[m->active[i]];
    }
    int64_t products = pairs * (ff * m->a->up.ne[0] * (m->a->gate.data != NULL ? 2 : 1) + n_embd * ff);

    pool_for(c->pool, workers, cpu_grain(c, workers, 2 * products / workers, 1), work, m);
    dev_release(c->dev, mark);
}

/* What was not computed is zeros. */
static void clear_rest(struct moe *m, const struct cpu_uses *u)
{
    for (int32_t i = 0; i < u->n; i++)
        for (int32_t p = m->first[u->use[i].expert]; p < m->first[u->use[i].expert + 1]; p++)
            if (u->use[i].state != CPU_USE_DONE)
                memset(m->out[p], 0, (size_t)m->a->down.ne[1] * sizeof *m->out[p]);
}

/* The same with a cache: those that are in memory first, then the others as they come. */
static void run_cached(struct moe *m)
{
    struct cpu *c = (struct cpu *)(uintptr_t)m->c;
    const int32_t n = m->n_active;
    struct cpu_uses u = { .cache = c->cache,
                          .layer = m->a->cached,
                          .n = n,
                          .left = n,
                          .use = dev_scratch_bytes(c->dev, (size_t)n * sizeof *u.use) };
    int32_t *ready = dev_scratch_bytes(c->dev, (size_t)n * sizeof *ready);

    m->at = dev_scratch_bytes(c->dev, (size_t)n * CPU_PARTS * sizeof *m->at);
    for (int32_t i = 0; i < n; i++)
        u.use[i] = (struct cpu_use){ .expert = m->active[i], .state = CPU_USE_WANTED };
    if (cpu_cache_use(&u, &c->failed) == ERR_OK) {
        while ((m->n_active = cpu_cache_some(&u, ready, m->at, c, &c->failed)) > 0) {
            for (int32_t i = 0; i < m->n_active; i++)
                m->active[i] = u.use[ready[i]].expert;
            run_experts(m);
        }
        cpu_cache_used(&u);
    }
    if (u.left > 0 || c->failed.code != ERR_OK)
        clear_rest(m, &u);
    if (c->failed.code != ERR_OK)
        c->stopped = true;
}

void cpu_moe_pairs(void *ctx, struct tensor out, struct tensor x, const struct op_moe *a)
{
    struct cpu *c = ctx;
    struct dev *d = c->dev;
    size_t mark = dev_mark(d), pairs = (size_t)(x.ne[1] * a->n_used), ff = (size_t)a->up.ne[1];
    size_t n_expert = (size_t)a->up.ne[2], f = sizeof(float);
    struct moe m = {
        .c = c,
        .a = a,
        .x = x,
        .pair_out = out,
        .first = dev_scratch_bytes(d, (n_expert + 1) * sizeof(int32_t)),
        .active = dev_scratch_bytes(d, n_expert * sizeof(int32_t)),
        .in = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .hid = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .gate = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .out = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .pair = dev_scratch_bytes(d, pairs * sizeof(int64_t)),
        .h = dev_scratch_bytes(d, h_bytes(a, pairs)),
        .buf = dev_scratch_bytes(d, (size_t)pool_size(c->pool) * (size_t)panel_floats(c, a) * f),
    };
    float *hid = dev_scratch_bytes(d, pairs * ff * f), *gate = dev_scratch_bytes(d, pairs * ff * f);

    list_pairs(&m, hid, gate);
    if (m.n_listed > 0) {
        m.in_up = pair_acts(&m, a->up.type);
        if (a->gate.data != NULL)
            m.in_gate = cpu_same_acts(c, a->up.type, a->gate.type) ? m.in_up : pair_acts(&m, a->gate.type);
        m.hid_acts = cpu_acts_room(c, a->down.type, m.n_listed, a->up.ne[1]);
        if (a->adapt != NULL)
            pool_for(c->pool, 2 * m.n_listed, cpu_grain(c, 2 * m.n_listed, 2 * x.ne[0] * a->adapt->terms->floats, 1),
                     adapt_in_piece, &m);
        (a->cached > 0 ? run_cached : run_experts)(&m);
    }
    dev_release(d, mark);
}

struct sum {
    const struct cpu *c;
    struct tensor y, out, weight;
};

static void sum_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct sum *s = ctx;
    int64_t n = s->y.ne[0], n_used = s->weight.ne[0];

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *weight = cpu_row(s->weight, r);
        float *y = cpu_row(s->y, r);

        memset(y, 0, (size_t)n * sizeof *y);
        s->c->kern->mix(&y, &weight, 1, cpu_row(s->out, r * n_used), s->out.stride, (int)n_used, n);
    }
}

void cpu_moe_sum(void *ctx, struct tensor y, struct tensor out, struct tensor weight)
{
    struct cpu *c = ctx;
    struct sum s = { c, y, out, weight };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0] * weight.ne[0], 1), sum_piece, &s);
}

void cpu_moe(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct tensor out = dev_scratch(c->dev, y.ne[0], x.ne[1] * a->n_used);

    cpu_moe_pairs(c, out, x, a);
    cpu_moe_sum(c, y, out, a->weight);
    dev_release(c->dev, mark);
}

/* Memory is shared and calls are in order: there is nothing to hand out. */
void cpu_hand_out(void *ctx, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    (void)ctx;
    (void)x;
    (void)expert;
    (void)h;
}

void cpu_hand_in(void *ctx, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    struct op_moe a = h->moe;

    (void)ctx;
    a.expert = expert;
    op_moe_pairs(h->dev, out, x, &a);
}

void cpu_tally(void *ctx, uint64_t *count, int n_expert, const int32_t *expert, int64_t n)
{
    (void)ctx;
    (void)n_expert;
    for (int64_t i = 0; i < n; i++)
        count[expert[i]]++;
}
