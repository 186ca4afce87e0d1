/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.h - how much processor time Linux grants this process (inside the room). room: base */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

/* Processors worth of time that the cgroups above this process allow, rounded up; 0 when they set
 * no limit. `root` stands before /proc and /sys: "" but for a test's own tree. */
int pool_quota_cpus(const char *root);
#endif
