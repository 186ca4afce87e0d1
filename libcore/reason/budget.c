/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - how many tokens reasoning may have, and where it ends then.     room: reason */
#include <string.h>

#include "reason/reason.h"

static const struct {
    const char *name;
    int share; /* a budget is divided by it; 0: nothing is left */
} efforts[] = { { "", 1 },       { "none", 0 }, { "minimal", 16 }, { "low", 8 },
                { "medium", 2 }, { "high", 1 }, { "xhigh", 1 } };

_Static_assert(sizeof efforts / sizeof *efforts == REASON_EFFORTS, "a row for each");

const char *reason_effort_name(enum reason_effort f)
{
    return efforts[f].name;
}

enum reason_effort reason_effort_of(const char *name)
{
    int f = REASON_EFFORT_NONE;

    while (f < REASON_EFFORTS && strcmp(name, efforts[f].name) != 0)
        f++;
    return (enum reason_effort)f;
}

int64_t reason_share(enum reason_effort f, int64_t most)
{
    const int64_t n = efforts[f].share > 0 ? most / efforts[f].share : 0;

    return n == 0 && most > 0 && efforts[f].share > 0 ? 1 : n;
}

bool reason_ends_sentence(struct str piece)
{
    static const char *const ends[] = { "\n", ".", "!", "?", "\xe3\x80\x82", "\xef\xbc\x81", "\xef\xbc\x9f" };

    while (piece.n > 0 && piece.p[piece.n - 1] == ' ')
        piece.n--;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);

        if (piece.n >= n && memcmp(piece.p + piece.n - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

bool reason_budget_add(struct reason_budget *b, bool ends_sentence)
{
    b->n++;
    return (b->n >= b->budget && ends_sentence) || b->n - b->budget >= b->grace;
}
