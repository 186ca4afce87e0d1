/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c - JSON Schema 2020-12 to rules: references, choices, cases.          room: grammar */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

const char *schema_path(struct schema *x, const char *base, const char *key, int64_t index)
{
    size_t n = strlen(base) + 2 * strlen(key) + 24, at;
    char *p;
    void *more = grammar_grow(x->b, x->path, x->n_path, &x->cap_path, sizeof *x->path);

    p = more == NULL ? NULL : malloc(n);
    if (more != NULL)
        x->path = more;
    if (p == NULL) {
        grammar_nomem(x->b);
        return base;
    }
    x->path[x->n_path++] = p;
    memcpy(p, base, strlen(base));
    at = json_point_to(p, n, strlen(base), key);
    if (index >= 0)
        snprintf(p + at, n - at, "/%lld", (long long)index);
    return p;
}

void schema_fail(struct schema *x, enum err_code code, const char *path, const char *key, const char *what)
{
    const char *slash = *key == '\0' ? "" : "/";

    if (!grammar_fail(x->b, code, "%s%s%s: %s", path, slash, key, what))
        return;
    err_at(x->b->e, "%s%s%s", path + 1, slash, key);
    x->placed = true;
}

void schema_fail_limit(struct schema *x, const char *path, const char *key, int64_t n, int64_t limit)
{
    char what[80];

    (void)snprintf(what, sizeof what, "%lld is more than the limit of %lld", (long long)n, (long long)limit);
    schema_fail(x, ERR_LIMIT, path, key, what);
}

void schema_add(struct schema *x, struct schema_all *a, struct schema_item item)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->v[i].s == item.s)
            return;
    if (json_is_false(item.s))
        a->never = true;
    if (a->n == SCHEMA_ALL_MAX)
        schema_fail(x, ERR_LIMIT, item.path, "", "too many schemas for one value");
    else
        a->v[a->n++] = item;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One part of a pointer without its escapes; false: it is too long or wrong. */
static bool next_part(const char **p, char *part, size_t room)
{
    size_t n = 0;

    for (++*p; **p != '\0' && **p != '/'; ++*p) {
        char c = **p;

        if (c == '%') {
            int a = hex((*p)[1]), b = a < 0 ? -1 : hex((*p)[2]);

            if (b < 0 || a * 16 + b == 0)
                return false;
            c = (char)(a * 16 + b);
            *p += 2;
        }
        if (c == '~') {
            ++*p;
            if (**p != '0' && **p != '1')
                return false;
            c = **p == '0' ? '~' : '/';
        }
        if (n + 1 >= room)
            return false;
        part[n++] = c;
    }
    part[n] = '\0';
    return true;
}

const json_t *schema_ref(struct schema *x, struct schema_item item, const char **path)
{
    const json_t *ref = json_object_get(item.s, "$ref"), *at = x->root;
    const char *s = json_string_value(ref), *id = json_string_value(json_object_get(x->root, "$id"));
    char part[512];

    if (s == NULL) {
        schema_fail(x, ERR_FORMAT, item.path, "$ref", "not a string");
        return NULL;
    }
    if (id != NULL && *s != '#' && strncmp(s, id, strlen(id)) == 0 && (s[strlen(id)] == '#' || s[strlen(id)] == '\0'))
        s += strlen(id);
    if ((*s != '#' && *s != '\0') || (*s == '#' && s[1] != '/' && s[1] != '\0')) {
        schema_fail(x, ERR_UNSUPPORTED, item.path, "$ref", "only references of the form #/... are supported");
        return NULL;
    }
    *path = "#";
    for (s += *s == '#'; *s != '\0' && at != NULL;) {
        if (!next_part(&s, part, sizeof part))
            at = NULL;
        else if (json_is_array(at))
            at = part[0] >= '0' && part[0] <= '9' ? json_array_get(at, strtoul(part, NULL, 10)) : NULL;
        else
            at = json_object_get(at, part);
        *path = schema_path(x, *path, part, -1);
    }
    if (at == NULL)
        schema_fail(x, ERR_FORMAT, item.path, "$ref", "refers to nothing");
    return at;
}

