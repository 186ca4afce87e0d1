/* SPDX-License-Identifier: Apache-2.0 */
/* rec.c - recurrent layers: causal convolution and the gated delta rule, token by token. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { CONV_TAPS_MAX = 16, CONV_BLOCK = 256 };

struct conv {
    const struct cpu     *c;
    struct tensor         y, x;
    const struct op_conv *a;
    const struct op_rows *r;
};

/* Channels c0 .. c0 + n - 1 of one sequence. The window slides over the stored inputs, then the rows. */
static void conv_block(const struct conv *t, const struct op_seq *s, int64_t c0, int64_t n)
{
    const struct op_conv *a = t->a;
    int64_t ch = t->x.ne[0];
    float *past = a->rec.data + s->slot * a->rec.floats + c0, keep[(CONV_TAPS_MAX - 1) * CONV_BLOCK];
    int taps = a->taps, old = taps - 1;

    for (int i = 0; i < s->n; i++) {
        const float *in[CONV_TAPS_MAX];
        float *y = cpu_row(t->y, s->row + i) + c0;

        for (int j = 0; j < taps; j++) {
            int at = i - old + j; /* row within the step; negative: stored */

            in[j] = at < 0 ? past + (old + at) * ch : cpu_row(t->x, s->row + at) + c0;
        }
        t->c->kern->conv(y, in, a->w + c0, ch, a->bias == NULL ? NULL : a->bias + c0, taps, n);
        if (a->silu)
            t->c->kern->silu(y, y, n);
    }
    for (int j = 0; j < old; j++) {
        int at = s->n - old + j;
        const float *from = at < 0 ? past + (old + at) * ch : cpu_row(t->x, s->row + at) + c0;

        memcpy(keep + j * n, from, (size_t)n * sizeof *keep);
    }
    for (int j = 0; j < old; j++)
        memcpy(past + j * ch, keep + j * n, (size_t)n * sizeof *keep);
}

static void conv_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct conv *t = ctx;
    int64_t ch = t->x.ne[0], blocks = (ch + CONV_BLOCK - 1) / CONV_BLOCK;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t c0 = i % blocks * CONV_BLOCK;

        conv_block(t, &t->r->seq[i / blocks], c0, ch - c0 < CONV_BLOCK ? ch - c0 : CONV_BLOCK);
    }
}

void cpu_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct conv t = { c, y, x, a, r };
    int64_t items = r->n_seq * ((x.ne[0] + CONV_BLOCK - 1) / CONV_BLOCK);

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)CONV_BLOCK * 20 * r->n / r->n_seq, 1), conv_piece,
             &t);
}

struct gdn {
    const struct cpu     *c;
    struct tensor         y, qkv, alpha, beta;
    const struct op_gdn  *a;
    const struct op_rows *r;
};

void cpu_l2_norm(const struct cpu *c, float *y, const float *x, int n, float eps, float s)
{
    float sum, *out = &sum;

    c->kern->dots(&out, 0, x, 0, 1, &x, 1, n);
    c->kern->scale(y, x, NULL, s / sqrtf(sum + eps), n);
}

/* Tokens at a time: their keys and queries are to stay in the first-level cache. */
enum { GDN_DIM_MAX = 1024, GDN_ROWS = 16 };

/* Decays g and betas b of head h for n <= GDN_ROWS rows from `row`. */
static void gdn_gates(const struct gdn *t, int h, int row, int n, float *g, float *b)
{
    const struct cpu_kernels *kern = t->c->kern;
    float beta[GDN_ROWS];

    for (int i = 0; i < n; i++) {
        g[i] = cpu_row(t->alpha, row + i)[h] + t->a->dt_bias[h];
        beta[i] = cpu_row(t->beta, row + i)[h];
        b[i] = 1.0f;
    }
    t->c->scan->softplus(g, g, NULL, n);
    kern->scale(g, g, NULL, t->a->a[h], n);
    kern->exp_sub(g, g, 0.0f, n);
    kern->sigmoid_mul(b, beta, n);
}

/* n <= GDN_ROWS rows of head h from `row`. */
static void gdn_rows(const struct gdn *t, float *S, int h, int row, int n)
{
    const struct op_gdn *a = t->a;
    int hk = a->k_grouped ? h / (a->n_v / a->n_k) : h % a->n_k;
    float q[GDN_ROWS * GDN_DIM_MAX], k[GDN_ROWS * GDN_DIM_MAX], g[GDN_ROWS], b[GDN_ROWS];
    struct cpu_gdn tokens = { cpu_row(t->y, row) + (int64_t)h * a->dim_v, k, q,
                              cpu_row(t->qkv, row) + (int64_t)2 * a->n_k * a->dim + (int64_t)h * a->dim_v, g, b,
                              t->y.stride, t->qkv.stride, n };

    gdn_gates(t, h, row, n, g, b);
    for (int i = 0; i < n; i++) {
        const float *in = cpu_row(t->qkv, row + i);

        cpu_l2_norm(t->c, q + i * a->dim, in + (int64_t)hk * a->dim, a->dim, a->eps, 1.0f / sqrtf((float)a->dim));
        cpu_l2_norm(t->c, k + i * a->dim, in + (int64_t)(a->n_k + hk) * a->dim, a->dim, a->eps, 1.0f);
    }
    t->c->kern->gdn(S, &tokens, a->dim, a->dim_v);
}

static void gdn_head(const struct gdn *t, const struct op_seq *s, int h)
{
    float *S = t->a->rec.data + s->slot * t->a->rec.floats + (int64_t)h * t->a->dim * t->a->dim_v;

    for (int i = 0; i < s->n; i += GDN_ROWS)
        gdn_rows(t, S, h, s->row + i, s->n - i < GDN_ROWS ? s->n - i : GDN_ROWS);
}

static void gdn_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct gdn *t = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        gdn_head(t, &t->r->seq[i / t->a->n_v], (int)(i % t->a->n_v));
}

void cpu_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
             const struct op_gdn *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct gdn t = { c, y, qkv, alpha, beta, a, r };
    int64_t items = (int64_t)r->n_seq * a->n_v;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->dim_v * 4 * r->n / r->n_seq, 1),
             gdn_piece, &t);
}
