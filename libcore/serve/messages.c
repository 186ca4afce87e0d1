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
};
enum { N_RENAMED = sizeof renamed / sizeof renamed[0] };

static json_t *member(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

static struct str text_of(const json_t *v)
{
    return (struct str){ json_is_string(v) ? json_string_value(v) : "", json_string_length(v) };
}

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
    const json_t *source = member(block, "source"), *content = member(source, "content"), *part;
    size_t i;

    if (json_is_true(member(member(block, "citations"), "enabled")))
        return refuse_block(t, "citations", "answers have no citations");
    if (!serve_is_type(source, "text") && !serve_is_type(source, "content"))
        return refuse_block(t, "source", "only documents of plain text are read");
    if (serve_is_type(source, "text") ? !json_is_string(member(source, "data")) : content == NULL)
        return refuse_block(t, "source", "has no text");
    for (i = 0; i < sizeof before / sizeof before[0]; i++)
        if (member(block, before[i]) != NULL && !add_line(t, b, text_of(member(block, before[i]))))
            return false;
    if (!json_is_array(content))
        return add_line(t, b, text_of(content != NULL ? content : member(source, "data")));
    json_array_foreach (content, i, part) {
        if (!serve_is_type(part, "text") || !json_is_string(member(part, "text")))
            return refuse_block(t, "source", "only documents of plain text are read");
        if (!add_line(t, b, text_of(member(part, "text"))))
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
    return add_line(t, b, text_of(member(block, "text")));
}

/* A text, or blocks of one. */
static bool add_texts(struct talk *t, struct serve_buf *b, const json_t *content)
{
    const size_t n = strlen(t->at);
    const json_t *block;
    size_t i;

    if (json_is_string(content))
        return add_line(t, b, text_of(content));
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
    if ((json_is_true(member(block, "is_error")) && !add_line(t, &text, STR("Error:"))) ||
        !add_texts(t, &text, member(block, "content"))) {
        free(text.p);
        return false;
    }
    message = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", member(block, "tool_use_id"), "content",
                        json_stringn(text.p != NULL ? text.p : "", text.n));
    free(text.p);
    return json_array_append_new(t->messages, message) == 0 || serve_nomem(t->f);
}

static bool add_call(struct talk *t, const json_t *block)
{
    json_t *call, *calls;

    if (!take_turn(t, "assistant"))
        return false;
    if (member(t->turn, "tool_calls") == NULL && json_object_set_new(t->turn, "tool_calls", json_array()))
        return serve_nomem(t->f);
    calls = member(t->turn, "tool_calls");
    call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", member(block, "id"), "type", "function", "function", "name",
                     member(block, "name"), "arguments", member(block, "input"));
    return json_array_append_new(calls, call) == 0 || serve_nomem(t->f);
}

/* What was thought comes before the text, and calls come after it: else another turn begins. The signature is not
 * looked at, as conversations that another model began go on here. */
static bool add_thought(struct talk *t, const json_t *block)
{
    if (!take_turn(t, "assistant") ||
        ((t->text.n > 0 || member(t->turn, "tool_calls") != NULL) && !begin_turn(t, "assistant")))
        return false;
    return json_string_length(member(block, "thinking")) == 0 ||
           add_line(t, &t->thought, text_of(member(block, "thinking")));
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
    if (!take_turn(t, role) || (member(t->turn, "tool_calls") != NULL && !begin_turn(t, role)))
        return false;
    return add_text_block(t, &t->text, block);
}