/* A schema of ours, kept until the end. */
static const json_t *keep_schema(struct schema *x, json_t *s)
{
    void *more = s == NULL ? NULL : grammar_grow(x->b, x->made, x->n_made, &x->cap_made, sizeof *x->made);

    if (more == NULL) {
        grammar_nomem(x->b);
        json_decref(s);
        return NULL;
    }
    x->made = more;
    x->made[x->n_made++] = s;
    return s;
}

static void add_choice(struct schema *x, struct schema_choices *choices, struct schema_item owner, const json_t *list,
                       const char *key)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        schema_fail(x, ERR_FORMAT, owner.path, key, "not a list of schemas");
    else if (choices->n == SCHEMA_ALL_MAX)
        schema_fail(x, ERR_LIMIT, owner.path, key, "too many choices for one value");
    else
        choices->v[choices->n++] = (struct schema_choice){ list, owner, key };
}

/* Of "a": [..] or {..}: either there is no a, or what it asks for holds. */
static void add_dependents(struct schema *x, struct schema_choices *choices, struct schema_item item, const char *key)
{
    const char *name;
    json_t *list = json_object_get(item.s, key), *what;

    if (list == NULL)
        return;
    if (!json_is_object(list))
        schema_fail(x, ERR_FORMAT, item.path, key, "not an object");
    json_object_foreach (list, name, what) {
        bool names = strcmp(key, "dependentRequired") == 0;
        json_t *then = names ? json_pack("{sO}", "required", what) : json_incref(what);
        const json_t *either;

        if (names && !json_is_array(what))
            schema_fail(x, ERR_FORMAT, item.path, key, "not a list of names");
        either = keep_schema(x, json_pack("[{s{sb}}o]", "properties", name, 0, then));
        if (either == NULL)
            return;
        add_choice(x, choices, (struct schema_item){ item.s, item.path, true, item.from }, either, key);
    }
}

static const char *const ignored[] = {
    "$schema",          "$id",           "$comment", "$defs",       "definitions",
    "$anchor",          "$vocabulary",   "title",    "description", "default",
    "examples",         "deprecated",    "readOnly", "writeOnly",   "contentEncoding",
    "contentMediaType", "contentSchema", NULL,
};
static const char *const refused[] = {
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "dependencies",
    "additionalItems",
    "unevaluatedItems",
    "nullable",
    "divisibleBy",
    "disallow",
    "extends",
    "discriminator",
    NULL,
};

static bool is_among(const char *const *list, const char *key)
{
    while (*list != NULL && strcmp(*list, key) != 0)
        list++;
    return *list != NULL;
}

/* Keywords that this compiler does not know how to honour. Keywords that JSON Schema does not have
 * are remarks, as it says itself. */
void schema_check_keys(struct schema *x, struct schema_item item)
{
    const json_t *unique = json_object_get(item.s, "uniqueItems"), *most = json_object_get(item.s, "maxItems");
    const json_t *no = json_object_get(item.s, "not"), *left = json_object_get(item.s, "unevaluatedProperties");
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)item.s, key, value) {
        if (is_among(ignored, key) || (strcmp(key, "nullable") == 0 && json_is_false(value)))
            continue;
        if (is_among(refused, key))
            schema_fail(x, ERR_UNSUPPORTED, item.path, key, "this keyword is not supported");
    }
    if (unique != NULL && !json_is_false(unique) && !(json_is_integer(most) && json_integer_value(most) <= 1))
        schema_fail(x, json_is_true(unique) ? ERR_UNSUPPORTED : ERR_FORMAT, item.path, "uniqueItems",
                    "this keyword is not supported");
    if (no != NULL && !(json_is_object(no) && json_object_size(no) == 1 && json_object_get(no, "type") != NULL) &&
        !json_is_boolean(no))
        schema_fail(x, ERR_UNSUPPORTED, item.path, "not", "supported with nothing but \"type\" in it");
    if (left != NULL && !json_is_boolean(left))
        schema_fail(x, ERR_UNSUPPORTED, item.path, "unevaluatedProperties", "a schema here is not supported");
}

