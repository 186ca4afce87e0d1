/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_ops.c - operators with Python's meaning.                                room: chat */
#include <math.h>
#include <string.h>
#include "chat/jinja.h"

static bool is_int(const struct val *v)
{
    return v->kind == VAL_BOOL || v->kind == VAL_INT || v->kind == VAL_BIG;
}

static bool unsupported(struct jin *j, int op, const struct val *a, const struct val *b)
{
    char name[3] = { (char)(op & 0xFF), (char)(op >> 8), 0 };

    if (op == OP_ADD && a->kind == VAL_STR)
        return chat_raise(j, "can only concatenate str (not \"%s\") to str", chat_type(b));
    if (op == OP_ADD && (a->kind == VAL_LIST || a->kind == VAL_TUPLE))
        return chat_raise(j, "can only concatenate %s (not \"%s\") to %s", chat_type(a), chat_type(b), chat_type(a));
    return chat_raise(j, "unsupported operand type(s) for %s: '%s' and '%s'", name, chat_type(a), chat_type(b));
}

static bool float_op(struct jin *j, int op, double a, double b, struct val *out)
{
    double r;

    switch (op) {
    case OP_ADD:
        r = a + b;
        break;
    case OP_SUB:
        r = a - b;
        break;
    case OP_MUL:
        r = a * b;
        break;
    case OP_DIV:
        if (b == 0)
            return chat_raise(j, "float division by zero");
        r = a / b;
        break;
    case OP_POW:
        if (a == 0 && b < 0)
            return chat_raise(j, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b)
            return chat_raise(j, "the result is a complex number");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b))
            return chat_raise(j, "Numerical result out of range");
        break;
    default:
        if (b == 0)
            return chat_raise(j, op == OP_MOD ? "float modulo" : "float floor division by zero");
        r = fmod(a, b);
        double q = (a - r) / b;
        if (r != 0 && (b < 0) != (r < 0)) {
            r += b;
            q -= 1;
        } else if (r == 0) {
            r = copysign(0, b);
        }
        if (op == OP_FLOORDIV) {
            r = floor(q);
            if (q - r > 0.5)
                r += 1;
            if (q == 0)
                r = copysign(0, a / b);
        }
    }
    *out = chat_float(r);
    return true;
}

/* a / b of integers, rounded once where both are exact as doubles. */
static bool int_divide(struct jin *j, struct val a, struct val b, struct val *out)
{
    double x, y;

    if (!chat_as_double(j, a, &x) || !chat_as_double(j, b, &y))
        return false;
    if (y == 0)
        return chat_raise(j, "division by zero");
    if (a.kind != VAL_BIG && b.kind != VAL_BIG && (fabs(x) >= 9007199254740992.0 || fabs(y) >= 9007199254740992.0)) {
        long double p = a.kind == VAL_INT ? (long double)a.u.i : x, q = b.kind == VAL_INT ? (long double)b.u.i : y;
        *out = chat_float((double)(p / q));
        return true;
    }
    *out = chat_float(x / y);
    return true;
}

static bool number_op(struct jin *j, int op, struct val a, struct val b, struct val *out)
{
    double x, y;

    if (is_int(&a) && is_int(&b) && op == OP_DIV)
        return int_divide(j, a, b, out);
    if (is_int(&a) && is_int(&b) && op == OP_POW) {
        if (chat_int_cmp(b, chat_int(0)) >= 0) {
            int64_t n;
            return chat_index(j, b, &n) && chat_int_pow(j, a, n, out);
        }
        if (!chat_truth(&a))
            return chat_raise(j, "0.0 cannot be raised to a negative power");
    } else if (is_int(&a) && is_int(&b)) {
        return chat_int_op(j, op, a, b, out);
    }
    return chat_as_double(j, a, &x) && chat_as_double(j, b, &y) && float_op(j, op, x, y, out);
}

static bool repeat(struct jin *j, struct val v, struct val times, struct val *out)
{
    int64_t n;
    struct sbuf b = { 0 };

    if (!chat_index(j, times, &n))
        return false;
    if (n < 0)
        n = 0;
    if (v.kind == VAL_STR) {
        const struct vstr *s = v.u.s;
        if (s->mark == NULL) {
            if (!chat_sbuf_fill(j, &b, (struct str){ s->p, s->n }, n, s->ours))
                return false;
        } else {
            if (n > 0 && s->n > j->heap.max / (uint64_t)n)
                return chat_no_memory(j);
            for (; n > 0; n--)
                if (!chat_sbuf_str(j, &b, s))
                    return false;
        }
        return chat_sbuf_val(j, &b, out) && chat_set_markup(out, s->markup);
    }
    const struct vlist *l = v.u.l;
    if (l->n > 0 && (uint64_t)n > j->heap.max / sizeof *l->v / l->n)
        return chat_no_memory(j);
    if (!chat_list_new(j, v.kind, l->n * (size_t)n, out) || !chat_work(j, (int64_t)l->n * n / 4))
        return false;
    for (struct vlist *o = out->u.l; o->n < o->cap; o->n += l->n)
        memcpy(o->v + o->n, l->v, l->n * sizeof *l->v);
    return true;
}

