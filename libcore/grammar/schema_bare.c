/* SPDX-License-Identifier: Apache-2.0 */
/* schema_bare.c - values as bare text up to a mark.                               room: grammar
 *
 * A string is written as it is: any characters without the mark. A reader takes what looks like another type that the
 * parameter may have for that type, so such texts are left out of the strings. Other types are written as in JSON.
 *
 * Where a long text is counted, the count is kept in blocks of characters, each a rule. Within a block the characters
 * of the mark that the text ends with are known; at the end of one they are not, so a block goes on until the text does
 * not end with a beginning of the mark, and counts as if that had taken the most characters that it can. So up to 8 %
 * of a length beyond COUNTED cannot be used.
 */
#include <stdio.h>
#include <string.h>
#include "grammar/schema.h"

enum {
    COUNTED = 256,  /* characters that are counted one by one: the size of a block */
    LOOKED_AT = 32, /* of a long text, whose beginning shows that it is no other type */
    MARK_MAX = 40,
};

struct mark {
    uint32_t cp[MARK_MAX];
    int n;
};

static struct mark mark_of(struct schema *x, const char *s)
{
    struct mark m = { .n = 0 };

    for (struct str rest = str_of(s); rest.n > 0; m.n++) {
        const size_t k = str_utf8(rest);
        uint32_t cp = (uint8_t)rest.p[0];

        if (k == 0 || m.n == MARK_MAX || (m.n > 0 && cp == '<')) {
            grammar_fail(x->b, ERR_ARG, "not a mark that can end a text: %.60s", s);
            break;
        }
        if (k > 1)
            cp &= 0xFFU >> (k + 1);
        for (size_t i = 1; i < k; i++)
            cp = cp << 6 | ((uint8_t)rest.p[i] & 0x3FU);
        m.cp[m.n] = cp;
        rest = (struct str){ rest.p + k, rest.n - k };
    }
    return m;
}

/* The characters from lo to hi that are not a or b. */
static void put_but(struct grammar_build *b, uint32_t from, uint32_t to, struct grammar_range in, uint32_t x,
                    uint32_t y)
{
    const uint32_t lo = x < y ? x : y, hi = x < y ? y : x;
    const uint32_t cut[] = { in.lo, lo, lo + 1, hi, hi + 1, in.hi + 1 };

    for (int i = 0; i < 6; i += 2) {
        const struct grammar_range r = { cut[i] > in.lo ? cut[i] : in.lo,
                                         cut[i + 1] <= in.hi ? cut[i + 1] - 1 : in.hi };

        if (cut[i + 1] > cut[i] && r.lo <= r.hi)
            grammar_chars(b, from, to, &r, 1, GRAMMAR_RAW);
    }
}

/* What follows where the text ends with k characters of the mark: on[i] is where it then ends with i of them. `far` is
 * where a character beyond ASCII leads to on[0]: all ways there share its states. */
static void put_step(struct grammar_build *b, const struct mark *m, int k, uint32_t at, uint32_t far,
                     const uint32_t *on)
{
    const struct grammar_range next = { m->cp[k], m->cp[k] }, first = { m->cp[0], m->cp[0] };

    put_but(b, at, on[0], (struct grammar_range){ 1, 0x7F }, m->cp[0], m->cp[k]);
    if (m->cp[k] < 0x80)
        grammar_eps(b, at, far);
    else
        put_but(b, at, on[0], (struct grammar_range){ 0x80, GRAMMAR_CP_MAX }, m->cp[0], m->cp[k]);
    if (k > 0)
        grammar_chars(b, at, on[1], &first, 1, GRAMMAR_RAW);
    if (k + 1 < m->n)
        grammar_chars(b, at, on[k + 1], &next, 1, GRAMMAR_RAW);
}

/* lo .. hi characters (hi -1: no end) without the mark. whole: exactly hi, and then those that follow until the text
 * does not end with a beginning of the mark: at most m->n - 1. */
static void put_stretch(struct grammar_build *b, const struct mark *m, int64_t lo, int64_t hi, bool whole,
                        uint32_t from, uint32_t to)
{
    const int64_t last = hi < 0 ? lo : hi;
    const struct grammar_range beyond = { 0x80, GRAMMAR_CP_MAX };
    uint32_t at[MARK_MAX] = { 0 }, on[MARK_MAX] = { 0 }, far;

    for (int k = 0; k < m->n; k++)
        at[k] = grammar_state(b);
    grammar_eps(b, from, at[0]);
    for (int64_t i = 0; i <= last && b->code == ERR_OK; i++) {
        const bool stays = i == last;

        for (int k = 0; k < m->n; k++) {
            on[k] = stays ? at[k] : grammar_state(b);
            if (whole ? stays && k == 0 : i >= lo)
                grammar_eps(b, at[k], to);
        }
        far = grammar_state(b);
        grammar_chars(b, far, on[0], &beyond, 1, GRAMMAR_RAW);
        for (int k = 0; k < m->n && (k <= i || stays); k++)
            if (!stays || hi < 0 || (whole && k > 0))
                put_step(b, m, k, at[k], far, on);
        memcpy(at, on, sizeof at);
    }
}

