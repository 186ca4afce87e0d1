/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - ends reasoning at a budget of tokens, with the mark that the model itself would write.   room: reason */
#include <stdlib.h>

#include "reason/reason.h"
#include "text/marks.h"

struct budget {
    const struct text_marks *marks;
    int64_t left;
    int n_saying; /* tokens of its own that it will see next */
};

static void end_budget(void *g)
{
    free(g);
}

static enum err_code begin_budget(void **g, const void *opts, bool reasoning, struct err *e)
{
    const struct reason_opts *o = opts;
    struct budget *b;

    (void)reasoning;
    if (o->marks == NULL)
        return err_set(e, ERR_UNSUPPORTED, "a reasoning budget: the model has no mark that ends reasoning");
    b = malloc(sizeof *b);
    if (b == NULL)
        return err_nomem(e);
    *b = (struct budget){ .marks = o->marks, .left = o->budget_tokens };
    *g = b;
    return ERR_OK;
}

static struct gen_order see_token(void *g, const struct gen_seen *s)
{
    const struct gen_order go_on = { .act = GEN_GO_ON };
    struct budget *b = g;

    if (b->n_saying > 0) {
        b->n_saying--;
        return go_on;
    }
    if (!(s->opens || s->reasoning) || s->closes || b->left < 0)
        return go_on;
    b->left -= s->reasoning && b->left > 0; /* reasoning that begins again has nothing left */
    if (b->left > 0)
        return go_on;
    b->n_saying = b->marks->n_over;
    return (struct gen_order){ .act = GEN_SAY, .token = b->marks->over, .n_token = b->marks->n_over };
}

static struct gen_order go_on_after_probe(void *g, const struct gen_seen *s, int n)
{
    (void)g;
    (void)s;
    (void)n;
    return (struct gen_order){ .act = GEN_GO_ON };
}

const struct gen_governor reason_governor = { begin_budget, end_budget, see_token, go_on_after_probe, false };
