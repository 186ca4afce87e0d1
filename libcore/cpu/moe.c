/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c - mixture of experts: rows grouped by expert, each expert's weights decoded once.
 *
 * A pair is one use of an expert by a row: pair = row * n_used + k. Pairs are listed by expert, in
 * ascending order within one; the list decides only who shares a decoded weight row. */
#include <string.h>

#include "cpu/cpu.h"

struct moe {
    const struct cpu    *c;
    const struct op_moe *a;
    struct tensor        x, y;
    int32_t             *first;  /* [experts + 1] where each expert's pairs begin in the list */
    int32_t             *active; /* experts that have pairs */
    int32_t              n_active;
    const float        **in;     /* [pairs, listed] input row */
    float              **hid, **gate, **out; /* [pairs, listed] up or activated; gate; expert's output */
    float               *out_data; /* [pairs, by number][n_embd] */
    const struct quant_acts **in_up, **in_gate, **hid_acts; /* [pairs, listed] rounded; NULL: floats are taken */
    float               *buf;    /* decoded panels, one for each worker */
};

static const struct quant_acts *const *acts_at(const struct quant_acts *const *a, int32_t p)
{
    return a == NULL ? NULL : a + p;
}

static int64_t panel_floats(const struct op_moe *a)
{
    return CPU_PANEL * (a->up.ne[0] > a->down.ne[0] ? a->up.ne[0] : a->down.ne[0]);
}

static int piece_rows(int64_t n, int64_t r)
{
    return n - r < CPU_PANEL ? (int)(n - r) : CPU_PANEL;
}

static void up_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe *m = ctx;
    const struct op_moe *a = m->a;
    int64_t ff = a->up.ne[1], per = (ff + CPU_PANEL - 1) / CPU_PANEL;
    float *buf = m->buf + worker * panel_floats(a);

    for (int64_t i = begin; i < end; i++) {
        int32_t e = m->active[i / per], p0 = m->first[e], np = m->first[e + 1] - p0;
        int64_t r = i % per * CPU_PANEL;
        int n = piece_rows(ff, r);

        struct cpu_rows up = { m->hid + p0, m->in + p0, acts_at(m->in_up, p0), np };
        struct cpu_rows gate = { m->gate + p0, m->in + p0, acts_at(m->in_gate, p0), np };

        cpu_product(m->c, up, a->up, e, r, n, buf);
        if (a->gate.data != NULL)
            cpu_product(m->c, gate, a->gate, e, r, n, buf);
        for (int32_t p = p0; p < p0 + np; p++)
            cpu_act(m->c, m->hid[p] + r, a->gate.data != NULL ? m->gate[p] + r : NULL, m->hid[p] + r, n,
                    a->act);
    }
}

static void down_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe *m = ctx;
    int64_t n_embd = m->a->down.ne[1], per = (n_embd + CPU_PANEL - 1) / CPU_PANEL;
    float *buf = m->buf + worker * panel_floats(m->a);

    for (int64_t i = begin; i < end; i++) {
        int32_t e = m->active[i / per], p0 = m->first[e];
        int64_t r = i % per * CPU_PANEL;
        struct cpu_rows v = { m->out + p0, (const float *const *)(m->hid + p0), acts_at(m->hid_acts, p0),
                              m->first[e + 1] - p0 };

        cpu_product(m->c, v, m->a->down, e, r, piece_rows(n_embd, r), buf);
    }
}

static void sum_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe *m = ctx;
    int64_t n = m->y.ne[0];

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *weight = cpu_row(m->a->weight, r), *out = m->out_data + r * m->a->n_used * n;
        float *y = cpu_row(m->y, r);

        memset(y, 0, (size_t)n * sizeof *y);
        m->c->kern->mix(&y, &weight, 1, out, n, m->a->n_used, n);
    }
}

/* Lists the pairs by expert: counting sort. */
static void list_pairs(struct moe *m, float *hid, float *gate)
{
    const struct op_moe *a = m->a;
    int64_t pairs = m->x.ne[1] * a->n_used, ff = a->up.ne[1];
    int32_t n_expert = (int32_t)a->up.ne[2];

    memset(m->first, 0, ((size_t)n_expert + 1) * sizeof *m->first);
    for (int64_t p = 0; p < pairs; p++)
        m->first[a->expert[p] + 1]++;
    for (int32_t e = 0; e < n_expert; e++) {
        if (m->first[e + 1] > 0)
            m->active[m->n_active++] = e;
        m->first[e + 1] += m->first[e];
    }
    for (int64_t p = 0; p < pairs; p++) {
        int32_t at = m->first[a->expert[p]]++;

        m->in[at] = cpu_row(m->x, p / a->n_used);
        m->hid[at] = hid + at * ff;
        m->gate[at] = gate + at * ff;
        m->out[at] = m->out_data + p * m->y.ne[0];
    }
    for (int32_t e = n_expert; e > 0; e--)
        m->first[e] = m->first[e - 1];
    m->first[0] = 0;
}

