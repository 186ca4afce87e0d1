/* SPDX-License-Identifier: Apache-2.0 */
/* via.c - --via: a server that has the model open answers; what it sends is shown as an answer of our own.  room: cmd
 *
 * Two requests over one connection to its Unix socket: GET /props says what the server has open, POST /v1/ask takes the
 * question and brings events (ask/wire.h), up to the end of the connection, as HTTP/1.0 has it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ask/wire.h"
#include "base/clock.h"
#include "cli/lines.h"
#include "cli/resident.h"
#include "run/program.h"

enum {
    SILENT_MS = 2000,          /* of a server that may be left out */
    AGAIN_MS = 20,             /* until another attempt, where too many wait already, or the server starts */
    WAIT_MS = 500,             /* at most without a look at signals */
    LINE_BYTES_MAX = 64 << 20, /* of a reply */
    NOT_READY = 503            /* the status while the model is loading, or the server about to end */
};

struct cli_via {
    struct sockaddr_un at;
    double until_ms; /* by then there has to be a reply; 0: whenever */
    int fd;
    int status; /* of the newest reply; 0: none */
    struct cli_lines in;
    json_t *facts, *first, *newest; /* of the server; of the question; the event at hand */
    struct ask_event event;
    struct str *breakers;
};

static enum err_code say_silent(struct err *e)
{
    return err_set(e, ERR_IO, "the server says nothing for %d seconds", SILENT_MS / 1000);
}

static enum err_code say_ended(struct err *e)
{
    return err_set(e, ERR_IO, "the server ended before its answer did");
}

/* ---- the socket ---- */

static void hang_up(struct cli_via *v)
{
    if (v->fd >= 0)
        close(v->fd);
    v->fd = -1;
    cli_lines_free(&v->in);
    v->in = (struct cli_lines){ .fd = -1, .line_max = LINE_BYTES_MAX };
}

/* Waits for a change; false: the time is over. */
static bool wait_for(const struct cli_via *v, short what, int most_ms)
{
    struct pollfd p = { .fd = v->fd, .events = what };
    const double left = v->until_ms > 0 ? v->until_ms - clock_ms() : most_ms;

    if (left <= 0)
        return false;
    (void)poll(&p, what != 0, left < most_ms ? (int)left + 1 : most_ms);
    return true;
}

/* Whoever could answer in the place of a server of this user would see what is asked: that may be root alone. */
static enum err_code check_owner(const struct cli_via *v, struct err *e)
{
#ifdef SO_PEERCRED
    struct {
        pid_t pid;
        uid_t uid;
        gid_t gid;
    } peer;
    socklen_t n = sizeof peer;

    if (getsockopt(v->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
        return err_errno(e, ERR_IO, errno, "whose server it is cannot be found out");
    const uid_t owner = peer.uid;
#else
    struct stat st;

    if (stat(v->at.sun_path, &st))
        return err_errno(e, ERR_IO, errno, "whose server it is cannot be found out");
    const uid_t owner = st.st_uid;
#endif
    return owner == geteuid() || owner == 0
               ? ERR_OK
               : err_set(e, ERR_IO, "the server is another user's (uid %u)", (unsigned)owner);
}

static enum err_code call_up(struct cli_via *v, struct err *e)
{
    hang_up(v);
    v->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (v->fd < 0)
        return err_errno(e, ERR_IO, errno, "no socket");
    while (connect(v->fd, (const struct sockaddr *)&v->at, sizeof v->at) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "no server answers");
        if (!wait_for(v, 0, AGAIN_MS))
            return say_silent(e);
    }
    v->in.fd = v->fd;
    return check_owner(v, e);
}

/* A server that has heard enough closes its side: its reply says why. */
static enum err_code send_bytes(struct cli_via *v, struct str s, struct err *e)
{
    while (s.n > 0) {
        const ssize_t n = send(v->fd, s.p, s.n, MSG_NOSIGNAL);

        if (n > 0)
            s = (struct str){ s.p + n, s.n - (size_t)n };
        else if (errno == EPIPE || errno == ECONNRESET)
            return ERR_OK;
        else if (errno != EAGAIN && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "cannot ask the server");
        else if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        else if (!wait_for(v, POLLOUT, WAIT_MS))
            return say_silent(e);
    }
    return ERR_OK;
}

/* Takes what has come, or waits for it. *ended: nothing more comes. */
static enum err_code hear(struct cli_via *v, bool *ended, struct err *e)
{
    struct err why;

