/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c - Anthropic's Messages interface: a body becomes that of a chat. Its answers are message_reply.c's.
 * room: serve */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

static const struct serve_renamed renamed[] = {
    { "stop", "stop_sequences", "/stop", "/stop_sequences" },
    { "max_completion_tokens", "max_tokens", "/max_completion_tokens", "/max_tokens" },
    { "response_format", "output_config", "/response_format/json_schema", "/output_config/format" },
    { "response_format", "output_config", "/response_format", "/output_config/format" },
    { "reasoning_effort", "output_config", "/reasoning_effort", "/output_config/effort" },
    { "reasoning_budget", "thinking", "/reasoning_budget", "/thinking/budget_tokens" },
    { "parallel_tool_calls", "tool_choice", "/parallel_tool_calls", "/tool_choice/disable_parallel_tool_use" },
    { "tool_choice", "tool_choice", "/tool_choice", "/tool_choice" },
    { "user", "metadata", "/user", "/metadata/user_id" },
    { 0 },
};

/* ---- messages ---- */

/* Messages of a chat while they are made. Texts of one turn stand on lines of their own. */
struct talk {
    json_t *messages;
    json_t *turn; /* the last message while its texts are gathered; NULL: it is complete */
    const char *role;
    struct serve_buf text, thought;
    struct serve_fault *f;
    char at[POINTER_BYTES]; /* of the block */
};

static bool refuse_block(struct talk *t, const char *key, const char *what)
{
    if (key != NULL)
        (void)serve_point_to(t->at, strlen(t->at), key);
    return serve_refuse_at(t->f, t->at, what);
}

static bool end_turn(struct talk *t)
{
    json_t *turn = t->turn;

    t->turn = NULL;
    if (turn == NULL)
        return true;
    if (json_object_set_new(turn, "content", json_stringn(t->text.n > 0 ? t->text.p : "", t->text.n)) ||
        (t->thought.n > 0 && json_object_set_new(turn, "reasoning_content", json_stringn(t->thought.p, t->thought.n))))
        return serve_nomem(t->f);
    t->text.n = t->thought.n = 0;
    return true;
}

static bool begin_turn(struct talk *t, const char *role)
{
    json_t *turn;

    if (!end_turn(t))
        return false;
    turn = json_pack("{s:s}", "role", role);
    if (json_array_append_new(t->messages, turn))
        return serve_nomem(t->f);
    t->turn = turn;
    t->role = role;
    return true;
}

/* Goes on with the turn of this role, or begins one. */
static bool take_turn(struct talk *t, const char *role)
{
    return t->turn != NULL && strcmp(t->role, role) == 0 ? true : begin_turn(t, role);
}

static bool add_line(struct talk *t, struct serve_buf *b, struct str text)
{
    return ((b->n == 0 || serve_add(b, STR("\n"))) && serve_add(b, text)) || serve_nomem(t->f);
}

/* A document that is a text: its title, its context and the text. */
static bool add_document(struct talk *t, struct serve_buf *b, const json_t *block)
{
    static const char *const before[] = { "title", "context" };
    const json_t *source = serve_member(block, "source"), *content = serve_member(source, "content"), *part;
    size_t i;

    if (json_is_true(serve_member(serve_member(block, "citations"), "enabled")))
        return refuse_block(t, "citations", "answers have no citations");
    if (!serve_is_type(source, "text") && !serve_is_type(source, "content"))
        return refuse_block(t, "source", "only documents of plain text are read");
    if (serve_is_type(source, "text") ? !json_is_string(serve_member(source, "data")) : content == NULL)
        return refuse_block(t, "source", "has no text");
    for (i = 0; i < sizeof before / sizeof before[0]; i++)
        if (serve_member(block, before[i]) != NULL && !add_line(t, b, json_text(serve_member(block, before[i]))))
            return false;
    if (!json_is_array(content))
        return add_line(t, b, json_text(content != NULL ? content : serve_member(source, "data")));
    json_array_foreach (content, i, part) {
        if (!serve_is_type(part, "text") || !json_is_string(serve_member(part, "text")))
            return refuse_block(t, "source", "only documents of plain text are read");
        if (!add_line(t, b, json_text(serve_member(part, "text"))))
            return false;
    }
    return true;
}

