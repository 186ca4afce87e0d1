/* SPDX-License-Identifier: Apache-2.0 */
/* canon.c - the answer that a text gives, in one form.                      room: reason
 *
 * In this order: which part of the text is the answer (find_answer), what is only its look (drop_look), then whether
 * it is a number, a list or words.
 */
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "reason/vote.h"

enum { PARTS_MAX = 256 /* of a list that become numbers; the others stay words */ };

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_letter(char c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

static struct str part_of(struct str s, size_t from, size_t to)
{
    return (struct str){ s.p + from, to - from };
}

static struct str trimmed(struct str s)
{
    while (s.n > 0 && is_blank(*s.p))
        s = part_of(s, 1, s.n);
    while (s.n > 0 && is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

/* Whether s has z at a place, in any case of letters. */
static bool has_at(struct str s, size_t at, const char *z)
{
    for (; *z != '\0'; z++, at++)
        if (at >= s.n || lower(s.p[at]) != *z)
            return false;
    return true;
}

static size_t skip_blanks(struct str s, size_t at)
{
    while (at < s.n && is_blank(s.p[at]))
        at++;
    return at;
}

/* ---- where the answer is ---- */

/* What the last \boxed{} has in it, to the end of the text if it is not closed. */
static bool find_boxed(struct str s, struct str *found)
{
    const struct str mark = STR("\\boxed{");
    size_t from = SIZE_MAX, to;
    int depth = 1;

    for (size_t at = 0; (at = str_find(s, at, mark)) != SIZE_MAX; at += mark.n)
        from = at + mark.n;
    if (from == SIZE_MAX)
        return false;
    for (to = from; to < s.n; to++) {
        if (s.p[to] == '\\' && to + 1 < s.n)
            to++;
        else if (s.p[to] == '{')
            depth++;
        else if (s.p[to] == '}' && --depth == 0)
            break;
    }
    *found = part_of(s, from, to < s.n ? to : s.n);
    return true;
}

/* Where what "the answer is" says begins, if that is at `at`; 0: it is not. */
static size_t said_at(struct str s, size_t at)
{
    size_t to;

    if (has_at(s, at, "final answer"))
        to = at + 12;
    else if (has_at(s, at, "the answer"))
        to = at + 10;
    else
        return 0;
    to = skip_blanks(s, to);
    if (has_at(s, to, "is") && (to + 2 >= s.n || !is_letter(s.p[to + 2]))) {
        const size_t colon = skip_blanks(s, to + 2);

        return colon < s.n && s.p[colon] == ':' ? colon + 1 : to + 2;
    }
    return to < s.n && s.p[to] == ':' ? to + 1 : 0;
}

static struct str find_answer(struct str s)
{
    size_t from = 0;

    if (!find_boxed(s, &s)) {
        for (size_t at = 0; at < s.n; at++)
            if (lower(s.p[at]) == 'f' || lower(s.p[at]) == 't') {
                const size_t to = said_at(s, at);

                from = to > 0 ? to : from;
            }
        s = part_of(s, from, s.n);
    }
    s = trimmed(s);
    for (from = s.n; from > 0 && s.p[from - 1] != '\n';)
        from--;
    return trimmed(part_of(s, from, s.n));
}

/* ---- what is only its look ---- */

/* What to write in place of a brace, or around a single character that is the part of a fraction. */
enum role { COPY, DROP, OPEN, CLOSE, OVER, SINGLE, SINGLE_UNDER };

struct look {
    struct str s;
    size_t *match; /* [s.n] of "{" the place of its "}"; 0: it has none */
    char *role;    /* [s.n] */
    char *out;     /* [s.n]: nothing becomes longer */
    size_t n;
};

static void match_braces(struct look *l)
{
    size_t open = 0; /* the innermost that is open, plus 1; match of each has the one around it */

    for (size_t i = 0; i < l->s.n; i++) {
        const char c = l->s.p[i];

        if (c == '\\' && i + 1 < l->s.n) {
            i++;
        } else if (c == '{') {
            l->match[i] = open;
            open = i + 1;
        } else if (c == '}' && open > 0) {
            const size_t at = open - 1;

            open = l->match[at];
            l->match[at] = i;
        }
    }
    while (open > 0) {
        const size_t at = open - 1;

        open = l->match[at];
        l->match[at] = 0;
    }
}

static void put(struct look *l, const char *z)
{
    while (*z != '\0')
        l->out[l->n++] = *z++;
}

/* The end of the part of a fraction that begins at `at`; 0: there is none. */
static size_t part_end(const struct look *l, size_t at)
{
    if (at >= l->s.n)
        return 0;
    if (l->s.p[at] == '{')
        return l->match[at] > 0 ? l->match[at] + 1 : 0;
    return is_digit(l->s.p[at]) || is_letter(l->s.p[at]) ? at + 1 : 0;
}

/* Marks the parts of a fraction behind its command. false: these are no two parts. */
static bool mark_fraction(struct look *l, size_t at)
{
    const size_t a = skip_blanks(l->s, at), a_end = part_end(l, a);
    const size_t b = a_end > 0 ? skip_blanks(l->s, a_end) : 0, b_end = a_end > 0 ? part_end(l, b) : 0;

    if (b_end == 0)
        return false;
    memset(l->role + at, DROP, a - at);
    memset(l->role + a_end, DROP, b - a_end);
    l->role[a] = l->s.p[a] == '{' ? OPEN : SINGLE;
    l->role[b] = l->s.p[b] == '{' ? OVER : SINGLE_UNDER;
    if (l->role[a] == OPEN)
        l->role[a_end - 1] = CLOSE;
    if (l->role[b] == OVER)
        l->role[b_end - 1] = CLOSE;
    return true;
}

/* A command of letters, \name; returns what follows it. */
static size_t drop_command(struct look *l, size_t at)
{
    size_t to = at + 1, brace;
    struct str name;

    while (to < l->s.n && is_letter(l->s.p[to]))
        to++;
    name = part_of(l->s, at + 1, to);
    brace = skip_blanks(l->s, to);
    if (str_is(name, "left") || str_is(name, "right"))
        return to;
    if (str_is(name, "cdot") || str_is(name, "times")) {
        put(l, "*");
        return to;
    }
    if ((str_is(name, "frac") || str_is(name, "dfrac") || str_is(name, "tfrac")) && mark_fraction(l, to))
        return to;
    if ((str_is(name, "text") || str_is(name, "mathrm") || str_is(name, "textbf") || str_is(name, "mathbf")) &&
        part_end(l, brace) > brace + 1) {
        l->role[brace] = l->role[l->match[brace]] = DROP;
        return brace;
    }
    if (str_is(name, "dfrac") || str_is(name, "tfrac"))
        put(l, "\\frac");
    else
        for (size_t i = at; i < to; i++)
            l->out[l->n++] = l->s.p[i];
    return to;
}

/* The end of a sign for degrees at `at`; 0: there is none. */
static size_t degrees_end(struct str s, size_t at)
{
    static const char *const signs[] = { "\xc2\xb0", "^\\circ", "^{\\circ}" };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (has_at(s, at, signs[i]))
            return at + strlen(signs[i]);
    return 0;
}

static bool put_role(struct look *l, size_t at)
{
    const char c[] = { l->s.p[at], '\0' };

    switch ((enum role)l->role[at]) {
    case COPY:
        return false;
    case DROP:
        return true;
    case OPEN:
        put(l, "(");
        return true;
    case CLOSE:
        put(l, ")");
        return true;
    case OVER:
        put(l, "/(");
        return true;
    case SINGLE:
    case SINGLE_UNDER:
        put(l, l->role[at] == SINGLE ? "(" : "/(");
        put(l, c);
        put(l, ")");
        return true;
    }
    return false;
}

static size_t drop_at(struct look *l, size_t at)
{
    const struct str s = l->s;
    const size_t degrees = degrees_end(s, at);

    if (put_role(l, at))
        return at + 1;
    if (degrees > 0)
        return degrees;
    if (has_at(s, at, "\xe2\x88\x92")) { /* U+2212 */
        put(l, "-");
        return at + 3;
    }
    if (s.p[at] == '$' || s.p[at] == '%')
        return at + 1;
    if (s.p[at] == '\\' && at + 1 < s.n && s.p[at + 1] != '\0' && strchr("!,$%", s.p[at + 1]) != NULL)
        return at + 2;
    if (s.p[at] == '\\' && at + 1 < s.n && is_letter(s.p[at + 1]))
        return drop_command(l, at);
    l->out[l->n++] = s.p[at];
    return at + 1;
}

/* Commas between thousands go: those of a run of digits and commas in which every group but the first has three
 * digits. In place. */
static size_t drop_thousands(char *p, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n;) {
        size_t to = i, group = 0, commas = 0;
        bool threes = true;

        for (; to < n && (is_digit(p[to]) || (p[to] == ',' && to + 1 < n && is_digit(p[to + 1]))); to++) {
            if (p[to] == ',') {
                threes = threes && (commas > 0 ? group == 3 : group >= 1 && group <= 3);
                commas++;
                group = 0;
            } else {
                group++;
            }
        }
        threes = threes && commas > 0 && group == 3;
        for (; i < to; i++)
            if (!threes || p[i] != ',')
                p[k++] = p[i];
        if (i < n)
            p[k++] = p[i++];
    }
    return k;
}

/* Dots at the end, and "x =" of one letter. */
static struct str drop_ends(struct str s)
{
    size_t at;

    s = trimmed(s);
    while (s.n > 0 && s.p[s.n - 1] == '.')
        s = trimmed(part_of(s, 0, s.n - 1));
    if (s.n == 0 || !is_letter(*s.p))
        return s;
    at = skip_blanks(s, 1);
    return at < s.n && s.p[at] == '=' ? trimmed(part_of(s, at + 1, s.n)) : s;
}

/* ---- number, list, words ---- */

struct buf {
    char *p;
    size_t n, cap;
};

static enum err_code add(struct buf *b, const char *p, size_t n, struct err *e)
{
    if (memory_room(&b->p, &b->cap, b->n + n + 1, 1, e))
        return e->code;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
    return ERR_OK;
}

/* Whether z begins with the word, in any case of letters. */
static bool same_letters(struct str word, const char *z)
{
    for (size_t i = 0; i < word.n; i++)
        if (lower(word.p[i]) != z[i])
            return false;
    return true;
}

static bool is_unit(struct str word)
{
    static const char *const units[] = { "dollars",    "euros",   "cents",   "meters",  "metres", "km",
                                         "kilometers", "cm",      "hours",   "minutes", "days",   "weeks",
                                         "years",      "degrees", "percent", "units",   "apples" };

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t n = strlen(units[i]);
        const bool one = units[i][n - 1] == 's' && word.n == n - 1; /* without the s */

        if ((word.n == n || one) && same_letters(word, units[i]))
            return true;
    }
    return false;
}

/* A number, perhaps with a unit behind it. */
static bool read_number(struct str s, char out[REASON_NUMBER_BYTES])
{
    size_t from = s.n;

    if (reason_canon_number(s, out))
        return true;
    while (from > 0 && is_letter(s.p[from - 1]))
        from--;
    return from < s.n && is_unit(part_of(s, from, s.n)) && reason_canon_number(trimmed(part_of(s, 0, from)), out);
}

/* Small letters, and one blank where there are several. */
static enum err_code add_words(struct buf *b, struct str s, struct err *e)
{
    if (add(b, "", 0, e) || memory_room(&b->p, &b->cap, b->n + s.n + 1, 1, e))
        return e->code;
    for (size_t i = 0; i < s.n; i++)
        if (!is_blank(s.p[i]))
            b->p[b->n++] = lower(s.p[i]);
        else if (i > 0 && !is_blank(s.p[i - 1]))
            b->p[b->n++] = ' ';
    b->p[b->n] = '\0';
    return ERR_OK;
}

static enum err_code add_scalar(struct buf *b, struct str s, bool numbers, struct err *e)
{
    char number[REASON_NUMBER_BYTES];

    s = trimmed(s);
    return numbers && read_number(s, number) ? add(b, number, strlen(number), e) : add_words(b, s, e);
}

/* Where a list's parts end: the next comma outside of inner brackets, or the end. */
static size_t list_part_end(struct str s, size_t from)
{
    int64_t depth = 0;

    for (; from < s.n && !(depth == 0 && s.p[from] == ','); from++)
        depth += (s.p[from] == '(' || s.p[from] == '[' || s.p[from] == '{') -
                 (s.p[from] == ')' || s.p[from] == ']' || s.p[from] == '}');
    return from;
}

/* One pair of brackets stands around all of it. */
static bool is_list(struct str s)
{
    int64_t depth = 0;

    if (s.n < 2 || strchr("([{", *s.p) == NULL || *s.p == '\0')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        depth += (s.p[i] == '(' || s.p[i] == '[' || s.p[i] == '{') - (s.p[i] == ')' || s.p[i] == ']' || s.p[i] == '}');
        if (depth == 0)
            return i + 1 == s.n;
    }
    return false;
}

