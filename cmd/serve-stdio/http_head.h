/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.h - heads of requests.                                           room: cmd */
#ifndef SERVE_STDIO_HTTP_HEAD_H
#define SERVE_STDIO_HTTP_HEAD_H
#include <stdbool.h>
#include <stddef.h>

struct MHD_Connection;

/* The status of a head that two readers may take differently (RFC 9112), or whose body cannot be read; 0: it is in
 * order. The library takes the first of several fields, another program before it perhaps the last. */
/* %.. to bytes, in place, but no %00: a path is a text. For MHD_OPTION_UNESCAPE_CALLBACK. */
size_t cli_http_unescape(void *cls, struct MHD_Connection *connection, char *s);
/* Whether one of the verbs of a path, "GET, DELETE", is meant. */
bool cli_http_takes_verb(const char *verbs, const char *verb);
/* The path of a request's target, which may begin with this server's own address (http://HOST/PATH); NULL: it begins
 * with another one's. */
const char *cli_http_path(struct MHD_Connection *connection, const char *target);
int cli_http_doubtful(struct MHD_Connection *connection, const char *version, const char **why);
/* Whether a request may come from its origin, and, where no keys are needed, for its host. cors: an origin that may;
 * NULL: none but our own pages. */
bool cli_http_may_ask(struct MHD_Connection *connection, const char *cors, bool has_keys);
/* "*", or a scheme, a host and perhaps a port, as browsers send it. */
bool cli_http_is_origin(const char *s);
#endif
