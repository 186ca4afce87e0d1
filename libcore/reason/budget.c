/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - ends reasoning at a budget of tokens, with the mark that the model itself would write.   room: reason */
#include <stdlib.h>

#include "reason/reason.h"
#include "text/text.h"

struct budget {
    int64_t left;
    int32_t close_mark;
    struct text_tokens close; /* what ends the reasoning: a new line, the mark, an empty line */
};

static void end(void *g)
{
    struct budget *b = g;

    text_tokens_free(&b->close);
    free(b);
}

static enum err_code begin(void **g, const void *opts, bool reasoning, struct err *e)
{
    const struct reason_opts *o = opts;
    const int32_t mark = text_info(o->text)->think_close;
    struct budget *b;

    (void)reasoning;
    if (mark < 0)
        return err_set(e, ERR_UNSUPPORTED, "a reasoning budget: the model has no mark that ends reasoning");
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_nomem(e);
    *b = (struct budget){ .left = o->budget_tokens, .close_mark = mark };
    if (text_encode(o->text, STR("\n"), 0, &b->close, e) || text_tokens_push(&b->close, mark, e) ||
        text_encode(o->text, STR("\n\n"), 0, &b->close, e)) {
        end(b);
        return e->code;
    }
    *g = b;
    return ERR_OK;
}

static struct gen_order see(void *g, const struct gen_seen *s)
{
    struct budget *b = g;

    if (!s->reasoning || b->left < 0)
        return (struct gen_order){ .act = GEN_GO_ON };
    if (s->token == b->close_mark || --b->left != 0) {
        b->left = s->token == b->close_mark ? -1 : b->left;
        return (struct gen_order){ .act = GEN_GO_ON };
    }
    b->left = -1;
    return (struct gen_order){ .act = GEN_SAY, .token = b->close.v, .n_token = (int)b->close.n };
}

static struct gen_order probed(void *g, const struct gen_seen *s, int n)
{
    (void)g;
    (void)s;
    (void)n;
    return (struct gen_order){ .act = GEN_GO_ON };
}

const struct gen_governor reason_governor = { begin, end, see, probed };
