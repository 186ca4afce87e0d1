/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.h - heads of requests that two readers may take differently.     room: cmd */
#ifndef SERVE_STDIO_HTTP_HEAD_H
#define SERVE_STDIO_HTTP_HEAD_H

struct MHD_Connection;

/* The status of a head that two readers may take differently (RFC 9112), or whose body cannot be read; 0: it is in
 * order. The library takes the first of several fields, another program before it perhaps the last. */
int cli_http_doubtful(struct MHD_Connection *connection, const char *version, const char **why);
#endif
