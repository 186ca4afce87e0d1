/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - which blocks of keys attention takes: an indexer's keys, their scores, the best. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

struct index {
    const struct cpu *c;
    struct tensor x; /* keys or queries of the rows */
    const struct op_kv *kv;
    const struct op_index *a;
    const struct op_rows *r;
    int32_t *pick;
    float *buf;
    int64_t buf_floats; /* of each worker */
};

static void put_key(const struct op_kv *kv, int slot, int64_t pos, const float *k)
{
    quant_types[kv->type_x]->encode(cpu_index_at(kv, slot, pos), k, kv->dim_x, NULL);
}

/* The key of the block that ends at position `end`, whose rows are those of its positions, in the place of the last. */
static void end_block(const struct index *t, int slot, int64_t end)
{
    enum { DIM_MAX = 1024 };
    const struct op_kv *kv = t->kv;
    const struct op_index *a = t->a;
    const struct cpu_kernels *kern = t->c->kern;
    int64_t dim = kv->dim_x, first = end - a->ratio + 1;
    float sum[DIM_MAX], one[DIM_MAX], squares, *out = &squares;
    const float *of = sum;
    const int32_t pos = (int32_t)first;
    struct tensor row = { .type = QUANT_f32, .ne = { dim, 1, 1 }, .stride = dim, .data = sum };

    memset(sum, 0, (size_t)dim * sizeof *sum);
    for (int64_t i = first; i <= end; i++) {
        quant_types[kv->type_x]->decode(one, cpu_index_at(kv, slot, i), dim);
        kern->axpy(sum, one, 1.0f, dim);
    }
    kern->scale(sum, sum, NULL, 1.0f / (float)a->ratio, dim);
    kern->dots(&out, 0, of, 0, 1, &of, 1, dim);
    kern->scale(sum, sum, a->norm, 1.0f / sqrtf(squares / (float)dim + a->eps), dim);
    cpu_rope_rows(row, &a->rope, &pos, 0, 1);
    put_key(kv, slot, end, sum);
}

static void store_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct index *t = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct op_seq *s = &t->r->seq[i];

        for (int j = 0; j < s->n; j++) {
            put_key(t->kv, s->slot, s->pos + j, cpu_row(t->x, s->row + j));
            if ((s->pos + j + 1) % t->a->ratio == 0)
                end_block(t, s->slot, s->pos + j);
        }
    }
}

void cpu_index_store(void *ctx, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                     const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct index t = { .c = c, .x = k, .kv = kv, .a = a, .r = r };

    pool_for(c->pool, r->n_seq, 1, store_piece, &t);
}

/* scores[b] for the first n blocks; one: room for n_head scores of the blocks of a page. */
static void score_blocks(const struct index *t, int slot, const float *query, float *scores, int64_t n, float *one)
{
    enum { HEADS = 16 };
    const struct op_kv *kv = t->kv;
    const int64_t ratio = t->a->ratio, dim = kv->dim_x, bytes = quant_row_bytes(kv->type_x, dim);

    for (int64_t b = 0, some; b < n && !cpu_stopped(t->c); b += some) {
        int64_t end = (b + 1) * ratio - 1, left = (OP_KV_PAGE - end % OP_KV_PAGE + ratio - 1) / ratio;
        const unsigned char *keys = cpu_index_at(kv, slot, end);

        some = n - b < left ? n - b : left;
        memset(scores + b, 0, (size_t)some * sizeof *scores);
        for (int h = 0; h < t->a->n_head; h += HEADS) {
            int heads = t->a->n_head - h < HEADS ? t->a->n_head - h : HEADS;
            const float *q[HEADS];
            float *y[HEADS];

            for (int j = 0; j < heads; j++) {
                q[j] = query + (h + j) * dim;
                y[j] = one + j * OP_KV_PAGE;
            }
            if (kv->type_x == QUANT_f32)
                t->c->kern->dots(y, 0, (const void *)keys, ratio * dim, (int)some, q, heads, dim);
            else
                t->c->kern->dots_half(y, 0, (const void *)keys, ratio * bytes / 2, (int)some, q, heads, dim);
            for (int j = 0; j < heads; j++)
                for (int64_t i = 0; i < some; i++)
                    scores[b + i] += y[j][i] > 0.0f ? y[j][i] : 0.0f;
        }
    }
}

static uint32_t bits_of(float v)
{
    uint32_t u;

    memcpy(&u, &v, sizeof u);
    return u;
}

/* The `most` best of n scores, which are not negative: their bits have their order. The smallest that is taken is found
 * byte by byte; of those that equal it the first ones are taken. */
static void pick_best(int32_t *pick, int most, const float *scores, int64_t n)
{
    uint32_t least = 0;
    int64_t need = most, at = 0;

    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = { 0 };
        int byte = 255;

        for (int64_t b = 0; b < n; b++) {
            uint32_t u = bits_of(scores[b]);

            if (shift == 24 || u >> (shift + 8) == least >> (shift + 8))
                count[u >> shift & 255]++;
        }
        while (byte > 0 && count[byte] < need)
            need -= count[byte--];
        least |= (uint32_t)byte << shift;
    }
    for (int64_t b = 0; b < n; b++) {
        uint32_t u = bits_of(scores[b]);

        if (u > least || (u == least && need-- > 0))
            pick[at++] = (int32_t)b;
        if (at == most)
            return;
    }
}

static void pick_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct index *t = ctx;
    const struct op_seq *s = t->r->seq;
    float *one = t->buf + worker * t->buf_floats, *scores = one + 16 * OP_KV_PAGE;
    int64_t at = 0;

    for (int64_t i = begin; i < end; i++) {
        while (i - at >= s->n)
            at += s++->n;
        int row = s->row + (int)(i - at);
        int64_t n = (s->pos + (i - at) + 1) / t->a->ratio;

        score_blocks(t, s->slot, cpu_row(t->x, row), scores, n, one);
        pick_best(t->pick + (int64_t)row * t->a->most, t->a->most, scores, n);
    }
}

static int64_t worker_floats(const struct op_index *a, const struct op_rows *r)
{
    int64_t most = 0;

    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n) / a->ratio;

        most = n > most ? n : most;
    }
    return 16 * OP_KV_PAGE + most;
}

size_t cpu_index_need(void *ctx, const struct op_kv *kv, const struct op_index *a, const struct op_rows *r)
{
    const struct cpu *c = ctx;

    (void)kv;
    return (size_t)pool_size(c->pool) * (size_t)worker_floats(a, r) * sizeof(float) + 64;
}

void cpu_index_pick(void *ctx, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct index t = {
        c, q, kv, a, r, pick, dev_scratch_bytes(c->dev, cpu_index_need(c, kv, a, r)), worker_floats(a, r)
    };
    int64_t n = 0;

    for (int i = 0; i < r->n_seq; i++)
        n += r->seq[i].n;
    pool_for(c->pool, n, cpu_grain(c, n, 2 * t.buf_floats * a->n_head * kv->dim_x, 1), pick_piece, &t);
    dev_release(c->dev, mark);
}
