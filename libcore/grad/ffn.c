/* SPDX-License-Identifier: Apache-2.0 */
/* ffn.c - feed-forwards: gated, dense or of experts. Pairs of a row and an expert that it uses are sorted by expert. */
#include <string.h>

#include "base/pool.h"
#include "grad/internal.h"

struct glu_job {
    const struct grad_loops *loops;
    const struct glu_acts *a;
    const float *dh;
};

static void glu_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct glu_job *j = ctx;

    (void)worker;
    j->loops->sigmoid(j->a->h + begin, j->a->gate + begin, end - begin);
    for (int64_t i = begin; i < end; i++)
        j->a->h[i] *= j->a->gate[i] * j->a->up[i];
}

static void glu_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct glu_job *j = ctx;

    (void)worker;
    j->loops->sigmoid(j->a->h + begin, j->a->gate + begin, end - begin);
    for (int64_t i = begin; i < end; i++) {
        float g = j->a->gate[i], s = j->a->h[i];

        j->a->gate[i] = j->dh[i] * j->a->up[i] * s * (1.0f + g * (1.0f - s));
        j->a->up[i] = j->dh[i] * g * s;
    }
}

void grad_host_glu(const struct pass *p, const struct glu_acts *a, int64_t n)
{
    pool_for(p->g->pool, n, grad_grain(8), glu_piece, &(struct glu_job){ .loops = p->loops, .a = a });
}

void grad_host_glu_back(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n)
{
    pool_for(p->g->pool, n, grad_grain(16), glu_back_piece, &(struct glu_job){ p->loops, a, dh });
}

void grad_glu_take(struct pass *p, struct glu_acts *a, int64_t n, int64_t n_ff)
{
    a->gate = grad_take(&p->stack, n * n_ff);
    a->up = grad_take(&p->stack, n * n_ff);
    a->h = grad_take(&p->stack, n * n_ff);
    a->out = grad_take(&p->stack, n * p->g->plan.n_embd);
}

static struct at with(struct at at, int matrix)
{
    at.matrix = matrix;
    return at;
}

void grad_glu_forward(struct pass *p, const struct glu_at *w, struct at at, const struct glu_acts *a, const float *x,
                      int64_t n)
{
    const struct grad_ops *o = p->g->ops;

    if (p->stack.base == NULL)
        return;
    o->product(p, with(at, w->gate), a->gate, x, n);
    o->product(p, with(at, w->up), a->up, x, n);
    o->glu(p, a, n * p->g->mat[w->up].n_out);
    o->product(p, with(at, w->down), a->out, a->h, n);
}

void grad_glu_backward(struct pass *p, const struct glu_at *w, struct at at, const struct glu_acts *a, float *dx,
                       const float *dout, const float *x, int64_t n)
{
    const struct grad_ops *o = p->g->ops;
    int64_t n_ff = p->g->mat[w->up].n_out, mark = p->stack.used;
    float *dh = grad_zeros(p, n * n_ff);

    if (p->stack.base != NULL) {
        o->product_back(p, with(at, w->down), dh, dout, a->h, n);
        o->glu_back(p, a, dh, n * n_ff);
        o->product_back(p, with(at, w->gate), dx, a->gate, x, n);
        o->product_back(p, with(at, w->up), dx, a->up, x, n);
    }
    p->stack.used = mark;
}

void grad_moe_take(struct pass *p, struct moe_acts *a)
{
    const struct arch_moe_plan *m = &p->g->plan.moe;
    struct stack *s = &p->stack;
    int64_t n = p->n, pairs = n * m->n_used;

    a->logits = grad_take(s, n * m->n_expert);
    a->prob = grad_take(s, n * m->n_expert);
    a->weight = grad_take(s, pairs);
    a->expert = grad_take_ints(s, pairs);
    a->row = grad_take_ints(s, pairs);
    a->place = grad_take_ints(s, pairs);
    a->first = grad_take_longs(s, m->n_expert + 1);
    a->x = grad_take(s, pairs * p->g->plan.n_embd);
    grad_glu_take(p, &a->routed, pairs, m->n_ff);
    if (m->n_ff_shared == 0)
        return;
    grad_glu_take(p, &a->shared, n, m->n_ff_shared);
    a->open = grad_take(s, n);
}

struct moe_job {
    const struct pass *p;
    const struct moe_acts *a;
    float *y; /* forward */
    const float *dy, *dpair;
    const struct moe_grads *d; /* backward */
    float *dx;
};

