/* SPDX-License-Identifier: Apache-2.0 */
/* gdn.c - gated delta net. Its states are kept at the beginning of every CHUNK tokens of a sequence; in the backward
 * pass those between are computed again. */
#include <string.h>

#include "base/pool.h"
#include "grad/internal.h"

enum { CHUNK = 64 };

static int64_t inner(const struct arch_plan *p)
{
    return (int64_t)p->gdn.n_v * p->gdn.dim_v;
}

static int64_t keys(const struct arch_plan *p)
{
    return (int64_t)p->gdn.n_k * p->gdn.dim;
}

static int64_t channels(const struct arch_plan *p)
{
    return 2 * keys(p) + inner(p);
}

static int key_head(const struct arch_plan *p, int h)
{
    return p->gdn.k_grouped ? h / (p->gdn.n_v / p->gdn.n_k) : h % p->gdn.n_k;
}

void grad_gdn_take(struct pass *p, struct gdn_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;

    a->qkv = grad_take(&p->stack, p->n * channels(pl));
    a->mixed = grad_take(&p->stack, p->n * channels(pl));
    a->z = grad_take(&p->stack, p->n * inner(pl));
    a->ba = grad_take(&p->stack, p->n * 2 * pl->gdn.n_v);
    a->alpha = grad_take(&p->stack, p->n * pl->gdn.n_v);
    a->beta = grad_take(&p->stack, p->n * pl->gdn.n_v);
    a->q = grad_take(&p->stack, p->n * keys(pl));
    a->k = grad_take(&p->stack, p->n * keys(pl));
    a->o = grad_take(&p->stack, p->n * inner(pl));
    a->gated = grad_take(&p->stack, p->n * inner(pl));
}

struct job {
    const struct pass *p;
    const struct gdn_at *w;
    const struct gdn_acts *a;
    float *scratch; /* [workers][each] */
    int64_t each;
    /* Backward: of gated and of the rest; dq and dk for each value head. */
    const float *dgated;
    float *d_o, *dz, *dq, *dk, *dmixed, *dqkv, *dalpha, *dbeta;
};

/* s: the sigmoid of x */
static float silu_slope(float x, float s)
{
    return s * (1.0f + x * (1.0f - s));
}

/* pre: the convolution before its SiLU, at row r of a sequence that begins at row first. */
static void conv_at(const struct job *j, float *pre, int64_t first, int64_t r)
{
    int taps = j->p->g->plan.taps;
    int64_t n = channels(&j->p->g->plan);

    memset(pre, 0, (size_t)n * sizeof *pre);
    for (int t = 0; t < taps; t++)
        if (r - taps + 1 + t >= first)
            j->p->loops->times_add(pre, j->a->qkv + (r - taps + 1 + t) * n, j->w->conv + t * n, n);
}

/* y = scale * x / sqrt(sum x^2 + eps), for each head of a row */
static void unit_heads(const struct job *j, float *y, const float *x, float scale)
{
    const struct arch_plan *p = &j->p->g->plan;

    for (int h = 0; h < p->gdn.n_k; h++, x += p->gdn.dim, y += p->gdn.dim) {
        float f = scale / sqrtf(j->p->loops->dot(x, x, p->gdn.dim) + p->norm_eps);

        for (int i = 0; i < p->gdn.dim; i++)
            y[i] = f * x[i];
    }
}

static void unit_back(const struct job *j, float *dx, const float *dy, const float *x, float scale)
{
    const struct arch_plan *p = &j->p->g->plan;
    int n = p->gdn.dim;

    for (int h = 0; h < p->gdn.n_k; h++, x += n, dx += n, dy += n) {
        float sum = j->p->loops->dot(x, x, n) + p->norm_eps, f = scale / sqrtf(sum);
        float along = j->p->loops->dot(x, dy, n) / sum;

        for (int i = 0; i < n; i++)
            dx[i] = f * (dy[i] - along * x[i]);
    }
}

static float q_scale(const struct arch_plan *p)
{
    return 1.0f / sqrtf((float)p->gdn.dim);
}