/* A block of which a text is made. */
static bool add_text_block(struct talk *t, struct serve_buf *b, const json_t *block)
{
    if (serve_is_type(block, "image"))
        return refuse_block(t, NULL, "images are not read here");
    if (serve_is_type(block, "document"))
        return add_document(t, b, block);
    return add_line(t, b, json_text(serve_member(block, "text")));
}

/* A text, or blocks of one. */
static bool add_texts(struct talk *t, struct serve_buf *b, const json_t *content)
{
    const size_t n = strlen(t->at);
    const json_t *block;
    size_t i;

    if (json_is_string(content))
        return add_line(t, b, json_text(content));
    json_array_foreach (content, i, block) {
        (void)snprintf(t->at + n, sizeof t->at - n, "/content/%zu", i);
        if (!add_text_block(t, b, block))
            return false;
        t->at[n] = '\0';
    }
    return true;
}

/* The result of a call. An error is marked in the text itself, because templates show nothing else. */
static bool add_result(struct talk *t, const json_t *block)
{
    struct serve_buf text = { NULL, 0, 0 };
    json_t *message;

    if (!end_turn(t))
        return false;
    if ((json_is_true(serve_member(block, "is_error")) && !add_line(t, &text, STR("Error:"))) ||
        !add_texts(t, &text, serve_member(block, "content"))) {
        free(text.p);
        return false;
    }
    message = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", serve_member(block, "tool_use_id"),
                        "content", json_stringn(text.p != NULL ? text.p : "", text.n));
    free(text.p);
    return json_array_append_new(t->messages, message) == 0 || serve_nomem(t->f);
}

static bool add_call(struct talk *t, const json_t *block)
{
    json_t *call, *calls;

    if (!take_turn(t, "assistant"))
        return false;
    if (serve_member(t->turn, "tool_calls") == NULL && json_object_set_new(t->turn, "tool_calls", json_array()))
        return serve_nomem(t->f);
    calls = serve_member(t->turn, "tool_calls");
    call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", serve_member(block, "id"), "type", "function", "function",
                     "name", serve_member(block, "name"), "arguments", serve_member(block, "input"));
    return json_array_append_new(calls, call) == 0 || serve_nomem(t->f);
}

/* What was thought comes before the text, and calls come after it: else another turn begins. The signature is not
 * looked at, as conversations that another model began go on here. */
static bool add_thought(struct talk *t, const json_t *block)
{
    if (!take_turn(t, "assistant") ||
        ((t->text.n > 0 || serve_member(t->turn, "tool_calls") != NULL) && !begin_turn(t, "assistant")))
        return false;
    return json_string_length(serve_member(block, "thinking")) == 0 ||
           add_line(t, &t->thought, json_text(serve_member(block, "thinking")));
}

static bool add_block(struct talk *t, const char *role, const json_t *block)
{
    const bool assistant = strcmp(role, "assistant") == 0;
    const bool said = serve_is_type(block, "thinking") || serve_is_type(block, "redacted_thinking") ||
                      serve_is_type(block, "tool_use");

    if (said ? !assistant : !serve_is_type(block, "text") && strcmp(role, "user") != 0)
        return refuse_block(t, "type",
                            assistant ? "not in a message of the assistant" : "not in a message of this role");
    if (serve_is_type(block, "redacted_thinking")) /* which only its maker can read */
        return true;
    if (serve_is_type(block, "thinking"))
        return add_thought(t, block);
    if (serve_is_type(block, "tool_use"))
        return add_call(t, block);
    if (serve_is_type(block, "tool_result"))
        return add_result(t, block);
    if (!take_turn(t, role) || (serve_member(t->turn, "tool_calls") != NULL && !begin_turn(t, role)))
        return false;
    return add_text_block(t, &t->text, block);
}

