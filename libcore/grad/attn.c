/* SPDX-License-Identifier: Apache-2.0 */
/* attn.c - gated softmax attention over each sequence: its weights are computed again in the backward pass from their
 * logarithmic sum, a row at a time (Dao et al. 2022). */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "grad/internal.h"

static int64_t n_q(const struct arch_plan *p)
{
    return (int64_t)p->attn.n_head * p->attn.dim_k;
}

static int64_t n_kv(const struct arch_plan *p)
{
    return (int64_t)p->attn.n_head_kv * p->attn.dim_k;
}

void grad_attn_take(struct pass *p, struct attn_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;

    a->qg = grad_take(&p->stack, p->n * 2 * n_q(pl));
    a->k = grad_take(&p->stack, p->n * n_kv(pl));
    a->v = grad_take(&p->stack, p->n * n_kv(pl));
    a->q_turned = grad_take(&p->stack, p->n * n_q(pl));
    a->k_turned = grad_take(&p->stack, p->n * n_kv(pl));
    a->peak = grad_take(&p->stack, p->n * pl->attn.n_head);
    a->o = grad_take(&p->stack, p->n * n_q(pl));
    a->gated = grad_take(&p->stack, p->n * n_q(pl));
}

/* Turns the heads of every row by its position, or back. */
struct turn {
    const struct pass *p;
    float *x;
    int n_head;
    float sign;
};

static void turn_rows(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct turn *t = ctx;
    const struct arch_attn_plan *a = &t->p->g->plan.attn;
    int half = a->n_rot / 2;

    (void)worker;
    for (int64_t s = begin; s < end; s++)
        for (int64_t r = t->p->first[s]; r < t->p->first[s + 1]; r++)
            for (int i = 0; i < half; i++) {
                float angle = (float)(r - t->p->first[s]) * t->p->g->rope_freq[i];
                float c = cosf(angle), d = t->sign * sinf(angle);

                for (int h = 0; h < t->n_head; h++) {
                    float *x = t->x + (r * t->n_head + h) * a->dim_k + i, u = x[0], v = x[half];

                    x[0] = u * c - v * d;
                    x[half] = u * d + v * c;
                }
            }
}

static void turn_heads(const struct pass *p, float *x, int n_head, float sign)
{
    pool_for(p->g->pool, p->b->n_seq, 1, turn_rows, &(struct turn){ p, x, n_head, sign });
}

struct heads;
typedef void heads_row(const struct heads *h, int64_t first, int64_t row, int head, float *s);
struct heads {
    const struct pass *p;
    const struct attn_acts *a;
    float *scores; /* [workers][longest] */
    int64_t longest;
    const float *d_o;
    float *dq, *dk, *dv;
    heads_row *row;
};

static int64_t longest_sequence(const struct pass *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->b->n_seq; i++)
        n = p->first[i + 1] - p->first[i] > n ? p->first[i + 1] - p->first[i] : n;
    return n;
}

/* Scores of a query with the keys up to it. */
static void score_keys(const struct heads *h, float *s, const float *q, const float *k, int64_t n)
{
    const struct arch_attn_plan *a = &h->p->g->plan.attn;

    for (int64_t j = 0; j < n; j++)
        s[j] = a->scale * h->p->loops->dot(q, k + j * n_kv(&h->p->g->plan), a->dim_k);
}

static void attend_row(const struct heads *h, int64_t first, int64_t row, int head, float *s)
{
    const struct arch_plan *p = &h->p->g->plan;
    int64_t d = p->attn.dim_k, n = row - first + 1, kv = head / (p->attn.n_head / p->attn.n_head_kv) * d;
    float *o = h->a->o + row * n_q(p) + head * d, top = -INFINITY, sum = 0.0f;

    score_keys(h, s, h->a->q_turned + row * n_q(p) + head * d, h->a->k_turned + first * n_kv(p) + kv, n);
    for (int64_t j = 0; j < n; j++)
        top = s[j] > top ? s[j] : top;
    for (int64_t j = 0; j < n; j++)
        sum += expf(s[j] - top);
    h->a->peak[row * p->attn.n_head + head] = top + logf(sum);
    memset(o, 0, (size_t)d * sizeof *o);
    for (int64_t j = 0; j < n; j++)
        h->p->loops->axpy(o, h->a->v + (first + j) * n_kv(p) + kv, expf(s[j] - top) / sum, d);
}

