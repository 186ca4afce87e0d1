/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - how much memory is left.                                          room: base */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H
#include "base/base.h"

/* Bytes that this process can still take without swapping and without the system killing a process: what the system has
 * left, or what the process's control groups leave, if that is less. Cached pages of files count as free, since they
 * can be read again. -1: not known. `root` is put before /proc and /sys: "", or a test's own tree. */
int64_t memory_left(const char *root);
#endif
