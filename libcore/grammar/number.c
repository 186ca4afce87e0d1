/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - JSON numbers within bounds, digit by digit.                        room: grammar
 *
 * A decimal without a leading zero is compared with a bound while it is read: fewer digits before
 * the point are less, more are greater, as many are compared one by one, and then those behind the
 * point. So "at least A" is an automaton of some states for each digit of A. A multiple of M / 10^k
 * is one whose digits leave no remainder of M, with k of them behind the point and only zeros after
 * these.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/internal.h"

enum { LESS = 1, EQUAL = 2, MORE = 4 }; /* what a number may be, compared with a bound */
enum { MULTIPLE_STATES_MAX = 8192 };

static void set_digits(struct grammar_decimal *d, const char *digits, int n, int exponent, bool neg)
{
    int n_int, first = 0;

    /* digits[0] . digits[1..] times ten to the exponent */
    while (n > 1 && digits[n - 1] == '0')
        n--;
    memset(d, 0, sizeof *d);
    n_int = exponent + 1 > 0 ? exponent + 1 : 0;
    for (int i = 0; i < n_int; i++)
        d->digit[d->n_int++] = i < n ? digits[i] : '0';
    if (n_int == 0)
        d->digit[d->n_int++] = '0';
    for (int i = exponent + 1; i < 0; i++)
        d->digit[d->n_int + d->n_frac++] = '0';
    for (int i = n_int; i < n; i++)
        d->digit[d->n_int + d->n_frac++] = digits[i];
    while (d->n_frac > 0 && d->digit[d->n_int + d->n_frac - 1] == '0')
        d->n_frac--;
    while (first < d->n_int - 1 && d->digit[first] == '0')
        first++;
    memmove(d->digit, d->digit + first, (size_t)(d->n_int + d->n_frac - first));
    d->n_int -= first;
    d->neg = neg && !(d->n_int == 1 && d->digit[0] == '0' && d->n_frac == 0);
}

/* The shortest decimal that reads back as the same double, which is what was written. */
bool grammar_decimal_of(struct grammar_decimal *d, const json_t *number)
{
    char text[64], digits[64];
    const char *p = text;
    int n = 0, exponent = 0;

    if (json_is_integer(number)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
        p += *p == '-';
        set_digits(d, p, (int)strlen(p), (int)strlen(p) - 1, text[0] == '-');
        return true;
    }
    if (!json_is_real(number))
        return false;
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, json_real_value(number));
        if (strtod(text, NULL) == json_real_value(number))
            break;
    }
    p += *p == '-';
    for (; *p != '\0' && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (*p == 'e')
        exponent = (int)strtol(p + 1, NULL, 10);
    if (n == 0 || exponent > 330 || exponent < -330)
        return false;
    set_digits(d, digits, n, exponent, text[0] == '-');
    return true;
}

