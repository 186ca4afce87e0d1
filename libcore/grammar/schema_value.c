/* SPDX-License-Identifier: Apache-2.0 */
/* schema_value.c - one case of a value: its types, numbers, arrays, enumerations.   room: grammar
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

static const struct {
    const char *name;
    int types;
} type_names[] = {
    { "null", T_NULL },  { "boolean", T_BOOL }, { "integer", T_INT }, { "number", T_INT | T_FRAC },
    { "string", T_STR }, { "array", T_ARR },    { "object", T_OBJ },
};

static int type_of_name(struct schema *x, struct schema_item item, const json_t *name, const char *key)
{
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++)
        if (json_is_string(name) && strcmp(json_string_value(name), type_names[i].name) == 0)
            return type_names[i].types;
    schema_fail(x, ERR_FORMAT, item.path, key, "no such type");
    return 0;
}

static int types_of(struct schema *x, struct schema_item item, const json_t *type, const char *key)
{
    int types = 0;

    if (!json_is_array(type))
        return type_of_name(x, item, type, key);
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_of_name(x, item, json_array_get(type, i), key);
    return types;
}

int schema_types(struct schema *x, const struct schema_all *flat)
{
    int types = flat->never ? 0 : T_ALL;

    for (uint32_t i = 0; i < flat->n && x->b->code == ERR_OK; i++) {
        const json_t *type = json_object_get(flat->v[i].s, "type"), *no = json_object_get(flat->v[i].s, "not");

        if (type != NULL)
            types &= types_of(x, flat->v[i], type, "type");
        if (json_is_true(no))
            types = 0;
        if (json_is_object(no))
            types &= ~types_of(x, flat->v[i], json_object_get(no, "type"), "not/type");
    }
    return types;
}

bool schema_count(struct schema *x, struct schema_item item, const char *key, int64_t *n)
{
    const json_t *value = json_object_get(item.s, key);
    double d = json_number_value(value);

    if (value == NULL)
        return false;
    if (!json_is_number(value) || d < 0 || d != floor(d)) {
        schema_fail(x, ERR_FORMAT, item.path, key, "not a whole number that is 0 or more");
        return false;
    }
    *n = d > 1e15 ? (int64_t)1e15 : (int64_t)d;
    return true;
}

void schema_counts(struct schema *x, const struct schema_all *flat, const char *lo, const char *hi, int64_t *min,
                   int64_t *max)
{
    int64_t n = 0;

    *min = 0;
    *max = -1;
    for (uint32_t i = 0; i < flat->n; i++) {
        if (schema_count(x, flat->v[i], lo, &n) && n > *min)
            *min = n;
        if (*min > GRAMMAR_REPEAT_MAX)
            schema_fail_limit(x, flat->v[i].path, lo, *min, GRAMMAR_REPEAT_MAX);
        if (schema_count(x, flat->v[i], hi, &n) && n <= GRAMMAR_LENGTH_MAX && (*max < 0 || n < *max))
            *max = n; /* no text is longer than that */
    }
}

static bool decimal(struct schema *x, struct schema_item item, const char *key, struct grammar_decimal *d)
{
    const json_t *value = json_object_get(item.s, key);

    if (value == NULL)
        return false;
    if (!json_is_number(value))
        schema_fail(x, ERR_FORMAT, item.path, key, "not a number");
    return grammar_decimal_of(d, value);
}

static void raise_lower(struct grammar_number *n, const struct grammar_decimal *d, bool out)
{
    int c = n->has_lo ? grammar_decimal_cmp(d, &n->lo) : 1;

    if (c < 0)
        return;
    n->lo_out = out || (c == 0 && n->lo_out);
    n->lo = *d;
    n->has_lo = true;
}

static void upper(struct grammar_number *n, const struct grammar_decimal *d, bool out)
{
    int c = n->has_hi ? grammar_decimal_cmp(d, &n->hi) : -1;

    if (c > 0)
        return;
    n->hi_out = out || (c == 0 && n->hi_out);
    n->hi = *d;
    n->has_hi = true;
}

