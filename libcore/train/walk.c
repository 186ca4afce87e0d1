/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - drafting of texts that are known, as it would go: how many tokens a step gives. */
#include <stdlib.h>
#include <string.h>

#include "train/dflash.h"

struct walk {
    struct train_net *net;
    const struct train_target *target;
    const struct train_texts *t;
    int size; /* of a block */
    /* of a group */
    int32_t *from, *pos;              /* [n_context] */
    int64_t n_context, *context, *at; /* first rows; anchors */
    struct dev_block *block;
    int32_t *token, *best; /* of their rows */
    int *of;               /* whose a block is */
};

int64_t train_walk_tokens(const struct train_text_entry *text)
{
    return text->n - 1 - text->n_prompt;
}

static enum err_code gather_contexts(struct walk *w, const struct train_text_entry *text, int n, struct err *e)
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
static enum err_code advance_blocks(struct walk *w, const struct train_text_entry *text, int n, int64_t *steps,
                                    bool again, bool *live, struct err *e)
{
    int64_t rows = 0;
    int n_block = 0;

    for (int i = 0; i < n; i++) {
        if (w->at[i] >= text[i].n - 1)
            continue;
        w->block[n_block] = (struct dev_block){ rows, w->size, w->context[i], w->at[i] };
        w->of[n_block++] = i;
        for (int j = 0; j < w->size; j++)
            w->token[rows++] = j == 0 ? w->t->token[text[i].at + w->at[i]] : w->net->s.mask;
    }
    *live = n_block > 0;
    if (!*live)
        return ERR_OK;
    const struct train_batch b = { w->n_context, w->t->feature, w->from,  w->pos, n_block,
                                   w->block,     rows,          w->token, NULL,   NULL };

    if (train_net_guess(w->net, w->target, &b, again, w->best, NULL, e))
        return e->code;
    for (int k = 0; k < n_block; k++) {
        const int i = w->of[k];

        w->at[i] +=
            accepted(w->best + w->block[k].row, w->t->token + text[i].at + w->at[i], text[i].n - 1 - w->at[i], w->size);
        steps[i]++;
    }
    return ERR_OK;
}

static bool open_walk(struct walk *w, int group)
{
    const size_t n = (size_t)group, rows = n * (size_t)w->size;

    w->context = malloc(n * sizeof *w->context);
    w->at = malloc(n * sizeof *w->at);
    w->block = malloc(n * sizeof *w->block);
    w->of = malloc(n * sizeof *w->of);
    w->token = malloc(rows * sizeof *w->token);
    w->best = malloc(rows * sizeof *w->best);
    return w->context != NULL && w->at != NULL && w->block != NULL && w->of != NULL && w->token != NULL &&
           w->best != NULL;
}

static void close_walk(struct walk *w)
{
    free(w->context);
    free(w->at);
    free(w->block);
    free(w->of);
    free(w->token);
    free(w->best);
}

enum err_code train_walk(struct train_net *net, const struct train_target *target, const struct train_texts *t,
                         int block, int group, int64_t *steps, const struct progress *progress, struct err *e)
{
    struct walk w = { .net = net, .target = target, .t = t, .size = block };
    enum err_code code = open_walk(&w, group) ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory: texts to test on");

    memset(steps, 0, (size_t)t->n * sizeof *steps);
    for (int64_t i = 0; code == ERR_OK && i < t->n; i += group) {
        const int n = t->n - i < group ? (int)(t->n - i) : group;
        bool live = true;

        code = gather_contexts(&w, t->v + i, n, e);
        for (bool again = false; code == ERR_OK && live; again = true)
            code = advance_blocks(&w, t->v + i, n, steps + i, again, &live, e);
        free(w.from);
        free(w.pos);
        w.from = NULL;
        w.pos = NULL;
        if (code == ERR_OK && !progress_tick(progress, (uint64_t)(i + n), (uint64_t)t->n))
            code = err_set(e, ERR_CANCEL, "interrupted");
    }
    close_walk(&w);
    return code;
}
