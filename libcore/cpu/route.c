/* SPDX-License-Identifier: Apache-2.0 */
/* route.c - the router of a mixture of experts. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

struct route {
    const struct cpu *c;
    int32_t *expert;
    struct tensor weight, logits;
    const struct op_route *a;
    float *scratch; /* two rows of n_expert for each worker */
};

/* Probabilities of all experts, and the score each is chosen by. */
static void score_row(const struct cpu_kernels *kern, const float *logits, float *prob, float *score,
                      const struct op_route *a)
{
    float sum;

    if (a->sigmoid) {
        for (int i = 0; i < a->n_expert; i++)
            prob[i] = 1.0f;
        kern->sigmoid_mul(prob, logits, a->n_expert);
    } else {
        memcpy(prob, logits, (size_t)a->n_expert * sizeof *prob);
        (void)kern->softmax(prob, 1.0f, &sum, a->n_expert);
        for (int i = 0; i < a->n_expert; i++)
            prob[i] /= sum;
    }
    /* a softmax is chosen by its logits: rounding of the quotient cannot make ties */
    for (int i = 0; i < a->n_expert; i++)
        score[i] = (a->sigmoid ? prob[i] : logits[i]) + (a->bias == NULL ? 0.0f : a->bias[i]);
}

/* Best of scores [n] above `below` in the order (score descending, index ascending): the next after
 * (last_score, last). -1 when there is none. */
static int next_best(const float *score, int n, float last_score, int last)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        bool left = last < 0 || score[i] < last_score || (score[i] == last_score && i > last);

        if (left && score[i] > -INFINITY && (best < 0 || score[i] > score[best]))
            best = i;
    }
    return best;
}

/* Keeps the n_group_used groups whose two best scores add up highest (DeepSeek-V3, 2024). */
static void mask_groups(float *score, const struct op_route *a)
{
    int per = a->n_expert / a->n_group;
    float total[OP_GROUPS_MAX];
    bool keep[OP_GROUPS_MAX] = { false };

    for (int g = 0; g < a->n_group; g++) {
        const float *s = score + g * per;
        int first = next_best(s, per, 0.0f, -1);
        int second = first < 0 ? -1 : next_best(s, per, s[first], first);

        total[g] = first < 0 ? -INFINITY : s[first] + (second < 0 ? 0.0f : s[second]);
    }
    for (int k = 0, last = -1; k < a->n_group_used; k++) {
        last = next_best(total, a->n_group, last < 0 ? 0.0f : total[last], last);
        if (last < 0)
            break;
        keep[last] = true;
    }
    for (int g = 0; g < a->n_group; g++)
        for (int i = 0; !keep[g] && i < per; i++)
            score[g * per + i] = -INFINITY;
}

static void route_row(const struct route *t, int64_t row, float *scratch)
{
    const struct op_route *a = t->a;
    const float *logits = cpu_row(t->logits, row);
    int32_t *expert = t->expert + row * a->n_used;
    float *weight = cpu_row(t->weight, row), *prob = scratch, *score = scratch + a->n_expert, sum = 0.0f;
    int last = -1;

    score_row(t->c->kern, logits, prob, score, a);
    if (a->n_group > 1)
        mask_groups(score, a);
    for (int k = 0; k < a->n_used; k++) {
        int best = next_best(score, a->n_expert, last < 0 ? 0.0f : score[last], last);

        /* only when scores are not numbers: any experts will do, but they must exist */
        last = best < 0 ? -1 : best;
        expert[k] = best < 0 ? k : best;
        weight[k] = prob[expert[k]];
        sum += weight[k];
    }
    for (int k = 0; k < a->n_used; k++) {
        if (a->normalise)
            weight[k] /= sum > 0x1p-14f ? sum : 0x1p-14f;
        weight[k] *= a->scale;
    }
}

static void route_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct route *t = ctx;

    for (int64_t r = begin; r < end; r++)
        route_row(t, r, t->scratch + (int64_t)worker * 2 * t->a->n_expert);
}

size_t cpu_route_need(void *ctx, struct tensor logits)
{
    const struct cpu *c = ctx;

    return (size_t)pool_size(c->pool) * 2 * (size_t)logits.ne[0] * sizeof(float) + 64;
}

void cpu_route(void *ctx, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a)
{
    struct cpu *c = ctx;
    size_t mark = dev_mark(c->dev);
    struct route t = { c, expert, weight, logits, a, dev_scratch_bytes(c->dev, cpu_route_need(c, logits)) };

    pool_for(c->pool, logits.ne[1], cpu_grain(c, logits.ne[1], (int64_t)a->n_expert * (a->n_used + 8), 1), route_piece,
             &t);
    dev_release(c->dev, mark);
}
