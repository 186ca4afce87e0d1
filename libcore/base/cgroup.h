/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - limits of the control groups that this process is in (inside the room). room: base */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H
#include "base/base.h"

struct cgroup_limit {
    const char *controller;
    const char
        *mounts[2]; /* of version 1, below /sys/fs/cgroup: the second is for when the first gives none; NULL: none */
    /* The limit, or what is left of it, in one directory of version 2 or 1; -1 when it sets none. */
    int64_t (*of)(const char *dir, bool v2);
};
/* The smallest limit of the groups above this process; -1 when they set none. `root` is put before /proc and /sys:
 * "", or a test's own tree. */
int64_t cgroup_least(const char *root, const struct cgroup_limit *l);

/* Reads the numbers at the start of a small file, at most two; returns how many there were. */
int cgroup_numbers(const char *path, int64_t v[2]);
/* The number after `word` where a line of a small file (such as meminfo) begins with it; -1: none. */
int64_t cgroup_number_of(const char *path, const char *word);
#endif
