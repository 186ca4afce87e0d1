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
    bool inherited; /* others may have it when we have ended */
    bool leaving;
    double busy_ms; /* when there was something to do last */
};
/* "ADDRESS:PORT" (port 0: a free one; an IPv6 address in brackets; no address: 127.0.0.1), "unix:PATH", which only our
 * user may open, or "fd:N", a socket that was handed down. A socket file that nobody listens on is replaced, any other
 * file is an error. ERR_ARG, ERR_IO. */
MUST_CHECK enum err_code cli_listen_open(struct cli_listen *out, const char *name, struct err *e);
/* Whether a server that is not busy, and was not for `seconds`, has to end now. Who comes at that moment is not lost:
 * who has connected to a socket of ours is let in once its name is gone, who connects to an inherited one is left to
 * the next who gets it. */
bool cli_listen_left(struct cli_listen *l, bool busy, int seconds);
void cli_listen_close(struct cli_listen *l); /* removes the socket file that we made */
#endif