static bool add_message(struct talk *t, size_t index, const json_t *message)
{
    const char *role = json_string_value(member(message, "role"));
    const json_t *content = member(message, "content"), *block;
    size_t i;

    if (json_is_string(content)) {
        if (!take_turn(t, role) || (member(t->turn, "tool_calls") != NULL && !begin_turn(t, role)))
            return false;
        return add_line(t, &t->text, text_of(content));
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
    const char *s = json_string_value(member(block, "text"));

    return s != NULL && strncmp(s, begins, sizeof begins - 1) == 0;
}

static bool add_system(struct talk *t, const json_t *system)
{
    const json_t *block;
    size_t i;

    if (system != NULL && !json_is_string(system) && !json_is_array(system))
        return serve_refuse_at(t->f, "/system", "neither a text nor an array of blocks");
    if (json_is_string(system))
        return take_turn(t, "system") && add_line(t, &t->text, text_of(system));
    json_array_foreach (system, i, block)
        if (!is_for_accounts(block) &&
            (!take_turn(t, "system") || !add_line(t, &t->text, text_of(member(block, "text")))))
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
    const json_t *list = member(body, "messages"), *message;
    size_t i;

    *last = -1;
    if (t->messages == NULL)
        return serve_nomem(t->f);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return serve_refuse_at(t->f, "/messages", "missing, or not an array with messages");
    if (!add_system(t, member(body, "system")))
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
static bool take_messages(json_t *chat, const json_t *body, struct serve_fault *f)
{
    struct talk t = { .messages = json_array(), .f = f };
    const json_t *last;
    int64_t index;
    bool ok = make_messages(&t, body, SIZE_MAX, &index);

    last = json_array_get(t.messages, json_array_size(t.messages) - 1);
    if (ok &&
        strcmp(json_string_value(member(json_array_get(member(body, "messages"), (size_t)index), "role")),
               "assistant") == 0 &&
        member(last, "tool_calls") == NULL && member(chat, "add_generation_prompt") == NULL)
        ok = json_object_set_new(chat, "continue_final_message", json_true()) == 0 || serve_nomem(f);
    ok = ok && (json_object_set(chat, "messages", t.messages) == 0 || serve_nomem(f));
    close_talk(&t);
    return ok;
}

/* ---- other members ---- */

static bool take_tools(json_t *chat, const json_t *tools, struct serve_fault *f)
{
    json_t *list = json_array(), *tool, *function;
    char pointer[64];
    size_t i;

    if (list == NULL || json_object_set_new(chat, "tools", list))
        return serve_nomem(f);
    if (!json_is_array(tools))
        return serve_refuse_at(f, "/tools", "not an array");
    json_array_foreach (tools, i, tool) {
        if (member(tool, "type") != NULL && !serve_is_type(tool, "custom")) {
            (void)snprintf(pointer, sizeof pointer, "/tools/%zu/type", i);
            return serve_fault(f, 400, pointer, "%s: %.100s is a tool of Anthropic's: only custom ones are known here",
                               pointer + 1, json_string_value(member(tool, "type")));
        }
        if (member(tool, "input_schema") == NULL) {
            (void)snprintf(pointer, sizeof pointer, "/tools/%zu/input_schema", i);
            return serve_refuse_at(f, pointer, "missing");
        }
        function = json_pack("{s:O, s:O*, s:O, s:O*}", "name", member(tool, "name"), "description",
                             member(tool, "description"), "parameters", member(tool, "input_schema"), "strict",
                             member(tool, "strict"));
        if (function == NULL ||
            json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function)))
            return serve_nomem(f);
    }
    return true;
}

static bool take_choice(json_t *chat, const json_t *v, struct serve_fault *f)
{
    json_t *name = member(v, "name");
    json_t *choice;

    if (!json_is_object(v))
        return serve_refuse_at(f, "/tool_choice", "not an object");
    if (serve_is_type(v, "tool") && name == NULL)
        return serve_refuse_at(f, "/tool_choice/name", "missing");
    if (json_is_true(member(v, "disable_parallel_tool_use")) &&
        json_object_set_new(chat, "parallel_tool_calls", json_false()))
        return serve_nomem(f);
    choice = serve_is_type(v, "tool")
                 ? json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)
                 : json_string(serve_is_type(v, "any") ? "required" : json_string_value(member(v, "type")));
    return json_object_set_new(chat, "tool_choice", choice) == 0 || serve_nomem(f);
}

static bool take_format(json_t *chat, const char *pointer, json_t *format, struct serve_fault *f)
{
    if (!json_is_object(format))
        return serve_refuse_at(f, pointer, "not an object");
    return json_object_set_new(chat, "response_format",
                               json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format)) == 0 ||
           serve_nomem(f);
}

