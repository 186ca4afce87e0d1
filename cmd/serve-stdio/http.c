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
#include "serve-stdio/connections.h"
#include "serve-stdio/http_files.h"
#include "serve-stdio/http_head.h"
#include "serve-stdio/http_reply.h"
#include "serve-stdio/keys.h"
#include "serve-stdio/listen.h"
#include "serve-stdio/web_page.h"
#include "serve/serve.h"

enum {
    STREAM_BYTES_MAX = 16 << 20, /* that a client may leave unread */
    HEAD_BYTES_MAX = 64 << 10,
    FORM_BYTES = 4096,    /* of a form, beside the file in it */
    CROWD_MS = 10,        /* while there are too many connections */
    WAIT_MS = 500,        /* at most without a look at signals and clocks */
    PROBE_MS = 5000,      /* between signs of life */
    FIRST_PROBE_MS = 200, /* until the first one, which short answers need not */
};

/* An error as serve_error() makes it. */
#define NO_MEMORY "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}"

struct request {
    struct request *next, **link;
    struct cli_http *h;
    struct MHD_Connection *connection;
    struct cli_connection *line;
    enum serve_method method;
    const struct serve_row *row; /* what is served at the path; NULL: nothing */
    bool files;                  /* files or batches are */
    struct cli_form *form;       /* a file that comes in; NULL: none */
    struct cli_buf body;         /* what came; then what goes out of a stream */
    size_t at;                   /* bytes that went out of it */
    double from_ms, alive_ms;    /* its first byte; when something was sent last */
    json_t *reply;               /* whole, with its status */
    int status;
    int64_t id; /* of serve; 0: not asked, or done with */
    enum { HEAD, BODY, ASKED } stage;
    bool too_long, no_room; /* the body is not kept */
    bool wants_stream, stream, over, gone, suspended;
    bool half; /* the client has closed its sending side, or left */
    bool old;  /* HTTP/1.0 */
};

struct cli_http {
    struct cli_http_opts o;
    struct cli_listen listen;
    struct cli_keys *keys; /* NULL: none is asked for */
    struct serve *serve;
    struct MHD_Daemon *daemon;
    struct cli_connections connections;
    struct request *requests;       /* between their first byte and their last */
    struct MHD_Response *no_memory; /* of a request for which there is none to make another */
    bool draining;
    bool resumed; /* a connection, since the library's last turn */
};

/* ---- responses ---- */

/* Without m, or without memory for its headers, the reply is that there is none. */
static enum MHD_Result queue(const struct request *r, struct MHD_Response *m, int status, const char *type)
{
    const struct cli_http *h = r->h;
    bool ok = m != NULL && cli_http_add_headers(m, status, type, h->o.cors, h->draining);
    enum MHD_Result done;

    if (!ok) {
        if (m != NULL)
            MHD_destroy_response(m);
        status = 503;
        m = cli_http_error(r->row, status, "", "out of memory");
        ok = cli_http_add_headers(m, status, "application/json", h->o.cors, h->draining);
    }
    done = MHD_queue_response(r->connection, (unsigned)status, ok ? m : h->no_memory);
    if (m != NULL)
        MHD_destroy_response(m);
    return done;
}

static enum MHD_Result refuse_at(struct request *r, int status, const char *pointer, const char *message)
{
    r->over = true;
    return queue(r, cli_http_error(r->row, status, pointer, message), status, "application/json");
}

static enum MHD_Result refuse_request(struct request *r, int status, const char *message)
{
    return refuse_at(r, status, "", message);
}

/* ---- who may ask ---- */

/* Clients of OpenAI's interface send it one way, those of Anthropic's the other. */
static const char *sent_key(const struct request *r)
{
    const char *v = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Authorization");
    const char *other = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "X-Api-Key");

    if (v != NULL && strncasecmp(v, "Bearer ", 7) == 0)
        return v + 7;
    return other != NULL ? other : "";
}

/* ---- requests ---- */

/* What is served at a path: a method, or a part of the page to chat with. */
static const struct serve_row *find_row(struct request *r, const char *path)
{
    static const struct serve_row part_of_page = { .verb = "GET", .open = true };

    if (cli_page(path) != NULL)
        return &part_of_page;
    r->files = r->h->o.batches != NULL && cli_files_row(path) != NULL;
    if (r->files)
        return cli_files_row(path);
    struct str rest;

    return serve_method_at(&r->method, path, &rest) ? serve_row(r->method) : NULL;
}

