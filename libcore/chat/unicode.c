/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - properties and cases of code points, as Python's str has them.    room: chat */
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

unsigned chat_cp_flags(uint32_t cp)
{
    size_t lo = 0, hi = sizeof uni_runs / sizeof uni_runs[0];

    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (uni_runs[mid] >> UNI_BITS <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return uni_runs[lo] & ((1U << UNI_BITS) - 1);
}

bool chat_is_word(uint32_t cp)
{
    return cp == '_' || (chat_cp_flags(cp) & (UNI_ALPHA | UNI_DECIMAL | UNI_DIGIT | UNI_NUMERIC)) != 0;
}

struct case_table {
    const struct case_run *run;
    size_t n_run;
    const struct case_many *many;
    size_t n_many;
};
#define TABLE(t) \
    { \
        t##_runs, sizeof t##_runs / sizeof t##_runs[0], t##_many, sizeof t##_many / sizeof t##_many[0] \
    }

static int look_case(const struct case_table *t, uint32_t cp, uint32_t out[3])
{
    size_t lo = 0, hi = t->n_run;

    for (size_t i = 0; i < t->n_many; i++)
        if (t->many[i].cp == cp) {
            int n = 0;
            for (; n < 3 && t->many[i].to[n] != 0; n++)
                out[n] = t->many[i].to[n];
            return n;
        }
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct case_run *r = &t->run[mid];
        if (cp > r->last) {
            lo = mid + 1;
        } else if (cp < r->first) {
            hi = mid;
        } else {
            if ((cp - r->first) % r->step != 0)
                return 0;
            out[0] = (uint32_t)((int32_t)cp + r->delta);
            return 1;
        }
    }
    return 0;
}

int chat_cp_case(uint32_t cp, enum letter_case how, uint32_t out[3])
{
    static const struct case_table upper = TABLE(upper), lower = TABLE(lower), title = TABLE(title), fold = TABLE(fold);
    int n = 0;

    if (how == CASE_TITLE)
        n = look_case(&title, cp, out);
    if (how == CASE_FOLD)
        n = look_case(&fold, cp, out);
    if (n == 0)
        n = look_case(how == CASE_UPPER || how == CASE_TITLE ? &upper : &lower, cp, out);
    if (n == 0) {
        out[0] = cp;
        n = 1;
    }
    return n;
}

int chat_cp_digit(uint32_t cp)
{
    uint32_t first = cp;

    if (cp < 0x80)
        return cp >= '0' && cp <= '9' ? (int)(cp - '0') : -1;
    if ((chat_cp_flags(cp) & UNI_DECIMAL) == 0)
        return -1;
    while (first > 0 && (chat_cp_flags(first - 1) & UNI_DECIMAL) != 0) /* decimal digits come in tens */
        first--;
    return (int)((cp - first) % 10);
}
