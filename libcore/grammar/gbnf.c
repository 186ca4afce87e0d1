/* SPDX-License-Identifier: Apache-2.0 */
/* gbnf.c - grammars in llama.cpp's notation.                                    room: grammar */
#include <stdlib.h>
#include <string.h>
#include "grammar/internal.h"

enum { GBNF_REPEAT_MAX = 2000 };

struct gbnf {
    struct grammar_exprs x;
    struct grammar_build *b;
    const char *start, *p, *end;
    int depth;
    uint32_t *def; /* [cap_def] expression of each rule, 0: not defined */
    size_t *use;   /* [cap_def] where its name was seen first */
    uint32_t cap_def, cap_use;
    uint32_t *slot, slot_mask; /* rules by name: 1 + rule, 0: free */
    struct grammar_ranges set;
};

static void fail_at(struct gbnf *g, enum err_code code, const char *at, const char *what)
{
    size_t line = 1, column = 1;

    for (const char *p = g->start; p < at; p++) {
        column = *p == '\n' ? 1 : column + (((uint8_t)*p & 0xC0) != 0x80);
        line += *p == '\n';
    }
    if (grammar_fail(g->b, code, "line %zu, column %zu: %s", line, column, what))
        err_at(g->b->e, "%zu:%zu", line, column);
}

static void fail_here(struct gbnf *g, const char *what)
{
    fail_at(g, ERR_FORMAT, g->p, what);
}

static bool has_more(const struct gbnf *g)
{
    return g->p < g->end && g->b->code == ERR_OK;
}

static bool is_char(const struct gbnf *g, char c)
{
    return has_more(g) && *g->p == c;
}

