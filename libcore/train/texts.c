/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - texts of a model with what its layers gave for each token. */
#include "train/texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int64_t train_texts_bytes(int64_t cap, int64_t width)
{
    return cap * ((int64_t)sizeof(int32_t) + width * (int64_t)sizeof(uint16_t));
}

enum err_code train_texts_open(struct train_texts *t, struct dev_math *m, int64_t cap, int64_t width, struct err *e)
{
    const int64_t bytes = cap * width * (int64_t)sizeof *t->feature;

    *t = (struct train_texts){ .m = m, .cap = cap, .width = width };
    t->token = malloc((size_t)cap * sizeof *t->token);
    t->feature = m != NULL ? m->take(m, bytes) : malloc((size_t)bytes);
    if (t->token != NULL && t->feature != NULL)
        return ERR_OK;
    train_texts_close(t);
    return err_set(e, ERR_NOMEM, "out of memory: %lld MiB for texts", (long long)(train_texts_bytes(cap, width) >> 20));
}

void train_texts_close(struct train_texts *t)
{
    free(t->token);
    if (t->m != NULL)
        t->m->give(t->m, t->feature);
    else
        free(t->feature);
    free(t->v);
    free(t->sum);
    *t = (struct train_texts){ 0 };
}

/* Texts from the oldest on that lie in the n tokens from `at` on go. */
static void make_room(struct train_texts *t, int64_t at, int64_t n)
{
    int64_t gone = 0;

    while (gone < t->n && t->v[gone].at < at + n && at < t->v[gone].at + t->v[gone].n)
        gone++;
    t->n -= gone;
    if (gone > 0)
        memmove(t->v, t->v + gone, (size_t)t->n * sizeof *t->v);
}

enum err_code train_texts_add(struct train_texts *t, struct train_text_entry text, const int32_t *token,
                              const uint16_t *feature, struct err *e)
{
    if (text.n > t->cap)
        return ERR_OK;
    if (memory_room(&t->v, &t->cap_v, (size_t)t->n + 1, sizeof *t->v, e))
        return e->code;
    if (t->at + text.n > t->cap) { /* what is left at the end is the oldest, and not enough */
        make_room(t, t->at, t->cap - t->at);
        t->at = 0;
    }
    make_room(t, t->at, text.n);
    text.at = t->at;
    memcpy(t->token + t->at, token, (size_t)text.n * sizeof *token);
    if (t->m != NULL)
        t->m->put(t->m, t->feature + t->at * t->width, feature, (text.n - 1) * t->width * (int64_t)sizeof *feature);
    else
        memcpy(t->feature + t->at * t->width, feature, (size_t)((text.n - 1) * t->width) * sizeof *feature);
    t->v[t->n++] = text;
    t->at += text.n;
    t->added++;
    return ERR_OK;
}

static enum err_code add_up(struct train_texts *t, struct err *e)
{
    double sum = 0;

    if (t->summed == t->added)
        return ERR_OK;
    if (memory_room(&t->sum, &t->cap_sum, (size_t)t->n, sizeof *t->sum, e))
        return e->code;
    for (int64_t i = 0; i < t->n; i++)
        t->sum[i] = sum += pow((double)(t->v[i].n - t->v[i].n_prompt), 0.75);
    t->summed = t->added;
    return ERR_OK;
}

enum err_code train_texts_draw(struct train_texts *t, double at, const struct train_text_entry **text, struct err *e)
{
    int64_t lo = 0, hi = t->n - 1;

    if (add_up(t, e))
        return e->code;
    at *= t->sum[t->n - 1];
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;

        if (t->sum[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    *text = &t->v[lo];
    return ERR_OK;
}
