/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.c - tool calls as parts of a grammar, by the family's syntax.         room: chat
 *
 * Two shapes: an object of JSON with the name and the arguments, and marks around parameters, each
 * a line of its own (Qwen3-Coder, Qwen3.5, Nemotron 3). There a string is bare text up to the mark
 * that ends it, and limits of strings other than a list of them cannot be kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "chat/parse.h"
#include "chat/tool_grammar.h"
#include "grammar/grammar.h"

enum { POINTER_BYTES = 2 * CHAT_NAME_BYTES_MAX + 32 };

struct making {
    const struct chat_tool_opts *o;
    const struct chat_syntax *s;
    struct grammar_part *v;
    size_t n, cap;
    json_t *kept; /* array: what the parts point to */
    bool strict, failed;
    const char *name;
    char place[64]; /* the tool's parameters: "/tools/1/function/parameters" */
    struct err *e;
    enum err_code code;
};

static void add_part(struct making *m, struct grammar_part p)
{
    if (memory_room(&m->v, &m->cap, m->n + 1, sizeof *m->v, NULL))
        m->failed = true;
    else
        m->v[m->n++] = p;
}

static void text(struct making *m, const char *s)
{
    add_part(m, (struct grammar_part){ .kind = GRAMMAR_PART_TEXT, .text = str_of(s) });
}

static void add_mark(struct making *m, enum grammar_part_kind kind)
{
    add_part(m, (struct grammar_part){ .kind = kind });
}

static void close_group(struct making *m, bool maybe, bool many)
{
    add_part(m, (struct grammar_part){ .kind = GRAMMAR_PART_CLOSE, .maybe = maybe, .many = many });
}

static void text_of(struct making *m, enum grammar_part_kind kind, const char *s)
{
    add_part(m, (struct grammar_part){ .kind = kind, .text = str_of(s) });
}

/* Takes the reference to v. */
static const json_t *keep_schema(struct making *m, json_t *v)
{
    m->failed = m->failed || v == NULL || json_array_append_new(m->kept, v) != 0;
    return m->failed ? NULL : v;
}

static void add_value(struct making *m, const json_t *schema, const json_t *root, const char *path)
{
    add_part(m, (struct grammar_part){ .kind = GRAMMAR_PART_VALUE, .schema = schema, .root = root, .path = path });
}

/* A tool is at fault: the place is in its parameters. */
static void blame_tool(struct making *m, const struct err *why)
{
    m->code = err_copy(m->e, why);
    err_wrap(m->e, "tool %s", m->name);
    err_at(m->e, "%s", m->place);
}

/* path: "#/properties/a". */
static void refuse_schema(struct making *m, const char *path)
{
    struct err why = { 0 };

    if (m->code != ERR_OK)
        return;
    err_set(&why, ERR_UNSUPPORTED, "%s: not supported in this model's calls", path);
    err_at(&why, "%s", path + 1);
    blame_tool(m, &why);
}

static void refuse_key(struct making *m, const char *path, const char *key)
{
    char whole[POINTER_BYTES];

    (void)snprintf(whole, sizeof whole, "%s/%s", path, key);
    refuse_schema(m, whole);
}

/* ---- marks around parameters ---- */

/* Keywords that bind a string, or a value that may be one. */
static const char *const binding[] = {
    "enum",
    "const",
    "pattern",
    "minLength",
    "maxLength",
    "format",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "items",
    "prefixItems",
    "properties",
    "required",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    NULL,
};
/* Those of an object that are more than a list of properties. */
static const char *const beyond[] = {
    "enum",
    "const",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    NULL,
};

static const char *first_of(const json_t *schema, const char *const *keys)
{
    while (*keys != NULL && json_object_get(schema, *keys) == NULL)
        keys++;
    return *keys;
}

/* A list of strings that can be written as they are. */
static bool is_listed(const json_t *schema, const char *end)
{
    const json_t *list = json_object_get(schema, "enum");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        if (!json_is_string(s) || strstr(json_string_value(s), end) != NULL ||
            strlen(json_string_value(s)) != json_string_length(s))
            return false;
    }
    return json_array_size(list) > 0 && first_of(schema, binding + 1) == NULL;
}

