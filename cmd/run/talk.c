/* SPDX-License-Identifier: Apache-2.0 */
/* talk.c - a conversation on a terminal: lines typed, answers shown, commands that begin with '/'.     room: cmd
 *
 * The conversation is its tokens: a turn's prompt is all of them and the new message, so that the model only reads what
 * is new. What messages they are is found again where it is asked for (cli/transcript.h). */
#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "run/transcript.h"
#include "model/model.h"
#include "run/edit.h"
#include "run/program.h"
#include "run/run.h"
#include "run/session.h"
#include "text/text.h"

enum { FILE_MAX = 64 << 20, SHOWN_BYTES = 72, COMMANDS_MAX = 16 };

struct talk {
    struct cli_run *s;
    struct cli_edit *edit;
    struct text_tokens held; /* the conversation: prompts and answers */
    struct cli_buf message;  /* what is typed and read of the next one */
    struct cli_buf system;   /* n 0: none */
    struct cli_edit_command completed[COMMANDS_MAX];
    bool ends;
};

/* A command went wrong: the conversation goes on. */
static void complain(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
}

/* ---- a turn ---- */

static enum err_code copy_tokens(struct text_tokens *to, const struct text_tokens *from, struct err *e)
{
    to->n = 0;
    return text_tokens_add(to, from->v, from->n, e);
}

/* The prompt of a message. An error is about the message: nothing has changed. */
static enum err_code make_prompt(struct talk *t, struct err *e)
{
    struct cli_run *s = t->s;
    char *const none[] = { NULL };
    const struct cli_said said = { .system = t->held.n == 0 && t->system.n > 0 ? t->system.p : NULL,
                                   .messages = t->held.n == 0 ? s->o->messages : NULL,
                                   .prompt = t->message.p,
                                   .files = none };
    const int64_t ctx = run_ctx(s->run);

    if (copy_tokens(&s->before, &t->held, e) || chat_close_reasoning(s->format, &s->before, e) ||
        cli_run_say(s, &said, e) || cli_run_ask(s, e) || (s->o->drop_oldest && cli_run_drop_oldest(s, ctx, e)))
        return e->code;
    if (prompt_of(s)->n < ctx)
        return ERR_OK;
    return err_set(e, ERR_LIMIT,
                   "the conversation has %" PRId64 " tokens with this message, the context %" PRId64
                   ": /undo, /clear, or begin with a larger --ctx or --drop-oldest",
                   prompt_of(s)->n, ctx);
}

/* Answers the prompt; an error is the end of the program. */
static enum err_code answer_turn(struct talk *t, struct err *e)
{
    struct cli_run *s = t->s;

    cli_answer_close(&s->answer);
    s->read = false;
    if (cli_run_open_answer(s, e))
        return e->code;
    cli_catch_interrupts();
    if (cli_run_generate(s, e))
        return e->code;
    if (!s->read) {
        fprintf(stderr, "stopped before the message was read: it is not part of the conversation\n");
        return ERR_OK;
    }
    if (s->o->predict_max != 0 && cli_run_log(s, e))
        return e->code;
    if (copy_tokens(&t->held, prompt_of(s), e) || text_tokens_add(&t->held, s->answer.ids.v, s->answer.ids.n, e))
        return e->code;
    if (s->o->session != NULL && cli_run_keep(s, e))
        return e->code;
    return cli_open_save_uses(&s->open, e);
}

/* Sends the message. */
static enum err_code send_message(struct talk *t, struct err *e)
{
    struct err own = { 0 };
    enum err_code code = ERR_OK;

    if (make_prompt(t, &own))
        complain(&own);
    else
        code = answer_turn(t, e);
    t->message.n = 0;
    return code;
}

/* The session holds the conversation as it is now, without an answer. */
static enum err_code settle_session(struct talk *t, struct err *e)
{
    const int64_t had = t->s->o->predict_max;
    enum err_code code;

    if (t->s->o->session == NULL)
        return ERR_OK;
    if (t->held.n == 0) { /* one that has not begun */
        run_clear(t->s->run, 0);
        ask_close(t->s->asked);
        t->s->asked = NULL;
        t->s->answer.ids.n = t->s->before.n = 0;
        t->s->read = true;
        return cli_run_keep(t->s, e);
    }
    t->s->o->predict_max = 0;
    code = copy_tokens(&t->s->before, &t->held, e) || cli_run_ask_tokens(t->s, e) ? e->code : answer_turn(t, e);
    t->s->o->predict_max = had;
    return code;
}

/* ---- commands: each is given the rest of its line ---- */

