/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - regular expressions: Python's notation, read as automata.           room: grammar
 *
 * Anchors and word boundaries have no place in an automaton of characters. Where nothing repeats
 * the sequence that they stand in, the text is cut there. ^ and $ ask that one side is empty. \b asks
 * that the last character before and the first one behind are of different kinds: two intersections
 * on each side. Alternatives that contain them are written out as branches of the
 * whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/internal.h"

enum { BRANCHES_MAX = 256, ITEMS_MAX = 1 << 16 };

struct re {
    struct grammar_exprs x;
    struct grammar_build *b;
    const char *start, *p, *end;
    int depth;
    bool fold, dot_all; /* (?i), (?s) */
    struct grammar_ranges set;
};

/* limit: is named behind `what`; 0: none. */
static void fail_at(struct re *r, enum err_code code, const char *at, const char *what, int limit)
{
    const size_t column = (size_t)(at - r->start) + 1;
    char number[16] = "";

    if (limit > 0)
        snprintf(number, sizeof number, " %d", limit);
    if (grammar_fail(r->b, code, "column %zu: %s%s", column, what, number))
        err_at(r->b->e, "1:%zu", column);
}

static void fail_pattern(struct re *r, const char *at, const char *what)
{
    fail_at(r, ERR_FORMAT, at, what, 0);
}

static void cannot(struct re *r, const char *at, const char *what)
{
    fail_at(r, ERR_UNSUPPORTED, at, what, 0);
}

static bool has_more(const struct re *r)
{
    return r->p < r->end && r->b->code == ERR_OK;
}

static bool eat(struct re *r, const char *what)
{
    size_t n = strlen(what);

    if ((size_t)(r->end - r->p) < n || memcmp(r->p, what, n) != 0)
        return false;
    r->p += n;
    return true;
}

/* The next code point; the text was checked to be UTF-8. */
static uint32_t take_char(struct re *r)
{
    size_t n = str_utf8((struct str){ r->p, (size_t)(r->end - r->p) });
    uint32_t cp = (uint8_t)r->p[0];

    if (n > 1)
        cp &= 0xFFU >> (n + 1);
    for (size_t i = 1; i < n; i++)
        cp = cp << 6 | ((uint8_t)r->p[i] & 0x3FU);
    r->p += n;
    return cp;
}

/* \d, \w and \s have the ASCII characters only, while \D, \W and \S leave out those of Unicode too: so a text matches
 * whichever reading its user has. wide: inside a negated set, where it is the other way round. False: c is none of
 * these. */