static void put_list(struct making *m, const json_t *list, const char *end)
{
    add_mark(m, GRAMMAR_PART_GROUP);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i > 0)
            add_mark(m, GRAMMAR_PART_OR);
        text(m, json_string_value(json_array_get(list, i)));
    }
    close_group(m, false, false);
    text(m, "\n");
    text(m, end);
}

static void put_param_value(struct making *m, const json_t *root, const json_t *schema, const char *path,
                            const char *end)
{
    const enum chat_string kind = chat_parse_text_is(root, schema);
    const char *key = first_of(schema, binding);

    if (kind == CHAT_NO_STRING) {
        const bool boolean = key == NULL && json_is_string(json_object_get(schema, "type")) &&
                             strcmp(json_string_value(json_object_get(schema, "type")), "boolean") == 0 &&
                             (m->s->values & CHAT_PYTHON_NAMES) != 0;

        add_mark(m, GRAMMAR_PART_GROUP);
        add_value(m, schema, root, path);
        if (boolean) {
            add_mark(m, GRAMMAR_PART_OR);
            text(m, "True");
            add_mark(m, GRAMMAR_PART_OR);
            text(m, "False");
        }
        close_group(m, false, false);
        text(m, "\n");
        text(m, end);
    } else if (kind == CHAT_ONLY_STRING && is_listed(schema, end)) {
        put_list(m, json_object_get(schema, "enum"), end);
    } else {
        if (key != NULL && m->strict)
            refuse_key(m, path, key);
        text_of(m, GRAMMAR_PART_UNTIL, end);
    }
}

static void put_param(struct making *m, const struct chat_xml *c, const json_t *root, const char *key,
                      const json_t *schema, bool required)
{
    char pointer[POINTER_BYTES] = "#/properties";
    json_t *path;

    (void)json_point_to(pointer, sizeof pointer, strlen(pointer), key);
    path = json_string(pointer);
    if (keep_schema(m, path) == NULL)
        return;
    if (strpbrk(key, "\n<>") != NULL || *key == '\0' || strlen(key) > CHAT_NAME_BYTES_MAX) {
        refuse_schema(m, pointer); /* no call with it can be read */
        return;
    }
    add_mark(m, GRAMMAR_PART_GROUP);
    text(m, c->param);
    text(m, key);
    text(m, c->param_name_end);
    text(m, "\n");
    put_param_value(m, root, schema, json_string_value(path), c->param_end);
    text(m, "\n");
    close_group(m, !required, false);
}

static bool is_required(const json_t *root, const char *key)
{
    const json_t *list = json_object_get(root, "required");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_string(json_array_get(list, i)) && strcmp(json_string_value(json_array_get(list, i)), key) == 0)
            return true;
    return false;
}

static void put_params(struct making *m, const struct chat_xml *c, const json_t *root)
{
    const json_t *list = json_object_get(root, "required");
    json_t *properties = json_object_get(root, "properties"), *schema;
    const char *key = first_of(root, beyond);

    if (key != NULL && m->strict)
        refuse_key(m, "#", key);
    json_object_foreach (properties, key, schema)
        put_param(m, c, root, key, schema, is_required(root, key));
    for (size_t i = 0; i < json_array_size(list); i++) {
        key = json_string_value(json_array_get(list, i));
        if (key != NULL && json_object_get(properties, key) == NULL)
            put_param(m, c, root, key, keep_schema(m, json_true()), true);
    }
}

static void put_any_params(struct making *m, const struct chat_xml *c)
{
    add_mark(m, GRAMMAR_PART_GROUP);
    text(m, c->param);
    text_of(m, GRAMMAR_PART_REGEX, "[^\\s<>]{1,64}");
    text(m, c->param_name_end);
    text(m, "\n");
    text_of(m, GRAMMAR_PART_UNTIL, c->param_end);
    text(m, "\n");
    close_group(m, true, true);
}

static void put_marked(struct making *m, const json_t *root, bool any)
{
    const struct chat_xml *c = m->s->conf;

    if (strpbrk(m->name, "\n<>") != NULL)
        refuse_key(m, "#", "name");
    text(m, c->call);
    text(m, m->name);
    text(m, c->call_name_end);
    text(m, "\n");
    if (any)
        put_any_params(m, c);
    else
        put_params(m, c, root);
    text(m, c->call_end);
}

