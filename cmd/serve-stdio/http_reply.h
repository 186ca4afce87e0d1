/* SPDX-License-Identifier: Apache-2.0 */
/* http_reply.h - replies over HTTP. A response that is NULL could not be made.    room: cmd */
#ifndef SERVE_STDIO_HTTP_REPLY_H
#define SERVE_STDIO_HTTP_REPLY_H
#include "base/json.h"
#include "serve/serve.h"

struct MHD_Response;

struct MHD_Response *cli_http_json(const json_t *body);
/* row: what is served at the path; NULL: nothing. pointer: where in the body; "": nowhere. */
struct MHD_Response *cli_http_error(const struct serve_row *row, int status, const char *pointer, const char *message);
bool cli_http_header(struct MHD_Response *m, const char *name, const char *value);
/* What all responses of a status have. cors: an origin that may read it; NULL: none. closes: it ends the connection. */
bool cli_http_add_headers(struct MHD_Response *m, int status, const char *type, const char *cors, bool closes);
/* m; if not ok, NULL, and m (NULL is allowed) is released. */
struct MHD_Response *cli_http_whole(struct MHD_Response *m, bool ok);
/* An error with its head, written to a socket of which the library writes nothing more. */
void cli_http_send_error(int fd, unsigned status, const char *message);
#endif
