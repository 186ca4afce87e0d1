/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - how much memory is left.                                          room: base */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H
#include "base/base.h"

/* Bytes that this process may still take without swapping, or something being killed for it: what the system has,
 * or less, where the control groups above the process leave less. Pages of files that can be read again count as
 * free. -1: not known. `root` stands before /proc and /sys: "" but for a test's own tree. */
int64_t memory_left(const char *root);
#endif