/* ---- objects ---- */

static void put_object(struct making *m, const json_t *root, bool any)
{
    char *quoted = NULL;
    json_t *name = json_string(m->name), *kept, *of;

    quoted = name == NULL ? NULL : json_dumps(name, JSON_ENCODE_ANY);
    kept = quoted == NULL ? NULL : json_string(quoted);
    free(quoted);
    json_decref(name);
    /* Arguments are an object, even if the schema does not say so. */
    of = any || root == NULL || !json_is_object(root) ? json_object() : json_copy((json_t *)(uintptr_t)root);
    if (of != NULL && json_object_get(of, "type") == NULL)
        m->failed = json_object_set_new(of, "type", json_string("object")) != 0 || m->failed;
    if (keep_schema(m, kept) == NULL || keep_schema(m, of) == NULL)
        return;
    text(m, "{\"name\": ");
    text(m, json_string_value(kept));
    text(m, ", \"arguments\": ");
    add_value(m, of, of, "#");
    text(m, "}");
}

/* ---- calls ---- */

static bool is_marked(const struct chat_syntax *s)
{
    return s->call == chat_call_xml && ((const struct chat_xml *)s->conf)->own_lines &&
           ((const struct chat_xml *)s->conf)->call != NULL;
}

static void put_call(struct making *m, const json_t *root, bool any)
{
    if (is_marked(m->s))
        put_marked(m, root, any);
    else
        put_object(m, root, any);
}

/* Parameters are the schema of an object, if any. */
static void check_params(struct making *m, const json_t *root)
{
    const json_t *type = json_object_get(root, "type");
    struct grammar *g = NULL;
    const bool object = json_is_object(root) &&
                        (type == NULL || (json_is_string(type) && strcmp(json_string_value(type), "object") == 0));
    struct err why = { 0 };
    enum err_code code;

    if (root == NULL)
        return;
    code =
        object ? grammar_open_schema(&g, NULL, root, &why) : err_set(&why, ERR_FORMAT, "not the schema of an object");
    if (code == ERR_FORMAT) {
        err_wrap(&why, "parameters");
        blame_tool(m, &why);
    }
    grammar_close(g);
}

/* One tool's call; whether it can be bound is tried by itself. */
static void put_tool(struct making *m, const json_t *f)
{
    const json_t *root = json_object_get(f, "parameters");
    const size_t from = m->n;
    struct grammar *g = NULL;
    struct err why = { 0 };
    enum err_code code;

    m->name = json_string_value(json_object_get(f, "name"));
    if (m->strict)
        check_params(m, root);
    if (m->code != ERR_OK)
        return;
    put_call(m, root, false);
    if (m->code != ERR_OK || m->failed)
        return;
    code = grammar_open_parts(&g, NULL, m->v + from, m->n - from, &why);
    if (code == ERR_OK) {
        grammar_close(g);
    } else if (code == ERR_NOMEM || m->strict) {
        blame_tool(m, &why);
    } else {
        m->n = from;
        put_call(m, root, true);
    }
}

static bool is_chosen(const struct making *m, const char *name)
{
    const char *c = m->o->choice;

    return strcmp(c, "auto") == 0 || strcmp(c, "required") == 0 || strcmp(c, name) == 0;
}

/* One call of any of the tools. */
static void put_tools(struct making *m)
{
    size_t n = 0;

    add_mark(m, GRAMMAR_PART_GROUP);
    for (size_t i = 0; i < json_array_size(m->o->tools) && m->code == ERR_OK; i++) {
        const json_t *tool = json_array_get(m->o->tools, i), *f = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(f != NULL ? f : tool, "name"));

        if (name == NULL || !is_chosen(m, name))
            continue;
        if (n++ > 0)
            add_mark(m, GRAMMAR_PART_OR);
        (void)snprintf(m->place, sizeof m->place, "/tools/%zu%s/parameters", i, f != NULL ? "/function" : "");
        put_tool(m, f != NULL ? f : tool);
    }
    close_group(m, false, false);
    if (n == 0 && m->code == ERR_OK) {
        m->code = err_set(m->e, ERR_ARG, "tool choice: no tool is called '%.60s'", m->o->choice);
        err_at(m->e, "/tool_choice/function/name");
    }
}

