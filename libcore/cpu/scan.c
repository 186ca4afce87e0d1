/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - Mamba-1, Mamba-2 and Kimi delta attention: token by token in each sequence, in parallel over
 * channels or heads. */
#include <math.h>

#include "cpu/cpu.h"

enum { CHANNELS = 256, DIM_MAX = 1024 };

struct scan {
    const struct cpu     *c;
    struct tensor         y, x, dt, b, cc;
    const void           *a;
    const struct op_rows *r;
};

static void ssm1_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    const struct op_ssm1 *a = t->a;
    int64_t ch = t->x.ne[0], blocks = (ch + CHANNELS - 1) / CHANNELS;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i / blocks];
        int64_t c0 = i % blocks * CHANNELS, n = ch - c0 < CHANNELS ? ch - c0 : CHANNELS;
        float *h = a->rec.data + s->slot * a->rec.floats + c0, dt[CHANNELS];

        for (int row = s->row; row < s->row + s->n; row++) {
            t->c->scan->softplus(dt, cpu_row(t->dt, row) + c0, a->dt_bias + c0, n);
            t->c->scan->ssm1(h, cpu_row(t->y, row) + c0, cpu_row(t->x, row) + c0, dt, a->a + c0, a->d + c0,
                             cpu_row(t->b, row), cpu_row(t->cc, row), a->n_state, ch, n);
        }
    }
}

void cpu_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b,
              struct tensor c, const struct op_ssm1 *a, const struct op_rows *r)
{
    struct cpu *cpu = ctx;
    struct scan t = { cpu, y, x, dt, b, c, a, r };
    int64_t items = r->n_seq * ((x.ne[0] + CHANNELS - 1) / CHANNELS);

    pool_for(cpu->pool, items, cpu_grain(cpu, items, (int64_t)CHANNELS * 20 * a->n_state * r->n / r->n_seq, 1),
             ssm1_piece, &t);
}

enum { SSM2_ROWS = 16 }; /* tokens at a time */

/* n <= SSM2_ROWS rows of head h from `row`. */
static void ssm2_rows(const struct scan *t, float *state, int h, int row, int n)
{
    const struct op_ssm2 *a = t->a;
    const float *x = cpu_row(t->x, row), *b = x + (int64_t)a->n_head * a->dim + (int64_t)(h / (a->n_head / a->n_group)) * a->n_state;
    float dt[SSM2_ROWS] = { 0 }, bias[SSM2_ROWS] = { 0 }, decay[SSM2_ROWS];
    struct cpu_ssm2 tokens = { cpu_row(t->y, row) + (int64_t)h * a->dim, x + (int64_t)h * a->dim, b,
                               b + (int64_t)a->n_group * a->n_state, decay, dt, t->y.stride, t->x.stride, a->d[h], n };

    for (int i = 0; i < n; i++) {
        dt[i] = cpu_row(t->dt, row + i)[h];
        bias[i] = a->dt_bias[h];
    }
    t->c->scan->softplus(dt, dt, bias, n);
    for (int i = 0; i < n; i++)
        decay[i] = expf(dt[i] * a->a[h]);
    t->c->kern->ssm2(state, &tokens, a->n_state, a->dim);
}

static void ssm2_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    const struct op_ssm2 *a = t->a;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i / a->n_head];
        int h = (int)(i % a->n_head);
        float *state = a->rec.data + s->slot * a->rec.floats + (int64_t)h * a->n_state * a->dim;

        for (int j = 0; j < s->n; j += SSM2_ROWS)
            ssm2_rows(t, state, h, s->row + j, s->n - j < SSM2_ROWS ? s->n - j : SSM2_ROWS);
    }
}

void cpu_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
              const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct scan t = { .c = c, .y = y, .x = xbc, .dt = dt, .a = a, .r = r };
    int64_t items = (int64_t)r->n_seq * a->n_head;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->n_state * 4 * r->n / r->n_seq, 1),
             ssm2_piece, &t);
}

static void kda_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *t = ctx;
    const struct op_kda *a = t->a;
    int64_t inner = (int64_t)a->n_head * a->dim;
    float q[DIM_MAX], k[DIM_MAX], g[DIM_MAX], kv[DIM_MAX], scale = 1.0f / sqrtf((float)a->dim);

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i / a->n_head];
        int64_t h = i % a->n_head, at = h * a->dim;
        float *S = a->rec.data + s->slot * a->rec.floats + at * a->dim;

        for (int row = s->row; row < s->row + s->n; row++) {
            const float *x = cpu_row(t->x, row);
            float beta = 1.0f / (1.0f + expf(-cpu_row(t->b, row)[h]));

            cpu_l2_norm(t->c, q, x + at, a->dim, a->eps, scale);
            cpu_l2_norm(t->c, k, x + inner + at, a->dim, a->eps, 1.0f);
            t->c->scan->softplus(g, cpu_row(t->dt, row) + at, a->dt_bias + at, a->dim);
            t->c->kern->scale(g, g, NULL, a->a[h], a->dim);
            t->c->kern->exp_sub(g, g, 0.0f, a->dim);
            t->c->scan->kda(S, cpu_row(t->y, row) + at, kv, k, q, x + 2 * inner + at, g, beta, a->dim, a->dim);
        }
    }
}

void cpu_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
             const struct op_kda *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct scan t = { .c = c, .y = y, .x = qkv, .dt = decay, .b = beta, .a = a, .r = r };
    int64_t items = (int64_t)r->n_seq * a->n_head;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->dim * 6 * r->n / r->n_seq, 1), kda_piece,
             &t);
}