    *ended = v->in.eof;
    if (*ended)
        return ERR_OK;
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (!wait_for(v, POLLIN, WAIT_MS))
        return say_silent(e);
    if (cli_lines_read(&v->in, 0, &why))
        return why.code == ERR_NOMEM ? err_copy(e, &why) : say_ended(e);
    return ERR_OK;
}

/* The next line, without its end. *ended: there is none. */
static enum err_code next_line(struct cli_via *v, struct str *line, bool *ended, struct err *e)
{
    enum cli_line got;

    *ended = false;
    while ((got = cli_lines_next(&v->in, line)) == CLI_LINE_NONE)
        if (hear(v, ended, e) || *ended)
            return e->code;
    if (got != CLI_LINE)
        return err_set(e, ERR_IO, "the server's reply is too long");
    if (line->n > 0 && line->p[line->n - 1] == '\r')
        line->n--;
    return ERR_OK;
}

/* ---- requests ---- */

/* Reads the body of a reply: n bytes, a JSON object. */
static enum err_code read_body(struct cli_via *v, int64_t n, json_t **body, struct err *e)
{
    struct str text;
    bool ended = false;
    struct err why;

    if (n < 0 || n > LINE_BYTES_MAX)
        return err_set(e, ERR_IO, "what answers is no server of ours");
    while (!cli_lines_take(&v->in, (size_t)n, &text))
        if (hear(v, &ended, e) || ended)
            return e->code != ERR_OK ? e->code : say_ended(e);
    return json_parse_own(body, text, "reply", &why) ? err_set(e, ERR_IO, "what answers is no server of ours") : ERR_OK;
}

/* What the server says that it does not answer with. */
static enum err_code say_refused(struct cli_via *v, int64_t n, struct err *e)
{
    json_t *body = NULL;
    const char *message;

    if (read_body(v, n, &body, e))
        return e->code;
    message = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    err_set(e, ERR_IO, "the server answers %d: %s", v->status, message != NULL ? message : "no reason");
    json_decref(body);
    return e->code;
}

/* Sends a request, and reads the head of the reply. *n: bytes of its body; -1: up to its end. */
static enum err_code request(struct cli_via *v, const char *what, struct str body, int64_t *n, struct err *e)
{
    static const char length[] = "Content-Length: ";
    char head[160];
    struct str line;
    bool ended;

    *n = -1;
    (void)snprintf(head, sizeof head, "%s\r\nHost: localhost\r\n%s%zu\r\n\r\n", what, length, body.n);
    if (send_bytes(v, str_of(head), e) || send_bytes(v, body, e) || next_line(v, &line, &ended, e))
        return e->code;
    if (ended)
        return say_ended(e);
    if (line.n > 12 && memcmp(line.p, "HTTP/1.", 7) == 0)
        v->status = atoi(line.p + 9);
    if (v->status == 0)
        return err_set(e, ERR_IO, "what answers is no server of ours");
    do {
        if (next_line(v, &line, &ended, e))
            return e->code;
        if (line.n > sizeof length - 1 && line.n < 40 && strncasecmp(line.p, length, sizeof length - 1) == 0)
            *n = atoll(line.p + sizeof length - 1);
    } while (!ended && line.n > 0);
    return ended ? say_ended(e) : v->status == 200 ? ERR_OK : say_refused(v, *n, e);
}

/* A server that is starting is waited for. */
static enum err_code read_facts(struct cli_via *v, struct err *e)
{
    json_t *body;
    int64_t n;

    do {
        v->status = 0;
        if (call_up(v, e) == ERR_OK && request(v, "GET /props HTTP/1.1", STR(""), &n, e) == ERR_OK)
            break;
        if (v->status != NOT_READY)
            return e->code;
    } while (wait_for(v, 0, AGAIN_MS));
    if (v->status == NOT_READY)
        return say_silent(e);
    *e = (struct err){ 0 };
    if (read_body(v, n, &body, e))
        return e->code;
    v->facts = json_incref(json_object_get(body, "chimere"));
    json_decref(body);
    return json_is_object(v->facts) ? ERR_OK : err_set(e, ERR_ARG, "the server is another version of these programs");
}

/* The next object of the stream. */
static enum err_code next_part(struct cli_via *v, json_t **out, struct err *e)
{
    struct str line = { NULL, 0 };
    struct err why;
    bool ended;