/* It was reached through itself: true of whatever one likes, so wrong. */
static bool is_above(const struct schema_all *flat, int32_t at, const json_t *s)
{
    for (; at >= 0; at = flat->v[at].from)
        if (flat->v[at].s == s)
            return true;
    return false;
}

/* Depth-first through $ref and allOf; each schema once. item.from is the one through which it came.
 */
static void flatten_one(struct schema *x, struct schema_item item, struct schema_all *flat,
                        struct schema_choices *choices)
{
    const json_t *all = json_object_get(item.s, "allOf"), *any = json_object_get(item.s, "anyOf");
    const json_t *one = json_object_get(item.s, "oneOf");
    struct schema_item next = item;

    if (x->b->code != ERR_OK || !grammar_spend(x->b, 16))
        return;
    if (json_is_boolean(item.s)) {
        flat->never = flat->never || json_is_false(item.s);
        return;
    }
    if (!json_is_object(item.s)) {
        schema_fail(x, ERR_FORMAT, item.path, "", "not a schema");
        return;
    }
    if (is_above(flat, item.from, item.s)) {
        schema_fail(x, ERR_FORMAT, item.path, "", "refers to itself without end");
        return;
    }
    for (uint32_t i = 0; i < flat->n; i++)
        if (flat->v[i].s == item.s)
            return;
    schema_check_keys(x, item);
    schema_add(x, flat, item);
    item.from = (int32_t)flat->n - 1;
    next.from = item.from;
    if (json_object_get(item.s, "$ref") != NULL && (next.s = schema_ref(x, item, &next.path)) != NULL) {
        next.made = false;
        flatten_one(x, next, flat, choices);
    }
    if (all != NULL && !json_is_array(all))
        schema_fail(x, ERR_FORMAT, item.path, "allOf", "not a list of schemas");
    for (size_t i = 0; i < json_array_size(all) && x->b->code == ERR_OK; i++) {
        next = item;
        next.s = json_array_get(all, i);
        next.path = schema_path(x, item.path, "allOf", (int64_t)i);
        flatten_one(x, next, flat, choices);
    }
    if (any != NULL)
        add_choice(x, choices, item, any, "anyOf");
    if (one != NULL)
        add_choice(x, choices, item, one, "oneOf");
    add_dependents(x, choices, item, "dependentRequired");
    add_dependents(x, choices, item, "dependentSchemas");
}

bool schema_flatten(struct schema *x, const struct schema_all *in, struct schema_all *flat,
                    struct schema_choices *choices)
{
    for (uint32_t i = 0; i < in->n; i++) {
        struct schema_item item = in->v[i];

        item.from = -1;
        flatten_one(x, item, flat, choices);
    }
    return x->b->code == ERR_OK;
}

/* An alternative of a choice. */
static struct schema_item alternative(struct schema *x, const struct schema_choice *c, size_t i)
{
    struct schema_item one = c->owner;

    one.s = json_array_get(c->list, i);
    one.path = schema_path(x, c->owner.path, c->key, (int64_t)i);
    return one;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct schema_item *)a)->s, y = (uintptr_t)((const struct schema_item *)b)->s;

    return (x > y) - (x < y);
}

static bool same_list(const struct schema_rule *r, const struct schema_all *all)
{
    if (r->n != all->n)
        return false;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->v[i].s != all->v[i].s || r->v[i].made != all->v[i].made)
            return false;
    return true;
}

