/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h - a socket that listens, by its name.                             room: cmd */
#ifndef SERVE_STDIO_LISTEN_H
#define SERVE_STDIO_LISTEN_H
#include "cli/cli.h"

struct cli_listen {
    int fd;
    bool loopback;  /* only this machine reaches it */
    char url[320];  /* "http://127.0.0.1:8080", "unix:/run/c.sock" */
    char path[108]; /* of a Unix socket that we made; "" else */
};
/* "ADDRESS:PORT" (port 0: a free one; an IPv6 address in brackets; no address: 127.0.0.1), "unix:PATH", which only our
 * user may open, or "fd:N", a socket that was handed down. A socket file that nobody listens on is replaced, any other
 * file is an error. ERR_ARG, ERR_IO. */
MUST_CHECK enum err_code cli_listen_open(struct cli_listen *out, const char *name, struct err *e);
void cli_listen_close(struct cli_listen *l); /* removes the socket file that we made */
#endif
