/* SPDX-License-Identifier: Apache-2.0 */
/* user_cache.c - where what can be found out again is kept for the next process.   room: cmd */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"

/* The directory that caches are in, of this user alone: others could exchange what lies there. */
static bool find_root(char *buf, size_t buf_bytes, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool given = cache != NULL && cache[0] == '/';
    const int n = given                            ? snprintf(buf, buf_bytes, "%s", cache)
                  : home != NULL && home[0] == '/' ? snprintf(buf, buf_bytes, "%s/.cache", home)
                                                   : -1;
    struct stat st;

    if (n < 0 || (size_t)n >= buf_bytes)
        return false;
    if (make)
        (void)mkdir(buf, 0700); /* one that is there is fine */
    return stat(buf, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int cli_user_cache(char *dir, size_t dir_bytes, bool make, struct err *e)
{
    static const char name[] = "/chimere";
    size_t n;
    int fd;

    *e = (struct err){ 0 };
    if (!find_root(dir, dir_bytes - sizeof name, make)) {
        err_set(e, ERR_IO, "no cache directory of this user alone");
        return -1;
    }
    n = strlen(dir);
    memcpy(dir + n, name, sizeof name);
    if (!make && access(dir, F_OK) != 0)
        return -1;
    return io_open_dir(&fd, dir, make, e) == ERR_OK ? fd : -1;
}

size_t cli_cache_read(int dir, const char *name, char *buf, size_t max_bytes)
{
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = 0;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && (uint64_t)st.st_size <= max_bytes)
        n = read(fd, buf, max_bytes);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* The name of the temporary file is one that io_remove_left() knows. */
bool cli_cache_write(int dir, const char *name, const char *text)
{
    char temp[128];
    struct err e = { 0 };
    bool good;
    int fd;

    (void)snprintf(temp, sizeof temp, ".%s.%ld-0.tmp", name, (long)getpid());
    io_remove_left(dir, name);
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    good = io_write_all(fd, text, strlen(text), &e) == ERR_OK;
    good = close(fd) == 0 && good && renameat(dir, temp, dir, name) == 0;
    if (!good)
        (void)unlinkat(dir, temp, 0);
    return good;
}
