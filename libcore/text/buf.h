/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h - a growing string.                                                     room: text */
#ifndef TEXT_BUF_H
#define TEXT_BUF_H
#include "text/text.h"

/* {0} is empty. Once memory is out, failed is set and nothing more is added. */
struct text_buf {
    char *p;
    size_t n, cap;
    bool failed;
};
void text_buf_add(struct text_buf *b, struct str s);
void text_buf_addz(struct text_buf *b, const char *z);
#endif
