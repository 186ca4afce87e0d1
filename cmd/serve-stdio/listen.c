/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - a socket that listens, by its name (listen.h).                  room: cmd */
#include "serve-stdio/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum { BACKLOG = 128 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};

static enum err_code listen_failed(int fd, const char *name, const char *what, int error, struct err *e)
{
    if (fd >= 0)
        close(fd);
    return err_set(e, ERR_IO, "--listen: %s: %s: %s", name, what, strerror(error));
}

/* What the socket's own address says. */
static enum err_code describe_address(struct cli_listen *l, const char *name, struct err *e)
{
    union address a = { 0 };
    socklen_t n = sizeof a;
    char host[INET6_ADDRSTRLEN] = "";

    if (getsockname(l->fd, &a.any, &n))
        return listen_failed(l->fd, name, "not a socket", errno, e);
    if (a.any.sa_family == AF_UNIX) {
        const size_t room = n > offsetof(struct sockaddr_un, sun_path) ? n - offsetof(struct sockaddr_un, sun_path) : 0;

        l->loopback = true;
        (void)snprintf(l->url, sizeof l->url, "unix:%.*s", (int)room, a.un.sun_path);
    } else if (a.any.sa_family == AF_INET) {
        l->loopback = ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
        (void)snprintf(l->url, sizeof l->url, "http://%s:%d", inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof host),
                       ntohs(a.v4.sin_port));
    } else if (a.any.sa_family == AF_INET6) {
        l->loopback = IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
        (void)snprintf(l->url, sizeof l->url, "http://[%s]:%d", inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof host),
                       ntohs(a.v6.sin6_port));
    } else {
        close(l->fd);
        return err_set(e, ERR_ARG, "--listen: %s: neither an Internet nor a Unix socket", name);
    }
    return ERR_OK;
}

/* A socket file of a server that is gone is in the way; one with a server behind it is not ours. */
static enum err_code clear_path(const char *name, const struct sockaddr_un *a, struct err *e)
{
    struct stat st;
    int probe, error;

    if (lstat(a->sun_path, &st))
        return ERR_OK;
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_IO, "--listen: %s: the file exists and is no socket", name);
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    error = probe < 0 || connect(probe, (const struct sockaddr *)a, sizeof *a) ? errno : EADDRINUSE;
    if (probe >= 0)
        close(probe);
    if (error != ECONNREFUSED)
        return listen_failed(-1, name, "cannot listen", error, e);
    return unlink(a->sun_path) ? listen_failed(-1, name, "cannot remove the old socket", errno, e) : ERR_OK;
}

static enum err_code open_unix(struct cli_listen *l, const char *name, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    const char *path = name + strlen("unix:");
    mode_t mask;
    int error;

    if (path[0] == '\0' || strlen(path) >= sizeof a.sun_path)
        return err_set(e, ERR_ARG, "--listen: %s: a path of 1 to %zu bytes is needed", name, sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path));
    if (clear_path(name, &a, e))
        return e->code;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mask = umask(0077);
    error = l->fd < 0 || bind(l->fd, (const struct sockaddr *)&a, sizeof a) ? errno : 0;
    umask(mask);
    if (error != 0)
        return listen_failed(l->fd, name, "cannot listen", error, e);
    memcpy(l->path, a.sun_path, sizeof l->path);
    if (listen(l->fd, BACKLOG)) {
        error = errno;
        unlink(l->path);
        return listen_failed(l->fd, name, "cannot listen", error, e);
    }
    return ERR_OK;
}

static enum err_code open_internet(struct cli_listen *l, const char *name, struct err *e)
{
    const struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    const char *colon = strrchr(name, ':'), *from = name, *to = colon;
    struct addrinfo *found = NULL;
    char host[256];
    const int one = 1;
    int rc;

    if (colon != NULL && *name == '[' && colon > name + 1 && colon[-1] == ']') {
        from++;
        to--;
    } else if (colon != NULL && memchr(name, ':', (size_t)(colon - name)) != NULL) {
        colon = NULL;
    }
    if (colon == NULL || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535 || to - from >= (ptrdiff_t)sizeof host)
        return err_set(e, ERR_ARG, "--listen: %s: not ADDRESS:PORT, [ADDRESS]:PORT, unix:PATH or fd:N", name);
    (void)snprintf(host, sizeof host, "%.*s", (int)(to - from), from);
    rc = getaddrinfo(host[0] != '\0' ? host : "127.0.0.1", colon + 1, &want, &found);
    if (rc != 0)
        return err_set(e, ERR_ARG, "--listen: %s: %s", name, gai_strerror(rc));
    l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rc = l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
                 bind(l->fd, found->ai_addr, found->ai_addrlen) || listen(l->fd, BACKLOG)
             ? errno
             : 0;
    freeaddrinfo(found);
    return rc != 0 ? listen_failed(l->fd, name, "cannot listen", rc, e) : ERR_OK;
}

static enum err_code open_inherited(struct cli_listen *l, const char *name, struct err *e)
{
    const char *digits = name + strlen("fd:");
    int on = 0;
    socklen_t n = sizeof on;

    if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 6 || atoi(digits) < 3)
        return err_set(e, ERR_ARG, "--listen: %s: not fd:N, N from 3", name);
    l->fd = atoi(digits);
    if (getsockopt(l->fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) || !on)
        return err_set(e, ERR_ARG, "--listen: %s: not a socket that listens", name);
    (void)fcntl(l->fd, F_SETFD, FD_CLOEXEC);
    l->inherited = true;
    return ERR_OK;
}

enum err_code cli_listen_open(struct cli_listen *out, const char *name, struct err *e)
{
    struct cli_listen l = { .fd = -1 };
    enum err_code code;
    int flags;

    if (strncmp(name, "unix:", 5) == 0)
        code = open_unix(&l, name, e);
    else if (strncmp(name, "fd:", 3) == 0)
        code = open_inherited(&l, name, e);
    else
        code = open_internet(&l, name, e);
    if (code || describe_address(&l, name, e))
        return e->code;
    flags = fcntl(l.fd, F_GETFL);
    if (flags < 0 || fcntl(l.fd, F_SETFL, flags | O_NONBLOCK))
        return listen_failed(l.fd, name, "cannot listen", errno, e);
    *out = l;
    return ERR_OK;
}

/* The name of a Unix socket of ours goes: nobody else connects to it. */
static void hide_socket(struct cli_listen *l)
{
    if (l->path[0] != '\0')
        unlink(l->path);
    l->path[0] = '\0';
}

bool cli_listen_left(struct cli_listen *l, bool busy, int seconds)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    const double now = clock_ms();

    if (busy || l->busy_ms <= 0)
        l->busy_ms = now;
    if (!l->leaving && now - l->busy_ms < (double)seconds * 1e3)
        return false;
    l->leaving = true;
    hide_socket(l);
    return !busy && (l->inherited || poll(&p, 1, 0) == 0);
}

void cli_listen_close(struct cli_listen *l)
{
    hide_socket(l);
    if (l->fd >= 0)
        close(l->fd);
    *l = (struct cli_listen){ .fd = -1 };
}
