/* SPDX-License-Identifier: Apache-2.0 */
/* user_cache.c - where what can be found out again is kept for the next process.   room: cmd */
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
