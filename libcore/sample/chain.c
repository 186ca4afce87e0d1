/* SPDX-License-Identifier: Apache-2.0 */
/* chain.c - options, the sampler's memory, and the run through the stages.     room: sample */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/simd.h"
#include "sample/chain.h"

static bool penalty_on(const struct sample_opts *o)
{
    bool neutral = o->repeat_penalty >= 1 && o->repeat_penalty <= 1 && o->presence_penalty >= 0 &&
                   o->presence_penalty <= 0 && o->frequency_penalty >= 0 && o->frequency_penalty <= 0;
    return !neutral && o->penalty_last_n != 0;
}

static bool dry_on(const struct sample_opts *o)
{
    return o->dry_multiplier > 0 && o->dry_last_n != 0;
}

/* NaN is in no range. */
static enum err_code check_range(const char *name, double value, double least, double most, struct err *e)
{
    if (value >= least && value <= most)
        return ERR_OK;
    if (most >= INT32_MAX)
        err_set(e, ERR_ARG, "%g is below %g", value, least);
    else
        err_set(e, ERR_ARG, "%g is not between %g and %g", value, least, most);
    err_at(e, "/%s", name);
    return ERR_ARG;
}

/* Options that are one number. */
static enum err_code check_ranges(const struct sample_opts *o, int32_t n_vocab, struct err *e)
{
    enum err_code rc = check_range("n_top", o->n_top, 0, n_vocab, e);
    const struct sample_option *row;

    for (int i = 0; rc == ERR_OK && (row = sample_option(i)) != NULL; i++)
        rc = check_range(row->member, sample_option_value(o, row), row->least, row->most, e);
    return rc;
}

static enum err_code check_tokens(const struct sample_opts *o, int32_t n_vocab, struct err *e)
{
    if ((!o->bias && o->n_bias > 0) || (!o->dry_breakers && o->n_dry_breakers > 0)) {
        err_set(e, ERR_ARG, "no list given");
        err_at(e, !o->bias && o->n_bias > 0 ? "/bias" : "/dry_breakers");
        return ERR_ARG;
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        const struct sample_bias *b = &o->bias[i];
        if (b->token >= 0 && b->token < n_vocab && b->bias <= FLT_MAX)
            continue;
        if (b->token < 0 || b->token >= n_vocab)
            err_set(e, ERR_ARG, "token %d is not in the vocabulary of %d", (int)b->token, (int)n_vocab);
        else
            err_set(e, ERR_ARG, "%g for token %d is neither a number nor -inf", (double)b->bias, (int)b->token);
        err_at(e, "/bias/%zu", i);
        return ERR_ARG;
    }
    for (size_t i = 0; i < o->n_dry_breakers; i++) {
        if (o->dry_breakers[i] < 0 || o->dry_breakers[i] >= n_vocab) {
            err_set(e, ERR_ARG, "token %d is not in the vocabulary of %d", (int)o->dry_breakers[i], (int)n_vocab);
            err_at(e, "/dry_breakers/%zu", i);
            return ERR_ARG;
        }
    }
    return ERR_OK;
}

static void *take_array(struct sampler *s, size_t n, size_t size, bool *ok)
{
    void *p = arena_array(&s->arena, n, size);
    *ok = *ok && p;
    return p;
}

static bool open_edits(struct sampler *s, const struct sample_opts *o)
{
    bool ok = true;
    size_t v = (size_t)s->n_vocab;
    if (o->n_bias > 0) {
        struct sample_bias *bias = take_array(s, o->n_bias, sizeof *bias, &ok);
        if (bias) {
            memcpy(bias, o->bias, o->n_bias * sizeof *bias);
        }
        s->opts.bias = bias;
    }
    if (penalty_on(o)) {
        s->counts.slot = take_array(s, v, sizeof *s->counts.slot, &ok);
        s->counts.token = take_array(s, v, sizeof *s->counts.token, &ok);
        s->counts.count = take_array(s, v, sizeof *s->counts.count, &ok);
    }
    s->opts.dry_breakers = NULL; /* kept as flags */
    if (!dry_on(o)) {
        return ok;
    }
    struct sample_dry *d = &s->dry;
    d->breaker = take_array(s, v, sizeof *d->breaker, &ok);
    d->length = take_array(s, v, sizeof *d->length, &ok);
    d->found = take_array(s, v, sizeof *d->found, &ok);
    d->z = take_array(s, SAMPLE_DRY_MAX, sizeof *d->z, &ok);
    d->power = take_array(s, SAMPLE_DRY_MAX, sizeof *d->power, &ok);
    if (!ok) {
        return false;
    }
    for (size_t i = 0; i < o->n_dry_breakers; i++) {
        d->breaker[o->dry_breakers[i]] = 1;
    }
    double power = (double)o->dry_multiplier;
    for (int i = 0; i < SAMPLE_DRY_MAX; i++) {
        d->power[i] = (float)power;
        power = fmin(power * (double)o->dry_base, 1e30); /* a logit minus this stays finite */
    }
    return ok;
}

