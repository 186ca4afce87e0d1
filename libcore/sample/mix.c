/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - tokens to shun, and a sparse distribution mixed in, exactly.         room: sample
 *
 * p' = (1 - w Q) p + w q is, divided by 1 - w Q and in logits relative to the largest:
 * x_i' = ln(exp(x_i) + r q_i Z), r = w / (1 - w Q), Z the sum of exp(x). Logits of tokens without a
 * q stay as they are, so this is an edit of at most SAMPLE_MIX_MAX logits.
 */
#include <float.h>
#include <math.h>

#include "sample/chain.h"

enum err_code sample_stage_shun(struct sampler *s, struct err *e)
{
    (void)e;
    for (int32_t i = 0; i < s->n_shun; i++) {
        sample_forbid(s, s->shun[i]);
    }
    return ERR_OK;
}

enum err_code sample_stage_mix(struct sampler *s, struct err *e)
{
    const struct sample_mix *m = s->mix;
    const double most = 1 - 0x1p-20;
    double sum = 0;
    (void)e;
    if (!m || !(m->weight > 0)) {
        return ERR_OK;
    }
    for (int32_t i = 0; i < m->n; i++) {
        if (sample_knows(s, m->token[i]) && s->x[m->token[i]] >= -FLT_MAX) {
            sum += (double)m->q[i];
        }
    }
    double w = fmin((double)m->weight, most), r = w / (1 - w * fmin(sum, 1));
    for (int32_t i = 0; i < m->n && !s->lacking; i++) {
        double x = (double)s->x[m->token[i]] - (double)s->max;
        if (m->q[i] > 0) {
            double up = log(exp(x) + r * (double)m->q[i] * s->mass);
            sample_edit(s, m->token[i], (float)((double)s->max + up));
        }
    }
    return ERR_OK;
}

static bool in_range(double v)
{
    return v >= 0 && v <= 1;
}

enum err_code sample_with(struct sampler *s, const struct sample_mix *mix, const int32_t *shun, int32_t n_shun,
                          struct err *e)
{
    for (int32_t i = 0; i < n_shun; i++) {
        if (shun[i] < 0 || shun[i] >= s->n_vocab) {
            err_set(e, ERR_ARG, "shun: token %d is not in the vocabulary of %d", (int)shun[i], (int)s->n_vocab);
            err_at(e, "/shun/%d", (int)i);
            return ERR_ARG;
        }
    }
    if (mix && (mix->n < 0 || mix->n > SAMPLE_MIX_MAX || !in_range((double)mix->weight))) {
        err_set(e, ERR_ARG, "mix: %d tokens with weight %g", (int)mix->n, (double)mix->weight);
        err_at(e, "/mix");
        return ERR_ARG;
    }
    for (int32_t i = 0; mix && i < mix->n; i++) {
        int32_t t = mix->token[i];
        if (t < 0 || t >= s->n_vocab || !in_range((double)mix->q[i])) {
            err_set(e, ERR_ARG, "mix: token %d of %d with probability %g", (int)mix->token[i], (int)s->n_vocab,
                    (double)mix->q[i]);
            err_at(e, "/mix/token/%d", (int)i);
            return ERR_ARG;
        }
    }
    s->mix = mix;
    s->shun = shun;
    s->n_shun = n_shun;
    return ERR_OK;
}
