/* SPDX-License-Identifier: Apache-2.0 */
/* http_state.h - a server over HTTP and its requests, for the files of it alone.             room: cmd
 *
 * Two threads take turns with it (aside.h). While the engine's thread is elsewhere, the other one may not touch serve:
 * what needs it is put off, or, for probes, read from the status that was left.
 */
#ifndef SERVE_STDIO_HTTP_STATE_H
#define SERVE_STDIO_HTTP_STATE_H
#include "serve-stdio/http.h"
#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "serve-stdio/connections.h"
#include "serve-stdio/listen.h"
#include "serve/serve.h"
#include "serve/status.h"

struct cli_aside;
struct cli_form;
struct cli_keys;

struct cli_http_request {
    struct cli_http_request *next, **link;
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
    bool half;              /* the client has closed its sending side, or left */
    bool old;               /* HTTP/1.0 */
    bool put_off;           /* whole, and suspended until the engine's thread has returned */
    bool cancelled, closed; /* serve is to hear of it then; closed: and it goes */
};

struct cli_http {
    struct cli_http_opts o;
    struct cli_listen listen;
    struct cli_keys *keys; /* NULL: none is asked for */
    struct serve *serve;   /* NULL: the model is loading */
    struct MHD_Daemon *daemon;
    struct cli_connections connections;
    struct cli_http_request *requests; /* between their first byte and their last */
    struct MHD_Response *no_memory;    /* of a request for which there is none to make another */
    bool draining;
    bool resumed; /* a connection, since the library's last turn */
    struct cli_aside *aside;
    bool away;                  /* the engine's thread is elsewhere, */
    double away_ms;             /* since then, */
    struct serve_status status; /* and this was so when it left */
    uint64_t n_probes[2];       /* of health and of metrics that serve has not counted */
    atomic_int loaded;          /* of 1000, while the model is loading */
};

/* http_take.c */
enum MHD_Result cli_http_queue(const struct cli_http_request *r, struct MHD_Response *m, int status, const char *type);
enum MHD_Result cli_http_refuse_at(struct cli_http_request *r, int status, const char *pointer, const char *message);
enum MHD_Result cli_http_refuse(struct cli_http_request *r, int status, const char *message);
const char *cli_http_sent_key(const struct cli_http_request *r); /* "": none */
bool cli_http_is_probe(const struct cli_http_request *r);
/* The reply is queued when the head is enough to refuse it, or to answer. */
enum MHD_Result cli_http_take_head(struct cli_http_request *r, const char *target, const char *verb,
                                   const char *version);
/* http_probe.c: health and metrics, in either thread. NULL: out of memory. */
struct MHD_Response *cli_http_probe(struct cli_http *h, enum serve_method m, int *status, const char **type);
/* http_refused.c: for MHD_OPTION_EXTERNAL_LOGGER, of a cli_http */
void cli_http_hear_library(void *cls, const char *format, va_list args);
#endif
#endif
