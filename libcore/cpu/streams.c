/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - hyper-connections: a residual stream of several rows. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

struct streams {
    const struct cpu *c;
    struct tensor y, x, g, v;
    float s;
};

static void silu_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct streams *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *y = cpu_row(a->y, r);

        a->c->kern->scale(y, y, NULL, a->s, a->y.ne[0]);
        a->c->kern->silu(y, y, a->y.ne[0]);
    }
}

void cpu_silu(void *ctx, struct tensor y, float s)
{
    struct cpu *c = ctx;
    struct streams a = { .c = c, .y = y, .s = s };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], 20 * y.ne[0], 1), silu_piece, &a);
}

/* Columns that a piece takes of a row. */
enum { COLUMNS = 256 };

static void mix_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct streams *a = ctx;
    const struct cpu_kernels *kern = a->c->kern;
    int64_t w = a->y.ne[0], parts = (w + COLUMNS - 1) / COLUMNS, n = a->x.ne[0] / w;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i / parts, c0 = i % parts * COLUMNS, k = w - c0 < COLUMNS ? w - c0 : COLUMNS;
        float *y = cpu_row(a->y, r) + c0, open[COLUMNS];

        memset(y, 0, (size_t)k * sizeof *y);
        for (int64_t j = 0; j < n; j++) {
            memcpy(open, cpu_row(a->x, r) + j * w + c0, (size_t)k * sizeof *open);
            kern->sigmoid_mul(open, cpu_row(a->g, r) + j * w + c0, k);
            kern->axpy(y, open, 1.0f, k);
        }
        kern->scale(y, y, NULL, 1.0f / (float)n, k);
    }
}

void cpu_streams_mix(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    struct cpu *c = ctx;
    struct streams a = { .c = c, .y = y, .x = x, .g = g };
    int64_t items = y.ne[1] * ((y.ne[0] + COLUMNS - 1) / COLUMNS);

    pool_for(c->pool, items, cpu_grain(c, items, 20 * COLUMNS * (x.ne[0] / y.ne[0]), 1), mix_piece, &a);
}

static void add_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct streams *a = ctx;
    int64_t w = a->y.ne[0], n = a->g.ne[0];

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < n; j++) {
            float gate = 2.0f, at = cpu_row(a->g, r)[j] / (float)n;

            a->c->kern->sigmoid_mul(&gate, &at, 1);
            a->c->kern->axpy(cpu_row(a->x, r) + j * w, cpu_row(a->y, r), gate, w);
        }
}

void cpu_streams_add(void *ctx, struct tensor x, struct tensor y, struct tensor g)
{
    struct cpu *c = ctx;
    struct streams a = { .c = c, .y = y, .x = x, .g = g };

    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], 2 * x.ne[0], 1), add_piece, &a);
}

static void gate_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct streams *a = ctx;
    const struct cpu_kernels *kern = a->c->kern;
    int64_t w = a->v.ne[0], n = a->x.ne[0] / w;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i / n, j = i % n;
        const float *key = cpu_row(a->x, r) + j * w, *query = cpu_row(a->g, r) + j * w;
        float u, *out = &u, gate = 1.0f;

        kern->dots(&out, 0, key, 0, 1, &query, 1, w);
        u /= sqrtf((float)w);
        float root = sqrtf(fmaxf(fabsf(u), 1e-6f)), at = u > 0.0f ? root : u < 0.0f ? -root : 0.0f;
        kern->sigmoid_mul(&gate, &at, 1);
        kern->scale(cpu_row(a->y, r) + j * w, cpu_row(a->v, r), NULL, gate, w);
    }
}

void cpu_streams_gate(void *ctx, struct tensor y, struct tensor key, struct tensor query, struct tensor value)
{
    struct cpu *c = ctx;
    struct streams a = { .c = c, .y = y, .x = key, .g = query, .v = value };
    int64_t items = y.ne[1] * (key.ne[0] / value.ne[0]);

    pool_for(c->pool, items, cpu_grain(c, items, 3 * value.ne[0], 1), gate_piece, &a);
}
