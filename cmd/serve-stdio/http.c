/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - a thin front over HTTP (http.h).                                  room: cmd */
#include "serve-stdio/http.h"

#ifdef CHIMERE_HTTP
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "serve-stdio/reload.h"
#include "serve-stdio/aside.h"
#include "serve-stdio/http_files.h"
#include "serve-stdio/http_head.h"
#include "serve-stdio/http_reply.h"
#include "serve-stdio/http_state.h"
#include "serve-stdio/keys.h"
#include "serve/serve.h"

enum {
    STREAM_BYTES_MAX = 16 << 20, /* that a client may leave unread */
    HEAD_BYTES_MAX = 64 << 10,
    CROWD_MS = 10,        /* while there are too many connections */
    WAIT_MS = 500,        /* at most without a look at signals and clocks */
    PROBE_MS = 5000,      /* between signs of life */
    FIRST_PROBE_MS = 200, /* until the first one, which short answers need not */
    PROBES = 16,          /* connections beyond those of requests */
    LOADING_MS = 100,     /* at most without a look at signals while the model is loading */
};

/* An error as serve_error() makes it. */
#define NO_MEMORY "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}"

/* ---- requests ---- */

/* Takes a part of the body. One that is too long is still read for a while: an answer sent in the middle of it would be
 * lost. */
static enum MHD_Result take_body(struct cli_http_request *r, struct str part)
{
    const size_t most = (size_t)r->h->o.body_bytes_max;
    struct err e;

    if (r->form != NULL) {
        cli_form_add(r->form, part);
        return MHD_YES;
    }
    if (!r->too_long && !r->no_room && part.n <= most - r->body.n && cli_buf_add(&r->body, part, &e) == ERR_OK)
        return MHD_YES;
    r->too_long = r->too_long || part.n > most - r->body.n;
    r->no_room = !r->too_long;
    cli_buf_free(&r->body);
    r->at += part.n;
    return r->at < 4 * most ? MHD_YES : MHD_NO;
}

static void suspend(struct cli_http_request *r)
{
    MHD_suspend_connection(r->connection);
    r->suspended = true;
}

static void resume(struct cli_http_request *r)
{
    if (r->suspended) {
        MHD_resume_connection(r->connection);
        r->h->resumed = true;
    }
    r->suspended = false;
}

/* While the engine's thread is elsewhere, serve hears of it later: settle_requests(). */
static void cancel_request(struct cli_http_request *r)
{
    if (r->id == 0 || r->over)
        return;
    if (r->h->away)
        r->cancelled = true;
    else
        serve_cancel(r->h->serve, r->id);
}

/* What is asked about files and batches is answered at once. Each key has its own. */
static enum MHD_Result answer_about_files(struct cli_http_request *r, const char *path, const char *verb)
{
    const char *key = cli_http_sent_key(r), *type;
    const struct cli_files_request q = { .of = r->connection,
                                         .path = path,
                                         .verb = verb,
                                         .body = { r->body.p != NULL ? r->body.p : "", r->body.n },
                                         .form = r->form,
                                         .owner = r->h->keys != NULL ? io_hash(1, key, strlen(key)) : 0 };
    int status;

    if (r->too_long)
        return cli_http_refuse(r, 413, "the body is too large (--max-body)");
    if (r->no_room)
        return cli_http_refuse(r, 503, "out of memory");
    struct MHD_Response *m = cli_files_answer(r->h->o.batches, &q, &status, &type);

    r->over = true;
    return cli_http_queue(r, m, status, type);
}

static enum MHD_Result answer_probe(struct cli_http_request *r)
{
    const char *type;
    int status;
    struct MHD_Response *m = cli_http_probe(r->h, r->method, &status, &type);

    r->over = true;
    return cli_http_queue(r, m, status, type);
}

/* The whole request is here. */
static enum MHD_Result ask_server(struct cli_http_request *r, const char *path)
{
    struct cli_http *h = r->h;
    struct err why = { 0 };
    json_t *body = NULL;
    const char *client;
    const bool post = strcmp(r->row->verb, "POST") == 0;
    enum serve_method m;
    struct str rest = { "", 0 };
    enum err_code code;

