/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - files that a training reads and writes.                          room: cmd (cli_) */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "draft-train/program.h"

enum err_code cli_train_lines(const char *path, struct str all, cli_train_line_fn *fn, void *ctx, struct err *e)
{
    long long number = 0;

    for (size_t at = 0; at < all.n;) {
        const char *end = memchr(all.p + at, '\n', all.n - at);
        const struct str line = { all.p + at, end != NULL ? (size_t)(end - all.p) - at : all.n - at };

        at += line.n + 1;
        number++;
        if (strspn(line.p, " \t\r") < line.n && fn(ctx, line, e))
            return err_wrap(e, "%.200s: line %lld", path, number);
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    return ERR_OK;
}

char *cli_train_beside(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end) + 1;
    char *s = malloc(n + m);

    if (s != NULL) {
        memcpy(s, path, n);
        memcpy(s + n, end, m);
    }
    return s;
}

enum err_code cli_train_fresh(char **fresh, const char *out, struct err *e)
{
    enum { TRIES = 1000 };
    char end[32];

    for (int i = 0; i < TRIES; i++) {
        char *path;
        int fd;

        (void)snprintf(end, sizeof end, ".new.%d", i);
        path = cli_train_beside(out, end);
        if (path == NULL)
            return err_set(e, ERR_NOMEM, "out of memory");
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            *fresh = path;
            return ERR_OK;
        }
        free(path);
        if (errno != EEXIST)
            break;
    }
    return err_errno(e, ERR_IO, errno, "%s%s: cannot write", out, end);
}

void cli_train_drop(char **fresh)
{
    if (*fresh != NULL)
        unlink(*fresh);
    free(*fresh);
    *fresh = NULL;
}