static enum err_code do_clear(struct talk *t, const char *arg, struct err *e)
{
    (void)arg;
    (void)e;
    t->held.n = 0;
    t->message.n = 0;
    return ERR_OK;
}

/* Takes the last message of the user and its answer away, and adds the message to *said. */
static enum err_code undo(struct talk *t, struct cli_buf *said, struct err *e)
{
    struct cli_transcript x;
    const json_t *m;
    size_t i, n_user = 0, last = 0;
    enum err_code code = ERR_OK;

    if (cli_transcript_read(&x, t->s->format, t->s->open.text, &t->held, e))
        return e->code;
    json_array_foreach (x.messages, i, m) {
        if (strcmp(json_string_value(json_object_get(m, "role")), "user") == 0) {
            n_user++;
            last = i;
        }
    }
    if (n_user == 0)
        code = err_set(e, ERR_ARG, "there is no message yet");
    else
        code = cli_buf_add(said,
                           str_of(json_string_value(json_object_get(json_array_get(x.messages, last), "content"))), e);
    if (code == ERR_OK)
        t->held.n = n_user > 1 ? x.from[last] : 0;
    cli_transcript_free(&x);
    return code;
}

static enum err_code do_undo(struct talk *t, const char *arg, struct err *e)
{
    struct cli_buf said = { 0 };
    struct err own = { 0 };
    char words[SHOWN_BYTES];
    enum err_code code = ERR_OK;

    (void)arg;
    if (undo(t, &said, &own)) {
        complain(&own);
    } else {
        cli_first_words(words, sizeof words, said.n > 0 ? said.p : "");
        printf("taken back: %s\n", words);
        code = settle_session(t, e);
    }
    cli_buf_free(&said);
    return code;
}

static enum err_code do_regen(struct talk *t, const char *arg, struct err *e)
{
    struct err own = { 0 };

    (void)arg;
    t->message.n = 0;
    if (!(t->s->o->sampling.o.temp > 0)) {
        fprintf(stderr, "the temperature is 0: the answer would be the same\n");
    } else if (undo(t, &t->message, &own)) {
        complain(&own);
    } else {
        t->s->o->sampling.o.seed++;
        return send_message(t, e);
    }
    return ERR_OK;
}

/* The text behind the command, and what /read put in front of it, in the user's editor. */
static enum err_code do_edit(struct talk *t, const char *arg, struct err *e)
{
    struct cli_buf text = { 0 };
    struct err own = { 0 };
    char words[SHOWN_BYTES];
    enum err_code code = cli_buf_add(&text, (struct str){ t->message.p != NULL ? t->message.p : "", t->message.n }, e)
                             ? e->code
                             : cli_buf_add(&text, str_of(arg), e);

    if (code == ERR_OK && cli_edit_text(&text, &own)) {
        complain(&own); /* what was read before still waits */
    } else if (code == ERR_OK) {
        const struct cli_buf read = t->message;

        t->message = text;
        text = read;
        cli_first_words(words, sizeof words, t->message.p);
        if (words[0] != '\0') {
            printf("asked: %s\n", words);
            code = send_message(t, e);
        } else {
            t->message.n = 0;
        }
    }
    cli_buf_free(&text);
    return code;
}

static enum err_code do_list(struct talk *t, const char *arg, struct err *e)
{
    struct err own = { 0 };

    (void)arg;
    (void)e;
    if (cli_session_list_here(t->s, &t->held, &own))
        complain(&own);
    return ERR_OK;
}

static enum err_code do_read(struct talk *t, const char *arg, struct err *e)
{
    char *data;
    size_t n;
    struct err own = { 0 };
    enum err_code code = ERR_OK;

    if (*arg == '\0') {
        fprintf(stderr, "/read needs the name of a file\n");
        return ERR_OK;
    }
    if (io_read_text(&data, &n, arg, FILE_MAX, cli_interrupted, &own)) {
        complain(&own);
        return ERR_OK;
    }
    if (strlen(data) != n) {
        err_set(&own, ERR_FORMAT, "%s: not a text", arg);
        complain(&own);
    } else if ((code = cli_buf_add(&t->message, (struct str){ data, n }, e)) == ERR_OK &&
               (n == 0 || data[n - 1] == '\n' || (code = cli_buf_add(&t->message, STR("\n"), e)) == ERR_OK))
        printf("%s: %zu bytes, in front of the next message\n", arg, n);
    free(data);
    return code;
}