static void best_experts(const float *logits, int32_t *expert, int n_expert, int n_used)
{
    for (int k = 0; k < n_used; k++) {
        int top = -1;

        for (int e = 0; e < n_expert; e++) {
            bool taken = false;

            for (int i = 0; i < k; i++)
                taken |= expert[i] == e;
            /* what is not a number is greater than nothing: any expert will do */
            if (!taken && (top < 0 || logits[e] > logits[top]))
                top = e;
        }
        expert[k] = top;
    }
}

static void route_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe_job *j = ctx;
    const struct arch_moe_plan *m = &j->p->g->plan.moe;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *l = j->a->logits + r * m->n_expert;
        float *prob = j->a->prob + r * m->n_expert, *weight = j->a->weight + r * m->n_used, top = l[0], sum = 0.0f;
        int32_t *expert = j->a->expert + r * m->n_used;

        for (int e = 1; e < m->n_expert; e++)
            top = l[e] > top ? l[e] : top;
        for (int e = 0; e < m->n_expert; e++)
            sum += prob[e] = expf(l[e] - top);
        for (int e = 0; e < m->n_expert; e++)
            prob[e] /= sum;
        best_experts(l, expert, m->n_expert, m->n_used);
        sum = 0.0f;
        for (int k = 0; k < m->n_used; k++)
            sum += weight[k] = prob[expert[k]];
        for (int k = 0; k < m->n_used; k++)
            weight[k] *= m->scale / (!m->normalise ? 1.0f : sum > 0x1p-14f ? sum : 0x1p-14f);
    }
}

/* Pairs by expert, rows ascending. */
static void sort_pairs(const struct pass *p, const struct moe_acts *a)
{
    const struct arch_moe_plan *m = &p->g->plan.moe;
    int64_t pairs = p->n * m->n_used, at = 0;

    memset(a->first, 0, (size_t)(m->n_expert + 1) * sizeof *a->first);
    for (int64_t i = 0; i < pairs; i++)
        a->first[a->expert[i] + 1]++;
    for (int e = 0; e < m->n_expert; e++)
        a->first[e + 1] += a->first[e];
    for (int64_t i = 0; i < pairs; i++) {
        at = a->first[a->expert[i]]++;
        a->row[at] = (int32_t)(i / m->n_used);
        a->place[i] = (int32_t)at;
    }
    for (int e = m->n_expert; e > 0; e--)
        a->first[e] = a->first[e - 1];
    a->first[0] = 0;
}

static void sum_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe_job *j = ctx;
    const struct arch_moe_plan *m = &j->p->g->plan.moe;
    int64_t d = j->p->g->plan.n_embd;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *y = j->y + r * d;

        memset(y, 0, (size_t)d * sizeof *y);
        for (int64_t i = r * m->n_used; i < (r + 1) * m->n_used; i++)
            j->p->loops->axpy(y, j->a->routed.out + j->a->place[i] * d, j->a->weight[i], d);
        if (m->n_ff_shared > 0)
            j->p->loops->axpy(y, j->a->shared.out + r * d, m->shared_gate ? grad_sigmoid(j->a->open[r]) : 1.0f, d);
    }
}

static int64_t row_grain(const struct pass *p)
{
    return grad_grain(p->g->plan.n_embd * p->g->plan.moe.n_used);
}

void grad_host_route(const struct pass *p, const struct moe_acts *a, const float *x)
{
    const struct arch_moe_plan *m = &p->g->plan.moe;
    int64_t d = p->g->plan.n_embd;

    pool_for(p->g->pool, p->n, grad_grain(m->n_expert * (m->n_used + 8)), route_piece,
             &(struct moe_job){ .p = p, .a = a });
    sort_pairs(p, a);
    for (int64_t i = 0; i < p->n * m->n_used; i++)
        memcpy(a->x + i * d, x + a->row[i] * d, (size_t)d * sizeof *x);
}

void grad_host_moe_sum(const struct pass *p, const struct moe_acts *a, float *y)
{
    pool_for(p->g->pool, p->n, row_grain(p), sum_piece, &(struct moe_job){ .p = p, .a = a, .y = y });
}

void grad_moe_forward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *y, const float *x)
{
    const struct arch_moe_plan *m = &p->g->plan.moe;
    const struct grad_ops *o = p->g->ops;

    if (p->stack.base == NULL)
        return;
    o->product(p, (struct at){ .matrix = w->router }, a->logits, x, p->n);
    o->route(p, a, x);
    grad_glu_forward(p, &w->routed, (struct at){ .pairs = a }, &a->routed, a->x, p->n * m->n_used);
    if (m->n_ff_shared > 0)
        grad_glu_forward(p, &w->shared, (struct at){ 0 }, &a->shared, x, p->n);
    if (m->n_ff_shared > 0 && m->shared_gate)
        o->product(p, (struct at){ .matrix = w->shared_router }, a->open, x, p->n);
    o->moe_sum(p, a, y);
}

