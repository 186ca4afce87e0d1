/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - how much memory is left; arrays that grow.                         room: base */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H
#include "base/base.h"

/* Bytes that this process can still take without swapping and without the system killing a process: what the system has
 * left, or what the process's control groups leave, if that is less. Cached pages of files count as free, since they
 * can be read again. -1: not known. `root` is put before /proc and /sys: "", or a test's own tree. */
int64_t memory_left(const char *root);
/* Room for n elements of `size` bytes in *array, malloc'ed or NULL, whose capacity *cap at least doubles when it grows.
 * array is a pointer to the array's pointer. ERR_NOMEM: nothing has changed. */
MUST_CHECK enum err_code memory_room(void *array, size_t *cap, size_t n, size_t size, struct err *e);
#endif
