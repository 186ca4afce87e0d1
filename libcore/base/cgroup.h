/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - limits of the control groups that this process is in (inside the room). room: base */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H
#include "base/base.h"

struct cgroup_limit {
    const char *controller;
    const char *mounts[2]; /* of version 1, below /sys/fs/cgroup: the second where the first says nothing; NULL: none */
    /* Of one directory of version 2 or 1; -1 when it has none. */
    int64_t (*of)(const char *dir, bool v2);
};
/* The tightest limit of the groups above this process; -1 when they set none. `root` stands before /proc and /sys:
 * "" but for a test's own tree. */
int64_t cgroup_least(const char *root, const struct cgroup_limit *l);

/* The numbers at the start of a small file, at most two; returns how many were there. */
int cgroup_numbers(const char *path, int64_t v[2]);
/* The number after a word at the start of a line of a small file, such as meminfo; -1: none. */
int64_t cgroup_number_of(const char *path, const char *word);
#endif
