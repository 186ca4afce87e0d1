/* SPDX-License-Identifier: Apache-2.0 */
/* responses.c - OpenAI's Responses interface: a body becomes that of a chat, an answer becomes items and events.
 * room: serve
 *
 * Nothing is kept between requests: who goes on with a conversation sends all of its items. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

/* ---- a body to that of a chat ---- */

static const struct serve_renamed renamed[] = {
    { "max_completion_tokens", "max_output_tokens", "/max_completion_tokens", "/max_output_tokens" },
    { "max_tokens", "max_output_tokens", "/max_tokens", "/max_output_tokens" },
    { "messages", "input", "/messages", "/input" },
    { "response_format", "text", "/response_format/json_schema", "/text/format" },
    { "response_format", "text", "/response_format", "/text/format" },
    { "reasoning_effort", "reasoning", "/reasoning_effort", "/reasoning/effort" },
    { 0 },
};

/* A text, or parts of one; "" for NULL. serve_check_members() saw that there is nothing else. */
static json_t *text_of_parts(const json_t *v, struct serve_fault *f)
{
    struct serve_buf all = { NULL, 0, 0 };
    json_t *part, *text = NULL;
    size_t i;

    if (json_is_string(v))
        return json_incref((json_t *)(uintptr_t)v);
    json_array_foreach (v, i, part) {
        const json_t *t = json_object_get(part, serve_is_type(part, "refusal") ? "refusal" : "text");

        if (!serve_add(&all, json_text(t))) {
            serve_nomem(f);
            break;
        }
    }
    if (f->status == 0 && (text = json_stringn(all.p != NULL ? all.p : "", all.n)) == NULL)
        serve_nomem(f);
    free(all.p);
    return text;
}

/* The assistant's message that is the last one so far; NULL: another's is. */
static json_t *open_turn(const json_t *messages)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    return role != NULL && strcmp(role, "assistant") == 0 ? last : NULL;
}

static json_t *add_message(json_t *messages, const char *role)
{
    json_t *m = json_pack("{s:s}", "role", role);

    if (m == NULL || json_array_append_new(messages, m))
        return NULL;
    return m;
}

static bool add_call(json_t *messages, const json_t *item, struct serve_fault *f)
{
    json_t *name = json_object_get(item, "name"), *arguments = json_object_get(item, "arguments");
    json_t *id = json_object_get(item, "call_id"), *turn = open_turn(messages), *calls;

    if (turn == NULL &&
        ((turn = add_message(messages, "assistant")) == NULL || json_object_set_new(turn, "content", json_string(""))))
        return serve_nomem(f);
    calls = json_object_get(turn, "tool_calls");
    if (calls == NULL && (json_object_set_new(turn, "tool_calls", json_array()) ||
                          (calls = json_object_get(turn, "tool_calls")) == NULL))
        return serve_nomem(f);
    return json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                                                  "name", name, "arguments", arguments)) == 0 ||
           serve_nomem(f);
}

/* What the model thought, its text and its calls are items of one turn. */
static bool add_item(json_t *messages, const json_t *item, struct serve_fault *f)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    const bool thought = serve_is_type(item, "reasoning"), output = serve_is_type(item, "function_call_output");
    json_t *content, *turn;

    if (serve_is_type(item, "function_call"))
        return add_call(messages, item, f);
    content = text_of_parts(json_object_get(item, output ? "output" : "content"), f);
    if (content == NULL)
        return false;
    if (thought && json_string_length(content) == 0) { /* a summary alone, or one that only its maker can read */
        json_decref(content);
        return true;
    }
    if (output) {
        turn = add_message(messages, "tool");
        if (turn == NULL || json_object_set(turn, "tool_call_id", json_object_get(item, "call_id")))
            serve_nomem(f);
    } else if (thought) {
        turn = add_message(messages, "assistant");
    } else if (strcmp(role, "assistant") == 0 && (turn = open_turn(messages)) != NULL &&
               json_string_length(json_object_get(turn, "content")) == 0 &&
               json_object_get(turn, "tool_calls") == NULL) {
        ;
    } else {
        turn = add_message(messages, role);
    }
    if (turn == NULL || json_object_set(turn, thought ? "reasoning_content" : "content", content) ||
        (thought && json_object_set_new(turn, "content", json_string(""))))
        serve_nomem(f);
    json_decref(content);
    return f->status == 0;
}

