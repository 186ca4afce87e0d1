/* SPDX-License-Identifier: Apache-2.0 */
/* schema_object.c - objects: which keys, in which order, with which values.     room: grammar
 *
 * Keys of "properties" come in the order in which they are written there, those that are only
 * required after them, undeclared ones last. Undeclared keys are written where the schema says so
 * (additionalProperties, patternProperties) and where no schema speaks of properties at all. Keys
 * that match patterns are cut into classes by which patterns they match, so that each class has the
 * value that all of its patterns ask for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/schema.h"

enum { PATTERNS_MAX = 6, COUNT_MAX = 64 };

struct pattern {
    const char *regex;
    struct grammar_dfa *keys;
};
/* One object: its declared keys, and what others may be. */
struct object {
    struct schema *x;
    const struct grammar_dress *dress; /* NULL: JSON */
    const struct schema_all *flat;
    const char **name; /* [n] */
    bool *required;
    uint32_t *rule; /* [n] of its value */
    uint32_t n, cap, cap_required, cap_rule;
    struct pattern pattern[PATTERNS_MAX];
    int n_patterns;
    bool open; /* no schema speaks of properties: any key */
    int64_t min, max;
    uint32_t *key, n_key; /* [n + 1][counts]: a key is due; member: one was written */
    uint32_t *member, counts;
    uint32_t close;
    uint32_t last; /* behind an undeclared key of literals, where a second time would be an error; 0: more may come */
};

static const json_t *member_of(struct schema *x, struct schema_item item, const char *key)
{
    const json_t *value = json_object_get(item.s, key);

    if (value != NULL && !json_is_object(value))
        schema_fail(x, ERR_FORMAT, item.path, key, "not an object");
    return value;
}

bool schema_requires(struct schema *x, const struct schema_all *flat, const char *name)
{
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *list = json_object_get(flat->v[i].s, "required");

        if (list != NULL && !json_is_null(list) && !json_is_array(list))
            schema_fail(x, ERR_FORMAT, flat->v[i].path, "required", "not a list of names");
        for (size_t k = 0; k < json_array_size(list); k++)
            if (json_is_string(json_array_get(list, k)) &&
                strcmp(json_string_value(json_array_get(list, k)), name) == 0)
                return true;
    }
    return false;
}

/* Adds the schemas that patterns of this one have for a key; true: some matched. */
static bool add_matching(struct schema *x, struct schema_item item, const char *name, struct schema_all *out)
{
    const json_t *patterns = member_of(x, item, "patternProperties");
    const char *regex;
    json_t *value;
    bool some = false;

    json_object_foreach ((json_t *)patterns, regex, value) {
        struct grammar_dfa *d = schema_pattern(x, item, "patternProperties", regex);
        bool has = d != NULL && schema_has(x, d, name, strlen(name));

        grammar_dfa_free(d);
        if (has)
            schema_add(
                x, out,
                (struct schema_item){
                    value, schema_path(x, schema_path(x, item.path, "patternProperties", -1), regex, -1), false, -1 });
        some = some || has;
    }
    return some;
}

static bool name_allowed(struct schema *x, struct schema_item item, const char *name)
{
    const json_t *names = json_object_get(item.s, "propertyNames");
    struct schema_all *all;
    json_t *value;
    int holds;

    if (names == NULL)
        return true;
    all = calloc(1, sizeof *all);
    value = json_string(name);
    if (all == NULL || value == NULL) {
        free(all);
        json_decref(value);
        grammar_nomem(x->b);
        return false;
    }
    schema_add(x, all, (struct schema_item){ names, schema_path(x, item.path, "propertyNames", -1), false, -1 });
    holds = schema_holds(x, all, false, value);
    if (holds < 0)
        schema_fail(x, ERR_UNSUPPORTED, item.path, "propertyNames", "such a schema of names is not supported");
    free(all);
    json_decref(value);
    return holds > 0;
}

bool schema_property(struct schema *x, const struct schema_all *flat, const char *name, struct schema_all *out)
{
    bool good = true;

    out->n = 0;
    out->never = false;
    for (uint32_t i = 0; i < flat->n && x->b->code == ERR_OK; i++) {
        struct schema_item item = flat->v[i];
        const json_t *own = json_object_get(member_of(x, item, "properties"), name);
        const json_t *more = json_object_get(item.s, "additionalProperties");
        bool matched = add_matching(x, item, name, out);

        good = good && name_allowed(x, item, name);
        if (own != NULL && !json_is_true(own))
            schema_add(x, out,
                       (struct schema_item){ own, schema_path(x, schema_path(x, item.path, "properties", -1), name, -1),
                                             false, -1 });
        else if (own == NULL && !matched && more != NULL && !json_is_true(more))
            schema_add(x, out,
                       (struct schema_item){ more, schema_path(x, item.path, "additionalProperties", -1), false, -1 });
    }
    return good && !out->never;
}

