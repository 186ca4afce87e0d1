/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opening files, and waiting for the other end of a pipe (io.h).      room: base */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/io.h"

enum { EACH_MS = 200 }; /* how often a wait looks whether it is to end */

static enum err_code wait_to_read(int fd, bool (*stop)(void), struct err *e)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    while (poll(&p, 1, EACH_MS) <= 0)
        if (stop != NULL && stop())
            return err_set(e, ERR_CANCEL, "interrupted");
    return ERR_OK;
}

enum err_code io_read_some(size_t *n, int fd, void *data, size_t max_bytes, bool (*stop)(void), struct err *e)
{
    for (;;) {
        ssize_t got;

        if (wait_to_read(fd, stop, e))
            return ERR_CANCEL;
        got = read(fd, data, max_bytes);
        if (got >= 0) {
            *n = (size_t)got;
            return ERR_OK;
        }
        if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
            return err_errno(e, ERR_IO, errno, "cannot read");
    }
}

/* The other end of a FIFO, or the device, is there: from here on the file waits for what is written and read. */
static enum err_code opened(int *out, int fd, const char *path, struct err *e)
{
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        const int why = errno;

        close(fd);
        return err_errno(e, ERR_IO, why, "%s: cannot open", path);
    }
    *out = fd;
    return ERR_OK;
}

enum err_code io_open_read(int *out, const char *path, bool (*stop)(void), struct err *e)
{
    struct stat st;
    int fd;

    do
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return io_cannot_open(path, errno, e);
    /* without a writer there is no end to read */
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && wait_to_read(fd, stop, e)) {
        close(fd);
        return err_set(e, ERR_CANCEL, "%s: interrupted", path);
    }
    return opened(out, fd, path, e);
}

enum err_code io_open_append(int *out, const char *path, bool (*stop)(void), struct err *e)
{
    const struct timespec each = { .tv_nsec = EACH_MS * 1000000L };

    for (;;) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);

        if (fd >= 0)
            return opened(out, fd, path, e);
        if (errno != ENXIO && errno != EINTR) /* a FIFO that nobody reads yet */
            return err_errno(e, ERR_IO, errno, "%s: cannot open", path);
        if (stop != NULL && stop())
            return err_set(e, ERR_CANCEL, "%s: interrupted", path);
        (void)nanosleep(&each, NULL);
    }
}

enum err_code io_open_own(int *out, const char *path, struct err *e)
{
    struct stat st;
    int fd;

    do
        fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        (void)err_set(e, ERR_IO, "%s: is not a regular file, cannot be added to", path);
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) /* other errors: a file system without locks */
        (void)err_set(e, ERR_IO, "%s: another process writes it", path);
    else {
        *out = fd;
        return ERR_OK;
    }
    close(fd);
    return ERR_IO;
}

/* What is wrong with a directory that is open. */
static enum err_code check_dir(int fd, const char *path, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot stat", path);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_IO, "%s: belongs to another user", path);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(e, ERR_IO, "%s: others can write there (chmod 700)", path);
    return ERR_OK;
}

enum err_code io_open_dir(int *out, const char *path, bool make, struct err *e)
{
    char name[4096];
    size_t n = strlen(path);
    struct stat st;
    int fd;

    while (n > 1 && path[n - 1] == '/') /* a link with a slash behind it would be followed */
        n--;
    if (n == 0 || n >= sizeof name)
        return err_set(e, ERR_ARG, "%.80s: not the name of a directory", path);
    memcpy(name, path, n);
    name[n] = '\0';
    if (make && mkdir(name, 0700) != 0 && errno != EEXIST)
        return err_errno(e, ERR_IO, errno, "%s: cannot make the directory", name);
    if (lstat(name, &st) == 0 && S_ISLNK(st.st_mode))
        return err_set(e, ERR_IO, "%s: is a link", name);
    fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot open the directory", name);
    if (check_dir(fd, name, e)) {
        close(fd);
        return e->code;
    }
    *out = fd;
    return ERR_OK;
}

int64_t io_changed_ns(const struct stat *st)
{
    const int64_t second = 1000000000, most = INT64_MAX / second - 1, s = (int64_t)st->st_mtim.tv_sec;

    return s > most ? most * second : s < -most ? -most * second : s * second + st->st_mtim.tv_nsec;
}
