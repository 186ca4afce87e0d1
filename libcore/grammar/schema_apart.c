/* SPDX-License-Identifier: Apache-2.0 */
/* schema_apart.c - oneOf: whether two schemas exclude each other.               room: grammar
 *
 * What is written for an alternative of oneOf must not satisfy another one. That is so when their
 * types differ, or when the values that one lists do not satisfy the other. It is so when their
 * strings or numbers have nothing in common, or a required property or element decides. Anything
 * else counts as not apart.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

enum { DEPTH_MAX = 8 };

/* Values that a lists and b refuses, all of them; *lists: a lists values. */
static bool listed_apart(struct schema *x, const struct schema_all *a, const struct schema_all *b, bool *lists)
{
    *lists = false;
    for (uint32_t i = 0; i < a->n && !*lists; i++) {
        const json_t *list = json_object_get(a->v[i].s, "enum"), *only = json_object_get(a->v[i].s, "const");
        size_t n = only != NULL ? 1 : json_array_size(list);

        *lists = list != NULL || only != NULL;
        for (size_t k = 0; k < n; k++) {
            const json_t *value = only != NULL ? only : json_array_get(list, k);

            x->nth = k;
            if (schema_holds(x, a, true, value) != 0 && schema_holds(x, b, true, value) != 0)
                return false;
        }
    }
    return *lists;
}

static bool nothing_in_common(struct schema *x, struct grammar_dfa *a, struct grammar_dfa *b)
{
    struct grammar_dfa *both = grammar_dfa_and(x->b, a, b, false);
    bool empty = both != NULL && grammar_dfa_empty(both);

    grammar_dfa_free(both);
    grammar_dfa_free(a);
    grammar_dfa_free(b);
    return empty;
}

static bool numbers_apart(struct schema *x, const struct schema_all *a, int types_a, const struct schema_all *b,
                          int types_b)
{
    struct grammar_number n, m;

    if (!schema_number(x, a, (types_a & T_FRAC) == 0, &n) || !schema_number(x, b, (types_b & T_FRAC) == 0, &m))
        return false;
    return nothing_in_common(x, grammar_number(x->b, &n), grammar_number(x->b, &m));
}

/* Parts that both have, flattened and compared. */
static bool parts_apart(struct schema *x, const struct schema_all *a, const struct schema_all *b, int depth)
{
    struct schema_all *flat = calloc(2, sizeof *flat);
    struct schema_choices *more = calloc(2, sizeof *more);
    bool apart = false;

    if (flat == NULL || more == NULL)
        grammar_nomem(x->b);
    else if (schema_flatten(x, a, &flat[0], &more[0]) && schema_flatten(x, b, &flat[1], &more[1]))
        apart = schema_apart(x, &flat[0], more[0].n > 0, &flat[1], depth + 1);
    free(flat);
    free(more);
    return apart;
}

static bool arrays_apart(struct schema *x, const struct schema_all *a, const struct schema_all *b, int depth)
{
    int64_t min_a, max_a, min_b, max_b;
    struct schema_all *part = calloc(2, sizeof *part);
    bool apart;

    schema_counts(x, a, "minItems", "maxItems", &min_a, &max_a);
    schema_counts(x, b, "minItems", "maxItems", &min_b, &max_b);
    apart = (max_a >= 0 && max_a < min_b) || (max_b >= 0 && max_b < min_a);
    if (part == NULL)
        grammar_nomem(x->b);
    for (int64_t i = 0; part != NULL && i < min_a && i < DEPTH_MAX && !apart; i++)
        apart = schema_element(x, a, (size_t)i, &part[0]) &&
                (!schema_element(x, b, (size_t)i, &part[1]) || parts_apart(x, &part[0], &part[1], depth));
    free(part);
    return apart;
}

static bool objects_apart(struct schema *x, const struct schema_all *a, bool more, const struct schema_all *b,
                          int depth)
{
    struct schema_all *part = calloc(2, sizeof *part);
    bool apart = false;

    if (part == NULL) {
        grammar_nomem(x->b);
        return false;
    }
    for (uint32_t i = 0; i < b->n && !more; i++) {
        const json_t *names = json_object_get(b->v[i].s, "required");

        for (size_t k = 0; k < json_array_size(names) && !apart; k++) {
            const char *name = json_string_value(json_array_get(names, k));

            apart = name != NULL && !schema_writes(x, a, name);
        }
    }
    for (uint32_t i = 0; i < a->n; i++) {
        const json_t *names = json_object_get(a->v[i].s, "required");

        for (size_t k = 0; k < json_array_size(names) && !apart && x->b->code == ERR_OK; k++) {
            const char *name = json_string_value(json_array_get(names, k));

            if (name != NULL && schema_property(x, a, name, &part[0]))
                apart = !schema_property(x, b, name, &part[1]) || parts_apart(x, &part[0], &part[1], depth);
        }
    }
    free(part);
    return apart;
}

bool schema_apart(struct schema *x, const struct schema_all *a, bool more, const struct schema_all *b, int depth)
{
    int types_a = schema_types(x, a), types_b = schema_types(x, b), both = types_a & types_b;
    bool lists, apart;

    if (x->b->code != ERR_OK || depth > DEPTH_MAX)
        return false;
    if (both == 0)
        return true;
    apart = listed_apart(x, a, b, &lists);
    if (lists)
        return apart;
    apart = listed_apart(x, b, a, &lists);
    if (lists)
        return apart;
    apart = (both & (T_NULL | T_BOOL)) == 0;
    if (apart && (both & (T_INT | T_FRAC)) != 0)
        apart = numbers_apart(x, a, types_a, b, types_b);
    if (apart && (both & T_STR) != 0)
        apart = nothing_in_common(x, schema_string(x, a), schema_string(x, b));
    if (apart && (both & T_ARR) != 0)
        apart = arrays_apart(x, a, b, depth);
    if (apart && (both & T_OBJ) != 0)
        apart = objects_apart(x, a, more, b, depth);
    return apart;
}