    if (r->too_long)
        return cli_http_refuse(r, 413, "the body is too large (--max-body)");
    if (r->no_room)
        return cli_http_refuse(r, 503, "out of memory");
    if (post && serve_parse(&body, (struct str){ r->body.p != NULL ? r->body.p : "", r->body.n }, "the body", &why)) {
        json_decref(body);
        return cli_http_refuse_at(r, why.code == ERR_NOMEM ? 503 : 400, why.where[0] == '/' ? why.where : "", why.msg);
    }
    if (!post && serve_method_at(&m, path, &rest) && rest.n > 0 &&
        (body = json_pack("{s:o}", "model", json_bytes(rest))) == NULL)
        return cli_http_refuse(r, 503, "out of memory");
    cli_buf_free(&r->body);
    if (serve_row(r->method)->answer == NULL &&
        serve_waiting(h->serve) + serve_answers(r->method, body) > h->o.max_queue) {
        json_decref(body);
        return cli_http_refuse(r, 429, "too many answers wait (--max-queue)");
    }
    r->wants_stream = json_is_true(json_object_get(body, "stream"));
    client = h->keys != NULL ? cli_http_sent_key(r) : serve_user(r->method, body);
    const struct serve_client who = { .name = str_of(client != NULL ? client : ""),
                                      .key = h->keys != NULL ? str_of(cli_http_sent_key(r)) : STR("") };

    code = serve_ask(h->serve, r->method, body, &who, r, &r->id, &why);
    json_decref(body);
    if (code)
        return cli_http_refuse(r, 503, why.msg);
    r->stage = ASKED;
    r->alive_ms = clock_ms();
    suspend(r);
    return MHD_YES;
}

/* ---- replies ---- */

static ssize_t next_bytes(void *cls, uint64_t at, char *to, size_t most)
{
    struct cli_http_request *r = cls;
    const size_t n = r->body.n - r->at < most ? r->body.n - r->at : most;

    (void)at;
    if (r->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        if (r->over)
            return MHD_CONTENT_READER_END_OF_STREAM;
        suspend(r);
        return 0;
    }
    memcpy(to, r->body.p + r->at, n);
    r->at += n;
    if (r->at == r->body.n)
        r->at = r->body.n = 0;
    return (ssize_t)n;
}

static enum MHD_Result send_answer(struct cli_http_request *r)
{
    const char *text = json_string_value(json_object_get(r->reply, "text"));

    if (r->gone)
        return MHD_NO;
    if (r->stream)
        return cli_http_queue(r, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 14, next_bytes, r, NULL), 200,
                              "text/event-stream");
    if (serve_row(r->method)->text_type != NULL && text != NULL)
        return cli_http_queue(
            r, MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY), 200,
            serve_row(r->method)->text_type);
    return cli_http_queue(r, cli_http_json(r->reply), r->status, "application/json");
}

/* What went out of a stream makes room for what comes. */
static void trim_stream(struct cli_http_request *r)
{
    if (r->at > r->body.n / 2) {
        memmove(r->body.p, r->body.p + r->at, r->body.n - r->at);
        r->body.n -= r->at;
        r->at = 0;
    }
}

static enum err_code add_event(struct cli_http_request *r, const json_t *body, struct err *e)
{
    char *text = body != NULL ? json_line(body) : NULL;
    const char *type = json_string_value(json_object_get(body, "type")); /* events of responses have one */
    enum err_code code = ERR_OK;
    size_t before;

    if (body == NULL && r->row->anthropic) /* whose last event says that it is the last */
        return ERR_OK;
    trim_stream(r);
    before = r->body.n;
    if (body != NULL && text == NULL)
        code = err_nomem(e);
    else if ((type != NULL && (cli_buf_add(&r->body, STR("event: "), e) || cli_buf_add(&r->body, str_of(type), e) ||
                               cli_buf_add(&r->body, STR("\n"), e))) ||
             cli_buf_add(&r->body, STR("data: "), e) ||
             cli_buf_add(&r->body, text != NULL ? str_of(text) : STR("[DONE]"), e) ||
             cli_buf_add(&r->body, STR("\n\n"), e))
        code = e->code;
    if (code != ERR_OK)
        r->body.n = before;
    free(text);
    return code;
}