/* The rows of x rounded for weights of this type, for each pair; NULL where those take floats. */
static const struct quant_acts **pair_acts(const struct moe *m, int type)
{
    const struct cpu *c = m->c;
    int64_t n = m->x.ne[1], pairs = n * m->a->n_used;
    const float **rows = dev_scratch_bytes(c->dev, (size_t)n * sizeof *rows);
    const struct quant_acts **out = dev_scratch_bytes(c->dev, (size_t)pairs * sizeof *out);

    for (int64_t r = 0; r < n; r++)
        rows[r] = cpu_row(m->x, r);
    const struct quant_acts **acts = cpu_acts(c, type, rows, n, m->x.ne[0]);
    for (int64_t p = 0; acts != NULL && p < pairs; p++)
        out[p] = acts[(m->in[p] - (const float *)m->x.data) / m->x.stride];
    return acts == NULL ? NULL : out;
}

static size_t pair_acts_need(const struct cpu *c, int type, int64_t n, int64_t pairs, int64_t k)
{
    return (size_t)n * sizeof(float *) + (size_t)pairs * sizeof(void *) + 128 +
           cpu_acts_need(c, type, n, k);
}

size_t cpu_moe_need(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    const struct cpu *c = ctx;
    size_t pairs = (size_t)(x.ne[1] * a->n_used), f = sizeof(float);

    return 2 * ((size_t)a->up.ne[2] + 1) * sizeof(int32_t) + 4 * pairs * sizeof(void *) +
           pairs * (2 * (size_t)a->up.ne[1] + (size_t)y.ne[0]) * f +
           (size_t)pool_size(c->pool) * (size_t)panel_floats(a) * f + (size_t)(16 * 64) +
           pair_acts_need(c, a->up.type, x.ne[1], (int64_t)pairs, x.ne[0]) +
           pair_acts_need(c, a->gate.type, x.ne[1], (int64_t)pairs, x.ne[0]) +
           cpu_acts_need(c, a->down.type, (int64_t)pairs, a->down.ne[0]);
}

void cpu_moe(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    struct cpu *c = ctx;
    struct dev *d = c->dev;
    size_t mark = dev_mark(d), pairs = (size_t)(x.ne[1] * a->n_used), ff = (size_t)a->up.ne[1];
    size_t n_expert = (size_t)a->up.ne[2], f = sizeof(float);
    struct moe m = {
        .c = c, .a = a, .x = x, .y = y,
        .first = dev_scratch_bytes(d, (n_expert + 1) * sizeof(int32_t)),
        .active = dev_scratch_bytes(d, n_expert * sizeof(int32_t)),
        .in = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .hid = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .gate = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .out = dev_scratch_bytes(d, pairs * sizeof(float *)),
        .out_data = dev_scratch_bytes(d, pairs * (size_t)y.ne[0] * f),
        .buf = dev_scratch_bytes(d, (size_t)pool_size(c->pool) * (size_t)panel_floats(a) * f),
    };
    float *hid = dev_scratch_bytes(d, pairs * ff * f), *gate = dev_scratch_bytes(d, pairs * ff * f);

    list_pairs(&m, hid, gate);
    m.in_up = pair_acts(&m, a->up.type);
    if (a->gate.data != NULL)
        m.in_gate = m.in_up != NULL && quant_types[a->gate.type]->ints != NULL ? m.in_up
                  : pair_acts(&m, a->gate.type);
    int64_t per_active = (int64_t)pairs / m.n_active + 1;
    int64_t up = m.n_active * (((int64_t)ff + CPU_PANEL - 1) / CPU_PANEL);
    int64_t down = m.n_active * ((y.ne[0] + CPU_PANEL - 1) / CPU_PANEL);
    pool_for(c->pool, up, cpu_grain(c, up, 2 * CPU_PANEL * x.ne[0] * per_active, 1), up_piece, &m);
    m.hid_acts = cpu_acts(c, a->down.type, (const float *const *)m.hid, (int64_t)pairs, (int64_t)ff);
    pool_for(c->pool, down, cpu_grain(c, down, CPU_PANEL * (int64_t)ff * per_active, 1), down_piece, &m);
    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], y.ne[0] * a->n_used, 1), sum_piece, &m);
    dev_release(d, mark);
}
