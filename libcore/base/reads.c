/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c - threads that read (reads.h).                                         room: base */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECT */
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/reads.h"
#include "base/rng.h"

#ifndef O_DIRECT
#define O_DIRECT 0
#endif

struct io_reads {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    struct io_read *first, **last; /* asked for and not begun */
    uint64_t n_done;
    bool closing;
    int n_threads;
    pthread_t thread[IO_READS_THREADS];
};

static void read_one(struct io_read *q)
{
    size_t got = 0;
    int error = 0;

    while (got < q->least && error == 0) {
        const ssize_t n = pread(q->fd, (char *)q->to + got, q->n - got, (off_t)(q->at + (int64_t)got));

        if (n > 0)
            got += (size_t)n;
        else if (n == 0)
            error = -1;
        else if (errno != EINTR)
            error = errno;
        if (n > 0 && got < q->least && got % IO_READS_ALIGN != 0)
            error = -1; /* the file ends here */
    }
    if (error != 0)
        *q->error = error;
}

static void *reader(void *arg)
{
    struct io_reads *r = arg;

    pthread_mutex_lock(&r->mutex);
    for (;;) {
        struct io_read *q;

        while ((q = r->first) == NULL && !r->closing)
            pthread_cond_wait(&r->work, &r->mutex);
        if (r->closing)
            break;
        r->first = q->next;
        if (r->first == NULL)
            r->last = &r->first;
        pthread_mutex_unlock(&r->mutex);
        read_one(q);
        pthread_mutex_lock(&r->mutex);
        r->n_done++;
        (void)__atomic_fetch_sub(q->left, 1, __ATOMIC_RELEASE);
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

enum err_code io_reads_open(struct io_reads **out, struct err *e)
{
    struct io_reads *r = calloc(1, sizeof *r);
    pthread_condattr_t clock;
    sigset_t all, before;
    int rc = 0;

    if (r == NULL)
        return err_nomem(e);
    r->last = &r->first;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->done, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all); /* signals are for the program's own threads; reading raises none */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (; r->n_threads < IO_READS_THREADS && rc == 0; r->n_threads += rc == 0)
        rc = pthread_create(&r->thread[r->n_threads], NULL, reader, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r->n_threads == 0) {
        io_reads_close(r);
        return err_errno(e, ERR_NOMEM, rc, "cannot start a thread that reads");
    }
    *out = r;
    return ERR_OK;
}

void io_reads_close(struct io_reads *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->mutex);
    r->closing = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->mutex);
    for (int i = 0; i < r->n_threads; i++)
        pthread_join(r->thread[i], NULL);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

void io_reads_ask(struct io_reads *r, struct io_read *q)
{
    q->next = NULL;
    pthread_mutex_lock(&r->mutex);
    *r->last = q;
    r->last = &q->next;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->mutex);
}

uint64_t io_reads_seen(struct io_reads *r)
{
    uint64_t n;

    pthread_mutex_lock(&r->mutex);
    n = r->n_done;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

uint64_t io_reads_wait(struct io_reads *r, uint64_t seen)
{
    enum { MOST_NS = 50000000 };
    struct timespec end;
    int rc = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += MOST_NS;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&r->mutex);
    while (r->n_done == seen && rc == 0)
        rc = pthread_cond_timedwait(&r->done, &r->mutex, &end);
    seen = r->n_done;
    pthread_mutex_unlock(&r->mutex);
    return seen;
}

/* Whether a first read past the page cache works: some file systems only then say that it does not. */
static bool reads_direct(int fd)
{
    void *page = NULL;
    bool good;

    if (O_DIRECT == 0 || posix_memalign(&page, IO_READS_ALIGN, IO_READS_ALIGN) != 0)
        return false;
    good = pread(fd, page, IO_READS_ALIGN, 0) >= 0 || errno != EINVAL;
    free(page);
    return good;
}

enum err_code io_reads_file(int *fd, bool *direct, const char *path, const struct io_id *id, struct err *e)
{
    struct io_id now;

    *fd = O_DIRECT == 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    *direct = *fd >= 0 && reads_direct(*fd);
    if (*fd >= 0 && !*direct)
        close(*fd);
    if (!*direct)
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return io_cannot_open(path, errno, e);
    if (id != NULL && (!io_identify(*fd, &now) || memcmp(&now, id, sizeof now) != 0)) {
        close(*fd);
        *fd = -1;
        return err_set(e, ERR_FORMAT, "%s: file changed or was cut while it was in use", path);
    }
    if (!*direct)
        (void)posix_fadvise(*fd, 0, 0, POSIX_FADV_RANDOM); /* the pieces are asked for whole */
    return ERR_OK;
}

/* Reads at random places until the time is over, always twice as many asked for as there are threads. */
static enum err_code measure(double *bytes_per_s, struct io_reads *r, int fd, int64_t size, size_t bytes, char *room,
                             struct err *e)
{
    enum { N = 2 * IO_READS_THREADS, MS = 300 };
    struct io_read read[N];
    int left[N] = { 0 };
    int error = 0;
    const double from = clock_ms(), places = (double)(size - (int64_t)bytes) / IO_READS_ALIGN;
    const uint64_t seed = (uint64_t)clock_ns();
    uint64_t seen = io_reads_seen(r), asked = 0;
    double ms = 0;

    for (; ms < MS; ms = clock_ms() - from) {
        for (int i = 0; i < N; i++) {
            const int64_t page = (int64_t)(rng_unit(seed, 0, asked) * places);

            if (io_reads_left(&left[i]) > 0)
                continue;
            left[i] = 1;
            read[i] = (struct io_read){ .fd = fd,
                                        .at = page * IO_READS_ALIGN,
                                        .to = room + (size_t)i * bytes,
                                        .n = bytes,
                                        .least = bytes,
                                        .error = &error,
                                        .left = &left[i] };
            io_reads_ask(r, &read[i]);
            asked++;
        }
        seen = io_reads_wait(r, seen);
    }
    *bytes_per_s = (double)(asked - N) * (double)bytes / ms * 1e3; /* about as many have been done */
    for (int i = 0; i < N; i++)
        while (io_reads_left(&left[i]) > 0)
            seen = io_reads_wait(r, seen);
    if (error > 0)
        return err_errno(e, ERR_IO, error, "cannot read");
    return error < 0 ? err_set(e, ERR_IO, "cannot read: it ends early") : ERR_OK;
}

enum err_code io_reads_speed(double *bytes_per_s, const char *path, size_t bytes, struct err *e)
{
    struct io_reads *r = NULL;
    struct io_id id;
    void *room = NULL;
    bool direct;
    int fd = -1;
    enum err_code code = io_reads_file(&fd, &direct, path, NULL, e);

    bytes = (bytes + IO_READS_ALIGN - 1) / IO_READS_ALIGN * IO_READS_ALIGN;
    if (code == ERR_OK && (!io_identify(fd, &id) || id.size < (int64_t)bytes))
        code = err_set(e, ERR_IO, "%s: too small to be measured", path);
    if (code == ERR_OK)
        code = io_reads_open(&r, e);
    if (code == ERR_OK && posix_memalign(&room, IO_READS_ALIGN, 2 * IO_READS_THREADS * bytes) != 0)
        code = err_nomem(e);
    if (code == ERR_OK && measure(bytes_per_s, r, fd, id.size, bytes, room, e))
        code = err_wrap(e, "%s", path);
    io_reads_close(r);
    free(room);
    if (fd >= 0)
        close(fd);
    return code;
}
