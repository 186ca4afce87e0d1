/* SPDX-License-Identifier: Apache-2.0 */
/* attn.c - the KV cache and attention.
 *
 * Attention takes keys in blocks of one page (OP_KV_PAGE positions, aligned). Within a block: scores,
 * their maximum m, weights exp(s - m), their sum l, and the weighted sum o of the values, positions
 * ascending. Blocks are merged in ascending order: with M = max(m, m_b),
 *   l = l exp(m - M) + l_b exp(m_b - M), o likewise (Milakov & Gimelshein 2018). */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

/* Where the key (value) of head h at position pos lives. */
static unsigned char *kv_at(const struct op_kv *kv, int slot, int64_t pos, int h, bool value)
{
    int64_t k_bytes = quant_row_bytes(kv->type_k, kv->dim_k);
    int64_t v_bytes = quant_row_bytes(kv->type_v, kv->dim_v);
    unsigned char *page = kv->page[slot][pos / OP_KV_PAGE];
    int64_t row = (int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE;

    return value ? page + (int64_t)kv->n_head * OP_KV_PAGE * k_bytes + row * v_bytes : page + row * k_bytes;
}

struct store {
    struct tensor         k, v;
    const struct op_kv   *kv;
    const struct op_rows *r;
};

static void store_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct store *t = ctx;
    const struct op_kv *kv = t->kv;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i];

        for (int j = s->row; j < s->row + s->n; j++)
            for (int h = 0; h < kv->n_head; h++) {
                int64_t pos = s->pos + (j - s->row);

                quant_types[kv->type_k]->encode(kv_at(kv, s->slot, pos, h, false),
                                                cpu_row(t->k, j) + (int64_t)h * kv->dim_k, kv->dim_k, NULL);
                quant_types[kv->type_v]->encode(kv_at(kv, s->slot, pos, h, true),
                                                cpu_row(t->v, j) + (int64_t)h * kv->dim_v, kv->dim_v, NULL);
            }
    }
}

void cpu_kv_store(void *ctx, struct tensor k, struct tensor v, const struct op_kv *kv,
                  const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct store t = { k, v, kv, r };

    pool_for(c->pool, r->n_seq, 1, store_piece, &t);
}

/* Row r's sequence, found once for all rows. */
struct attn {
    const struct cpu     *c;
    struct tensor         y, q;
    const struct op_kv   *kv;
    float                 scale;
    const struct op_rows *r;
    int                   group; /* query heads for each KV head */
    float                *buf;
    int64_t               buf_floats; /* of each worker */
};

/* Scratch of a worker: one decoded key or value panel, scores, block result, and the heads' m and l. */
static int64_t worker_floats(const struct op_kv *kv, int group)
{
    int64_t dim = kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v;

    return CPU_PANEL * dim + (int64_t)group * (OP_KV_PAGE + 2 * kv->dim_v + 2);
}

/* Keys or values of head h, positions pos .. pos + n - 1 within a page, as float rows. */
static const float *panel(const struct attn *t, int slot, int64_t pos, int n, int h, bool value, float *buf)
{
    const unsigned char *at = kv_at(t->kv, slot, pos, h, value);
    int type = value ? t->kv->type_v : t->kv->type_k, dim = value ? t->kv->dim_v : t->kv->dim_k;
    int64_t bytes = quant_row_bytes(type, dim);

    if (type == QUANT_f32)
        return (const float *)(const void *)at;
    for (int i = 0; i < n; i++)
        t->c->decode[type](buf + i * dim, at + i * bytes, dim);
    return buf;
}