/* The question of a browser whether a page may ask. */
static enum MHD_Result preflight(struct request *r)
{
    struct MHD_Response *m = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    const char *asked = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Access-Control-Request-Headers");

    r->over = true;
    m = cli_http_whole(m, m != NULL && cli_http_header(m, "Access-Control-Allow-Methods", "GET, POST, DELETE") &&
                              cli_http_header(m, "Access-Control-Max-Age", "7200") &&
                              cli_http_header(m, "Access-Control-Allow-Headers",
                                              asked != NULL && *asked != '\0' ? asked : "Authorization, Content-Type"));
    return queue(r, m, 204, "text/plain");
}

/* What may be asked at a path, or, with another verb, what it is refused for. */
static enum MHD_Result tell_verbs(struct request *r, const char *path, bool asked)
{
    const char *verbs = r->row != NULL ? r->row->verb : "GET, POST";
    char allowed[80];
    const int status = asked ? 204 : 405;
    char message[160];
    struct MHD_Response *m;

    (void)snprintf(allowed, sizeof allowed, "%s%s, OPTIONS", verbs, cli_http_takes_verb(verbs, "HEAD") ? ", HEAD" : "");
    (void)snprintf(message, sizeof message, "%.100s: ask with %s", path, verbs);
    m = asked ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
              : cli_http_error(r->row, status, "", message);
    r->over = true;
    return queue(r, cli_http_whole(m, m != NULL && cli_http_header(m, "Allow", allowed)), status, "application/json");
}

/* A part of the page to chat with. */
static enum MHD_Result show_page(struct request *r, const struct cli_page *page)
{
    struct MHD_Response *m =
        MHD_create_response_from_buffer(strlen(page->text), (void *)(uintptr_t)page->text, MHD_RESPMEM_PERSISTENT);

    r->over = true;
    m = cli_http_whole(m, m != NULL && cli_http_header(m, "Content-Security-Policy", CLI_PAGE_POLICY) &&
                              cli_http_header(m, "Referrer-Policy", "no-referrer"));
    return queue(r, m, 200, page->type);
}

/* Whether fewer requests are being answered than there may be connections, or not mainly those of this address. */
static bool has_room(const struct request *r)
{
    const int most = r->h->o.connections_max;
    int n = 0;

    for (const struct request *q = r->h->requests; q != NULL && r->h->connections.n > most; q = q->next)
        n += q->stage == ASKED && !q->over;
    return n < most || 2 * r->line->peer->n <= most;
}

/* What the head of a request says; the reply is queued when that is enough to refuse it. */
static enum MHD_Result take_head(struct request *r, const char *target, const char *verb, const char *version)
{
    const char *path = cli_http_path(r->connection, target);
    const struct serve_row *to = path != NULL ? find_row(r, path) : NULL;
    const char *length = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Length");
    const bool options = strcmp(verb, "OPTIONS") == 0;
    int64_t most = r->h->o.body_bytes_max;
    char message[160];
    const char *why;
    const int status = cli_http_doubtful(r->connection, version, &why);

    r->row = to;
    if (r->h->draining)
        return refuse_request(r, 503, "the server is about to end");
    if (status != 0)
        return refuse_request(r, status, why);
    if (path == NULL)
        return refuse_request(r, 400, "the request's target names another host than its field Host");
    if (!cli_http_may_ask(r->connection, r->h->o.cors, r->h->keys != NULL))
        return refuse_request(
            r, 403, "pages of this origin, or requests for this host, are not served (--cors, --api-key-file)");
    if (options && r->h->o.cors != NULL && to != NULL)
        return preflight(r);
    if (options && strcmp(path, "*") == 0)
        return tell_verbs(r, path, true);
    if (r->h->keys != NULL && (to == NULL || !to->open) && !cli_keys_have(r->h->keys, sent_key(r)))
        return refuse_request(r, 401, "no valid key: send one as Authorization: Bearer KEY, or as X-Api-Key: KEY");
    if (to == NULL) {
        (void)snprintf(message, sizeof message, "nothing is served at %.100s%s", path,
                       cli_files_row(path) != NULL ? " without --files" : "");
        return refuse_request(r, 404, message);
    }
    if (!has_room(r))
        return refuse_request(r, 429, "too many connections from this address (--connections)");
    r->old = strcmp(version, "HTTP/1.0") == 0;
    if (!cli_http_takes_verb(to->verb, verb))
        return tell_verbs(r, path, options);
    if (r->files && cli_files_uploads(path, verb)) {
        struct cli_files *files = cli_batches_files(r->h->o.batches);

        most = files->room + FORM_BYTES;
        r->form = cli_form_open(files, r->connection);
        if (r->form == NULL)
            return refuse_request(r, errno == ENOMEM ? 503 : 400,
                                  errno == ENOMEM ? "out of memory" : "a file comes as multipart/form-data");
    }
    if (length != NULL && (strlen(length) > 18 || atoll(length) > most))
        return refuse_request(r, 413,
                              r->form != NULL ? "there is no room for the file (--files-size)"
                                              : "the body is too large (--max-body)");
    if (cli_page(path) != NULL)
        return show_page(r, cli_page(path));
    return MHD_YES;
}

