/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h - the connections of a server and the addresses they come from.   room: cmd
 *
 * libmicrohttpd accepts and reads them. It waits for changes of a socket, and so does not notice the end of a
 * connection that came together with its last bytes; it also knows no way to let one of them go for another. Both is
 * here.
 */
#ifndef SERVE_STDIO_CONNECTIONS_H
#define SERVE_STDIO_CONNECTIONS_H
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct MHD_Connection;

/* An address that has connections. */
struct cli_peer {
    struct cli_peer *next;
    unsigned char address[16]; /* of IPv6 the network; zero: a Unix socket */
    int n;
};

/* A connection. While it has no request, one may be coming in, byte by byte. */
struct cli_connection {
    struct cli_connection *next, **link;
    struct MHD_Connection *of;
    struct cli_peer *peer;
    void *request;    /* the owner's; NULL: none */
    double since_ms;  /* it was opened, or its last request ended */
    double silent_ms; /* the first of the last looks, which found nothing to read; 0: there was something */
    int64_t taken;    /* cli_connection_taken() at the last look; 0 while busy */
    bool busy;        /* the owner sets it: a reply is on its way */
    bool ended;       /* the client sends nothing more, and all of it was read */
    bool gone;        /* and reads nothing more */
    bool closing;     /* cut off, and not closed yet */
};

struct cli_connections {
    struct cli_connection *first;
    int n; /* without those that are closing */
    struct pollfd *polls;
    int polls_cap;
    struct cli_peer *peers;
};
/* NULL: memory is out. */
struct cli_connection *cli_connection_open(struct cli_connections *all, struct MHD_Connection *of);
void cli_connection_close(struct cli_connections *all, struct cli_connection *c);
int cli_connection_socket(struct MHD_Connection *of);
/* The library notices that, and closes it. */
void cli_connection_cut(struct cli_connections *all, struct cli_connection *c);
/* Bytes of it that the library has read; -1: not known. */
int64_t cli_connection_taken(const struct cli_connection *c);
/* Sets ended, gone and taken of all. */
void cli_connections_look(struct cli_connections *all);
/* While there are more than `most`, the address with most of them loses its oldest that is silent and not busy. A new
 * one has a second to send its request, if its address has no more than half of them. */
void cli_connections_make_room(struct cli_connections *all, int most, double now_ms);
void cli_connections_free(struct cli_connections *all);
#endif