static bool add_message(struct talk *t, size_t index, const json_t *message)
{
    const char *role = json_string_value(serve_member(message, "role"));
    const json_t *content = serve_member(message, "content"), *block;
    size_t i;

    if (json_is_string(content)) {
        if (!take_turn(t, role) || (serve_member(t->turn, "tool_calls") != NULL && !begin_turn(t, role)))
            return false;
        return add_line(t, &t->text, json_text(content));
    }
    json_array_foreach (content, i, block) {
        (void)snprintf(t->at, sizeof t->at, "/messages/%zu/content/%zu", index, i);
        if (!add_block(t, role, block))
            return false;
    }
    return true;
}

/* Claude Code begins the system prompt with a block for its accounts, another one in each request: a prompt that began
 * with it would be evaluated anew each time. */
static bool is_for_accounts(const json_t *block)
{
    static const char begins[] = "x-anthropic-billing-header:";
    const char *s = json_string_value(serve_member(block, "text"));

    return s != NULL && strncmp(s, begins, sizeof begins - 1) == 0;
}

static bool add_system(struct talk *t, const json_t *system)
{
    const json_t *block;
    size_t i;

    if (system != NULL && !json_is_string(system) && !json_is_array(system))
        return serve_refuse_at(t->f, "/system", "neither a text nor an array of blocks");
    if (json_is_string(system))
        return take_turn(t, "system") && add_line(t, &t->text, json_text(system));
    json_array_foreach (system, i, block)
        if (!is_for_accounts(block) &&
            (!take_turn(t, "system") || !add_line(t, &t->text, json_text(serve_member(block, "text")))))
            return false;
    return true;
}

static void close_talk(struct talk *t)
{
    free(t->text.p);
    free(t->thought.p);
    json_decref(t->messages);
}

/* Messages of the request up to the one of which message number `most` of the chat is made; *last: which that is, -1
 * for the system prompt. */
static bool make_messages(struct talk *t, const json_t *body, size_t most, int64_t *last)
{
    const json_t *list = serve_member(body, "messages"), *message;
    size_t i;

    *last = -1;
    if (t->messages == NULL)
        return serve_nomem(t->f);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return serve_refuse_at(t->f, "/messages", "missing, or not an array with messages");
    if (!add_system(t, serve_member(body, "system")))
        return false;
    json_array_foreach (list, i, message) {
        if (json_array_size(t->messages) > most)
            break;
        *last = (int64_t)i;
        if (!add_message(t, i, message))
            return false;
    }
    return end_turn(t);
}

/* The messages; the assistant goes on with the last one if it is its own. */
static bool take_messages(struct serve_taking *t)
{
    struct talk talk = { .messages = json_array(), .f = t->f };
    const json_t *last;
    int64_t index;
    bool ok = make_messages(&talk, t->body, SIZE_MAX, &index);

    last = json_array_get(talk.messages, json_array_size(talk.messages) - 1);
    if (ok &&
        strcmp(
            json_string_value(serve_member(json_array_get(serve_member(t->body, "messages"), (size_t)index), "role")),
            "assistant") == 0 &&
        serve_member(last, "tool_calls") == NULL && serve_member(t->chat, "add_generation_prompt") == NULL)
        ok = serve_set(t->chat, "continue_final_message", json_true(), t->f);
    ok = ok && serve_set(t->chat, "messages", json_incref(talk.messages), t->f);
    close_talk(&talk);
    return ok;
}

/* ---- other members ---- */

