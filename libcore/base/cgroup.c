/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c - limits of the control groups that this process is in (cgroup.h).  room: base
 *
 * /proc/self/cgroup has a line "ID:CONTROLLERS:PATH" per hierarchy. Version 2 is "0::PATH", version 1 names its
 * controllers. A limit of any ancestor holds too. In a container PATH may lead nowhere below the mount; the walk up to
 * the mount's root then finds the container's own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cgroup.h"
#include "base/io.h"

enum { FILE_BYTES_MAX = 64 << 10, PATH_BYTES = 4096 };

int cgroup_numbers(const char *path, int64_t v[2])
{
    char *text;
    size_t n;
    if (io_read_all(&text, &n, path, FILE_BYTES_MAX, NULL, NULL) != ERR_OK) {
        return 0;
    }
    int got = 0;
    char *p = text;
    while (got < 2) {
        char *end;
        errno = 0;
        v[got] = strtoll(p, &end, 10);
        if (end == p || errno != 0) {
            break;
        }
        p = end;
        got++;
    }
    free(text);
    return got;
}

int64_t cgroup_number_of(const char *path, const char *word)
{
    char *text;
    size_t n, len = strlen(word);
    int64_t v = -1;
    if (io_read_all(&text, &n, path, FILE_BYTES_MAX, NULL, NULL) != ERR_OK) {
        return -1;
    }
    for (char *line = text; line != NULL && v < 0;) {
        char *end = strchr(line, '\n');
        if (strncmp(line, word, len) == 0 && (line[len] == ' ' || line[len] == ':')) {
            v = strtoll(line + len + 1, NULL, 10);
        }
        line = end != NULL ? end + 1 : NULL;
    }
    free(text);
    return v;
}

static int64_t smaller_limit(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* The tightest limit from mount/path up to mount. */
static int64_t walk_up(const char *root, const char *mount, const char *path, bool v2, const struct cgroup_limit *l)
{
    char dir[PATH_BYTES];
    int n = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s%s", root, mount, path);
    size_t stop = strlen(root) + strlen("/sys/fs/cgroup") + strlen(mount);
    if (n < 0 || (size_t)n >= sizeof dir) {
        return -1;
    }
    int64_t limit = -1;
    for (;;) {
        limit = smaller_limit(limit, l->of(dir, v2));
        if (strlen(dir) <= stop) {
            return limit;
        }
        *strrchr(dir, '/') = '\0'; /* path begins with '/', so this ends at `stop` */
    }
}

/* Whether a comma-separated list has the word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

/* One line "ID:CONTROLLERS:PATH". */
static int64_t line_limit(const char *root, char *line, const struct cgroup_limit *l)
{
    char *list = strchr(line, ':');
    char *path = list != NULL ? strchr(list + 1, ':') : NULL;
    int64_t limit = -1;
    if (path == NULL || path[1] != '/') {
        return -1;
    }
    *list++ = '\0';
    *path++ = '\0';
    if (*list == '\0') {
        return smaller_limit(walk_up(root, "", path, true, l), walk_up(root, "/unified", path, true, l));
    }
    for (int i = 0; i < 2 && limit < 0 && l->mounts[i] != NULL && has_word(list, l->controller); i++) {
        limit = walk_up(root, l->mounts[i], path, false, l);
    }
    return limit;
}

int64_t cgroup_least(const char *root, const struct cgroup_limit *l)
{
    char name[PATH_BYTES];
    char *text;
    size_t n;
    int len = snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    if (len < 0 || (size_t)len >= sizeof name || io_read_all(&text, &n, name, FILE_BYTES_MAX, NULL, NULL) != ERR_OK) {
        return -1;
    }
    int64_t limit = -1;
    for (char *line = text; line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        limit = smaller_limit(limit, line_limit(root, line, l));
        line = end;
    }
    free(text);
    return limit;
}