/* Takes a part of the body. One that is too long is still read for a while: an answer sent in the middle of it would be
 * lost. */
static enum MHD_Result take_body(struct request *r, struct str part)
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

static void suspend(struct request *r)
{
    MHD_suspend_connection(r->connection);
    r->suspended = true;
}

static void resume(struct request *r)
{
    if (r->suspended) {
        MHD_resume_connection(r->connection);
        r->h->resumed = true;
    }
    r->suspended = false;
}

/* What is asked about files and batches is answered at once. Each key has its own. */
static enum MHD_Result answer_about_files(struct request *r, const char *path, const char *verb)
{
    const char *key = sent_key(r), *type;
    const struct cli_files_request q = { .of = r->connection,
                                         .path = path,
                                         .verb = verb,
                                         .body = { r->body.p != NULL ? r->body.p : "", r->body.n },
                                         .form = r->form,
                                         .owner = r->h->keys != NULL ? io_hash(1, key, strlen(key)) : 0 };
    int status;

    if (r->too_long)
        return refuse_request(r, 413, "the body is too large (--max-body)");
    if (r->no_room)
        return refuse_request(r, 503, "out of memory");
    struct MHD_Response *m = cli_files_answer(r->h->o.batches, &q, &status, &type);

    r->over = true;
    return queue(r, m, status, type);
}

/* The whole request is here. */
static enum MHD_Result ask_server(struct request *r, const char *path)
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
        return refuse_request(r, 413, "the body is too large (--max-body)");
    if (r->no_room)
        return refuse_request(r, 503, "out of memory");
    if (post && serve_parse(&body, (struct str){ r->body.p != NULL ? r->body.p : "", r->body.n }, "the body", &why)) {
        json_decref(body);
        return refuse_at(r, why.code == ERR_NOMEM ? 503 : 400, why.where[0] == '/' ? why.where : "", why.msg);
    }
    if (!post && serve_method_at(&m, path, &rest) && rest.n > 0 &&
        (body = json_pack("{s:o}", "model", json_bytes(rest))) == NULL)
        return refuse_request(r, 503, "out of memory");
    cli_buf_free(&r->body);
    if (serve_row(r->method)->answer == NULL &&
        serve_waiting(h->serve) + serve_answers(r->method, body) > h->o.max_queue) {
        json_decref(body);
        return refuse_request(r, 429, "too many answers wait (--max-queue)");
    }
    r->wants_stream = json_is_true(json_object_get(body, "stream"));
    client = h->keys != NULL ? sent_key(r) : serve_user(r->method, body);
    const struct serve_client who = { .name = str_of(client != NULL ? client : ""),
                                      .key = h->keys != NULL ? str_of(sent_key(r)) : STR("") };

    code = serve_ask(h->serve, r->method, body, &who, r, &r->id, &why);
    json_decref(body);
    if (code)
        return refuse_request(r, 503, why.msg);
    r->stage = ASKED;
    r->alive_ms = clock_ms();
    suspend(r);
    return MHD_YES;
}

/* ---- replies ---- */

static ssize_t next_bytes(void *cls, uint64_t at, char *to, size_t most)
{
    struct request *r = cls;
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

static enum MHD_Result send_answer(struct request *r)
{
    const char *text = json_string_value(json_object_get(r->reply, "text"));

    if (r->gone)
        return MHD_NO;
    if (r->stream)
        return queue(r, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 14, next_bytes, r, NULL), 200,
                     "text/event-stream");
    if (serve_row(r->method)->text_type != NULL && text != NULL)
        return queue(r, MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY),
                     200, serve_row(r->method)->text_type);
    return queue(r, cli_http_json(r->reply), r->status, "application/json");
}

/* What went out of a stream makes room for what comes. */
static void trim_stream(struct request *r)
{
    if (r->at > r->body.n / 2) {
        memmove(r->body.p, r->body.p + r->at, r->body.n - r->at);
        r->body.n -= r->at;
        r->at = 0;
    }
}

