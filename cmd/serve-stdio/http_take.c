/* SPDX-License-Identifier: Apache-2.0 */
/* http_take.c - what the head of a request asks for, and whether it may (http_state.h).      room: cmd */
#include "serve-stdio/http_state.h"

#ifdef CHIMERE_HTTP
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "serve-stdio/http_files.h"
#include "serve-stdio/http_head.h"
#include "serve-stdio/http_reply.h"
#include "serve-stdio/keys.h"
#include "serve-stdio/web_page.h"

enum { FORM_BYTES = 4096 /* of a form, beside the file in it */ };

/* ---- responses ---- */

/* Without m, or without memory for its headers, the reply is that there is none. */
enum MHD_Result cli_http_queue(const struct cli_http_request *r, struct MHD_Response *m, int status, const char *type)
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

enum MHD_Result cli_http_refuse_at(struct cli_http_request *r, int status, const char *pointer, const char *message)
{
    r->over = true;
    return cli_http_queue(r, cli_http_error(r->row, status, pointer, message), status, "application/json");
}

enum MHD_Result cli_http_refuse(struct cli_http_request *r, int status, const char *message)
{
    return cli_http_refuse_at(r, status, "", message);
}

/* ---- who may ask ---- */

/* Clients of OpenAI's interface send it one way, those of Anthropic's the other. */
const char *cli_http_sent_key(const struct cli_http_request *r)
{
    const char *v = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Authorization");
    const char *other = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "X-Api-Key");

    if (v != NULL && strncasecmp(v, "Bearer ", 7) == 0)
        return v + 7;
    return other != NULL ? other : "";
}

/* ---- requests ---- */

/* What is served at a path: a method, or a part of the page to chat with. */
static const struct serve_row *find_row(struct cli_http_request *r, const char *path)
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
static enum MHD_Result preflight(struct cli_http_request *r)
{
    struct MHD_Response *m = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    const char *asked = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Access-Control-Request-Headers");

    r->over = true;
    m = cli_http_whole(m, m != NULL && cli_http_header(m, "Access-Control-Allow-Methods", "GET, POST, DELETE") &&
                              cli_http_header(m, "Access-Control-Max-Age", "7200") &&
                              cli_http_header(m, "Access-Control-Allow-Headers",
                                              asked != NULL && *asked != '\0' ? asked : "Authorization, Content-Type"));
    return cli_http_queue(r, m, 204, "text/plain");
}

/* What may be asked at a path, or, with another verb, what it is refused for. */
static enum MHD_Result tell_verbs(struct cli_http_request *r, const char *path, bool asked)
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
    return cli_http_queue(r, cli_http_whole(m, m != NULL && cli_http_header(m, "Allow", allowed)), status,
                          "application/json");
}

/* A part of the page to chat with. */
static enum MHD_Result show_page(struct cli_http_request *r, const struct cli_page *page)
{
    struct MHD_Response *m =
        MHD_create_response_from_buffer(strlen(page->text), (void *)(uintptr_t)page->text, MHD_RESPMEM_PERSISTENT);

    r->over = true;
    m = cli_http_whole(m, m != NULL && cli_http_header(m, "Content-Security-Policy", CLI_PAGE_POLICY) &&
                              cli_http_header(m, "Referrer-Policy", "no-referrer"));
    return cli_http_queue(r, m, 200, page->type);
}

/* Whether fewer requests are being answered than there may be connections, or not mainly those of this address and not
 * many more. */
static bool has_room(const struct cli_http_request *r)
{
    const int most = r->h->o.connections_max;
    int n = 0;

    for (const struct cli_http_request *q = r->h->requests; q != NULL && r->h->connections.n > most; q = q->next)
        n += (q->stage == ASKED || q->put_off) && !q->over;
    return n < most || (2 * r->line->peer->n <= most && n < most + most / 4);
}

bool cli_http_is_probe(const struct cli_http_request *r)
{
    return r->row != NULL && (r->row == serve_row(SERVE_HEALTH) || r->row == serve_row(SERVE_METRICS));
}

/* What the head of a request says; the reply is queued when that is enough to refuse it. */
enum MHD_Result cli_http_take_head(struct cli_http_request *r, const char *target, const char *verb,
                                   const char *version)
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
    if (r->h->draining && !cli_http_is_probe(r))
        return cli_http_refuse(r, 503, "the server is about to end");
    if (r->h->serve == NULL && !cli_http_is_probe(r) && strncmp(r->h->o.listen, "fd:", 3) != 0)
        return cli_http_refuse(r, 503, "the model is loading");
    if (status != 0)
        return cli_http_refuse(r, status, why);
    if (path == NULL)
        return cli_http_refuse(r, 400, "the request's target names another host than its field Host");
    if (!cli_http_may_ask(r->connection, r->h->o.cors, r->h->keys != NULL))
        return cli_http_refuse(
            r, 403, "pages of this origin, or requests for this host, are not served (--cors, --api-key-file)");
    if (options && r->h->o.cors != NULL && to != NULL)
        return preflight(r);
    if (options && strcmp(path, "*") == 0)
        return tell_verbs(r, path, true);
    if (r->h->keys != NULL && (to == NULL || !to->open) && !cli_keys_have(r->h->keys, cli_http_sent_key(r)))
        return cli_http_refuse(r, 401, "no valid key: send one as Authorization: Bearer KEY, or as X-Api-Key: KEY");
    if (to == NULL) {
        (void)snprintf(message, sizeof message, "nothing is served at %.100s%s", path,
                       cli_files_row(path) != NULL ? " without --files" : "");
        return cli_http_refuse(r, 404, message);
    }
    if (!cli_http_is_probe(r) && !has_room(r))
        return cli_http_refuse(r, 429, "too many connections from this address (--connections)");
    r->old = strcmp(version, "HTTP/1.0") == 0;
    if (!cli_http_takes_verb(to->verb, verb))
        return tell_verbs(r, path, options);
    if (r->files && cli_files_uploads(path, verb)) {
        struct cli_files *files = cli_batches_files(r->h->o.batches);

        most = files->room + FORM_BYTES;
        r->form = cli_form_open(files, r->connection);
        if (r->form == NULL)
            return cli_http_refuse(r, errno == ENOMEM ? 503 : 400,
                                   errno == ENOMEM ? "out of memory" : "a file comes as multipart/form-data");
    }
    if (length != NULL && (strlen(length) > 18 || atoll(length) > most))
        return cli_http_refuse(r, 413,
                               r->form != NULL ? "there is no room for the file (--files-size)"
                                               : "the body is too large (--max-body)");
    if (cli_page(path) != NULL)
        return show_page(r, cli_page(path));
    return MHD_YES;
}
#endif
