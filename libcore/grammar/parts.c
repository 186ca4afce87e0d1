/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - a grammar of texts, values by a schema and alternatives: tool calls.  room: grammar */
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

enum { GROUPS_MAX = 16 };

struct group {
    uint32_t from, to;
};
struct parts {
    struct grammar_build *b;
    struct schema *schema; /* [n_schema]: their names live until all is compiled */
    size_t n_schema;
    struct group group[GROUPS_MAX];
    int n_groups;
};

/* Characters from `at` on until `found`. The states are how much of the mark the text ends with. */
static void put_until(struct grammar_build *b, struct str mark, bool any, uint32_t at, uint32_t found)
{
    const struct grammar_range other = { 0x80, GRAMMAR_CP_MAX };
    uint32_t back[GRAMMAR_MARK_MAX + 1], state[GRAMMAR_MARK_MAX + 1];

    grammar_find_backs(mark, back);
    for (size_t k = 0; k < mark.n; k++)
        state[k] = grammar_state(b);
    state[mark.n] = found;
    grammar_eps(b, at, state[0]);
    for (uint32_t k = 0; k < mark.n && b->code == ERR_OK; k++) {
        if (any)
            b->flag[state[k]] |= GRAMMAR_FREE;
        for (int byte = any ? 0 : 1; byte < (any ? 0x100 : 0x80); byte++) {
            uint32_t to = k;

            while (to > 0 && (uint8_t)mark.p[to] != byte)
                to = back[to];
            to += (uint8_t)mark.p[to] == byte;
            grammar_bytes(b, state[k], state[to], (uint8_t)byte, (uint8_t)byte);
        }
        if (!any)
            grammar_chars(b, state[k], state[0], &other, 1, GRAMMAR_RAW);
    }
}

static bool is_mark(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((uint8_t)s.p[i] >= 0x80)
            return false;
    return s.n > 0 && s.n <= GRAMMAR_MARK_MAX;
}

static uint32_t put_group(struct parts *p, const struct grammar_part *part, uint32_t at)
{
    struct grammar_build *b = p->b;
    const struct group *g = &p->group[p->n_groups > 0 ? p->n_groups - 1 : 0];

    if (part->kind == GRAMMAR_PART_GROUP ? p->n_groups == GROUPS_MAX : p->n_groups == 0) {
        grammar_fail(b, ERR_ARG, "parts: a group is not closed, or too deep");
        return at;
    }
    if (part->kind == GRAMMAR_PART_GROUP) {
        struct group *more = &p->group[p->n_groups++];

        *more = (struct group){ grammar_state(b), grammar_state(b) };
        grammar_eps(b, at, more->from);
        at = grammar_state(b); /* an alternative: not where another time begins */
        grammar_eps(b, more->from, at);
        return at;
    }
    grammar_eps(b, at, g->to);
    if (part->kind == GRAMMAR_PART_OR) {
        at = grammar_state(b);
        grammar_eps(b, g->from, at);
        return at;
    }
    at = grammar_state(b);
    grammar_eps(b, g->to, at);
    if (part->maybe)
        grammar_eps(b, g->from, at);
    if (part->many)
        grammar_eps(b, g->to, g->from);
    p->n_groups--;
    return at;
}

static uint32_t put_part(struct parts *p, const struct grammar_part *part, uint32_t at)
{
    struct grammar_build *b = p->b;
    struct schema *x;
    uint32_t to;

    if (part->kind >= GRAMMAR_PART_GROUP)
        return put_group(p, part, at);
    to = grammar_state(b);
    switch (part->kind) {
    case GRAMMAR_PART_TEXT:
        grammar_mark(b, at, to, part->text);
        break;
    case GRAMMAR_PART_REGEX:
        grammar_regex(b, part->text, false, GRAMMAR_RAW, at, to);
        break;
    case GRAMMAR_PART_VALUE:
        x = &p->schema[p->n_schema++];
        *x = (struct schema){ .b = b, .root = part->root };
        grammar_call(b, at, to, schema_write(x, part->schema, part->path));
        break;
    case GRAMMAR_PART_MEMBERS:
        x = &p->schema[p->n_schema++];
        *x = (struct schema){ .b = b, .root = part->root };
        grammar_call(b, at, to, schema_write_members(x, part->schema, part->path, part->dress));
        break;
    default:
        if (is_mark(part->text))
            put_until(b, part->text, part->kind == GRAMMAR_PART_FREE, at, to);
        else
            grammar_fail(b, ERR_ARG, "parts: a mark has 1 to %d bytes of ASCII", GRAMMAR_MARK_MAX);
    }
    return to;
}

enum err_code grammar_open_parts(struct grammar **out, const struct grammar_vocab *v, const struct grammar_part *part,
                                 size_t n, struct err *e)
{
    struct err own = { 0 };
    struct grammar_build b = { .e = e == NULL ? &own : e };
    struct parts p = { .b = &b, .schema = calloc(n + 1, sizeof *p.schema) };
    uint32_t root = 0, at = 0;

    if (p.schema == NULL) {
        grammar_nomem(&b);
    } else {
        root = grammar_rule_add(&b, STR("parts"));
        at = b.code == ERR_OK ? b.rule[root].start : 0;
    }
    for (size_t i = 0; i < n && b.code == ERR_OK; i++)
        at = put_part(&p, &part[i], at);
    if (p.n_groups > 0)
        grammar_fail(&b, ERR_ARG, "parts: a group is not closed");
    if (b.code == ERR_OK)
        grammar_eps(&b, at, b.rule[root].end);
    (void)grammar_compile(out, v, &b, root);
    for (size_t i = 0; i < p.n_schema; i++)
        schema_free(&p.schema[i]);
    free(p.schema);
    return b.code;
}