/* Texts that a reader takes for one of these types; NULL: there are none. */
static struct grammar_dfa *looks_like(struct schema *x, int types)
{
    static const struct {
        int type;
        const char *regex, *named;
    } looks[] = {
        { T_NULL, "null", "(?:null|None)" },
        { T_BOOL, "(?:true|false)", "(?:true|false|True|False)" },
        { T_FRAC, "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", NULL },
        { T_INT, "-?(?:0|[1-9][0-9]*)(?:\\.0+)?", NULL },
        { T_ARR, "[\\[(].*", NULL },
        { T_OBJ, "\\{.*", NULL },
    };
    static const char space[] = "[ \\n\\r\\t]*";
    const bool names = x->bare->names;
    char all[512] = "";
    uint32_t from, to;

    if ((types & ~T_STR) == 0)
        return NULL;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if ((types & looks[i].type) != 0) {
            const size_t n = strlen(all);

            (void)snprintf(all + n, sizeof all - n, "%s%s%s%s", n > 0 ? "|" : "(?s)", space,
                           names && looks[i].named != NULL ? looks[i].named : looks[i].regex, space);
        }
    from = grammar_state(x->b);
    to = grammar_state(x->b);
    grammar_regex(x->b, str_of(all), false, GRAMMAR_RAW, from, to);
    return grammar_dfa_make(x->b, from, to);
}

/* Takes the texts of `other` out of *d, or puts it in place of nothing; frees `other`. */
static void take_out(struct schema *x, struct grammar_dfa **d, struct grammar_dfa *other)
{
    struct grammar_dfa *less;

    if (other == NULL)
        return;
    less = grammar_dfa_and(x->b, *d, other, true);
    grammar_dfa_free(*d);
    grammar_dfa_free(other);
    *d = less;
}

static struct grammar_dfa *stretch(struct schema *x, const struct mark *m, int64_t lo, int64_t hi, bool whole)
{
    uint32_t from = grammar_state(x->b), to = grammar_state(x->b);

    put_stretch(x->b, m, lo, hi, whole, from, to);
    return grammar_dfa_make(x->b, from, to);
}

static void put_dfa(struct schema *x, struct grammar_dfa *d, uint32_t from, uint32_t to)
{
    grammar_dfa_put(x->b, d, from, to);
    grammar_dfa_free(d);
}

static void call_block(struct grammar_build *b, uint32_t from, uint32_t to, void *ctx)
{
    grammar_call(b, from, to, *(const uint32_t *)ctx);
}

static uint32_t stretch_rule(struct schema *x, const struct mark *m, int64_t hi, bool whole)
{
    const uint32_t rule = grammar_rule_add(x->b, STR("stretch of text"));

    if (x->b->code == ERR_OK)
        put_stretch(x->b, m, 0, hi, whole, x->b->rule[rule].start, x->b->rule[rule].end);
    return rule;
}

/* Up to n characters, in blocks. */
static void put_long(struct schema *x, const struct mark *m, int64_t n, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    const int64_t size = COUNTED + m->n - 1, blocks = n / size;
    uint32_t some, all;

    if (blocks == 0) {
        put_stretch(b, m, 0, n, false, from, to);
        return;
    }
    if (x->block == 0) {
        x->block = stretch_rule(x, m, COUNTED, true);
        x->rest = stretch_rule(x, m, COUNTED - 1, false);
    }
    some = grammar_state(b);
    all = grammar_state(b);
    grammar_repeat(b, from, some, 0, blocks - 1, call_block, &x->block);
    grammar_call(b, some, to, x->rest);
    grammar_repeat(b, from, all, blocks, blocks, call_block, &x->block);
    put_stretch(b, m, 0, n % size, false, all, to);
}

/* A text of min .. max characters, max far away: its beginning is looked at, the rest is only counted. */
static void put_counted(struct schema *x, const struct mark *m, int64_t min, int64_t max, uint32_t from, uint32_t to)
{
    struct grammar_dfa *other = looks_like(x, x->types), *begins, *brief;
    const int64_t head = other != NULL && min < LOOKED_AT ? LOOKED_AT : min;
    uint32_t behind = grammar_state(x->b);

    if (head > min) {
        brief = stretch(x, m, min, head - 1, false);
        take_out(x, &brief, looks_like(x, x->types));
        put_dfa(x, brief, from, to);
    }
    if (head == 0) {
        grammar_eps(x->b, from, behind);
    } else {
        begins = stretch(x, m, head, head, true);
        for (uint32_t s = 1; other != NULL && s < other->n; s++)
            other->flag[s] |= GRAMMAR_ACC; /* the beginnings of its texts, too */
        take_out(x, &begins, other);
        put_dfa(x, begins, from, behind);
    }
    put_long(x, m, head == 0 ? max : max - head - (m->n - 1), behind, to);
}

