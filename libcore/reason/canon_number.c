/* SPDX-License-Identifier: Apache-2.0 */
/* canon_number.c - numbers as reduced fractions.                             room: reason */
#include <string.h>
#include "reason/vote.h"

enum {
    NUMBER_MAX = 40, /* bytes of a number; with two exponents of two digits that is less than 280 digits */
    WORDS = 32,      /* 1,024 bits: 308 digits */
};

struct natural {
    uint32_t w[WORDS]; /* lowest first */
};

static void multiply_add(struct natural *x, uint32_t by, uint32_t more)
{
    uint64_t carry = more;

    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)x->w[i] * by;
        x->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* x / by; returns the rest. */
static uint32_t divide_small(struct natural *x, uint32_t by)
{
    uint64_t rest = 0;

    for (int i = WORDS; i-- > 0;) {
        rest = rest << 32 | x->w[i];
        x->w[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    return (uint32_t)rest;
}

static int compare(const struct natural *a, const struct natural *b)
{
    for (int i = WORDS; i-- > 0;)
        if (a->w[i] != b->w[i])
            return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

static void subtract(struct natural *a, const struct natural *b)
{
    uint64_t borrow = 0;

    for (int i = 0; i < WORDS; i++) {
        const uint64_t d = (uint64_t)a->w[i] - b->w[i] - borrow;

        a->w[i] = (uint32_t)d;
        borrow = d >> 63;
    }
}

static void double_it(struct natural *x, uint32_t bit)
{
    for (int i = 0; i < WORDS; i++) {
        const uint32_t top = x->w[i] >> 31;

        x->w[i] = x->w[i] << 1 | bit;
        bit = top;
    }
}

/* a / b, b > 0; *rest is what remains. */
static struct natural divide(const struct natural *a, const struct natural *b, struct natural *rest)
{
    struct natural q = { { 0 } };

    *rest = q;
    for (int i = 32 * WORDS; i-- > 0;) {
        double_it(rest, a->w[i / 32] >> i % 32 & 1);
        double_it(&q, 0);
        if (compare(rest, b) >= 0) {
            subtract(rest, b);
            q.w[0] |= 1;
        }
    }
    return q;
}

static bool is_small(const struct natural *x, uint32_t value)
{
    for (int i = 1; i < WORDS; i++)
        if (x->w[i] != 0)
            return false;
    return x->w[0] == value;
}

static void halve(struct natural *x)
{
    for (int i = 0; i < WORDS; i++)
        x->w[i] = x->w[i] >> 1 | (i + 1 < WORDS ? x->w[i + 1] << 31 : 0);
}

/* The greatest common divisor of two numbers above 0, by Stein's algorithm. */
static struct natural common_divisor(struct natural a, struct natural b)
{
    int twos = 0;

    for (; ((a.w[0] | b.w[0]) & 1) == 0; twos++) {
        halve(&a);
        halve(&b);
    }
    for (int order; (order = compare(&a, &b)) != 0;) {
        struct natural *larger = order > 0 ? &a : &b;

        if ((a.w[0] & 1) == 0)
            halve(&a);
        else if ((b.w[0] & 1) == 0)
            halve(&b);
        else
            subtract(larger, order > 0 ? &b : &a);
    }
    for (; twos > 0; twos--)
        double_it(&a, 0);
    return a;
}

/* Appends x in decimal; returns the new length. */
static size_t put_natural(char *out, size_t n, struct natural x)
{
    char digit[320];
    size_t k = 0;

    do
        digit[k++] = (char)('0' + divide_small(&x, 10));
    while (!is_small(&x, 0));
    while (k > 0)
        out[n++] = digit[--k];
    return n;
}

/* digits * 10^exponent */
struct decimal {
    bool negative;
    struct natural digits;
    int exponent;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char peek(struct str s)
{
    return s.n > 0 ? *s.p : '\0';
}

static void skip(struct str *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

static void skip_blanks(struct str *s)
{
    while (peek(*s) == ' ' || peek(*s) == '\t')
        skip(s, 1);
}

static bool take(struct str *s, char c)
{
    if (peek(*s) != c)
        return false;
    skip(s, 1);
    return true;
}

static bool take_sign(struct str *s)
{
    const bool minus = peek(*s) == '-';

    if (minus || peek(*s) == '+')
        skip(s, 1);
    return minus;
}

/* "e3", "E-12"; what is no exponent stays. */
static void take_exponent(struct str *s, int *exponent)
{
    struct str at = *s;
    bool minus;
    int n = 0, value = 0;

    if (peek(at) != 'e' && peek(at) != 'E')
        return;
    skip(&at, 1);
    minus = take_sign(&at);
    for (; n < 2 && is_digit(peek(at)); n++, skip(&at, 1))
        value = 10 * value + (*at.p - '0');
    if (n == 0)
        return;
    *exponent += minus ? -value : value;
    *s = at;
}

static bool take_decimal(struct str *s, struct decimal *d)
{
    bool point = false;
    int n = 0;

    *d = (struct decimal){ .negative = take_sign(s) };
    for (; is_digit(peek(*s)) || (!point && peek(*s) == '.'); skip(s, 1)) {
        if (*s->p == '.') {
            point = true;
            continue;
        }
        multiply_add(&d->digits, 10, (uint32_t)(*s->p - '0'));
        d->exponent -= point;
        n++;
    }
    if (n > 0)
        take_exponent(s, &d->exponent);
    return n > 0;
}

/* A decimal, perhaps in parentheses with a sign before them: what a fraction has over and under its bar. */
static bool take_part(struct str *s, struct decimal *d)
{
    struct str at = *s;
    const bool minus = take_sign(&at);

    if (!take(&at, '('))
        return take_decimal(s, d);
    skip_blanks(&at);
    if (!take_decimal(&at, d))
        return false;
    skip_blanks(&at);
    if (!take(&at, ')'))
        return false;
    d->negative ^= minus;
    *s = at;
    return true;
}

/* a / b; b.digits 1 and exponent 0 where there is no quotient. */
static size_t put_quotient(char *out, struct decimal a, struct decimal b)
{
    struct natural g, rest;
    size_t n = 0;

    for (int k = a.exponent - b.exponent; k != 0; k += k > 0 ? -1 : 1)
        multiply_add(k > 0 ? &a.digits : &b.digits, 10, 0);
    if (is_small(&a.digits, 0)) {
        out[n++] = '0';
        return n;
    }
    if (!is_small(&b.digits, 1)) {
        g = common_divisor(a.digits, b.digits);
        a.digits = divide(&a.digits, &g, &rest);
        b.digits = divide(&b.digits, &g, &rest);
    }
    if (a.negative != b.negative)
        out[n++] = '-';
    n = put_natural(out, n, a.digits);
    if (!is_small(&b.digits, 1)) {
        out[n++] = '/';
        n = put_natural(out, n, b.digits);
    }
    return n;
}

static bool read_quotient(struct str s, struct decimal *a, struct decimal *b)
{
    *b = (struct decimal){ .digits = { { 1 } } };
    if (!take_part(&s, a))
        return false;
    skip_blanks(&s);
    if (s.n > 0) {
        if (!take(&s, '/'))
            return false;
        skip_blanks(&s);
        if (!take_part(&s, b) || is_small(&b->digits, 0))
            return false;
    }
    return s.n == 0;
}

bool reason_canon_number(struct str s, char out[REASON_NUMBER_BYTES])
{
    struct decimal a, b;

    if (s.n == 0 || s.n > NUMBER_MAX)
        return false;
    /* (1/2) */
    if (!read_quotient(s, &a, &b) &&
        (s.n < 3 || *s.p != '(' || s.p[s.n - 1] != ')' || !read_quotient((struct str){ s.p + 1, s.n - 2 }, &a, &b)))
        return false;
    out[put_quotient(out, a, b)] = '\0';
    return true;
}