static bool take_messages(struct serve_taking *t)
{
    json_t *input = serve_member(t->body, "input"), *instructions = serve_member(t->body, "instructions"), *item;
    json_t *messages = json_array();
    size_t i;

    if (!serve_set(t->chat, "messages", messages, t->f))
        return false;
    if (instructions != NULL && !json_is_string(instructions))
        return serve_refuse_at(t->f, "/instructions", "not a text");
    if (instructions != NULL &&
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions)))
        return serve_nomem(t->f);
    if (json_is_string(input))
        return json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0 ||
               serve_nomem(t->f);
    if (!json_is_array(input) || json_array_size(input) == 0)
        return serve_refuse_at(t->f, "/input", "missing, or neither a text nor an array with items");
    json_array_foreach (input, i, item)
        if (!add_item(messages, item, t->f))
            return false;
    return true;
}

/* Tools without the object around the function's members. */
static bool take_tools(struct serve_taking *t, json_t *tools)
{
    json_t *list = json_array(), *tool;
    size_t i;

    if (!serve_set(t->chat, "tools", list, t->f))
        return false;
    if (!json_is_array(tools))
        return serve_refuse_at(t->f, t->at, "not an array");
    json_array_foreach (tools, i, tool) {
        json_t *function = json_shallow(tool);

        if (function == NULL || json_object_del(function, "type") ||
            json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function)))
            return serve_nomem(t->f);
    }
    return true;
}

static json_t *allowed_tools(const json_t *v)
{
    json_t *list = json_array(), *tool;
    size_t i;

    json_array_foreach (json_object_get(v, "tools"), i, tool)
        json_push(&list,
                  json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", json_object_get(tool, "name")));
    return json_pack("{s:s, s:{s:O, s:o}}", "type", "allowed_tools", "allowed_tools", "mode",
                     json_object_get(v, "mode"), "tools", list);
}

static bool take_choice(struct serve_taking *t, json_t *v)
{
    json_t *name = json_object_get(v, "name");

    if (serve_is_type(v, "allowed_tools"))
        return serve_set(t->chat, "tool_choice", allowed_tools(v), t->f);
    if (serve_is_type(v, "function") && json_is_string(name))
        return serve_set(t->chat, "tool_choice",
                         json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name), t->f);
    if (!json_is_string(v))
        return serve_refuse_at(t->f, t->at, "not auto, none, required, or {\"type\": \"function\", \"name\": ...}");
    return serve_set(t->chat, "tool_choice", json_incref(v), t->f);
}

static bool take_text(struct serve_taking *t, json_t *text)
{
    json_t *format = serve_member(text, "format");

    if (!json_is_object(text))
        return serve_refuse_at(t->f, t->at, "not an object");
    return format == NULL || serve_set(t->chat, "response_format",
                                       serve_is_type(format, "json_schema")
                                           ? json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format)
                                           : json_incref(format),
                                       t->f);
}

static bool take_reasoning(struct serve_taking *t, json_t *v)
{
    json_t *effort = serve_member(v, "effort");

    if (!json_is_object(v))
        return serve_refuse_at(t->f, t->at, "not an object");
    return effort == NULL || serve_set(t->chat, "reasoning_effort", json_incref(effort), t->f);
}

/* What an answer is to bring besides: the one thing that means something here is not offered. */
static bool take_include(struct serve_taking *t, json_t *v)
{
    char pointer[40];
    json_t *one;
    size_t i;

    if (!json_is_array(v))
        return serve_refuse_at(t->f, t->at, "not an array");
    json_array_foreach (v, i, one) {
        const char *s = json_string_value(one);

        (void)snprintf(pointer, sizeof pointer, "/include/%zu", i);
        if (s == NULL || strcmp(s, "message.output_text.logprobs") == 0)
            return serve_refuse_at(t->f, pointer,
                                   s == NULL ? "not a text" : "without log-probabilities: ask for chat/completions");
    }
    return true;
}

static bool take_limit(struct serve_taking *t, json_t *v)
{
    return serve_set(t->chat, "max_completion_tokens", json_incref(v), t->f);
}

static bool take_truncation(struct serve_taking *t, json_t *v)
{
    const char *s = json_string_value(v);

    return (s != NULL && strcmp(s, "disabled") == 0) ||
           serve_refuse_at(t->f, t->at, "not disabled: nothing is left out of a conversation");
}

static bool take_background(struct serve_taking *t, json_t *v)
{
    return json_is_false(v) || serve_refuse_at(t->f, t->at, "not false");
}

static bool refuse_kept(struct serve_taking *t, json_t *v)
{
    (void)v;
    return serve_refuse_at(t->f, t->at, "answers are not kept: send all items of the conversation");
}

