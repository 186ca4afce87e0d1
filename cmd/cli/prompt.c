/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - where a prompt comes from: options, files, stdin, chat messages.  room: cmd */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/io.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/recall.h"
#include "text/text.h"

#define PROMPT_MAX (1U << 30) /* bytes */

bool cli_is_stdin(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

const char *cli_file_name(const char *path)
{
    return cli_is_stdin(path) ? "standard input" : path;
}

static enum err_code add_file(struct cli_buf *out, const char *path, struct err *e)
{
    char *data;
    size_t n;
    enum err_code code;

    if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO) && cli_verbosity() >= 0)
        fprintf(stderr, "%s: type the prompt; ^D on a line of its own ends it\n", cli_name());
    if (io_read_all(&data, &n, path, PROMPT_MAX, cli_interrupted, e)) {
        const bool absent = access(path, F_OK) != 0;

        if (absent && strpbrk(path, " ?\n") != NULL)
            return err_set(e, ERR_ARG, "'%.100s': no such file; a prompt is given by -p 'TEXT'", path);
        return e->code;
    }
    code = cli_buf_add(out, (struct str){ data, n }, e);
    free(data);
    return code;
}

static enum err_code add_prompt(struct cli_buf *b, const char *text, char *const *files, struct err *e)
{
    if (cli_buf_add(b, str_of(text ? text : ""), e))
        return e->code;
    if (text == NULL && *files == NULL)
        return add_file(b, "-", e);
    if (text != NULL && *files != NULL && cli_buf_add(b, STR("\n"), e))
        return e->code;
    for (const bool alone = text == NULL && files[1] == NULL; *files != NULL; files++) {
        const size_t before = b->n;

        if (add_file(b, *files, e))
            return e->code;
        if (b->n == before && !alone) /* what should write it may have failed; alone it is an error */
            cli_warn("%s: is empty", cli_file_name(*files));
    }
    return ERR_OK;
}

void cli_tell_encoding(const char *what, struct str s)
{
    size_t at = 0, n = 1;

    for (; at < s.n && n > 0; at += n)
        n = str_utf8((struct str){ s.p + at, s.n - at });
    if (n == 0)
        cli_warn("%s is not UTF-8, at byte %zu; iconv(1) converts other encodings", what, at);
}

enum err_code cli_read_prompt(struct cli_buf *out, const char *text, char *const *files, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = add_prompt(&b, text, files, e);

    if (code) {
        cli_buf_free(&b);
        return code;
    }
    cli_tell_encoding("the text", (struct str){ b.p, b.n });
    *out = b;
    return ERR_OK;
}

enum err_code cli_read_template(struct cli_buf *out, const char *path, struct err *e)
{
    if (cli_read_prompt(out, NULL, (char *const[]){ (char *)(uintptr_t)path, NULL }, e))
        return e->code;
    if (out->n > 0)
        return ERR_OK;
    cli_buf_free(out);
    return err_set(e, ERR_FORMAT, "%s: is empty", cli_file_name(path));
}

/* Adds {"role": role, "content": text} to a; at the front or at the end. */
static enum err_code add_message(json_t *a, const char *role, struct str text, bool front, struct err *e)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", json_bytes(text));

    if (m == NULL || json_array_insert_new(a, front ? 0 : json_array_size(a), m))
        return err_nomem(e);
    return ERR_OK;
}

/* Members of a request of OpenAI's interface that would change the answer: options say that here. */
static void tell_members(const json_t *request, const char *path)
{
    static const char *const left_out[] = { "temperature",
                                            "top_p",
                                            "max_tokens",
                                            "max_completion_tokens",
                                            "stop",
                                            "seed",
                                            "n",
                                            "response_format",
                                            "tool_choice",
                                            "logprobs",
                                            "logit_bias",
                                            "presence_penalty",
                                            "frequency_penalty",
                                            "reasoning_effort" };
    char names[256] = "";

    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        size_t used = strlen(names);

        if (json_object_get(request, left_out[i]) != NULL)
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", left_out[i]);
    }
    if (names[0] != '\0')
        cli_warn("%s: only its messages and tools are used, not %s: use options for that", path, names);
}

/* The messages of a chat: --messages, then what the user says. *tools may be set. */
static enum err_code read_messages(json_t *all, json_t **tools, const struct cli_chat *c, struct err *e)
{
    struct cli_buf in = { 0 };
    json_t *file, *list;
    enum err_code code;

