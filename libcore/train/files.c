/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - files that a training reads and writes. */
#include "train/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

enum err_code train_lines(const char *path, struct str all, const struct progress *progress, train_line_fn *fn,
                          void *ctx, struct err *e)
{
    long long number = 0;

    for (size_t at = 0; at < all.n;) {
        const char *end = memchr(all.p + at, '\n', all.n - at);
        const struct str line = { all.p + at, end != NULL ? (size_t)(end - all.p) - at : all.n - at };

        at += line.n + 1;
        number++;
        if (strspn(line.p, " \t\r") < line.n && fn(ctx, line, e))
            return err_wrap(e, "%.200s: line %lld", path, number);
        if (!progress_tick(progress, at, all.n))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    return ERR_OK;
}

char *train_beside(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end) + 1;
    char *s = malloc(n + m);

    if (s != NULL) {
        memcpy(s, path, n);
        memcpy(s + n, end, m);
    }
    return s;
}

/* Temporary files of this output that killed processes left, also while they wrote one. */
static void remove_left(const char *dir, const char *name)
{
    char begins[256];
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int hidden = 0; fd >= 0 && hidden < 2; hidden++) {
        (void)snprintf(begins, sizeof begins, "%s%.200s.", hidden ? "." : "", name);
        io_remove_left(fd, begins);
    }
    if (fd >= 0)
        close(fd);
}

enum err_code train_fresh(char **fresh, const char *out, struct err *e)
{
    enum { TRIES = 1000 };
    const char *slash = strrchr(out, '/'), *name = slash != NULL ? slash + 1 : out;
    char *dir = slash != NULL ? strndup(out, (size_t)(name - out)) : strdup("./"), end[300];

    if (dir == NULL)
        return err_nomem(e);
    remove_left(dir, name);
    errno = EEXIST;
    for (int i = 0; i < TRIES && errno == EEXIST; i++) {
        char *path;
        int fd;

        (void)snprintf(end, sizeof end, ".%.200s.%ld-%d.tmp", name, (long)getpid(), i);
        path = train_beside(dir, end);
        fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
        if (fd >= 0) {
            close(fd);
            free(dir);
            *fresh = path;
            return ERR_OK;
        }
        free(path);
    }
    free(dir);
    return err_errno(e, ERR_IO, errno, "%s: cannot write a file beside it", out);
}

/* The sign is that the state has the new file's time of change, to the nanosecond, and was last read in 1970, which no
 * copy or restored file has. A rename keeps both times. */
enum err_code train_publish(const char *out, const char *fresh, int keep, const char *half, struct err *e)
{
    struct stat st;

    if (stat(fresh, &st) == 0)
        (void)utimensat(AT_FDCWD, half, (const struct timespec[]){ { 0, 0 }, st.st_mtim }, 0);
    if (io_publish(out, fresh, keep, e))
        return e->code;
    unlink(half);
    return ERR_OK;
}

void train_drop_done(const char *out, const char *half)
{
    struct stat is, was;

    if (stat(out, &is) == 0 && stat(half, &was) == 0 && was.st_atim.tv_sec == 0 &&
        was.st_mtim.tv_sec == is.st_mtim.tv_sec && was.st_mtim.tv_nsec == is.st_mtim.tv_nsec)
        unlink(half);
}

void train_drop(char **fresh)
{
    if (*fresh != NULL)
        unlink(*fresh);
    free(*fresh);
    *fresh = NULL;
}
