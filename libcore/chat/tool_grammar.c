/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.c - tool calls as parts of a grammar, by the family's syntax.         room: chat
 *
 * struct chat_written has how a family writes a block of calls: marks, the name, and the arguments as JSON or in a
 * dress of their own. What the arguments may be is compiled by the room grammar from the tool's schema.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "chat/parse.h"
#include "chat/tool_grammar.h"
#include "grammar/grammar.h"

struct making {
    const struct chat_tool_opts *o;
    const struct chat_syntax *s;
    struct grammar_part *v;
    size_t n, cap, n_tools;
    json_t *kept; /* array: what the parts point to */
    bool strict, failed;
    json_t *loose; /* array of texts: what is not held to a schema */
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

static void text_of(struct making *m, enum grammar_part_kind kind, struct str s)
{
    add_part(m, (struct grammar_part){ .kind = kind, .text = s });
}

static void text(struct making *m, const char *s)
{
    if (s != NULL)
        text_of(m, GRAMMAR_PART_TEXT, str_of(s));
}

/* Text in which "#" is a number. */
static void text_with_number(struct making *m, const char *s)
{
    const char *mark = s != NULL ? strchr(s, '#') : NULL;

    if (mark != NULL) {
        text_of(m, GRAMMAR_PART_TEXT, (struct str){ s, (size_t)(mark - s) });
        text_of(m, GRAMMAR_PART_REGEX, STR("[0-9]{1,6}"));
        s = mark + 1;
    }
    text(m, s);
}

static void add_mark(struct making *m, enum grammar_part_kind kind)
{
    add_part(m, (struct grammar_part){ .kind = kind });
}

static void close_group(struct making *m, bool maybe, bool many)
{
    add_part(m, (struct grammar_part){ .kind = GRAMMAR_PART_CLOSE, .maybe = maybe, .many = many });
}

/* Takes the reference to v. */
static const json_t *keep_schema(struct making *m, json_t *v)
{
    m->failed = m->failed || v == NULL || json_array_append_new(m->kept, v) != 0;
    return m->failed ? NULL : v;
}

/* A tool is at fault: the place is in its parameters. */
static void blame_tool(struct making *m, const struct err *why)
{
    m->code = err_copy(m->e, why);
    err_wrap(m->e, "tool %s", m->name);
    err_at(m->e, "%s", m->place);
}

/* What is not bound is told, not silent. */
static void add_loose(struct making *m, const char *what)
{
    if (m->loose != NULL)
        m->failed = json_array_append_new(m->loose, json_string(what)) != 0 || m->failed;
}

static void add_loose_tool(struct making *m, struct err *why)
{
    err_wrap(why, "tool %s is not held to its schema", m->name);
    add_loose(m, why->msg);
}

/* ---- one call ---- */

/* Whether a reader finds the name again between what stands around it. */
static bool is_readable(const struct chat_written *w, const char *name)
{
    bool ok = *name != '\0' && strlen(name) <= CHAT_NAME_BYTES_MAX;

    for (const char *p = name; *p != '\0' && ok; p++)
        ok = (unsigned char)*p > ' ' && *p != 0x7F;
    return ok && (w->quoted || strpbrk(name, "<>[]{}()\"'=,") == NULL);
}

/* The name as a string of JSON, kept. */
static const char *quote(struct making *m, const char *name)
{
    json_t *string = json_string(name), *kept;
    char *quoted = string == NULL ? NULL : json_dump(string, JSON_ENCODE_ANY);

    json_decref(string);
    kept = quoted == NULL ? NULL : json_string(quoted);
    free(quoted);
    return keep_schema(m, kept) != NULL ? json_string_value(kept) : NULL;
}

/* any: arguments are any object. */
static void put_call(struct making *m, const json_t *root, bool any)
{
    const struct chat_written *w = m->s->written;
    /* Arguments are an object, even if the schema does not say so. */
    json_t *of = any || !json_is_object(root) ? json_object() : json_shallow(root);

    if (of != NULL && json_object_get(of, "type") == NULL)
        m->failed = json_object_set_new(of, "type", json_string("object")) != 0 || m->failed;
    if (keep_schema(m, of) == NULL)
        return;
    text_with_number(m, w->head);
    text(m, w->quoted ? quote(m, m->name) : m->name);
    text_with_number(m, w->mid);
    add_part(m, (struct grammar_part){ .kind = w->dress != NULL ? GRAMMAR_PART_MEMBERS : GRAMMAR_PART_VALUE,
                                       .schema = of,
                                       .root = of,
                                       .path = "#",
                                       .dress = w->dress });
    text(m, w->tail);
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
    struct grammar *g = NULL;
    struct err why = { 0 };
    enum err_code code;
    size_t from;
    const bool strict = m->strict || json_is_true(json_object_get(f, "strict"));

    m->name = json_string_value(json_object_get(f, "name"));
    if (strict)
        check_params(m, root);
    if (m->code == ERR_OK && !is_readable(m->s->written, m->name)) {
        err_set(&why, ERR_UNSUPPORTED, "a tool of this name cannot be called in this model's syntax");
        memcpy(strrchr(m->place, '/'), "/name", sizeof "/name");
    }
    if (why.code != ERR_OK && strict)
        blame_tool(m, &why);
    else if (why.code != ERR_OK)
        add_loose_tool(m, &why);
    if (m->code != ERR_OK || why.code != ERR_OK)
        return;
    if (m->n_tools++ > 0)
        add_mark(m, GRAMMAR_PART_OR);
    from = m->n;
    put_call(m, root, false);
    if (m->failed)
        return;
    code = grammar_open_parts(&g, NULL, m->v + from, m->n - from, &why);
    grammar_close(g);
    if (code == ERR_NOMEM || (code != ERR_OK && strict)) {
        blame_tool(m, &why);
    } else if (code != ERR_OK) {
        m->n = from;
        add_loose_tool(m, &why);
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
    bool some = false;

    add_mark(m, GRAMMAR_PART_GROUP);
    for (size_t i = 0; i < json_array_size(m->o->tools) && m->code == ERR_OK; i++) {
        const json_t *tool = json_array_get(m->o->tools, i), *f = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(f != NULL ? f : tool, "name"));

        if (name == NULL || !is_chosen(m, name))
            continue;
        some = true;
        if (*name == '\0') /* a reader refuses it */
            continue;
        (void)snprintf(m->place, sizeof m->place, "/tools/%zu%s/parameters", i, f != NULL ? "/function" : "");
        put_tool(m, f != NULL ? f : tool);
    }
    close_group(m, false, false);
    if (!some && m->code == ERR_OK) {
        m->code = err_set(m->e, ERR_ARG, "tool choice: no tool is called '%.60s'", m->o->choice);
        err_at(m->e, "/tool_choice/function/name");
    }
}

/* The parts from `from` to `to` once more, and more often. */
static void repeat_parts(struct making *m, const char *between, size_t from, size_t to)
{
    add_mark(m, GRAMMAR_PART_GROUP);
    text(m, between);
    for (size_t i = from; i < to && !m->failed; i++)
        add_part(m, m->v[i]);
    close_group(m, true, true);
}

/* What follows the opening mark, up to the closing one. */
static void put_block(struct making *m)
{
    const struct chat_written *w = m->s->written;
    size_t from;

    text(m, w->before);
    from = m->n;
    put_tools(m);
    if (w->between != NULL && !m->o->one)
        repeat_parts(m, w->between, from, m->n);
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
    enum err_code code = grammar_open_tagged(out, g, str_of(m->s->think_end[0]), 0, (struct str){ "", 0 }, m->e);

    grammar_close(g);
    return code;
}

static enum err_code make_auto(struct grammar **out, struct making *m)
{
    const struct chat_written *w = m->s->written;
    const char *after = w->after != NULL ? w->after : "";
    struct grammar *inner, *g;
    enum err_code code;

