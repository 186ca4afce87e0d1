/* SPDX-License-Identifier: Apache-2.0 */
/* heard_cache.c - what a model said of a text, kept in a file of the user's cache.   room: cmd
 *
 * chimere/heard-KEY of $XDG_CACHE_HOME, or of ~/.cache: a head and an entry for each token, in the machine's byte
 * order. The key is a hash of all that the numbers depend on. A file that is not as it was written is not used, and one
 * that nobody has used for two months goes away. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "engram-build/program.h"
#include "engram/heard.h"

enum { DIR_BYTES = 3072, PATH_BYTES = 4096, UNUSED_S = 60 * 86400 };
static const char begins[] = "heard-";

struct head {
    char magic[8];
    uint64_t key, n, sum; /* sum: of the entries */
};
_Static_assert(sizeof(struct engram_heard_token) == 16, "an entry has no gaps");
#define MAGIC "CHIMHEA1"

static void path_of(char path[PATH_BYTES], const char *dir, uint64_t key)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s%016" PRIx64, dir, begins, key);
}

static bool is_whole(const struct head *h, const struct engram_heard_token *v, uint64_t key, int64_t n,
                     int64_t n_windows)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->key != key || h->n != (uint64_t)n ||
        h->sum != io_hash(key, v, (size_t)n * sizeof *v))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!(v[i].p > 0 && v[i].p <= 1 && v[i].sure > 0 && v[i].sure <= 1) || v[i].window < 0 ||
            v[i].window >= n_windows)
            return false;
    return true;
}

bool cli_engram_heard_read(struct engram_heard *h, uint64_t key, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *h->said;
    char dir[DIR_BYTES], path[PATH_BYTES], *data;
    bool whole = false;
    struct head head;
    struct err e;
    size_t got;
    int fd;

    fd = cli_user_cache(dir, sizeof dir, false, &e);
    if (fd < 0)
        return false;
    close(fd);
    path_of(path, dir, key);
    if (access(path, R_OK) != 0 || io_read_regular(&data, &got, path, sizeof head + bytes, &e))
        return false;
    if (got == sizeof head + bytes && memory_room(&h->said, &h->cap, (size_t)n, sizeof *h->said, &e) == ERR_OK) {
        memcpy(&head, data, sizeof head);
        memcpy(h->said, data + sizeof head, bytes);
        whole = is_whole(&head, h->said, key, n, h->n_windows);
    }
    free(data);
    h->n = whole ? n : 0;
    if (whole)
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    return whole;
}

/* Files that nobody has used for long. */
static void drop_unused(int fd)
{
    DIR *d = fdopendir(fd);
    const struct dirent *f;
    struct stat st;

    while (d != NULL && (f = readdir(d)) != NULL)
        if (strncmp(f->d_name, begins, sizeof begins - 1) == 0 &&
            fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtim.tv_sec < time(NULL) - UNUSED_S)
            (void)unlinkat(fd, f->d_name, 0);
    if (d != NULL)
        closedir(d);
    else
        close(fd);
}

void cli_engram_heard_write(const struct engram_heard *h, uint64_t key)
{
    char dir[DIR_BYTES], path[PATH_BYTES];
    const size_t bytes = sizeof(struct head) + (size_t)h->n * sizeof(struct engram_heard_token);
    struct head head = { .magic = MAGIC, .key = key, .n = (uint64_t)h->n };
    char *data = malloc(bytes);
    struct err e = { 0 };
    const int fd = data != NULL ? cli_user_cache(dir, sizeof dir, true, &e) : -1;

    if (fd >= 0) {
        head.sum = io_hash(key, h->said, bytes - sizeof head);
        memcpy(data, &head, sizeof head);
        memcpy(data + sizeof head, h->said, bytes - sizeof head);
        drop_unused(fd);
        path_of(path, dir, key);
        e.code = io_write_file(path, (struct str){ data, bytes }, &e);
    }
    if (e.code != ERR_OK)
        cli_note("what the model said is not kept: %s", e.msg);
    free(data);
}