static void skip_space(struct gbnf *g, bool lines)
{
    while (has_more(g)) {
        if (*g->p == '#')
            while (has_more(g) && *g->p != '\r' && *g->p != '\n')
                g->p++;
        else if (*g->p == ' ' || *g->p == '\t' || (lines && (*g->p == '\r' || *g->p == '\n')))
            g->p++;
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static struct str read_name(struct gbnf *g)
{
    const char *from = g->p;

    while (has_more(g) && is_name(*g->p))
        g->p++;
    if (g->p == from)
        fail_here(g, "a rule's name is expected (letters, digits and -)");
    return (struct str){ from, (size_t)(g->p - from) };
}

static uint32_t hash_name(struct str s)
{
    uint32_t h = 2166136261U;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 16777619U;
    return h ^ h >> 15;
}

/* The rule of a name, made when it is new. */
static uint32_t rule_of(struct gbnf *g, struct str name)
{
    uint32_t i = hash_name(name) & g->slot_mask, rule;
    void *def, *use;

    for (; g->slot[i] != 0; i = (i + 1) & g->slot_mask)
        if (str_eq(g->b->rule[g->slot[i] - 1].name, name))
            return g->slot[i] - 1;
    rule = grammar_rule_add(g->b, name);
    if (g->b->code != ERR_OK)
        return 0;
    def = grammar_grow(g->b, g->def, rule, &g->cap_def, sizeof *g->def);
    if (def == NULL)
        return 0;
    g->def = def;
    use = grammar_grow(g->b, g->use, rule, &g->cap_use, sizeof *g->use);
    if (use == NULL)
        return 0;
    g->use = use;
    g->def[rule] = 0;
    g->use[rule] = (size_t)(name.p - g->start);
    g->slot[i] = rule + 1;
    return rule;
}

static uint32_t take_hex(struct gbnf *g, int n)
{
    const char *from = g->p;
    uint32_t v = 0;

    for (int i = 0; i < n; i++, g->p++) {
        char c = g->p < g->end ? *g->p : 'x';

        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            v = v << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
        else
            fail_here(g, "an escape has too few hexadecimal digits");
    }
    if (v > GRAMMAR_CP_MAX || (v >= 0xD800 && v <= 0xDFFF))
        fail_at(g, ERR_FORMAT, from, "an escape names no character");
    return v;
}

static uint32_t take_char(struct gbnf *g)
{
    static const char letter[] = "nrt\\\"[]", means[] = "\n\r\t\\\"[]";
    size_t n = str_utf8((struct str){ g->p, (size_t)(g->end - g->p) });
    uint32_t cp = (uint8_t)g->p[0];
    const char *known;

    if (*g->p != '\\') {
        if (n == 0)
            fail_here(g, "not UTF-8");
        if (n > 1)
            cp &= 0xFFU >> (n + 1);
        for (size_t i = 1; i < n; i++)
            cp = cp << 6 | ((uint8_t)g->p[i] & 0x3FU);
        g->p += n > 0 ? n : 1;
        return cp;
    }
    g->p++;
    if (is_char(g, 'x') || is_char(g, 'u') || is_char(g, 'U')) {
        char c = *g->p++;

        return take_hex(g, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    known = has_more(g) && *g->p != '\0' ? strchr(letter, *g->p) : NULL;
    if (known == NULL) {
        fail_here(g, "an unknown escape");
        return 0;
    }
    g->p++;
    return (uint8_t)means[known - letter];
}

/* Appends a node to a list of siblings. */
static void append_node(struct gbnf *g, uint32_t parent, uint32_t *last, uint32_t node)
{
    if (node == 0 || parent == 0)
        return;
    if (*last == 0)
        g->x.v[parent].child = node;
    else
        g->x.v[*last].next = node;
    *last = node;
}

static uint32_t read_literal(struct gbnf *g)
{
    uint32_t seq = grammar_expr_add(&g->x, EXPR_SEQ), last = 0;

    g->p++;
    while (has_more(g) && *g->p != '"')
        append_node(g, seq, &last, grammar_expr_char(&g->x, take_char(g)));
    if (!is_char(g, '"'))
        fail_here(g, "a literal is not closed");
    g->p++;
    return seq;
}

static uint32_t read_set(struct gbnf *g)
{
    bool negate;

    g->p++;
    negate = is_char(g, '^');
    g->p += negate;
    g->set.n = 0;
    while (has_more(g) && *g->p != ']') {
        const char *at = g->p;
        uint32_t lo = take_char(g), hi = lo;

        if (is_char(g, '-') && g->end - g->p >= 2 && g->p[1] != ']') {
            g->p++;
            hi = take_char(g);
        }
        if (hi < lo)
            fail_at(g, ERR_FORMAT, at, "a range of characters with wrong ends");
        grammar_range_add(g->b, &g->set, lo, hi);
    }
    if (!is_char(g, ']'))
        fail_here(g, "a set of characters is not closed");
    g->p++;
    grammar_ranges_settle(g->b, &g->set, negate);
    return grammar_expr_chars(&g->x, &g->set);
}

static uint32_t read_alternatives(struct gbnf *g, bool nested);

static uint32_t read_element(struct gbnf *g)
{
    const char *at = g->p;
    uint32_t node;

    switch (*g->p) {
    case '"':
        return read_literal(g);
    case '[':
        return read_set(g);
    case '.':
        g->p++;
        g->set.n = 0;
        grammar_range_add(g->b, &g->set, 0, GRAMMAR_CP_MAX);
        return grammar_expr_chars(&g->x, &g->set);
    case '(':
        g->p++;
        if (++g->depth > GRAMMAR_NEST_MAX)
            fail_at(g, ERR_LIMIT, at, "nested too deep");
        skip_space(g, true);
        node = read_alternatives(g, true);
        g->depth--;
        if (!is_char(g, ')'))
            fail_at(g, ERR_FORMAT, at, "a group is not closed");
        g->p++;
        return node;
    case '<':
    case '!':
        fail_at(g, ERR_UNSUPPORTED, at, "references to tokens are not supported");
        return 0;
    default:
        break;
    }
    node = grammar_expr_add(&g->x, EXPR_RULE);
    if (node != 0)
        g->x.v[node].range = rule_of(g, read_name(g));
    return node;
}

static int32_t read_count(struct gbnf *g)
{
    const char *from = g->p;
    int32_t v = 0;

    for (; has_more(g) && *g->p >= '0' && *g->p <= '9'; g->p++) {
        v = v * 10 + (*g->p - '0');
        if (v > GBNF_REPEAT_MAX) {
            fail_at(g, ERR_LIMIT, from, "a repetition of more than 2000");
            return 0;
        }
    }
    if (g->p == from)
        fail_here(g, "a number is expected");
    return v;
}

/* The operator at *p applied to a node. */
static uint32_t repeated(struct gbnf *g, uint32_t node, bool nested)
{
    char op = *g->p++;
    int32_t min = op == '+' ? 1 : 0, max = op == '?' ? 1 : -1;
    uint32_t rep;

    if (op == '{') {
        skip_space(g, nested);
        min = max = read_count(g);
        skip_space(g, nested);
        if (is_char(g, ',')) {
            g->p++;
            skip_space(g, nested);
            max = is_char(g, '}') ? -1 : read_count(g);
            skip_space(g, nested);
        }
        if (!is_char(g, '}'))
            fail_here(g, "} is expected");
        g->p++;
        if (max >= 0 && max < min)
            fail_here(g, "a repetition's greatest number is below its least");
    }
    rep = grammar_expr_add(&g->x, EXPR_REP);
    if (rep != 0) {
        g->x.v[rep].child = node;
        g->x.v[rep].min = min;
        g->x.v[rep].max = max;
    }
    return rep;
}

static bool ends_sequence(const struct gbnf *g)
{
    return !has_more(g) || *g->p == '|' || *g->p == ')' || *g->p == '\r' || *g->p == '\n';
}

static uint32_t read_sequence(struct gbnf *g, bool nested)
{
    uint32_t seq = grammar_expr_add(&g->x, EXPR_SEQ), last = 0;

    while (!ends_sequence(g)) {
        uint32_t node;

        if (strchr("*+?{", *g->p) != NULL && *g->p != '\0') {
            fail_here(g, "nothing to repeat");
            return seq;
        }
        node = read_element(g);
        skip_space(g, nested);
        while (has_more(g) && *g->p != '\0' && strchr("*+?{", *g->p) != NULL) {
            node = repeated(g, node, nested);
            skip_space(g, nested);
        }
        append_node(g, seq, &last, node);
    }
    return seq;
}

static uint32_t read_alternatives(struct gbnf *g, bool nested)
{
    uint32_t alt = grammar_expr_add(&g->x, EXPR_ALT), last = 0;

    append_node(g, alt, &last, read_sequence(g, nested));
    while (is_char(g, '|')) {
        g->p++;
        skip_space(g, true);
        append_node(g, alt, &last, read_sequence(g, nested));
    }
    return alt;
}

static void read_rule(struct gbnf *g)
{
    uint32_t rule = rule_of(g, read_name(g)), node;

    skip_space(g, false);
    if (g->b->code == ERR_OK && (g->end - g->p < 3 || memcmp(g->p, "::=", 3) != 0))
        fail_here(g, "::= is expected");
    if (g->b->code != ERR_OK)
        return;
    g->p += 3;
    skip_space(g, true);
    node = read_alternatives(g, false);
    if (g->b->code == ERR_OK)
        g->def[rule] = node;
    if (has_more(g) && *g->p != '\r' && *g->p != '\n')
        fail_here(g, "the end of the line is expected");
    skip_space(g, true);
}

enum err_code grammar_open_gbnf(struct grammar **out, const struct grammar_vocab *v, struct str s, struct err *e)
{
    struct grammar_build b = { .e = e };
    struct gbnf g = {
        .x = { .b = &b }, .b = &b, .start = s.p, .p = s.p, .end = s.p + s.n, .slot_mask = 2 * GRAMMAR_RULES_MAX - 1
    };
    uint32_t root = 0, n;

    g.slot = calloc((size_t)g.slot_mask + 1, sizeof *g.slot);
    if (g.slot == NULL)
        grammar_nomem(&b);
    if (s.n > GRAMMAR_TEXT_MAX)
        grammar_fail(&b, ERR_LIMIT, "a grammar of more than %d bytes", GRAMMAR_TEXT_MAX);
    skip_space(&g, true);
    while (has_more(&g))
        read_rule(&g);
    if (b.code == ERR_OK) {
        root = rule_of(&g, STR("root"));
        if (b.code == ERR_OK && g.def[root] == 0) /* the name is not in the text: no use[] to show */
            grammar_fail(&b, ERR_FORMAT, "there is no rule named root");
    }
    n = b.n_rule; /* repetitions add more */
    for (uint32_t r = 0; r < n && b.code == ERR_OK; r++) {
        if (g.def[r] == 0)
            fail_at(&g, ERR_FORMAT, s.p + g.use[r], "this rule is not defined");
        else
            grammar_expr_emit(&g.x, g.def[r], b.rule[r].start, b.rule[r].end, GRAMMAR_RAW);
    }
    free(g.slot);
    free(g.def);
    free(g.use);
    free(g.set.v);
    grammar_exprs_free(&g.x);
    return grammar_compile(out, v, &b, root);
}
