/* SPDX-License-Identifier: Apache-2.0 */
/* expr.c - what regular expressions and GBNF are read into, and its automaton.  room: grammar */
#include <stdlib.h>
#include "grammar/internal.h"

void grammar_exprs_free(struct grammar_exprs *x)
{
    free(x->v);
    free(x->ranges.v);
}

/* Node 0 is not used. After an error it is returned, and may be written to. */
uint32_t grammar_expr_add(struct grammar_exprs *x, int kind)
{
    void *more;

    if (x->n == 0)
        x->n = 1;
    more = grammar_grow(x->b, x->v, x->n, &x->cap, sizeof *x->v);
    if (more == NULL || x->n > GRAMMAR_EDGES_MAX) {
        grammar_fail(x->b, ERR_LIMIT, "too long");
        return 0;
    }
    x->v = more;
    x->v[x->n] = (struct grammar_expr){ .kind = (uint8_t)kind };
    return x->n++;
}

uint32_t grammar_expr_chars(struct grammar_exprs *x, const struct grammar_ranges *r)
{
    uint32_t at = grammar_expr_add(x, EXPR_CHARS);

    if (at == 0)
        return 0;
    x->v[at].range = x->ranges.n;
    x->v[at].n = r->n;
    for (uint32_t i = 0; i < r->n; i++)
        grammar_range_add(x->b, &x->ranges, r->v[i].lo, r->v[i].hi);
    return at;
}

uint32_t grammar_expr_char(struct grammar_exprs *x, uint32_t cp)
{
    struct grammar_range one = { cp, cp };

    return grammar_expr_chars(x, &(struct grammar_ranges){ .v = &one, .n = 1 });
}

struct child {
    struct grammar_exprs *x;
    uint32_t at;
    enum grammar_spell spell;
};

static void emit_child(struct grammar_build *b, uint32_t from, uint32_t to, void *ctx)
{
    const struct child *c = ctx;

    (void)b;
    grammar_expr_emit(c->x, c->at, from, to, c->spell);
}

void grammar_expr_emit(struct grammar_exprs *x, uint32_t at, uint32_t from, uint32_t to, enum grammar_spell spell)
{
    struct grammar_build *b = x->b;
    const struct grammar_expr node = at == 0 ? (struct grammar_expr){ 0 } : x->v[at];
    struct child child = { x, node.child, spell };

    if (!grammar_spend(b, 1))
        return;
    switch (node.kind) {
    case EXPR_CHARS:
        grammar_chars(b, from, to, x->ranges.v + node.range, node.n, spell);
        break;
    case EXPR_SEQ:
        for (uint32_t i = node.child; i != 0 && b->code == ERR_OK; i = x->v[i].next) {
            uint32_t next = x->v[i].next == 0 ? to : grammar_state(b);

            grammar_expr_emit(x, i, from, next, spell);
            from = next;
        }
        if (node.child == 0)
            grammar_eps(b, from, to);
        break;
    case EXPR_ALT:
        for (uint32_t i = node.child; i != 0 && b->code == ERR_OK; i = x->v[i].next)
            grammar_expr_emit(x, i, from, to, spell);
        break;
    case EXPR_REP:
        grammar_repeat(b, from, to, node.min, node.max, emit_child, &child);
        break;
    case EXPR_RULE:
        grammar_call(b, from, to, node.range);
        break;
    case EXPR_AT:
        grammar_fail(b, ERR_UNSUPPORTED, "an anchor or word boundary inside a repetition");
        break;
    default:
        grammar_eps(b, from, to);
    }
}