static bool take_output(json_t *chat, const json_t *v, struct serve_fault *f)
{
    const char *effort = json_string_value(member(v, "effort"));

    if (!json_is_object(v))
        return serve_refuse_at(f, "/output_config", "not an object");
    if (effort != NULL &&
        json_object_set_new(chat, "reasoning_effort", json_string(strcmp(effort, "max") == 0 ? "xhigh" : effort)))
        return serve_nomem(f);
    return member(v, "format") == NULL || take_format(chat, "/output_config/format", member(v, "format"), f);
}

/* Whether the model thinks, and how long. What the template's variables say beside it may not be something else. */
static bool take_thinking(json_t *chat, const json_t *v, struct serve_fault *f)
{
    json_t *budget = member(v, "budget_tokens"), *kwargs = member(chat, "chat_template_kwargs");
    const bool on = !serve_is_type(v, "disabled");

    if (!json_is_object(v))
        return serve_refuse_at(f, "/thinking", "not an object");
    if (serve_is_type(v, "enabled") && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return serve_refuse_at(f, "/thinking/budget_tokens", "missing, or not a whole number from 1");
    if (!serve_is_type(v, "enabled") && budget != NULL)
        return serve_refuse_at(f, "/thinking/budget_tokens", "only with the type enabled");
    if (!on)
        return json_object_set_new(chat, "reasoning_budget", json_integer(0)) == 0 || serve_nomem(f);
    if (budget != NULL && json_object_set(chat, "reasoning_budget", budget))
        return serve_nomem(f);
    if (json_is_false(member(kwargs, "enable_thinking")))
        return serve_refuse_at(f, "/thinking", "chat_template_kwargs says otherwise");
    kwargs = json_is_object(kwargs) ? json_copy(kwargs) : json_object();
    if (json_object_set_new(kwargs, "enable_thinking", json_true())) {
        json_decref(kwargs);
        return serve_nomem(f);
    }
    return json_object_set_new(chat, "chat_template_kwargs", kwargs) == 0 || serve_nomem(f);
}

/* Anthropic's package tries without it when it is told so in these words. */
static bool refuse_thread(struct serve_fault *f)
{
    f->code = "thread_unsupported_request";
    return serve_refuse_at(f, "/thread", "answers are not kept: send all messages of the conversation");
}

/* What would run elsewhere is not there to be asked. */
static bool refuse_service(const char *key, const json_t *v, struct serve_fault *f)
{
    char pointer[POINTER_BYTES];

    (void)serve_point_to(pointer, 0, key);
    return json_array_size(v) == 0 && json_is_array(v) ? true
                                                       : serve_refuse_at(f, pointer, "runs at Anthropic's, not here");
}

static bool take_member(json_t *chat, const char *key, json_t *v, struct serve_fault *f)
{
    static const char *const later[] = { "messages", "system", "thinking" };

    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        if (strcmp(key, later[i]) == 0)
            return true;
    if (json_is_null(v))
        return true;
    if (strcmp(key, "thread") == 0)
        return refuse_thread(f);
    if (strcmp(key, "container") == 0 || strcmp(key, "mcp_servers") == 0)
        return refuse_service(key, v, f);
    if (strcmp(key, "tools") == 0)
        return take_tools(chat, v, f);
    if (strcmp(key, "tool_choice") == 0)
        return take_choice(chat, v, f);
    if (strcmp(key, "output_config") == 0)
        return take_output(chat, v, f);
    if (strcmp(key, "output_format") == 0)
        return take_format(chat, "/output_format", v, f);
    if (strcmp(key, "stop_sequences") == 0)
        return (json_is_array(v) || serve_refuse_at(f, "/stop_sequences", "not an array of texts")) &&
               (json_object_set(chat, "stop", v) == 0 || serve_nomem(f));
    if (strcmp(key, "metadata") == 0)
        return (json_is_object(v) || serve_refuse_at(f, "/metadata", "not an object")) &&
               (member(v, "user_id") == NULL || json_object_set(chat, "user", member(v, "user_id")) == 0 ||
                serve_nomem(f));
    return serve_keep_member(chat, renamed, N_RENAMED, key, v, f);
}

static json_t *make_chat(const json_t *body, bool lenient, struct serve_fault *f)
{
    json_t *chat, *v;
    const char *key;

    if (!serve_check_members(body, SERVE_MESSAGE, lenient, f))
        return NULL;
    chat = json_object();
    if (chat == NULL)
        serve_nomem(f);
    json_object_foreach ((json_t *)(uintptr_t)body, key, v)
        if (f->status != 0 || !take_member(chat, key, v, f))
            break;
    v = member(body, "thinking");
    if (f->status == 0 && (v == NULL || take_thinking(chat, v, f)) && take_messages(chat, body, f))
        return chat;
    json_decref(chat);
    return NULL;
}

static json_t *chat_of(const json_t *body, bool lenient, struct serve_fault *f)
{
    if (json_is_object(body) && member(body, "max_tokens") == NULL) {
        serve_refuse_at(f, "/max_tokens", "missing");
        return NULL;
    }
    return make_chat(body, lenient, f);
}

/* ---- faults of the chat ---- */

/* Where in the request that is of which the chat says `pointer`. */
static void place_of(const json_t *body, const char *pointer, char out[POINTER_BYTES])
{
    static const char messages[] = "/messages/", parameters[] = "/function/parameters", function[] = "/function";
    const char *rest = pointer, *to = serve_renamed_place(renamed, N_RENAMED, pointer, &rest), *at;
    const bool older = member(body, "output_format") != NULL;

    if (strncmp(pointer, messages, sizeof messages - 1) == 0) {
        struct serve_fault ignored = { 0 };
        struct talk t = { .messages = json_array(), .f = &ignored };
        int64_t index;

        (void)make_messages(&t, body, strtoul(pointer + sizeof messages - 1, NULL, 10), &index);
        if (index >= 0)
            (void)snprintf(out, POINTER_BYTES, "/messages/%lld", (long long)index);
        else
            (void)snprintf(out, POINTER_BYTES, "/system");
        close_talk(&t);
    } else if (to != NULL && strcmp(to, "/tool_choice") == 0) {
        (void)snprintf(out, POINTER_BYTES, "%s", to);
    } else if (to != NULL) {
        (void)snprintf(out, POINTER_BYTES, "%.60s%.400s",
                       older && strcmp(to, "/output_config/format") == 0 ? "/output_format" : to, rest);
    } else if ((at = strstr(pointer, parameters)) != NULL && strncmp(pointer, "/tools/", 7) == 0) {
        (void)snprintf(out, POINTER_BYTES, "%.*s/input_schema%s", (int)(at - pointer), pointer,
                       at + sizeof parameters - 1);
    } else if ((at = strstr(pointer, function)) != NULL && strncmp(pointer, "/tools/", 7) == 0) {
        (void)snprintf(out, POINTER_BYTES, "%.*s%s", (int)(at - pointer), pointer, at + sizeof function - 1);
    } else {
        (void)snprintf(out, POINTER_BYTES, "%s", pointer);
    }
}

static void move_fault(const json_t *body, struct serve_fault *f)
{
    char place[POINTER_BYTES];

    place_of(body, f->pointer, place);
    serve_move_fault(f, place);
}

/* ---- counting ---- */

json_t *serve_count_message(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    json_t *chat = make_chat(body, s->o.lenient, f);
    struct serve_question w = { .n = 0 };
    int64_t n = 0;

    (void)who;
    if (chat != NULL && !(serve_read_body(&w, s, SERVE_MESSAGE, chat, f) && serve_count_prompt(s, &w, &n, f)))
        move_fault(body, f);
    serve_question_free(&w);
    json_decref(chat);
    return f->status != 0 ? NULL : json_pack("{s:I}", "input_tokens", (json_int_t)n);
}

const struct serve_dialect serve_messages = { chat_of, move_fault, serve_message_begin, serve_message_piece,
                                              serve_message_end };
