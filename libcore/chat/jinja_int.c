/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_int.c - integers of any size.                                           room: chat
 *
 * What fits an int64_t is kept so. Others are sign and magnitude to the base 10^9, by the
 * schoolbook methods; the number of digits is bounded, and each operation counts the work it makes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"

enum { BASE = 1000000000, LIMBS_MAX = 4000, POWER_LIMBS_MAX = 69 }; /* a power: 2048 bits */

/* a as a magnitude: its own, or the small buffer. */
struct mag {
    bool neg;
    int n;
    const uint32_t *d;
    uint32_t small[3];
};

static void mag_of(struct mag *m, struct val a)
{
    if (a.kind == VAL_BIG) {
        m->neg = a.u.big->neg;
        m->n = a.u.big->n;
        m->d = a.u.big->d;
        return;
    }
    int64_t i = a.kind == VAL_BOOL ? a.u.b : a.u.i;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    m->neg = i < 0;
    for (m->n = 0; u > 0; u /= BASE)
        m->small[m->n++] = (uint32_t)(u % BASE);
    m->d = m->small;
}

static int cmp_mag(const struct mag *a, const struct mag *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->d[i] != b->d[i])
            return a->d[i] < b->d[i] ? -1 : 1;
    return 0;
}

static struct vbig *new_limbs(struct jin *j, int n)
{
    if (n > LIMBS_MAX) {
        chat_limit(j, "an integer has too many digits");
        return NULL;
    }
    struct vbig *b = chat_take(j, sizeof *b + (size_t)n * sizeof b->d[0]);
    if (b != NULL) {
        b->n = n;
        b->neg = false;
        memset(b->d, 0, (size_t)n * sizeof b->d[0]);
    }
    return b;
}

static struct val finish_int(struct vbig *b)
{
    uint64_t u = 0;

    while (b->n > 0 && b->d[b->n - 1] == 0)
        b->n--;
    if (b->n <= 3) {
        bool fits = true;
        for (int i = b->n - 1; i >= 0 && fits; i--) {
            fits = u <= (UINT64_MAX - b->d[i]) / BASE;
            u = u * BASE + b->d[i];
        }
        if (fits && u <= (uint64_t)INT64_MAX + b->neg)
            return chat_int(b->neg ? (int64_t)(0 - u) : (int64_t)u);
    }
    return (struct val){ .kind = VAL_BIG, .u.big = b };
}

static bool add_mag(struct jin *j, const struct mag *a, const struct mag *b, bool neg, struct val *out)
{
    const struct mag *x = a->n > b->n ? a : b, *y = x == a ? b : a;
    struct vbig *r = new_limbs(j, x->n + 1);
    uint32_t carry = 0;

    if (r == NULL)
        return false;
    for (int i = 0; i < r->n; i++) {
        uint32_t s = carry + (i < x->n ? x->d[i] : 0) + (i < y->n ? y->d[i] : 0);
        carry = s >= BASE;
        r->d[i] = carry ? s - BASE : s;
    }
    r->neg = neg;
    *out = finish_int(r);
    return true;
}

/* |a| - |b| where |a| >= |b| */
static bool sub_mag(struct jin *j, const struct mag *a, const struct mag *b, bool neg, struct val *out)
{
    struct vbig *r = new_limbs(j, a->n);
    int32_t borrow = 0;

    if (r == NULL)
        return false;
    for (int i = 0; i < a->n; i++) {
        int64_t s = (int64_t)a->d[i] - (i < b->n ? (int64_t)b->d[i] : 0) - borrow;
        borrow = s < 0;
        r->d[i] = (uint32_t)(borrow ? s + BASE : s);
    }
    r->neg = neg;
    *out = finish_int(r);
    return true;
}

static bool add_signed(struct jin *j, const struct mag *a, const struct mag *b, struct val *out)
{
    if (a->neg == b->neg)
        return add_mag(j, a, b, a->neg, out);
    return cmp_mag(a, b) >= 0 ? sub_mag(j, a, b, a->neg, out) : sub_mag(j, b, a, b->neg, out);
}

static bool mul(struct jin *j, const struct mag *a, const struct mag *b, struct val *out)
{
    struct vbig *r = new_limbs(j, a->n + b->n);

    if (r == NULL || !chat_work(j, (int64_t)a->n * b->n / 8))
        return false;
    for (int i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (int k = 0; k < b->n || carry > 0; k++) {
            uint64_t s = r->d[i + k] + carry + (k < b->n ? (uint64_t)a->d[i] * b->d[k] : 0);
            r->d[i + k] = (uint32_t)(s % BASE);
            carry = s / BASE;
        }
    }
    r->neg = a->neg != b->neg;
    *out = finish_int(r);
    return true;
}