static bool is_named(const struct object *o, const char *name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (strcmp(o->name[i], name) == 0)
            return true;
    return false;
}

static void add_name(struct object *o, const char *name)
{
    struct grammar_build *b = o->x->b;
    void *names, *required, *rule;

    if (b->code != ERR_OK || !grammar_spend(b, o->n + 1) || is_named(o, name))
        return;
    if (o->n == SCHEMA_NAMES_MAX) {
        schema_fail(o->x, ERR_LIMIT, o->flat->v[0].path, "properties", "too many properties");
        return;
    }
    if ((names = grammar_grow(b, o->name, o->n, &o->cap, sizeof *o->name)) != NULL)
        o->name = names;
    if ((required = grammar_grow(b, o->required, o->n, &o->cap_required, sizeof *o->required)) != NULL)
        o->required = required;
    if ((rule = grammar_grow(b, o->rule, o->n, &o->cap_rule, sizeof *o->rule)) != NULL)
        o->rule = rule;
    if (b->code != ERR_OK)
        return;
    o->name[o->n] = name;
    o->required[o->n] = schema_requires(o->x, o->flat, name);
    o->rule[o->n++] = UINT32_MAX;
}

/* Declared names in order, then required ones; what the schemas say of others. */
static void collect_names(struct object *o)
{
    struct schema *x = o->x;
    const char *name;
    json_t *value;

    o->open = true;
    for (uint32_t i = 0; i < o->flat->n; i++) {
        struct schema_item item = o->flat->v[i];
        const json_t *names = member_of(x, item, "properties"), *patterns = member_of(x, item, "patternProperties");
        const json_t *more = json_object_get(item.s, "additionalProperties"),
                     *keys = json_object_get(item.s, "propertyNames");

        if (more != NULL && !json_is_object(more) && !json_is_boolean(more))
            schema_fail(x, ERR_FORMAT, item.path, "additionalProperties", "not a schema");
        if (keys != NULL && !json_is_object(keys) && !json_is_boolean(keys))
            schema_fail(x, ERR_FORMAT, item.path, "propertyNames", "not a schema");
        json_object_foreach ((json_t *)names, name, value)
            add_name(o, name);
        if ((names != NULL && !item.made) || patterns != NULL || more != NULL ||
            json_is_false(json_object_get(item.s, "unevaluatedProperties")))
            o->open = false;
        json_object_foreach ((json_t *)patterns, name, value) {
            int k = 0;

            while (k < o->n_patterns && strcmp(o->pattern[k].regex, name) != 0)
                k++;
            if (k < o->n_patterns)
                continue;
            if (k == PATTERNS_MAX) {
                schema_fail(x, ERR_LIMIT, item.path, "patternProperties", "too many patterns");
                return;
            }
            o->pattern[o->n_patterns++] = (struct pattern){ name, schema_pattern(x, item, "patternProperties", name) };
        }
    }
    for (uint32_t i = 0; i < o->flat->n; i++) {
        const json_t *list = json_object_get(o->flat->v[i].s, "required");

        for (size_t k = 0; k < json_array_size(list); k++) {
            if (json_is_string(json_array_get(list, k)))
                add_name(o, json_string_value(json_array_get(list, k)));
            else
                schema_fail(x, ERR_FORMAT, o->flat->v[i].path, "required", "not a list of names");
        }
    }
}

/* Where a key is due after c members, before property i; where a member has just been written. */
static uint32_t key_at(const struct object *o, uint32_t i, int64_t c)
{
    return o->key[i * o->counts + (c < (int64_t)o->counts ? (uint32_t)c : o->counts - 1)];
}

static uint32_t member_at(const struct object *o, uint32_t i, int64_t c)
{
    return o->member[i * o->counts + (c < (int64_t)o->counts ? (uint32_t)c : o->counts - 1)];
}

/* What follows a key; in dress the rule has all of it if values are bare. */
static void put_colon_value(struct object *o, uint32_t from, uint32_t to, uint32_t rule)
{
    const struct grammar_dress *d = o->dress;
    struct grammar_build *b = o->x->b;
    uint32_t colon, value;

    if (d != NULL && d->close != NULL) {
        grammar_call(b, from, to, rule);
        return;
    }
    colon = grammar_state(b);
    value = grammar_state(b);
    if (d != NULL) {
        grammar_mark(b, from, value, str_of(d->value));
        grammar_call(b, value, colon, rule);
        grammar_mark(b, colon, to, str_of(d->end));
        return;
    }
    grammar_bytes(b, from, colon, ':', ':');
    schema_put_space(o->x, colon, value);
    grammar_call(b, value, to, rule);
}