/* h->row for each row and head. Items: sequence and KV head, so that gradients of keys and values are one worker's. */
static void heads_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct heads *h = ctx;
    const struct arch_attn_plan *a = &h->p->g->plan.attn;
    int group = a->n_head / a->n_head_kv;
    float *s = h->scores + (int64_t)worker * h->longest;

    for (int64_t i = begin; i < end; i++) {
        int64_t seq = i / a->n_head_kv, first = h->p->first[seq];

        for (int64_t row = first; row < h->p->first[seq + 1]; row++)
            for (int g = 0; g < group; g++)
                h->row(h, first, row, (int)(i % a->n_head_kv) * group + g, s);
    }
}

struct gates {
    const struct pass *p;
    const struct attn_acts *a;
    float *dgated, *dqg;
};

static void gate_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct gates *g = ctx;
    int64_t d = g->p->g->plan.attn.dim_k;

    (void)worker;
    for (int64_t i = begin * d; i < end * d; i += d) {
        g->p->loops->sigmoid(g->a->gated + i, g->a->qg + 2 * i + d, d);
        for (int64_t j = 0; j < d; j++)
            g->a->gated[i + j] *= g->a->o[i + j];
    }
}

/* The query's half of each head. */
static void queries(const struct pass *p, float *q, const float *qg)
{
    int64_t d = p->g->plan.attn.dim_k;

    for (int64_t i = 0; i < p->n * p->g->plan.attn.n_head; i++)
        memcpy(q + i * d, qg + 2 * i * d, (size_t)d * sizeof *q);
}

static struct heads heads_of(struct pass *p, const struct attn_acts *a, heads_row *row)
{
    struct heads h = { .p = p, .a = a, .row = row, .longest = longest_sequence(p) };

    h.scores = grad_take(&p->stack, h.longest * pool_size(p->g->pool));
    return h;
}

void grad_host_attn(struct pass *p, const struct attn_at *w, const struct attn_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;
    int64_t d = pl->attn.dim_k, n_heads = p->n * pl->attn.n_head, n_heads_kv = p->n * pl->attn.n_head_kv;
    int64_t mark = p->stack.used;
    struct heads h = heads_of(p, a, attend_row);

    p->stack.used = mark;
    if (p->stack.base == NULL)
        return;
    queries(p, a->q_turned, a->qg);
    grad_host_norm(p, a->q_turned, a->q_turned, w->q_norm, d, n_heads);
    grad_host_norm(p, a->k_turned, a->k, w->k_norm, d, n_heads_kv);
    turn_heads(p, a->q_turned, pl->attn.n_head, 1.0f);
    turn_heads(p, a->k_turned, pl->attn.n_head_kv, 1.0f);
    pool_for(p->g->pool, (int64_t)p->b->n_seq * pl->attn.n_head_kv, 1, heads_piece, &h);
    pool_for(p->g->pool, n_heads, grad_grain(d * 8), gate_piece, &(struct gates){ p, a, NULL, NULL });
}

void grad_attn_forward(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *y, const float *x)
{
    const struct grad_ops *o = p->g->ops;
    const bool real = p->stack.base != NULL;

    if (real) {
        o->product(p, (struct at){ .matrix = w->q }, a->qg, x, p->n);
        o->product(p, (struct at){ .matrix = w->k }, a->k, x, p->n);
        o->product(p, (struct at){ .matrix = w->v }, a->v, x, p->n);
    }
    o->attn(p, w, a);
    if (real)
        o->product(p, (struct at){ .matrix = w->o }, y, a->gated, p->n);
}

static void attend_back(const struct heads *h, int64_t first, int64_t row, int head, float *s)
{
    const struct arch_plan *p = &h->p->g->plan;
    const struct grad_loops *l = h->p->loops;
    int64_t d = p->attn.dim_k, n = row - first + 1, kv = head / (p->attn.n_head / p->attn.n_head_kv) * d;
    int64_t at = row * n_q(p) + head * d, base = first * n_kv(p) + kv, step = n_kv(p);
    const float *q = h->a->q_turned + at, *d_o = h->d_o + at;
    float peak = h->a->peak[row * p->attn.n_head + head], mean = l->dot(d_o, h->a->o + at, d);

    score_keys(h, s, q, h->a->k_turned + base, n);
    for (int64_t j = 0; j < n; j++) {
        float weight = expf(s[j] - peak);
        float ds = p->attn.scale * weight * (l->dot(d_o, h->a->v + base + j * step, d) - mean);

        l->axpy(h->dv + base + j * step, d_o, weight, d);
        l->axpy(h->dk + base + j * step, q, ds, d);
        l->axpy(h->dq + at, h->a->k_turned + base + j * step, ds, d);
    }
}

