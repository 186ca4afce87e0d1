/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - a choice from a row's largest logits instead of the row.          room: sample
 *
 * The stages run on x as ever, but only the tokens that are known are in it. A stage that would look at a
 * logit not above `known` says that the digest is lacking; otherwise it does the same arithmetic on the
 * same numbers as with the row, so the choice is the same to the bit.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample/chain.h"

/* With edits an equal logit may belong to a token that is not known and has a lower id. */
void sample_needs(struct sampler *s, float v)
{
    if (s->sparse && !(v > s->known || (!s->edited && v >= s->known))) {
        s->lacking = true;
    }
}

/* Tokens whose logits the first stages may change; -1: too many. */
static int32_t ids_to_edit(struct sampler *s)
{
    int32_t n = 0;
    for (size_t i = 0; i < s->opts.n_bias && n < SAMPLE_WANT_IDS; i++) {
        s->want_id[n++] = s->opts.bias[i].token;
    }
    for (int32_t i = 0; i < s->counts.n && n < SAMPLE_WANT_IDS; i++) {
        s->want_id[n++] = s->counts.token[i];
    }
    if (s->dry.length && n < SAMPLE_WANT_IDS) {
        n += sample_dry_ids(s, s->want_id + n, SAMPLE_WANT_IDS - n);
    }
    return n < SAMPLE_WANT_IDS ? n : -1;
}

void sample_want(struct sampler *s, struct sample_want *w)
{
    const struct sample_opts *o = &s->opts;
    enum { SPARE = 64 }; /* edits may push some of the best down */
    int32_t n_ids = ids_to_edit(s), top;
    if (o->temp <= 0) {
        top = 1;
    } else if (o->top_k > 0) {
        top = o->top_k;
    } else {
        top = (o->top_p < 1 && n_ids == 0) || (o->top_p >= 1 && o->min_p > 0) ? SAMPLE_WANT_TOP : 0;
    }
    top = n_ids < 0 || top > SAMPLE_WANT_TOP || o->n_top > SAMPLE_WANT_TOP ? 0 : top;
    if (top > 0) {
        top += n_ids > 0 ? SPARE : 0;
        top = top > o->n_top ? top : o->n_top;
        top = top < SAMPLE_WANT_TOP ? top : SAMPLE_WANT_TOP;
    }
    s->want_top = top;
    s->n_want   = top > 0 ? n_ids : 0;
    *w = (struct sample_want){ top, o->temp > 0 ? sample_inv_temp(o) : 1, s->want_id, s->n_want };
}

static void put(struct sampler *s, int32_t token, float logit)
{
    int32_t b = token / SAMPLE_BLOCK;
    s->x[token]     = logit;
    s->block_max[b] = logit > s->block_max[b] ? logit : s->block_max[b];
}

static void wipe(struct sampler *s, int32_t token)
{
    int32_t b = token / SAMPLE_BLOCK;
    s->x[token]     = -INFINITY;
    s->block_max[b] = -INFINITY;
    s->dirty[b]     = 0;
}

/* x with nothing in it but what is known. */
static void fill(struct sampler *s, const struct sample_digest *d)
{
    if (!s->empty) {
        for (size_t i = 0; i < (size_t)s->n_blocks * SAMPLE_BLOCK; i++) {
            s->x[i] = -INFINITY;
        }
        for (int32_t b = 0; b < s->n_blocks; b++) {
            s->block_max[b] = -INFINITY;
        }
        memset(s->dirty, 0, (size_t)s->n_blocks);
    }
    for (int32_t i = 0; i < d->n_top; i++) {
        put(s, d->top[i].token, d->top[i].logprob);
    }
    for (int32_t i = 0; i < s->n_want; i++) {
        put(s, s->want_id[i], d->logits[i]);
    }
    s->known  = d->n_top < s->want_top ? -FLT_MAX : d->top[d->n_top - 1].logprob;
    s->heated = d->heated;
}

/* Takes it out again; a cut has moved candidates to the front. */
static void clear(struct sampler *s, const struct sample_digest *d)
{
    int32_t front = (d->n_top + s->n_want + SAMPLE_BLOCK) / SAMPLE_BLOCK * SAMPLE_BLOCK;
    for (int32_t i = 0; i < front && i < s->n_blocks * SAMPLE_BLOCK; i++) {
        s->x[i] = -INFINITY;
    }
    for (int32_t i = 0; i < d->n_top; i++) {
        wipe(s, d->top[i].token);
    }
    for (int32_t i = 0; i < s->n_want; i++) {
        wipe(s, s->want_id[i]);
    }
    s->empty = true;
}

static float logit_of(const struct sampler *s, const struct sample_digest *d, int32_t token)
{
    for (int32_t i = 0; i < d->n_top; i++) {
        if (d->top[i].token == token) {
            return d->top[i].logprob;
        }
    }
    for (int32_t i = 0; i < s->n_want; i++) {
        if (s->want_id[i] == token) {
            return d->logits[i];
        }
    }
    return -INFINITY;
}

enum err_code sample_next_of(struct sampler *s, const struct sample_digest *d,
                             struct sample_pick *pick, bool *enough, struct err *e)
{
    *enough = false;
    if (d->n_top == 0) {
        return err_set(e, ERR_DEVICE, "the model's output has no finite logit");
    }
    if (s->want_top == 0 || d->max >= FLT_MAX) { /* the largest float may stand for +inf */
        return ERR_OK;
    }
    fill(s, d);
    s->sparse = true;
    s->max    = d->max;
    enum err_code rc = sample_run(s, e);
    clear(s, d);
    if (rc != ERR_OK || s->lacking) {
        return rc;
    }
    double  max = (double)d->max, rest = log(d->total);
    int32_t n_top = s->opts.n_top < d->n_top ? s->opts.n_top : d->n_top;
    for (int32_t i = 0; i < n_top; i++) {
        s->top[i] = (struct sample_top){ d->top[i].token, (float)((double)d->top[i].logprob - max - rest) };
    }
    double raw = (double)logit_of(s, d, s->token);
    *pick   = (struct sample_pick){ s->token, (float)(raw - max - rest), s->top, n_top };
    *enough = true;
    return ERR_OK;
}