static enum err_code add_event(struct request *r, const json_t *body, struct err *e)
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

static void leave_request(struct request *r)
{
    if (r->id != 0 && !r->over)
        serve_cancel(r->h->serve, r->id);
    r->gone = r->over = true;
    resume(r);
}

/* A stream for which memory is out ends with that, if there is memory for this. */
static bool end_stream(struct request *r)
{
    static const char sorry[] = "data: " NO_MEMORY "\n\n";
    struct err e;
    json_t *body = serve_error(r->row, 503, NULL, "out of memory");
    bool said;

    if (r->id != 0 && !r->over)
        serve_cancel(r->h->serve, r->id);
    r->over = true;
    said = (body != NULL && add_event(r, body, &e) == ERR_OK) ||
           cli_buf_add(&r->body, (struct str){ sorry, sizeof sorry - 1 }, &e) == ERR_OK;
    json_decref(body);
    return said;
}

static void deliver(struct serve_reply *reply)
{
    struct request *r = reply->user;
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
static void probe(struct request *r, double now)
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
    struct request *r = l->request;

    if (r != NULL && r->stage == ASKED) {
        if (l->gone && !r->over)
            leave_request(r);
        if (l->ended && !r->half) {
            r->half = true;
            r->alive_ms = now - PROBE_MS + FIRST_PROBE_MS;
        }
        if (!r->over)
            probe(r, now);
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
        const struct request *r = l->request;

        l->busy = r != NULL && (r->stage == ASKED || r->over);
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

/* Whether this can be what the library refuses: of what it names a length, a chunk or only the status. */
static bool fits_refusal(const struct request *r, unsigned status, const char *page)
{
    const char *length =
        r != NULL ? MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Length") : NULL;

    if (r == NULL || r->over)
        return r == NULL && (status == 414 || status == 505 || status == 400);
    if (strstr(page, "chunk") != NULL)
        return r->stage == BODY;
    if (strstr(page, "Content-Length") != NULL)
        return r->stage == HEAD && length != NULL &&
               (*length == '\0' || strspn(length, "0123456789") != strlen(length) || strlen(length) > 18);
    return r->stage == HEAD && (status == 431 || status == 400);
}

/* The connection of which the library refuses what it has read since our last look. If several could be it, the one
 * with the most is where that is why; else NULL. */
static struct cli_connection *refused_by_library(const struct cli_http *h, unsigned status, const char *page)
{
    struct cli_connection *found = NULL;
    int64_t most = 0;

    for (struct cli_connection *l = h->connections.first; l != NULL; l = l->next) {
        const int64_t taken = cli_connection_taken(l), n = taken < 0 ? 1 : taken - l->taken;

        if (l->closing || n <= 0 || !fits_refusal(l->request, status, page))
            continue;
        if (found != NULL && status != 431 && status != 414)
            return NULL;
        if (n > most) {
            found = l;
            most = n;
        }
    }
    return found;
}

/* What the library says before it refuses a request by itself, with a page of its own, which version 0.9.75 may give
 * two heads: we write the error and end the connection before it does. It does not say which request. */
static void hear_library(void *cls, const char *format, va_list args)
{
    static const char refusal[] = "Error processing request (HTTP response code is %u ('%s'))";
    const struct cli_http *h = cls;
    struct cli_connection *l;
    struct request *r;

    if (strncmp(format, refusal, sizeof refusal - 1) != 0)
        return;
    const unsigned status = va_arg(args, unsigned);
    const char *page = va_arg(args, const char *);

    l = refused_by_library(h, status, page);
    if (l == NULL)
        return;
    cli_http_send_error(cli_connection_socket(l->of), status,
                        status == 414                   ? "the request's target is too long"
                        : status == 431                 ? "the head of the request is too long"
                        : status == 413                 ? "the body is too large (--max-body)"
                        : status == 505                 ? "this version of HTTP is not spoken here"
                        : strstr(page, "chunk") != NULL ? "a chunk of the body is malformed"
                                                        : "the head of the request is malformed");
    r = l->request;
    if (r != NULL)
        r->over = true;
}

static void *begin_request(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct cli_http *h = cls;
    struct cli_connection *l = line_of(connection);
    struct request *r = l != NULL ? calloc(1, sizeof *r) : NULL;

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
    struct request *r = *of;

    if (r == NULL)
        return MHD_queue_response(connection, 503, h->no_memory);
    if (*n > 0) {
        const struct str part = { data, *n };

        *n = 0;
        return take_body(r, part);
    }
    if (r->stage == HEAD) {
        r->stage = BODY;
        return take_head(r, path, verb, version);
    }
    if (r->files)
        return answer_about_files(r, cli_http_path(connection, path), verb);
    return r->stage == BODY ? ask_server(r, cli_http_path(connection, path)) : send_answer(r);
}

static void end_request(void *cls, struct MHD_Connection *connection, void **of, enum MHD_RequestTerminationCode why)
{
    struct request *r = *of;

    (void)cls;
    (void)connection;
    (void)why;
    if (r == NULL)
        return;
    r->line->request = NULL;
    r->line->since_ms = clock_ms();
    if (r->id != 0 && !r->over)
        serve_cancel(r->h->serve, r->id);
    *r->link = r->next;
    if (r->next != NULL)
        r->next->link = r->link;
    cli_buf_free(&r->body);
    cli_form_close(r->form);
    json_decref(r->reply);
    free(r);
    *of = NULL;
}

/* ---- the loop ---- */

static enum err_code start_daemon(struct cli_http *h, struct err *e)
{
    /* A few more, so that who comes when all are taken is seen, and may push out another. */
    const unsigned most = (unsigned)(h->o.connections_max + h->o.connections_max / 4 + 1);

    h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h,
                                 MHD_OPTION_EXTERNAL_LOGGER, hear_library, h, MHD_OPTION_LISTEN_SOCKET, h->listen.fd,
                                 MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
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

static bool has_batches(const struct cli_http *h)
{
    return h->o.batches != NULL && !h->draining && cli_batches_busy(h->o.batches);
}

/* Waits for a socket, unless something can be done at once. */
static enum err_code wait_some(struct cli_http *h, struct err *e)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd p = { .fd = info->epoll_fd, .events = POLLIN };
    MHD_UNSIGNED_LONG_LONG most = WAIT_MS;

    if (serve_busy(h->serve) || has_batches(h) || h->resumed) /* which the library does not count as something to do */
        return ERR_OK;
    if (MHD_get_timeout(h->daemon, &most) != MHD_YES || most > WAIT_MS)
        most = WAIT_MS;
    if (h->connections.n > h->o.connections_max && most > CROWD_MS)
        most = CROWD_MS;
    if (poll(&p, 1, (int)most) < 0 && errno != EINTR)
        return err_errno(e, ERR_IO, errno, "%s: cannot wait", h->listen.url);
    return ERR_OK;
}

static enum err_code run_turn(struct cli_http *h, struct err *e)
{
    struct serve_reply reply;

    h->resumed = false;
    if (MHD_run(h->daemon) != MHD_YES)
        return err_set(e, ERR_IO, "%s: cannot go on serving", h->listen.url);
    if (has_batches(h))
        cli_batches_turn(h->o.batches);
    if (serve_busy(h->serve) && serve_step(h->serve, e))
        return e->code;
    while (serve_next(h->serve, &reply))
        if (h->o.batches == NULL || !cli_batches_take(h->o.batches, &reply))
            deliver(&reply);
    watch_connections(h);
    return wait_some(h, e);
}

enum err_code cli_http_run(struct cli_http *h, struct serve *s, struct cli_reload *beside, struct err *e)
{
    double until_ms = 0;
    struct err why;
    enum err_code code;

    h->serve = s;
    if (start_daemon(h, e) || cli_json_line(json_pack("{s:s, s:s}", "type", "listening", "url", h->listen.url), e))
        return e->code;
    if (strncmp(h->listen.url, "http", 4) == 0)
        cli_summary("a page to chat with: %s/", h->listen.url);
    do {
        if (cli_interrupted() && !h->draining) {
            h->draining = true;
            until_ms = clock_ms() + (double)h->o.drain_s * 1e3;
            (void)MHD_quiesce_daemon(h->daemon);
            cli_listen_close(&h->listen); /* who comes now is refused at once */
        }
        if (cli_reload_turn(beside, s)) {
            if (h->keys != NULL && cli_keys_read(&h->keys, h->o.api_key_file, true, &why))
                cli_reload_stays("--api-key-file", &why);
            h->o.reloaded(h->o.of);
        }
        code = run_turn(h, e);
    } while (code == ERR_OK && !(h->draining && (h->requests == NULL || clock_ms() > until_ms)));
    return code;
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
    *out = h;
    return ERR_OK;
}

void cli_http_close(struct cli_http *h)
{
    if (h == NULL)
        return;
    for (struct request *r = h->requests; r != NULL; r = r->next)
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