static bool open_arrays(struct sampler *s, const struct sample_opts *o)
{
    bool ok = true;
    size_t n_blocks = (size_t)s->n_blocks, n = n_blocks * SAMPLE_BLOCK;
    s->x = take_array(s, n, sizeof *s->x, &ok);
    s->block_max = take_array(s, n_blocks, sizeof *s->block_max, &ok);
    s->dirty = take_array(s, n_blocks, sizeof *s->dirty, &ok);
    s->sums = take_array(s, 3 * n_blocks, sizeof *s->sums, &ok);
    s->top = take_array(s, (size_t)o->n_top, sizeof *s->top, &ok);
    s->known_bit = take_array(s, n / 32, sizeof *s->known_bit, &ok);
    if (o->temp > 0) {
        s->block_sum = take_array(s, n_blocks, sizeof *s->block_sum, &ok);
        s->w = take_array(s, n, sizeof *s->w, &ok);
        s->id = take_array(s, n, sizeof *s->id, &ok);
        s->key = take_array(s, n, sizeof *s->key, &ok);
        s->bins = take_array(s, SAMPLE_BINS, sizeof *s->bins, &ok);
    }
    return ok;
}

enum err_code sample_open(struct sampler **out, const struct sample_opts *o, int32_t n_vocab, struct err *e)
{
    if (n_vocab < 1 || n_vocab > 1 << 28) {
        return err_set(e, ERR_ARG, "n_vocab: %d is not between 1 and 268435456", (int)n_vocab);
    }
    enum err_code rc = check_ranges(o, n_vocab, e);
    rc = rc == ERR_OK ? check_tokens(o, n_vocab, e) : rc;
    if (rc != ERR_OK) {
        return rc;
    }
    struct sampler *s = calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory for a sampler");
    }
    s->opts = *o;
    s->n_vocab = n_vocab;
    s->n_blocks = (n_vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    s->kernels = softmax_kernels_for(simd_features());
#define STAGE(name, on) \
    if (on) { \
        s->stages[s->n_stages++] = sample_stage_##name; \
    }
#include "sample/stages.def"
#undef STAGE
    if (!open_edits(s, o) || !open_arrays(s, o)) {
        sample_close(s);
        return err_set(e, ERR_NOMEM, "out of memory for a sampler over %d tokens", (int)n_vocab);
    }
    *out = s;
    return ERR_OK;
}

void sample_close(struct sampler *s)
{
    if (s) {
        arena_free(&s->arena);
        free(s->history);
        free(s);
    }
}

static enum err_code remember_token(struct sampler *s, int32_t token, struct err *e)
{
    if (s->n_history == s->history_cap) {
        size_t cap = s->history_cap ? 2 * s->history_cap : 4096;
        if (cap > SIZE_MAX / sizeof *s->history) {
            return err_set(e, ERR_NOMEM, "out of memory for the sampler's history");
        }
        int32_t *p = realloc(s->history, cap * sizeof *p);
        if (!p) {
            return err_set(e, ERR_NOMEM, "out of memory for the sampler's history");
        }
        s->history = p;
        s->history_cap = cap;
    }
    s->history[s->n_history++] = token;
    return ERR_OK;
}

