/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - products with stored weights: rows are decoded once per piece and used for every row of x. */
#include <string.h>

#include "cpu/cpu.h"

const float *cpu_weights(const struct cpu *c, struct tensor w, int64_t e, int64_t w0, int n, float *buf)
{
    int64_t row_bytes = quant_row_bytes(w.type, w.ne[0]);
    const unsigned char *at = (const unsigned char *)w.data + (e * w.pitch + w0) * row_bytes;

    if (w.type == QUANT_f32)
        return (const float *)(const void *)at;
    for (int i = 0; i < n; i++)
        c->decode[w.type](buf + i * w.ne[0], at + i * row_bytes, w.ne[0]);
    return buf;
}

struct embed {
    const struct cpu *c;
    struct tensor     y, w;
    const int32_t    *token;
    float             scale;
};

static void embed_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct embed *a = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *y = cpu_row(a->y, r);
        const float *w = cpu_weights(a->c, a->w, 0, a->token[r], 1, y);

        if (w != y)
            memcpy(y, w, (size_t)a->w.ne[0] * sizeof *y);
        if (a->scale != 1.0f)
            a->c->kern->scale(y, y, NULL, a->scale, a->w.ne[0]);
    }
}

void cpu_embed(void *ctx, struct tensor y, struct tensor w, const int32_t *token, float scale)
{
    struct cpu *c = ctx;
    struct embed a = { c, y, w, token, scale };

    pool_for(c->pool, y.ne[1], cpu_grain(c, y.ne[1], y.ne[0], 1), embed_piece, &a);
}

struct matmul {
    const struct cpu    *c;
    struct tensor        w;
    float *const        *y; /* [nx] */
    const float *const  *x; /* [nx] */
    int                  nx;
    float               *buf; /* CPU_PANEL rows for each worker */
};

static void matmul_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct matmul *a = ctx;
    int64_t k = a->w.ne[0];
    float *buf = a->buf + (int64_t)worker * CPU_PANEL * k;

    for (int64_t r = begin; r < end; r += CPU_PANEL) {
        int n = end - r < CPU_PANEL ? (int)(end - r) : CPU_PANEL;
        const float *w = cpu_weights(a->c, a->w, 0, r, n, buf);

        a->c->kern->dots(a->y, r, w, k, n, a->x, a->nx, k);
    }
}

static size_t panel_bytes(const struct cpu *c, int64_t k)
{
    return (size_t)pool_size(c->pool) * CPU_PANEL * (size_t)k * sizeof(float);
}

size_t cpu_matmul_need(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    (void)y;
    return panel_bytes(ctx, w.ne[0]) + 2 * ((size_t)x.ne[1] * sizeof(void *) + 64) + 64;
}

void cpu_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    float **ys = dev_scratch_bytes(c->dev, (size_t)x.ne[1] * sizeof *ys);
    const float **xs = dev_scratch_bytes(c->dev, (size_t)x.ne[1] * sizeof *xs);
    struct matmul a = { c, w, ys, xs, (int)x.ne[1], dev_scratch_bytes(c->dev, panel_bytes(c, w.ne[0])) };

    for (int64_t r = 0; r < x.ne[1]; r++) {
        ys[r] = cpu_row(y, r);
        xs[r] = cpu_row(x, r);
    }
    pool_for(c->pool, w.ne[1], cpu_grain(c, w.ne[1], w.ne[0] * x.ne[1], CPU_PANEL), matmul_piece, &a);
    dev_release(c->dev, mark);
}