/* q and r of |a| / |b|, Knuth's algorithm D; r has the limbs of b. */
static bool divide(struct jin *j, const struct mag *a, const struct mag *b, struct vbig **q, struct vbig **r)
{
    int n = b->n, m = a->n - b->n;

    if (m < 0) {
        if ((*q = new_limbs(j, 0)) == NULL || (*r = new_limbs(j, a->n)) == NULL)
            return false;
        memcpy((*r)->d, a->d, (size_t)a->n * sizeof a->d[0]);
        return true;
    }
    struct vbig *u = new_limbs(j, a->n + 1), *v = new_limbs(j, n);
    *q = new_limbs(j, m + 1);
    *r = new_limbs(j, n);
    if (u == NULL || v == NULL || *q == NULL || *r == NULL || !chat_work(j, (int64_t)(m + 1) * n / 8))
        return false;
    uint32_t scale = BASE / (b->d[n - 1] + 1);
    uint64_t carry = 0;
    for (int i = 0; i < a->n; i++, carry /= BASE)
        u->d[i] = (uint32_t)((carry += (uint64_t)a->d[i] * scale) % BASE);
    u->d[a->n] = (uint32_t)carry;
    carry = 0;
    for (int i = 0; i < n; i++, carry /= BASE)
        v->d[i] = (uint32_t)((carry += (uint64_t)b->d[i] * scale) % BASE);
    for (int i = m; i >= 0; i--) {
        uint64_t top = (uint64_t)u->d[i + n] * BASE + u->d[i + n - 1];
        uint64_t guess = top / v->d[n - 1], rest = top % v->d[n - 1];
        while (guess >= BASE || (n > 1 && guess * v->d[n - 2] > rest * BASE + u->d[i + n - 2])) {
            guess--;
            rest += v->d[n - 1];
            if (rest >= BASE)
                break;
        }
        int64_t borrow = 0;
        for (int k = 0; k <= n; k++) {
            int64_t s = (int64_t)u->d[i + k] - borrow - (k < n ? (int64_t)(guess * v->d[k] % BASE) : 0);
            borrow = k < n ? (int64_t)(guess * v->d[k] / BASE) : 0;
            if (s < 0) {
                s += BASE;
                borrow++;
            }
            if (s < 0) {
                s += BASE;
                borrow++;
            }
            u->d[i + k] = (uint32_t)s;
        }
        if (borrow > 0) { /* one too many */
            guess--;
            uint32_t c = 0;
            for (int k = 0; k <= n; k++) {
                uint32_t s = u->d[i + k] + c + (k < n ? v->d[k] : 0);
                c = s >= BASE;
                u->d[i + k] = c ? s - BASE : s;
            }
        }
        (*q)->d[i] = (uint32_t)guess;
    }
    carry = 0;
    for (int i = n - 1; i >= 0; i--) {
        carry = carry * BASE + u->d[i];
        (*r)->d[i] = (uint32_t)(carry / scale);
        carry %= scale;
    }
    return true;
}

/* Python's // and %: the quotient is rounded down, the rest has the sign of b. */
static bool div_mod(struct jin *j, const struct mag *a, const struct mag *b, bool want_rest, struct val *out)
{
    struct vbig *q, *r;

    if (!divide(j, a, b, &q, &r))
        return false;
    q->neg = a->neg != b->neg;
    r->neg = a->neg;
    struct val vq = finish_int(q), vr = finish_int(r);
    bool exact = vr.kind == VAL_INT && vr.u.i == 0;
    if (exact || a->neg == b->neg) {
        *out = want_rest ? vr : vq;
        return true;
    }
    struct mag m, one = { .n = 1, .d = (const uint32_t[]){ 1 }, .neg = true };
    mag_of(&m, want_rest ? vr : vq);
    return add_signed(j, &m, want_rest ? b : &one, out);
}

