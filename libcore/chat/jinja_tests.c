/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tests.c - "is" tests.                                                   room: chat */
#include <math.h>
#include "chat/jinja.h"

enum test {
    T_BOOLEAN,
    T_CALLABLE,
    T_DEFINED,
    T_DIVISIBLEBY,
    T_ESCAPED,
    T_EVEN,
    T_FALSE,
    T_FILTER,
    T_FLOAT,
    T_IN,
    T_INTEGER,
    T_ITERABLE,
    T_LOWER,
    T_MAPPING,
    T_NONE,
    T_NUMBER,
    T_ODD,
    T_SAMEAS,
    T_SEQUENCE,
    T_STRING,
    T_TEST,
    T_TRUE,
    T_UNDEFINED,
    T_UPPER,
    T_EQ,
    T_GE,
    T_GT,
    T_LE,
    T_LT,
    T_NE,
};

int chat_test_find(struct str name)
{
    static const struct {
        const char *name;
        enum test which;
    } names[] = {
        { "boolean", T_BOOLEAN },
        { "callable", T_CALLABLE },
        { "defined", T_DEFINED },
        { "divisibleby", T_DIVISIBLEBY },
        { "escaped", T_ESCAPED },
        { "even", T_EVEN },
        { "false", T_FALSE },
        { "filter", T_FILTER },
        { "float", T_FLOAT },
        { "in", T_IN },
        { "integer", T_INTEGER },
        { "iterable", T_ITERABLE },
        { "lower", T_LOWER },
        { "mapping", T_MAPPING },
        { "none", T_NONE },
        { "number", T_NUMBER },
        { "odd", T_ODD },
        { "sameas", T_SAMEAS },
        { "sequence", T_SEQUENCE },
        { "string", T_STRING },
        { "test", T_TEST },
        { "true", T_TRUE },
        { "undefined", T_UNDEFINED },
        { "upper", T_UPPER },
        { "==", T_EQ },
        { "eq", T_EQ },
        { "equalto", T_EQ },
        { "!=", T_NE },
        { "ne", T_NE },
        { ">", T_GT },
        { "gt", T_GT },
        { "greaterthan", T_GT },
        { "ge", T_GE },
        { ">=", T_GE },
        { "<", T_LT },
        { "lt", T_LT },
        { "lessthan", T_LT },
        { "<=", T_LE },
        { "le", T_LE },
    };

    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (str_is(name, names[i].name))
            return (int)names[i].which;
    return -1;
}

static bool remainder_is(struct jin *j, struct val v, struct val by, int64_t want, bool *out)
{
    struct val r;

    return chat_binary(j, OP_MOD, v, by, &r) && chat_equal(j, r, chat_int(want), out);
}

static bool cased(struct jin *j, struct val v, const char *method, bool *out)
{
    struct val s, r;
    struct args none = { 0 };

    if (!chat_to_str(j, v, &s) || !chat_str_method(j, chat_str_method_find(str_of(method)), s, &none, &r))
        return false;
    *out = r.u.b;
    return true;
}

/* The same object: in Python that holds for singletons and what is shared. */
static bool same(struct val a, struct val b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VAL_NONE:
        return true;
    case VAL_BOOL:
        return a.u.b == b.u.b;
    case VAL_INT:
        return a.u.i == b.u.i;
    case VAL_FLOAT:
        return a.u.f == b.u.f;
    case VAL_STR:
        return str_eq(chat_str(&a), chat_str(&b));
    default:
        return a.u.l == b.u.l;
    }
}

static bool simple(enum test which, struct val v)
{
    switch (which) {
    case T_BOOLEAN:
        return v.kind == VAL_BOOL;
    case T_CALLABLE:
        return v.kind == VAL_FUNC || v.kind == VAL_MACRO || v.kind == VAL_METHOD || v.kind == VAL_LOOP ||
               v.kind == VAL_JOINER || v.kind == VAL_BLOCK || v.kind == VAL_UNDEFINED;
    case T_DEFINED:
        return v.kind != VAL_UNDEFINED;
    case T_ESCAPED:
        return v.kind == VAL_STR && v.u.s->markup;
    case T_FALSE:
        return v.kind == VAL_BOOL && !v.u.b;
    case T_FLOAT:
        return v.kind == VAL_FLOAT;
    case T_INTEGER:
        return v.kind == VAL_INT || v.kind == VAL_BIG;
    case T_ITERABLE:
        return v.kind == VAL_UNDEFINED || (v.kind >= VAL_STR && v.kind <= VAL_RANGE) || v.kind == VAL_ITER ||
               v.kind == VAL_LOOP;
    case T_MAPPING:
        return v.kind == VAL_DICT;
    case T_NONE:
        return v.kind == VAL_NONE;
    case T_NUMBER:
        return chat_is_num(&v);
    case T_SEQUENCE: /* has a length and subscripts */
        return v.kind == VAL_UNDEFINED || (v.kind >= VAL_STR && v.kind <= VAL_DICT) || v.kind == VAL_RANGE;
    case T_STRING:
        return v.kind == VAL_STR;
    case T_TRUE:
        return v.kind == VAL_BOOL && v.u.b;
    default: /* undefined */
        return v.kind == VAL_UNDEFINED;
    }
}

bool chat_test(struct jin *j, int which, struct val v, const struct args *a, bool *out)
{
    static const int ops[] = { OP_EQ, OP_GE, OP_GT, OP_LE, OP_LT, OP_NE };
    struct val arg = chat_none();
    enum test t = (enum test)which;
    bool one = t == T_DIVISIBLEBY || t == T_IN || t == T_SAMEAS || t >= T_EQ;

    if (!chat_args(j, "the test", a, one ? (t == T_DIVISIBLEBY ? "num" : t == T_IN ? "seq" : "other") : "", one, &arg))
        return false;
    switch (t) {
    case T_DIVISIBLEBY:
        return remainder_is(j, v, arg, 0, out);
    case T_EVEN:
    case T_ODD:
        return remainder_is(j, v, chat_int(2), t == T_ODD, out);
    case T_IN:
        return chat_contains(j, arg, v, out);
    case T_SAMEAS:
        *out = same(v, arg);
        return true;
    case T_LOWER:
    case T_UPPER:
        return cased(j, v, t == T_LOWER ? "islower" : "isupper", out);
    case T_FILTER:
    case T_TEST:
        if (v.kind == VAL_LIST || v.kind == VAL_DICT)
            return chat_raise(j, "unhashable type: '%s'", chat_type(&v));
        *out =
            v.kind == VAL_STR && (t == T_FILTER ? chat_filter_find(chat_str(&v)) : chat_test_find(chat_str(&v))) >= 0;
        return true;
    default:
        break;
    }
    if (t >= T_EQ)
        return chat_compare(j, ops[t - T_EQ], v, arg, out);
    *out = simple(t, v);
    return true;
}
