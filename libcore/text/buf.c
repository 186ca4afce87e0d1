/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - a growing string.                                                     room: text */
#include <stdlib.h>
#include <string.h>
#include "text/buf.h"

void text_buf_add(struct text_buf *b, struct str s)
{
    if (b->failed || s.n == 0)
        return;
    if (s.n > b->cap - b->n) {
        size_t cap = b->cap < 256 ? 256 : b->cap;
        while (cap - b->n < s.n && cap <= SIZE_MAX / 2)
            cap *= 2;
        char *p = cap - b->n < s.n ? NULL : realloc(b->p, cap);
        if (p == NULL) {
            b->failed = true;
            return;
        }
        b->p = p;
        b->cap = cap;
    }
    memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
}

void text_buf_addz(struct text_buf *b, const char *z)
{
    text_buf_add(b, str_of(z));
}