bool chat_int_op(struct jin *j, int op, struct val a, struct val b, struct val *out)
{
    struct mag x, y;

    if ((op == OP_FLOORDIV || op == OP_MOD) && !chat_truth(&b))
        return chat_raise(j, "integer division or modulo by zero");
    if (a.kind != VAL_BIG && b.kind != VAL_BIG) {
        int64_t p = a.kind == VAL_BOOL ? a.u.b : a.u.i, q = b.kind == VAL_BOOL ? b.u.b : b.u.i, r = 0;
        bool over = true;
        if (op == OP_ADD)
            over = __builtin_add_overflow(p, q, &r);
        else if (op == OP_SUB)
            over = __builtin_sub_overflow(p, q, &r);
        else if (op == OP_MUL)
            over = __builtin_mul_overflow(p, q, &r);
        else if (q != -1) {
            bool fix = p % q != 0 && (p < 0) != (q < 0);
            r = op == OP_MOD ? p % q + (fix ? q : 0) : p / q - fix;
            over = false;
        }
        if (!over) {
            *out = chat_int(r);
            return true;
        }
    }
    mag_of(&x, a);
    mag_of(&y, b);
    if (op == OP_SUB) {
        y.neg = !y.neg;
        return add_signed(j, &x, &y, out);
    }
    return op == OP_ADD   ? add_signed(j, &x, &y, out)
           : op == OP_MUL ? mul(j, &x, &y, out)
                          : div_mod(j, &x, &y, op == OP_MOD, out);
}

bool chat_int_pow(struct jin *j, struct val a, int64_t n, struct val *out)
{
    struct val r = chat_int(1);

    if (a.kind == VAL_BOOL)
        a = chat_int(a.u.b);
    if (a.kind == VAL_INT && (a.u.i == 0 || a.u.i == 1 || a.u.i == -1)) {
        *out = n == 0 || a.u.i == 1 ? chat_int(1) : a.u.i == 0 ? chat_int(0) : chat_int(n % 2 != 0 ? -1 : 1);
        return true;
    }
    for (; n > 0; n /= 2) {
        if (n % 2 == 1 && !chat_int_op(j, OP_MUL, r, a, &r))
            return false;
        if (n > 1 && !chat_int_op(j, OP_MUL, a, a, &a))
            return false;
        if ((r.kind == VAL_BIG && r.u.big->n > POWER_LIMBS_MAX) ||
            (n > 1 && a.kind == VAL_BIG && a.u.big->n > 2 * POWER_LIMBS_MAX))
            return chat_limit(j, "a power has too many digits");
    }
    *out = r;
    return true;
}

bool chat_int_neg(struct jin *j, struct val a, struct val *out)
{
    return chat_int_op(j, OP_SUB, chat_int(0), a, out);
}

int chat_int_cmp(struct val a, struct val b)
{
    struct mag x, y;

    if (a.kind != VAL_BIG && b.kind != VAL_BIG) {
        int64_t p = a.kind == VAL_BOOL ? a.u.b : a.u.i, q = b.kind == VAL_BOOL ? b.u.b : b.u.i;
        return p < q ? -1 : p > q;
    }
    mag_of(&x, a);
    mag_of(&y, b);
    if (x.neg != y.neg)
        return x.neg ? -1 : 1;
    return x.neg ? -cmp_mag(&x, &y) : cmp_mag(&x, &y);
}