bool schema_number(struct schema *x, const struct schema_all *flat, bool whole, struct grammar_number *n)
{
    struct grammar_decimal d;

    *n = (struct grammar_number){ .whole = whole };
    for (uint32_t i = 0; i < flat->n && x->b->code == ERR_OK; i++) {
        if (decimal(x, flat->v[i], "minimum", &d))
            raise_lower(n, &d, false);
        if (decimal(x, flat->v[i], "exclusiveMinimum", &d))
            raise_lower(n, &d, true);
        if (decimal(x, flat->v[i], "maximum", &d))
            upper(n, &d, false);
        if (decimal(x, flat->v[i], "exclusiveMaximum", &d))
            upper(n, &d, true);
        if (!decimal(x, flat->v[i], "multipleOf", &d))
            continue;
        if (d.neg || (d.n_int == 1 && d.digit[0] == '0' && d.n_frac == 0))
            schema_fail(x, ERR_FORMAT, flat->v[i].path, "multipleOf", "not above 0");
        if (d.n_int + d.n_frac > 4 || n->n_multiple == 8)
            schema_fail(x, ERR_UNSUPPORTED, flat->v[i].path, "multipleOf", "more than 4 digits are not supported");
        else
            n->multiple[n->n_multiple++] = d;
    }
    return x->b->code == ERR_OK;
}

bool schema_element(struct schema *x, const struct schema_all *flat, size_t at, struct schema_all *out)
{
    out->n = 0;
    out->never = false;
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *first = json_object_get(flat->v[i].s, "prefixItems"),
                     *items = json_object_get(flat->v[i].s, "items");
        struct schema_item item = flat->v[i];

        if (first != NULL && !json_is_array(first))
            schema_fail(x, ERR_FORMAT, item.path, "prefixItems", "not a list of schemas");
        if (items != NULL && !json_is_object(items) && !json_is_boolean(items))
            schema_fail(x, ERR_FORMAT, item.path, "items", "not a schema; a list of schemas is prefixItems");
        if (at < json_array_size(first)) {
            item.s = json_array_get(first, at);
            item.path = schema_path(x, item.path, "prefixItems", (int64_t)at);
        } else if (items != NULL) {
            item.s = items;
            item.path = schema_path(x, item.path, "items", -1);
        } else {
            continue;
        }
        if (!json_is_true(item.s))
            schema_add(x, out, item);
    }
    return !out->never;
}

void schema_put_space(struct schema *x, uint32_t from, uint32_t to)
{
    grammar_bytes(x->b, from, to, ' ', ' ');
    grammar_eps(x->b, from, to);
}

struct element {
    struct schema *x;
    uint32_t rule;
};

static void put_next(struct grammar_build *b, uint32_t from, uint32_t to, void *ctx)
{
    const struct element *el = ctx;
    uint32_t comma = grammar_state(b), value = grammar_state(b);

    grammar_bytes(b, from, comma, ',', ',');
    schema_put_space(el->x, comma, value);
    grammar_call(b, value, to, el->rule);
}

/* [ and ] stand around; elements have places of their own up to n_own, and one rule after that. */
static void put_array(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    struct schema_all *el = malloc(sizeof *el);
    struct element rest = { x, 0 };
    uint32_t at = grammar_state(b), inside = grammar_state(b), close = grammar_state(b);
    int64_t min, max, n_own = 1, i = 0;

    if (el == NULL) {
        grammar_nomem(b);
        return;
    }
    schema_counts(x, flat, "minItems", "maxItems", &min, &max);
    for (uint32_t k = 0; k < flat->n; k++) {
        int64_t n = (int64_t)json_array_size(json_object_get(flat->v[k].s, "prefixItems"));

        n_own = n > n_own ? n : n_own;
    }
    grammar_bytes(b, from, at, '[', '[');
    schema_put_space(x, at, inside);
    schema_put_space(x, close, at = grammar_state(b));
    grammar_bytes(b, at, to, ']', ']');
    if (min == 0)
        grammar_bytes(b, inside, to, ']', ']');
    for (at = inside; i < n_own && (max < 0 || i < max) && b->code == ERR_OK; i++) {
        uint32_t next = grammar_state(b);

        if (!schema_element(x, flat, (size_t)i, el))
            break;
        rest.rule = schema_rule_of(x, el);
        if (i > 0)
            put_next(b, at, next, &rest);
        else
            grammar_call(b, at, next, rest.rule);
        at = next;
        if (i + 1 >= min)
            grammar_eps(b, at, close);
    }
    if (i == n_own && (max < 0 || (i < max && max >= min)) && schema_element(x, flat, (size_t)i, el)) {
        rest.rule = schema_rule_of(x, el);
        grammar_repeat(b, at, close, min > i ? min - i : 0, max < 0 ? -1 : max - i, put_next, &rest);
    }
    free(el);
}

