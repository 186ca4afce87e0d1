/* SPDX-License-Identifier: Apache-2.0 */
/* schema_string.c - strings: lengths, patterns, formats.                        room: grammar
 *
 * A string is written in JSON in all the ways that JSON has for its characters. A pattern is an
 * automaton over these writings, so patterns, lengths and names that are taken are intersected and
 * subtracted as such.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

static const struct grammar_range any_char = { 0, GRAMMAR_CP_MAX };

static void put_char(struct grammar_build *b, uint32_t from, uint32_t to, void *ctx)
{
    (void)ctx;
    grammar_chars(b, from, to, &any_char, 1, grammar_spelled(b));
}

struct grammar_dfa *schema_any_string(struct schema *x)
{
    uint32_t s = grammar_state(x->b);

    put_char(x->b, s, s, NULL);
    return grammar_dfa_make(x->b, s, s);
}

struct grammar_dfa *schema_pattern(struct schema *x, struct schema_item item, const char *key, const char *pattern)
{
    struct grammar_build *b = x->b;
    uint32_t from = grammar_state(b), to = grammar_state(b);
    const bool before = b->code == ERR_OK;

    grammar_regex(b, str_of(pattern), true, grammar_spelled(b), from, to);
    if (before && b->code != ERR_OK) {
        err_wrap(b->e, "%s/%s", item.path, key);
        err_at(b->e, "%s/%s", item.path + 1, key);
        x->placed = true;
    }
    return grammar_dfa_make(b, from, to);
}

/* NULL, too: a name that JSON Schema does not have is an annotation. */
static struct grammar_dfa *format_of(struct schema *x, struct schema_item item, const char *name)
{
    static const char *const missing[] = { "idn-email",     "idn-hostname", "uri-reference", "iri",
                                           "iri-reference", "uri-template", "regex" };
    static const struct {
        const char *name, *regex;
    } formats[] = {
#define FORMAT(name, regex) { name, regex },
#include "grammar/formats.def"
#undef FORMAT
    };
    struct grammar_build *b = x->b;
    uint32_t from = grammar_state(b), to = grammar_state(b);

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) != 0)
            continue;
        grammar_regex(b, str_of(formats[i].regex), false, grammar_spelled(b), from, to);
        return grammar_dfa_make(b, from, to);
    }
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (strcmp(missing[i], name) == 0)
            schema_fail(x, ERR_UNSUPPORTED, item.path, "format", "this format is not supported");
    return NULL;
}

void schema_cut(struct schema *x, struct grammar_dfa **d, struct grammar_dfa *y)
{
    struct grammar_dfa *both;

    if (y == NULL)
        return;
    if (*d == NULL) {
        *d = y;
        return;
    }
    both = grammar_dfa_and(x->b, *d, y, false);
    grammar_dfa_free(*d);
    grammar_dfa_free(y);
    *d = both;
}

struct grammar_dfa *schema_patterns(struct schema *x, const struct schema_all *flat)
{
    struct grammar_dfa *d = NULL;

    for (uint32_t i = 0; i < flat->n && x->b->code == ERR_OK; i++) {
        const json_t *pattern = json_object_get(flat->v[i].s, "pattern");
        const json_t *format = json_object_get(flat->v[i].s, "format");

        if (pattern != NULL && !json_is_string(pattern))
            schema_fail(x, ERR_FORMAT, flat->v[i].path, "pattern", "not a string");
        else if (pattern != NULL)
            schema_cut(x, &d, schema_pattern(x, flat->v[i], "pattern", json_string_value(pattern)));
        if (format != NULL && !json_is_string(format))
            schema_fail(x, ERR_FORMAT, flat->v[i].path, "format", "not a string");
        else if (format != NULL && x->b->code == ERR_OK)
            schema_cut(x, &d, format_of(x, flat->v[i], json_string_value(format)));
    }
    if (x->b->code == ERR_OK)
        return d;
    grammar_dfa_free(d);
    return NULL;
}

