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
static void weigh_token(const struct engram_heard_text *text, int64_t at, const struct engram_heard_token *d,
                        const struct engram_mix *mix, struct engram_trust *trust, struct engram_heard_score *s)
{
    struct engram_next next;
    double mixed = d->p;

    engram_mix_look(mix, text->token, at, &next);
    if (next.n > 0) {
        const struct engram_came came = engram_came(&next, text->token[at], d->p);
        float w[ENGRAM_STRENGTHS], weight;

        engram_weights(mix, engram_evidence(&next), d->sure, w);
        weight = trust != NULL ? engram_trust_weight(&trust[next.file], w) : w[0];
        mixed = (1 - (double)weight * came.mass) * d->p + (double)weight * came.q;
        if (trust != NULL)
            engram_trust_learn(&trust[next.file], w, came.p, came.q, came.mass);
    }
    s->before -= log(d->p);
    s->after -= log(mixed);
    if (s->window_gain != NULL) {
        s->window_gain[d->window] += log(d->p) - log(mixed);
        s->window_n[d->window]++;
    }
}

void engram_heard_weigh(const struct engram_heard *h, const struct engram_mix *mix, bool believed,
                        struct engram_heard_score *s)
{
    struct engram_trust trust[ENGRAM_FILES_MAX];
    int64_t k = 0;

    for (size_t t = 0; t < h->n_texts; t++) {
        for (int i = 0; i < ENGRAM_FILES_MAX; i++)
            trust[i] = engram_trust_begin();
        for (int64_t at = 1; at < h->text[t].n && k < h->n; at++, k++)
            weigh_token(&h->text[t], at, &h->said[k], mix, believed ? NULL : trust, s);
    }
}

double engram_heard_perplexity(const struct engram_heard *h, const struct engram_mix *mix)
{
    struct engram_heard_score s = { 0 };

    engram_heard_weigh(h, mix, true, &s);
    return h->n > 0 ? exp(s.after / (double)h->n) : NAN;
}