/* What follows the opening mark, up to the closing one. */
static void put_block(struct making *m)
{
    const struct chat_syntax *s = m->s;
    const bool more = s->between != NULL && !m->o->one;
    const size_t from = m->n + (size_t)1;

    text(m, is_marked(s) ? "\n" : s->before);
    put_tools(m);
    if (more) {
        const size_t to = m->n;

        add_mark(m, GRAMMAR_PART_GROUP);
        text(m, s->between);
        for (size_t i = from; i < to && !m->failed; i++)
            add_part(m, m->v[i]);
        close_group(m, true, true);
    }
    text(m, is_marked(s) ? "\n" : s->after);
}

/* Each tool was tried by itself: what fails now is all of them together. */
static enum err_code open_calls(struct grammar **out, const struct making *m)
{
    struct err why = { 0 };

    if (grammar_open_parts(out, m->o->vocab, m->v, m->n, &why) == ERR_OK)
        return ERR_OK;
    err_set(m->e, why.code, "%s", why.msg);
    return err_at(m->e, "/tools");
}

static enum err_code after_reasoning(struct grammar **out, const struct making *m, struct grammar *g)
{
    enum err_code code = grammar_open_tagged(out, g, str_of(m->s->think_end[0]), (struct str){ "", 0 }, m->e);

    grammar_close(g);
    return code;
}

static enum err_code make_auto(struct grammar **out, struct making *m)
{
    const char *close = m->s->close != NULL ? m->s->close : "";
    struct grammar *inner, *g;
    enum err_code code;

    put_block(m);
    if (m->o->one)
        text(m, close);
    if (m->failed)
        return err_nomem(m->e);
    if (m->code != ERR_OK)
        return m->code;
    if (open_calls(&inner, m))
        return m->e->code;
    code = grammar_open_tagged(&g, inner, str_of(m->s->open[0]), str_of(m->o->one ? "" : close), m->e);
    grammar_close(inner);
    if (code == ERR_OK && m->o->reasoning && m->s->think != NULL)
        return after_reasoning(out, m, g);
    if (code == ERR_OK)
        *out = g;
    return code;
}

static enum err_code make_required(struct grammar **out, struct making *m)
{
    const struct chat_syntax *s = m->s;
    size_t from, to;

    if (m->o->reasoning && s->think != NULL) {
        text_of(m, GRAMMAR_PART_FREE, s->think_end[0]);
        text_of(m, GRAMMAR_PART_REGEX, "\\n{0,2}");
    }
    from = m->n;
    text(m, s->open[0]);
    put_block(m);
    text(m, s->close != NULL ? s->close : "");
    to = m->n;
    if (!m->o->one && s->between == NULL && s->close != NULL) { /* calls in blocks of their own */
        add_mark(m, GRAMMAR_PART_GROUP);
        text(m, "\n");
        for (size_t i = from; i < to && !m->failed; i++)
            add_part(m, m->v[i]);
        close_group(m, true, true);
    }
    if (m->failed)
        return err_nomem(m->e);
    return m->code != ERR_OK ? m->code : open_calls(out, m);
}

enum err_code chat_tool_grammar(struct grammar **out, const struct chat_tool_opts *o, struct err *e)
{
    struct err own = { 0 };
    const bool is_auto = strcmp(o->choice, "auto") == 0;
    struct making m = { .o = o, .s = chat_parse_syntax(o->parser), .strict = !is_auto, .e = e == NULL ? &own : e };
    enum err_code code;

    if (m.s == NULL)
        return err_set(e, ERR_ARG, "no parser is called '%.60s'", o->parser);
    if (m.s->open[0] == NULL || (!is_marked(m.s) && m.s->before == NULL)) {
        if (!is_auto)
            return err_set(e, ERR_UNSUPPORTED, "calls of the syntax %s cannot be required", o->parser);
        *out = NULL;
        return ERR_OK;
    }
    m.kept = json_array();
    m.failed = m.kept == NULL;
    code = is_auto ? make_auto(out, &m) : make_required(out, &m);
    free(m.v);
    json_decref(m.kept);
    return code;
}