static uint32_t value_rule(struct object *o, struct schema_all *all, const char *key)
{
    return o->dress != NULL && o->dress->close != NULL ? schema_bare_rule(o->x, all, key) : schema_rule_of(o->x, all);
}

/* Keys of one class: those of d, whose value all the matched patterns and the rest have a say in.
 */
static void put_class(struct object *o, const struct grammar_dfa *d, unsigned matched)
{
    struct schema *x = o->x;
    struct grammar_build *b = x->b;
    struct schema_all *all = calloc(1, sizeof *all);
    bool spoken = o->open;
    uint32_t rule;

    if (all == NULL) {
        grammar_nomem(b);
        return;
    }
    for (uint32_t i = 0; i < o->flat->n; i++) {
        struct schema_item item = o->flat->v[i];
        const json_t *patterns = json_object_get(item.s, "patternProperties");
        const json_t *more = json_object_get(item.s, "additionalProperties");
        bool some = false;

        for (int k = 0; k < o->n_patterns; k++) {
            const json_t *value = (matched >> k & 1) == 0 ? NULL : json_object_get(patterns, o->pattern[k].regex);

            if (value == NULL)
                continue;
            some = true;
            if (!json_is_true(value))
                schema_add(x, all,
                           (struct schema_item){ value,
                                                 schema_path(x, schema_path(x, item.path, "patternProperties", -1),
                                                             o->pattern[k].regex, -1),
                                                 false, -1 });
        }
        if (!some && more != NULL && !json_is_true(more))
            schema_add(x, all,
                       (struct schema_item){ more, schema_path(x, item.path, "additionalProperties", -1), false, -1 });
        spoken = spoken || some || more != NULL;
    }
    if (spoken && !all->never && b->code == ERR_OK) {
        rule = value_rule(o, all, NULL);
        for (int64_t c = 0; c < (int64_t)o->counts; c++) {
            uint32_t open = grammar_state(b), end = grammar_state(b), colon = grammar_state(b);

            if (o->max >= 0 && c >= o->max)
                break;
            if (o->dress != NULL)
                grammar_mark(b, key_at(o, o->n, c), open, str_of(o->dress->key));
            else
                grammar_bytes(b, key_at(o, o->n, c), open, '"', '"');
            grammar_dfa_put(b, d, open, end);
            grammar_text(b, end, colon, str_of(o->dress != NULL ? "" : "\""));
            put_colon_value(o, colon, o->last != 0 ? o->last : member_at(o, o->n, c + 1), rule);
        }
    }
    free(all);
}

static void split_classes(struct object *o, const struct grammar_dfa *d, int k, unsigned matched)
{
    struct grammar_dfa *with, *without;

    if (d == NULL || grammar_dfa_empty(d))
        return;
    if (k == o->n_patterns) {
        put_class(o, d, matched);
        return;
    }
    with = grammar_dfa_and(o->x->b, d, o->pattern[k].keys, false);
    split_classes(o, with, k + 1, matched | 1U << k);
    grammar_dfa_free(with);
    without = grammar_dfa_and(o->x->b, d, o->pattern[k].keys, true);
    split_classes(o, without, k + 1, matched);
    grammar_dfa_free(without);
}

static struct grammar_dfa *dressed_keys(const struct object *o)
{
    struct grammar_build *b = o->x->b;
    uint32_t from = grammar_state(b), to = grammar_state(b);

    grammar_regex(b, str_of(o->dress->keys), false, GRAMMAR_RAW, from, to);
    return grammar_dfa_make(b, from, to);
}

/* Keys that are not declared, and that propertyNames allow. */
static struct grammar_dfa *other_keys(struct object *o)
{
    struct schema *x = o->x;
    struct grammar_build *b = x->b;
    struct grammar_dfa *d = o->dress != NULL ? dressed_keys(o) : schema_any_string(x), *less, *names;
    struct schema_all *all = calloc(2, sizeof *all);
    struct schema_choices *choices = calloc(1, sizeof *choices);
    uint32_t from = grammar_state(b), to = grammar_state(b);