/* dgated to d_o in its place, and the gates' part of dqg. */
static void gate_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct gates *g = ctx;
    int64_t d = g->p->g->plan.attn.dim_k;

    (void)worker;
    for (int64_t i = begin * d; i < end * d; i += d) {
        g->p->loops->sigmoid(g->dqg + 2 * i + d, g->a->qg + 2 * i + d, d);
        for (int64_t j = 0; j < d; j++) {
            const float open = g->dqg[2 * i + d + j];

            g->dqg[2 * i + d + j] = g->dgated[i + j] * g->a->o[i + j] * open * (1.0f - open);
            g->dgated[i + j] *= open;
        }
    }
}

/* dqg's queries: the norm's backward pass, for which a->qg has the queries at twice the pitch. */
static void query_norm_back(const struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dqg,
                            const float *dq, float *q, float *draw)
{
    int64_t d = p->g->plan.attn.dim_k, n = p->n * p->g->plan.attn.n_head;

    queries(p, q, a->qg);
    memset(draw, 0, (size_t)(n * d) * sizeof *draw);
    grad_host_norm_back(p, draw, dq, q, w->q_norm, d, n);
    for (int64_t i = 0; i < n; i++)
        memcpy(dqg + 2 * i * d, draw + i * d, (size_t)d * sizeof *draw);
}

void grad_host_attn_back(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                         float *dk, float *dv)
{
    const struct arch_plan *pl = &p->g->plan;
    int64_t d = pl->attn.dim_k, nq = p->n * n_q(pl), nkv = p->n * n_kv(pl), mark = p->stack.used;
    float *dq = grad_zeros(p, nq), *dk_turned = grad_zeros(p, nkv), *q = grad_take(&p->stack, nq);
    float *draw = grad_take(&p->stack, nq);
    struct heads h = heads_of(p, a, attend_back);

    p->stack.used = mark;
    if (p->stack.base == NULL)
        return;
    pool_for(p->g->pool, p->n * pl->attn.n_head, grad_grain(d * 8), gate_back_piece,
             &(struct gates){ p, a, dgated, dqg });
    h.d_o = dgated;
    h.dq = dq;
    h.dk = dk_turned;
    h.dv = dv;
    pool_for(p->g->pool, (int64_t)p->b->n_seq * pl->attn.n_head_kv, 1, heads_piece, &h);
    turn_heads(p, dq, pl->attn.n_head, -1.0f);
    turn_heads(p, dk_turned, pl->attn.n_head_kv, -1.0f);
    query_norm_back(p, w, a, dqg, dq, q, draw);
    grad_host_norm_back(p, dk, dk_turned, a->k, w->k_norm, d, p->n * pl->attn.n_head_kv);
}

void grad_attn_backward(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dx, const float *dy,
                        const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct grad_ops *o = p->g->ops;
    const bool real = p->stack.base != NULL;
    int64_t nq = p->n * n_q(pl), nkv = p->n * n_kv(pl), mark = p->stack.used;
    float *dgated = grad_zeros(p, nq), *dqg = grad_take(&p->stack, 2 * nq), *dk = grad_zeros(p, nkv);
    float *dv = grad_zeros(p, nkv);

    if (real)
        o->product_back(p, (struct at){ .matrix = w->o }, dgated, dy, a->gated, p->n);
    o->attn_back(p, w, a, dgated, dqg, dk, dv);
    if (real) {
        o->product_back(p, (struct at){ .matrix = w->q }, dx, dqg, x, p->n);
        o->product_back(p, (struct at){ .matrix = w->k }, dx, dk, x, p->n);
        o->product_back(p, (struct at){ .matrix = w->v }, dx, dv, x, p->n);
    }
    p->stack.used = mark;
}
