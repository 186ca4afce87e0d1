/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - drafting of texts that are known, as it would go: how many tokens a step gives. */
#include <stdlib.h>
#include <string.h>

#include "train/dflash.h"

enum { GROUP = TRAIN_WALK_TEXTS };

struct walk {
    struct train_net          *net;
    const struct train_target *target;
    const struct train_texts  *t;
    int                        size; /* of a block */
    /* of a group */
    int32_t  *from, *pos; /* [n_context] */
    int64_t   n_context, context[GROUP], at[GROUP]; /* first rows; anchors */
};

int64_t train_walk_tokens(const struct train_text_entry *text)
{
    return text->n - 1 - text->n_prompt;
}

static enum err_code gather(struct walk *w, const struct train_text_entry *text, int n, struct err *e)
{
    w->n_context = 0;
    for (int i = 0; i < n; i++) {
        w->context[i] = w->n_context;
        w->at[i] = text[i].n_prompt;
        w->n_context += text[i].n - 1;
    }
    w->from = malloc((size_t)w->n_context * sizeof *w->from);
    w->pos = malloc((size_t)w->n_context * sizeof *w->pos);
    if (w->from == NULL || w->pos == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: texts to test on");
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < text[i].n - 1; j++) {
            w->from[w->context[i] + j] = (int32_t)(text[i].at + j);
            w->pos[w->context[i] + j] = (int32_t)j;
        }
    return ERR_OK;
}

/* Guesses before the first wrong one, and the token that the target adds. */
static int64_t accepted(const int32_t *guess, const int32_t *token, int64_t left, int size)
{
    int64_t n = 0;

    while (n < size - 1 && n < left && guess[1 + n] == token[1 + n])
        n++;
    return n + 1 < left ? n + 1 : left;
}

/* A block for every text of the group that has not ended; *live: there was one. */
static enum err_code advance(struct walk *w, const struct train_text_entry *text, int n, int64_t *steps, bool again,
                             bool *live, struct err *e)
{
    struct dev_block block[GROUP];
    int32_t token[GROUP * TRAIN_BLOCK_MAX], best[GROUP * TRAIN_BLOCK_MAX];
    int of[GROUP], n_block = 0;
    int64_t rows = 0;

    for (int i = 0; i < n; i++) {
        if (w->at[i] >= text[i].n - 1)
            continue;
        block[n_block] = (struct dev_block){ rows, w->size, w->context[i], w->at[i] };
        of[n_block++] = i;
        for (int j = 0; j < w->size; j++)
            token[rows++] = j == 0 ? w->t->token[text[i].at + w->at[i]] : w->net->s.mask;
    }
    *live = n_block > 0;
    if (!*live)
        return ERR_OK;
    const struct train_batch b = { w->n_context, w->t->feature, w->from, w->pos, n_block, block, rows, token, NULL, NULL };

    if (train_net_guess(w->net, w->target, &b, again, best, NULL, e))
        return e->code;
    for (int k = 0; k < n_block; k++) {
        const int i = of[k];

        w->at[i] += accepted(best + block[k].row, w->t->token + text[i].at + w->at[i], text[i].n - 1 - w->at[i], w->size);
        steps[i]++;
    }
    return ERR_OK;
}

enum err_code train_walk(struct train_net *net, const struct train_target *target, const struct train_texts *t,
                         int block, int64_t *steps, const struct progress *progress, struct err *e)
{
    struct walk w = { .net = net, .target = target, .t = t, .size = block };
    enum err_code code = ERR_OK;

    memset(steps, 0, (size_t)t->n * sizeof *steps);
    for (int64_t i = 0; code == ERR_OK && i < t->n; i += GROUP) {
        const int n = t->n - i < GROUP ? (int)(t->n - i) : GROUP;
        bool live = true;

        code = gather(&w, t->v + i, n, e);
        for (bool again = false; code == ERR_OK && live; again = true)
            code = advance(&w, t->v + i, n, steps + i, again, &live, e);
        free(w.from);
        free(w.pos);
        w.from = NULL;
        w.pos = NULL;
        if (code == ERR_OK && !progress_tick(progress, (uint64_t)(i + n), (uint64_t)t->n))
            code = err_set(e, ERR_CANCEL, "interrupted");
    }
    return code;
}