/* Gradients of the pairs' outputs, of the router's logits, of the shared expert's output and gate. */
static void sum_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe_job *j = ctx;
    const struct arch_moe_plan *m = &j->p->g->plan.moe;
    const struct moe_acts *a = j->a;
    int64_t d = j->p->g->plan.n_embd;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = j->dy + r * d, *prob = a->prob + r * m->n_expert;
        float *dl = j->d->logits + r * m->n_expert, *dw = j->d->weight + r * m->n_used, sum = 0.0f, mean = 0.0f,
              along = 0.0f;

        memset(dl, 0, (size_t)m->n_expert * sizeof *dl);
        for (int k = 0; k < m->n_used; k++) {
            int64_t i = r * m->n_used + k, at = a->place[i] * d;

            dw[k] = j->p->loops->dot(dy, a->routed.out + at, d);
            for (int64_t c = 0; c < d; c++)
                j->d->out[at + c] = a->weight[i] * dy[c];
            sum += prob[a->expert[i]];
            along += dw[k] * a->weight[i];
        }
        sum = !m->normalise ? 1.0f : sum > 0x1p-14f ? sum : 0x1p-14f;
        for (int k = 0; k < m->n_used; k++) { /* weight = scale * prob / sum */
            float dp = (dw[k] * m->scale - (m->normalise && sum > 0x1p-14f ? along : 0.0f)) / sum;

            dl[a->expert[r * m->n_used + k]] = dp;
            mean += dp * prob[a->expert[r * m->n_used + k]];
        }
        for (int e = 0; e < m->n_expert; e++)
            dl[e] = prob[e] * (dl[e] - mean);
        if (m->n_ff_shared > 0) {
            float open = m->shared_gate ? grad_sigmoid(a->open[r]) : 1.0f;

            for (int64_t c = 0; c < d; c++)
                j->d->shared[r * d + c] = open * dy[c];
            j->d->open[r] = j->p->loops->dot(dy, a->shared.out + r * d, d) * open * (1.0f - open);
        }
    }
}

static void gather_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct moe_job *j = ctx;
    int64_t d = j->p->g->plan.n_embd, used = j->p->g->plan.moe.n_used;

    (void)worker;
    for (int64_t i = begin * used; i < end * used; i++)
        j->p->loops->axpy(j->dx + i / used * d, j->dpair + j->a->place[i] * d, 1.0f, d);
}

void grad_host_moe_sum_back(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *d)
{
    pool_for(p->g->pool, p->n, row_grain(p), sum_back_piece, &(struct moe_job){ .p = p, .a = a, .dy = dy, .d = d });
}

void grad_host_gather_back(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair)
{
    pool_for(p->g->pool, p->n, row_grain(p), gather_back_piece,
             &(struct moe_job){ .p = p, .a = a, .dx = dx, .dpair = dpair });
}

void grad_moe_backward(struct pass *p, const struct moe_at *w, const struct moe_acts *a, float *dx, const float *dy,
                       const float *x)
{
    const struct arch_moe_plan *m = &p->g->plan.moe;
    const struct grad_ops *o = p->g->ops;
    const bool real = p->stack.base != NULL;
    struct stack *s = &p->stack;
    int64_t d = p->g->plan.n_embd, pairs = p->n * m->n_used, mark = s->used;
    struct moe_grads g = { grad_take(s, pairs * d), grad_zeros(p, pairs * d), grad_take(s, p->n * m->n_expert),
                           grad_take(s, pairs),     grad_take(s, p->n * d),   grad_take(s, p->n) };

    if (real)
        o->moe_sum_back(p, a, dy, &g);
    grad_glu_backward(p, &w->routed, (struct at){ .pairs = a }, &a->routed, g.pair, g.out, a->x, pairs);
    if (real)
        o->gather_back(p, a, dx, g.pair);
    if (m->n_ff_shared > 0)
        grad_glu_backward(p, &w->shared, (struct at){ 0 }, &a->shared, dx, g.shared, x, p->n);
    if (real && m->n_ff_shared > 0 && m->shared_gate)
        o->product_back(p, (struct at){ .matrix = w->shared_router }, dx, g.open, x, p->n);
    if (real)
        o->product_back(p, (struct at){ .matrix = w->router }, dx, g.logits, x, p->n);
    s->used = mark;
}
