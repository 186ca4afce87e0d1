/* SPDX-License-Identifier: Apache-2.0 */
/* tagged.c - a grammar between marks in free text.                              room: grammar
 *
 * Free text is the automaton that finds the begin mark (Knuth, Morris, Pratt 1977): its states are
 * how much of the mark the text ends with. Its last step leads to a call of the inner grammar's
 * root, perhaps after line feeds, then come the bytes of the end mark, then free text again. States of free text and of
 * the end mark are flagged: there, and only there, control tokens may come.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/tables.h"

/* The rules of a compiled grammar, back in a builder; their number is that in rule_at. */
static void add_rules(struct grammar_build *b, const struct grammar *g)
{
    uint32_t *state_of = calloc((size_t)g->n + 1, sizeof *state_of),
             *rule_of = calloc((size_t)g->n + 1, sizeof *rule_of);

    if (state_of == NULL || rule_of == NULL)
        grammar_nomem(b);
    for (uint32_t r = 0; r < g->n_rule && b->code == ERR_OK; r++) {
        rule_of[g->rule_at[r]] = grammar_rule_add(b, STR("rule"));
        for (uint32_t s = g->rule_at[r]; s < g->rule_at[r + 1]; s++)
            state_of[s] = grammar_state(b);
        if (b->code == ERR_OK)
            grammar_eps(b, b->rule[r].start, state_of[g->rule_at[r]]);
    }
    for (uint32_t r = 0; r < g->n_rule && b->code == ERR_OK; r++)
        for (uint32_t s = g->rule_at[r]; s < g->rule_at[r + 1] && grammar_spend(b, 256); s++) {
            const uint32_t *row = g->next + (size_t)s * g->n_cls;

            for (int i = 0, k; i < 256; i = k) {
                for (k = i; k < 256 && row[g->cls[k]] == row[g->cls[i]];)
                    k++;
                if (row[g->cls[i]] != 0)
                    grammar_bytes(b, state_of[s], state_of[row[g->cls[i]]], (uint8_t)i, (uint8_t)(k - 1));
            }
            b->flag[state_of[s]] |= g->flag[s] & (GRAMMAR_FREE | GRAMMAR_MARK);
            for (uint32_t i = g->call_at[s]; i < g->call_at[s + 1]; i++)
                grammar_call(b, state_of[s], state_of[g->call[i].ret], rule_of[g->call[i].rule]);
            if ((g->flag[s] & GRAMMAR_ACC) != 0)
                grammar_eps(b, state_of[s], b->rule[r].end);
        }
    free(state_of);
    free(rule_of);
}

void grammar_find_backs(struct str mark, uint32_t *back)
{
    back[0] = back[1] = 0;
    for (size_t i = 1; i < mark.n; i++) {
        uint32_t k = back[i];

        while (k > 0 && mark.p[k] != mark.p[i])
            k = back[k];
        back[i + 1] = mark.p[k] == mark.p[i] ? k + 1 : 0;
    }
}

/* Free text, states from `free`; state `found` is where the mark is complete. */
static void add_free(struct grammar_build *b, struct str mark, uint32_t free_at, uint32_t found, uint32_t end)
{
    uint32_t back[GRAMMAR_MARK_MAX + 1];

    grammar_find_backs(mark, back);
    for (uint32_t k = 0; k < mark.n && b->code == ERR_OK; k++) {
        b->flag[free_at + k] |= GRAMMAR_FREE;
        grammar_eps(b, free_at + k, end);
        for (int byte = 0; byte < 256; byte++) {
            uint32_t to = k;

            while (to > 0 && (uint8_t)mark.p[to] != byte)
                to = back[to];
            to += (uint8_t)mark.p[to] == byte;
            grammar_bytes(b, free_at + k, to == mark.n ? found : free_at + to, (uint8_t)byte, (uint8_t)byte);
        }
    }
}

enum err_code grammar_open_tagged(struct grammar **out, const struct grammar *inner, struct str begin, int lines,
                                  struct str end, struct err *e)
{
    struct grammar_build b = { .e = e, .joined = true };
    uint32_t root, free_at, found, at;

    if (begin.n == 0 || begin.n > GRAMMAR_MARK_MAX || end.n > GRAMMAR_MARK_MAX)
        return err_set(e, ERR_ARG, "a mark has 1 to %d bytes", GRAMMAR_MARK_MAX);
    add_rules(&b, inner);
    root = grammar_rule_add(&b, STR("tagged text"));
    free_at = b.n_state;
    for (size_t i = 0; i < begin.n; i++)
        grammar_state(&b);
    found = grammar_state(&b);
    at = grammar_state(&b);
    if (b.code == ERR_OK) {
        grammar_eps(&b, b.rule[root].start, free_at);
        add_free(&b, begin, free_at, found, b.rule[root].end);
        grammar_call(&b, found, at, 0);
    }
    for (int i = 0; i < lines && b.code == ERR_OK; i++) {
        uint32_t next = grammar_state(&b);

        grammar_bytes(&b, found, next, '\n', '\n');
        grammar_call(&b, next, at, 0);
        found = next;
    }
    if (end.n == 0 && b.code == ERR_OK)
        grammar_eps(&b, at, b.rule[root].end);
    for (size_t i = 0; i < end.n && b.code == ERR_OK; i++) {
        uint32_t next = i + 1 == end.n ? free_at : grammar_state(&b);

        b.flag[at] |= GRAMMAR_MARK;
        grammar_bytes(&b, at, next, (uint8_t)end.p[i], (uint8_t)end.p[i]);
        at = next;
    }
    return grammar_compile(out, inner->v, &b, root);
}
