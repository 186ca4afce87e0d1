/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - a growing string.                                                     room: text */
#include <stdlib.h>
#include <string.h>
#include "text/buf.h"
#include "base/memory.h"

void text_buf_add(struct text_buf *b, struct str s)
{
    if (b->failed || s.n == 0)
        return;
    if (memory_room(&b->p, &b->cap, b->n + s.n, 1, NULL)) {
        b->failed = true;
        return;
    }
    memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
}

void text_buf_addz(struct text_buf *b, const char *z)
{
    text_buf_add(b, str_of(z));
}