/* By sequence: convolution, then queries and keys of unit length. */
static void conv_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    int64_t n = channels(p);
    float *open = j->scratch + worker * j->each;

    for (int64_t s = begin; s < end; s++)
        for (int64_t r = j->p->first[s]; r < j->p->first[s + 1]; r++) {
            float *mixed = j->a->mixed + r * n;

            conv_at(j, mixed, j->p->first[s], r);
            j->p->loops->sigmoid(open, mixed, n);
            for (int64_t c = 0; c < n; c++)
                mixed[c] *= open[c];
            unit_heads(j, j->a->q + r * keys(p), mixed, q_scale(p));
            unit_heads(j, j->a->k + r * keys(p), mixed + keys(p), 1.0f);
        }
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static struct grad_delta token(const struct job *j, int64_t r, int h)
{
    const struct arch_plan *p = &j->p->g->plan;
    int64_t at = r * p->gdn.n_v + h, k = r * keys(p) + (int64_t)key_head(p, h) * p->gdn.dim;

    return (struct grad_delta){
        p->gdn.dim,
        p->gdn.dim_v,
        j->a->q + k,
        j->a->k + k,
        j->a->mixed + r * channels(p) + 2 * keys(p) + (int64_t)h * p->gdn.dim_v,
        expf(j->w->a[h] * softplus(j->a->alpha[at] + j->w->dt_bias[h])),
        grad_sigmoid(j->a->beta[at]),
    };
}

/* Items: sequence and value head. */
static void scan_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    int64_t size = (int64_t)p->gdn.dim * p->gdn.dim_v;
    float *now = j->scratch + worker * j->each, *next = now + size, *tmp = next + size;

    for (int64_t i = begin; i < end; i++) {
        int64_t s = i / p->gdn.n_v;
        int h = (int)(i % p->gdn.n_v);

        memset(now, 0, (size_t)size * sizeof *now);
        for (int64_t r = j->p->first[s]; r < j->p->first[s + 1]; r++) {
            struct grad_delta t = token(j, r, h);
            float *swap = now;

            j->p->loops->delta(next, now, j->a->o + r * inner(p) + (int64_t)h * p->gdn.dim_v, tmp, &t);
            now = next;
            next = swap;
        }
    }
}

/* gated = norm(o) * silu(z) by heads */
static void gated_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    int64_t d = p->gdn.dim_v;

    (void)worker;
    for (int64_t i = begin * d; i < end * d; i += d) {
        const float *o = j->a->o + i, *z = j->a->z + i;
        float f = 1.0f / sqrtf(j->p->loops->dot(o, o, d) / (float)d + p->norm_eps);

        j->p->loops->sigmoid(j->a->gated + i, z, d);
        for (int64_t c = 0; c < d; c++)
            j->a->gated[i + c] *= f * o[c] * j->w->norm[c] * z[c];
    }
}

static void gated_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    int64_t d = p->gdn.dim_v;

    (void)worker;
    for (int64_t i = begin * d; i < end * d; i += d) {
        const float *o = j->a->o + i, *z = j->a->z + i, *dg = j->dgated + i;
        float f = 1.0f / sqrtf(j->p->loops->dot(o, o, d) / (float)d + p->norm_eps), *d_o = j->d_o + i, along;

        j->p->loops->sigmoid(j->dz + i, z, d);
        for (int64_t c = 0; c < d; c++) {
            const float s = j->dz[i + c];

            j->dz[i + c] = dg[c] * f * o[c] * j->w->norm[c] * silu_slope(z[c], s);
            d_o[c] = dg[c] * j->w->norm[c] * z[c] * s;
        }
        along = j->p->loops->dot(d_o, o, d) * f * f / (float)d;
        for (int64_t c = 0; c < d; c++)
            d_o[c] = f * (d_o[c] - along * o[c]);
    }
}

/* Between the one matrix of beta and alpha, by key head, and the two: there, or back. */
static void split_ba(const struct pass *p, float *ba, float *beta, float *alpha, bool there)
{
    int64_t n_v = p->g->plan.gdn.n_v, each = n_v / p->g->plan.gdn.n_k;

    for (int64_t r = 0; r < p->n; r++)
        for (int64_t h = 0; h < n_v; h++) {
            float *b = ba + r * 2 * n_v + h / each * 2 * each + h % each, *a = b + each;

            *(there ? &beta[r * n_v + h] : b) = *(there ? b : &beta[r * n_v + h]);
            *(there ? &alpha[r * n_v + h] : a) = *(there ? a : &alpha[r * n_v + h]);
        }
}

static int64_t state_floats(const struct arch_plan *p)
{
    return (int64_t)p->gdn.dim * p->gdn.dim_v;
}

void grad_host_gdn(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;
    int64_t mark = p->stack.used;
    struct job j = { .p = p, .w = w, .a = a, .each = 2 * state_floats(pl) + pl->gdn.dim_v + channels(pl) };

    j.scratch = grad_take(&p->stack, j.each * pool_size(p->g->pool));
    p->stack.used = mark;
    if (p->stack.base == NULL)
        return;
    if (w->ba >= 0)
        split_ba(p, a->ba, a->beta, a->alpha, true);
    pool_for(p->g->pool, p->b->n_seq, 1, conv_piece, &j);
    pool_for(p->g->pool, (int64_t)p->b->n_seq * pl->gdn.n_v, 1, scan_piece, &j);
    pool_for(p->g->pool, p->n * pl->gdn.n_v, grad_grain((int64_t)pl->gdn.dim_v * 8), gated_piece, &j);
}