/* The strings of a case that no keyword but lengths speaks of. */
static void put_plain(struct schema *x, const struct mark *m, int64_t min, int64_t max, uint32_t from, uint32_t to)
{
    struct grammar_dfa *d;

    if (max > COUNTED && min <= max - COUNTED / 2) {
        put_counted(x, m, min, max, from, to);
    } else {
        d = stretch(x, m, min, max, false);
        take_out(x, &d, looks_like(x, x->types));
        put_dfa(x, d, from, to);
    }
}

/* Texts of the same types and lengths are written once. */
static uint32_t plain_rule(struct schema *x, const struct mark *m, int64_t min, int64_t max)
{
    struct schema_text t = { .types = x->types, .min = min, .max = max };
    void *more;

    for (uint32_t i = 0; i < x->n_text; i++)
        if (x->text[i].types == t.types && x->text[i].min == min && x->text[i].max == max)
            return x->text[i].rule;
    more = grammar_grow(x->b, x->text, x->n_text, &x->cap_text, sizeof *x->text);
    if (more == NULL)
        return 0;
    x->text = more;
    t.rule = grammar_rule_add(x->b, STR("text"));
    x->text[x->n_text++] = t;
    if (x->b->code == ERR_OK)
        put_plain(x, m, min, max, x->b->rule[t.rule].start, x->b->rule[t.rule].end);
    return t.rule;
}

static void put_string(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    const struct mark m = mark_of(x, x->bare->close);
    struct grammar_dfa *d, *lengths;
    int64_t min, max;

    schema_counts(x, flat, "minLength", "maxLength", &min, &max);
    if (x->b->code != ERR_OK || (max >= 0 && max < min))
        return;
    x->b->raw = true;
    d = schema_patterns(x, flat);
    if (x->b->code == ERR_OK && d == NULL) {
        grammar_call(x->b, from, to, plain_rule(x, &m, min, max));
    } else if (x->b->code == ERR_OK) {
        lengths = stretch(x, &m, min, max, false);
        schema_cut(x, &d, lengths);
        take_out(x, &d, looks_like(x, x->types));
        put_dfa(x, d, from, to);
    }
    x->b->raw = false;
}

/* A value of an enumeration, where it can be written and is read as what it is. */
static void put_listed(struct schema *x, const json_t *value, uint32_t from, uint32_t to)
{
    const struct mark m = mark_of(x, x->bare->close);
    const char *s = json_string_value(value);
    struct grammar_dfa *d;

    if (s == NULL) {
        if ((schema_type_of(value) & x->types) != 0)
            schema_put_value(x, value, from, to);
        return;
    }
    if ((x->types & T_STR) == 0)
        return;
    d = stretch(x, &m, 0, -1, false);
    take_out(x, &d, looks_like(x, x->types));
    if (x->b->code == ERR_OK && grammar_dfa_has(d, (struct str){ s, json_string_length(value) }))
        grammar_text(x->b, from, to, str_of(s));
    grammar_dfa_free(d);
}

/* The value itself, of x->types. */
static void put_value(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    const struct mark m = mark_of(x, x->bare->close);
    const bool python = x->b->python;

    x->b->python = x->bare->names;
    if (flat->n == 0 && (x->types & T_STR) != 0)
        put_stretch(x->b, &m, 0, -1, false, from, to); /* anything: a reader finds out what it is */
    else if (!schema_listed(x, flat, put_listed, from, to)) {
        schema_emit_types(x, flat, x->types & ~T_STR, from, to);
        if ((schema_types(x, flat) & x->types & T_STR) != 0)
            put_string(x, flat, from, to);
    }
    x->b->python = python;
}

/* In its marks. Where the marks tell strings from other values, these are two. */
static void emit_bare(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    const struct grammar_dress *d = x->bare;
    const int types = x->types;
    uint32_t at, end = grammar_state(x->b);

    for (int text = 0; text < (d->text != NULL ? 2 : 1) && x->b->code == ERR_OK; text++) {
        x->types = d->text == NULL ? types : text ? T_STR : types & ~T_STR;
        at = grammar_state(x->b);
        grammar_mark(x->b, from, at, str_of(text ? d->text : d->value));
        put_value(x, flat, at, end);
    }
    x->types = types;
    at = grammar_state(x->b);
    grammar_bytes(x->b, end, at, (uint8_t)d->end[0], (uint8_t)d->end[0]);
    grammar_mark(x->b, at, to, str_of(d->end + 1));
}

uint32_t schema_bare_rule(struct schema *x, const struct schema_all *all, const char *key)
{
    const bool raw = x->b->raw;
    uint32_t rule;

    x->bare = x->dress;
    x->types = (int)x->dress->types(x->root, key != NULL ? str_of(key) : (struct str){ 0 });
    x->dress = NULL;
    x->b->raw = false;
    rule = schema_cases(x, all, emit_bare);
    x->dress = x->bare;
    x->b->raw = raw;
    return rule;
}
