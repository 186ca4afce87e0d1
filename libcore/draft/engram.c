/* SPDX-License-Identifier: Apache-2.0 */
/* engram.c - guesses from tables of n-grams: what followed the same tokens in other texts.
 *
 * Each guess is the likeliest token after the text and the guesses before it. Nothing is kept between steps: a
 * look-up takes the text as it is. */
#include <stdlib.h>
#include <string.h>

#include "draft/internal.h"
#include "engram/mix.h"

enum {
    BACK = 64,      /* tokens of the text that a look-up may want: more than an order, with words in parts */
    ORDER_LEAST = 2 /* one token is in every text */
};
/* Guesses that are less sure are not worth a row. */
#define SURE_LEAST 0.2F

struct tables {
    const struct engram_mix *mix;
    const struct draft_text *text; /* [n_seq] */
};

static enum err_code open_tables(void **out, const struct draft_source *s, struct err *e)
{
    struct tables *t;

    if (s->opts->tables == NULL)
        return err_set(e, ERR_ARG, "drafter 'engram' guesses from tables of n-grams, and there are none");
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_nomem(e);
    t->mix = s->opts->tables;
    *out = t;
    return ERR_OK;
}

static enum err_code attach_tables(void *of, const struct draft_env *env, struct err *e)
{
    (void)e;
    ((struct tables *)of)->text = env->text;
    return ERR_OK;
}

static void guess_one(const struct tables *t, struct draft_ask *a)
{
    const struct draft_text *text = &t->text[a->seq];
    int32_t token[BACK + GEN_DRAFT_MAX];
    const int64_t n = text->n < BACK ? text->n : BACK;
    struct engram_next next;
    int made = 0;

    memcpy(token, text->token + text->n - n, (size_t)n * sizeof *token);
    for (; made < a->n; made++) {
        engram_mix_look(t->mix, token, n + made, &next);
        if (next.n == 0 || next.order < ORDER_LEAST)
            break;
        /* As with n-grams of the text itself: the longer the match, the surer. */
        a->p[made] = next.q[0] * (1 - 1 / (1 + 0.5F * (float)next.order));
        if (a->p[made] < SURE_LEAST)
            break;
        a->guess[made] = token[n + made] = next.token[0];
    }
    a->n = made;
}

static enum err_code guess_tables(void *of, struct draft_ask *ask, int n, bool *late, struct err *e)
{
    (void)late;
    (void)e;
    for (int i = 0; i < n; i++)
        guess_one(of, &ask[i]);
    return ERR_OK;
}

const struct draft_type draft_type_engram = {
    .name = "engram",
    .free = true,
    .open = open_tables,
    .close = free,
    .attach = attach_tables,
    .guess = guess_tables,
};
