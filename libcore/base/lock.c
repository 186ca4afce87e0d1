/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c - one writer of a file at a time. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"

struct io_lock {
    char *name;
    int fd;
};

/* FILE.lock, where a link to the file has the file's own. NULL: out of memory. */
static char *name_of(const char *path)
{
    char *file = realpath(path, NULL), *name;
    const size_t n = strlen(file != NULL ? file : path);

    name = malloc(n + 6);
    if (name != NULL) {
        memcpy(name, file != NULL ? file : path, n);
        memcpy(name + n, ".lock", 6);
    }
    free(file);
    return name;
}

/* A file beside it, which its holder removes: who got the lock of a removed one tries again. */
enum err_code io_lock(struct io_lock **out, const char *path, struct err *e)
{
    struct io_lock *l = calloc(1, sizeof *l);
    struct stat held, named;

    if (lstat(path, &named) == 0 && S_ISLNK(named.st_mode) && stat(path, &held) != 0) { /* it would be replaced */
        free(l);
        return err_errno(e, ERR_IO, errno, "%s: is a link that leads nowhere", path);
    }
    if (l == NULL || (l->name = name_of(path)) == NULL) {
        free(l);
        return err_nomem(e);
    }
    for (;;) {
        l->fd = open(l->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (l->fd < 0)
            err_errno(e, ERR_IO, errno, "%s: cannot make the lock beside it", path);
        else if (flock(l->fd, LOCK_EX | LOCK_NB) != 0)
            err_set(e, ERR_IO, "%s: another program is writing it", path);
        else if (fstat(l->fd, &held) == 0 && held.st_size > 0)
            err_set(e, ERR_IO, "%s: is not a lock but some other file, and stays", l->name);
        else if (fstat(l->fd, &held) == 0 && stat(l->name, &named) == 0 && held.st_ino == named.st_ino &&
                 held.st_dev == named.st_dev) {
            *out = l;
            return ERR_OK;
        } else {
            close(l->fd);
            continue;
        }
        if (l->fd >= 0)
            close(l->fd);
        free(l->name);
        free(l);
        return ERR_IO;
    }
}

void io_unlock(struct io_lock *l)
{
    if (l == NULL)
        return;
    unlink(l->name);
    close(l->fd);
    free(l->name);
    free(l);
}