static enum err_code do_system(struct talk *t, const char *arg, struct err *e)
{
    if (*arg == '\0') {
        puts(t->system.n > 0 ? t->system.p : "there is no system message");
        return ERR_OK;
    }
    if (t->held.n > 0) {
        fprintf(stderr, "the conversation has begun: /clear begins another\n");
        return ERR_OK;
    }
    t->system.n = 0;
    cli_session_set_system(&t->s->kept, arg);
    return cli_buf_add(&t->system, str_of(arg), e);
}

static enum err_code do_think(struct talk *t, const char *arg, struct err *e)
{
    char *end;
    long long n = strtoll(arg, &end, 10);

    (void)t;
    (void)e;
    if (strcmp(arg, "auto") == 0 && t->s->calibration != NULL) {
        t->s->o->think = 2;
    } else if (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0) {
        t->s->o->think = strcmp(arg, "off") == 0;
        t->s->o->reason = (struct cli_reason){ CLI_REASON_DEFAULTS };
    } else if (end != arg && *end == '\0' && n >= 0) {
        t->s->o->think = n == 0;
        t->s->o->reason = (struct cli_reason){ CLI_REASON_DEFAULTS };
        t->s->o->reason.budget = n > 0 ? n : -1;
    } else {
        fprintf(stderr, "/think on, off, auto (with --calibration), or the most tokens of reasoning\n");
    }
    return ERR_OK;
}

/* The messages to a file that was not there. */
static enum err_code save_messages(const struct talk *t, const char *path, struct err *e)
{
    struct cli_transcript x;
    struct io_out *out;
    char *text;
    enum err_code code;

    if (access(path, F_OK) == 0)
        return err_set(e, ERR_IO, "%s: exists already, and stays as it is", path);
    if (cli_transcript_read(&x, t->s->format, t->s->open.text, &t->held, e))
        return e->code;
    text = json_dump(x.messages, JSON_INDENT(2));
    cli_transcript_free(&x);
    if (text == NULL)
        return err_nomem(e);
    code = io_out_open(&out, path, e);
    if (code == ERR_OK) {
        code = io_out_write(out, text, strlen(text), e) ? e->code : io_out_write(out, "\n", 1, e);
        if (code == ERR_OK)
            code = io_out_commit_new(out, e);
        else
            io_out_abort(out);
    }
    free(text);
    return code;
}

static enum err_code do_save(struct talk *t, const char *arg, struct err *e)
{
    struct err own = { 0 };

    (void)e;
    if (*arg == '\0')
        fprintf(stderr, "/save needs the name of a file\n");
    else if (t->held.n == 0)
        fprintf(stderr, "there is no message yet\n");
    else if (save_messages(t, arg, &own))
        complain(&own);
    return ERR_OK;
}

static enum err_code do_stats(struct talk *t, const char *arg, struct err *e)
{
    const struct cli_run *s = t->s;
    const int64_t n = s->answer.ids.n, read = prompt_of(s)->n - s->stats.cached_tokens;

    (void)arg;
    (void)e;
    printf("conversation  %" PRId64 " of %" PRId64 " tokens\n", t->held.n, run_ctx(s->run));
    if (s->prompt_ms > 0)
        printf("last prompt   %" PRId64 " tokens read, %" PRId64 " kept, %.1f tokens/s\n", read, s->stats.cached_tokens,
               (double)read * 1e3 / s->prompt_ms);
    if (n > 1 && s->decode_ms > 0)
        printf("last answer   %" PRId64 " tokens, %.1f tokens/s\n", n, (double)(n - 1) * 1e3 / s->decode_ms);
    if (s->o->session != NULL) {
        const struct run_session_stat st = run_session_stat(s->kept.file);

        printf("session       %.1f MB, of which the last turn wrote %.1f MB\n", (double)st.file_bytes / 1e6,
               (double)st.written_bytes / 1e6);
    }
    return ERR_OK;
}

static enum err_code do_quit(struct talk *t, const char *arg, struct err *e)
{
    (void)arg;
    (void)e;
    t->ends = true;
    return ERR_OK;
}

static enum err_code do_help(struct talk *t, const char *arg, struct err *e);

