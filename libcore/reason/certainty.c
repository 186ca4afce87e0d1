/* SPDX-License-Identifier: Apache-2.0 */
/* certainty.c - how certain a model is of its answer, from the numbers of tokens.     room: reason */
#include <math.h>

#include "base/io.h"
#include "reason/reason.h"

void reason_eat_add(struct reason_eat *m, float entropy)
{
    const double h = (double)entropy;

    if (m->n++ == 0) {
        m->mean = h;
        m->variance = 0;
        return;
    }
    m->mean = m->alpha * h + (1 - m->alpha) * m->mean;
    m->variance = m->alpha * (h - m->mean) * (h - m->mean) + (1 - m->alpha) * m->variance;
}

bool reason_eat_settled(const struct reason_eat *m, double variance_below, int64_t least, double mean_at_most)
{
    return m->n > 0 && m->n >= least && m->variance < variance_below && m->mean <= mean_at_most;
}

static float share_of_certainty(double entropies, int n, int32_t n_vocab)
{
    const double most = log((double)n_vocab);

    return most > 0 ? (float)(1 - entropies / n / most) : 1;
}

struct reason_trial reason_trial_of(const struct gen_seen *token, int n, int32_t n_vocab)
{
    struct reason_trial t = { .cgr = n > 0 };
    double logs = 0, entropies = 0;

    for (int i = 0; i < n; i++) {
        t.cgr = token[i].p_max < t.cgr ? token[i].p_max : t.cgr;
        logs += log((double)token[i].p_max);
        entropies += (double)token[i].entropy;
    }
    if (n > 0) {
        t.deer = (float)exp(logs / n);
        t.cgrs = share_of_certainty(entropies, n, n_vocab);
    }
    return t;
}

void reason_same_add(struct reason_same *s, struct str answer)
{
    const uint64_t hash = io_hash(0, answer.p, answer.n);

    s->last[s->n++ % s->k] = answer.n == 0 ? 0 : hash == 0 ? 1 : hash;
}

float reason_same_index(const struct reason_same *s)
{
    double entropy = 0;

    if (s->n < s->k)
        return NAN;
    for (int i = 0; i < s->k; i++) {
        int equal = 0;

        for (int j = 0; j < s->k; j++)
            equal += s->last[i] == s->last[j];
        entropy -= log((double)equal / s->k) / s->k;
    }
    return s->k > 1 ? (float)(1 - entropy / log(s->k)) : 1;
}

bool reason_same_all(const struct reason_same *s)
{
    bool all = s->n >= s->k && s->last[0] != 0;

    for (int i = 1; i < s->k; i++)
        all = all && s->last[i] == s->last[0];
    return all;
}

float reason_abf_add(struct reason_abf *a, float p_max, float entropy, int32_t n_vocab)
{
    const int64_t from = a->n + 1 > a->window ? a->n + 1 - a->window : 0;
    double p = 0, entropies = 0;
    int n;

    a->p_max[a->n % a->window] = p_max;
    a->entropy[a->n % a->window] = entropy;
    a->n++;
    n = (int)(a->n - from);
    for (int64_t i = from; i < a->n; i++) {
        p += (double)a->p_max[i % a->window];
        entropies += (double)a->entropy[i % a->window];
    }
    return (float)(0.625 * p / n + 0.375 * (double)share_of_certainty(entropies, n, n_vocab));
}
