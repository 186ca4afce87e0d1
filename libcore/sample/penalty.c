/* SPDX-License-Identifier: Apache-2.0 */
/* penalty.c - repetition, presence and frequency penalties.                    room: sample
 *
 * The counts of the window are kept as tokens come and go, so a stage costs one step per distinct
 * token, however long the window. Repetition: Keskar et al., "CTRL", 2019.
 */
#include "sample/chain.h"

void sample_counts_add(struct sample_counts *c, int32_t token)
{
    if (c->slot[token] == 0) {
        c->token[c->n] = token;
        c->count[c->n] = 0;
        c->slot[token] = ++c->n;
    }
    c->count[c->slot[token] - 1]++;
}

void sample_counts_drop(struct sample_counts *c, int32_t token)
{
    int32_t i = c->slot[token] - 1;
    if (--c->count[i] == 0) { /* the last entry takes its place */
        c->n--;
        c->token[i] = c->token[c->n];
        c->count[i] = c->count[c->n];
        c->slot[c->token[i]] = i + 1;
        c->slot[token] = 0;
    }
}

enum err_code sample_stage_penalty(struct sampler *s, struct err *e)
{
    (void)e;
    const struct sample_opts *o = &s->opts;
    for (int32_t i = 0; i < s->counts.n; i++) {
        int32_t token = s->counts.token[i];
        float v = s->x[token];
        v = v > 0 ? v / o->repeat_penalty : v * o->repeat_penalty;
        v -= o->presence_penalty + o->frequency_penalty * (float)s->counts.count[i];
        sample_edit(s, token, v);
    }
    return ERR_OK;
}
