/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - what the model will see of options, files and the session.           room: cmd */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/program.h"
#include "text/text.h"

enum err_code cli_run_format(struct cli_run *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = ERR_OK;

    if (s->format != NULL)
        return ERR_OK;
    if (s->o->template_file != NULL)
        code = cli_read_template(&b, s->o->template_file, e);
    if (code == ERR_OK)
        code = chat_open(&s->format, s->open.text, (struct str){ b.p, b.n }, e);
    if (code == ERR_OK && s->o->parser != NULL)
        code = chat_set_parser(s->format, s->o->parser, e);
    cli_buf_free(&b);
    return code;
}

/* ---- messages ---- */

/* Adds {"role": role, "content": text} to a; at the front or at the end. */
static enum err_code insert_message(json_t *a, const char *role, struct str text, bool front, struct err *e)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", json_bytes(text));

    if (m == NULL || json_array_insert_new(a, front ? 0 : json_array_size(a), m))
        return err_nomem(e);
    return ERR_OK;
}

/* The messages of a chat: those of a file, then what the user says. *tools may be set. */
static enum err_code read_messages(json_t *all, json_t **tools, const struct cli_said *said, struct err *e)
{
    struct cli_buf in = { 0 };
    enum err_code code;

    if ((said->messages != NULL && cli_read_messages(all, tools, said->messages, e)) ||
        (said->system != NULL && insert_message(all, "system", str_of(said->system), true, e)))
        return e->code;
    if (said->messages != NULL && said->prompt == NULL && *said->files == NULL)
        return ERR_OK;
    if (cli_read_prompt(&in, said->prompt, said->files, e))
        return e->code;
    while (in.n > 0 && in.p[in.n - 1] == '\n') /* the end of a file is not part of a question */
        in.n--;
    code = in.n == 0 || strspn(in.p, " \t\r\n") >= in.n
               ? err_set(e, ERR_ARG, "the prompt is empty")
               : insert_message(all, "user", (struct str){ in.p, in.n }, false, e);
    cli_buf_free(&in);
    return code;
}

/* --chat-kwargs */
static enum err_code read_kwargs(struct cli_run *s, struct err *e)
{
    if (s->o->kwargs == NULL || s->kwargs != NULL)
        return ERR_OK;
    if (json_parse(&s->kwargs, str_of(s->o->kwargs), "--chat-kwargs", e))
        return cli_as_data(e);
    return json_is_object(s->kwargs) ? ERR_OK : err_set(e, ERR_ARG, "--chat-kwargs: not a JSON object");
}

static enum err_code read_tools(struct cli_run *s, struct err *e)
{
    if (s->o->tools == NULL)
        return ERR_OK;
    json_decref(s->tools);
    s->tools = NULL;
    if (cli_json_file(&s->tools, s->o->tools, e))
        return e->code;
    return json_is_array(s->tools) ? ERR_OK : err_set(e, ERR_FORMAT, "%s: not an array of tools", s->o->tools);
}

/* ---- what is asked ---- */

/* Options with several values, which a question points to. */
static enum err_code read_lists(struct cli_run *s, struct err *e)
{
    const struct cli_list *ids = &s->o->stop_tokens;

    if (s->stops == NULL && cli_list_strings(&s->stops, &s->o->stops, e))
        return e->code;
    for (size_t i = (size_t)s->stop_tokens.n; i < ids->n; i++) {
        char *end;
        const long id = strtol(ids->v[i], &end, 10);

        if (*ids->v[i] < '0' || *ids->v[i] > '9' || *end != '\0' || id > INT32_MAX)
            return err_set(e, ERR_ARG, "--stop-token %s: not a token id", ids->v[i]);
        if (text_tokens_push(&s->stop_tokens, (int32_t)id, e))
            return e->code;
    }
    return ERR_OK;
}

/* What the options say of any question. */
static enum err_code use_options(struct cli_run *s, struct err *e)
{
    const struct cli_run_options *o = s->o;
    struct ask *a = &s->ask;

