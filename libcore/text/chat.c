/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - messages to a prompt in the Qwen3.5 format.                          room: text
 *
 * A model is recognised by marks of its own template and rendered by the rules below, byte for byte
 * as that template does:
 * - a turn is <|im_start|>ROLE\n CONTENT <|im_end|>\n, content trimmed; one system turn at most,
 * first;
 * - tools are listed in the system turn, before its text;
 * - tool results that follow each other share one user turn;
 * - reasoning is kept only in the assistant turns after the last real user turn.
 */
#include <stdlib.h>
#include <string.h>
#include "text/buf.h"
#include "text/vocab.h"

/* What the model was trained to read before and after the list of tools. */
static const char tools_before[] =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
static const char tools_after[] =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function "
    "call in natural language BEFORE the function call, but NOT after\n- If there is no function "
    "call "
    "available, answer the question like normal with your current knowledge and do not tell the "
    "user "
    "about function calls\n</IMPORTANT>";

struct chat {
    const json_t *messages;
    size_t n, last_query; /* reasoning is kept after this message */
    struct text_buf out;
    struct err *e;
};

static bool contains(struct str s, const char *mark)
{
    size_t n = strlen(mark);

    for (size_t i = 0; i + n <= s.n; i++)
        if (s.p[i] == mark[0] && memcmp(s.p + i, mark, n) == 0)
            return true;
    return false;
}

static bool is_qwen35(struct str template)
{
    static const char *const marks[] = {"<|im_start|>", "<function=", "render_content",
                                        "last_query_index", "enable_thinking"};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (!contains(template, marks[i]))
            return false;
    return true;
}

/* Without white space at the ends, as Python's str.strip(). */
static struct str trim(struct str s)
{
    size_t len;

    while (s.n > 0) {
        uint32_t cp = text_utf8_get(s.p, s.n, &len);
        if (!text_is_space(cp) && !(cp >= 0x1C && cp <= 0x1F))
            break;
        s.p += len;
        s.n -= len;
    }
    for (size_t n = s.n; n > 0;) { /* n: before the last character */
        do
            n--;
        while (n > 0 && ((unsigned char)s.p[n] & 0xC0) == 0x80);
        uint32_t cp = text_utf8_get(s.p + n, s.n - n, &len);
        if (!text_is_space(cp) && !(cp >= 0x1C && cp <= 0x1F))
            break;
        s.n = n;
    }
    return s;
}

static struct str strip_newlines(struct str s, bool left, bool right)
{
    while (left && s.n > 0 && s.p[0] == '\n') {
        s.p++;
        s.n--;
    }
    while (right && s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    return s;
}

/* Where mark first (or last) stands in s, or s.n. */
static size_t find(struct str s, struct str mark, bool last)
{
    size_t at = s.n;

    for (size_t i = 0; i + mark.n <= s.n && (last || at == s.n); i++)
        if (memcmp(s.p + i, mark.p, mark.n) == 0)
            at = i;
    return at;
}

static struct str after(struct str s, size_t at, struct str mark)
{
    return at == s.n ? s : (struct str){s.p + at + mark.n, s.n - at - mark.n};
}

static bool role_is(const struct chat *c, size_t i, const char *role)
{
    struct str s;

    return json_get_str(json_array_get(c->messages, i), "role", &s) && str_is(s, role);
}

/* One entry of a content array. */
static enum err_code add_part(struct chat *c, size_t i, const json_t *part, struct text_buf *b)
{
    static const char *const pictures[] = {"image", "image_url", "video"};
    struct str s;

    if (!json_is_object(part))
        return err_set(c->e, ERR_FORMAT, "message %zu: a part of its content is not an object", i);
    for (size_t k = 0; k < 3; k++)
        if (json_object_get(part, pictures[k]) != NULL ||
            (json_get_str(part, "type", &s) && str_is(s, pictures[k])))
            return err_set(c->e, ERR_UNSUPPORTED,
                           "message %zu: images and videos are not supported", i);
    if (!json_get_str(part, "text", &s))
        return err_set(c->e, ERR_FORMAT, "message %zu: a part of its content has no text", i);
    text_buf_add(b, s);
    return ERR_OK;
}

/* The trimmed content of message i: *s points into the message or into b, which the caller frees.
 */
static enum err_code get_content(struct chat *c, size_t i, struct text_buf *b, struct str *s)
{
    const json_t *v = json_object_get(json_array_get(c->messages, i), "content");
    enum err_code rc = ERR_OK;

