/* SPDX-License-Identifier: Apache-2.0 */
/* parse_typed.c - what the text of a parameter is, by the schema of its tool.         room: chat
 *
 * Syntaxes that write values as bare text leave their types to the tool's JSON schema. A type other
 * than string is tried where the schema allows it; text that fits none stays a string, as it was
 * written. Without a schema a parameter may be anything.
 */
#include <string.h>
#include "chat/parse.h"

enum {
    NUMBER = GRAMMAR_INTEGER | GRAMMAR_FRACTION,
    ANY = GRAMMAR_NULL | GRAMMAR_BOOL | NUMBER | GRAMMAR_ARRAY | GRAMMAR_OBJECT | GRAMMAR_STRING,
    DEPTH_MAX = 16,     /* of references and unions within each other */
    SCHEMAS_MAX = 1024, /* that are looked at for one parameter */
};

struct schemas {
    const json_t *root; /* of references */
    int left;           /* of SCHEMAS_MAX */
};

/* A member whose key is not NUL-terminated. */
static const json_t *member(const json_t *object, struct str key)
{
    void *o = (void *)(uintptr_t)object;

    for (void *it = json_object_iter(o); it != NULL; it = json_object_iter_next(o, it))
        if (str_eq(str_of(json_object_iter_key(it)), key))
            return json_object_iter_value(it);
    return NULL;
}

const json_t *chat_parse_tool(const json_t *tools, struct str name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *f = json_object_get(tool, "function");
        struct str n;
        if (json_is_object(f))
            tool = f;
        if (json_get_str(tool, "name", &n) && str_eq(n, name))
            return tool;
    }
    return NULL;
}

/* "#/$defs/x" within the root schema. Keys with escapes are not looked for. */
static const json_t *resolve(const json_t *root, const char *ref)
{
    const json_t *at = root;

    if (*ref++ != '#')
        return NULL;
    while (*ref == '/' && at != NULL) {
        size_t n = strcspn(++ref, "/");
        at = member(at, (struct str){ ref, n });
        ref += n;
    }
    return at;
}

static unsigned by_name(const json_t *type)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {
        { "null", GRAMMAR_NULL },   { "boolean", GRAMMAR_BOOL },  { "integer", GRAMMAR_INTEGER }, { "number", NUMBER },
        { "array", GRAMMAR_ARRAY }, { "object", GRAMMAR_OBJECT }, { "string", GRAMMAR_STRING },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is_string(type) && strcmp(json_string_value(type), names[i].name) == 0)
            return names[i].type;
    return 0;
}

static unsigned by_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return GRAMMAR_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return GRAMMAR_BOOL;
    case JSON_INTEGER:
        return GRAMMAR_INTEGER;
    case JSON_REAL:
        return NUMBER;
    case JSON_ARRAY:
        return GRAMMAR_ARRAY;
    case JSON_OBJECT:
        return GRAMMAR_OBJECT;
    case JSON_STRING:
        return GRAMMAR_STRING;
    }
    return 0;
}

static unsigned types_of(const json_t *schema, struct schemas *in, int depth);

/* Types of any member of a list of schemas; of all of them. */
static unsigned types_of_list(const json_t *list, struct schemas *in, int depth, bool all)
{
    unsigned types = all ? ANY : 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned t = types_of(json_array_get(list, i), in, depth);
        types = all ? types & t : types | t;
    }
    return types != 0 ? types : ANY;
}

static unsigned types_said(const json_t *schema, struct schemas *in, int depth)
{
    const json_t *type = json_object_get(schema, "type"), *v;
    unsigned types = 0;

    if (type != NULL) {
        types = by_name(type);
        for (size_t i = 0; i < json_array_size(type); i++)
            types |= by_name(json_array_get(type, i));
    } else if ((v = json_object_get(schema, "$ref")) != NULL && json_is_string(v)) {
        types = types_of(resolve(in->root, json_string_value(v)), in, depth);
    } else if ((v = json_object_get(schema, "const")) != NULL) {
        types = by_value(v);
    } else if ((v = json_object_get(schema, "enum")) != NULL) {
        for (size_t i = 0; i < json_array_size(v); i++)
            types |= by_value(json_array_get(v, i));
    } else if ((v = json_object_get(schema, "anyOf")) != NULL || (v = json_object_get(schema, "oneOf")) != NULL) {
        types = types_of_list(v, in, depth, false);
    } else if ((v = json_object_get(schema, "allOf")) != NULL) {
        types = types_of_list(v, in, depth, true);
    } else if (json_object_get(schema, "properties") != NULL) {
        types = GRAMMAR_OBJECT;
    } else if (json_object_get(schema, "items") != NULL) {
        types = GRAMMAR_ARRAY;
    }
    return types;
}

static unsigned types_of(const json_t *schema, struct schemas *in, int depth)
{
    unsigned types;

    if (!json_is_object(schema) || depth == DEPTH_MAX || in->left == 0)
        return ANY;
    in->left--;
    types = types_said(schema, in, depth + 1);
    if (types != 0 && json_is_true(json_object_get(schema, "nullable")))
        types |= GRAMMAR_NULL;
    return types != 0 ? types : ANY;
}

/* The type of a value that was read, by its JSON. */
static unsigned by_json(struct str v)
{
    bool whole;

    switch (v.n > 0 ? v.p[0] : '\0') {
    case 'n':
        return GRAMMAR_NULL;
    case 't':
    case 'f':
        return GRAMMAR_BOOL;
    case '[':
        return GRAMMAR_ARRAY;
    case '{':
        return GRAMMAR_OBJECT;
    case '"':
        return 0; /* bare text has no quotes: these belong to the string */
    default:
        return chat_parse_is_number(v, &whole) && whole ? GRAMMAR_INTEGER : GRAMMAR_FRACTION;
    }
}

/* Adds text as JSON if it is a value of one of the types; else out is as before. */
static bool add_value(struct text_buf *out, unsigned types, struct str text, unsigned syntax)
{
    const size_t before = out->n;

    if (chat_parse_value(out, &text, syntax) && text.n == 0 && !out->failed &&
        (by_json((struct str){ out->p + before, out->n - before }) & types) != 0)
        return true;
    out->n = before;
    return false;
}

/* The schema of a parameter; NULL: not known. */
static const json_t *param_of(const json_t *schema, struct str key)
{
    const json_t *of = key.p != NULL ? member(json_object_get(schema, "properties"), key) : NULL;

    return of != NULL ? of : json_object_get(schema, "additionalProperties");
}

unsigned chat_parse_types(const json_t *schema, struct str key)
{
    struct schemas in = { .root = schema, .left = SCHEMAS_MAX };

    return types_of(param_of(schema, key), &in, 0);
}

void chat_parse_typed(struct text_buf *out, const json_t *schema, struct str key, struct str text, unsigned syntax)
{
    const unsigned types = chat_parse_types(schema, key);
    struct str v = text;

    chat_parse_trim(&v);
    if (types == GRAMMAR_STRING ||
        !(add_value(out, types, v, syntax & CHAT_PYTHON_NAMES) || add_value(out, types, v, syntax)))
        chat_parse_quote(out, text);
}