static bool add_lists(struct jin *j, struct val a, struct val b, struct val *out)
{
    const struct vlist *x = a.u.l, *y = b.u.l;

    if (!chat_list_new(j, a.kind, x->n + y->n, out) || !chat_work(j, (int64_t)(x->n + y->n) / 4))
        return false;
    struct vlist *o = out->u.l;
    if (x->n > 0)
        memcpy(o->v, x->v, x->n * sizeof *x->v);
    if (y->n > 0)
        memcpy(o->v + x->n, y->v, y->n * sizeof *y->v);
    o->n = x->n + y->n;
    return true;
}

/* Markup escapes what is put together with it. */
static bool add_strs(struct jin *j, struct val a, struct val b, struct val *out)
{
    bool markup = a.u.s->markup || b.u.s->markup;

    if (markup && !a.u.s->markup && !chat_escape(j, a, &a))
        return false;
    if (markup && !b.u.s->markup && !chat_escape(j, b, &b))
        return false;
    return chat_concat(j, a.u.s, b.u.s, out) && chat_set_markup(out, markup);
}

bool chat_binary(struct jin *j, int op, struct val a, struct val b, struct val *out)
{
    bool seq_a = a.kind == VAL_STR || a.kind == VAL_LIST || a.kind == VAL_TUPLE,
         seq_b = b.kind == VAL_STR || b.kind == VAL_LIST || b.kind == VAL_TUPLE;

    if (op == OP_MOD && a.kind == VAL_STR)
        return chat_percent(j, a.u.s, b, out);
    if (a.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, a);
    if (b.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, b);
    if (chat_is_num(&a) && chat_is_num(&b))
        return number_op(j, op, a, b, out);
    if (op == OP_ADD && a.kind == VAL_STR && b.kind == VAL_STR)
        return add_strs(j, a, b, out);
    if (op == OP_ADD && seq_a && a.kind == b.kind)
        return add_lists(j, a, b, out);
    if (op == OP_MUL && seq_a && is_int(&b))
        return repeat(j, a, b, out);
    if (op == OP_MUL && seq_b && is_int(&a))
        return repeat(j, b, a, out);
    if (op == OP_MUL && (seq_a || seq_b))
        return chat_raise(j, "can't multiply sequence by non-int of type '%s'", chat_type(seq_a ? &b : &a));
    return unsupported(j, op, &a, &b);
}

bool chat_compare(struct jin *j, int op, struct val a, struct val b, bool *out)
{
    switch (op) {
    case OP_EQ:
        return chat_equal(j, a, b, out);
    case OP_NE:
        if (!chat_equal(j, a, b, out))
            return false;
        *out = !*out;
        return true;
    case OP_IN:
        return chat_contains(j, b, a, out);
    case OP_NOTIN:
        if (!chat_contains(j, b, a, out))
            return false;
        *out = !*out;
        return true;
    case OP_LT:
        return chat_less(j, a, b, "<", out);
    case OP_GT:
        return a.kind == VAL_UNDEFINED ? chat_use_undefined(j, a)
               : chat_is_num(&a) || a.kind == b.kind
                   ? chat_less(j, b, a, ">", out)
                   : chat_raise(j, "'>' not supported between instances of '%s' and '%s'", chat_type(&a),
                                chat_type(&b));
    default: { /* <= and >=: with numbers that are not ordered neither holds */
        bool less = false, same;
        if (!chat_less(j, op == OP_LE ? a : b, op == OP_LE ? b : a, op == OP_LE ? "<=" : ">=", &less) ||
            !chat_equal(j, a, b, &same))
            return false;
        *out = less || same;
        return true;
    }
    }
}

bool chat_negate(struct jin *j, struct val a, bool plus, struct val *out)
{
    if (a.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, a);
    if (!chat_is_num(&a))
        return chat_raise(j, "bad operand type for unary %c: '%s'", plus ? '+' : '-', chat_type(&a));
    if (a.kind == VAL_FLOAT) {
        *out = chat_float(plus ? a.u.f : -a.u.f);
        return true;
    }
    if (!plus)
        return chat_int_neg(j, a, out);
    *out = a.kind == VAL_BOOL ? chat_int(a.u.b) : a;
    return true;
}
