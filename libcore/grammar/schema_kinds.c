/* SPDX-License-Identifier: Apache-2.0 */
/* schema_kinds.c - a keyword's value has the kind that JSON Schema gives it, wherever it stands: also beside a type
 * that the keyword says nothing of, and in definitions that nothing refers to.          room: grammar */
#include <math.h>
#include <string.h>

#include "grammar/schema.h"

enum kind { TEXT, FLAG, NUMBER, ABOVE_0, COUNT, LIST, NAMES, TYPES, SCHEMA, SCHEMAS, SCHEMA_MAP, NAMES_MAP };

/* Remarks, such as a title, may be null: what writes schemas from other things does so where there is none. */
static const struct {
    const char *key;
    enum kind kind;
    bool remark;
} keywords[] = {
    { "$ref", TEXT, false },
    { "$id", TEXT, true },
    { "$schema", TEXT, true },
    { "$anchor", TEXT, true },
    { "$comment", TEXT, true },
    { "title", TEXT, true },
    { "description", TEXT, true },
    { "contentEncoding", TEXT, true },
    { "contentMediaType", TEXT, true },
    { "deprecated", FLAG, true },
    { "readOnly", FLAG, true },
    { "writeOnly", FLAG, true },
    { "examples", LIST, true },
    { "type", TYPES, false },
    { "enum", LIST, false },
    { "pattern", TEXT, false },
    { "format", TEXT, false },
    { "minLength", COUNT, false },
    { "maxLength", COUNT, false },
    { "minimum", NUMBER, false },
    { "maximum", NUMBER, false },
    { "exclusiveMinimum", NUMBER, false },
    { "exclusiveMaximum", NUMBER, false },
    { "multipleOf", ABOVE_0, false },
    { "items", SCHEMA, false },
    { "prefixItems", SCHEMAS, false },
    { "minItems", COUNT, false },
    { "maxItems", COUNT, false },
    { "uniqueItems", FLAG, false },
    { "properties", SCHEMA_MAP, false },
    { "patternProperties", SCHEMA_MAP, false },
    { "additionalProperties", SCHEMA, false },
    { "unevaluatedProperties", SCHEMA, false },
    { "propertyNames", SCHEMA, false },
    { "required", NAMES, true },
    { "minProperties", COUNT, false },
    { "maxProperties", COUNT, false },
    { "dependentRequired", NAMES_MAP, false },
    { "dependentSchemas", SCHEMA_MAP, false },
    { "allOf", SCHEMAS, false },
    { "anyOf", SCHEMAS, false },
    { "oneOf", SCHEMAS, false },
    { "not", SCHEMA, false },
    { "$defs", SCHEMA_MAP, false },
    { "definitions", SCHEMA_MAP, false },
};

/* A place in the schema; the pointer is only written for a message. */
struct place {
    const struct place *above;
    const char *key; /* NULL: the beginning, `path` */
    int64_t index;   /* in the list `key`; -1: none */
    const char *path;
};

static const char *pointer_to(struct schema *x, const struct place *p)
{
    return p->key == NULL ? p->path : schema_path(x, pointer_to(x, p->above), p->key, p->index);
}

static bool all_texts(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

/* What is wrong with a value; NULL: nothing. */
static const char *wrong_kind(enum kind kind, const char *key, const json_t *v)
{
    const double d = json_number_value(v);

    switch (kind) {
    case TEXT:
        return json_is_string(v) ? NULL : "not a string";
    case FLAG:
        return json_is_boolean(v) ? NULL : "neither true nor false";
    case NUMBER:
        return json_is_number(v) ? NULL : "not a number";
    case ABOVE_0:
        return !json_is_number(v) ? "not a number" : d > 0 ? NULL : "not above 0";
    case COUNT:
        return json_is_number(v) && d >= 0 && d == floor(d) ? NULL : "not a whole number that is 0 or more";
    case LIST:
        return json_is_array(v) ? NULL : "not a list";
    case NAMES:
        return all_texts(v) ? NULL : "not a list of names";
    case TYPES:
        return json_is_string(v) || all_texts(v) ? NULL : "no such type";
    case SCHEMAS:
        return json_is_array(v) ? NULL : "not a list of schemas";
    case SCHEMA_MAP:
    case NAMES_MAP:
        return json_is_object(v) ? NULL : "not an object";
    case SCHEMA:
        break;
    }
    return json_is_object(v) || json_is_boolean(v) ? NULL
           : strcmp(key, "items") == 0             ? "not a schema; a list of schemas is prefixItems"
                                                   : "not a schema";
}

static void check_schema(struct schema *x, const json_t *s, const struct place *at);

/* The schemas in a value, and the lists of names. */
static void check_inner(struct schema *x, enum kind kind, const json_t *v, const struct place *at)
{
    const char *name;
    json_t *inner;

    if (kind == SCHEMA)
        check_schema(x, v, at);
    for (size_t i = 0; kind == SCHEMAS && i < json_array_size(v); i++)
        check_schema(x, json_array_get(v, i), &(struct place){ at->above, at->key, (int64_t)i, NULL });
    if (kind != SCHEMA_MAP && kind != NAMES_MAP)
        return;
    json_object_foreach ((json_t *)v, name, inner) {
        const struct place here = { at, name, -1, NULL };

        if (kind == SCHEMA_MAP)
            check_schema(x, inner, &here);
        else if (!all_texts(inner))
            schema_fail(x, ERR_FORMAT, pointer_to(x, &here), "", "not a list of names");
    }
}

static void check_schema(struct schema *x, const json_t *s, const struct place *at)
{
    if (json_is_boolean(s) || x->b->code != ERR_OK)
        return;
    if (!json_is_object(s)) {
        schema_fail(x, ERR_FORMAT, pointer_to(x, at), "", "not a schema");
        return;
    }
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords && x->b->code == ERR_OK; i++) {
        const json_t *v = json_object_get(s, keywords[i].key);
        const char *wrong;

        if (v == NULL || (json_is_null(v) && keywords[i].remark))
            continue;
        wrong = wrong_kind(keywords[i].kind, keywords[i].key, v);
        if (wrong != NULL)
            schema_fail(x, ERR_FORMAT, pointer_to(x, at), keywords[i].key, wrong);
        else
            check_inner(x, keywords[i].kind, v, &(struct place){ at, keywords[i].key, -1, NULL });
    }
}

void schema_check_kinds(struct schema *x, const json_t *s, const char *path)
{
    check_schema(x, s, &(struct place){ .path = path });
}