static const struct {
    const char *name, *arg, *help;
    enum err_code (*run)(struct talk *t, const char *arg, struct err *e);
} commands[] = {
    { "help", "", "this list", do_help },
    { "clear", "", "begin another conversation; the system message stays", do_clear },
    { "undo", "", "take the last message and its answer back, and show the message", do_undo },
    { "regen", "", "another answer to the last message, where --temp is above 0", do_regen },
    { "edit", " TEXT", "write the message in $VISUAL or $EDITOR, and send it", do_edit },
    { "read", " FILE", "put a file's text in front of the next message", do_read },
    { "system", " TEXT", "the system message, before the conversation begins; alone: show it", do_system },
    { "think", " on|off|auto|N", "reason before the answer, or not, or for N tokens at most", do_think },
    { "list", "", "the sessions beside this one, or here", do_list },
    { "save", " FILE", "write the messages to a new file, JSON for --messages", do_save },
    { "stats", "", "how long the conversation is, how fast the answer came", do_stats },
    { "quit", "", "end; ^D does so, too", do_quit },
    { "exit", "", "the same", do_quit },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };
static_assert(sizeof commands / sizeof *commands <= COMMANDS_MAX, "room for each");

static enum err_code do_help(struct talk *t, const char *arg, struct err *e)
{
    (void)t;
    (void)arg;
    (void)e;
    for (int i = 0; i < N_COMMANDS; i++)
        printf("/%s%-*s%s\n", commands[i].name, (int)(18 - strlen(commands[i].name)), commands[i].arg,
               commands[i].help);
    puts("A message of several lines is pasted, or begins and ends with \"\"\". ^C stops an answer. Tab completes "
         "commands.\nA blank in front of / is no command.");
    return ERR_OK;
}

/* A name as Tab writes it, with backslashes before blanks and the like, unless there is a file of just that name. */
static void unquote(char *name)
{
    char *to = name;

    if (access(name, F_OK) == 0)
        return;
    for (const char *from = name; *from != '\0'; from++) {
        from += *from == '\\' && from[1] != '\0';
        *to++ = *from;
    }
    *to = '\0';
}

static enum err_code command(struct talk *t, const char *line, struct err *e)
{
    struct err own = { 0 };
    size_t n = strcspn(line, " \t");
    char *arg = strdup(line + n + strspn(line + n, " \t"));
    enum err_code code = ERR_OK;
    int i = 0;

    if (arg == NULL)
        return err_nomem(e);
    for (size_t end = strlen(arg); end > 0 && strchr(" \t", arg[end - 1]) != NULL;)
        arg[--end] = '\0';
    while (i < N_COMMANDS && (strlen(commands[i].name) != n - 1 || strncmp(line + 1, commands[i].name, n - 1) != 0))
        i++;
    if (i == N_COMMANDS) {
        err_set(&own, ERR_ARG, "%.*s: no such command; /help lists them, a blank in front makes it a message",
                n < SHOWN_BYTES ? (int)n : SHOWN_BYTES, line);
        complain(&own);
        free(arg);
        return ERR_OK;
    }
    if (strcmp(commands[i].arg, " FILE") == 0)
        unquote(arg);
    if (commands[i].arg[0] == '\0' && arg[0] != '\0')
        fprintf(stderr, "/%s takes nothing after it\n", commands[i].name);
    else
        code = commands[i].run(t, arg, e);
    free(arg);
    return code;
}

/* ---- the loop ---- */

/* Lines up to one that ends with the quotes; false: the message was given up. */
static bool read_block(struct talk *t, const char *line, struct err *e)
{
    static const char quotes[] = "\"\"\"";
    enum cli_typed typed = TYPED_LINE;

    for (line += 3; typed == TYPED_LINE; typed = cli_edit_line(t->edit, "... ", &line)) {
        size_t n = strlen(line);
        bool last = n >= 3 && strcmp(line + n - 3, quotes) == 0;

        if (cli_buf_add(&t->message, (struct str){ line, last ? n - 3 : n }, e) ||
            cli_buf_add(&t->message, STR("\n"), e))
            return false;
        if (last)
            return true;
    }
    t->message.n = 0;
    return false;
}

static enum err_code take_line(struct talk *t, const char *line, struct err *e)
{
    if (line[0] == '/' && strchr(line, '\n') == NULL) /* several lines were pasted */
        return command(t, line, e);
    if (strncmp(line, "\"\"\"", 3) == 0) {
        if (!read_block(t, line, e))
            return e->code;
    } else if (line[strspn(line, " \t")] == '\0') {
        return ERR_OK;
    } else if (cli_buf_add(&t->message, str_of(line), e)) {
        return e->code;
    }
    return send_message(t, e);
}

static enum err_code loop(struct talk *t, struct err *e)
{
    const char *line;