static bool refuse_prompt(struct serve_taking *t, json_t *v)
{
    (void)v;
    return serve_refuse_at(t->f, t->at, "no prompts are kept: send input and instructions");
}

static const struct serve_taken taken[] = {
    { "input", NULL },
    { "instructions", NULL },
    { "max_tool_calls", NULL },
    { "max_output_tokens", take_limit },
    { "tools", take_tools },
    { "tool_choice", take_choice },
    { "text", take_text },
    { "reasoning", take_reasoning },
    { "include", take_include },
    { "truncation", take_truncation },
    { "background", take_background },
    { "previous_response_id", refuse_kept },
    { "conversation", refuse_kept },
    { "prompt", refuse_prompt },
    { 0 },
};

/* The item of the input whose message is the k-th of the chat; -1: there is none. */
static int64_t item_of_message(const json_t *body, size_t k)
{
    const size_t before = json_is_string(json_object_get(body, "instructions"));
    json_t *messages = json_array(), *item;
    struct serve_fault f = { 0 };
    int64_t found = -1;
    size_t i;

    json_array_foreach (json_object_get(body, "input"), i, item) {
        if (found >= 0 || !add_item(messages, item, &f))
            break;
        if (before + json_array_size(messages) > k)
            found = (int64_t)i;
    }
    json_decref(messages);
    return k < before ? -1 : found;
}

static bool find_place(const json_t *body, const char *pointer, char out[POINTER_BYTES])
{
    static const char messages[] = "/messages/";

    if (strncmp(pointer, messages, sizeof messages - 1) != 0)
        return false;
    const size_t k = strtoul(pointer + sizeof messages - 1, NULL, 10);
    const int64_t item = item_of_message(body, k);

    if (item >= 0)
        (void)snprintf(out, POINTER_BYTES, "/input/%lld", (long long)item);
    else
        (void)snprintf(out, POINTER_BYTES, "%s",
                       k == 0 && json_is_string(json_object_get(body, "instructions")) ? "/instructions" : "/input");
    return true;
}

/* ---- an answer to items and events ---- */

static void name_item(const struct serve_job *j, const struct serve_choice *c, const char *kind, char out[48])
{
    (void)snprintf(out, 48, "%s_%08llx%08llx_%zu", kind, (unsigned long long)j->created_s & 0xffffffffu,
                   (unsigned long long)j->id, json_array_size(c->items));
}

static json_t *or_null(const json_t *body, const char *key)
{
    json_t *v = json_object_get(body, key);

    return v != NULL ? json_incref(v) : json_null();
}