    do
        if (next_line(v, &line, &ended, e))
            return e->code;
    while (!ended && (line.n < 6 || memcmp(line.p, "data: ", 6) != 0));
    if (ended || json_parse_own(out, (struct str){ line.p + 6, line.n - 6 }, "reply", &why))
        return say_ended(e);
    const char *message = json_string_value(json_object_get(json_object_get(*out, "error"), "message"));

    if (message == NULL || json_object_get(*out, "end") != NULL)
        return ERR_OK;
    err_set(e, ERR_IO, "the server: %s", message);
    json_decref(*out);
    *out = NULL;
    return e->code;
}

/* What a question of our own gets once the model is open. */
static enum err_code complete_question(struct cli_via *v, struct cli_run *s, struct err *e)
{
    struct cli_sampling *sampling = &s->o->sampling;
    const int32_t n_vocab = (int32_t)json_integer_value(json_object_get(v->facts, "n_vocab"));
    struct ask *a = &s->ask;

    if (cli_sampling_make(sampling, NULL, n_vocab, e) || cli_list_strings(&v->breakers, &sampling->breakers, e))
        return e->code;
    a->sample = sampling->o;
    a->breakers = v->breakers;
    a->n_breakers = sampling->breakers.n;
    a->now_s = ask_local_s(); /* by the clock and the zone of the one who asks */
    return ERR_OK;
}

static enum err_code send_question(struct cli_via *v, const struct cli_run *s, struct err *e)
{
    json_t *body;
    char *text;
    int64_t n;

    body = json_pack("{s:o, s:I, s:b}", "question", ask_write(&s->ask), "ctx_tokens",
                     (json_int_t)s->o->model.ctx_tokens, "stream", 1);
    text = body != NULL ? json_dump(body, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(body);
    if (text == NULL)
        return err_nomem(e);
    v->until_ms = 0; /* it is there, and may be busy */
    const enum err_code code =
        request(v, "POST /v1/ask HTTP/1.0", str_of(text), &n, e) || next_part(v, &v->first, e) ? e->code : ERR_OK;

    free(text);
    return code;
}

/* ---- what is known of the prompt ---- */

static int64_t count_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void set_facts(struct cli_run *s, const struct cli_via *v, const json_t *of)
{
    const char *arch = json_string_value(json_object_get(v->facts, "arch")),
               *kv = json_string_value(json_object_get(v->facts, "kv"));

    s->facts = (struct cli_run_facts){ .arch = arch != NULL ? arch : "",
                                       .ctx_tokens = count_of(of, "ctx_tokens"),
                                       .ctx_train = count_of(v->facts, "ctx_train"),
                                       .n_vocab = (int32_t)count_of(v->facts, "n_vocab"),
                                       .kv_fallback = json_is_true(json_object_get(v->facts, "kv_fallback")),
                                       .fingerprint = json_object_get(v->facts, "fingerprint") };
    (void)snprintf(s->facts.kv, sizeof s->facts.kv, "%s", kv != NULL ? kv : "");
}

/* The request as our own report knows it; its tokens are the server's. */
static enum err_code note_request(struct cli_run *s, const struct cli_via *v, struct err *e)
{
    const json_t *of = json_object_get(v->first, "asked"), *refused = json_object_get(v->first, "refused");
    struct ask_request *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_nomem(e);
    of = of != NULL ? of : v->first;
    s->asked = r;
    set_facts(s, v, of);
    r->prompt.n = count_of(of, "prompt_tokens");
    r->q.sample = s->ask.sample;
    if (refused != NULL) {
        if (r->prompt.n >= 0 && cli_run_check_prompt(s, e))
            return e->code;
        ask_read_error(refused, e);
        return cli_run_blame(s, e);
    }
    r->thinking = json_is_true(json_object_get(of, "thinking"));
    r->reasons = json_is_true(json_object_get(of, "reasons"));
    r->parser = json_string_value(json_object_get(of, "parser"));
    r->n_calls = (int)count_of(of, "calls");
    r->loose = json_incref(json_object_get(of, "loose"));
    cli_run_warn_loose(s);
    if (json_is_true(json_object_get(of, "tools")))
        r->tools = json_incref((json_t *)(uintptr_t)s->ask.tools);
    return cli_run_check_prompt(s, e);
}

static enum err_code find_server(struct cli_via *v, const struct cli_run *s, struct err *e)
{
    const char *name = s->o->via;
    json_t *ours = NULL;

