/* SPDX-License-Identifier: Apache-2.0 */
/* schema_holds.c - a given value against schemas: for enum and const beside other keywords.
 * room: grammar */
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

enum { DEPTH_MAX = 64 };

static int all_of(int a, int b)
{
    return a == 0 || b == 0 ? 0 : a < 0 || b < 0 ? -1 : 1;
}

static bool equal(const json_t *a, const json_t *b)
{
    struct grammar_decimal x, y;
    const char *key;
    json_t *value;

    if (json_is_number(a) && json_is_number(b))
        return grammar_decimal_of(&x, a) && grammar_decimal_of(&y, b) && grammar_decimal_cmp(&x, &y) == 0;
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        for (size_t i = 0; i < json_array_size(a) && json_array_size(a) == json_array_size(b); i++)
            if (!equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return json_array_size(a) == json_array_size(b);
    }
    if (json_is_object(a)) {
        json_object_foreach ((json_t *)a, key, value)
            if (json_object_get(b, key) == NULL || !equal(value, json_object_get(b, key)))
                return false;
        return json_object_size(a) == json_object_size(b);
    }
    return json_equal(a, b);
}

int schema_type_of(const json_t *value)
{
    struct grammar_decimal d;

    switch (json_typeof(value)) {
    case JSON_NULL:
        return T_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOL;
    case JSON_INTEGER:
        return T_INT;
    case JSON_REAL:
        return grammar_decimal_of(&d, value) && d.n_frac == 0 ? T_INT : T_FRAC;
    case JSON_STRING:
        return T_STR;
    case JSON_ARRAY:
        return T_ARR;
    default:
        return T_OBJ;
    }
}

static bool is_multiple(const struct grammar_decimal *d, const struct grammar_decimal *of)
{
    int64_t m = 0, r = 0;

    for (int i = 0; i < of->n_int + of->n_frac; i++)
        m = m * 10 + (of->digit[i] - '0');
    if (d->n_frac > of->n_frac || m == 0)
        return false;
    for (int i = 0; i < d->n_int + of->n_frac; i++)
        r = (r * 10 + (i < d->n_int + d->n_frac ? d->digit[i] - '0' : 0)) % m;
    return r == 0;
}

static int number_holds(struct schema *x, const struct schema_all *one, const json_t *value)
{
    struct grammar_number n;
    struct grammar_decimal d;
    int c;

    if (!schema_number(x, one, false, &n) || !grammar_decimal_of(&d, value))
        return -1;
    c = n.has_lo ? grammar_decimal_cmp(&d, &n.lo) : 1;
    if (c < 0 || (c == 0 && n.lo_out))
        return 0;
    c = n.has_hi ? grammar_decimal_cmp(&d, &n.hi) : -1;
    if (c > 0 || (c == 0 && n.hi_out))
        return 0;
    for (int i = 0; i < n.n_multiple; i++)
        if (!is_multiple(&d, &n.multiple[i]))
            return 0;
    return 1;
}

static int string_holds(struct schema *x, const struct schema_all *one, const json_t *value)
{
    static const char *const keys[] = { "minLength", "maxLength", "pattern", "format" };
    struct grammar_dfa *d;
    bool some = false, has;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        some = some || json_object_get(one->v[0].s, keys[i]) != NULL;
    if (!some)
        return 1;
    d = schema_string(x, one);
    has = d != NULL && schema_has(x, d, json_string_value(value), json_string_length(value));
    grammar_dfa_free(d);
    return has;
}

static int one_holds(struct schema *x, struct schema_item item, const json_t *value, int depth);

static int list_holds(struct schema *x, const struct schema_all *all, const json_t *value, int depth)
{
    int result = all->never ? 0 : 1;

    for (uint32_t i = 0; i < all->n && result != 0; i++)
        result = all_of(result, one_holds(x, all->v[i], value, depth));
    return result;
}

static int array_holds(struct schema *x, const struct schema_all *one, struct schema_all *part, const json_t *value,
                       int depth)
{
    int64_t min, max, n = (int64_t)json_array_size(value);
    int result;

    schema_counts(x, one, "minItems", "maxItems", &min, &max);
    result = n >= min && (max < 0 || n <= max);
    for (int64_t i = 0; i < n && result != 0; i++) {
        result = schema_element(x, one, (size_t)i, part) ? result : 0;
        result = all_of(result, list_holds(x, part, json_array_get(value, (size_t)i), depth));
    }
    return result;
}