bool chat_int_read(struct jin *j, struct str s, int base, struct val *out)
{
    bool neg = s.n > 0 && s.p[0] == '-';
    size_t i = neg || (s.n > 0 && s.p[0] == '+');
    struct vbig *b;
    int64_t small = 0;

    while (i < s.n && s.p[i] == '0')
        i++;
    if (base == 10 && s.n - i > JIN_DIGITS_MAX)
        return chat_raise(j, "Exceeds the limit (%d digits) for integer string conversion", JIN_DIGITS_MAX);
    if ((s.n - i) / 7 + 2 > LIMBS_MAX)
        return chat_limit(j, "an integer has too many digits");
    if (s.n - i <= (base == 10 ? 18 : base <= 16 ? 15 : 11)) {
        for (; i < s.n; i++) {
            char c = s.p[i];
            small = small * base + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        *out = chat_int(neg ? -small : small);
        return true;
    }
    if (!chat_work(j, (int64_t)(s.n * s.n / 64)) ||
        (b = new_limbs(j, (int)((s.n - i) / (base <= 10 ? 9 : 5) + 2))) == NULL)
        return false;
    for (int n = 1; i < s.n; i++) {
        char c = s.p[i];
        uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        for (int k = 0; k < n; k++, carry /= BASE)
            b->d[k] = (uint32_t)((carry += (uint64_t)b->d[k] * (uint64_t)base) % BASE);
        if (carry > 0)
            b->d[n++] = (uint32_t)carry;
    }
    b->neg = neg;
    *out = finish_int(b);
    return true;
}

bool chat_int_text(struct jin *j, struct val a, int base, char **p, size_t *n)
{
    struct mag m;
    size_t at = 0, cap;

    mag_of(&m, a);
    if (base == 10 && m.n * 9 > JIN_DIGITS_MAX + 9)
        return chat_raise(j, "Exceeds the limit (%d digits) for integer string conversion", JIN_DIGITS_MAX);
    cap = (size_t)m.n * (base == 10 ? 9 : 30) + 3;
    if ((*p = chat_take(j, cap)) == NULL)
        return false;
    if (m.neg)
        (*p)[at++] = '-';
    if (base == 10) {
        if (m.n == 0)
            (*p)[at++] = '0';
        for (int i = m.n - 1; i >= 0; i--)
            at += (size_t)snprintf(*p + at, cap - at, i == m.n - 1 ? "%u" : "%09u", m.d[i]);
        *n = at;
        if (at - m.neg > JIN_DIGITS_MAX)
            return chat_raise(j, "Exceeds the limit (%d digits) for integer string conversion", JIN_DIGITS_MAX);
        return true;
    }
    struct vbig *b = new_limbs(j, m.n);
    if (b == NULL || !chat_work(j, (int64_t)m.n * m.n))
        return false;
    if (m.n > 0)
        memcpy(b->d, m.d, (size_t)m.n * sizeof m.d[0]);
    size_t first = at;
    do {
        uint64_t rest = 0;
        for (int i = b->n - 1; i >= 0; i--) {
            rest = rest * BASE + b->d[i];
            b->d[i] = (uint32_t)(rest / (uint64_t)base);
            rest %= (uint64_t)base;
        }
        while (b->n > 0 && b->d[b->n - 1] == 0)
            b->n--;
        (*p)[at++] = "0123456789abcdef"[rest];
    } while (b->n > 0);
    for (size_t lo = first, hi = at - 1; lo < hi; lo++, hi--) {
        char c = (*p)[lo];
        (*p)[lo] = (*p)[hi];
        (*p)[hi] = c;
    }
    *n = at;
    return true;
}

bool chat_int_of_double(struct jin *j, double d, struct val *out)
{
    char buf[400];

    if (isnan(d))
        return chat_raise(j, "cannot convert float NaN to integer");
    if (isinf(d))
        return chat_raise(j, "cannot convert float infinity to integer");
    d = trunc(d);
    if (fabs(d) < 9e18) {
        *out = chat_int((int64_t)d);
        return true;
    }
    snprintf(buf, sizeof buf, "%.0f", d);
    return chat_int_read(j, str_of(buf), 10, out);
}

bool chat_int_double(struct val a, double *out)
{
    if (a.kind != VAL_BIG) {
        *out = a.kind == VAL_BOOL ? a.u.b : (double)a.u.i;
        return true;
    }
    const struct vbig *b = a.u.big;
    char buf[36 * 9 + 2];
    size_t at = 0;
    if (b->n > 35)
        return false;
    for (int i = b->n - 1; i >= 0; i--)
        at += (size_t)snprintf(buf + at, sizeof buf - at, "%09u", b->d[i]);
    *out = strtod(buf, NULL); /* rounds right */
    if (isinf(*out))
        return false;
    *out = b->neg ? -*out : *out;
    return true;
}

/* -1, 0, 1; 2: not a number */
int chat_int_cmp_double(struct val a, double d)
{
    double whole;

    if (isnan(d))
        return 2;
    if (isinf(d))
        return d > 0 ? -1 : 1;
    if (a.kind == VAL_BIG || fabs(d) >= 9e18) {
        char buf[36 * 9 + 4];
        uint32_t limb[36];
        struct mag x, y = { .neg = d < 0, .d = limb };
        int n = snprintf(buf, sizeof buf, "%0324.0f", trunc(fabs(d)));
        mag_of(&x, a);
        for (int i = 0; i < 36; i++) {
            char part[10] = { 0 };
            memcpy(part, buf + n - 9 * (i + 1), 9);
            limb[i] = (uint32_t)strtoul(part, NULL, 10);
            if (limb[i] != 0)
                y.n = i + 1;
        }
        int c = x.neg != y.neg ? 1 : cmp_mag(&x, &y);
        return x.neg ? -c : c; /* a fraction does not matter: the other one is far away */
    }
    whole = floor(d);
    int c = chat_int_cmp(a, chat_int((int64_t)whole));
    return c != 0 ? c : d > whole ? -1 : 0;
}

uint64_t chat_int_hash(struct val a)
{
    struct mag m;
    uint64_t h = 7;

    mag_of(&m, a);
    for (int i = 0; i < m.n; i++)
        h = (h ^ m.d[i]) * 0x9e3779b97f4a7c15U;
    return (h ^ h >> 31) + m.neg;
}