static bool take_tools(struct serve_taking *t, json_t *tools)
{
    json_t *list = json_array(), *tool, *function;
    char pointer[64];
    size_t i;

    if (!serve_set(t->chat, "tools", list, t->f))
        return false;
    if (!json_is_array(tools))
        return serve_refuse_at(t->f, t->at, "not an array");
    json_array_foreach (tools, i, tool) {
        if (serve_member(tool, "type") != NULL && !serve_is_type(tool, "custom")) {
            (void)snprintf(pointer, sizeof pointer, "/tools/%zu/type", i);
            return serve_fault(t->f, 400, pointer,
                               "%s: %.100s is a tool of Anthropic's: only custom ones are known here", pointer + 1,
                               json_string_value(serve_member(tool, "type")));
        }
        if (serve_member(tool, "input_schema") == NULL) {
            (void)snprintf(pointer, sizeof pointer, "/tools/%zu/input_schema", i);
            return serve_refuse_at(t->f, pointer, "missing");
        }
        function = json_pack("{s:O, s:O*, s:O, s:O*}", "name", serve_member(tool, "name"), "description",
                             serve_member(tool, "description"), "parameters", serve_member(tool, "input_schema"),
                             "strict", serve_member(tool, "strict"));
        if (function == NULL ||
            json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function)))
            return serve_nomem(t->f);
    }
    return true;
}

static bool take_choice(struct serve_taking *t, json_t *v)
{
    json_t *name = serve_member(v, "name");

    if (!json_is_object(v))
        return serve_refuse_at(t->f, t->at, "not an object");
    if (serve_is_type(v, "tool") && name == NULL)
        return serve_refuse_at(t->f, "/tool_choice/name", "missing");
    if (json_is_true(serve_member(v, "disable_parallel_tool_use")) &&
        !serve_set(t->chat, "parallel_tool_calls", json_false(), t->f))
        return false;
    return serve_set(
        t->chat, "tool_choice",
        serve_is_type(v, "tool")
            ? json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)
            : json_string(serve_is_type(v, "any") ? "required" : json_string_value(serve_member(v, "type"))),
        t->f);
}

static bool take_schema(struct serve_taking *t, const char *pointer, json_t *format)
{
    if (!json_is_object(format))
        return serve_refuse_at(t->f, pointer, "not an object");
    return serve_set(t->chat, "response_format", json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format),
                     t->f);
}

/* As older clients name it. */
static bool take_format(struct serve_taking *t, json_t *v)
{
    return take_schema(t, t->at, v);
}

static bool take_output(struct serve_taking *t, json_t *v)
{
    const char *effort = json_string_value(serve_member(v, "effort"));
    json_t *format = serve_member(v, "format");

    if (!json_is_object(v))
        return serve_refuse_at(t->f, t->at, "not an object");
    if (effort != NULL &&
        !serve_set(t->chat, "reasoning_effort", json_string(strcmp(effort, "max") == 0 ? "xhigh" : effort), t->f))
        return false;
    return format == NULL || take_schema(t, "/output_config/format", format);
}

static bool take_stops(struct serve_taking *t, json_t *v)
{
    if (!json_is_array(v))
        return serve_refuse_at(t->f, t->at, "not an array of texts");
    return serve_set(t->chat, "stop", json_incref(v), t->f);
}

static bool take_metadata(struct serve_taking *t, json_t *v)
{
    json_t *user = serve_member(v, "user_id");

    if (!json_is_object(v))
        return serve_refuse_at(t->f, t->at, "not an object");
    return user == NULL || serve_set(t->chat, "user", json_incref(user), t->f);
}

