/* SPDX-License-Identifier: Apache-2.0 */
/* rec.c - recurrent layers: causal convolution and the gated delta rule, token by token. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { CONV_TAPS_MAX = 16, CONV_BLOCK = 256 };

struct conv {
    const struct cpu *c;
    struct tensor y, x;
    const struct op_conv *a;
    const struct op_rows *r;
};

/* Input of row `at`, counted from the first of the step: of the step, of the log, or stored. */
static const float *conv_in(const struct conv *t, const struct op_seq *s, int at, int64_t c0)
{
    const struct op_rec *rec = &t->a->rec;

    if (at >= 0)
        return cpu_row(t->x, s->row + at) + c0;
    if (at >= -s->again)
        return cpu_log_row(rec, s, at) + c0;
    return rec->data + s->slot * rec->floats + (at + s->again + op_conv_back(t->a)) * t->x.ne[0] + c0;
}

/* The memory after the last certain row, and the log. */
static void conv_keep(const struct conv *t, const struct op_seq *s, int64_t c0, int64_t n)
{
    const struct op_rec *rec = &t->a->rec;
    float *past = rec->data + s->slot * rec->floats + c0, keep[(CONV_TAPS_MAX - 1) * CONV_BLOCK];
    int old = op_conv_back(t->a);

    for (int j = 0; j < old; j++)
        memcpy(keep + j * n, conv_in(t, s, s->n - s->drafts - old + j, c0), (size_t)n * sizeof *keep);
    for (int j = 0; j < old; j++)
        memcpy(past + j * t->x.ne[0], keep + j * n, (size_t)n * sizeof *keep);
    for (int j = s->n - s->logged; j < s->n; j++)
        memcpy(cpu_log_row(rec, s, j) + c0, conv_in(t, s, j, c0), (size_t)n * sizeof *keep);
}

/* Channels c0 .. c0 + n - 1 of the i-th sequence. The window slides over the stored inputs, then the rows. */
static void conv_block(const struct conv *t, int i, int64_t c0, int64_t n)
{
    const struct op_conv *a = t->a;
    const struct op_seq *s = &t->r->seq[i];
    int64_t ch = t->x.ne[0];
    bool again = t->y.ne[1] > t->r->n;
    int apart = a->apart > 1 ? a->apart : 1;

    for (int at = again ? -s->again : 0; at < s->n; at++) {
        const float *in[CONV_TAPS_MAX];
        float *y = cpu_row(t->y, cpu_scan_row(&a->rec, t->r, i, at)) + c0;

        for (int j = 0; j < a->taps; j++)
            in[j] = conv_in(t, s, at - (a->taps - 1 - j) * apart, c0);
        t->c->kern->conv(y, in, a->w + c0, ch, a->bias == NULL ? NULL : a->bias + c0, a->taps, n);
        if (a->silu)
            t->c->kern->silu(y, y, n);
    }
    conv_keep(t, s, c0, n);
}

static void conv_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct conv *t = ctx;
    int64_t ch = t->x.ne[0], blocks = (ch + CONV_BLOCK - 1) / CONV_BLOCK;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t c0 = i % blocks * CONV_BLOCK;

        conv_block(t, (int)(i / blocks), c0, ch - c0 < CONV_BLOCK ? ch - c0 : CONV_BLOCK);
    }
}

void cpu_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct conv t = { c, y, x, a, r };
    int64_t items = r->n_seq * ((x.ne[0] + CONV_BLOCK - 1) / CONV_BLOCK);

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)CONV_BLOCK * 20 * r->n / r->n_seq, 1), conv_piece, &t);
}

struct gdn {
    const struct cpu *c;
    struct tensor y, qkv, alpha, beta;
    const struct op_gdn *a;
    const struct op_rows *r;
    struct cpu_scan_room room;
};

size_t cpu_scan_need(void *ctx, const struct op_rec *rec, int64_t block)
{
    const struct cpu *c = ctx;
    int64_t floats = block + (int64_t)CPU_SCAN_ROWS * CPU_SCAN_DIM;

    return rec->log.rows > 0 ? (size_t)(pool_size(c->pool) * floats) * sizeof(float) : 0;
}

struct cpu_scan_room cpu_scan_take(struct cpu *c, const struct op_rec *rec, int64_t block)
{
    size_t bytes = cpu_scan_need(c, rec, block);

    return (struct cpu_scan_room){ bytes > 0 ? dev_scratch_bytes(c->dev, bytes) : NULL,
                                   block + (int64_t)CPU_SCAN_ROWS * CPU_SCAN_DIM, block };
}

void cpu_l2_norm(const struct cpu *c, float *y, const float *x, int n, float eps, float s)
{
    float sum, *out = &sum;

    c->kern->dots(&out, 0, x, 0, 1, &x, 1, n);
    c->kern->scale(y, x, NULL, s / sqrtf(sum + eps), n);
}