    for (uint32_t i = 0; i < o->n && b->code == ERR_OK; i++)
        schema_put_spelled(x, o->name[i], strlen(o->name[i]), from, to);
    if (o->n > 0) {
        names = grammar_dfa_make(b, from, to);
        less = grammar_dfa_and(b, d, names, true);
        grammar_dfa_free(names);
        grammar_dfa_free(d);
        d = less;
    }
    if (all == NULL || choices == NULL)
        grammar_nomem(b);
    for (uint32_t i = 0; i < o->flat->n && b->code == ERR_OK; i++) {
        const json_t *s = json_object_get(o->flat->v[i].s, "propertyNames");

        if (s != NULL)
            schema_add(x, &all[0],
                       (struct schema_item){ s, schema_path(x, o->flat->v[i].path, "propertyNames", -1), false, -1 });
    }
    if (b->code == ERR_OK && all[0].n > 0 && schema_flatten(x, &all[0], &all[1], choices)) {
        for (uint32_t i = 0; i < all[1].n; i++)
            if (choices->n > 0 || json_object_get(all[1].v[i].s, "enum") != NULL ||
                json_object_get(all[1].v[i].s, "const") != NULL)
                schema_fail(x, ERR_UNSUPPORTED, all[1].v[i].path, "",
                            "choices and lists of names are not supported here");
        names = (schema_types(x, &all[1]) & T_STR) == 0 ? NULL : schema_string(x, &all[1]);
        less = names == NULL ? NULL : grammar_dfa_and(b, d, names, false);
        grammar_dfa_free(names);
        grammar_dfa_free(d);
        d = less;
    }
    free(all);
    free(choices);
    return d;
}

static bool has_others(const struct object *o)
{
    bool has = o->open || o->n_patterns > 0;

    for (uint32_t i = 0; i < o->flat->n; i++) {
        const json_t *more = json_object_get(o->flat->v[i].s, "additionalProperties");

        has = has || (more != NULL && !json_is_false(more));
    }
    return has;
}

/* One property: its key and value, or not where it is not required. */
static void put_property(struct object *o, uint32_t i)
{
    struct grammar_build *b = o->x->b;
    json_t *name = json_string(o->name[i]);
    char *quoted = name == NULL ? NULL : json_dump(name, JSON_ENCODE_ANY);

    if (quoted == NULL)
        grammar_nomem(b);
    for (int64_t c = 0; c < (int64_t)o->counts && b->code == ERR_OK; c++) {
        uint32_t colon;

        if (!o->required[i]) {
            grammar_eps(b, key_at(o, i, c), key_at(o, i + 1, c));
            grammar_eps(b, member_at(o, i, c), member_at(o, i + 1, c));
        }
        if (o->rule[i] == UINT32_MAX || (o->max >= 0 && c >= o->max))
            continue;
        colon = grammar_state(b);
        if (o->dress != NULL) {
            uint32_t key = grammar_state(b);

            grammar_mark(b, key_at(o, i, c), key, str_of(o->dress->key));
            grammar_text(b, key, colon, str_of(o->name[i]));
        } else {
            grammar_text(b, key_at(o, i, c), colon, str_of(quoted));
        }
        put_colon_value(o, colon, member_at(o, i + 1, c + 1), o->rule[i]);
    }
    json_decref(name);
    free(quoted);
}

/* States between members: c of them are written, as far as it matters. */
static bool make_states(struct object *o)
{
    struct grammar_build *b = o->x->b;
    int64_t counts = (o->max >= 0 ? o->max : o->min) + 1;
    uint32_t n;

    if (counts > COUNT_MAX) {
        schema_fail_limit(o->x, o->flat->v[0].path, o->max >= 0 ? "maxProperties" : "minProperties", counts - 1,
                          COUNT_MAX - 1);
        return false;
    }
    o->counts = (uint32_t)counts;
    n = (o->n + 1) * o->counts;
    o->key = calloc(n, sizeof *o->key);
    o->member = calloc(n, sizeof *o->member);
    if (o->key == NULL || o->member == NULL)
        grammar_nomem(b);
    for (uint32_t i = 0; i < n && b->code == ERR_OK; i++) {
        o->key[i] = grammar_state(b);
        o->member[i] = grammar_state(b);
    }
    return b->code == ERR_OK;
}

/* member[i]: written one, the next may be i or later. A comma leads to key[i]; without one all that
 * is left is skipped, so that member[n] is where the object may be closed. */
