/* SPDX-License-Identifier: Apache-2.0 */
/* aside.c - a thread beside the engine's (aside.h).                          room: cmd */
#include "serve-stdio/aside.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct cli_aside {
    pthread_t thread;
    pthread_mutex_t lock;
    atomic_bool wanted; /* the engine's thread waits for the lock, which is not fair by itself */
    atomic_bool over;
    int fd, wake[2];
    int (*turn)(void *of);
    void *of;
};

static void *serve_aside(void *of)
{
    struct cli_aside *a = of;
    int wait_ms = 0;

    while (!a->over) {
        struct pollfd p[2] = { { .fd = a->fd, .events = POLLIN }, { .fd = a->wake[0], .events = POLLIN } };
        const struct timespec moment = { .tv_nsec = 1000000 };

        (void)poll(p, 2, wait_ms);
        if (a->wanted)
            (void)nanosleep(&moment, NULL);
        pthread_mutex_lock(&a->lock);
        wait_ms = a->over ? 0 : a->turn(a->of);
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

enum err_code cli_aside_open(struct cli_aside **out, int fd, int (*turn)(void *of), void *of, struct err *e)
{
    struct cli_aside *a = calloc(1, sizeof *a);
    sigset_t all, before;
    int rc;

    if (a == NULL)
        return err_nomem(e);
    a->fd = fd;
    a->turn = turn;
    a->of = of;
    if (pipe(a->wake) != 0) {
        free(a);
        return err_errno(e, ERR_IO, errno, "cannot make a pipe");
    }
    pthread_mutex_init(&a->lock, NULL);
    sigfillset(&all); /* signals are for the engine's thread, whose waits they end */
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    rc = pthread_create(&a->thread, NULL, serve_aside, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        close(a->wake[0]);
        close(a->wake[1]);
        pthread_mutex_destroy(&a->lock);
        free(a);
        return err_errno(e, ERR_IO, rc, "cannot start a thread");
    }
    *out = a;
    return ERR_OK;
}

void cli_aside_leave(struct cli_aside *a)
{
    pthread_mutex_unlock(&a->lock);
}

void cli_aside_return(struct cli_aside *a)
{
    a->wanted = true;
    pthread_mutex_lock(&a->lock);
    a->wanted = false;
}

void cli_aside_close(struct cli_aside *a)
{
    if (a == NULL)
        return;
    a->over = true;
    close(a->wake[1]); /* the other end is readable now */
    pthread_mutex_unlock(&a->lock);
    (void)pthread_join(a->thread, NULL);
    close(a->wake[0]);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