    if (w->loose != NULL)
        add_loose(m, w->loose);
    put_block(m);
    if (m->o->one)
        text(m, after);
    if (m->failed)
        return err_nomem(m->e);
    if (m->code != ERR_OK)
        return m->code;
    *out = NULL;
    if (m->n_tools == 0)
        return ERR_OK;
    if (open_calls(&inner, m))
        return m->e->code;
    code = grammar_open_tagged(&g, inner, str_of(w->begin), 0, str_of(m->o->one ? "" : after), m->e);
    grammar_close(inner);
    if (code == ERR_OK && m->o->reasoning && m->s->think != NULL)
        return after_reasoning(out, m, g);
    if (code == ERR_OK)
        *out = g;
    return code;
}

/* Reasoning before a call that is asked for: what the prompt has opened, or what the model may open itself where each
 * part of an answer has a header. */
static void put_reasoning(struct making *m)
{
    const struct chat_syntax *s = m->s;
    const bool open = m->o->reasoning && s->think != NULL;

    if (!open && !s->think_again)
        return;
    add_mark(m, GRAMMAR_PART_GROUP);
    if (!open)
        text(m, s->think);
    text_of(m, GRAMMAR_PART_FREE, str_of(s->think_end[0]));
    if (s->written->resume != NULL)
        text(m, s->written->resume);
    else
        text_of(m, GRAMMAR_PART_REGEX, STR("\\n{0,2}"));
    close_group(m, !open, false);
}

static enum err_code make_required(struct grammar **out, struct making *m)
{
    const struct chat_written *w = m->s->written;
    size_t from;

    put_reasoning(m);
    from = m->n;
    text(m, w->start != NULL ? w->start : w->begin);
    put_block(m);
    text(m, w->after);
    if (!m->o->one && w->again != NULL)
        repeat_parts(m, w->again, from, m->n);
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
    if (m.s->written == NULL && !is_auto)
        return err_set(e, ERR_UNSUPPORTED, "answers of the syntax %s have no calls", o->parser);
    m.loose = o->loose;
    if (m.s->written == NULL) {
        add_loose(&m, "no calls of tools are read in this model's answers");
        *out = NULL;
        return m.failed ? err_nomem(e) : ERR_OK;
    }
    m.kept = json_array();
    m.failed = m.kept == NULL;
    code = is_auto ? make_auto(out, &m) : make_required(out, &m);
    free(m.v);
    json_decref(m.kept);
    return code;
}