/* The response object in its present state. items NULL: nothing is written yet. */
static json_t *response(const struct serve *s, const struct serve_job *j, const char *status, const char *cut,
                        json_t *items)
{
    char id[SERVE_ID_BYTES];
    json_t *o, *usage = json_null();

    serve_reply_id(s, j, id);
    o = json_pack("{s:s, s:s, s:I, s:s, s:n, s:o, s:O, s:b, s:b, s:n, s:s}", "id", id, "object", "response",
                  "created_at", (json_int_t)j->created_s, "status", status, "error", "incomplete_details",
                  cut != NULL ? json_pack("{s:s}", "reason", cut) : json_null(), "model", s->model,
                  "parallel_tool_calls", !j->w.ask.one_call, "store", 0, "previous_response_id", "truncation",
                  "disabled");
    if (items != NULL) {
        json_t *chat = serve_usage(j);

        usage = json_pack("{s:O, s:O, s:O, s:O, s:O}", "input_tokens", json_object_get(chat, "prompt_tokens"),
                          "output_tokens", json_object_get(chat, "completion_tokens"), "total_tokens",
                          json_object_get(chat, "total_tokens"), "input_tokens_details",
                          json_object_get(chat, "prompt_tokens_details"), "output_tokens_details",
                          json_object_get(chat, "completion_tokens_details"));
        json_decref(chat);
    }
    static const char *const echoed[] = { "instructions", "max_output_tokens", "metadata",
                                          "reasoning",    "temperature",       "top_p",
                                          "user" };
    bool ok = json_object_set_new(o, "usage", usage) == 0 && /* o NULL: it is given back */
              json_object_set_new(o, "output", items != NULL ? json_incref(items) : json_array()) == 0 &&
              (items == NULL || serve_add_beside(o, j, NULL));
    const json_t *text = json_object_get(j->asked, "text"), *tools = json_object_get(j->asked, "tools");
    const json_t *choice = json_object_get(j->asked, "tool_choice");

    for (size_t i = 0; i < sizeof echoed / sizeof echoed[0] && ok; i++)
        ok = json_object_set_new(o, echoed[i], or_null(j->asked, echoed[i])) == 0;
    ok = ok &&
         json_object_set_new(o, "text",
                             json_is_object(text) ? json_deep_copy(text)
                                                  : json_pack("{s:{s:s}}", "format", "type", "text")) == 0 &&
         json_object_set_new(o, "tools", json_is_array(tools) ? json_deep_copy(tools) : json_array()) == 0 &&
         json_object_set_new(o, "tool_choice",
                             choice != NULL && !json_is_null(choice) ? json_deep_copy(choice) : json_string("auto")) ==
             0;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* An event of a stream, whose members o has; it is taken. Nothing without a stream. */
static enum err_code event(struct serve *s, struct serve_job *j, struct serve_choice *c, const char *type, json_t *o,
                           struct err *e)
{
    if (!j->w.stream) {
        json_decref(o);
        return ERR_OK;
    }
    if (o == NULL || json_object_set_new(o, "type", json_string(type)) ||
        json_object_set_new(o, "sequence_number", json_integer(c->n_events++))) {
        json_decref(o);
        return err_nomem(e);
    }
    return serve_push(s, j, SERVE_CHUNK, o, 200, false, e);
}

/* Of an item: which, and what more. */
static json_t *of_item(const struct serve_choice *c, const char *id, const char *key, json_t *value)
{
    json_t *o = json_pack("{s:I, s:s}", "output_index", (json_int_t)json_array_size(c->items), "item_id", id);

    if (json_object_set_new(o, key, value) == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* Of its content. */
static json_t *of_content(const struct serve_choice *c, const char *id, const char *key, json_t *value)
{
    json_t *o = of_item(c, id, key, value);

    if (json_object_set_new(o, "content_index", json_integer(0)) == 0)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *part_of(const struct serve_choice *c, const char *text, size_t n)
{
    const struct str s = { text, n };

    return c->open == ITEM_REASONING ? json_pack("{s:s, s:o}", "type", "reasoning_text", "text", json_bytes(s))
                                     : json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", json_bytes(s),
                                                 "annotations", "logprobs");
}

static json_t *item_of(const struct serve_choice *c, const char *id, json_t *content, const char *status)
{
    return c->open == ITEM_REASONING ? json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", id, "type", "reasoning", "status",
                                                 status, "summary", "content", content)
                                     : json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status",
                                                 status, "role", "assistant", "content", content);
}

static enum err_code begin_items(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    if (c->items != NULL)
        return ERR_OK;
    if ((c->items = json_array()) == NULL)
        return err_nomem(e);
    if (!j->w.stream)
        return ERR_OK;
    return event(s, j, c, "response.created", json_pack("{s:o}", "response", response(s, j, "in_progress", NULL, NULL)),
                 e) ||
                   event(s, j, c, "response.in_progress",
                         json_pack("{s:o}", "response", response(s, j, "in_progress", NULL, NULL)), e)
               ? e->code
               : ERR_OK;
}

/* Ends the item that is open: its text is whole. */
static enum err_code close_item(struct serve *s, struct serve_job *j, struct serve_choice *c, const char *status,
                                struct err *e)
{
    const bool thought = c->open == ITEM_REASONING;
    const char *text = c->text.p != NULL ? c->text.p : "";
    char id[48];
    json_t *item;

    if (c->open == ITEM_NONE)
        return ERR_OK;
    name_item(j, c, thought ? "rs" : "msg", id);
    item = item_of(c, id, json_pack("[o]", part_of(c, text, c->text.n)), status);
    if (item == NULL)
        return err_nomem(e);
    if (event(s, j, c, thought ? "response.reasoning_text.done" : "response.output_text.done",
              of_content(c, id, "text", json_bytes((struct str){ text, c->text.n })), e) ||
        event(s, j, c, "response.content_part.done", of_content(c, id, "part", part_of(c, text, c->text.n)), e) ||
        event(s, j, c, "response.output_item.done", of_item(c, id, "item", json_incref(item)), e)) {
        json_decref(item);
        return e->code;
    }
    c->open = ITEM_NONE;
    c->text.n = 0;
    return json_array_append_new(c->items, item) ? err_nomem(e) : ERR_OK;
}

static enum err_code open_item(struct serve *s, struct serve_job *j, struct serve_choice *c, enum serve_item_kind kind,
                               char id[48], struct err *e)
{
    if (c->open != kind && close_item(s, j, c, "completed", e))
        return e->code;
    name_item(j, c, kind == ITEM_REASONING ? "rs" : "msg", id);
    if (c->open == kind)
        return ERR_OK;
    c->open = kind;
    return event(s, j, c, "response.output_item.added",
                 of_item(c, id, "item", item_of(c, id, json_array(), "in_progress")), e) ||
                   event(s, j, c, "response.content_part.added", of_content(c, id, "part", part_of(c, "", 0)), e)
               ? e->code
               : ERR_OK;
}

static json_t *call_item(const char *id, const struct chat_piece *p, struct str arguments, const char *status)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "id", id, "type", "function_call", "status", status, "call_id",
                     json_bytes(p->id), "name", json_bytes(p->name), "arguments", json_bytes(arguments));
}

