/* SPDX-License-Identifier: Apache-2.0 */
/* certainty.c - how certain a model is of its answer, from the numbers of tokens.     room: reason */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "reason/reason.h"
#include "text/text.h"

enum {
    ANSWER_BYTES = 1024, /* of a trial answer that are compared */
    EAT_PROBES_LEAST = 4,
    ABF_WINDOW = 32, /* tokens */
    GRACE_MAX = 64,
};

#define EAT_ALPHA    0.2
#define EAT_MEAN_MAX 0.5 /* nats: an entropy that has settled above it says that the model does not know */

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

struct reason_judge reason_judge_of(const struct reason_opts *o, int32_t n_vocab)
{
    return (struct reason_judge){ .rule = o->rule,
                                  .threshold = o->threshold,
                                  .n_vocab = n_vocab,
                                  .eat = { .alpha = EAT_ALPHA },
                                  .same = { .k = o->rule == REASON_RULE_SAME ? (int)o->threshold : 1 },
                                  .abf = { .window = ABF_WINDOW },
                                  .certainty = NAN,
                                  .trial_certainty = NAN };
}

/* Adds the text of a trial answer, without blanks around it. */
static void add_answer(struct reason_same *same, const struct text *t, const struct gen_seen *s, int n)
{
    char text[ANSWER_BYTES];
    struct str answer = { text, 0 };

    for (int i = 0; i < n; i++) {
        const struct str piece = text_piece(t, s[i].token);
        const size_t room = sizeof text - answer.n, bytes = piece.n < room ? piece.n : room;

        memcpy(text + answer.n, piece.p, bytes);
        answer.n += bytes;
    }
    while (answer.n > 0 && strchr(" \n", answer.p[answer.n - 1]) != NULL)
        answer.n--;
    while (answer.n > 0 && strchr(" \n", *answer.p) != NULL)
        answer.p++, answer.n--;
    reason_same_add(same, answer);
}

bool reason_judge_trial(struct reason_judge *j, const struct text *t, const struct gen_seen *s, int n)
{
    struct reason_trial trial;

    if (n > 0 && text_is_end(t, s[n - 1].token))
        n--;
    trial = reason_trial_of(s, n, j->n_vocab);
    j->trial_certainty = trial.cgrs;
    if (j->rule == REASON_RULE_SAME) {
        add_answer(&j->same, t, s, n);
        j->certainty = reason_same_index(&j->same);
        return reason_same_all(&j->same);
    }
    if (j->rule == REASON_RULE_ABF)
        return false;
    j->certainty = j->rule == REASON_RULE_CGR ? trial.cgr : j->rule == REASON_RULE_DEER ? trial.deer : trial.cgrs;
    return j->rule != REASON_RULE_NONE && j->certainty >= j->threshold;
}

bool reason_judge_peek(struct reason_judge *j, float entropy)
{
    const struct gen_seen row = { .entropy = entropy };

    reason_eat_add(&j->eat, entropy);
    j->certainty = j->trial_certainty = reason_trial_of(&row, 1, j->n_vocab).cgrs;
    return reason_eat_settled(&j->eat, (double)j->threshold, EAT_PROBES_LEAST, EAT_MEAN_MAX);
}

bool reason_judge_token(struct reason_judge *j, float p_max, float entropy)
{
    if (j->rule != REASON_RULE_ABF)
        return false;
    j->certainty = reason_abf_add(&j->abf, p_max, entropy, j->n_vocab);
    return j->abf.n >= j->abf.window && j->certainty >= j->threshold;
}

int64_t reason_grace_of(const struct reason_opts *o, int64_t budget)
{
    const int64_t eighth = budget / 8;
    const int64_t grace = o->grace_tokens >= 0 ? o->grace_tokens : eighth < GRACE_MAX ? eighth : GRACE_MAX;

    return grace < budget ? grace : budget;
}