uint32_t schema_rule_of(struct schema *x, struct schema_all *all)
{
    struct schema_rule r = { .n = all->n };
    void *more;

    qsort(all->v, all->n, sizeof *all->v, by_address);
    if (!grammar_spend(x->b, x->n_rule))
        return 0;
    for (uint32_t i = 0; i < x->n_rule; i++)
        if (same_list(&x->rule[i], all))
            return x->rule[i].rule;
    r.v = malloc(((size_t)all->n + 1) * sizeof *r.v);
    more = r.v == NULL ? NULL : grammar_grow(x->b, x->rule, x->n_rule, &x->cap_rule, sizeof *x->rule);
    if (more == NULL) {
        free(r.v);
        grammar_nomem(x->b);
        return 0;
    }
    x->rule = more;
    memcpy(r.v, all->v, all->n * sizeof *r.v);
    r.rule = grammar_rule_add(x->b, str_of(all->n > 0 ? all->v[0].path : "any value"));
    x->rule[x->n_rule++] = r;
    return r.rule;
}

/* oneOf: the texts of each alternative must not satisfy another one. */
static void check_apart(struct schema *x, const struct schema_all *flat, const struct schema_choices *choices,
                        uint32_t at)
{
    const struct schema_choice *c = &choices->v[at];
    size_t n = json_array_size(c->list);
    struct schema_all *all = malloc(2 * sizeof *all);
    struct schema_choices *rest = malloc(sizeof *rest);
    char what[160];
    bool more;

    if (all == NULL || rest == NULL)
        grammar_nomem(x->b);
    for (size_t i = 0; i < n && x->b->code == ERR_OK; i++)
        for (size_t k = 0; k < n && x->b->code == ERR_OK; k++) {
            struct schema_item two = alternative(x, c, k);

            if (i == k)
                continue;
            all[0] = *flat;
            all[1] = (struct schema_all){ 0 };
            rest->n = 0;
            two.from = -1;
            flatten_one(x, alternative(x, c, i), &all[0], rest);
            more = rest->n > 0 || at + 1 < choices->n;
            flatten_one(x, two, &all[1], rest);
            if (x->b->code != ERR_OK || schema_apart(x, &all[0], more, &all[1], 0))
                continue;
            snprintf(what, sizeof what, "a value may satisfy both alternative %zu and %zu, which is not supported",
                     i < k ? i : k, i < k ? k : i);
            schema_fail(x, ERR_UNSUPPORTED, c->owner.path, c->key, what);
        }
    free(all);
    free(rest);
}

/* Chooses for choice `at` and those behind it; a case is written when all are chosen. */
static void write_cases(struct schema *x, const struct schema_all *flat, const struct schema_choices *choices,
                        uint32_t at, int *cases, struct schema_rule to)
{
    const struct schema_choice *c = &choices->v[at];
    struct schema_all *next;
    struct schema_choices *more;

    if (x->b->code != ERR_OK || flat->never)
        return;
    if (at == choices->n) {
        if (++*cases > SCHEMA_CASES_MAX)
            schema_fail(x, ERR_LIMIT, to.n > 0 ? to.v[0].path : "#", "", "too many combinations of choices");
        else
            x->writer(x, flat, x->b->rule[to.rule].start, x->b->rule[to.rule].end);
        return;
    }
    if (strcmp(c->key, "oneOf") == 0)
        check_apart(x, flat, choices, at);
    next = malloc(sizeof *next);
    more = malloc(sizeof *more);
    if (next == NULL || more == NULL)
        grammar_nomem(x->b);
    for (size_t i = 0; i < json_array_size(c->list) && x->b->code == ERR_OK; i++) {
        *next = *flat;
        *more = *choices;
        flatten_one(x, alternative(x, c, i), next, more);
        write_cases(x, next, more, at + 1, cases, to);
    }
    free(next);
    free(more);
}

/* An error that has no place yet is of the schema that is being written. */
static void place_error(struct schema *x, const char *path)
{
    if (x->b->code == ERR_OK || x->b->code == ERR_NOMEM || x->placed)
        return;
    err_wrap(x->b->e, "%s", path);
    err_at(x->b->e, "%s", path + 1);
    x->placed = true;
}

