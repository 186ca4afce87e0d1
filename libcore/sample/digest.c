/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - a choice from a row's largest logits instead of the row.          room: sample
 *
 * The stages run on x as ever, but only the tokens that are known are in it. A stage that would look at a
 * logit not above `known` says that the digest is lacking; otherwise it does the same arithmetic on the
 * same numbers as with the row, so the choice is the same to the bit.
 */
#include <assert.h>
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
static int32_t ids_to_edit(struct sampler *s, const struct sample_mix *mix, int32_t *ids)
{
    int32_t n = 0;
    for (int32_t i = 0; mix && i < mix->n; i++) {
        ids[n++] = mix->token[i];
    }
    for (size_t i = 0; i < s->opts.n_bias && n < LOGITS_IDS_MAX; i++) {
        ids[n++] = s->opts.bias[i].token;
    }
    for (int32_t i = 0; i < s->counts.n && n < LOGITS_IDS_MAX; i++) {
        ids[n++] = s->counts.token[i];
    }
    if (s->dry.length && n < LOGITS_IDS_MAX) {
        int32_t found = sample_dry_ids(s, ids + n, LOGITS_IDS_MAX - n);
        n = found < LOGITS_IDS_MAX - n ? n + found : LOGITS_IDS_MAX;
    }
    return n < LOGITS_IDS_MAX ? n : -1;
}

void sample_wants(struct sampler *s, const struct sample_mix *mix, struct logits_want *w, int32_t *ids)
{
    const struct sample_opts *o = &s->opts;
    enum { SPARE = 64, MOST = LOGITS_TOP_MAX }; /* edits may push some of the best down */
    assert(!mix || (mix->n >= 0 && mix->n <= SAMPLE_MIX_MAX));
    int32_t n_ids = ids_to_edit(s, mix, ids), top;
    if (o->temp <= 0) {
        top = 1;
    } else if (o->top_k > 0) {
        top = o->top_k;
    } else {
        top = (o->top_p < 1 && n_ids == 0) || (o->top_p >= 1 && o->min_p > 0) ? MOST : 0;
    }
    top = n_ids < 0 || top > MOST || o->n_top > MOST ? 0 : top;
    if (top > 0) {
        top += n_ids > 0 ? SPARE : 0;
        top = top > o->n_top ? top : o->n_top;
        top = top < MOST ? top : MOST;
    }
    *w = (struct logits_want){
        .n_top = top,
        .inv_temp = o->temp > 0 ? sample_inv_temp(o) : 1,
        .ids = ids,
        .n_ids = top > 0 ? n_ids : 0,
    };
}

struct sample_numbers sample_numbers(const struct logits_digest *d)
{
    const double mean = d->weighted / d->total, var = d->squared / d->total - mean * mean;
    if (!(d->total > 0)) {
        return (struct sample_numbers){ NAN, NAN, NAN, NAN };
    }
    return (struct sample_numbers){
        .p_max = (float)(1 / d->total),
        .entropy = (float)(log(d->total) - mean),
        .varentropy = (float)(var > 0 ? var : 0), /* the difference may round to less than 0 */
        .margin = (float)(-expm1((double)d->second - (double)d->max) / d->total),
    };
}

static void put_logit(struct sampler *s, int32_t token, float logit)
{
    int32_t b = token / SAMPLE_BLOCK;
    s->known_bit[token / 32] |= (uint32_t)1 << token % 32;
    s->x[token] = logit;
    s->block_max[b] = logit > s->block_max[b] ? logit : s->block_max[b];
}

static void wipe(struct sampler *s, int32_t token)
{
    int32_t b = token / SAMPLE_BLOCK;
    s->known_bit[token / 32] = 0;
    s->x[token] = -INFINITY;
    s->block_max[b] = -INFINITY;
    s->dirty[b] = 0;
}

/* x with nothing in it but what is known. */
static void fill_known(struct sampler *s, const struct logits_digest *d)
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
        put_logit(s, d->top[i].token, d->top[i].logit);
    }
    for (int32_t i = 0; i < d->n_ids; i++) {
        if (d->ids[i] >= 0) {
            put_logit(s, d->ids[i], d->logits[i]);
        }
    }
    s->known = d->all ? -FLT_MAX : d->top[d->n_top - 1].logit;
    s->heated = d->heated;
}

/* Takes it out again; a cut has moved candidates to the front. */
static void clear_known(struct sampler *s, const struct logits_digest *d)
{
    int32_t front = (d->n_top + d->n_ids + SAMPLE_BLOCK) / SAMPLE_BLOCK * SAMPLE_BLOCK;
    for (int32_t i = 0; i < front && i < s->n_blocks * SAMPLE_BLOCK; i++) {
        s->x[i] = -INFINITY;
    }
    for (int32_t i = 0; i < d->n_top; i++) {
        wipe(s, d->top[i].token);
    }
    for (int32_t i = 0; i < d->n_ids; i++) {
        if (d->ids[i] >= 0) {
            wipe(s, d->ids[i]);
        }
    }
    s->empty = true;
}

static float logit_of(const struct logits_digest *d, int32_t token)
{
    for (int32_t i = 0; i < d->n_top; i++) {
        if (d->top[i].token == token) {
            return d->top[i].logit;
        }
    }
    for (int32_t i = 0; i < d->n_ids; i++) {
        if (d->ids[i] == token) {
            return d->logits[i];
        }
    }
    return -INFINITY;
}

enum err_code sample_next_digest(struct sampler *s, const struct logits_digest *d, const struct sample_mix *mix,
                                 const int32_t *shun, int32_t n_shun, struct sample_pick *pick, bool *enough,
                                 struct err *e)
{
    enum err_code rc = sample_with(s, mix, shun, n_shun, e);
    *enough = false;
    if (rc != ERR_OK) {
        return rc;
    }
    /* the largest float may stand for +inf */
    if (d->raw_max >= FLT_MAX || (!d->all && (d->n_top == 0 || d->n_top < s->opts.n_top))) {
        return ERR_OK;
    }
    if (!(d->raw_max >= -FLT_MAX)) {
        return err_set(e, ERR_DEVICE, "the model's output has no finite logit");
    }
    if (d->n_top == 0) {
        err_set(e, ERR_ARG, "mask: forbids every token that the model allows");
        err_at(e, "/mask");
        return ERR_ARG;
    }
    fill_known(s, d);
    s->sparse = true;
    s->max = d->max;
    s->mass = d->total;
    rc = sample_run(s, e);
    clear_known(s, d);
    if (rc != ERR_OK || s->lacking) {
        return rc;
    }
    double max = (double)d->raw_max, rest = log(d->raw_total);
    int32_t n_top = s->opts.n_top < d->n_top ? s->opts.n_top : d->n_top;
    for (int32_t i = 0; i < n_top; i++) {
        s->top[i] = (struct sample_top){ d->top[i].token, (float)((double)d->top[i].logit - max - rest) };
    }
    double raw = (double)logit_of(d, s->token);
    *pick = (struct sample_pick){ s->token, (float)(raw - max - rest), s->top, n_top };
    *enough = true;
    return ERR_OK;
}