    if (c->messages != NULL) {
        if (cli_json_file(&file, c->messages, e))
            return e->code;
        list = json_is_object(file) ? json_object_get(file, "messages") : file;
        if (!json_is_array(list))
            code = err_set(e, ERR_FORMAT, "%s: neither an array of messages nor an object with one", c->messages);
        else
            code = json_array_extend(all, list) ? err_nomem(e) : ERR_OK;
        tell_members(file, c->messages);
        *tools = json_is_object(file) ? json_incref(json_object_get(file, "tools")) : NULL;
        json_decref(file);
        if (code)
            return code;
    }
    if (c->system != NULL && add_message(all, "system", str_of(c->system), true, e))
        return e->code;
    if (c->messages != NULL && c->prompt == NULL && *c->files == NULL)
        return ERR_OK;
    if (cli_read_prompt(&in, c->prompt, c->files, e))
        return e->code;
    while (in.n > 0 && in.p[in.n - 1] == '\n') /* the end of a file is not part of a question */
        in.n--;
    code = in.n == 0 || strspn(in.p, " \t\r\n") >= in.n
               ? err_set(e, ERR_ARG, "the prompt is empty")
               : add_message(all, "user", (struct str){ in.p, in.n }, false, e);
    cli_buf_free(&in);
    return code;
}

int64_t cli_local_s(void)
{
    time_t now = time(NULL);
    struct tm local;

    return localtime_r(&now, &local) != NULL ? (int64_t)timegm(&local) : (int64_t)now;
}

static enum err_code render(struct text_tokens *out, struct cli_buf *text, bool *thinking, const struct chat *format,
                            const struct chat_prompt *p, struct err *e)
{
    char *shown;
    size_t n;
    enum err_code code;

    if (text != NULL) {
        if (chat_render_text(format, p, &shown, &n, e))
            return cli_as_data(e);
        code = cli_buf_add(text, (struct str){ shown, n }, e);
        free(shown);
        if (code)
            return code;
    }
    return chat_render(format, p, out, thinking, e) ? cli_as_data(e) : ERR_OK;
}

/* --chat-kwargs: variables of the template beside ours, which they override. */
static enum err_code add_kwargs(json_t *extra, const char *text, struct err *e)
{
    json_t *more;

    if (text == NULL)
        return ERR_OK;
    if (json_parse(&more, str_of(text), "--chat-kwargs", e))
        return cli_as_data(e);
    if (!json_is_object(more)) {
        json_decref(more);
        return err_set(e, ERR_ARG, "--chat-kwargs: not a JSON object");
    }
    const bool ok = json_object_update(extra, more) == 0;

    json_decref(more);
    return ok ? ERR_OK : err_nomem(e);
}

enum err_code cli_chat_extra(json_t **out, bool think, const char *kwargs, struct err *e)
{
    json_t *extra = json_pack("{s:b}", "enable_thinking", (int)think);

    if (extra == NULL)
        return err_nomem(e);
    if (add_kwargs(extra, kwargs, e)) {
        json_decref(extra);
        return e->code;
    }
    *out = extra;
    return ERR_OK;
}

enum err_code cli_render_chat(struct text_tokens *out, struct cli_buf *text, bool *thinking, json_t **offered,
                              const struct chat *format, const struct cli_chat *c, struct err *e)
{
    json_t *all = json_array(), *tools = NULL, *extra = NULL;
    enum err_code code = all ? ERR_OK : err_nomem(e);

    if (code == ERR_OK)
        code = read_messages(all, &tools, c, e);
    if (code == ERR_OK && c->named != NULL)
        code = cli_notes_named(c->named, all, c->what, e);
    if (code == ERR_OK && c->notes != NULL)
        code = cli_notes_add(c->notes, all, e);
    if (code == ERR_OK && c->tools != NULL) {
        json_decref(tools);
        tools = NULL;
        code = cli_json_file(&tools, c->tools, e);
        if (code == ERR_OK && !json_is_array(tools))
            code = err_set(e, ERR_FORMAT, "%s: not an array of tools", c->tools);
    }
    if (c->no_tools || (json_is_array(tools) && json_array_size(tools) == 0)) {
        json_decref(tools);
        tools = NULL;
    }
    if (code == ERR_OK)
        code = cli_chat_extra(&extra, c->think, c->kwargs, e);
    if (code == ERR_OK)
        code = render(out, text, thinking, format,
                      &(struct chat_prompt){ .messages = all,
                                             .tools = tools,
                                             .extra = extra,
                                             .generate = true,
                                             .follows = c->follows,
                                             .now_s = cli_local_s() },
                      e);
    if (code == ERR_OK)
        *offered = tools;
    else
        json_decref(tools);
    json_decref(extra);
    json_decref(all);
    return code;
}