/* A call is over: its item is whole, or it failed and its item, of a stream, has what was sent of it. */
static enum err_code end_call(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct chat_piece *p,
                              const char *id, struct err *e)
{
    const bool whole = p->step == CHAT_CALL_END;
    json_t *item = call_item(id, p, whole ? p->text : (struct str){ c->text.p != NULL ? c->text.p : "", c->text.n },
                             whole ? "completed" : "incomplete");

    if (item == NULL)
        return err_nomem(e);
    if ((whole && event(s, j, c, "response.function_call_arguments.done",
                        of_item(c, id, "arguments", json_bytes(p->text)), e)) ||
        event(s, j, c, "response.output_item.done", of_item(c, id, "item", json_incref(item)), e)) {
        json_decref(item);
        return e->code;
    }
    c->text.n = 0;
    return json_array_append_new(c->items, item) ? err_nomem(e) : ERR_OK;
}

static enum err_code take_call(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct chat_piece *p,
                               struct err *e)
{
    char id[48];

    if (!j->w.stream && p->step != CHAT_CALL_END)
        return ERR_OK;
    if (close_item(s, j, c, "completed", e))
        return e->code;
    name_item(j, c, "fc", id);
    if (p->step == CHAT_CALL_BEGIN)
        return event(s, j, c, "response.output_item.added",
                     of_item(c, id, "item", call_item(id, p, STR(""), "in_progress")), e);
    if (p->step != CHAT_CALL_MORE)
        return end_call(s, j, c, p, id, e);
    if (!serve_add(&c->text, p->text))
        return err_nomem(e);
    return event(s, j, c, "response.function_call_arguments.delta", of_item(c, id, "delta", json_bytes(p->text)), e);
}

static enum err_code take_piece(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                const struct chat_piece *p, struct err *e)
{
    const bool thought = p->part == CHAT_REASONING;
    char id[48];
    json_t *o;

    if (begin_items(s, j, c, e))
        return e->code;
    if (p->part == CHAT_TOOL)
        return take_call(s, j, c, p, e);
    if (p->text.n == 0)
        return ERR_OK;
    if (open_item(s, j, c, thought ? ITEM_REASONING : ITEM_MESSAGE, id, e))
        return e->code;
    if (!serve_add(&c->text, p->text))
        return err_nomem(e);
    if (!j->w.stream)
        return ERR_OK;
    o = of_content(c, id, "delta", json_bytes(p->text));
    if (o != NULL && !thought && json_object_set_new(o, "logprobs", json_array())) {
        json_decref(o);
        o = NULL;
    }
    return event(s, j, c, thought ? "response.reasoning_text.delta" : "response.output_text.delta", o, e);
}

static enum err_code end_response(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    const bool cut = strcmp(serve_finish(j, c), "length") == 0;
    const char *status = cut ? "incomplete" : "completed";
    json_t *whole;

    if (begin_items(s, j, c, e) || close_item(s, j, c, status, e))
        return e->code;
    whole = response(s, j, status, cut ? "max_output_tokens" : NULL, c->items);
    if (!j->w.stream)
        return serve_push(s, j, SERVE_BODY, whole, 200, true, e);
    return event(s, j, c, cut ? "response.incomplete" : "response.completed", json_pack("{s:o}", "response", whole),
                 e) ||
                   serve_push(s, j, SERVE_END, NULL, 200, true, e)
               ? e->code
               : ERR_OK;
}

const struct serve_dialect serve_responses = { NULL,       taken, renamed,    take_messages,
                                               find_place, NULL,  take_piece, end_response };
