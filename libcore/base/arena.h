/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - memory with one lifetime: many small allocations, one release.     room: base
 *
 * Blocks come from malloc, grow geometrically, never move. One thread at a time.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include "base/base.h"

struct arena_block;
struct arena {
    struct arena_block *head; /* newest block; {0} is an empty arena */
    size_t used_bytes;        /* handed out since the last arena_free */
};

/* n bytes, zeroed, aligned to 64; NULL when memory is out (n == 0 gives a valid pointer). */
void *arena_alloc(struct arena *a, size_t n);
/* count * size with overflow check. */
void *arena_array(struct arena *a, size_t count, size_t size);
/* Copy with a terminating NUL added; NULL when memory is out. */
char *arena_strdup(struct arena *a, struct str s);
void arena_free(struct arena *a); /* a is empty afterwards and may be used again */
#endif