static int cmp_size(const struct grammar_decimal *a, const struct grammar_decimal *b)
{
    int n = a->n_frac > b->n_frac ? a->n_frac : b->n_frac;

    if (a->n_int != b->n_int)
        return a->n_int < b->n_int ? -1 : 1;
    for (int i = 0; i < a->n_int + n; i++) {
        char x = i < a->n_int + a->n_frac ? a->digit[i] : '0', y = i < b->n_int + b->n_frac ? b->digit[i] : '0';

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int grammar_decimal_cmp(const struct grammar_decimal *a, const struct grammar_decimal *b)
{
    if (a->neg != b->neg)
        return a->neg ? -1 : 1;
    return a->neg ? -cmp_size(a, b) : cmp_size(a, b);
}

static void digit(struct grammar_build *b, uint32_t from, uint32_t to, int lo, int hi)
{
    if (lo <= hi)
        grammar_bytes(b, from, to, (uint8_t)('0' + lo), (uint8_t)('0' + hi));
}

static void point(struct grammar_build *b, uint32_t from, uint32_t to)
{
    grammar_bytes(b, from, to, '.', '.');
}

/* A state whose comparison is decided: digits and a point change nothing. */
static uint32_t decided(struct grammar_build *b, uint32_t end, bool good)
{
    uint32_t s = grammar_state(b);

    digit(b, s, s, 0, 9);
    point(b, s, s);
    if (good)
        grammar_eps(b, s, end);
    return s;
}

/* Decimals without a sign, leading zeros or an exponent that are `may` compared with the size of a.
 */
static struct grammar_dfa *compared(struct grammar_build *b, const struct grammar_decimal *a, int may)
{
    uint32_t start = grammar_state(b), end = grammar_state(b);
    uint32_t less = decided(b, end, (may & LESS) != 0), more = decided(b, end, (may & MORE) != 0);
    uint32_t at[3] = { 0, start, 0 }, frac, next; /* as many digits as a so far: less, equal, more */

    for (int i = 0; i < a->n_int && b->code == ERR_OK; i++) {
        uint32_t to[3] = { grammar_state(b), grammar_state(b), grammar_state(b) };
        int d = a->digit[i] - '0';

        digit(b, at[1], to[0], 0, d - 1);
        digit(b, at[1], to[1], d, d);
        digit(b, at[1], to[2], d + 1, 9);
        for (int k = 0; k < 3; k++) {
            if (k != 1 && i > 0)
                digit(b, at[k], to[k], 0, 9);
            if (i > 0) {
                point(b, at[k], less);
                if ((may & LESS) != 0)
                    grammar_eps(b, at[k], end);
            }
        }
        memcpy(at, to, sizeof at);
    }
    for (int k = 0; k < 3; k++)
        digit(b, at[k], more, 0, 9);
    point(b, at[0], less);
    point(b, at[2], more);
    if ((may & LESS) != 0)
        grammar_eps(b, at[0], end);
    if ((may & MORE) != 0)
        grammar_eps(b, at[2], end);
    if ((may & (a->n_frac > 0 ? LESS : EQUAL)) != 0)
        grammar_eps(b, at[1], end);
    frac = grammar_state(b);
    point(b, at[1], frac);
    for (int i = 0; i < a->n_frac && b->code == ERR_OK; i++) {
        int d = a->digit[a->n_int + i] - '0';

        next = grammar_state(b);
        digit(b, frac, less, 0, d - 1);
        digit(b, frac, next, d, d);
        digit(b, frac, more, d + 1, 9);
        if ((may & LESS) != 0)
            grammar_eps(b, frac, end);
        frac = next;
    }
    digit(b, frac, frac, 0, 0);
    digit(b, frac, more, 1, 9);
    if ((may & EQUAL) != 0)
        grammar_eps(b, frac, end);
    return grammar_dfa_make(b, start, end);
}

static uint32_t pow_mod(uint32_t r, int k, uint32_t m)
{
    for (; k > 0; k--)
        r = r * 10 % m;
    return r;
}

/* Multiples of m, which is not 0. Row j + 1 of the states: j digits behind the point; row 0: before
 * it. */
static struct grammar_dfa *multiples(struct grammar_build *b, const struct grammar_decimal *of)
{
    uint32_t m = 0, base, end = grammar_state(b), rows = (uint32_t)of->n_frac + 2;

    for (int i = 0; i < of->n_int + of->n_frac && m < MULTIPLE_STATES_MAX; i++)
        m = m * 10 + (uint32_t)(of->digit[i] - '0');
    if (m == 0 || m * rows > MULTIPLE_STATES_MAX) {
        grammar_fail(b, ERR_UNSUPPORTED, "a multiple of such a number is not supported");
        return NULL;
    }
    base = b->n_state;
    for (uint32_t i = 0; i < m * rows; i++)
        grammar_state(b);
    for (uint32_t row = 0; row < rows && b->code == ERR_OK; row++)
        for (uint32_t r = 0; r < m; r++) {
            int left = of->n_frac - (row == 0 ? 0 : (int)row - 1);
            uint32_t to = row == 0 ? 0 : row + 1;

            for (uint32_t d = 0; d < 10 && left > 0; d++)
                digit(b, base + row * m + r, base + to * m + (r * 10 + d) % m, (int)d, (int)d);
            for (uint32_t d = 0; d < 10 && left == 0 && row == 0; d++)
                digit(b, base + r, base + (r * 10 + d) % m, (int)d, (int)d);
            if (left == 0 && row > 0)
                digit(b, base + row * m + r, base + row * m + r, 0, 0);
            if (row == 0)
                point(b, base + r, base + m + r);
            if (pow_mod(r, left, m) == 0)
                grammar_eps(b, base + row * m + r, end);
        }
    return grammar_dfa_make(b, base, end);
}

static struct grammar_dfa *of_regex(struct grammar_build *b, struct str regex)
{
    uint32_t from = grammar_state(b), to = grammar_state(b);

    grammar_regex(b, regex, false, GRAMMAR_RAW, from, to);
    return grammar_dfa_make(b, from, to);
}

/* Replaces x by its intersection with y. */
static struct grammar_dfa *cut_dfa(struct grammar_build *b, struct grammar_dfa *x, struct grammar_dfa *y)
{
    struct grammar_dfa *both = grammar_dfa_and(b, x, y, false);

    grammar_dfa_free(x);
    grammar_dfa_free(y);
    return both;
}

/* Sizes of the numbers of one sign. */
static struct grammar_dfa *sizes_of_sign(struct grammar_build *b, const struct grammar_number *n, bool neg)
{
    const struct grammar_decimal zero = { .n_int = 1, .digit = "0" };
    bool lo_neg = n->has_lo && n->lo.neg, hi_neg = n->has_hi && n->hi.neg;
    struct grammar_dfa *d = of_regex(b, !n->whole ? STR("(0|[1-9][0-9]*)(\\.[0-9]+)?")
                                        : neg     ? STR("[1-9][0-9]*")
                                                  : STR("0|[1-9][0-9]*"));

    if (!neg && n->has_lo && !lo_neg)
        d = cut_dfa(b, d, compared(b, &n->lo, n->lo_out ? MORE : MORE | EQUAL));
    if (!neg && n->has_hi)
        d = cut_dfa(b, d, hi_neg ? compared(b, &zero, LESS) : compared(b, &n->hi, n->hi_out ? LESS : LESS | EQUAL));
    if (neg && n->has_lo && (lo_neg || cmp_size(&n->lo, &zero) == 0))
        d = cut_dfa(b, d, compared(b, &n->lo, n->lo_out ? LESS : LESS | EQUAL));
    else if (neg && n->has_lo)
        d = cut_dfa(b, d, compared(b, &zero, LESS));
    if (neg && n->has_hi && (hi_neg || cmp_size(&n->hi, &zero) == 0))
        d = cut_dfa(b, d, compared(b, &n->hi, n->hi_out ? MORE : MORE | EQUAL));
    for (int i = 0; i < n->n_multiple; i++)
        d = cut_dfa(b, d, multiples(b, &n->multiple[i]));
    return d;
}

struct grammar_dfa *grammar_number(struct grammar_build *b, const struct grammar_number *n)
{
    uint32_t from = grammar_state(b), to = grammar_state(b), minus = grammar_state(b);
    struct grammar_dfa *d;

    if (!n->has_lo && !n->has_hi && n->n_multiple == 0)
        return of_regex(b, n->whole ? STR("0|-?[1-9][0-9]*") : STR("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?"));
    for (int neg = 0; neg < 2 && b->code == ERR_OK; neg++) {
        d = sizes_of_sign(b, n, neg != 0);
        grammar_dfa_put(b, d, neg != 0 ? minus : from, to);
        grammar_dfa_free(d);
    }
    grammar_bytes(b, from, minus, '-', '-');
    return grammar_dfa_make(b, from, to);
}