/* Digits, and zeros behind the point that change nothing. */
static void put_decimal(struct grammar_build *b, const char *text, uint32_t from, uint32_t to)
{
    const uint32_t end = grammar_state(b), zeros = strchr(text, '.') != NULL ? end : grammar_state(b);

    grammar_text(b, from, end, str_of(text));
    grammar_eps(b, end, to);
    if (zeros != end) {
        const uint32_t point = grammar_state(b);

        grammar_bytes(b, end, point, '.', '.');
        grammar_bytes(b, point, zeros, '0', '0');
        grammar_eps(b, zeros, to);
    }
    grammar_bytes(b, zeros, zeros, '0', '0');
}

/* A number in the ways that one would write it: digits, with .0 where it is whole, with an exponent, as C and Python
 * write it and as JavaScript does, and as it may stand in the schema: 1E-7, 1.50. */
static void put_real(struct schema *x, const json_t *value, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    struct grammar_decimal d;
    char text[800], *exponent;
    int n;

    for (int precision = 1; precision <= 17; precision++) {
        n = snprintf(text, sizeof text, "%.*g", precision, json_real_value(value));
        if (strtod(text, NULL) == json_real_value(value))
            break;
    }
    exponent = strchr(text, 'e');
    if (exponent == NULL) {
        put_decimal(b, text, from, to);
    } else {
        const uint32_t mantissa = grammar_state(b), sign = grammar_state(b), digits = grammar_state(b);
        const char *number = exponent + 2 + strspn(exponent + 2, "0");

        *exponent = '\0';
        put_decimal(b, text, from, mantissa);
        grammar_bytes(b, mantissa, sign, 'e', 'e');
        grammar_bytes(b, mantissa, sign, 'E', 'E');
        grammar_bytes(b, sign, digits, (uint8_t)exponent[1], (uint8_t)exponent[1]);
        if (exponent[1] == '+')
            grammar_eps(b, sign, digits);
        grammar_bytes(b, digits, digits, '0', '0');
        grammar_text(b, digits, to, str_of(number));
    }
    if (!grammar_decimal_of(&d, value) || d.n_int + d.n_frac > 40)
        return;
    n = snprintf(text, sizeof text, "%s%.*s", d.neg ? "-" : "", d.n_int, d.digit);
    if (d.n_frac > 0)
        snprintf(text + n, sizeof text - (size_t)n, ".%.*s", d.n_frac, d.digit + d.n_int);
    put_decimal(b, text, from, to);
}

/* A word of JSON, and as Python has it where that is read, too. */
static void put_word(struct schema *x, const char *word, const char *python, uint32_t from, uint32_t to)
{
    grammar_text(x->b, from, to, str_of(word));
    if (x->b->python)
        grammar_text(x->b, from, to, str_of(python));
}

/* Words, integers and strings. */
static void put_text_of(struct schema *x, const json_t *value, uint32_t from, uint32_t to)
{
    const char *s = json_string_value(value);
    const bool marks = x->b->no_marks && s != NULL && strstr(s, "</") != NULL;
    char *text = json_dump(value, JSON_ENCODE_ANY | (marks ? JSON_ESCAPE_SLASH : 0));

    if (text == NULL)
        grammar_nomem(x->b);
    else if (json_is_null(value) || json_is_boolean(value))
        put_word(x, text, json_is_null(value) ? "None" : json_is_true(value) ? "True" : "False", from, to);
    else
        grammar_text(x->b, from, to, str_of(text));
    free(text);
}

/* Separator before part i of a list or object; the state behind it. */
static uint32_t put_between(struct schema *x, uint32_t at, bool first, char open)
{
    uint32_t mark = grammar_state(x->b), next = grammar_state(x->b);

    grammar_bytes(x->b, at, mark, (uint8_t)(first ? open : ','), (uint8_t)(first ? open : ','));
    schema_put_space(x, mark, next);
    return next;
}

