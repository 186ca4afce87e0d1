/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - Mamba-1, Mamba-2 and Kimi delta attention: token by token in each sequence, in parallel over
 * channels or heads. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { CHANNELS = 256, DIM_MAX = CPU_SCAN_DIM };

struct scan {
    const struct cpu *c;
    struct tensor y, x, dt, b, cc;
    const void *a;
    const struct op_rows *r;
    struct cpu_scan_room room;
};

/* Channels c0 .. c0 + n - 1 of the i-th sequence. A row of the log has dt, b and c. */
static void ssm1_block(const struct scan *t, int i, int64_t c0, int64_t n, int worker)
{
    const struct op_ssm1 *a = t->a;
    const struct op_seq *s = &t->r->seq[i];
    int64_t ch = t->x.ne[0];
    float *h = a->rec.data + s->slot * a->rec.floats + c0, dt[CHANNELS];

    for (int at = -s->again; at < s->n; at++) {
        const float *logged = at < 0 ? cpu_log_row(&a->rec, s, at) : NULL;
        const float *in = at < 0 ? logged : cpu_row(t->dt, s->row + at);
        const float *b = at < 0 ? logged + ch : cpu_row(t->b, s->row + at);
        const float *c = at < 0 ? b + a->n_state : cpu_row(t->cc, s->row + at);
        float *y = at < 0 ? cpu_scan_waste(&t->room, worker) : cpu_row(t->y, s->row + at) + c0;

        if (s->drafts > 0 && at == s->n - s->drafts) {
            float *copy = cpu_scan_copy(&t->room, worker) + c0;

            for (int j = 0; j < a->n_state; j++)
                memcpy(copy + j * ch, h + j * ch, (size_t)n * sizeof *h);
            h = copy;
        }
        t->c->scan->softplus(dt, in + c0, a->dt_bias + c0, n);
        t->c->scan->ssm1(h, y, cpu_row(t->x, cpu_scan_row(&a->rec, t->r, i, at)) + c0, dt, a->a + c0, a->d + c0, b, c,
                         a->n_state, ch, n);
    }
    for (int at = s->n - s->logged; at < s->n; at++)
        memcpy(cpu_log_row(&a->rec, s, at) + c0, cpu_row(t->dt, s->row + at) + c0, (size_t)n * sizeof *h);
}

static void ssm1_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    int64_t ch = t->x.ne[0], blocks = (ch + CHANNELS - 1) / CHANNELS;

    for (int64_t i = begin; i < end; i++) {
        int64_t c0 = i % blocks * CHANNELS;

        ssm1_block(t, (int)(i / blocks), c0, ch - c0 < CHANNELS ? ch - c0 : CHANNELS, worker);
    }
}

/* All channels read b and c: they are logged when none does any more. */
static void ssm1_log(const struct scan *t)
{
    const struct op_ssm1 *a = t->a;
    size_t bytes = (size_t)a->n_state * sizeof(float);

    for (const struct op_seq *s = t->r->seq; s < t->r->seq + t->r->n_seq; s++)
        for (int at = s->n - s->logged; at < s->n; at++) {
            float *b = cpu_log_row(&a->rec, s, at) + t->x.ne[0];

            memcpy(b, cpu_row(t->b, s->row + at), bytes);
            memcpy(b + a->n_state, cpu_row(t->cc, s->row + at), bytes);
        }
}

void cpu_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor c,
              const struct op_ssm1 *a, const struct op_rows *r)
{
    struct cpu *cpu = ctx;
    size_t mark = dev_mark(cpu->dev);
    struct scan t = { cpu, y, x, dt, b, c, a, r, cpu_scan_take(cpu, &a->rec, a->n_state * x.ne[0]) };
    int64_t items = r->n_seq * ((x.ne[0] + CHANNELS - 1) / CHANNELS);

    pool_for(cpu->pool, items, cpu_grain(cpu, items, (int64_t)CHANNELS * 20 * a->n_state * r->n / r->n_seq, 1),
             ssm1_piece, &t);
    ssm1_log(&t);
    dev_release(cpu->dev, mark);
}

enum { SSM2_ROWS = CPU_SCAN_ROWS }; /* tokens at a time */

/* dt of head h */
static float ssm2_dt(const struct scan *t, const struct op_seq *s, int h, int at)
{
    const struct op_ssm2 *a = t->a;

    return at < 0 ? cpu_log_row(&a->rec, s, at)[h] : cpu_row(t->dt, s->row + at)[h];
}

/* n <= SSM2_ROWS rows of head h from `at` of the i-th sequence. */
static void ssm2_rows(const struct scan *t, float *state, int h, int i, int at, int n, float *waste)
{
    const struct op_ssm2 *a = t->a;
    const float *x = cpu_row(t->x, cpu_scan_row(&a->rec, t->r, i, at));
    const float *b = x + (int64_t)a->n_head * a->dim + (int64_t)(h / (a->n_head / a->n_group)) * a->n_state;
    float dt[SSM2_ROWS] = { 0 }, bias[SSM2_ROWS] = { 0 }, decay[SSM2_ROWS];
    struct cpu_ssm2 tokens = { at < 0 ? waste : cpu_row(t->y, t->r->seq[i].row + at) + (int64_t)h * a->dim,
                               x + (int64_t)h * a->dim,
                               b,
                               b + (int64_t)a->n_group * a->n_state,
                               decay,
                               dt,
                               at < 0 ? a->dim : t->y.stride,
                               t->x.stride,
                               a->d[h],
                               n };

    for (int j = 0; j < n; j++) {
        dt[j] = ssm2_dt(t, &t->r->seq[i], h, at + j);
        bias[j] = a->dt_bias[h];
    }
    t->c->scan->softplus(dt, dt, bias, n);
    for (int j = 0; j < n; j++)
        decay[j] = expf(dt[j] * a->a[h]);
    t->c->kern->ssm2(state, &tokens, a->n_state, a->dim);
}