enum err_code sample_accept(struct sampler *s, int32_t token, struct err *e)
{
    if (token < 0 || token >= s->n_vocab) {
        return err_set(e, ERR_ARG, "token %d is not in the vocabulary of %d", (int)token, (int)s->n_vocab);
    }
    bool count = penalty_on(&s->opts);
    if (count || dry_on(&s->opts)) {
        enum err_code rc = remember_token(s, token, e);
        if (rc != ERR_OK) {
            return rc;
        }
    }
    if (count) {
        int32_t last_n = s->opts.penalty_last_n;
        sample_counts_add(&s->counts, token);
        if (last_n > 0 && s->n_history > (size_t)last_n) {
            sample_counts_drop(&s->counts, s->history[s->n_history - 1 - (size_t)last_n]);
        }
    }
    s->position++;
    return ERR_OK;
}

void sample_back(struct sampler *s, uint64_t n)
{
    bool count = penalty_on(&s->opts);
    assert(n <= s->position);
    s->position -= n;
    if (!count && !dry_on(&s->opts)) {
        return;
    }
    for (; n > 0; n--) {
        size_t last_n = s->opts.penalty_last_n > 0 ? (size_t)s->opts.penalty_last_n : SIZE_MAX;
        if (count && s->n_history > last_n) {
            sample_counts_add(&s->counts, s->history[s->n_history - 1 - last_n]);
        }
        s->n_history--;
        if (count) {
            sample_counts_drop(&s->counts, s->history[s->n_history]);
        }
    }
}

bool sample_knows(struct sampler *s, int32_t token)
{
    if (s->sparse && !(s->known_bit[token / 32] >> token % 32 & 1)) {
        s->lacking = true;
        return false;
    }
    return true;
}

/* Edits keep finite logits finite, so that only a mask, shun or a bias of -inf can forbid a token. */
void sample_edit(struct sampler *s, int32_t token, float logit)
{
    s->edited = true;
    if (sample_knows(s, token) && s->x[token] >= -FLT_MAX) {
        s->x[token] = logit > FLT_MAX ? FLT_MAX : logit < -FLT_MAX ? -FLT_MAX : logit;
        s->dirty[token / SAMPLE_BLOCK] = 1;
    }
}

void sample_forbid(struct sampler *s, int32_t token)
{
    s->edited = true;
    s->x[token] = -INFINITY;
    s->dirty[token / SAMPLE_BLOCK] = 1;
}

/* Copies the logits that the mask allows to x and finds the largest value of each block and of all. */
static void load_logits(struct sampler *s, const float *logits, const uint32_t *mask)
{
    float in[SAMPLE_BLOCK];
    s->max = -INFINITY;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        const float *src = logits + (size_t)b * SAMPLE_BLOCK;
        int32_t left = s->n_vocab - b * SAMPLE_BLOCK;
        if (left < SAMPLE_BLOCK || mask) {
            for (int32_t i = 0; i < SAMPLE_BLOCK; i++) {
                int32_t word = b * (SAMPLE_BLOCK / 32) + i / 32;
                in[i] = i < left && (!mask || mask[word] >> i % 32 & 1) ? src[i] : -INFINITY;
            }
            src = in;
        }
        s->block_max[b] = s->kernels->scan(src, s->x + (size_t)b * SAMPLE_BLOCK);
        s->max = s->block_max[b] > s->max ? s->block_max[b] : s->max;
    }
}

/* sum(exp(x - max)). Blocks whose weights are all 0 are not looked at. */
static double mass_of(struct sampler *s)
{
    float w[SAMPLE_BLOCK];
    for (int32_t b = 0; b < s->n_blocks; b++) {
        s->sums[b] = 0;
        if (s->block_max[b] - s->max > -87.0f) {
            s->kernels->weigh(s->x + (size_t)b * SAMPLE_BLOCK, w, s->max, 1);
            s->sums[b] = s->kernels->sum(w);
        }
    }
    return softmax_fold(s->sums, s->n_blocks);
}

/* The sums of w = exp(x - max), w (x - max) and w (x - max)^2. */
static void sum_moments(struct sampler *s, struct logits_digest *d)
{
    double *one = s->sums + s->n_blocks, *two = one + s->n_blocks;
    float w[SAMPLE_BLOCK];
    for (int32_t b = 0; b < s->n_blocks; b++) {
        const float *x = s->x + (size_t)b * SAMPLE_BLOCK;
        s->sums[b] = one[b] = two[b] = 0;
        if (s->block_max[b] - s->max > -87.0f) {
            s->kernels->weigh(x, w, s->max, 1);
            s->sums[b] = s->kernels->sum(w);
            one[b] = s->kernels->moments(x, w, s->max, &two[b]);
        }
    }
    d->total = softmax_fold(s->sums, s->n_blocks);
    d->weighted = softmax_fold(one, s->n_blocks);
    d->squared = softmax_fold(two, s->n_blocks);
}

