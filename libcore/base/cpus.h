/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h - how much processor time Linux grants this process (inside the room). room: base */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

/* How many processors the time allowed by the cgroups above this process is worth, rounded up; 0 when
 * they set no limit. `root` is put before /proc and /sys: "", or a test's own tree. */
int pool_quota_cpus(const char *root);
#endif
