/* SPDX-License-Identifier: Apache-2.0 */
/* top.c - the best logits of a row and its sums. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { SUMS = 4 }; /* total, heated, weighted, squared */

struct top {
    const struct cpu *c;
    unsigned char *out;
    struct tensor logits;
    const struct op_top *a;
    double *sums; /* of each worker: SUMS for each block */
    int32_t n, n_blocks;
};

/* Block b of a row, as the sums take it; returns its largest. */
static float block_of(const struct top *t, const float *x, const uint32_t *mask, int32_t b, float *clean)
{
    float in[SOFTMAX_BLOCK];
    int32_t left = t->n - b * SOFTMAX_BLOCK;

    if (mask == NULL && left >= SOFTMAX_BLOCK)
        return t->c->soft->scan(x + b * SOFTMAX_BLOCK, clean);
    for (int32_t i = 0; i < SOFTMAX_BLOCK; i++) {
        int32_t at = b * SOFTMAX_BLOCK + i;

        in[i] = i < left && (mask == NULL || mask[at / 32] >> at % 32 & 1) ? x[at] : -INFINITY;
    }
    return t->c->soft->scan(in, clean);
}

/* Keeps the k best in order; ids come ascending, so an equal logit stays behind. */
static int32_t insert_logit(struct logits_entry *e, int32_t n, int32_t k, int32_t id, float v)
{
    int32_t i = n < k ? n : k;

    if (n >= k && !(v > e[k - 1].logit))
        return n;
    for (i = n < k ? n : k - 1; i > 0 && v > e[i - 1].logit; i--)
        e[i] = e[i - 1];
    e[i] = (struct logits_entry){ id, v };
    return n < k ? n + 1 : n;
}

static void sum_up(const struct top *t, const float *x, const uint32_t *mask, float inv_temp, double *sum,
                   struct op_top_row *to)
{
    const struct softmax_kernels *soft = t->c->soft;
    float clean[SOFTMAX_BLOCK], w[SOFTMAX_BLOCK], heated[SOFTMAX_BLOCK];

    for (int32_t b = 0; b < t->n_blocks; b++) {
        (void)block_of(t, x, mask, b, clean);
        soft->weigh(clean, w, to->max, 1);
        sum[b] = sum[t->n_blocks + b] = soft->sum(w);
        if (inv_temp < 1 || inv_temp > 1) {
            soft->weigh(clean, heated, to->max, inv_temp);
            sum[t->n_blocks + b] = soft->sum(heated);
        }
        sum[2 * t->n_blocks + b] = soft->moments(clean, w, to->max, &sum[3 * t->n_blocks + b]);
    }
    to->total = softmax_fold(sum, t->n_blocks);
    to->heated = softmax_fold(sum + t->n_blocks, t->n_blocks);
    to->weighted = softmax_fold(sum + 2 * t->n_blocks, t->n_blocks);
    to->squared = softmax_fold(sum + 3 * t->n_blocks, t->n_blocks);
}

/* Of the row without its mask. */
static void sum_raw(const struct top *t, const float *x, double *sum, struct op_top_row *to)
{
    float clean[SOFTMAX_BLOCK], w[SOFTMAX_BLOCK];

    to->raw_max = -INFINITY;
    for (int32_t b = 0; b < t->n_blocks; b++) {
        float best = block_of(t, x, NULL, b, clean);

        to->raw_max = best > to->raw_max ? best : to->raw_max;
    }
    for (int32_t b = 0; b < t->n_blocks && to->raw_max > -INFINITY; b++) {
        (void)block_of(t, x, NULL, b, clean);
        t->c->soft->weigh(clean, w, to->raw_max, 1);
        sum[b] = t->c->soft->sum(w);
    }
    to->raw_total = to->raw_max > -INFINITY ? softmax_fold(sum, t->n_blocks) : 0;
}

static void top_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct top *t = ctx;

    for (int64_t r = begin; r < end; r++) {
        struct op_top_row *to = (void *)(t->out + (size_t)r * op_top_bytes(t->a));
        struct logits_entry *entry = (void *)(to + 1);
        float *asked = (void *)(entry + t->a->k), clean[SOFTMAX_BLOCK];
        const float *x = cpu_row(t->logits, r);
        const uint32_t *mask = t->a->mask != NULL ? t->a->mask[r] : NULL;
        double *sum = t->sums + (int64_t)worker * SUMS * t->n_blocks;
        int32_t n = 0;

        *to = (struct op_top_row){ .max = -INFINITY, .raw_max = -INFINITY };
        for (int32_t b = 0; b < t->n_blocks; b++) {
            float best = block_of(t, x, mask, b, clean);

            if (n == t->a->k && !(best > entry[n - 1].logit))
                continue;
            for (int i = 0; i < SOFTMAX_BLOCK; i++)
                if (clean[i] > -INFINITY)
                    n = insert_logit(entry, n, t->a->k, b * SOFTMAX_BLOCK + i, clean[i]);
        }
        to->n = n;
        memset(entry + n, 0, (size_t)(t->a->k - n) * sizeof *entry);
        for (int i = 0; i < t->a->n_ids; i++) {
            int32_t id = t->a->ids[r * t->a->n_ids + i];

            clean[0] = -INFINITY;
            if (id >= 0)
                (void)block_of(t, x, mask, id / SOFTMAX_BLOCK, clean);
            asked[i] = id >= 0 ? clean[id % SOFTMAX_BLOCK] : -INFINITY;
        }
        if (n > 0) {
            to->max = entry[0].logit;
            sum_up(t, x, mask, t->a->inv_temp[r], sum, to);
        }
        to->raw_max = to->max;
        to->raw_total = to->total;
        if (mask != NULL)
            sum_raw(t, x, sum, to);
    }
}

size_t cpu_top_need(void *ctx, struct tensor logits)
{
    const struct cpu *c = ctx;
    int64_t n_blocks = (logits.ne[0] + SOFTMAX_BLOCK - 1) / SOFTMAX_BLOCK;

    return (size_t)pool_size(c->pool) * (size_t)n_blocks * SUMS * sizeof(double) + 64;
}

void cpu_top(void *ctx, void *out, struct tensor logits, const struct op_top *a)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct top t = { c, out, logits, a, dev_scratch_bytes(c->dev, cpu_top_need(c, logits)), (int32_t)logits.ne[0], 0 };

    if (a->masks != NULL)
        a->masks(a->ctx);
    t.n_blocks = (t.n + SOFTMAX_BLOCK - 1) / SOFTMAX_BLOCK;
    pool_for(c->pool, logits.ne[1], 1, top_piece, &t);
    dev_release(c->dev, mark);
}