static void put_between(struct object *o)
{
    struct grammar_build *b = o->x->b;
    uint32_t end = grammar_state(b);

    for (uint32_t i = 0; i <= o->n; i++)
        for (int64_t c = 0; c < (int64_t)o->counts && b->code == ERR_OK; c++) {
            uint32_t comma;

            if (o->dress != NULL) {
                grammar_mark(b, member_at(o, i, c), key_at(o, i, c), str_of(o->dress->between));
                continue;
            }
            comma = grammar_state(b);
            grammar_bytes(b, member_at(o, i, c), comma, ',', ',');
            schema_put_space(o->x, comma, key_at(o, i, c));
        }
    for (int64_t c = o->min; c < (int64_t)o->counts; c++)
        grammar_eps(b, member_at(o, o->n, c), end);
    if (o->last != 0 && o->min <= 1)
        grammar_eps(b, o->last, end);
    if (o->dress != NULL)
        grammar_eps(b, end, o->close);
    else
        schema_put_space(o->x, end, o->close);
}

/* Keys that the dress can have. A declared one that it cannot have is an error, since a model would miss it. */
static bool can_write(struct object *o, uint32_t i)
{
    struct schema *x = o->x;
    bool can = o->dress == NULL;

    if (!can) {
        struct grammar_dfa *keys = dressed_keys(o);

        can = keys != NULL && grammar_dfa_has(keys, str_of(o->name[i]));
        grammar_dfa_free(keys);
        if (!can)
            schema_fail(x, ERR_UNSUPPORTED,
                        schema_path(x, schema_path(x, o->flat->v[0].path, "properties", -1), o->name[i], -1), "",
                        "a parameter of this name cannot be written in this model's calls");
    }
    return can;
}

static void write_object(struct object *o, uint32_t from, uint32_t to)
{
    struct schema *x = o->x;
    struct grammar_build *b = x->b;
    struct schema_all *value = calloc(1, sizeof *value);
    struct grammar_dfa *others = NULL;
    uint32_t open = grammar_state(b), first = grammar_state(b);
    bool may_be_empty = o->min == 0;

    o->close = grammar_state(b);
    if (value == NULL)
        grammar_nomem(b);
    for (uint32_t i = 0; i < o->n && b->code == ERR_OK; i++) {
        may_be_empty = may_be_empty && !o->required[i];
        if (schema_property(x, o->flat, o->name[i], value) && can_write(o, i))
            o->rule[i] = value_rule(o, value, o->name[i]);
        else if (o->required[i] && x->hint == NULL)
            x->hint = o->flat->v[0].path;
    }
    grammar_text(b, from, open, str_of(o->dress != NULL ? "" : "{"));
    if (b->code == ERR_OK && make_states(o)) {
        if (o->dress == NULL)
            schema_put_space(x, open, first);
        else
            grammar_eps(b, open, first);
        grammar_eps(b, first, key_at(o, 0, 0));
        if (may_be_empty)
            grammar_text(b, first, to, str_of(o->dress != NULL ? "" : "}"));
        for (uint32_t i = 0; i < o->n; i++)
            put_property(o, i);
        put_between(o);
        others = has_others(o) ? other_keys(o) : NULL;
        split_classes(o, others, 0, 0);
        grammar_text(b, o->close, to, str_of(o->dress != NULL ? "" : "}"));
    }
    grammar_dfa_free(others);
    free(value);
}

void schema_object(struct schema *x, const struct schema_all *flat, uint32_t from, uint32_t to)
{
    struct object o = { .x = x, .flat = flat, .dress = x->dress };

    x->b->raw = o.dress != NULL;
    if (o.dress != NULL && o.dress->literals)
        o.last = grammar_state(x->b);
    schema_counts(x, flat, "minProperties", "maxProperties", &o.min, &o.max);
    collect_names(&o);
    if (o.min > 1 && has_others(&o)) /* of such keys one may come twice, and be one property */
        schema_fail(x, ERR_UNSUPPORTED, flat->v[0].path, "minProperties",
                    "more than 1 is not supported beside undeclared keys");
    if (x->b->code == ERR_OK && (o.max < 0 || o.min <= o.max))
        write_object(&o, from, to);
    x->b->raw = false;
    for (int k = 0; k < o.n_patterns; k++)
        grammar_dfa_free(o.pattern[k].keys);
    free(o.name);
    free(o.required);
    free(o.rule);
    free(o.key);
    free(o.member);
}

bool schema_writes(struct schema *x, const struct schema_all *flat, const char *name)
{
    struct object o = { .x = x, .flat = flat };
    bool writes;

    collect_names(&o);
    writes = has_others(&o) || is_named(&o, name);
    for (int k = 0; k < o.n_patterns; k++)
        grammar_dfa_free(o.pattern[k].keys);
    free(o.name);
    free(o.required);
    free(o.rule);
    return writes;
}