/* Whether the model thinks, and how long. What the template's variables say beside it may not be something else. */
static bool take_thinking(struct serve_taking *t, json_t *v)
{
    json_t *budget = serve_member(v, "budget_tokens"), *kwargs = serve_member(t->chat, "chat_template_kwargs");

    if (!json_is_object(v))
        return serve_refuse_at(t->f, "/thinking", "not an object");
    if (serve_is_type(v, "enabled") && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return serve_refuse_at(t->f, "/thinking/budget_tokens", "missing, or not a whole number from 1");
    if (!serve_is_type(v, "enabled") && budget != NULL)
        return serve_refuse_at(t->f, "/thinking/budget_tokens", "only with the type enabled");
    if (serve_is_type(v, "disabled"))
        return serve_set(t->chat, "reasoning_budget", json_integer(0), t->f);
    if (budget != NULL && !serve_set(t->chat, "reasoning_budget", json_incref(budget), t->f))
        return false;
    if (json_is_false(serve_member(kwargs, "enable_thinking")))
        return serve_refuse_at(t->f, "/thinking", "chat_template_kwargs says otherwise");
    kwargs = json_is_object(kwargs) ? json_shallow(kwargs) : json_object();
    kwargs = json_if(json_object_set_new(kwargs, "enable_thinking", json_true()) == 0, kwargs);
    return serve_set(t->chat, "chat_template_kwargs", kwargs, t->f);
}

/* Anthropic's package tries without it when it is told so in these words. */
static bool refuse_thread(struct serve_taking *t, json_t *v)
{
    (void)v;
    t->f->code = "thread_unsupported_request";
    return serve_refuse_at(t->f, t->at, "answers are not kept: send all messages of the conversation");
}

/* What would run elsewhere is not there to be asked. */
static bool refuse_service(struct serve_taking *t, json_t *v)
{
    return (json_is_array(v) && json_array_size(v) == 0) ||
           serve_refuse_at(t->f, t->at, "runs at Anthropic's, not here");
}

static const struct serve_taken taken[] = {
    { "messages", NULL },
    { "system", NULL },
    { "thinking", NULL },
    { "tools", take_tools },
    { "tool_choice", take_choice },
    { "output_config", take_output },
    { "output_format", take_format },
    { "stop_sequences", take_stops },
    { "metadata", take_metadata },
    { "thread", refuse_thread },
    { "container", refuse_service },
    { "mcp_servers", refuse_service },
    { 0 },
};

/* What depends on other members, and the messages. */
static bool finish_chat(struct serve_taking *t)
{
    json_t *thinking = serve_member(t->body, "thinking");

    return (thinking == NULL || take_thinking(t, thinking)) && take_messages(t);
}

/* ---- faults of the chat ---- */

static bool find_place(const json_t *body, const char *pointer, char out[POINTER_BYTES])
{
    static const char messages[] = "/messages/", format[] = "/response_format", schema[] = "/json_schema";
    static const char parameters[] = "/function/parameters";
    const char *at = strncmp(pointer, "/tools/", 7) == 0 ? strstr(pointer, parameters) : NULL;

    if (strncmp(pointer, messages, sizeof messages - 1) == 0) {
        struct serve_fault ignored = { 0 };
        struct talk t = { .messages = json_array(), .f = &ignored };
        int64_t index;

        (void)make_messages(&t, body, strtoul(pointer + sizeof messages - 1, NULL, 10), &index);
        (void)snprintf(out, POINTER_BYTES, index >= 0 ? "/messages/%lld" : "/system", (long long)index);
        close_talk(&t);
        return true;
    }
    if (strncmp(pointer, "/tool_choice", 12) == 0) {
        (void)snprintf(out, POINTER_BYTES, "/tool_choice");
        return true;
    }
    if (strncmp(pointer, format, sizeof format - 1) == 0 && serve_member(body, "output_format") != NULL) {
        pointer += sizeof format - 1;
        pointer += strncmp(pointer, schema, sizeof schema - 1) == 0 ? sizeof schema - 1 : 0;
        (void)snprintf(out, POINTER_BYTES, "/output_format%.400s", pointer);
        return true;
    }
    if (at != NULL)
        (void)snprintf(out, POINTER_BYTES, "%.*s/input_schema%s", (int)(at - pointer), pointer,
                       at + sizeof parameters - 1);
    return at != NULL;
}

const struct serve_dialect serve_messages = {
    "max_tokens", taken, renamed, finish_chat, find_place, serve_message_begin, serve_message_piece, serve_message_end,
};
