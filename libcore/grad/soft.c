/* SPDX-License-Identifier: Apache-2.0 */
/* soft.c - what a model says after a token, noted, and the divergence from it. */
#include <math.h>

#include "grad/grad.h"

/* The likeliest, in descending order, by insertion: few of many pass the last one. */
static int likeliest(int32_t *id, const float *logits, int32_t n)
{
    int have = 0;

    for (int32_t i = 0; i < n; i++) {
        int at = have;

        if (have == GRAD_SOFT && !(logits[i] > logits[id[have - 1]]))
            continue;
        have += have < GRAD_SOFT;
        at = at == GRAD_SOFT ? at - 1 : at;
        for (; at > 0 && logits[i] > logits[id[at - 1]]; at--)
            id[at] = id[at - 1];
        id[at] = i;
    }
    return have;
}

static double sum_of(const float *logits, int32_t n, float top)
{
    double sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - top);
    return sum;
}

void grad_soft_of(struct grad_soft *to, const float *logits, int32_t n)
{
    const int have = likeliest(to->id, logits, n);
    const float top = logits[to->id[0]];
    const double sum = sum_of(logits, n, top);

    for (int i = 0; i < GRAD_SOFT; i++) {
        if (i >= have)
            to->id[i] = -1;
        to->p[i] = i < have ? (float)((double)expf(logits[to->id[i]] - top) / sum) : 0.0f;
    }
}

double grad_divergence(const struct grad_soft *want, float *logits, int32_t n, float weight)
{
    double sum, loss = 0, p_rest = 1, q_rest = 1, q[GRAD_SOFT];
    float top = logits[0], each;
    int have = 0;

    for (int32_t i = 1; i < n; i++)
        top = logits[i] > top ? logits[i] : top;
    sum = sum_of(logits, n, top);
    for (; have < GRAD_SOFT && want->id[have] >= 0; have++) {
        const double p = (double)want->p[have];

        q[have] = exp((double)(logits[want->id[have]] - top)) / sum;
        p_rest -= p;
        q_rest -= q[have];
        if (p > 0)
            loss += p * (log(p) - ((double)(logits[want->id[have]] - top) - log(sum)));
    }
    p_rest = p_rest > 0 && have < n ? p_rest : 0;
    q_rest = q_rest > 1e-12 ? q_rest : 1e-12;
    if (p_rest > 0)
        loss += p_rest * log(p_rest / q_rest);
    each = (float)((double)weight * (1 - p_rest / q_rest) / sum);
    for (int32_t i = 0; i < n; i++)
        logits[i] = each * expf(logits[i] - top);
    for (int i = 0; i < have; i++)
        logits[want->id[i]] = (float)((double)weight * (q[i] - (double)want->p[i]));
    return (double)weight * loss;
}