    v->at.sun_family = AF_UNIX;
    if (strcmp(name, "auto") == 0) {
        v->until_ms = clock_ms() + SILENT_MS;
        if (!cli_resident_path(v->at.sun_path, sizeof v->at.sun_path))
            return err_set(e, ERR_IO, "XDG_RUNTIME_DIR names no directory for a socket");
    } else {
        const size_t n = strlen(name + 5);

        if (n >= sizeof v->at.sun_path)
            return err_set(e, ERR_ARG, "the path is longer than a socket's can be");
        memcpy(v->at.sun_path, name + 5, n + 1);
    }
    if (cli_resident_facts(&ours, &s->open, s->o->template_file, s->o->parser, e))
        return e->code;
    const enum err_code code =
        read_facts(v, e) || cli_resident_check(v->facts, ours, &s->o->model, e) ? e->code : ERR_OK;

    json_decref(ours);
    return code;
}

enum err_code cli_via_ask(struct cli_run *s, struct err *e)
{
    const bool is_auto = strcmp(s->o->via, "auto") == 0;
    const double from = clock_ms();
    struct cli_via *v = calloc(1, sizeof *v);
    struct err why = { 0 };

    if (v == NULL)
        return err_nomem(e);
    v->fd = -1;
    s->via = v;
    if (find_server(v, s, &why) == ERR_OK)
        s->open.load_ms += clock_ms() - from;
    if (why.code == ERR_OK && complete_question(v, s, e))
        return e->code;
    if (why.code == ERR_OK && send_question(v, s, &why) == ERR_OK &&
        json_is_true(json_object_get(v->first, "cannot"))) {
        ask_read_error(json_object_get(v->first, "refused"), &why);
        why.code = ERR_ARG;
    }
    if (why.code == ERR_OK) {
        if (note_request(s, v, e))
            return e->code;
        cli_note("server   %s", v->at.sun_path);
        return s->o->sampling.logprobs >= 0 || s->o->uncertainty ? cli_open_text(&s->open, true, e) : ERR_OK;
    }
    if (!is_auto || why.code == ERR_NOMEM || why.code == ERR_CANCEL) {
        (void)err_copy(e, &why);
        return err_wrap(e, "--via %s", s->o->via);
    }
    cli_note("server   none: %s", why.msg);
    cli_via_close(v);
    s->via = NULL;
    return ERR_OK;
}

/* ---- the answer ---- */

/* At an interrupt the server is left, which ends its work; the answer ends here as far as it came. */
static enum err_code end_answer(struct cli_run *s, struct cli_via *v, struct err *e)
{
    const struct gen_event ev = { .kind = GEN_END,
                                  .end = GEN_CANCELLED,
                                  .reasoning = s->answer.in_reasoning,
                                  .stats = { .prompt_tokens = s->asked->prompt.n,
                                             .tokens = s->answer.ids.n,
                                             .reasoning_tokens = s->answer.n_reasoning,
                                             .steps = s->answer.ids.n > 0 ? s->answer.ids.n - 1 : 0 } };

    hang_up(v);
    return cli_run_show_event(s, &ev, e);
}

enum err_code cli_via_generate(struct cli_run *s, struct err *e)
{
    struct cli_via *v = s->via;

    s->from_ms = clock_ms();
    do {
        struct err why = { 0 };

        json_decref(v->newest);
        v->newest = NULL;
        if (next_part(v, &v->newest, &why) || ask_read_event(&v->event, v->newest, s->facts.n_vocab, &why)) {
            if (why.code == ERR_CANCEL && cli_interrupted())
                return end_answer(s, v, e);
            (void)err_copy(e, &why);
            return err_wrap(e, "--via %s", s->o->via);
        }
        if (v->event.ev.kind == GEN_PROMPT) /* a place in the queue is no part of it */
            s->from_ms = clock_ms() - json_number_value(json_object_get(v->newest, "ms"));
        if (v->event.ev.kind == GEN_END)
            s->thinking = json_incref(v->event.thinking);
        if (cli_run_show_event(s, &v->event.ev, e))
            return e->code;
    } while (v->event.ev.kind != GEN_END);
    hang_up(v);
    return ERR_OK;
}

void cli_via_close(struct cli_via *v)
{
    if (v == NULL)
        return;
    hang_up(v);
    ask_event_close(&v->event);
    json_decref(v->facts);
    json_decref(v->first);
    json_decref(v->newest);
    free(v->breakers);
    free(v);
}