static void leave_request(struct cli_http_request *r)
{
    cancel_request(r);
    r->gone = r->over = true;
    resume(r);
}

/* A stream for which memory is out ends with that, if there is memory for this. */
static bool end_stream(struct cli_http_request *r)
{
    static const char sorry[] = "data: " NO_MEMORY "\n\n";
    struct err e;
    json_t *body = serve_error(r->row, 503, NULL, "out of memory");
    bool said;

    cancel_request(r);
    r->over = true;
    said = (body != NULL && add_event(r, body, &e) == ERR_OK) ||
           cli_buf_add(&r->body, (struct str){ sorry, sizeof sorry - 1 }, &e) == ERR_OK;
    json_decref(body);
    return said;
}

static void deliver(struct serve_reply *reply)
{
    struct cli_http_request *r = reply->user;
    struct err e;
    bool kept = true;

    if (reply->kind == SERVE_BEGIN || reply->kind == SERVE_CHUNK || reply->kind == SERVE_END || r->stream) {
        r->stream = true;
        kept = reply->kind == SERVE_BEGIN || add_event(r, reply->body, &e) == ERR_OK || end_stream(r);
        json_decref(reply->body);
    } else {
        r->reply = reply->body;
        r->status = reply->status;
    }
    r->over = r->over || reply->last;
    r->alive_ms = clock_ms();
    if (!kept || (!r->over && r->body.n - r->at > STREAM_BYTES_MAX))
        leave_request(r);
    resume(r);
}

/* ---- clients that leave ---- */

/* A client that has closed its sending side waits for its answer, or has left: then what is sent comes back as an
 * error. A stream also shows that it lives while nothing else is to be sent; one that waits for its turn begins so. */