/* One query row, the query heads of one KV head. */
static void attend(const struct attn *t, const struct op_seq *s, int row, int h, float *buf)
{
    const struct op_kv *kv = t->kv;
    const struct cpu_kernels *kern = t->c->kern;
    int64_t dim = kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v, n_pos = s->pos + (row - s->row) + 1;
    int group = t->group;
    float *score = buf + CPU_PANEL * dim, *o = score + group * OP_KV_PAGE, *ob = o + group * kv->dim_v;
    float *m = ob + group * kv->dim_v, *l = m + group;
    const float *q = cpu_row(t->q, row) + (int64_t)h * group * kv->dim_k;

    memset(o, 0, (size_t)group * (size_t)kv->dim_v * sizeof *o);
    for (int g = 0; g < group; g++) {
        m[g] = -INFINITY;
        l[g] = 0.0f;
    }
    for (int64_t p0 = 0; p0 < n_pos; p0 += OP_KV_PAGE) {
        int n = n_pos - p0 < OP_KV_PAGE ? (int)(n_pos - p0) : OP_KV_PAGE;

        for (int i = 0; i < n; i += CPU_PANEL) {
            int np = n - i < CPU_PANEL ? n - i : CPU_PANEL;
            const float *k = panel(t, s->slot, p0 + i, np, h, false, buf);

            for (int g = 0; g < group; g++) {
                const float *qg = q + (int64_t)g * kv->dim_k;
                float *sg = score + g * OP_KV_PAGE;

                kern->dots(&sg, i, k, kv->dim_k, np, &qg, 1, kv->dim_k);
            }
        }
        for (int g = 0; g < group; g++) {
            float *sg = score + g * OP_KV_PAGE, mb = -INFINITY, lb = 0.0f;

            kern->scale(sg, sg, NULL, t->scale, n);
            for (int i = 0; i < n; i++)
                mb = sg[i] > mb ? sg[i] : mb;
            kern->exp_sub(sg, sg, mb, n);
            for (int i = 0; i < n; i++)
                lb += sg[i];
            float top = mb > m[g] ? mb : m[g], old = expf(m[g] - top), fresh = expf(mb - top);

            l[g] = l[g] * old + lb * fresh;
            m[g] = top;
            /* the value weights carry the block's factor, so that merging is one blend */
            memset(ob + g * kv->dim_v, 0, (size_t)kv->dim_v * sizeof *ob);
            kern->scale(o + g * kv->dim_v, o + g * kv->dim_v, NULL, old, kv->dim_v);
            kern->scale(sg, sg, NULL, fresh, n);
        }
        for (int i = 0; i < n; i += CPU_PANEL) {
            int np = n - i < CPU_PANEL ? n - i : CPU_PANEL;
            const float *v = panel(t, s->slot, p0 + i, np, h, true, buf);

            for (int g = 0; g < group; g++)
                for (int j = 0; j < np; j++)
                    kern->axpy(ob + g * kv->dim_v, v + j * kv->dim_v, score[g * OP_KV_PAGE + i + j],
                               kv->dim_v);
        }
        for (int g = 0; g < group; g++)
            kern->axpy(o + g * kv->dim_v, ob + g * kv->dim_v, 1.0f, kv->dim_v);
    }
    for (int g = 0; g < group; g++)
        kern->scale(cpu_row(t->y, row) + ((int64_t)h * group + g) * kv->dim_v, o + g * kv->dim_v, NULL,
                    1.0f / l[g], kv->dim_v);
}

static void attn_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct attn *t = ctx;

    for (int64_t i = begin; i < end; i++) {
        int row = (int)(i / t->kv->n_head), h = (int)(i % t->kv->n_head);
        const struct op_seq *s = t->r->seq;

        while (row >= s->row + s->n)
            s++;
        attend(t, s, row, h, t->buf + worker * t->buf_floats);
    }
}

size_t cpu_attn_need(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv)
{
    const struct cpu *c = ctx;
    int group = (int)(q.ne[0] / kv->dim_k) / kv->n_head;

    (void)y;
    return (size_t)pool_size(c->pool) * (size_t)worker_floats(kv, group) * sizeof(float) + 64;
}

void cpu_attn(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
              const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct attn t = { c, y, q, kv, scale, r, (int)(q.ne[0] / kv->dim_k) / kv->n_head,
                      dev_scratch_bytes(c->dev, cpu_attn_need(c, y, q, kv)), 0 };

    t.buf_floats = worker_floats(kv, t.group);
    pool_for(c->pool, (int64_t)r->n * kv->n_head, 1, attn_piece, &t);
    dev_release(c->dev, mark);
}