    *s = (struct str){"", 0};
    if (json_is_string(v)) {
        *s = trim((struct str){json_string_value(v), json_string_length(v)});
    } else if (json_is_array(v)) {
        for (size_t k = 0; k < json_array_size(v) && rc == ERR_OK; k++)
            rc = add_part(c, i, json_array_get(v, k), b);
        if (b->failed)
            return err_set(c->e, ERR_NOMEM, "out of memory");
        if (b->n > 0)
            *s = trim((struct str){b->p, b->n});
    } else if (v != NULL && !json_is_null(v)) {
        return err_set(c->e, ERR_FORMAT, "message %zu: its content is not text", i);
    }
    return rc;
}

static bool starts(struct str s, struct str mark)
{
    return s.n >= mark.n && memcmp(s.p, mark.p, mark.n) == 0;
}

/* The last user turn that is not a tool's answer in disguise. */
static enum err_code find_query(struct chat *c)
{
    const struct str open = STR("<tool_response>"), close = STR("</tool_response>");

    for (size_t i = c->n; i-- > 0;) {
        struct text_buf b = {0};
        struct str s;
        if (!role_is(c, i, "user"))
            continue;
        enum err_code rc = get_content(c, i, &b, &s);
        bool answer = rc == ERR_OK && starts(s, open) && s.n >= close.n &&
                      memcmp(s.p + s.n - close.n, close.p, close.n) == 0;
        free(b.p);
        if (rc != ERR_OK)
            return rc;
        if (!answer) {
            c->last_query = i;
            return ERR_OK;
        }
    }
    return err_set(c->e, ERR_FORMAT, "no user message found in messages");
}

static enum err_code add_system(struct chat *c, const json_t *tools)
{
    bool given = role_is(c, 0, "system");
    struct text_buf b = {0};
    struct str s = {"", 0};
    enum err_code rc = given ? get_content(c, 0, &b, &s) : ERR_OK;

    if (rc == ERR_OK && json_array_size(tools) > 0) {
        text_buf_addz(&c->out, "<|im_start|>system\n");
        text_buf_addz(&c->out, tools_before);
        for (size_t i = 0; i < json_array_size(tools); i++) {
            text_buf_addz(&c->out, "\n");
            text_buf_json(&c->out, json_array_get(tools, i));
        }
        text_buf_addz(&c->out, tools_after);
        text_buf_addz(&c->out, s.n > 0 ? "\n\n" : "");
        text_buf_add(&c->out, s);
        text_buf_addz(&c->out, "<|im_end|>\n");
    } else if (rc == ERR_OK && given) {
        text_buf_addz(&c->out, "<|im_start|>system\n");
        text_buf_add(&c->out, s);
        text_buf_addz(&c->out, "<|im_end|>\n");
    }
    free(b.p);
    return rc;
}

/* Arguments are an object, or (as the OpenAI interface has them) a string that holds one. */
static enum err_code add_arguments(struct chat *c, size_t i, const json_t *args)
{
    json_t *parsed = NULL;

    if (args == NULL)
        return ERR_OK;
    if (json_is_string(args)) {
        struct str text = {json_string_value(args), json_string_length(args)};
        enum err_code rc = json_parse(&parsed, text, "the arguments of a tool call", c->e);
        if (rc != ERR_OK)
            return err_wrap(c->e, "message %zu", i);
        args = parsed;
    }
    if (!json_is_object(args)) {
        json_decref(parsed);
        return err_set(c->e, ERR_FORMAT,
                       "message %zu: the arguments of a tool call are not an object", i);
    }
    void *it = json_object_iter((json_t *)(uintptr_t)args);
    for (; it != NULL; it = json_object_iter_next((json_t *)(uintptr_t)args, it)) {
        text_buf_addz(&c->out, "<parameter=");
        text_buf_addz(&c->out, json_object_iter_key(it));
        text_buf_addz(&c->out, ">\n");
        text_buf_str(&c->out, json_object_iter_value(it));
        text_buf_addz(&c->out, "\n</parameter>\n");
    }
    json_decref(parsed);
    return ERR_OK;
}

static enum err_code add_calls(struct chat *c, size_t i, bool text_before)
{
    const json_t *calls = json_object_get(json_array_get(c->messages, i), "tool_calls");
    enum err_code rc = ERR_OK;

    if (calls != NULL && !json_is_null(calls) && !json_is_array(calls))
        return err_set(c->e, ERR_FORMAT, "message %zu: tool_calls is not an array", i);
    for (size_t k = 0; k < json_array_size(calls) && rc == ERR_OK; k++) {
        const json_t *call = json_array_get(calls, k), *inner = json_object_get(call, "function");
        struct str name;
        if (inner != NULL)
            call = inner;
        if (!json_get_str(call, "name", &name))
            return err_set(c->e, ERR_FORMAT, "message %zu: a tool call has no name", i);
        text_buf_addz(&c->out, k > 0 ? "\n" : text_before ? "\n\n" : "");
        text_buf_addz(&c->out, "<tool_call>\n<function=");
        text_buf_add(&c->out, name);
        text_buf_addz(&c->out, ">\n");
        rc = add_arguments(c, i, json_object_get(call, "arguments"));
        text_buf_addz(&c->out, "</function>\n</tool_call>");
    }
    return rc;
}

static enum err_code add_assistant(struct chat *c, size_t i, struct str content)
{
    const struct str open = STR("<think>"), close = STR("</think>");
    struct str thought = {"", 0};
    size_t end = find(content, close, false);