static bool add_kind(struct re *r, struct grammar_ranges *to, char c, bool wide)
{
    static const struct grammar_range spaces[] = { { 0x1C, 0x1F },     { 0x85, 0x85 },     { 0xA0, 0xA0 },
                                                   { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
                                                   { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 },
                                                   { 0xFEFF, 0xFEFF } };
    struct grammar_ranges kind = { 0 };
    char low = (char)(c | 0x20);

    if (low != 'd' && low != 'w' && low != 's')
        return false;
    wide = wide != (c != low);
    if (low == 's') {
        grammar_range_add(r->b, &kind, '\t', '\r');
        grammar_range_add(r->b, &kind, ' ', ' ');
        for (size_t i = 0; i < sizeof spaces / sizeof *spaces && wide; i++)
            grammar_range_add(r->b, &kind, spaces[i].lo, spaces[i].hi);
    } else {
        grammar_range_add(r->b, &kind, '0', '9');
        if (wide)
            grammar_property(r->b, low == 'd' ? "\\p{Nd}+" : "[\\p{L}\\p{N}]+", &kind);
    }
    if (low == 'w') {
        grammar_range_add(r->b, &kind, 'A', 'Z');
        grammar_range_add(r->b, &kind, '_', '_');
        grammar_range_add(r->b, &kind, 'a', 'z');
    }
    grammar_ranges_settle(r->b, &kind, c != low);
    for (uint32_t i = 0; i < kind.n; i++)
        grammar_range_add(r->b, to, kind.v[i].lo, kind.v[i].hi);
    free(kind.v);
    return true;
}

static uint32_t take_hex(struct re *r, const char *at, int n)
{
    uint32_t v = 0;

    for (int i = 0; i < n; i++, r->p++) {
        char c = r->p < r->end ? *r->p : 'x';
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;

        if (d == 16) {
            fail_pattern(r, at, "an escape has too few hexadecimal digits");
            return 0;
        }
        v = v << 4 | d;
    }
    if (v > GRAMMAR_CP_MAX || (v >= 0xD800 && v <= 0xDFFF))
        fail_pattern(r, at, "an escape names no character");
    return v;
}

static bool is_octal(const struct re *r, int at)
{
    return r->end - r->p > at && r->p[at] >= '0' && r->p[at] <= '7';
}

/* Octal digits: \0, \012, \101. */
static uint32_t take_octal(struct re *r, int n)
{
    uint32_t v = 0;

    for (int i = 0; i < n && is_octal(r, 0); i++, r->p++)
        v = v * 8 + (uint32_t)(*r->p - '0');
    return v;
}

/* The character that an escape means, behind the backslash; kinds and anchors were looked at
 * before. */
static uint32_t escape(struct re *r, const char *at, bool in_set)
{
    static const char letter[] = "abfnrtv", means[] = "\a\b\f\n\r\t\v";
    char c = r->p < r->end ? *r->p : '\0';
    const char *known = c == '\0' ? NULL : strchr(letter, c);

    if (c == '\0') {
        fail_pattern(r, at, "a backslash at the end");
        return 0;
    }
    if (known != NULL) {
        r->p++;
        return (uint8_t)means[known - letter];
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        r->p++;
        return take_hex(r, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    if (c == '0' || (in_set && c >= '1' && c <= '7') || (c >= '1' && c <= '3' && is_octal(r, 1) && is_octal(r, 2)))
        return take_octal(r, 3);
    if (c >= '1' && c <= '9') {
        cannot(r, at, "references to groups are not supported");
        return 0;
    }
    if (c == 'p' || c == 'P' || c == 'N') {
        cannot(r, at, "properties and names of characters are not supported");
        return 0;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        fail_pattern(r, at, "an unknown escape");
        return 0;
    }
    return take_char(r);
}

/* The other case of ASCII letters. */
static void add_folded(struct re *r, struct grammar_ranges *set)
{
    uint32_t n = set->n;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 'A'; c <= 'Z'; c++) {
            struct grammar_range one = set->v[i];

            if (one.lo <= c && c <= one.hi)
                grammar_range_add(r->b, set, c + 32, c + 32);
            if (one.lo <= c + 32 && c + 32 <= one.hi)
                grammar_range_add(r->b, set, c, c);
        }
}

static void check_fold(struct re *r, const char *at, uint32_t cp)
{
    if (r->fold && cp > 0x7F)
        cannot(r, at, "(?i) with letters outside of ASCII is not supported");
}

/* One end of a range in a set; *kind: it was \d or the like and is in the set already. */
static uint32_t set_char(struct re *r, bool negate, bool *kind)
{
    const char *at = r->p;
    uint32_t cp;

    *kind = false;
    if (*r->p != '\\') {
        cp = take_char(r);
    } else {
        r->p++;
        *kind = r->p < r->end && add_kind(r, &r->set, *r->p, negate);
        if (*kind) {
            r->p++;
            return 0;
        }
        cp = escape(r, at, true);
    }
    check_fold(r, at, cp);
    return cp;
}

static uint32_t read_set(struct re *r, const char *at)
{
    bool negate = eat(r, "^"), first = true, kind_lo, kind_hi;

    r->set.n = 0;
    for (; has_more(r) && (*r->p != ']' || first); first = false) {
        const char *here = r->p;
        uint32_t lo = set_char(r, negate, &kind_lo), hi = lo;

        if (r->end - r->p >= 2 && r->p[0] == '-' && r->p[1] != ']') {
            r->p++;
            hi = set_char(r, negate, &kind_hi);
            if (kind_lo || kind_hi || hi < lo)
                fail_pattern(r, here, "a range of characters with wrong ends");
        }
        if (!kind_lo)
            grammar_range_add(r->b, &r->set, lo, hi);
    }
    if (!eat(r, "]"))
        fail_pattern(r, at, "a set of characters is not closed");
    if (r->fold)
        add_folded(r, &r->set);
    grammar_ranges_settle(r->b, &r->set, negate);
    return grammar_expr_chars(&r->x, &r->set);
}

static uint32_t at_node(struct re *r, int what)
{
    uint32_t at = grammar_expr_add(&r->x, EXPR_AT);

    if (at != 0)
        r->x.v[at].at = (uint8_t)what;
    return at;
}

static uint32_t read_escape(struct re *r, const char *at)
{
    char c = r->p < r->end ? *r->p : '\0';
    uint32_t cp;

    r->set.n = 0;
    if (c != '\0' && add_kind(r, &r->set, c, false)) {
        r->p++;
        return grammar_expr_chars(&r->x, &r->set);
    }
    if (c == 'b' || c == 'B' || c == 'A' || c == 'Z') {
        r->p++;
        return at_node(r, c == 'b' ? AT_WORD : c == 'B' ? AT_NO_WORD : c == 'A' ? AT_START : AT_END);
    }
    cp = escape(r, at, false);
    check_fold(r, at, cp);
    grammar_range_add(r->b, &r->set, cp, cp);
    if (r->fold)
        add_folded(r, &r->set);
    return grammar_expr_chars(&r->x, &r->set);
}

static uint32_t read_alternatives(struct re *r);

/* Letters of (?is) or (?i:...). True: a group follows. */
static bool read_flags(struct re *r, const char *at)
{
    bool on = true;

    for (; has_more(r) && *r->p != ')' && *r->p != ':'; r->p++) {
        if (*r->p == '-' && on)
            on = false;
        else if (*r->p == 'i')
            r->fold = on;
        else if (*r->p == 's')
            r->dot_all = on;
        else if (strchr("aLumx", *r->p) != NULL)
            cannot(r, at, "only the flags i and s are supported");
        else
            fail_pattern(r, at, "an unknown kind of group");
    }
    if (eat(r, ":"))
        return true;
    if (!eat(r, ")"))
        fail_pattern(r, at, "a group is not closed");
    return false;
}

static void read_name(struct re *r, const char *at)
{
    const char *from = r->p;

    while (has_more(r) && *r->p != '>')
        r->p++;
    if (r->p == from || !eat(r, ">"))
        fail_pattern(r, at, "a group's name is not complete");
}

static uint32_t read_group(struct re *r, const char *at)
{
    bool fold = r->fold, dot_all = r->dot_all;
    uint32_t node;

    if (eat(r, "?")) {
        if (eat(r, "P=") || eat(r, "("))
            cannot(r, at, "references to groups are not supported");
        else if (eat(r, "=") || eat(r, "!") || eat(r, "<=") || eat(r, "<!"))
            cannot(r, at, "looking ahead and behind are not supported");
        else if (eat(r, ">"))
            cannot(r, at, "atomic groups are not supported");
        else if (eat(r, "#"))
            cannot(r, at, "comments are not supported");
        else if (eat(r, "P<") || eat(r, "<"))
            read_name(r, at);
        else if (!read_flags(r, at)) {
            if (at != r->start)
                fail_pattern(r, at, "flags for all of the expression stand at its start");
            return grammar_expr_add(&r->x, EXPR_EMPTY);
        }
    }
    if (++r->depth > GRAMMAR_NEST_MAX)
        fail_at(r, ERR_LIMIT, at, "nested deeper than", GRAMMAR_NEST_MAX);
    node = read_alternatives(r);
    r->depth--;
    if (!eat(r, ")"))
        fail_pattern(r, at, "a group is not closed");
    r->fold = fold;
    r->dot_all = dot_all;
    return node;
}

static uint32_t read_atom(struct re *r)
{
    const char *at = r->p;
    uint32_t cp;

    switch (*r->p) {
    case '(':
        r->p++;
        return read_group(r, at);
    case '[':
        r->p++;
        return read_set(r, at);
    case '\\':
        r->p++;
        return read_escape(r, at);
    case '^':
        r->p++;
        return at_node(r, AT_START);
    case '$':
        r->p++;
        return at_node(r, AT_END);
    case '*':
    case '+':
    case '?':
        fail_pattern(r, at, "nothing to repeat");
        return 0;
    default:
        break;
    }
    r->set.n = 0;
    cp = take_char(r);
    check_fold(r, at, cp);
    grammar_range_add(r->b, &r->set, cp, cp);
    if (*at == '.' && r->dot_all)
        r->set.n = 0;
    else if (*at == '.')
        r->set.v[0] = (struct grammar_range){ '\n', '\n' };
    if (r->fold)
        add_folded(r, &r->set);
    grammar_ranges_settle(r->b, &r->set, *at == '.');
    return grammar_expr_chars(&r->x, &r->set);
}

static bool take_count(struct re *r, int32_t *count)
{
    const char *from = r->p;
    int64_t v = 0;

    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        if (v <= INT32_MAX)
            v = v * 10 + (*r->p - '0');
    if (v > GRAMMAR_REPEAT_MAX)
        fail_at(r, ERR_LIMIT, from, "a repetition of more than", GRAMMAR_REPEAT_MAX);
    *count = (int32_t)v;
    return r->p > from;
}

/* A quantifier; false: none, nothing is taken. A brace that is no quantifier stands for itself. */
static bool read_times(struct re *r, int32_t *min, int32_t *max)
{
    const char *from = r->p;

    *min = 0;
    *max = -1;
    if (eat(r, "*"))
        return true;
    if (eat(r, "+")) {
        *min = 1;
        return true;
    }
    if (eat(r, "?")) {
        *max = 1;
        return true;
    }
    if (eat(r, "{") && r->p < r->end && *r->p != '}') {
        bool lo = take_count(r, min), hi = lo;

        if (eat(r, ","))
            hi = take_count(r, max);
        else
            *max = *min;
        if (!hi)
            *max = -1;
        if (eat(r, "}")) {
            if (*max >= 0 && *max < *min)
                fail_pattern(r, from, "a repetition's greatest number is below its least");
            return true;
        }
    }
    r->p = from;
    return false;
}

static uint32_t read_item(struct re *r)
{
    const char *at = r->p;
    uint32_t node = read_atom(r), rep;
    int32_t min, max;

    if (!has_more(r) || !read_times(r, &min, &max))
        return node;
    if (node != 0 && (r->x.v[node].kind == EXPR_AT || r->x.v[node].kind == EXPR_EMPTY))
        fail_pattern(r, at, "nothing to repeat");
    rep = grammar_expr_add(&r->x, EXPR_REP);
    if (rep == 0)
        return 0;
    r->x.v[rep].child = node;
    r->x.v[rep].min = min;
    r->x.v[rep].max = max;
    if (!eat(r, "?") && has_more(r) && *r->p == '+')
        cannot(r, r->p, "possessive repetitions are not supported");
    at = r->p;
    if (has_more(r) && read_times(r, &min, &max))
        fail_pattern(r, at, "a repetition of a repetition");
    return rep;
}

static uint32_t read_sequence(struct re *r)
{
    uint32_t seq = grammar_expr_add(&r->x, EXPR_SEQ), last = 0;

    while (has_more(r) && *r->p != '|' && *r->p != ')') {
        uint32_t item = read_item(r);

        if (item == 0 || seq == 0)
            return 0;
        if (last == 0)
            r->x.v[seq].child = item;
        else
            r->x.v[last].next = item;
        last = item;
    }
    return seq;
}

static uint32_t read_alternatives(struct re *r)
{
    uint32_t first = read_sequence(r), alt, last = first;

    if (!has_more(r) || *r->p != '|' || first == 0)
        return first;
    alt = grammar_expr_add(&r->x, EXPR_ALT);
    if (alt == 0)
        return 0;
    r->x.v[alt].child = first;
    while (eat(r, "|")) {
        uint32_t next = read_sequence(r);

        if (next == 0)
            return 0;
        r->x.v[last].next = next;
        last = next;
    }
    return alt;
}

/* A branch of the whole as a list of items. */
struct items {
    uint32_t *v, n;
};

static bool has_at(const struct re *r, uint32_t node)
{
    const struct grammar_expr *x = &r->x.v[node];

    if (x->kind == EXPR_AT)
        return true;
    if (x->kind == EXPR_SEQ || x->kind == EXPR_ALT || x->kind == EXPR_REP)
        for (uint32_t i = x->child; i != 0; i = r->x.v[i].next)
            if (has_at(r, i))
                return true;
    return false;
}

static bool can_be_empty(const struct re *r, uint32_t node)
{
    const struct grammar_expr *x = &r->x.v[node];
    bool all = true, any = false;

    for (uint32_t i = x->child; i != 0; i = r->x.v[i].next) {
        bool empty = can_be_empty(r, i);

        all = all && empty;
        any = any || empty;
    }
    switch (x->kind) {
    case EXPR_CHARS:
        return false;
    case EXPR_ALT:
        return any;
    case EXPR_REP:
        return x->min == 0 || all;
    case EXPR_AT:
        return x->at == AT_END;
    default:
        return all;
    }
}

static bool all_empty(const struct re *r, const uint32_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!can_be_empty(r, v[i]))
            return false;
    return true;
}

static void emit_items(struct re *r, const uint32_t *v, uint32_t n, uint32_t from, uint32_t to,
                       enum grammar_spell spell)
{
    for (uint32_t i = 0; i < n && r->b->code == ERR_OK; i++) {
        uint32_t next = i + 1 == n ? to : grammar_state(r->b);

        grammar_expr_emit(&r->x, v[i], from, next, spell);
        from = next;
    }
    if (n == 0)
        grammar_eps(r->b, from, to);
}

/* Texts that end (last) or begin with a character that is of a word, or is not or is none. */
static struct grammar_dfa *edge_text(struct re *r, bool last, bool word, enum grammar_spell spell)
{
    struct grammar_build *b = r->b;
    uint32_t start = grammar_state(b), loop = grammar_state(b), end = grammar_state(b);
    struct grammar_range any = { 0, GRAMMAR_CP_MAX };

    r->set.n = 0;
    add_kind(r, &r->set, 'w', false);
    if (!word) { /* of ASCII: beyond it, what a word is depends on the reading */
        grammar_range_add(b, &r->set, 0x80, GRAMMAR_CP_MAX);
        grammar_ranges_settle(b, &r->set, true);
    }
    if (b->code != ERR_OK)
        return NULL;
    grammar_chars(b, loop, loop, &any, 1, spell);
    if (last) {
        grammar_eps(b, start, loop);
        grammar_chars(b, loop, end, r->set.v, r->set.n, spell);
    } else {
        grammar_chars(b, start, loop, r->set.v, r->set.n, spell);
        grammar_eps(b, loop, end);
    }
    if (!word)
        grammar_eps(b, start, end);
    return grammar_dfa_make(b, start, end);
}

static void emit_branch(struct re *r, const uint32_t *v, uint32_t n, uint32_t from, uint32_t to,
                        enum grammar_spell spell);

/* x of items before a boundary, y of those behind it. */
static void emit_boundary(struct re *r, const uint32_t *v, uint32_t at, uint32_t n, uint32_t from, uint32_t to,
                          enum grammar_spell spell)
{
    struct grammar_build *b = r->b;
    bool differ = r->x.v[v[at]].at == AT_WORD;
    uint32_t xs = grammar_state(b), xe = grammar_state(b), ys = grammar_state(b), ye = grammar_state(b);
    struct grammar_dfa *x, *y;

    emit_items(r, v, at, xs, xe, spell);
    emit_branch(r, v + at + 1, n - at - 1, ys, ye, spell);
    x = grammar_dfa_make(b, xs, xe);
    y = grammar_dfa_make(b, ys, ye);
    for (int word = 0; word < 2 && b->code == ERR_OK; word++) {
        struct grammar_dfa *last = edge_text(r, true, word != 0, spell);
        struct grammar_dfa *first = edge_text(r, false, (word != 0) != differ, spell);
        struct grammar_dfa *left = grammar_dfa_and(b, x, last, false);
        struct grammar_dfa *right = grammar_dfa_and(b, y, first, false);
        uint32_t mid = grammar_state(b);

        grammar_dfa_put(b, left, from, mid);
        grammar_dfa_put(b, right, mid, to);
        grammar_dfa_free(last);
        grammar_dfa_free(first);
        grammar_dfa_free(left);
        grammar_dfa_free(right);
    }
    grammar_dfa_free(x);
    grammar_dfa_free(y);
}

static void emit_branch(struct re *r, const uint32_t *v, uint32_t n, uint32_t from, uint32_t to,
                        enum grammar_spell spell)
{
    uint32_t i = 0;

    while (i < n && r->x.v[v[i]].kind != EXPR_AT)
        i++;
    if (i == n) {
        emit_items(r, v, n, from, to, spell);
    } else if (r->x.v[v[i]].at == AT_START) {
        if (all_empty(r, v, i))
            emit_branch(r, v + i + 1, n - i - 1, from, to, spell);
    } else if (r->x.v[v[i]].at == AT_END) {
        for (uint32_t k = i + 1; k < n; k++)
            if (r->x.v[v[k]].kind == EXPR_AT && r->x.v[v[k]].at != AT_END)
                grammar_fail(r->b, ERR_UNSUPPORTED, "an anchor or boundary after $ is not supported");
        if (all_empty(r, v + i + 1, n - i - 1))
            emit_items(r, v, i, from, to, spell);
    } else {
        emit_boundary(r, v, i, n, from, to, spell);
    }
}

/* Writes out sequences and alternatives that contain anchors, then the branch. */
static void emit_flat(struct re *r, struct items list, int *branches, uint32_t from, uint32_t to,
                      enum grammar_spell spell)
{
    uint32_t i = 0, k, n, *v;
    struct grammar_expr node;

    while (i < list.n && (r->x.v[list.v[i]].kind == EXPR_AT || !has_at(r, list.v[i])))
        i++;
    if (!grammar_spend(r->b, list.n + 1))
        return;
    if (i == list.n) {
        if (++*branches > BRANCHES_MAX)
            grammar_fail(r->b, ERR_LIMIT, "more than %d branches with anchors", BRANCHES_MAX);
        else
            emit_branch(r, list.v, list.n, from, to, spell);
        return;
    }
    node = r->x.v[list.v[i]];
    if (node.kind == EXPR_REP) {
        grammar_fail(r->b, ERR_UNSUPPORTED, "an anchor or word boundary inside a repetition");
        return;
    }
    for (uint32_t alt = node.kind == EXPR_ALT ? node.child : list.v[i]; alt != 0; alt = r->x.v[alt].next) {
        n = list.n - 1;
        if (r->x.v[alt].kind == EXPR_SEQ)
            for (k = r->x.v[alt].child; k != 0; k = r->x.v[k].next)
                n++;
        else
            n++;
        v = n > ITEMS_MAX ? NULL : calloc((size_t)n + 1, sizeof *v);
        if (v == NULL) {
            grammar_fail(r->b, ERR_LIMIT, "an expression with anchors is too long");
            return;
        }
        memcpy(v, list.v, i * sizeof *v);
        n = i;
        if (r->x.v[alt].kind == EXPR_SEQ)
            for (k = r->x.v[alt].child; k != 0; k = r->x.v[k].next)
                v[n++] = k;
        else
            v[n++] = alt;
        memcpy(v + n, list.v + i + 1, (list.n - i - 1) * sizeof *v);
        emit_flat(r, (struct items){ v, n + list.n - i - 1 }, branches, from, to, spell);
        free(v);
        if (node.kind != EXPR_ALT)
            break;
    }
}

/* Any text, as an item. */
static uint32_t anything(struct re *r)
{
    uint32_t rep = grammar_expr_add(&r->x, EXPR_REP), chars;

    r->set.n = 0;
    grammar_range_add(r->b, &r->set, 0, GRAMMAR_CP_MAX);
    chars = grammar_expr_chars(&r->x, &r->set);
    if (rep != 0) {
        r->x.v[rep].child = chars;
        r->x.v[rep].max = -1;
    }
    return rep;
}

void grammar_regex(struct grammar_build *b, struct str s, bool search, enum grammar_spell spell, uint32_t from,
                   uint32_t to)
{
    struct re r = { .x = { .b = b }, .b = b, .start = s.p, .p = s.p, .end = s.p + s.n };
    uint32_t root, items[3];
    int branches = 0;
    bool unrolled = b->unrolled;

    if (s.n > GRAMMAR_TEXT_MAX)
        grammar_fail(b, ERR_LIMIT, "an expression of more than %d bytes", GRAMMAR_TEXT_MAX);
    for (struct str rest = s; rest.n > 0 && b->code == ERR_OK;) {
        size_t n = str_utf8(rest);

        if (n == 0)
            fail_pattern(&r, rest.p, "not UTF-8");
        rest.p += n;
        rest.n -= n;
    }
    b->unrolled = true;
    root = b->code != ERR_OK ? 0 : read_alternatives(&r);
    if (has_more(&r))
        fail_pattern(&r, r.p, "a parenthesis is closed that was not opened");
    if (b->code == ERR_OK && !search && !has_at(&r, root)) {
        grammar_expr_emit(&r.x, root, from, to, spell);
    } else if (b->code == ERR_OK) {
        items[0] = search ? anything(&r) : root;
        items[1] = root;
        items[2] = items[0];
        if (b->code == ERR_OK)
            emit_flat(&r, (struct items){ items, search ? 3 : 1 }, &branches, from, to, spell);
    }
    b->unrolled = unrolled;
    free(r.set.v);
    grammar_exprs_free(&r.x);
}

enum err_code grammar_open_regex(struct grammar **out, const struct grammar_vocab *v, struct str s, struct err *e)
{
    struct grammar_build b = { .e = e };
    uint32_t root = grammar_rule_add(&b, STR("root"));

    if (b.code == ERR_OK)
        grammar_regex(&b, s, false, GRAMMAR_RAW, b.rule[root].start, b.rule[root].end);
    return grammar_compile(out, v, &b, root);
}
