/* SPDX-License-Identifier: Apache-2.0 */
/* forms.c - members that hold an answer to a form, by the names of several interfaces.       room: serve */
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

/* Notes that this member asks for the form, of which there can be one. inner: where in the member; "": it itself. */
static bool set_place(struct serve_reading *r, const char *inner)
{
    static const struct {
        const char *member, *inner, *at;
    } places[] = {
        { "/response_format", "/json_schema/schema", "/response_format/json_schema/schema" },
        { "/response_format", "/schema", "/response_format/schema" },
        { "/response_format", "", "/response_format" },
        { "/grammar", "", "/grammar" },
        { "/regex", "", "/regex" },
        { "/json_schema", "", "/json_schema" },
        { "/guided_json", "", "/guided_json" },
        { "/guided_regex", "", "/guided_regex" },
        { "/guided_choice", "", "/guided_choice" },
        { "/guided_grammar", "", "/guided_grammar" },
        { "/structured_outputs", "/json", "/structured_outputs/json" },
        { "/structured_outputs", "/json_object", "/structured_outputs/json_object" },
        { "/structured_outputs", "/regex", "/structured_outputs/regex" },
        { "/structured_outputs", "/choice", "/structured_outputs/choice" },
        { "/structured_outputs", "/grammar", "/structured_outputs/grammar" },
    };

    if (r->w->form_at != NULL)
        return serve_fault(r->f, 400, r->at, "%s: not together with %s", r->at + 1, r->w->form_at + 1);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strcmp(places[i].member, r->at) == 0 && strcmp(places[i].inner, inner) == 0)
            r->w->form_at = places[i].at;
    return true;
}

static bool set_text(struct serve_reading *r, const json_t *v, const char *inner, struct str *out)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return serve_refuse_here(r, *inner != '\0' ? "a form that is not a text, or empty" : "not a text, or empty");
    *out = json_text(v);
    return set_place(r, inner);
}

/* v is taken; NULL: memory is out. */
static bool set_schema(struct serve_reading *r, json_t *v, const char *inner)
{
    if (v == NULL)
        return serve_nomem(r->f);
    if (!set_place(r, inner)) {
        json_decref(v);
        return false;
    }
    r->w->ask.form.schema = r->w->schema = v;
    return true;
}

/* A schema, or the text of one. */
static bool set_json(struct serve_reading *r, const json_t *v, const char *inner)
{
    struct err e = { 0 };
    json_t *schema = NULL;

    if (json_is_object(v) || json_is_boolean(v))
        return set_schema(r, json_incref((json_t *)(uintptr_t)v), inner);
    if (!json_is_string(v))
        return serve_refuse_here(r, "neither a schema nor the text of one");
    if (json_parse(&schema, json_text(v), "the schema", &e))
        return e.code == ERR_NOMEM ? serve_nomem(r->f) : serve_refuse_here(r, e.msg);
    return set_schema(r, schema, inner);
}

static bool add_choice(struct serve_buf *b, const json_t *choice, bool first)
{
    const char *s = json_string_value(choice);

    if (!serve_add(b, first ? STR("root ::= \"") : STR(" | \"")))
        return false;
    for (size_t i = 0; i < json_string_length(choice); i++) {
        const struct str c = s[i] == '\n' ? STR("\\n") : s[i] == '\r' ? STR("\\r") : (struct str){ s + i, 1 };

        if (((s[i] == '"' || s[i] == '\\') && !serve_add(b, STR("\\"))) || !serve_add(b, c))
            return false;
    }
    return serve_add(b, STR("\""));
}

/* One of some texts. */
static bool set_choice(struct serve_reading *r, const json_t *v, const char *inner)
{
    struct serve_buf *b = &r->w->choices;
    json_t *choice;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0)
        return serve_refuse_here(r, "not an array of texts");
    if (!set_place(r, inner))
        return false;
    json_array_foreach (v, i, choice) {
        if (!json_is_string(choice) || memchr(json_string_value(choice), '\0', json_string_length(choice)) != NULL)
            return serve_refuse_here(r, "not an array of texts");
        if (!add_choice(b, choice, i == 0))
            return serve_nomem(r->f);
    }
    r->w->ask.form.gbnf = (struct str){ b->p, b->n };
    return true;
}

bool serve_read_format(struct serve_reading *r, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    json_t *schema = json_object_get(v, "schema"), *outer = json_object_get(v, "json_schema");

    if (type == NULL)
        return serve_refuse_here(r, "not an object with a type");
    if (strcmp(type, "json_object") == 0 && schema != NULL && !json_is_null(schema))
        return set_schema(r, json_incref(schema), "/schema");
    if (strcmp(type, "json_object") == 0)
        return set_schema(r, json_pack("{s:s}", "type", "object"), "");
    if (strcmp(type, "json_schema") != 0)
        return true;
    if (json_is_object(outer))
        return set_schema(r, json_incref(json_object_get(outer, "schema")), "/json_schema/schema");
    return schema == NULL || json_is_null(schema) ? serve_wrong_at(r, "json_schema", "missing")
                                                  : set_schema(r, json_incref(schema), "/schema");
}

bool serve_read_grammar(struct serve_reading *r, const json_t *v)
{
    if (json_is_string(v) && json_string_length(v) == 0) /* llama.cpp's clients send it so where there is none */
        return true;
    return set_text(r, v, "", &r->w->ask.form.gbnf);
}

bool serve_read_regex(struct serve_reading *r, const json_t *v)
{
    return set_text(r, v, "", &r->w->ask.form.regex);
}

bool serve_read_json(struct serve_reading *r, const json_t *v)
{
    return set_json(r, v, "");
}

bool serve_read_choice(struct serve_reading *r, const json_t *v)
{
    return set_choice(r, v, "");
}

/* vLLM's: one of several forms. */
bool serve_read_structured(struct serve_reading *r, const json_t *v)
{
    const char *key;
    json_t *inner;

    json_object_foreach ((json_t *)(uintptr_t)v, key, inner) {
        bool ok = true;

        if (json_is_null(inner))
            continue;
        if (strcmp(key, "json") == 0)
            ok = set_json(r, inner, "/json");
        else if (strcmp(key, "regex") == 0)
            ok = set_text(r, inner, "/regex", &r->w->ask.form.regex);
        else if (strcmp(key, "choice") == 0)
            ok = set_choice(r, inner, "/choice");
        else if (strcmp(key, "grammar") == 0)
            ok = set_text(r, inner, "/grammar", &r->w->ask.form.gbnf);
        else if (strcmp(key, "json_object") == 0)
            ok = set_schema(r, json_pack("{s:s}", "type", "object"), "/json_object");
        if (!ok)
            return false;
    }
    return r->w->form_at != NULL || serve_refuse_here(r, "has no json, regex, choice, grammar or json_object");
}