/* Tokens at a time: their keys and queries are to stay in the first-level cache. */
enum { GDN_DIM_MAX = CPU_SCAN_DIM, GDN_ROWS = CPU_SCAN_ROWS };

/* alpha and beta of head h */
static void gdn_inputs(const struct gdn *t, const struct op_seq *s, int h, int at, float *alpha, float *beta)
{
    const float *logged = at < 0 ? cpu_log_row(&t->a->rec, s, at) : NULL;

    *alpha = at < 0 ? logged[h] : cpu_row(t->alpha, s->row + at)[h];
    *beta = at < 0 ? logged[t->a->n_v + h] : cpu_row(t->beta, s->row + at)[h];
}

/* Decays g and betas b of head h for n <= GDN_ROWS rows from `at`. */
static void gdn_gates(const struct gdn *t, const struct op_seq *s, int h, int at, int n, float *g, float *b)
{
    const struct cpu_kernels *kern = t->c->kern;
    float beta[GDN_ROWS];

    for (int i = 0; i < n; i++) {
        gdn_inputs(t, s, h, at + i, g + i, beta + i);
        g[i] += t->a->dt_bias[h];
        b[i] = 1.0f;
    }
    t->c->scan->softplus(g, g, NULL, n);
    kern->scale(g, g, NULL, t->a->a[h], n);
    kern->exp_sub(g, g, 0.0f, n);
    kern->sigmoid_mul(b, beta, n);
}

/* n <= GDN_ROWS rows of head h from `at` of the i-th sequence; waste: for results of rows that have some already. */
static void gdn_rows(const struct gdn *t, float *S, int h, int i, int at, int n, float *waste)
{
    const struct op_gdn *a = t->a;
    int hk = a->k_grouped ? h / (a->n_v / a->n_k) : h % a->n_k;
    const float *in = cpu_row(t->qkv, cpu_scan_row(&a->rec, t->r, i, at));
    float q[GDN_ROWS * GDN_DIM_MAX], k[GDN_ROWS * GDN_DIM_MAX], g[GDN_ROWS] = { 0 }, b[GDN_ROWS];
    struct cpu_gdn tokens = { at < 0 ? waste : cpu_row(t->y, t->r->seq[i].row + at) + (int64_t)h * a->dim_v,
                              k,
                              q,
                              in + (int64_t)2 * a->n_k * a->dim + (int64_t)h * a->dim_v,
                              g,
                              b,
                              at < 0 ? a->dim_v : t->y.stride,
                              t->qkv.stride,
                              n };

    gdn_gates(t, &t->r->seq[i], h, at, n, g, b);
    for (int j = 0; j < n; j++, in += t->qkv.stride) {
        cpu_l2_norm(t->c, q + j * a->dim, in + (int64_t)hk * a->dim, a->dim, a->eps, 1.0f / sqrtf((float)a->dim));
        cpu_l2_norm(t->c, k + j * a->dim, in + (int64_t)(a->n_k + hk) * a->dim, a->dim, a->eps, 1.0f);
    }
    t->c->kern->gdn(S, &tokens, a->dim, a->dim_v);
}

static void gdn_head(const struct gdn *t, int i, int h, int worker)
{
    const struct op_gdn *a = t->a;
    const struct op_seq *s = &t->r->seq[i];
    int64_t block = (int64_t)a->dim * a->dim_v;
    float *S = a->rec.data + s->slot * a->rec.floats + h * block;

    for (int at = -s->again, n; at < s->n; at += n) {
        n = cpu_scan_some(s, at, GDN_ROWS);
        if (s->drafts > 0 && at == s->n - s->drafts)
            S = memcpy(cpu_scan_copy(&t->room, worker), S, (size_t)block * sizeof *S);
        gdn_rows(t, S, h, i, at, n, cpu_scan_waste(&t->room, worker));
    }
    for (int at = s->n - s->logged; at < s->n; at++) {
        float *logged = cpu_log_row(&a->rec, s, at);

        gdn_inputs(t, s, h, at, logged + h, logged + a->n_v + h);
    }
}

static void gdn_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct gdn *t = ctx;

    for (int64_t i = begin; i < end; i++)
        gdn_head(t, (int)(i / t->a->n_v), (int)(i % t->a->n_v), worker);
}

void cpu_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
             const struct op_gdn *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct gdn t = { c, y, qkv, alpha, beta, a, r, cpu_scan_take(c, &a->rec, (int64_t)a->dim * a->dim_v) };
    int64_t items = (int64_t)r->n_seq * a->n_v;

    pool_for(c->pool, items, cpu_grain(c, items, (int64_t)a->dim * a->dim_v * 4 * r->n / r->n_seq, 1), gdn_piece, &t);
    dev_release(c->dev, mark);
}
