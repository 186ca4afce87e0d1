/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - processors this process may use: affinity and cgroup quota (pool.h, cpus.h). room: base
 *
 * Version 2 of cgroups has "QUOTA PERIOD" or "max PERIOD" in cpu.max; version 1 has the two numbers (quota -1: none) in
 * two files.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, CPU_ALLOC */
#endif
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/cpus.h"
#include "base/pool.h"

enum { PATH_BYTES = 4096, CPUS_MAX = 1 << 16 };

/* Limit of one cgroup directory; -1 when it has none. */
static int64_t dir_limit(const char *dir, bool v2)
{
    char path[PATH_BYTES + 32];
    int64_t v[2] = { 0, 0 };
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (cgroup_numbers(path, v) < 2) { /* "max ..." has no number in front */
            return -1;
        }
    } else {
        int64_t period[2];
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        if (cgroup_numbers(path, v) < 1) {
            return -1;
        }
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        if (cgroup_numbers(path, period) < 1) {
            return -1;
        }
        v[1] = period[0];
    }
    if (v[0] <= 0 || v[1] <= 0) {
        return -1;
    }
    return (v[0] - 1) / v[1] + 1;
}

int pool_quota_cpus(const char *root)
{
    static const struct cgroup_limit cpu = { "cpu", { "/cpu", "/cpu,cpuacct" }, dir_limit };
    int64_t limit = cgroup_least(root, &cpu);
    return limit < 0 ? 0 : limit > CPUS_MAX ? CPUS_MAX : (int)limit;
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
    int cpus = affinity_cpus(), quota = pool_quota_cpus("");
    cpus = quota > 0 && quota < cpus ? quota : cpus;
    return cpus < 1 ? 1 : cpus;
}
