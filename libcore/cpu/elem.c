/* SPDX-License-Identifier: Apache-2.0 */
/* elem.c - norms and elementwise operations, row by row. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { GATES = 256 }; /* of one column each, at a time */

/* One elementwise call: whichever operands it has. */
struct elem {
    const struct cpu *c;
    struct tensor y, x, z;
    const float *w;
    int64_t n_w, group, pitch, first;
    float s;
    const int32_t *row;
    enum op_act act;
};

static void norm_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;
    const struct cpu_kernels *kern = a->c->kern;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = cpu_row(a->x, r);
        float *y = cpu_row(a->y, r);

        for (int64_t g = 0; g < a->x.ne[0]; g += a->group) {
            const float *xg = x + g;
            float sum, *out = &sum;

            kern->dots(&out, 0, xg, 0, 1, &xg, 1, a->group);
            kern->scale(y + g, xg, a->w == NULL ? NULL : a->w + (a->n_w == a->group ? 0 : g),
                        1.0f / sqrtf(sum / (float)a->group + a->s), a->group);
        }
        if (a->z.data != NULL)
            kern->silu_mul(y, cpu_row(a->z, r), y, a->x.ne[0]);
    }
}

void cpu_rms_norm(void *ctx, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group, float eps)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .w = w, .n_w = n_w, .group = group, .s = eps };

    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], 3 * x.ne[0], 1), norm_piece, &a);
}

void cpu_rms_norm_gated(void *ctx, struct tensor y, struct tensor x, struct tensor z, const float *w, int64_t n_w,
                        int64_t group, float eps)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .z = z, .w = w, .n_w = n_w, .group = group, .s = eps };

    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], 20 * x.ne[0], 1), norm_piece, &a);
}

static void add_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        a->c->kern->axpy(cpu_row(a->y, r), cpu_row(a->x, r), a->s, a->y.ne[0]);
}

void cpu_add(void *ctx, struct tensor y, struct tensor x, float s)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .s = s };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), add_piece, &a);
}

static void add_gated_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float gate = 1.0f;

        a->c->kern->sigmoid_mul(&gate, cpu_row(a->z, r), 1);
        a->c->kern->axpy(cpu_row(a->y, r), cpu_row(a->x, r), gate, a->y.ne[0]);
    }
}

void cpu_add_gated(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .z = g };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), add_gated_piece, &a);
}

void cpu_act(const struct cpu *c, float *y, const float *gate, const float *up, int64_t n, enum op_act act)
{
    if (act == OP_SILU && gate != NULL) {
        c->kern->silu_mul(y, gate, up, n);
    } else if (act == OP_SILU) {
        c->kern->silu(y, up, n);
    } else {
        const float *in = gate != NULL ? gate : up;

        for (int64_t i = 0; i < n; i++) {
            float x = in[i] > 0.0f ? in[i] : 0.0f;

            y[i] = gate != NULL ? x * x * up[i] : x * x;
        }
    }
}

static void glu_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        cpu_act(a->c, cpu_row(a->y, r), a->x.data == NULL ? NULL : cpu_row(a->x, r), cpu_row(a->z, r), a->y.ne[0],
                a->act);
}

void cpu_glu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = gate, .z = up, .act = OP_SILU };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], 20 * y.ne[0], 1), glu_piece, &a);
}

static void geglu_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        a->c->kern->gelu_mul(cpu_row(a->y, r), cpu_row(a->x, r), cpu_row(a->z, r), a->y.ne[0]);
}

void cpu_geglu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = gate, .z = up };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], 30 * y.ne[0], 1), geglu_piece, &a);
}

void cpu_relu2(void *ctx, struct tensor y)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .z = y, .act = OP_RELU2 };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], 2 * y.ne[0], 1), glu_piece, &a);
}

/* y *= sigmoid(g) for n columns from column i on, where `each` columns of y share one of g. */
static void sigmoid_shared(const struct cpu *c, float *y, const float *g, int64_t i, int64_t n, int64_t each)
{
    float gate[GATES];

    for (int64_t j = 0; j < n; j++)
        gate[j] = g[(i + j) / each];
    c->kern->sigmoid_mul(y + i, gate, n);
}

static void sigmoid_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;
    const int64_t n = a->y.ne[0], each = n / a->x.ne[0];

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *y = cpu_row(a->y, r);
        const float *g = cpu_row(a->x, r);

        if (each == 1)
            a->c->kern->sigmoid_mul(y, g, n);
        for (int64_t i = 0; each > 1 && i < n; i += GATES)
            sigmoid_shared(a->c, y, g, i, n - i < GATES ? n - i : GATES, each);
    }
}

void cpu_sigmoid_mul(void *ctx, struct tensor y, struct tensor g)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = g };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], 20 * y.ne[0], 1), sigmoid_piece, &a);
}

static void mul_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        a->c->kern->scale(cpu_row(a->y, r), cpu_row(a->y, r), a->x.data == NULL ? NULL : cpu_row(a->x, r), a->s,
                          a->y.ne[0]);
}

void cpu_mul(void *ctx, struct tensor y, struct tensor x)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .s = 1.0f };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), mul_piece, &a);
}

void cpu_scale(void *ctx, struct tensor y, float s)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .s = s };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), mul_piece, &a);
}

static void pick_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        memcpy(cpu_row(a->y, r), cpu_row(a->x, a->row[r]), (size_t)a->y.ne[0] * sizeof(float));
}

void cpu_rows_pick(void *ctx, struct tensor y, struct tensor x, const int32_t *row)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .row = row };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), pick_piece, &a);
}

static void heads_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct elem *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t h = 0; h * a->group < a->y.ne[0]; h++)
            memcpy(cpu_row(a->y, r) + h * a->group, cpu_row(a->x, r) + h * a->pitch + a->first,
                   (size_t)a->group * sizeof(float));
}

void cpu_heads_pick(void *ctx, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    struct cpu *c = ctx;
    struct elem a = { .c = c, .y = y, .x = x, .group = dim, .pitch = pitch, .first = first };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), heads_piece, &a);
}
