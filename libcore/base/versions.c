/* SPDX-License-Identifier: Apache-2.0 */
/* versions.c - a file and what it was before: FILE, FILE.1, FILE.2 and so on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/io.h"

enum { KIND_BYTES = 4 };

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
    struct stat st;
    char *s = version(path, i);
    const bool yes = s != NULL && lstat(s, &st) == 0;

    free(s);
    return yes;
}

/* The first bytes, which say what kind of file it is. Returns how many there are; below 0: it cannot be read. */
static ssize_t read_kind(const char *path, int i, char kind[KIND_BYTES])
{
    char *s = version(path, i);
    const int fd = s != NULL ? open(s, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    const ssize_t n = fd >= 0 ? read(fd, kind, KIND_BYTES) : -1;

    if (fd >= 0)
        close(fd);
    free(s);
    return n;
}

/* Somebody's file may have a version's name. Of a file that is gone nothing is known, and an empty one was replaced. */
static bool is_kind(const char *path, int i)
{
    char mine[KIND_BYTES], its[KIND_BYTES];
    const ssize_t n = read_kind(path, i, its);

    return read_kind(path, 0, mine) < KIND_BYTES || n == 0 || (n == KIND_BYTES && memcmp(mine, its, KIND_BYTES) == 0);
}

/* A directory of such a name, a link to nothing, or a file of another kind is no version, and is left alone. */
static enum err_code check_versions(const char *path, struct err *e)
{
    for (int i = 1; is_there(path, i); i++) {
        struct stat st;
        char *s = version(path, i);
        const bool good = s != NULL && stat(s, &st) == 0 && S_ISREG(st.st_mode) && is_kind(path, i);

        if (!good)
            err_set(e, ERR_IO, "%s: stands where a version of %s is to be kept, and is none", s != NULL ? s : "", path);
        free(s);
        if (!good)
            return e->code;
    }
    return ERR_OK;
}

/* Version `from` becomes version `to`; linked: it stays under its name, too, where the file system can do that. */
static enum err_code move_version(const char *path, int from, int to, bool linked, struct err *e)
{
    char *a = version(path, from), *b = version(path, to);
    enum err_code code = ERR_OK;

    if (a == NULL || b == NULL)
        code = err_nomem(e);
    else if (linked && (unlink(b) == 0 || errno == ENOENT) && link(a, b) == 0)
        code = ERR_OK;
    else if (rename(a, b) != 0)
        code = err_errno(e, ERR_IO, errno, "%s: cannot become %s", a, b);
    free(a);
    free(b);
    return code;
}

static bool drop_version(const char *path, int i)
{
    char *s = version(path, i);
    const bool done = s != NULL && unlink(s) == 0;

    free(s);
    return done;
}

static bool is_file(const char *path, int i, struct stat *st)
{
    char *s = version(path, i);
    const bool yes = s != NULL && lstat(s, st) == 0 && S_ISREG(st->st_mode);

    free(s);
    return yes;
}

/* One who was killed between two steps leaves a number without a file, or the file under two names: what follows moves
 * up. */
static enum err_code close_gap(const char *path, struct err *e)
{
    struct stat now, last;

    if (is_file(path, 0, &now) && is_file(path, 1, &last) && now.st_ino == last.st_ino && now.st_dev == last.st_dev)
        (void)drop_version(path, 1);
    for (int i = 1; is_there(path, i) || (is_file(path, i + 1, &now) && is_kind(path, i + 1)); i++)
        if (!is_there(path, i) && move_version(path, i + 1, i, false, e))
            return e->code;
    return ERR_OK;
}

/* malloc'ed; NULL: out of memory. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* The names in the directory of path are on the disk. */
static void settle_directory(const char *path)
{
    char *dir = directory_of(path);
    int fd;

    if (dir == NULL)
        return;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(dir);
}

enum err_code io_room_for(const char *path, uint64_t n, struct err *e)
{
    char *dir = directory_of(path);
    struct statvfs fs;
    const bool known = dir != NULL && statvfs(dir, &fs) == 0 && fs.f_blocks > 0;

    free(dir);
    if (!known || (double)fs.f_bavail * (double)fs.f_frsize >= (double)n)
        return ERR_OK;
    return err_set(e, ERR_IO, "%s: %.1f MB are needed, and its file system has %.1f MB free", path, (double)n / 1e6,
                   (double)fs.f_bavail * (double)fs.f_frsize / 1e6);
}

/* The file itself, where path is a link to it. malloc'ed; NULL: out of memory. */
static char *file_of(const char *path)
{
    char *file = realpath(path, NULL);

    return file != NULL ? file : strdup(path);
}

enum err_code io_cannot_open(const char *path, int errnum, struct err *e)
{
    if (errnum != ENOENT || !is_there(path, 1))
        return err_errno(e, ERR_IO, errnum, "%s: cannot open", path);
    return err_set(e, ERR_IO, "%s: cannot open: it is not there, but the version before it is: %s.1 (rollback)", path,
                   path);
}

void io_same_mode(const char *fresh, const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0)
        (void)chmod(fresh, st.st_mode & 0777);
}

static enum err_code publish(const char *path, const char *fresh, int keep, struct err *e)
{
    io_same_mode(fresh, path);
    if (keep > 0 && is_there(path, 0)) {
        int last = 1;

        if (close_gap(path, e) || check_versions(path, e))
            return e->code;
        while (last < keep && is_there(path, last))
            last++;
        for (int i = last; i > 1; i--)
            if (move_version(path, i - 1, i, false, e))
                return e->code;
        if (move_version(path, 0, 1, true, e))
            return e->code;
    }
    if (rename(fresh, path) != 0) {
        err_errno(e, ERR_IO, errno, "%s: cannot become %s", fresh, path);
        if (keep > 0 && !is_there(path, 0)) /* a file system without links: it was renamed */
            (void)move_version(path, 1, 0, false, &(struct err){ 0 });
        return e->code;
    }
    for (int i = keep + 1; is_there(path, i) && is_kind(path, i) && drop_version(path, i); i++)
        ;
    settle_directory(path);
    return ERR_OK;
}

static enum err_code roll_back(const char *path, struct err *e)
{
    int n = 1;

    if (close_gap(path, e) || check_versions(path, e))
        return e->code;
    if (!is_there(path, 1))
        return err_set(e, ERR_IO, "%s: there is no version before it (%s.1); to do without it, leave it out", path,
                       path);
    while (is_there(path, n))
        n++;
    if (is_there(path, 0) && move_version(path, 0, n, true, e))
        return e->code;
    for (int i = 1; i <= n && is_there(path, i); i++)
        if (move_version(path, i, i - 1, false, e))
            return e->code;
    settle_directory(path);
    return ERR_OK;
}

enum err_code io_publish(const char *path, const char *fresh, int keep, struct err *e)
{
    char *file = file_of(path);
    enum err_code code = file != NULL ? publish(file, fresh, keep, e) : err_nomem(e);

    free(file);
    return code;
}

enum err_code io_versions_check(const char *path, struct err *e)
{
    char *file = file_of(path);
    enum err_code code = file != NULL ? check_versions(file, e) : err_nomem(e);

    free(file);
    return code;
}

enum err_code io_rollback(const char *path, struct err *e)
{
    char *file = file_of(path);
    enum err_code code = file != NULL ? roll_back(file, e) : err_nomem(e);

    free(file);
    return code;
}
