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
    IS_NULL = 1,
    IS_BOOLEAN = 2,
    IS_INTEGER = 4,
    IS_NUMBER = 8,
    IS_ARRAY = 16,
    IS_OBJECT = 32,
    IS_STRING = 64,
    IS_ANY = 127,
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
        unsigned kind;
    } names[] = {
        { "null", IS_NULL },   { "boolean", IS_BOOLEAN }, { "integer", IS_INTEGER }, { "number", IS_NUMBER },
        { "array", IS_ARRAY }, { "object", IS_OBJECT },   { "string", IS_STRING },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is_string(type) && strcmp(json_string_value(type), names[i].name) == 0)
            return names[i].kind;
    return 0;
}

static unsigned by_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return IS_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return IS_BOOLEAN;
    case JSON_INTEGER:
        return IS_INTEGER;
    case JSON_REAL:
        return IS_NUMBER;
    case JSON_ARRAY:
        return IS_ARRAY;
    case JSON_OBJECT:
        return IS_OBJECT;
    case JSON_STRING:
        return IS_STRING;
    }
    return 0;
}

static unsigned kinds_of(const json_t *schema, struct schemas *in, int depth);

/* Kinds of any member of a list of schemas; of all of them. */
static unsigned kinds_of_list(const json_t *list, struct schemas *in, int depth, bool all)
{
    unsigned kinds = all ? IS_ANY : 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned k = kinds_of(json_array_get(list, i), in, depth);
        kinds = all ? kinds & k : kinds | k;
    }
    return kinds != 0 ? kinds : IS_ANY;
}

static unsigned kinds_said(const json_t *schema, struct schemas *in, int depth)
{
    const json_t *type = json_object_get(schema, "type"), *v;
    unsigned kinds = 0;

    if (type != NULL) {
        kinds = by_name(type);
        for (size_t i = 0; i < json_array_size(type); i++)
            kinds |= by_name(json_array_get(type, i));
    } else if ((v = json_object_get(schema, "$ref")) != NULL && json_is_string(v)) {
        kinds = kinds_of(resolve(in->root, json_string_value(v)), in, depth);
    } else if ((v = json_object_get(schema, "const")) != NULL) {
        kinds = by_value(v);
    } else if ((v = json_object_get(schema, "enum")) != NULL) {
        for (size_t i = 0; i < json_array_size(v); i++)
            kinds |= by_value(json_array_get(v, i));
    } else if ((v = json_object_get(schema, "anyOf")) != NULL || (v = json_object_get(schema, "oneOf")) != NULL) {
        kinds = kinds_of_list(v, in, depth, false);
    } else if ((v = json_object_get(schema, "allOf")) != NULL) {
        kinds = kinds_of_list(v, in, depth, true);
    } else if (json_object_get(schema, "properties") != NULL) {
        kinds = IS_OBJECT;
    } else if (json_object_get(schema, "items") != NULL) {
        kinds = IS_ARRAY;
    }
    return kinds;
}

static unsigned kinds_of(const json_t *schema, struct schemas *in, int depth)
{
    unsigned kinds;

    if (!json_is_object(schema) || depth == DEPTH_MAX || in->left == 0)
        return IS_ANY;
    in->left--;
    kinds = kinds_said(schema, in, depth + 1);
    if (kinds != 0 && json_is_true(json_object_get(schema, "nullable")))
        kinds |= IS_NULL;
    return kinds != 0 ? kinds : IS_ANY;
}

/* The kind of a value that was read, by its JSON. */
static unsigned by_json(struct str v)
{
    bool whole;

    switch (v.n > 0 ? v.p[0] : '\0') {
    case 'n':
        return IS_NULL;
    case 't':
    case 'f':
        return IS_BOOLEAN;
    case '[':
        return IS_ARRAY;
    case '{':
        return IS_OBJECT;
    case '"':
        return 0; /* bare text has no quotes: these belong to the string */
    default:
        return chat_parse_is_number(v, &whole) && whole ? IS_INTEGER | IS_NUMBER : IS_NUMBER;
    }
}

/* Adds text as JSON if it is a value of one of the kinds; else out is as before. */
static bool add_value(struct text_buf *out, unsigned kinds, struct str text, unsigned syntax)
{
    const size_t before = out->n;

    if (chat_parse_value(out, &text, syntax) && text.n == 0 && !out->failed &&
        (by_json((struct str){ out->p + before, out->n - before }) & kinds) != 0)
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
    static const struct {
        unsigned kinds, types;
    } table[] = {
        { IS_NULL, GRAMMAR_NULL },       { IS_BOOLEAN, GRAMMAR_BOOL },
        { IS_INTEGER, GRAMMAR_INTEGER }, { IS_NUMBER, GRAMMAR_INTEGER | GRAMMAR_FRACTION },
        { IS_ARRAY, GRAMMAR_ARRAY },     { IS_OBJECT, GRAMMAR_OBJECT },
        { IS_STRING, GRAMMAR_STRING },
    };
    struct schemas in = { .root = schema, .left = SCHEMAS_MAX };
    const unsigned kinds = kinds_of(param_of(schema, key), &in, 0);
    unsigned types = 0;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        types |= (kinds & table[i].kinds) != 0 ? table[i].types : 0;
    return types;
}

void chat_parse_typed(struct text_buf *out, const json_t *schema, struct str key, struct str text, unsigned syntax)
{
    struct schemas in = { .root = schema, .left = SCHEMAS_MAX };
    const unsigned kinds = kinds_of(param_of(schema, key), &in, 0);
    struct str v = text;

    chat_parse_trim(&v);
    if (kinds == IS_STRING ||
        !(add_value(out, kinds, v, syntax & CHAT_PYTHON_NAMES) || add_value(out, kinds, v, syntax)))
        chat_parse_quote(out, text);
}
