/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - a paired test; versions of a file. */
#include "train/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"

double train_gate(const double *gain, int64_t n, uint64_t seed)
{
    enum { DRAWS = 20000 };
    double sum = 0, size = 0;
    int64_t more = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += gain[i];
        size += fabs(gain[i]);
    }
    if (!(size > 0))
        return 1;
    for (int64_t d = 0; d < DRAWS; d++) {
        double drawn = 0;

        for (int64_t i = 0; i < n; i += 128) {
            uint32_t bits[4];

            rng_block(bits, seed, (uint64_t)d, (uint64_t)(i / 128));
            for (int64_t j = 0; j < 128 && i + j < n; j++)
                drawn += bits[j / 32] >> (j % 32) & 1 ? gain[i + j] : -gain[i + j];
        }
        more += drawn >= sum - 1e-9 * size;
    }
    return (double)(more + 1) / (DRAWS + 1);
}

/* ---- versions ---- */

/* "PATH.i", or PATH for 0; malloc'ed. */
static char *version(const char *path, int i)
{
    const size_t n = strlen(path) + 16;
    char *s = malloc(n);

    if (s != NULL && i == 0)
        (void)snprintf(s, n, "%s", path);
    else if (s != NULL)
        (void)snprintf(s, n, "%s.%d", path, i);
    return s;
}

static bool is_there(const char *path, int i)
{
    char *s = version(path, i);
    const bool yes = s != NULL && access(s, F_OK) == 0;

    free(s);
    return yes;
}

/* Version `from` becomes version `to`; linked: it stays under its name, too, where the file system can do that. */
static enum err_code move(const char *path, int from, int to, bool linked, struct err *e)
{
    char *a = version(path, from), *b = version(path, to);
    enum err_code code = ERR_OK;

    if (a == NULL || b == NULL)
        code = err_set(e, ERR_NOMEM, "out of memory");
    else if (linked && (unlink(b) == 0 || errno == ENOENT) && link(a, b) == 0)
        code = ERR_OK;
    else if (rename(a, b) != 0)
        code = err_errno(e, ERR_IO, errno, "%s: cannot become %s", a, b);
    free(a);
    free(b);
    return code;
}

/* The names in the directory of path are on the disk. */
static void settle(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = strdup(slash == NULL ? "." : slash == path ? "/" : path);
    int fd;

    if (dir == NULL)
        return;
    if (slash != NULL && slash != path)
        dir[slash - path] = '\0';
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(dir);
}

enum err_code train_publish(const char *path, const char *fresh, int keep, struct err *e)
{
    if (keep > 0 && is_there(path, 0)) {
        int last = 1;

        while (last < keep && is_there(path, last))
            last++;
        for (int i = last; i > 1; i--)
            if (move(path, i - 1, i, false, e))
                return e->code;
        if (move(path, 0, 1, true, e))
            return e->code;
    }
    if (rename(fresh, path) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot become %s", fresh, path);
    settle(path);
    return ERR_OK;
}

enum err_code train_rollback(const char *path, struct err *e)
{
    int n = 1;

    if (!is_there(path, 1))
        return err_set(e, ERR_IO, "%s: there is no version before it (%s.1)", path, path);
    while (is_there(path, n))
        n++;
    if (is_there(path, 0) && move(path, 0, n, true, e))
        return e->code;
    for (int i = 1; i <= n && is_there(path, i); i++)
        if (move(path, i, i - 1, false, e))
            return e->code;
    settle(path);
    return ERR_OK;
}
