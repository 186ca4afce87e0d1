/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - a thin front over HTTP (libmicrohttpd) for serve/serve.h.         room: cmd
 *
 * The same loop turns the engine and the sockets; while the engine is in a step, or the model is loading, another
 * thread turns the sockets (aside.h). A request waits suspended until serve has a reply for it; a stream goes out as
 * server-sent events, each flushed. A client that leaves cancels its request.
 */
#ifndef SERVE_STDIO_HTTP_H
#define SERVE_STDIO_HTTP_H
#include "cli/cli.h"

struct cli_batches;
struct cli_reload;
struct cli_http;
struct serve;

struct cli_http_opts {
    const char *listen;       /* listen.h */
    const char *api_key_file; /* a key on each line; NULL: none is asked for */
    const char *cors;         /* the origin whose pages may ask, "*": any; NULL: none */
    int64_t body_bytes_max;
    int32_t exit_idle_s; /* without a request; 0: never */
    int32_t timeout_s, drain_s, connections_max, max_queue;
    int32_t notice_s;            /* after a signal requests are still taken, and health says that this ends */
    int32_t stuck_s;             /* of a step, after which health says so; 0: never */
    struct cli_batches *batches; /* and files of clients, not owned; NULL: none are kept */
    void (*reloaded)(void *of);  /* called when files beside the model were opened anew */
    void *of;
};
/* Listens: before the model is opened, so that a mistake is found early and probes are answered. A
 * signal then ends the program. An address that others reach needs keys. */
MUST_CHECK enum err_code cli_http_open(struct cli_http **out, const struct cli_http_opts *o, struct err *e);
/* For a struct progress, while the model is loading. */
bool cli_http_loaded(void *of, uint64_t done, uint64_t total);
/* Serves until a signal comes and what was asked is answered, or drain_s is over, or nothing was asked for
 * exit_idle_s. */
MUST_CHECK enum err_code cli_http_run(struct cli_http *h, struct serve *s, struct cli_reload *beside, struct err *e);
void cli_http_close(struct cli_http *h); /* NULL is allowed */
#endif