void schema_put_value(struct schema *x, const json_t *value, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    uint32_t at = from, end = grammar_state(b);
    const char *key;
    json_t *part, *name;
    bool list = json_is_array(value), first = true;

    if (json_is_real(value)) {
        put_real(x, value, from, to);
        return;
    }
    if (!list && !json_is_object(value)) {
        put_text_of(x, value, from, to);
        return;
    }
    for (size_t i = 0; list && i < json_array_size(value) && b->code == ERR_OK; i++, first = false) {
        uint32_t next = grammar_state(b);

        at = put_between(x, at, first, '[');
        schema_put_value(x, json_array_get(value, i), at, next);
        at = next;
    }
    json_object_foreach ((json_t *)value, key, part) {
        uint32_t colon = grammar_state(b), space = grammar_state(b), before = grammar_state(b), next = grammar_state(b);

        at = put_between(x, at, first, '{');
        name = json_string(key);
        put_text_of(x, name, at, colon);
        json_decref(name);
        grammar_bytes(b, colon, space, ':', ':');
        schema_put_space(x, space, before);
        schema_put_value(x, part, before, next);
        at = next;
        first = false;
    }
    if (first)
        at = put_between(x, at, true, list ? '[' : '{');
    else {
        schema_put_space(x, at, end);
        at = end;
    }
    grammar_bytes(b, at, to, list ? ']' : '}', list ? ']' : '}');
}

bool schema_listed(struct schema *x, const struct schema_all *flat, schema_put *put, uint32_t from, uint32_t to)
{
    struct schema_item item = { 0 };
    const json_t *list = NULL, *only = NULL;
    bool some = false;

    for (uint32_t i = 0; i < flat->n && list == NULL && only == NULL; i++) {
        item = flat->v[i];
        list = json_object_get(item.s, "enum");
        only = json_object_get(item.s, "const");
    }
    if (list == NULL && only == NULL)
        return false;
    if (only == NULL && !json_is_array(list))
        schema_fail(x, ERR_FORMAT, item.path, "enum", "not a list");
    for (size_t i = 0, n = only != NULL ? 1 : json_array_size(list); i < n && x->b->code == ERR_OK; i++) {
        const json_t *value = only != NULL ? only : json_array_get(list, i);
        x->nth = i;
        int holds = schema_holds(x, flat, false, value);

        if (holds < 0)
            schema_fail(x, ERR_UNSUPPORTED, item.path, only != NULL ? "const" : "enum",
                        "values beside other keywords of this kind are not supported");
        if (holds > 0)
            put(x, value, from, to);
        some = some || holds > 0;
    }
    if (!some && x->hint == NULL)
        x->hint = item.path;
    return true;
}

void schema_emit(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    if (!schema_listed(x, flat, schema_put_value, from, to))
        schema_emit_types(x, flat, T_ALL, from, to);
}

void schema_emit_types(struct schema *x, const struct schema_all *flat, int of, uint32_t from, uint32_t to)
{
    struct grammar_build *b = x->b;
    int types = schema_types(x, flat);
    struct grammar_number number;

    if (types == 0 && x->hint == NULL && flat->n > 0)
        x->hint = flat->v[0].path;
    if ((types & (T_INT | T_FRAC)) == T_FRAC)
        schema_fail(x, ERR_UNSUPPORTED, flat->v[0].path, "", "numbers without the integers are not supported");
    types &= of;
    if ((types & T_NULL) != 0)
        put_word(x, "null", "None", from, to);
    if ((types & T_BOOL) != 0) {
        put_word(x, "true", "True", from, to);
        put_word(x, "false", "False", from, to);
    }
    if ((types & T_INT) != 0 && schema_number(x, flat, (types & T_FRAC) == 0, &number)) {
        struct grammar_dfa *d = grammar_number(b, &number);

        grammar_dfa_put(b, d, from, to);
        grammar_dfa_free(d);
    }
    if ((types & T_STR) != 0)
        schema_put_string(x, flat, from, to);
    if ((types & T_ARR) != 0)
        put_array(x, flat, from, to);
    if ((types & T_OBJ) != 0)
        schema_object(x, flat, from, to);
}
