/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - processors this process may use: affinity and cgroup quota (pool.h, cpus.h). room: base
 *
 * /proc/self/cgroup has a line "ID:CONTROLLERS:PATH" per hierarchy. Version 2 is "0::PATH", with
 * "QUOTA PERIOD" or "max PERIOD" in cpu.max; version 1 names the controller cpu and has the two
 * numbers (quota -1: none) in two files. A limit of any ancestor holds too. In a container PATH may
 * lead nowhere below the mount; the walk up to the mount's root then finds the container's own.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, CPU_ALLOC */
#endif
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cpus.h"
#include "base/io.h"
#include "base/pool.h"

enum { FILE_BYTES_MAX = 64 << 10, PATH_BYTES = 4096, CPUS_MAX = 1 << 16 };

/* The numbers at the start of a small file, at most two; returns how many were there. */
static int read_numbers(const char *path, long long v[2])
{
    char *text;
    size_t n;
    if (io_read_all(&text, &n, path, FILE_BYTES_MAX, NULL) != ERR_OK) {
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

/* Limit of one cgroup directory; 0 when it has none. */
static int dir_limit(const char *dir, bool v2)
{
    char path[PATH_BYTES + 32];
    long long v[2] = { 0, 0 };
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (read_numbers(path, v) < 2) { /* "max ..." has no number in front */
            return 0;
        }
    } else {
        long long period[2];
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        if (read_numbers(path, v) < 1) {
            return 0;
        }
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        if (read_numbers(path, period) < 1) {
            return 0;
        }
        v[1] = period[0];
    }
    if (v[0] <= 0 || v[1] <= 0) {
        return 0;
    }
    long long cpus = (v[0] - 1) / v[1] + 1;
    return cpus > CPUS_MAX ? CPUS_MAX : (int)cpus;
}

static int smaller_limit(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The tightest limit from mount/path up to mount. */
static int walk_up(const char *root, const char *mount, const char *path, bool v2)
{
    char dir[PATH_BYTES];
    int n = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s%s", root, mount, path);
    size_t stop = strlen(root) + strlen("/sys/fs/cgroup") + strlen(mount);
    if (n < 0 || (size_t)n >= sizeof dir) {
        return 0;
    }
    int limit = 0;
    for (;;) {
        limit = smaller_limit(limit, dir_limit(dir, v2));
        if (strlen(dir) <= stop) {
            return limit;
        }
        *strrchr(dir, '/') = '\0'; /* path begins with '/', so this ends at `stop` */
    }
}

/* Whether a comma-separated list has the word "cpu". */
static bool has_cpu(const char *list)
{
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == '\0')) {
            return true;
        }
    }
    return false;
}

/* One line "ID:CONTROLLERS:PATH". */
static int line_limit(const char *root, char *line)
{
    char *list = strchr(line, ':');
    char *path = list != NULL ? strchr(list + 1, ':') : NULL;
    if (path == NULL || path[1] != '/') {
        return 0;
    }
    *list++ = '\0';
    *path++ = '\0';
    if (*list == '\0') {
        return smaller_limit(walk_up(root, "", path, true), walk_up(root, "/unified", path, true));
    }
    if (!has_cpu(list)) {
        return 0;
    }
    int limit = walk_up(root, "/cpu", path, false);
    return limit != 0 ? limit : walk_up(root, "/cpu,cpuacct", path, false);
}

int pool_quota_cpus(const char *root)
{
    char name[PATH_BYTES];
    char *text;
    size_t n;
    int len = snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    if (len < 0 || (size_t)len >= sizeof name ||
        io_read_all(&text, &n, name, FILE_BYTES_MAX, NULL) != ERR_OK) {
        return 0;
    }
    int limit = 0;
    for (char *line = text; line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        limit = smaller_limit(limit, line_limit(root, line));
        line = end;
    }
    free(text);
    return limit;
}

/* The kernel refuses (EINVAL) a set smaller than its own, so sizes are tried upwards. */
static int affinity_cpus(void)
{
    for (size_t bits = CPU_SETSIZE; bits <= CPUS_MAX; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC(bits);
        if (set == NULL) {
            break;
        }
        size_t size = CPU_ALLOC_SIZE(bits);
        int rc = sched_getaffinity(0, size, set);
        int errnum = errno;
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0) {
            return count;
        }
        if (errnum != EINVAL) {
            break;
        }
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > CPUS_MAX ? CPUS_MAX : (int)online;
}

int pool_cpus(void)
{
    int cpus = smaller_limit(affinity_cpus(), pool_quota_cpus(""));
    return cpus < 1 ? 1 : cpus;
}