struct grammar_dfa *schema_string(struct schema *x, const struct schema_all *flat)
{
    struct grammar_build *b = x->b;
    struct grammar_dfa *d = schema_patterns(x, flat);
    bool unrolled = b->unrolled;
    int64_t min, max;
    uint32_t from, to;

    schema_counts(x, flat, "minLength", "maxLength", &min, &max);
    if (b->code == ERR_OK && (d == NULL || min > 0 || max >= 0)) {
        from = grammar_state(b);
        to = grammar_state(b);
        b->unrolled = true;
        if (max < 0 || min <= max)
            grammar_repeat(b, from, to, min, max, put_char, NULL);
        b->unrolled = unrolled;
        schema_cut(x, &d, grammar_dfa_make(b, from, to));
    }
    if (b->code == ERR_OK)
        return d;
    grammar_dfa_free(d);
    return NULL;
}

/* Any characters, but no "</", which begins the marks around the value; a "<" is free. Where they are counted a "<" is
 * written as an escape instead. */
static void put_no_marks(struct grammar_build *b, uint32_t from, uint32_t to)
{
    static const struct grammar_range other[] = { { 0, '/' - 1 }, { '/' + 1, '<' - 1 }, { '<' + 1, GRAMMAR_CP_MAX } };
    uint32_t at = grammar_state(b), behind = grammar_state(b), slash = grammar_state(b);

    grammar_eps(b, from, at);
    put_char(b, at, at, NULL);
    grammar_bytes(b, at, behind, '<', '<');
    grammar_bytes(b, behind, behind, '<', '<');
    grammar_chars(b, behind, at, other, 3, GRAMMAR_JSON);
    grammar_bytes(b, behind, slash, '\\', '\\');
    grammar_bytes(b, slash, at, '/', '/');
    grammar_eps(b, at, to);
    grammar_eps(b, behind, to);
}

void schema_put_string(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    uint32_t inside = grammar_state(b), end = grammar_state(b);
    struct grammar_dfa *d = schema_patterns(x, flat);
    int64_t min, max;

    schema_counts(x, flat, "minLength", "maxLength", &min, &max);
    grammar_text(b, from, inside, STR("\""));
    if (d != NULL) {
        grammar_dfa_free(d);
        d = schema_string(x, flat);
        grammar_dfa_put(b, d, inside, end);
        grammar_dfa_free(d);
    } else if (min == 0 && max < 0 && b->no_marks) {
        put_no_marks(b, inside, end);
    } else if (max < 0 || min <= max) {
        grammar_repeat(b, inside, end, min, max, put_char, NULL);
    }
    grammar_text(b, end, to, STR("\""));
}

void schema_put_spelled(struct schema *x, const char *s, size_t n, uint32_t from, uint32_t to)
{
    struct str rest = { s, n };

    while (rest.n > 0 && x->b->code == ERR_OK) {
        size_t k = str_utf8(rest);
        uint32_t cp = (uint8_t)rest.p[0], next = k == rest.n ? to : grammar_state(x->b);

        if (k > 1)
            cp &= 0xFFU >> (k + 1);
        for (size_t i = 1; i < k; i++)
            cp = cp << 6 | ((uint8_t)rest.p[i] & 0x3FU);
        grammar_chars(x->b, from, next, &(struct grammar_range){ cp, cp }, 1, grammar_spelled(x->b));
        from = next;
        rest.p += k > 0 ? k : 1;
        rest.n -= k > 0 ? k : 1;
    }
    if (n == 0)
        grammar_eps(x->b, from, to);
}

bool schema_has(struct schema *x, const struct grammar_dfa *d, const char *s, size_t n)
{
    json_t *string;
    char *quoted;
    bool has = false;

    if (x->b->raw)
        return d != NULL && grammar_dfa_has(d, (struct str){ s, n });
    string = json_stringn(s, n);
    quoted = string == NULL ? NULL : json_dump(string, JSON_ENCODE_ANY);
    if (quoted == NULL)
        grammar_nomem(x->b);
    else if (d != NULL)
        has = grammar_dfa_has(d, (struct str){ quoted + 1, strlen(quoted) - 2 });
    json_decref(string);
    free(quoted);
    return has;
}
