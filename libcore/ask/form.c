/* SPDX-License-Identifier: Apache-2.0 */
/* form.c - what the answer may be, and how it is read: the grammar of a form or of tool calls, behind the reasoning.
 * room: ask */
#include <stdlib.h>
#include <string.h>

#include "ask/internal.h"
#include "chat/chat.h"
#include "chat/reader.h"
#include "chat/tool_grammar.h"
#include "grammar/grammar.h"
#include "text/marks.h"

bool ask_form_is_any(const struct ask_form *f)
{
    return f->schema == NULL && f->gbnf.p == NULL && f->regex.p == NULL;
}

bool ask_call_is_due(const char *tool_choice)
{
    return strcmp(tool_choice, "auto") != 0 && strcmp(tool_choice, "none") != 0;
}

/* The member of a request that asks for the form. */
static const char *form_name(const struct ask_form *f)
{
    return f->schema != NULL ? "response_format" : f->gbnf.p != NULL ? "grammar" : "regex";
}

enum err_code ask_form_open(struct grammar **out, const struct ask_form *f, const struct grammar_vocab *v,
                            struct err *e)
{
    if ((f->schema != NULL) + (f->gbnf.p != NULL) + (f->regex.p != NULL) != 1) {
        err_set(e, ERR_ARG, "only one of response_format, grammar and regex");
        return err_at(e, f->regex.p != NULL ? "/regex" : "/grammar");
    }
    if (f->regex.p != NULL && f->regex.n == 0) {
        err_set(e, ERR_ARG, "empty: it allows no answer but the empty one");
        return err_at(e, "/regex");
    }
    if (f->schema != NULL)
        return grammar_open_schema(out, v, f->schema, e) ? err_at(e, "/response_format/json_schema/schema") : ERR_OK;
    if (f->gbnf.p != NULL)
        return grammar_open_gbnf(out, v, f->gbnf, e) ? err_at(e, "/grammar") : ERR_OK;
    return grammar_open_regex(out, v, f->regex, e) ? err_at(e, "/regex") : ERR_OK;
}

static enum err_code open_vocab(const struct ask_model *m, struct err *e)
{
    return *m->vocab != NULL ? ERR_OK : grammar_vocab_open(m->vocab, m->text, e);
}

/* Behind an empty line the embedded model writes a plain answer: right where that may be a number, of 20 sums 20
 * instead of none. In an object or a string it has no end: digits follow digits. */
static enum err_code find_lines(int *lines, const struct grammar *g, const struct ask_form *f, struct err *e)
{
    struct grammar_place *p;

    *lines = GRAMMAR_LINES_THOUGHT;
    if (f->schema == NULL)
        return ERR_OK;
    if (grammar_begin(&p, g, e))
        return e->code;
    static const char bare[] = "-0123456789tfn"; /* how JSON that is no string, array or object begins */
    size_t i = 0;

    while (bare[i] != '\0' && !grammar_take_text(p, (struct str){ bare + i, 1 }))
        i++;
    if (bare[i] == '\0')
        *lines = 0;
    grammar_end(p);
    return ERR_OK;
}

/* The form, after the reasoning if the answer begins there. */
static enum err_code open_form(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    struct grammar *after;
    int lines;

    if (open_vocab(m, e) || ask_form_open(&r->grammar, &a->form, *m->vocab, e))
        return e->code;
    if (!r->thinking)
        return ERR_OK;
    if (find_lines(&lines, r->grammar, &a->form, e))
        return e->code;
    if (grammar_open_tagged(&after, r->grammar, chat_marks(m->chat)->close[0], lines, STR(""), e))
        return err_at(e, "/%s", form_name(&a->form));
    grammar_close(r->grammar);
    r->grammar = after;
    return ERR_OK;
}