static void write_rule(struct schema *x, struct schema_rule r, schema_writer *writer)
{
    struct schema_all *in = calloc(2, sizeof *in);
    struct schema_choices *choices = calloc(1, sizeof *choices);
    schema_writer *outer = x->writer;
    const bool before = x->b->code == ERR_OK;
    int cases = 0;

    x->writer = writer;
    if (in == NULL || choices == NULL) {
        grammar_nomem(x->b);
    } else {
        in[0].n = r.n;
        if (r.n > 0)
            memcpy(in[0].v, r.v, r.n * sizeof *r.v);
        if (schema_flatten(x, &in[0], &in[1], choices))
            write_cases(x, &in[1], choices, 0, &cases, r);
    }
    x->writer = outer;
    if (before && r.n > 0)
        place_error(x, r.v[0].path);
    free(in);
    free(choices);
}

uint32_t schema_cases(struct schema *x, const struct schema_all *in, schema_writer *writer)
{
    struct schema_rule r = { .v = (struct schema_item *)(uintptr_t)in->v, .n = in->n };

    r.rule = grammar_rule_add(x->b, str_of(in->n > 0 ? in->v[0].path : "any value"));
    if (x->b->code == ERR_OK)
        write_rule(x, r, writer);
    return r.rule;
}

void schema_free(struct schema *x)
{
    for (uint32_t i = 0; i < x->n_rule; i++)
        free(x->rule[i].v);
    for (uint32_t i = 0; i < x->n_path; i++)
        free(x->path[i]);
    for (uint32_t i = 0; i < x->n_made; i++)
        json_decref(x->made[i]);
    free(x->rule);
    free(x->path);
    free(x->made);
    free(x->text);
}

static void write_rules(struct schema *x)
{
    while (x->done < x->n_rule && x->b->code == ERR_OK)
        write_rule(x, x->rule[x->done++], schema_emit);
}

uint32_t schema_write(struct schema *x, const json_t *s, const char *path)
{
    struct schema_all *all = calloc(1, sizeof *all);
    uint32_t root = 0;

    schema_check_kinds(x, s, path);
    if (all == NULL) {
        grammar_nomem(x->b);
    } else {
        all->v[all->n++] = (struct schema_item){ s, path, false, -1 };
        root = schema_rule_of(x, all);
    }
    free(all);
    write_rules(x);
    return root;
}

static void emit_members(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < flat->n; i++)
        if (json_object_get(flat->v[i].s, "enum") != NULL || json_object_get(flat->v[i].s, "const") != NULL)
            schema_fail(x, ERR_UNSUPPORTED, flat->v[i].path,
                        json_object_get(flat->v[i].s, "enum") != NULL ? "enum" : "const",
                        "not supported for all arguments of this model's calls");
    if ((schema_types(x, flat) & T_OBJ) != 0 && x->b->code == ERR_OK)
        schema_object(x, flat, from, to);
}

uint32_t schema_write_members(struct schema *x, const json_t *s, const char *path, const struct grammar_dress *dress)
{
    struct schema_all *all = calloc(1, sizeof *all);
    uint32_t root = 0;

    if (all == NULL) {
        grammar_nomem(x->b);
        return 0;
    }
    schema_check_kinds(x, s, path);
    all->v[all->n++] = (struct schema_item){ s, path, false, -1 };
    x->b->python = dress->literals;
    x->b->no_marks = dress->close != NULL;
    x->dress = dress;
    root = schema_cases(x, all, emit_members);
    x->dress = NULL;
    write_rules(x);
    x->b->python = x->b->no_marks = false;
    free(all);
    return root;
}

enum err_code grammar_open_schema(struct grammar **out, const struct grammar_vocab *v, const json_t *s, struct err *e)
{
    struct err own = { 0 };
    struct grammar_build b = { .e = e == NULL ? &own : e };
    struct schema x = { .b = &b, .root = s };
    const uint32_t root = schema_write(&x, s, "#");

    if (grammar_compile(out, v, &b, root) != ERR_OK && !x.placed) {
        const char *path = x.hint != NULL ? x.hint : "#";

        err_wrap(b.e, "%s", path);
        err_at(b.e, "%s", path + 1);
    }
    schema_free(&x);
    return b.code;
}