void grad_gdn_forward(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, float *y, const float *x)
{
    const struct grad_ops *o = p->g->ops;
    const bool real = p->stack.base != NULL;

    if (real) {
        o->product(p, (struct at){ .matrix = w->qkv }, a->qkv, x, p->n);
        o->product(p, (struct at){ .matrix = w->z }, a->z, x, p->n);
    }
    if (real && w->ba >= 0) {
        o->product(p, (struct at){ .matrix = w->ba }, a->ba, x, p->n);
    } else if (real) {
        o->product(p, (struct at){ .matrix = w->alpha }, a->alpha, x, p->n);
        o->product(p, (struct at){ .matrix = w->beta }, a->beta, x, p->n);
    }
    o->gdn(p, w, a);
    if (real)
        o->product(p, (struct at){ .matrix = w->out }, y, a->gated, p->n);
}

/* A worker's memory in the backward pass: states at the beginnings of chunks, states before the tokens of one chunk,
 * the gradient of a state, small things. */
struct states {
    float *begin, *before, *grad, *tmp;
};

static int64_t states_floats(const struct arch_plan *p, int64_t rows)
{
    return (rows / CHUNK + 1 + CHUNK + 1) * state_floats(p) + 5 * p->gdn.dim_v;
}

static struct states states_of(const struct job *j, int worker)
{
    int64_t size = state_floats(&j->p->g->plan);
    struct states s = { .begin = j->scratch + worker * j->each };

    s.tmp = s.begin + j->each - 5 * j->p->g->plan.gdn.dim_v;
    s.grad = s.tmp - size;
    s.before = s.grad - CHUNK * size;
    return s;
}

/* Tokens of a chunk, backwards. */
static void chunk_back(const struct job *j, const struct states *m, int64_t r, int n, int h)
{
    const struct arch_plan *p = &j->p->g->plan;
    int64_t size = state_floats(p);

    for (int t = 0; t + 1 < n; t++) {
        struct grad_delta d = token(j, r + t, h);

        j->p->loops->delta(m->before + (t + 1) * size, m->before + t * size, m->tmp, m->tmp + p->gdn.dim_v, &d);
    }
    for (int t = n - 1; t >= 0; t--) {
        struct grad_delta d = token(j, r + t, h);
        int64_t at = (r + t) * p->gdn.n_v + h;
        float dgb[2], u = j->a->alpha[at] + j->w->dt_bias[h];

        j->p->loops->delta_back(
            m->grad, m->before + t * size, j->d_o + at * p->gdn.dim_v, j->dq + at * p->gdn.dim, j->dk + at * p->gdn.dim,
            j->dmixed + (r + t) * channels(p) + 2 * keys(p) + (int64_t)h * p->gdn.dim_v, dgb, m->tmp, &d);
        j->dalpha[at] = dgb[0] * d.g * j->w->a[h] * grad_sigmoid(u);
        j->dbeta[at] = dgb[1] * d.b * (1.0f - d.b);
    }
}

static void scan_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    struct states m = states_of(j, worker);
    int64_t size = state_floats(p);
    size_t bytes = (size_t)size * sizeof(float);

    for (int64_t i = begin; i < end; i++) {
        int h = (int)(i % p->gdn.n_v);
        int64_t first = j->p->first[i / p->gdn.n_v], n = j->p->first[i / p->gdn.n_v + 1] - first;

        memset(m.begin, 0, bytes);
        for (int64_t r = 0; r + CHUNK < n; r += CHUNK) {
            memcpy(m.before, m.begin + r / CHUNK * size, bytes);
            for (int t = 0; t < CHUNK; t++) {
                struct grad_delta d = token(j, first + r + t, h);
                float *to = t + 1 < CHUNK ? m.before + (t + 1) * size : m.begin + (r / CHUNK + 1) * size;

                j->p->loops->delta(to, m.before + t * size, m.tmp, m.tmp + p->gdn.dim_v, &d);
            }
        }
        memset(m.grad, 0, bytes);
        for (int64_t r = (n - 1) / CHUNK * CHUNK; r >= 0; r -= CHUNK) {
            memcpy(m.before, m.begin + r / CHUNK * size, bytes);
            chunk_back(j, &m, first + r, (int)(n - r < CHUNK ? n - r : CHUNK), h);
        }
    }
}