static enum err_code add_list(struct buf *b, struct str s, struct err *e)
{
    const struct str in = part_of(s, 1, s.n - 1);

    if (add(b, s.p, 1, e))
        return e->code;
    for (size_t from = 0, to, k = 0;; from = to + 1, k++) {
        to = list_part_end(in, from);
        if ((k > 0 && add(b, ",", 1, e)) || add_scalar(b, part_of(in, from, to), k < PARTS_MAX, e))
            return e->code;
        if (to >= in.n)
            break;
    }
    return add(b, s.p + s.n - 1, 1, e);
}

static enum err_code add_answer(struct buf *b, struct str s, struct err *e)
{
    char number[REASON_NUMBER_BYTES];

    if (read_number(s, number))
        return add(b, number, strlen(number), e);
    return is_list(s) ? add_list(b, s, e) : add_words(b, s, e);
}

enum err_code reason_canon(struct str answer, char **out, size_t *n, struct err *e)
{
    struct look l = { .s = find_answer(answer) };
    struct buf b = { 0 };
    enum err_code code;

    l.match = calloc(l.s.n + 1, sizeof *l.match);
    l.role = calloc(l.s.n + 1, 1);
    l.out = malloc(l.s.n + 1);
    if (l.match == NULL || l.role == NULL || l.out == NULL) {
        code = err_nomem(e);
    } else {
        struct str s;

        match_braces(&l);
        for (size_t at = 0; at < l.s.n;)
            at = drop_at(&l, at);
        s = drop_ends((struct str){ l.out, l.n });
        s.n = drop_thousands(l.out + (s.p - l.out), s.n);
        code = add_answer(&b, s, e);
    }
    free(l.match);
    free(l.role);
    free(l.out);
    if (code) {
        free(b.p);
        return code;
    }
    *out = b.p;
    *n = b.n;
    return ERR_OK;
}
