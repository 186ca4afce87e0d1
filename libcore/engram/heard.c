/* SPDX-License-Identifier: Apache-2.0 */
/* heard.c - what a model says of texts, and what tables add to it. */
#include "engram/heard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void engram_heard_close(struct engram_heard *h)
{
    for (size_t i = 0; i < h->n_texts; i++)
        free(h->text[i].token);
    free(h->open.token);
    free(h->text);
    free(h->said);
    *h = (struct engram_heard){ 0 };
}

enum err_code engram_heard_text(struct engram_heard *h, const int32_t *token, int64_t n, bool end, struct err *e)
{
    struct engram_heard_text *t = &h->open, *text;

    if (memory_room(&t->token, &t->cap, (size_t)(t->n + n), sizeof *t->token, e))
        return e->code;
    if (n > 0)
        memcpy(t->token + t->n, token, (size_t)n * sizeof *token);
    t->n += n;
    if (!end)
        return ERR_OK;
    if (t->n < 2) { /* nothing comes after its first token */
        t->n = 0;
        return ERR_OK;
    }
    text = realloc(h->text, (h->n_texts + 1) * sizeof *text);
    if (text == NULL)
        return err_nomem(e);
    h->text = text;
    h->text[h->n_texts++] = *t;
    *t = (struct engram_heard_text){ 0 };
    return ERR_OK;
}

enum err_code engram_heard_say(struct engram_heard *h, int64_t window, int32_t token, const float *logits,
                               int32_t n_vocab, struct err *e)
{
    float max = -INFINITY;
    double sum = 0, p;

    for (int32_t i = 0; i < n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    p = exp((double)logits[token] - (double)max) / sum;
    if (!(p >= 0))
        return err_set(e, ERR_DEVICE, "window %lld: a probability is not a number", (long long)window);
    if (memory_room(&h->said, &h->cap, (size_t)h->n + 1, sizeof *h->said, e))
        return e->code;
    h->said[h->n++] = (struct engram_heard_token){ p > 1e-30 ? p : 1e-30, (float)(1 / sum), (int32_t)window };
    return ERR_OK;
}

/* The tables' word on one token. */
static enum err_code weigh_token(const struct engram_heard_text *text, int64_t at, const struct engram_heard_token *d,
                                 const struct engram_mix *mix, struct engram_fit *fit, struct engram_heard_score *s,
                                 struct err *e)
{
    struct engram_next next;
    float mass = 0, q = 0;

    engram_mix_look(mix, text->token, at, &next);
    for (int i = 0; i < next.n; i++) {
        mass += next.q[i];
        q = next.token[i] == text->token[at] ? next.q[i] : q;
    }
    if (fit != NULL && next.n > 0 &&
        engram_fit_add(fit, engram_evidence(&next), d->sure, (float)d->p, q, mass, (int)(d->window & 1), e))
        return e->code;
    const float w = next.n > 0 ? engram_weight(mix, engram_evidence(&next), d->sure) : 0;
    const double mixed = (1 - (double)w * (double)mass) * d->p + (double)w * (double)q;

    s->before -= log(d->p);
    s->after -= log(mixed);
    if (s->window_gain != NULL) {
        s->window_gain[d->window] += log(d->p) - log(mixed);
        s->window_n[d->window]++;
    }
    return ERR_OK;
}

enum err_code engram_heard_weigh(const struct engram_heard *h, const struct engram_mix *mix, struct engram_fit *fit,
                                 struct engram_heard_score *s, struct err *e)
{
    int64_t k = 0;

    for (size_t t = 0; t < h->n_texts; t++)
        for (int64_t at = 1; at < h->text[t].n && k < h->n; at++, k++)
            if (weigh_token(&h->text[t], at, &h->said[k], mix, fit, s, e))
                return e->code;
    return ERR_OK;
}

double engram_heard_perplexity(const struct engram_heard *h, const struct engram_mix *mix)
{
    struct engram_heard_score s = { 0 };
    struct err e;

    return h->n > 0 && engram_heard_weigh(h, mix, NULL, &s, &e) == ERR_OK ? exp(s.after / (double)h->n) : NAN;
}