/* Gradients of value heads that share a key head are added; then through the unit length. */
static void unit_back_row(const struct job *j, int64_t r, float *sum, const float *each, const float *x, float *dx,
                          float scale)
{
    const struct arch_plan *p = &j->p->g->plan;

    memset(sum, 0, (size_t)keys(p) * sizeof *sum);
    for (int h = 0; h < p->gdn.n_v; h++)
        j->p->loops->axpy(sum + (int64_t)key_head(p, h) * p->gdn.dim, each + (r * p->gdn.n_v + h) * p->gdn.dim, 1.0f,
                          p->gdn.dim);
    unit_back(j, dx, sum, x, scale);
}

static void conv_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct arch_plan *p = &j->p->g->plan;
    int64_t n = channels(p), taps = p->taps;
    float *sum = j->scratch + worker * j->each, *pre = sum + keys(p), *open = pre + n;

    for (int64_t s = begin; s < end; s++) {
        int64_t first = j->p->first[s];

        for (int64_t r = first; r < j->p->first[s + 1]; r++) {
            float *dm = j->dmixed + r * n;

            unit_back_row(j, r, sum, j->dq, j->a->mixed + r * n, dm, q_scale(p));
            unit_back_row(j, r, sum, j->dk, j->a->mixed + r * n + keys(p), dm + keys(p), 1.0f);
            conv_at(j, pre, first, r);
            j->p->loops->sigmoid(open, pre, n);
            for (int64_t c = 0; c < n; c++)
                pre[c] = dm[c] * silu_slope(pre[c], open[c]);
            for (int64_t t = 0; t < taps; t++)
                if (r - taps + 1 + t >= first)
                    j->p->loops->times_add(j->dqkv + (r - taps + 1 + t) * n, pre, j->w->conv + t * n, n);
        }
    }
}

static int64_t rows_longest(const struct pass *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->b->n_seq; i++)
        n = p->first[i + 1] - p->first[i] > n ? p->first[i + 1] - p->first[i] : n;
    return n;
}

void grad_host_gdn_back(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                        const struct gdn_grads *d)
{
    const struct arch_plan *pl = &p->g->plan;
    struct stack *s = &p->stack;
    int64_t mark = s->used, n = p->n, n_v = pl->gdn.n_v;
    struct job j = { .p = p,
                     .w = w,
                     .a = a,
                     .each = states_floats(pl, rows_longest(p)) + keys(pl) + 2 * channels(pl),
                     .dgated = dgated,
                     .dz = d->z,
                     .dqkv = d->qkv,
                     .dalpha = d->alpha,
                     .dbeta = d->beta };

    j.scratch = grad_take(s, j.each * pool_size(p->g->pool));
    j.d_o = grad_take(s, n * inner(pl));
    j.dq = grad_take(s, n * n_v * pl->gdn.dim);
    j.dk = grad_take(s, n * n_v * pl->gdn.dim);
    j.dmixed = grad_take(s, n * channels(pl));
    s->used = mark;
    if (s->base == NULL)
        return;
    pool_for(p->g->pool, n * n_v, grad_grain((int64_t)pl->gdn.dim_v * 16), gated_back_piece, &j);
    pool_for(p->g->pool, (int64_t)p->b->n_seq * n_v, 1, scan_back_piece, &j);
    pool_for(p->g->pool, p->b->n_seq, 1, conv_back_piece, &j);
    if (w->ba >= 0)
        split_ba(p, a->ba, d->beta, d->alpha, false);
}

void grad_gdn_backward(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, float *dx, const float *dy,
                       const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct grad_ops *o = p->g->ops;
    const bool real = p->stack.base != NULL;
    struct stack *s = &p->stack;
    int64_t mark = s->used, n = p->n;
    float *dgated = grad_zeros(p, n * inner(pl));
    struct gdn_grads d = { grad_zeros(p, n * channels(pl)), grad_take(s, n * inner(pl)), grad_take(s, n * pl->gdn.n_v),
                           grad_take(s, n * pl->gdn.n_v) };

    if (real)
        o->product_back(p, (struct at){ .matrix = w->out }, dgated, dy, a->gated, n);
    o->gdn_back(p, w, a, dgated, &d);
    if (real) {
        o->product_back(p, (struct at){ .matrix = w->qkv }, dx, d.qkv, x, n);
        o->product_back(p, (struct at){ .matrix = w->z }, dx, d.z, x, n);
    }
    if (real && w->ba >= 0) {
        o->product_back(p, (struct at){ .matrix = w->ba }, dx, a->ba, x, n);
    } else if (real) {
        o->product_back(p, (struct at){ .matrix = w->alpha }, dx, d.alpha, x, n);
        o->product_back(p, (struct at){ .matrix = w->beta }, dx, d.beta, x, n);
    }
    s->used = mark;
}