/* The largest logit but one, which may be as large; -inf: there is none. */
static float second_best(const struct sampler *s)
{
    float second = -INFINITY;
    int32_t at = 0;
    bool seen = false; /* the largest */
    for (int32_t b = 1; b < s->n_blocks; b++) {
        const bool better = s->block_max[b] > s->block_max[at];
        const float other = s->block_max[better ? at : b];
        second = other > second ? other : second;
        at = better ? b : at;
    }
    for (int32_t i = 0; i < SAMPLE_BLOCK; i++) {
        const float x = s->x[(size_t)at * SAMPLE_BLOCK + (size_t)i];
        if (x < s->max || seen) {
            second = x > second ? x : second;
        } else {
            seen = true;
        }
    }
    return second;
}

void sample_sums(struct sampler *s, const float *logits, const uint32_t *mask, struct logits_digest *d)
{
    *d = (struct logits_digest){ .second = -INFINITY };
    load_logits(s, logits, NULL);
    d->raw_max = s->max;
    if (mask) {
        d->raw_total = s->max >= -FLT_MAX ? mass_of(s) : 0;
        load_logits(s, logits, mask);
    }
    d->max = s->max;
    if (s->max >= -FLT_MAX) {
        sum_moments(s, d);
        d->second = second_best(s);
    }
    d->raw_total = mask ? d->raw_total : d->total;
    s->empty = false;
}

static bool any_finite(const float *logits, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (isfinite(logits[i])) {
            return true;
        }
    }
    return false;
}

enum err_code sample_run(struct sampler *s, struct err *e)
{
    enum err_code rc = ERR_OK;
    s->n = s->n_vocab;
    s->dense = true;
    s->weighed = false;
    s->edited = false;
    s->lacking = false;
    s->inv_temp = 1;
    s->token = -1;
    for (int32_t i = 0; i < s->n_stages && s->token < 0 && !s->lacking && rc == ERR_OK; i++) {
        rc = s->stages[i](s, e);
    }
    if (rc != ERR_OK || s->lacking) {
        memset(s->dirty, 0, (size_t)s->n_blocks);
    }
    return rc;
}

enum err_code sample_next_row(struct sampler *s, const float *logits, const uint32_t *mask,
                              const struct sample_mix *mix, const int32_t *shun, int32_t n_shun,
                              struct sample_pick *pick, struct err *e)
{
    enum err_code rc = sample_with(s, mix, shun, n_shun, e);
    if (rc != ERR_OK) {
        return rc;
    }
    load_logits(s, logits, NULL);
    /* The largest float may stand for +inf: only then is a second look needed. */
    if (!(s->max >= -FLT_MAX) || (s->max >= FLT_MAX && !any_finite(logits, s->n_vocab))) {
        return err_set(e, ERR_DEVICE, "the model's output has no finite logit");
    }
    /* ln(sum(exp(x))) in two parts, because their sum would lose digits */
    double raw_max = (double)s->max, rest;
    s->mass = mass_of(s);
    rest = log(s->mass);
    if (mask) {
        load_logits(s, logits, mask);
        if (!(s->max >= -FLT_MAX)) {
            err_set(e, ERR_ARG, "mask: forbids every token that the model allows");
            err_at(e, "/mask");
            return ERR_ARG;
        }
        s->mass = mix ? mass_of(s) : 0;
    }
    int32_t n_top = s->opts.n_top > 0 ? sample_best(s) : 0;
    for (int32_t i = 0; i < n_top; i++) {
        s->top[i].logprob = (float)((double)s->top[i].logprob - raw_max - rest);
    }
    s->sparse = s->empty = false;
    rc = sample_run(s, e);
    if (rc != ERR_OK) {
        return rc;
    }
    assert(s->token >= 0 && s->token < s->n_vocab);
    double raw = fmin((double)logits[s->token], (double)FLT_MAX);
    *pick = (struct sample_pick){ s->token, (float)(raw - raw_max - rest), s->top, n_top };
    return ERR_OK;
}