static int object_holds(struct schema *x, const struct schema_all *one, struct schema_all *part, const json_t *value,
                        int depth)
{
    const json_t *required = json_object_get(one->v[0].s, "required");
    int64_t min, max, n = (int64_t)json_object_size(value);
    const char *key;
    json_t *member;
    int result;

    schema_counts(x, one, "minProperties", "maxProperties", &min, &max);
    result = n >= min && (max < 0 || n <= max);
    for (size_t i = 0; i < json_array_size(required); i++)
        if (json_object_get(value, json_string_value(json_array_get(required, i))) == NULL)
            return 0;
    json_object_foreach ((json_t *)value, key, member) {
        if (result == 0 || !schema_property(x, one, key, part))
            return 0;
        result = all_of(result, list_holds(x, part, member, depth));
    }
    return result;
}

/* How many of a list of schemas hold; -1: cannot be said. */
static int count_holding(struct schema *x, struct schema_item item, const char *key, const json_t *value, int depth)
{
    const json_t *list = json_object_get(item.s, key);
    int n = 0;

    for (size_t i = 0; i < json_array_size(list) && n >= 0; i++) {
        struct schema_item next = item;
        int holds;

        next.s = json_array_get(list, i);
        holds = one_holds(x, next, value, depth);
        n = holds < 0 ? -1 : n + holds;
    }
    return n;
}

static int choices_hold(struct schema *x, struct schema_item item, const json_t *value, int depth)
{
    static const char *const keys[] = { "allOf", "anyOf", "oneOf" };
    const json_t *no = json_object_get(item.s, "not");
    struct schema_item next = item;
    int result = 1, n;

    for (int i = 0; i < 3 && result != 0; i++) {
        if (json_object_get(item.s, keys[i]) == NULL)
            continue;
        n = count_holding(x, item, keys[i], value, depth);
        result = all_of(result, n < 0    ? -1
                                : i == 0 ? n == (int)json_array_size(json_object_get(item.s, keys[i]))
                                : i == 1 ? n > 0
                                         : n == 1);
    }
    if (no != NULL && result != 0) {
        next.s = no;
        n = one_holds(x, next, value, depth);
        result = all_of(result, n < 0 ? -1 : !n);
    }
    if (json_object_get(item.s, "$ref") != NULL && result != 0) {
        next.s = schema_ref(x, item, &next.path);
        result = next.s == NULL ? -1 : all_of(result, one_holds(x, next, value, depth));
    }
    if (json_object_get(item.s, "dependentRequired") != NULL || json_object_get(item.s, "dependentSchemas") != NULL)
        result = json_is_object(value) ? all_of(result, -1) : result;
    return result;
}

static bool listed(struct schema *x, struct schema_item item, const json_t *value)
{
    const json_t *list = json_object_get(item.s, "enum"), *only = json_object_get(item.s, "const");
    bool in = list == NULL || json_array_get(list, x->nth) == value;

    for (size_t i = 0; i < json_array_size(list) && !in && grammar_spend(x->b, 16); i++)
        in = equal(json_array_get(list, i), value);
    return in && (only == NULL || equal(only, value));
}

/* The keywords that speak of the value itself, not of other schemas for it. */
static int plain_holds(struct schema *x, struct schema_item item, const json_t *value, int depth)
{
    struct schema_all *all;
    int type = schema_type_of(value), result = 1;

    if (json_is_boolean(item.s))
        return json_is_true(item.s);
    if (!json_is_object(item.s) || !grammar_spend(x->b, 256))
        return -1;
    schema_check_keys(x, item);
    if (!listed(x, item, value))
        return 0;
    all = calloc(2, sizeof *all);
    if (all == NULL) {
        grammar_nomem(x->b);
        return -1;
    }
    schema_add(x, &all[0], item);
    if ((schema_types(x, &all[0]) & type) == 0)
        result = 0;
    else if ((type & (T_INT | T_FRAC)) != 0)
        result = number_holds(x, &all[0], value);
    else if (type == T_STR)
        result = string_holds(x, &all[0], value);
    else if (type == T_ARR)
        result = array_holds(x, &all[0], &all[1], value, depth + 1);
    else if (type == T_OBJ)
        result = object_holds(x, &all[0], &all[1], value, depth + 1);
    free(all);
    return result;
}

static int one_holds(struct schema *x, struct schema_item item, const json_t *value, int depth)
{
    int result = depth > DEPTH_MAX ? -1 : plain_holds(x, item, value, depth);

    if (result == 0 || json_is_boolean(item.s) || depth > DEPTH_MAX || x->b->code != ERR_OK)
        return result;
    return all_of(result, choices_hold(x, item, value, depth + 1));
}

int schema_holds(struct schema *x, const struct schema_all *flat, bool plain, const json_t *value)
{
    int result = flat->never ? 0 : 1;

    if (!plain)
        return list_holds(x, flat, value, 0);
    for (uint32_t i = 0; i < flat->n && result != 0; i++)
        result = all_of(result, plain_holds(x, flat->v[i], value, 0));
    return result;
}