    *a = ask_defaults();
    a->tool_choice = o->tool_choice != NULL ? o->tool_choice : "auto";
    a->one_call = o->one_call;
    a->think = o->think != 1;
    if (cli_beside_retrieve(a, &o->beside, s->calibration, e))
        return e->code;
    a->calibration = o->think == 2 ? s->calibration : NULL;
    if (cli_reason_set(&a->reason, &o->reason, e))
        return e->code;
    a->reads_form = o->parser != NULL;
    a->plain = o->plain;
    a->continues_last = o->go_on;
    a->n_borders = cli_run_comes_whole(s) || o->interactive;
    a->tokens_max = o->predict_max;
    a->max_is_text = true; /* what a chat reasons comes on top */
    a->tokens_min = o->min_tokens;
    a->ignore_eos = o->ignore_eos;
    a->uncertainty = o->uncertainty || o->log.dir != NULL;
    a->in_parts = o->session != NULL;
    cli_beside_ask(a, &s->beside);
    a->token = s->before.v;
    a->n_token = s->before.n;
    a->stops = s->stops;
    a->n_stops = o->stops.n;
    a->stop_token = s->stop_tokens.v;
    a->n_stop_tokens = (size_t)s->stop_tokens.n;
    if (cli_run_has_form(o) && s->form.form.schema == NULL && s->form.text == NULL &&
        cli_form_read(&s->form, &o->grammar, e))
        return e->code;
    a->form = s->form.form;
    return ERR_OK;
}

enum err_code cli_run_any_question(struct cli_run *s, struct err *e)
{
    return read_lists(s, e) || read_kwargs(s, e) || use_options(s, e) ? e->code : ERR_OK;
}

enum err_code cli_run_say(struct cli_run *s, const struct cli_said *said, struct err *e)
{
    json_decref(s->messages);
    json_decref(s->tools);
    s->tools = NULL;
    s->messages = json_array();
    if (s->messages == NULL)
        return err_nomem(e);
    if (read_lists(s, e) || read_messages(s->messages, &s->tools, said, e) || read_tools(s, e) || read_kwargs(s, e) ||
        use_options(s, e))
        return e->code;
    s->ask.messages = s->messages;
    s->ask.tools = s->tools;
    s->ask.kwargs = s->kwargs;
    return ERR_OK;
}

static enum err_code read_tokens_file(struct cli_run *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = cli_read_prompt(&b, NULL, (char *const[]){ (char *)(uintptr_t)s->o->tokens, NULL }, e);

    if (code == ERR_OK)
        code = cli_read_ids(&s->before, (struct str){ b.p, b.n }, cli_file_name(s->o->tokens), e);
    cli_buf_free(&b);
    return code;
}

/* Whether the standard input is a file or a pipe that gives at least a byte. A pipe may come from a program that takes
 * its time, or from one that keeps it open for nothing: waiting long is told. */
