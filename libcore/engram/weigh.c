/* SPDX-License-Identifier: Apache-2.0 */
/* weigh.c - shares of experts.                                                 room: engram */
#include "engram/weigh.h"

/* The model's own share is small, since a table must win at once where a text begins as the table's does. */
static const struct engram_trust first = { 0.125, { 0.78, 0.07, 0.025 }, 0 };

struct engram_trust engram_trust_begin(void)
{
    return first;
}

float engram_trust_weight(const struct engram_trust *t, const float w[ENGRAM_STRENGTHS])
{
    double sum = 0;

    for (int i = 0; i < ENGRAM_STRENGTHS; i++)
        sum += t->strength[i] * (double)w[i];
    return (float)sum;
}

void engram_trust_learn(struct engram_trust *t, const float w[ENGRAM_STRENGTHS], double p, double q, double mass)
{
    const double least = 1e-30, again = 1 / ((double)(t->n + 2) * (double)(t->n + 2));
    double sum = t->alone;

    p = p > least ? p : least;
    for (int i = 0; i < ENGRAM_STRENGTHS; i++)
        sum += t->strength[i] *= 1 - (double)w[i] * mass + (double)w[i] * q / p;
    t->alone = (1 - again) * t->alone / sum + again * first.alone;
    for (int i = 0; i < ENGRAM_STRENGTHS; i++)
        t->strength[i] = (1 - again) * t->strength[i] / sum + again * first.strength[i];
    t->n++;
}

void engram_trust_settle(struct engram_trust *t)
{
    const double others = 1 - t->alone;

    t->n = 0;
    if (t->alone >= first.alone)
        return;
    t->alone = first.alone;
    for (int i = 0; i < ENGRAM_STRENGTHS; i++)
        t->strength[i] *= (1 - first.alone) / others;
}
