/* SPDX-License-Identifier: Apache-2.0 */
/* marks.c - follows an answer byte by byte, as chat/reader.c reads it.              room: text */
#include <string.h>

#include "text/marks.h"

struct text_place text_marks_begin(const struct text_marks *m, bool inside)
{
    return (struct text_place){ .part = m == NULL ? TEXT_ANSWER : inside ? TEXT_REASONING : TEXT_BEFORE };
}

static void add_to_tail(struct text_place *at, char c)
{
    if (at->n == sizeof at->tail)
        memmove(at->tail, at->tail + 1, --at->n);
    at->tail[at->n++] = c;
}

static bool tail_is(const struct text_place *at, struct str mark)
{
    return mark.n == at->n && memcmp(at->tail, mark.p, at->n) == 0;
}

static bool tail_begins(const struct text_place *at, struct str mark)
{
    return mark.n > at->n && memcmp(at->tail, mark.p, at->n) == 0;
}

static bool tail_ends_with(const struct text_place *at, struct str mark)
{
    return mark.n > 0 && mark.n <= at->n && memcmp(at->tail + at->n - mark.n, mark.p, mark.n) == 0;
}

static bool tail_closes(const struct text_marks *m, const struct text_place *at)
{
    for (int i = 0; i < TEXT_MARK_CLOSERS; i++)
        if (tail_ends_with(at, m->close[i]))
            return true;
    return false;
}

struct str text_marks_call(const struct text_marks *m, const struct text_place *at)
{
    for (int i = 0; i < TEXT_MARK_CALLS; i++)
        if (tail_ends_with(at, m->call[i]))
            return m->call[i];
    return (struct str){ "", 0 };
}

/* A byte of the answer is in the tail; true: a call begins or ends. */
static bool turn_call(const struct text_marks *m, struct text_place *at)
{
    const bool turns = at->call ? tail_ends_with(at, m->call_end) : text_marks_call(m, at).n > 0;

    at->call ^= turns;
    return turns;
}

/* A byte where the answer has not begun; true: it completes the opening mark. */
static bool take_before(const struct text_marks *m, struct text_place *at, char c)
{
    bool part;

    add_to_tail(at, c);
    if (tail_is(at, m->open))
        return true;
    part = tail_begins(at, m->open);
    for (int i = 0; i < TEXT_MARK_SKIPS; i++) {
        part = part || tail_begins(at, m->skip[i]);
        if (tail_is(at, m->skip[i]))
            at->n = 0;
    }
    if (at->n == 0 || part)
        return false;
    if (at->n == 1 && strchr(" \t\r\n", c) != NULL && c != '\0')
        at->n = 0;
    else
        at->part = TEXT_ANSWER;
    return false;
}

size_t text_marks_take(const struct text_marks *m, struct text_place *at, struct str s)
{
    if (m == NULL || (at->part == TEXT_ANSWER && !m->again && m->call[0].n == 0))
        return s.n;
    for (size_t i = 0; i < s.n; i++) {
        bool turns;

        if (at->part == TEXT_BEFORE) {
            turns = take_before(m, at, s.p[i]);
            at->call = at->part == TEXT_ANSWER && m->bare_call && s.p[i] == '{';
            if (at->call || (at->part == TEXT_ANSWER && turn_call(m, at)))
                return i + 1;
        } else {
            add_to_tail(at, s.p[i]);
            if (at->part == TEXT_ANSWER && turn_call(m, at))
                return i + 1;
            turns = at->part == TEXT_REASONING ? tail_closes(m, at) : m->again && tail_ends_with(at, m->open);
        }
        if (!turns)
            continue;
        at->part = at->part == TEXT_REASONING ? TEXT_ANSWER : TEXT_REASONING;
        if (at->part == TEXT_REASONING) /* what closes it may also be the beginning of what opens it again */
            at->n = 0;
        return i + 1;
    }
    return s.n;
}

struct str text_marks_held(const struct text_marks *m, const struct text_place *at)
{
    return (struct str){ at->tail, m != NULL && at->part == TEXT_BEFORE && !m->one_token ? at->n : 0 };
}

bool text_marks_have(const struct text_marks *m, int32_t token)
{
    for (int i = 0; m != NULL && i < m->n_control; i++)
        if (m->control[i] == token)
            return true;
    return false;
}