static bool has_input(void)
{
    enum { TELL_MS = 3000 };
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    struct stat st;
    int n = 0;

    if (fstat(STDIN_FILENO, &st) != 0)
        return false;
    if (S_ISREG(st.st_mode))
        return st.st_size > lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (!S_ISFIFO(st.st_mode))
        return false;
    if (poll(&in, 1, TELL_MS) == 0) {
        cli_warn("waits for the standard input, which comes after -p; --no-stdin or < /dev/null leaves it out");
        while (poll(&in, 1, -1) < 0 && errno == EINTR)
            ;
    }
    return ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

/* The files of a prompt: text that is piped in comes after -p where nothing else is named. */
char *const *cli_run_inputs(const struct cli_run *s, char *const *files)
{
    static char dash[] = "-";
    static char *const piped[] = { dash, NULL };
    const struct cli_run_options *o = s->o;
    const bool taken = cli_is_stdin(o->messages) || cli_is_stdin(o->tools) || cli_is_stdin(o->template_file) ||
                       cli_is_stdin(o->beside.context) || cli_is_stdin(o->beside.context_table) ||
                       cli_is_stdin(o->calibration) || cli_is_stdin(o->grammar.schema) ||
                       cli_is_stdin(o->grammar.grammar);

    return o->prompt != NULL && *files == NULL && !o->no_stdin && !taken && has_input() ? piped : files;
}

/* Whether the model has one; its tokenizer is not open where a server may answer. */
static bool has_template(const struct cli_run *s)
{
    struct str template = { NULL, 0 };

    if (s->open.text != NULL)
        return text_info(s->open.text)->chat_template.n > 0;
    return gguf_str(s->open.gguf, "tokenizer.chat_template", &template) && template.n > 0;
}

/* The question of the options: tokens of a file, messages, or a text (s->rendered). */
enum err_code cli_run_question(struct cli_run *s, char *const *files, struct err *e)
{
    if (s->o->tokens != NULL)
        return cli_session_same_kind(&s->kept, false, e) || cli_beside_texts(&s->beside, &s->o->beside, &s->open, e) ||
                       read_lists(s, e) || read_tokens_file(s, e) || use_options(s, e)
                   ? e->code
                   : ERR_OK;
    files = cli_run_inputs(s, files);
    s->chat = !s->o->raw && !s->o->tokenize && !s->o->detokenize && (s->o->template_file != NULL || has_template(s));
    if (s->chat && s->open.text != NULL && cli_run_format(s, e))
        return e->code;
    if (s->kept.begun && s->o->messages == NULL) {
        if (s->o->system != NULL && !cli_session_same_system(&s->kept, s->o->system))
            return err_set(
                e, ERR_ARG,
                "%s: the session has begun with another system message: leave --system out, or name another file",
                s->o->session);
        if (cli_session_prefix(&s->kept, s->chat, s->format, &s->before, e))
            return e->code;
    }
    if (s->o->messages != NULL && cli_session_same_kind(&s->kept, s->chat, e))
        return e->code;
    if (!s->kept.begun || s->o->messages != NULL)
        cli_session_set_system(&s->kept, s->o->system);
    if ((s->o->beside.examples != NULL || s->o->beside.recite != NULL) && !s->chat)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no --examples and --recite", s->open.path);
    if (cli_beside_texts(&s->beside, &s->o->beside, &s->open, e))
        return e->code;
    if (s->chat) {
        const struct cli_said said = { .system = s->before.n > 0 ? NULL : s->o->system,
                                       .messages = s->o->messages,
                                       .prompt = s->o->prompt,
                                       .files = files };

        return cli_run_say(s, &said, e);
    }
    if (s->o->system || s->o->messages || s->o->tools)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no messages or tools", s->open.path);
    if (cli_read_prompt(&s->rendered, s->o->prompt, files, e))
        return e->code;
    /* A raw session may go on without new text, but not because a pipe was empty. */
    if (s->rendered.n == 0 && !s->o->tokenize && !s->o->detokenize && (s->o->prompt == NULL || s->before.n == 0))
        return err_set(e, ERR_ARG, "the prompt is empty");
    if (read_lists(s, e) || use_options(s, e))
        return e->code;
    s->ask.text = (struct str){ s->rendered.p != NULL ? s->rendered.p : "", s->rendered.n };
    return ERR_OK;
}

struct ask_model cli_run_model(struct cli_run *s)
{
    return (struct ask_model){ .text = s->open.text,
                               .chat = s->format,
                               .vocab = &s->vocab,
                               .n_vocab = s->open.model != NULL ? model_info(s->open.model)->n_vocab : 0 };
}

enum err_code cli_run_blame(struct cli_run *s, struct err *e)
{
    if (s->open.text == NULL && s->via == NULL)
        err_wrap(e, "%s", s->open.path);
    else if (strcmp(e->where, "/tool_choice") == 0)
        err_wrap(e, "--tool-choice %s", s->ask.tool_choice);
    else if (strcmp(e->where, "/min_tokens") == 0)
        err_wrap(e, "--min-tokens");
    else if (strcmp(e->where, "/enable_thinking") == 0)
        err_wrap(e, "--think auto");
    cli_reason_fault(e);
    cli_form_fault(&s->o->grammar, e);
    return cli_as_data(e);
}

void cli_run_warn_loose(const struct cli_run *s)
{
    const json_t *line;
    size_t i;

    json_array_foreach (s->asked->loose, i, line)
        cli_warn("%s", json_string_value(line));
}

enum err_code cli_run_ask(struct cli_run *s, struct err *e)
{
    const struct ask_model m = cli_run_model(s);

    ask_close(s->asked);
    s->asked = NULL;
    if (ask_open(&s->asked, &s->ask, &m, NULL, e))
        return cli_run_blame(s, e);
    cli_run_warn_loose(s);
    return ERR_OK;
}

enum err_code cli_run_ask_tokens(struct cli_run *s, struct err *e)
{
    return use_options(s, e) ? e->code : cli_run_ask(s, e);
}