static void probe(struct cli_http_request *r, double now)
{
    static const char sign[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct err e;

    if (now - r->alive_ms < PROBE_MS || (!r->wants_stream && !r->half))
        return;
    r->alive_ms = now;
    r->stream = r->stream || r->wants_stream;
    if (!r->stream && !r->old) {
        (void)send(cli_connection_socket(r->connection), sign, sizeof sign - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (r->stream && r->body.n == r->at) {
        trim_stream(r);
        if (cli_buf_add(&r->body, STR(":\n\n"), &e))
            leave_request(r);
        resume(r);
    }
}

/* A request that takes too long to come in is cut off, also one that comes byte by byte, and one whose client has left:
 * the library does not always notice that by itself, as it waits for changes alone. */
static void watch_connection(struct cli_http *h, struct cli_connection *l, double now)
{
    struct cli_http_request *r = l->request;

    if (r != NULL && r->stage == ASKED) {
        if (l->gone && !r->over)
            leave_request(r);
        if (l->ended && !r->half) {
            r->half = true;
            r->alive_ms = now - PROBE_MS + FIRST_PROBE_MS;
        }
        if (!r->over)
            probe(r, now);
    } else if (r != NULL && r->put_off) {
        if (l->gone)
            cli_connection_cut(&h->connections, l);
    } else if ((r == NULL || !r->over) &&
               (l->gone || l->ended || now - (r != NULL ? r->from_ms : l->since_ms) > (double)h->o.timeout_s * 1e3)) {
        cli_connection_cut(&h->connections, l);
    }
}

static void watch_connections(struct cli_http *h)
{
    const double now = clock_ms();

    cli_connections_look(&h->connections);
    for (struct cli_connection *l = h->connections.first; l != NULL; l = l->next) {
        const struct cli_http_request *r = l->request;

        l->busy = r != NULL && (r->stage == ASKED || r->over || r->put_off);
        watch_connection(h, l, now);
    }
    cli_connections_make_room(&h->connections, h->o.connections_max, now);
}

/* ---- libmicrohttpd's calls ---- */

static struct cli_connection *line_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

static void notice(void *cls, struct MHD_Connection *connection, void **of, enum MHD_ConnectionNotificationCode what)
{
    struct cli_http *h = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *of = cli_connection_open(&h->connections, connection);
    else if (*of != NULL)
        cli_connection_close(&h->connections, *of);
}

static void *begin_request(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct cli_http *h = cls;
    struct cli_connection *l = line_of(connection);
    struct cli_http_request *r = l != NULL ? calloc(1, sizeof *r) : NULL;

    (void)uri;
    if (r == NULL)
        return NULL;
    l->request = r;
    r->h = h;
    r->line = l;
    r->connection = connection;
    r->from_ms = clock_ms();
    r->next = h->requests;
    r->link = &h->requests;
    if (r->next != NULL)
        r->next->link = &r->next;
    h->requests = r;
    return r;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *path, const char *verb,
                              const char *version, const char *data, size_t *n, void **of)
{
    const struct cli_http *h = cls;
    struct cli_http_request *r = *of;

    if (r == NULL)
        return MHD_queue_response(connection, 503, h->no_memory);
    if (*n > 0) {
        const struct str part = { data, *n };

        *n = 0;
        return take_body(r, part);
    }
    if (r->stage == HEAD) {
        r->stage = BODY;
        return cli_http_take_head(r, path, verb, version);
    }
    if (r->stage == BODY && cli_http_is_probe(r))
        return answer_probe(r);
    r->put_off = r->stage == BODY && h->away;
    if (r->put_off) {
        suspend(r);
        return MHD_YES;
    }
    if (r->files)
        return answer_about_files(r, cli_http_path(connection, path), verb);
    return r->stage == BODY ? ask_server(r, cli_http_path(connection, path)) : send_answer(r);
}

static void free_request(struct cli_http_request *r)
{
    *r->link = r->next;
    if (r->next != NULL)
        r->next->link = r->link;
    free(r);
}

static void end_request(void *cls, struct MHD_Connection *connection, void **of, enum MHD_RequestTerminationCode why)
{
    struct cli_http_request *r = *of;

    (void)cls;
    (void)connection;
    (void)why;
    *of = NULL;
    if (r == NULL)
        return;
    r->line->request = NULL;
    r->line->since_ms = clock_ms();
    cancel_request(r);
    cli_buf_free(&r->body);
    cli_form_close(r->form);
    json_decref(r->reply);
    r->form = NULL;
    r->reply = NULL;
    r->over = r->closed = true;
    r->suspended = r->put_off = false;
    if (!r->cancelled)
        free_request(r);
}

/* The engine's thread has returned: what was put off goes on, and serve hears who has left. */
static void settle_requests(struct cli_http *h)
{
    for (struct cli_http_request *r = h->requests, *next; r != NULL; r = next) {
        next = r->next;
        if (r->cancelled)
            serve_cancel(h->serve, r->id);
        r->cancelled = false;
        if (r->put_off)
            resume(r);
        if (r->closed)
            free_request(r);
    }
}

/* ---- the loop ---- */

static enum err_code start_daemon(struct cli_http *h, struct err *e)
{
    /* A few more, so that who comes when all are taken is seen, and may push out another; and some for probes. */
    const unsigned most = (unsigned)(h->o.connections_max + h->o.connections_max / 4 + PROBES);

    h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h,
                                 MHD_OPTION_EXTERNAL_LOGGER, cli_http_hear_library, h, MHD_OPTION_LISTEN_SOCKET,
                                 h->listen.fd, MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)HEAD_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->o.timeout_s,
                                 MHD_OPTION_UNESCAPE_CALLBACK, cli_http_unescape, NULL, MHD_OPTION_URI_LOG_CALLBACK,
                                 begin_request, h, MHD_OPTION_NOTIFY_COMPLETED, end_request, h,
                                 MHD_OPTION_NOTIFY_CONNECTION, notice, h, MHD_OPTION_END);
    if (h->daemon == NULL)
        return err_errno(e, ERR_IO, errno, "%s: cannot serve", h->listen.url);
    h->no_memory =
        MHD_create_response_from_buffer(sizeof NO_MEMORY - 1, (void *)(uintptr_t)NO_MEMORY, MHD_RESPMEM_PERSISTENT);
    return cli_http_add_headers(h->no_memory, 503, "application/json", h->o.cors, false) ? ERR_OK : err_nomem(e);
}

/* Milliseconds that may pass without a turn. */
static int wait_ms(const struct cli_http *h)
{
    MHD_UNSIGNED_LONG_LONG most = WAIT_MS;

    if (h->resumed) /* which the library does not count as something to do */
        return 0;
    if (MHD_get_timeout(h->daemon, &most) != MHD_YES || most > WAIT_MS)
        most = WAIT_MS;
    if (h->connections.n > h->o.connections_max && most > CROWD_MS)
        most = CROWD_MS;
    return h->serve == NULL && most > LOADING_MS ? LOADING_MS : (int)most;
}

/* While the engine's thread is elsewhere. Loading ends with the first signal, as nothing was asked yet. */
static int turn_aside(void *of)
{
    struct cli_http *h = of;

    if (h->serve == NULL && cli_interrupted()) {
        cli_listen_close(&h->listen);
        _exit(EXIT_OK);
    }
    h->resumed = false;
    (void)MHD_run(h->daemon);
    watch_connections(h);
    return wait_ms(h);
}

static bool has_batches(const struct cli_http *h)
{
    return h->o.batches != NULL && !h->draining && cli_batches_busy(h->o.batches);
}

static int epoll_of(const struct cli_http *h)
{
    return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

/* Waits for a socket, unless something can be done at once. */
static enum err_code wait_some(struct cli_http *h, struct err *e)
{
    struct pollfd p = { .fd = epoll_of(h), .events = POLLIN };

    if (serve_busy(h->serve) || has_batches(h))
        return ERR_OK;
    if (poll(&p, 1, wait_ms(h)) < 0 && errno != EINTR)
        return err_errno(e, ERR_IO, errno, "%s: cannot wait", h->listen.url);
    return ERR_OK;
}

/* What may take long, while the other thread has the sockets: files that are opened anew, and a step. */
static enum err_code work_away(struct cli_http *h, struct cli_reload *beside, bool *reloaded, struct err *e)
{
    enum err_code code = ERR_OK;

    serve_look(h->serve, &h->status);
    h->away_ms = clock_ms();
    h->away = true;
    cli_aside_leave(h->aside);
    *reloaded = cli_reload_turn(beside, h->serve);
    if (serve_busy(h->serve))
        code = serve_step(h->serve, e);
    cli_aside_return(h->aside);
    h->away = false;
    settle_requests(h);
    return code;
}

static void read_again(struct cli_http *h)
{
    struct err why;

    if (h->keys != NULL && cli_keys_read(&h->keys, h->o.api_key_file, true, &why))
        cli_reload_stays("--api-key-file", &why);
    h->o.reloaded(h->o.of);
}

static enum err_code run_turn(struct cli_http *h, struct cli_reload *beside, struct err *e)
{
    bool reloaded;
    struct serve_reply reply;

    h->resumed = false;
    if (MHD_run(h->daemon) != MHD_YES)
        return err_set(e, ERR_IO, "%s: cannot go on serving", h->listen.url);
    if (has_batches(h))
        cli_batches_turn(h->o.batches);
    if (work_away(h, beside, &reloaded, e))
        return e->code;
    if (reloaded)
        read_again(h);
    while (serve_next(h->serve, &reply))
        if (h->o.batches == NULL || !cli_batches_take(h->o.batches, &reply))
            deliver(&reply);
    watch_connections(h);
    return wait_some(h, e);
}

/* The first signal begins the time of --notice, whose end that of --drain. */
static void watch_signals(struct cli_http *h, double *until_ms)
{
    if (!cli_interrupted() || h->draining)
        return;
    if (*until_ms == 0)
        *until_ms = clock_ms() + (double)h->o.notice_s * 1e3;
    if (clock_ms() < *until_ms)
        return;
    h->draining = true;
    *until_ms = clock_ms() + (double)h->o.drain_s * 1e3;
    (void)MHD_quiesce_daemon(h->daemon);
    cli_listen_close(&h->listen); /* who comes now is refused at once */
}

static bool has_left(struct cli_http *h)
{
    const bool busy = serve_busy(h->serve) || has_batches(h) || h->requests != NULL || h->connections.n > 0;

    return h->o.exit_idle_s > 0 && !h->draining && cli_listen_left(&h->listen, busy, h->o.exit_idle_s);
}

enum err_code cli_http_run(struct cli_http *h, struct serve *s, struct cli_reload *beside, struct err *e)
{
    double until_ms = 0;
    enum err_code code;

    cli_aside_return(h->aside);
    h->away = false;
    h->serve = s;
    settle_requests(h); /* those for a socket that was handed down, which wait: they may be why the program runs */
    if (cli_json_line(json_pack("{s:s, s:s}", "type", "listening", "url", h->listen.url), e))
        return e->code;
    if (strncmp(h->listen.url, "http", 4) == 0)
        cli_summary("a page to chat with: %s/", h->listen.url);
    do {
        watch_signals(h, &until_ms);
        code = run_turn(h, beside, e);
    } while (code == ERR_OK && !has_left(h) && !(h->draining && (h->requests == NULL || clock_ms() > until_ms)));
    return code;
}

bool cli_http_loaded(void *of, uint64_t done, uint64_t total)
{
    struct cli_http *h = of;

    h->loaded = total > 0 ? (int)(1000 * done / total) : 0;
    return !cli_interrupted();
}

enum err_code cli_http_open(struct cli_http **out, const struct cli_http_opts *o, struct err *e)
{
    struct cli_http *h;

    if (o->cors != NULL && !cli_http_is_origin(o->cors))
        return err_set(e, ERR_ARG, "--cors %s: not * or an origin, a scheme, :// and a host", o->cors);
    h = calloc(1, sizeof *h);
    if (h == NULL)
        return err_nomem(e);
    h->o = *o;
    h->listen.fd = -1;
    if ((o->api_key_file != NULL && cli_keys_read(&h->keys, o->api_key_file, false, e)) ||
        cli_listen_open(&h->listen, o->listen, e)) {
        cli_http_close(h);
        return e->code;
    }
    if (!h->listen.loopback && h->keys == NULL) {
        err_set(e, ERR_ARG, "--listen: others reach %s: --api-key-file is needed", h->listen.url);
        cli_http_close(h);
        return e->code;
    }
    h->away = true;
    if (start_daemon(h, e) || cli_aside_open(&h->aside, epoll_of(h), turn_aside, h, e)) {
        cli_http_close(h);
        return e->code;
    }
    *out = h;
    return ERR_OK;
}

void cli_http_close(struct cli_http *h)
{
    if (h == NULL)
        return;
    if (h->aside != NULL && h->serve == NULL) /* nothing was loaded */
        cli_aside_return(h->aside);
    cli_aside_close(h->aside);
    h->away = false;
    for (struct cli_http_request *r = h->requests; r != NULL; r = r->next)
        leave_request(r);
    if (h->daemon != NULL)
        MHD_stop_daemon(h->daemon);
    if (h->no_memory != NULL)
        MHD_destroy_response(h->no_memory);
    cli_listen_close(&h->listen);
    cli_connections_free(&h->connections);
    cli_keys_free(h->keys);
    free(h);
}
#else
bool cli_http_loaded(void *of, uint64_t done, uint64_t total)
{
    (void)of;
    (void)done;
    return total > 0;
}

enum err_code cli_http_open(struct cli_http **out, const struct cli_http_opts *o, struct err *e)
{
    (void)out;
    return err_set(e, ERR_UNSUPPORTED, "--listen: %s: this program was built without HTTP (libmicrohttpd)", o->listen);
}

enum err_code cli_http_run(struct cli_http *h, struct serve *s, struct cli_reload *beside, struct err *e)
{
    (void)h;
    (void)s;
    (void)beside;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without HTTP");
}

void cli_http_close(struct cli_http *h)
{
    (void)h;
}
#endif