static void ssm2_head(const struct scan *t, int i, int h, int worker)
{
    const struct op_ssm2 *a = t->a;
    const struct op_seq *s = &t->r->seq[i];
    int64_t block = (int64_t)a->n_state * a->dim;
    float *state = a->rec.data + s->slot * a->rec.floats + h * block;

    for (int at = -s->again, n; at < s->n; at += n) {
        n = cpu_scan_some(s, at, SSM2_ROWS);
        if (s->drafts > 0 && at == s->n - s->drafts)
            state = memcpy(cpu_scan_copy(&t->room, worker), state, (size_t)block * sizeof *state);
        ssm2_rows(t, state, h, i, at, n, cpu_scan_waste(&t->room, worker));
    }
    for (int at = s->n - s->logged; at < s->n; at++)
        cpu_log_row(&a->rec, s, at)[h] = ssm2_dt(t, s, h, at);
}

static void ssm2_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    const struct op_ssm2 *a = t->a;

    for (int64_t i = begin; i < end; i++)
        ssm2_head(t, (int)(i / a->n_head), (int)(i % a->n_head), worker);
}

void cpu_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
              const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct scan t = { .c = c,
                      .y = y,
                      .x = xbc,
                      .dt = dt,
                      .a = a,
                      .r = r,
                      .room = cpu_scan_take(c, &a->rec, (int64_t)a->n_state * a->dim) };
    int64_t items = (int64_t)r->n_seq * a->n_head;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->n_state * 4 * r->n / r->n_seq, 1), ssm2_piece,
             &t);
    dev_release(c->dev, mark);
}

/* g of op_kda(), for one head. */
static void kda_decays(const struct cpu *c, const struct op_kda *a, float *g, const float *decay, int h)
{
    const float *bias = a->dt_bias + (int64_t)h * a->dim;
    float turn[DIM_MAX];

    if (a->bound == 0.0f) {
        c->scan->softplus(g, decay, bias, a->dim);
        c->kern->scale(g, g, NULL, a->a[h], a->dim);
    } else {
        for (int i = 0; i < a->dim; i++) {
            turn[i] = decay[i] + bias[i];
            g[i] = a->bound;
        }
        c->kern->scale(turn, turn, NULL, a->a[h], a->dim);
        c->kern->sigmoid_mul(g, turn, a->dim);
    }
    c->kern->exp_sub(g, g, 0.0f, a->dim);
}

/* A row of the log has decay and beta. */
static void kda_head(const struct scan *t, int i, int h, int worker)
{
    const struct op_kda *a = t->a;
    const struct op_seq *s = &t->r->seq[i];
    int64_t inner = (int64_t)a->n_head * a->dim, first = (int64_t)h * a->dim, block = (int64_t)a->dim * a->dim;
    float q[DIM_MAX], k[DIM_MAX], g[DIM_MAX], kv[DIM_MAX], scale = 1.0f / sqrtf((float)a->dim);
    float *S = a->rec.data + s->slot * a->rec.floats + h * block;

    for (int at = -s->again; at < s->n; at++) {
        const float *x = cpu_row(t->x, cpu_scan_row(&a->rec, t->r, i, at));
        const float *logged = at < 0 ? cpu_log_row(&a->rec, s, at) : NULL;
        const float *decay = at < 0 ? logged : cpu_row(t->dt, s->row + at);
        float in = at < 0 ? logged[inner + h] : cpu_row(t->b, s->row + at)[h], beta = 1.0f / (1.0f + expf(-in));

        if (s->drafts > 0 && at == s->n - s->drafts)
            S = memcpy(cpu_scan_copy(&t->room, worker), S, (size_t)block * sizeof *S);
        cpu_l2_norm(t->c, q, x + first, a->dim, a->eps, scale);
        cpu_l2_norm(t->c, k, x + inner + first, a->dim, a->eps, 1.0f);
        kda_decays(t->c, a, g, decay + first, h);
        t->c->scan->kda(S, at < 0 ? cpu_scan_waste(&t->room, worker) : cpu_row(t->y, s->row + at) + first, kv, k, q,
                        x + 2 * inner + first, g, beta, a->dim, a->dim);
    }
    for (int at = s->n - s->logged; at < s->n; at++) {
        float *logged = cpu_log_row(&a->rec, s, at);

        memcpy(logged + first, cpu_row(t->dt, s->row + at) + first, (size_t)a->dim * sizeof *logged);
        logged[inner + h] = cpu_row(t->b, s->row + at)[h];
    }
}

static void kda_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    const struct op_kda *a = t->a;

    for (int64_t i = begin; i < end; i++)
        kda_head(t, (int)(i / a->n_head), (int)(i % a->n_head), worker);
}

void cpu_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
             const struct op_kda *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct scan t = { .c = c,
                      .y = y,
                      .x = qkv,
                      .dt = decay,
                      .b = beta,
                      .a = a,
                      .r = r,
                      .room = cpu_scan_take(c, &a->rec, (int64_t)a->dim * a->dim) };
    int64_t items = (int64_t)r->n_seq * a->n_head;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->dim * 6 * r->n / r->n_seq, 1), kda_piece, &t);
    dev_release(c->dev, mark);
}
