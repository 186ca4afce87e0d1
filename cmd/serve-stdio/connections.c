/* SPDX-License-Identifier: Apache-2.0 */
/* connections.c - the connections of a server (connections.h).               room: cmd */
#include "base/clock.h"
#include "serve-stdio/connections.h"

#ifdef CHIMERE_HTTP
#include <linux/tcp.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "cli/cli.h"

enum { GRACE_MS = 1000, SILENT_MS = 100 /* longer than a client may take between connecting and asking */ };

int cli_connection_socket(struct MHD_Connection *of)
{
    return MHD_get_connection_info(of, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* Where a connection comes from, in the form of struct cli_peer. */
static void find_address(struct MHD_Connection *of, unsigned char address[16])
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(of, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info != NULL ? info->client_addr : NULL;

    memset(address, 0, 16);
    if (a != NULL && a->sa_family == AF_INET) {
        address[15] = 4;
        memcpy(address, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    } else if (a != NULL && a->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        const bool mapped = IN6_IS_ADDR_V4MAPPED(v6);

        address[15] = mapped ? 4 : 6;
        memcpy(address, v6->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
    }
}

static struct cli_peer *enter_peer(struct cli_connections *all, struct MHD_Connection *of)
{
    unsigned char address[16];
    struct cli_peer *p = all->peers;

    find_address(of, address);
    while (p != NULL && memcmp(p->address, address, sizeof address) != 0)
        p = p->next;
    if (p == NULL && (p = calloc(1, sizeof *p)) != NULL) {
        memcpy(p->address, address, sizeof address);
        p->next = all->peers;
        all->peers = p;
    }
    if (p != NULL)
        p->n++;
    return p;
}

static void leave_peer(struct cli_connections *all, struct cli_peer *p)
{
    struct cli_peer **link = &all->peers;

    if (--p->n > 0)
        return;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    free(p);
}

struct cli_connection *cli_connection_open(struct cli_connections *all, struct MHD_Connection *of)
{
    struct cli_connection *c = calloc(1, sizeof *c);

    if (c == NULL || (c->peer = enter_peer(all, of)) == NULL) {
        free(c);
        return NULL;
    }
    c->of = of;
    c->since_ms = clock_ms();
    c->next = all->first;
    c->link = &all->first;
    if (c->next != NULL)
        c->next->link = &c->next;
    all->first = c;
    all->n++;
    return c;
}

void cli_connection_close(struct cli_connections *all, struct cli_connection *c)
{
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    all->n -= !c->closing;
    leave_peer(all, c->peer);
    free(c);
}

void cli_connection_cut(struct cli_connections *all, struct cli_connection *c)
{
    if (c->closing)
        return;
    shutdown(cli_connection_socket(c->of), SHUT_RDWR);
    c->closing = true;
    all->n--;
}

int64_t cli_connection_taken(const struct cli_connection *c)
{
    const int fd = cli_connection_socket(c->of);
    struct tcp_info info = { 0 };
    socklen_t n = sizeof info;
    int unread;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) || ioctl(fd, FIONREAD, &unread))
        return -1;
    return (int64_t)info.tcpi_bytes_received - unread;
}

void cli_connections_look(struct cli_connections *all)
{
    const double now = clock_ms();
    nfds_t n = 0;

    for (const struct cli_connection *c = all->first; c != NULL; c = c->next)
        n++;
    if ((int)n > all->polls_cap) {
        struct pollfd *v = realloc(all->polls, 2 * n * sizeof *v);

        if (v == NULL)
            return; /* the next time */
        all->polls = v;
        all->polls_cap = 2 * (int)n;
    }
    n = 0;
    for (const struct cli_connection *c = all->first; c != NULL; c = c->next)
        all->polls[n++] = (struct pollfd){ .fd = cli_connection_socket(c->of), .events = POLLIN };
    if (n == 0 || poll(all->polls, n, 0) < 0)
        return;
    n = 0;
    for (struct cli_connection *c = all->first; c != NULL; c = c->next, n++) {
        const struct pollfd *p = &all->polls[n];
        char byte;

        c->gone = (p->revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
        c->ended = (p->revents & POLLIN) != 0 && recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
        c->taken = c->busy ? 0 : cli_connection_taken(c);
        c->silent_ms = (p->revents & POLLIN) != 0 ? 0 : c->silent_ms > 0 ? c->silent_ms : now;
    }
}

void cli_connections_make_room(struct cli_connections *all, int most, double now_ms)
{
    while (all->n > most) {
        struct cli_connection *worst = NULL;

        for (struct cli_connection *c = all->first; c != NULL; c = c->next)
            if (!c->closing && !c->busy && c->silent_ms > 0 && now_ms - c->silent_ms > SILENT_MS &&
                (2 * c->peer->n > most || now_ms - c->since_ms > GRACE_MS) &&
                (worst == NULL || c->peer->n > worst->peer->n ||
                 (c->peer->n == worst->peer->n && c->since_ms < worst->since_ms)))
                worst = c;
        if (worst == NULL)
            return;
        cli_connection_cut(all, worst);
    }
}

void cli_connections_free(struct cli_connections *all)
{
    free(all->polls);
    all->polls = NULL;
}
#endif
