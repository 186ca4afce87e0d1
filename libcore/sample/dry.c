/* SPDX-License-Identifier: Apache-2.0 */
/* dry.c - "don't repeat yourself": against continuing a repetition.            room: sample
 *
 * Read backwards, the window is a string r with r[0] the last token. Where r[k..] begins like r
 * itself for m tokens, the text has been here before, and r[k - 1] came next then. These m for all
 * k are the Z-function of r (Gusfield 1997, 1.4). [begin, end) is the match found so far that
 * reaches furthest. Inside it the answer is mostly known from r's beginning, and each comparison
 * that succeeds moves end: the whole costs O(window) on any text. Matches are cut at
 * SAMPLE_DRY_MAX, so only that much of the function is ever read back and kept.
 */
#include "sample/chain.h"

static int32_t note_match(struct sample_dry *d, int32_t n_found, int32_t token, int32_t length)
{
    if (d->breaker[token]) {
        return n_found;
    }
    if (d->length[token] == 0) {
        d->found[n_found++] = token;
    }
    if (d->length[token] < length) {
        d->length[token] = (uint16_t)length;
    }
    return n_found;
}

/* last points at r[0], r[k] is last[-k]. limit: tokens of r that a match may use. */
static int32_t find_matches(struct sample_dry *d, const int32_t *last, int64_t n, int32_t limit, int32_t allowed)
{
    int32_t n_found = 0;
    int64_t begin = 0, end = 0;
    for (int64_t k = 1; k < n; k++) {
        int64_t m = 0;
        if (k < end) {
            m = d->z[k - begin];
            m = m < end - k ? m : end - k;
        }
        if (k + m >= end) {
            while (m < limit && k + m < n && last[-m] == last[-(k + m)]) {
                m++;
            }
            if (k + m > end) {
                begin = k;
                end = k + m;
            }
        }
        if (k < limit) {
            d->z[k] = (uint16_t)m;
        }
        if (m >= allowed) {
            n_found = note_match(d, n_found, last[-(k - 1)], (int32_t)m);
        }
    }
    return n_found;
}

/* Fills found and length; how many tokens there are. */
static int32_t look_back(struct sampler *s)
{
    struct sample_dry *d = &s->dry;
    size_t n = s->n_history;
    int32_t allowed = s->opts.dry_allowed_length, last_n = s->opts.dry_last_n;
    if (last_n >= 0 && n > (size_t)last_n) {
        n = (size_t)last_n;
    }
    if (n < 2) {
        return 0;
    }
    const int32_t *last = s->history + s->n_history - 1;
    int32_t limit = 0;
    while (limit < SAMPLE_DRY_MAX && (size_t)limit < n && !d->breaker[last[-limit]]) {
        limit++;
    }
    return limit < allowed ? 0 : find_matches(d, last, (int64_t)n, limit, allowed);
}

int32_t sample_dry_ids(struct sampler *s, int32_t *ids, int32_t max)
{
    struct sample_dry *d = &s->dry;
    int32_t n_found = look_back(s);
    for (int32_t i = 0; i < n_found; i++) {
        if (i < max) {
            ids[i] = d->found[i];
        }
        d->length[d->found[i]] = 0;
    }
    return n_found;
}

enum err_code sample_stage_dry(struct sampler *s, struct err *e)
{
    (void)e;
    struct sample_dry *d = &s->dry;
    int32_t n_found = look_back(s);
    for (int32_t i = 0; i < n_found; i++) {
        int32_t token = d->found[i];
        sample_edit(s, token, s->x[token] - d->power[d->length[token] - s->opts.dry_allowed_length]);
        d->length[token] = 0;
    }
    return ERR_OK;
}