    while (!t->ends) {
        /* ^C stops an answer or drops a line; other signals end the program, which has saved what there was. */
        if (cli_signal() != 0 && cli_signal() != SIGINT)
            return ERR_OK;
        cli_forget_signal();
        switch (cli_edit_line(t->edit, "> ", &line)) {
        case TYPED_LINE:
            if (take_line(t, line, e))
                return e->code;
            break;
        case TYPED_SIGNAL:
            t->message.n = 0;
            break;
        case TYPED_END:
            t->ends = true;
            break;
        }
    }
    return ERR_OK;
}

/* What a session has of it, and its system message. */
static enum err_code go_on(struct talk *t, struct err *e)
{
    struct cli_run *s = t->s;
    struct cli_transcript x;
    const json_t *first;
    struct err own;
    const char *text = s->o->system != NULL ? s->o->system : "";
    enum err_code code;

    if (s->o->messages != NULL && s->kept.begun)
        return err_set(e, ERR_ARG, "%s: the session has begun: too late for --messages", s->o->session);
    if (s->o->session == NULL || !s->kept.begun) {
        cli_session_set_system(&s->kept, s->o->system);
        return cli_buf_add(&t->system, str_of(text), e);
    }
    if (s->o->system != NULL && !cli_session_same_system(&s->kept, s->o->system))
        return err_set(
            e, ERR_ARG,
            "%s: the session has begun with another system message: leave --system out, or name another file",
            s->o->session);
    if (cli_session_prefix(&s->kept, true, s->format, &t->held, e))
        return e->code;
    if (s->o->system != NULL || cli_transcript_read(&x, s->format, s->open.text, &t->held, &own))
        return cli_buf_add(&t->system, str_of(text), e);
    first = json_array_get(x.messages, 0);
    if (first != NULL && strcmp(json_string_value(json_object_get(first, "role")), "system") == 0)
        text = json_string_value(json_object_get(first, "content"));
    code = cli_buf_add(&t->system, str_of(text), e);
    cli_transcript_free(&x);
    return code;
}

/* What options name is looked at before the first message is typed: a prompt is made, and an answer begun. */
static enum err_code rehearse(struct talk *t, struct err *e)
{
    struct cli_run *s = t->s;
    char *const none[] = { NULL };
    const struct cli_said said = { .messages = s->o->messages, .prompt = "x", .files = none };

    if (s->o->messages != NULL && t->held.n > 0)
        return err_set(e, ERR_ARG, "%s: the session has begun: too late for --messages", s->o->session);
    return cli_run_say(s, &said, e) || cli_run_ask(s, e) || cli_run_open_answer(s, e) ? e->code : ERR_OK;
}

/* The model, and the session's state in it. */
static enum err_code open_all(struct talk *t, struct err *e)
{
    struct cli_run *s = t->s;

    s->chat = true;
    if (cli_run_format(s, e) || cli_beside_texts(&s->beside, &s->o->beside, &s->open, e) || go_on(t, e) ||
        rehearse(t, e) || copy_tokens(&s->before, &t->held, e))
        return e->code;
    /* A match leaves the last token of a prompt to be evaluated: one that stands for the next message. */
    if (text_tokens_push(&s->before, 0, e) || cli_run_ask_tokens(s, e) || cli_run_open(s, e))
        return e->code;
    cli_run_note_machine(s);
    for (int i = 0; i < N_COMMANDS; i++)
        t->completed[i] = (struct cli_edit_command){ commands[i].name, commands[i].arg[0] != '\0',
                                                     strcmp(commands[i].arg, " FILE") == 0 };
    return cli_edit_open(&t->edit, t->completed, N_COMMANDS, e);
}

static enum err_code first_message(struct talk *t, char *const *files, struct err *e)
{
    if (t->s->o->prompt == NULL && *files == NULL)
        return ERR_OK;
    cli_buf_free(&t->message);
    return cli_read_prompt(&t->message, t->s->o->prompt, files, e) ? e->code : send_message(t, e);
}

enum err_code cli_run_talk(struct cli_run *s, char *const *files, struct err *e)
{
    struct talk t = { .s = s };
    enum err_code code = ERR_OK;

    if (s->o->template_file == NULL && text_info(s->open.text)->chat_template.n == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no conversation: use --template",
                       s->open.path);
    code = open_all(&t, e);
    if (code == ERR_OK && !s->o->quiet)
        printf("%s, %" PRId64 " tokens of context; /help lists the commands, ^D ends\n", s->open.path, run_ctx(s->run));
    if (code == ERR_OK)
        code = first_message(&t, files, e);
    if (code == ERR_OK)
        code = loop(&t, e);
    cli_edit_close(t.edit);
    text_tokens_free(&t.held);
    cli_buf_free(&t.message);
    cli_buf_free(&t.system);
    return code;
}