    if (!json_get_str(json_array_get(c->messages, i), "reasoning_content", &thought) &&
        end < content.n) {
        thought = strip_newlines((struct str){content.p, end}, false, true);
        thought = strip_newlines(after(thought, find(thought, open, true), open), true, false);
        content = strip_newlines(after(content, find(content, close, true), close), true, false);
    }
    text_buf_addz(&c->out, "<|im_start|>assistant\n");
    if (i > c->last_query) {
        text_buf_addz(&c->out, "<think>\n");
        text_buf_add(&c->out, trim(thought));
        text_buf_addz(&c->out, "\n</think>\n\n");
    }
    text_buf_add(&c->out, content);
    enum err_code rc = add_calls(c, i, trim(content).n > 0);
    text_buf_addz(&c->out, "<|im_end|>\n");
    return rc;
}

static void add_result(struct chat *c, size_t i, struct str content)
{
    if (i > 0 && !role_is(c, i - 1, "tool"))
        text_buf_addz(&c->out, "<|im_start|>user");
    text_buf_addz(&c->out, "\n<tool_response>\n");
    text_buf_add(&c->out, content);
    text_buf_addz(&c->out, "\n</tool_response>");
    if (i + 1 == c->n || !role_is(c, i + 1, "tool"))
        text_buf_addz(&c->out, "<|im_end|>\n");
}

static enum err_code add_message(struct chat *c, size_t i)
{
    struct text_buf b = {0};
    struct str content;
    enum err_code rc = get_content(c, i, &b, &content);

    if (rc != ERR_OK) {
        /* said already */
    } else if (role_is(c, i, "system")) {
        if (i > 0)
            rc = err_set(c->e, ERR_FORMAT, "message %zu: a system message must be the first", i);
    } else if (role_is(c, i, "user")) {
        text_buf_addz(&c->out, "<|im_start|>user\n");
        text_buf_add(&c->out, content);
        text_buf_addz(&c->out, "<|im_end|>\n");
    } else if (role_is(c, i, "assistant")) {
        rc = add_assistant(c, i, content);
    } else if (role_is(c, i, "tool")) {
        add_result(c, i, content);
    } else {
        rc = err_set(c->e, ERR_FORMAT,
                     "message %zu: its role is not system, user, assistant or tool", i);
    }
    free(b.p);
    return rc;
}

static enum err_code render(struct chat *c, const struct text_chat_opts *o)
{
    enum err_code rc = find_query(c);

    if (rc == ERR_OK)
        rc = add_system(c, o->tools);
    for (size_t i = 0; i < c->n && rc == ERR_OK; i++)
        rc = add_message(c, i);
    if (o->generate)
        text_buf_addz(&c->out, "<|im_start|>assistant\n");
    if (o->generate)
        text_buf_addz(&c->out, o->think ? "<think>\n" : "<think>\n\n</think>\n\n");
    text_buf_add(&c->out, (struct str){"", 1});
    if (rc == ERR_OK && c->out.failed)
        rc = err_set(c->e, ERR_NOMEM, "out of memory");
    return rc;
}

enum err_code text_chat(const struct text *t, const json_t *messages,
                        const struct text_chat_opts *o, char **out, size_t *out_n, struct err *e)
{
    struct chat c = {.messages = messages, .n = json_array_size(messages), .e = e};

    if (!text_has_chat(t))
        return err_set(e, ERR_UNSUPPORTED, "the model has no chat template: use --raw");
    if (!is_qwen35(t->info.chat_template))
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's chat template is not of the Qwen3.5 family, and the "
                       "general template engine is not in this version: use --raw");
    if (!json_is_array(messages) || c.n == 0)
        return err_set(e, ERR_FORMAT, "messages: not a list of at least one message");
    if (o->tools != NULL && !json_is_array(o->tools) && !json_is_null(o->tools))
        return err_set(e, ERR_FORMAT, "tools: not a list");
    for (size_t i = 0; i < c.n; i++)
        if (!json_is_object(json_array_get(messages, i)))
            return err_set(e, ERR_FORMAT, "message %zu: not an object", i);
    enum err_code rc = render(&c, o);
    if (rc != ERR_OK) {
        free(c.out.p);
        return rc;
    }
    *out = c.out.p;
    *out_n = c.out.n - 1;
    return ERR_OK;
}

bool text_has_chat(const struct text *t)
{
    return t->info.chat_template.n > 0;
}
