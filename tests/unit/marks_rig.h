/* SPDX-License-Identifier: Apache-2.0 */
/* marks_rig.h - answers with the marks of a syntax, for the tests of marks. */
#ifndef TESTS_UNIT_MARKS_RIG_H
#define TESTS_UNIT_MARKS_RIG_H

#include <string.h>

#include "base/base.h"
#include "chat/reader.h"
#include "text/marks.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"
enum { ANSWER_BYTES = 512 };

static inline void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

struct counts {
    int n, reasoning; /* pieces, and how many of them are reasoning */
};

/* A piece is reasoning if it ends within it, or begins within it. */
static inline void count_by_reader(struct counts *c, struct chat_reader *r, struct str s)
{
    const bool before = chat_reader_where(r) == CHAT_REASONING;
    const struct chat_piece *v;
    struct err e = { 0 };
    int n;

    must(chat_read(r, s, false, &v, &n, &e), &e);
    c->reasoning += before || chat_reader_where(r) == CHAT_REASONING;
    c->n++;
}

static inline void add_str(char *to, size_t *n, struct str s)
{
    assert_true(*n + s.n < ANSWER_BYTES);
    if (s.n > 0) /* p may be NULL */
        memcpy(to + *n, s.p, s.n);
    *n += s.n;
}

/* The form with marks: O is the opening one, S what may stand before it, Z what closes it; o and z lack the last byte.
 */
static inline struct str answer_of(char *to, const char *form, const struct text_marks *m, struct str close)
{
    size_t n = 0;

    for (; *form != '\0'; form++)
        if (*form == 'O')
            add_str(to, &n, m->open);
        else if (*form == 'o')
            add_str(to, &n, (struct str){ m->open.p, m->open.n - 1 });
        else if (*form == 'S')
            add_str(to, &n, m->skip[0]);
        else if (*form == 'Z')
            add_str(to, &n, close);
        else if (*form == 'z')
            add_str(to, &n, (struct str){ close.p, close.n - 1 });
        else
            add_str(to, &n, (struct str){ form, 1 });
    return (struct str){ to, n };
}

#endif
