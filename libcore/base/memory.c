/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - how much memory is left, arrays that grow (memory.h).              room: base
 *
 * The system's figure is MemAvailable. A cgroup has a limit, what is in use, and in memory.stat how much of that are
 * pages of files on the lists that are reclaimed from; of version 1 the total_ ones are those of the groups below, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cgroup.h"
#include "base/memory.h"

enum { PATH_BYTES = 4096 };
#define NO_LIMIT ((int64_t)1 << 60) /* version 1 writes none as a number about 2^63 */

/* Left of one cgroup directory; -1 when it has no limit. */
static int64_t dir_left(const char *dir, bool v2)
{
    static const char *const names[2][4] = {
        { "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file" },
        { "memory.max", "memory.current", "inactive_file", "active_file" },
    };
    char path[PATH_BYTES + 32];
    int64_t v[2][2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[v2][i]);
        if (cgroup_numbers(path, v[i]) < 1 || v[i][0] >= NO_LIMIT) { /* "max" is no number */
            return -1;
        }
    }
    int64_t left = v[0][0] - v[1][0];
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    for (int i = 2; i < 4; i++) {
        int64_t files = cgroup_number_of(path, names[v2][i]);
        left += files > 0 ? files : 0;
    }
    return left > 0 ? left : 0;
}

int64_t memory_left(const char *root)
{
    static const struct cgroup_limit memory = { "memory", { "/memory", NULL }, dir_left };
    char path[PATH_BYTES];
    int64_t group = cgroup_least(root, &memory), kib = -1;
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) < (int)sizeof path) {
        kib = cgroup_number_of(path, "MemAvailable");
    }
    return kib < 0 || (group >= 0 && group < kib * 1024) ? group : kib * 1024;
}

enum err_code memory_room(void *array, size_t *cap, size_t n, size_t size, struct err *e)
{
    enum { FIRST = 64 };
    const size_t more = n > 2 * *cap ? n : 2 * *cap, room = more > FIRST ? more : FIRST;
    void *v;

    if (n <= *cap)
        return ERR_OK;
    memcpy(&v, array, sizeof v); /* a pointer to any type of object */
    v = realloc(v, room * size);
    if (v == NULL)
        return err_nomem(e);
    memcpy(array, &v, sizeof v);
    *cap = room;
    return ERR_OK;
}