/* Whether a tool asks that its schema is kept or the request refused. */
static bool has_strict(const json_t *tools)
{
    const json_t *tool, *f;
    size_t i;

    json_array_foreach (tools, i, tool) {
        f = json_object_get(tool, "function");
        if (json_is_true(json_object_get(f != NULL ? f : tool, "strict")))
            return true;
    }
    return false;
}

/* Calls of tools, wherever the model begins one, or as it is asked to. */
static enum err_code open_calls(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    const bool due = ask_call_is_due(a->tool_choice);
    struct err why = { 0 };

    if (r->tools == NULL) {
        if (!due)
            return ERR_OK;
        err_set(e, ERR_ARG, "there are no tools");
        return err_at(e, "/tool_choice");
    }
    json_t *loose = json_array();

    if (loose == NULL)
        return err_nomem(e);
    r->loose = loose;
    if (open_vocab(m, e))
        return e->code;
    const struct chat_tool_opts t = { .parser = r->parser,
                                      .vocab = *m->vocab,
                                      .tools = r->tools,
                                      .choice = a->tool_choice,
                                      .reasoning = r->thinking,
                                      .one = a->one_call,
                                      .loose = loose };

    if (chat_tool_grammar(&r->grammar, &t, &why) != ERR_OK) {
        if (due || has_strict(r->tools) || why.code == ERR_NOMEM)
            return err_copy(e, &why);
        err_wrap(&why, "calls of tools are not held to their schemas");
        if (json_array_append_new(loose,
                                  json_string(why.msg))) /* with auto a grammar is a help, not what was asked for */
            return err_nomem(e);
    }
    if (json_array_size(loose) == 0) {
        json_decref(loose);
        r->loose = NULL;
    }
    return ERR_OK;
}

/* Whether the grammar of another request is the one that this one would get. */
static bool has_same_grammar(const struct ask_request *r, const struct ask_request *like)
{
    return like != NULL && like->thinking == r->thinking && json_equal(like->tools, r->tools);
}

/* Calls that the messages have: the ids of new ones are others, and the same for the same messages. */
static int count_calls(const json_t *messages)
{
    const json_t *message;
    size_t i;
    int n = 0;

    json_array_foreach (messages, i, message)
        n += (int)json_array_size(json_object_get(message, "tool_calls"));
    return n;
}

enum err_code ask_make_form(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                            const struct ask_request *like, struct err *e)
{
    /* A schema is for texts, and where a call is due there is none. */
    const bool due = a->messages != NULL && ask_call_is_due(a->tool_choice);
    const bool any = ask_form_is_any(&a->form) || (due && a->form.schema != NULL);

    if (!any && m->text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "has no tokenizer, so no grammar");
    if (!any && due) {
        err_set(e, ERR_ARG, "tool_choice asks for a call: no %s with it", form_name(&a->form));
        return err_at(e, "/tool_choice");
    }
    if (a->messages != NULL) {
        const bool as_any = any || a->reads_form;

        r->parser = as_any || r->thinking ? chat_parser(m->chat) : "plain";
        r->n_calls = count_calls(a->messages);
        r->tools = as_any ? json_incref((json_t *)(uintptr_t)ask_tools(a)) : NULL;
        if (as_any || r->thinking)
            r->q.part_marks = json_array_size(r->tools) > 0 ? chat_marks_with_calls(m->chat) : chat_marks(m->chat);
    }
    if (has_same_grammar(r, like)) {
        r->grammar = like->grammar;
        r->shares_grammar = true;
        r->loose = json_incref(like->loose);
        return ERR_OK;
    }
    return any ? open_calls(r, a, m, e) : open_form(r, a, m, e);
}

enum err_code ask_reader(struct chat_reader **out, const struct ask_request *r, struct err *e)
{
    const struct chat_reader_opts o = {
        .parser = r->parser, .tools = r->tools, .reasoning = r->thinking, .first_call = r->n_calls
    };

    *out = NULL;
    return r->parser != NULL ? chat_reader_open(out, &o, e) : ERR_OK;
}
