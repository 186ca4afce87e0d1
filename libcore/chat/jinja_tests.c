/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tests.c - "is" tests.                                                   room: chat */
#include <math.h>
#include "chat/jinja.h"

enum test_of { KINDS, DIVISIBLEBY, ESCAPED, IN, FILTER, LOWER, OPERATOR, REMAINDER, SAMEAS, TEST, TRUTH, UPPER };

#define KIND(k)        (1U << (k))
#define KINDS_TO(a, b) (KIND((b) + 1) - KIND(a))

static const struct {
    const char *name;
    enum test_of ask;
    uint32_t of; /* KINDS: those that pass; OPERATOR: OP_; REMAINDER: of a division by 2; TRUTH: which */
} tests[] = {
    { "boolean", KINDS, KIND(VAL_BOOL) },
    { "callable", KINDS,
      KIND(VAL_FUNC) | KIND(VAL_MACRO) | KIND(VAL_METHOD) | KIND(VAL_LOOP) | KIND(VAL_JOINER) | KIND(VAL_BLOCK) |
          KIND(VAL_UNDEFINED) },
    { "defined", KINDS, ~KIND(VAL_UNDEFINED) },
    { "divisibleby", DIVISIBLEBY, 0 },
    { "escaped", ESCAPED, 0 },
    { "even", REMAINDER, 0 },
    { "false", TRUTH, false },
    { "filter", FILTER, 0 },
    { "float", KINDS, KIND(VAL_FLOAT) },
    { "in", IN, 0 },
    { "integer", KINDS, KIND(VAL_INT) | KIND(VAL_BIG) },
    { "iterable", KINDS, KIND(VAL_UNDEFINED) | KINDS_TO(VAL_STR, VAL_RANGE) | KIND(VAL_ITER) | KIND(VAL_LOOP) },
    { "lower", LOWER, 0 },
    { "mapping", KINDS, KIND(VAL_DICT) },
    { "none", KINDS, KIND(VAL_NONE) },
    { "number", KINDS, KINDS_TO(VAL_BOOL, VAL_FLOAT) },
    { "odd", REMAINDER, 1 },
    { "sameas", SAMEAS, 0 },
    { "sequence", KINDS, KIND(VAL_UNDEFINED) | KINDS_TO(VAL_STR, VAL_DICT) | KIND(VAL_RANGE) },
    { "string", KINDS, KIND(VAL_STR) },
    { "test", TEST, 0 },
    { "true", TRUTH, true },
    { "undefined", KINDS, KIND(VAL_UNDEFINED) },
    { "upper", UPPER, 0 },
    { "==", OPERATOR, OP_EQ },
    { "eq", OPERATOR, OP_EQ },
    { "equalto", OPERATOR, OP_EQ },
    { "!=", OPERATOR, OP_NE },
    { "ne", OPERATOR, OP_NE },
    { ">", OPERATOR, OP_GT },
    { "gt", OPERATOR, OP_GT },
    { "greaterthan", OPERATOR, OP_GT },
    { "ge", OPERATOR, OP_GE },
    { ">=", OPERATOR, OP_GE },
    { "<", OPERATOR, OP_LT },
    { "lt", OPERATOR, OP_LT },
    { "lessthan", OPERATOR, OP_LT },
    { "<=", OPERATOR, OP_LE },
    { "le", OPERATOR, OP_LE },
};

int chat_test_find(struct str name)
{
    for (int i = 0; i < (int)(sizeof tests / sizeof *tests); i++)
        if (str_is(name, tests[i].name))
            return i;
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
static bool same_object(struct val a, struct val b)
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

bool chat_test(struct jin *j, int which, struct val v, const struct args *a, bool *out)
{
    const enum test_of ask = tests[which].ask;
    const uint32_t of = tests[which].of;
    const bool one = ask == DIVISIBLEBY || ask == IN || ask == SAMEAS || ask == OPERATOR;
    struct val arg = chat_none();

    if (!chat_args(j, "the test", a, one ? (ask == DIVISIBLEBY ? "num" : ask == IN ? "seq" : "other") : "", one, &arg))
        return false;
    switch (ask) {
    case DIVISIBLEBY:
        return remainder_is(j, v, arg, 0, out);
    case REMAINDER:
        return remainder_is(j, v, chat_int(2), of, out);
    case IN:
        return chat_contains(j, arg, v, out);
    case SAMEAS:
        *out = same_object(v, arg);
        return true;
    case LOWER:
    case UPPER:
        return cased(j, v, ask == LOWER ? "islower" : "isupper", out);
    case FILTER:
    case TEST:
        if (v.kind == VAL_LIST || v.kind == VAL_DICT)
            return chat_raise(j, "unhashable type: '%s'", chat_type(&v));
        *out =
            v.kind == VAL_STR && (ask == FILTER ? chat_filter_find(chat_str(&v)) : chat_test_find(chat_str(&v))) >= 0;
        return true;
    case OPERATOR:
        return chat_compare(j, (int)of, v, arg, out);
    case ESCAPED:
        *out = v.kind == VAL_STR && v.u.s->markup;
        return true;
    case TRUTH:
        *out = v.kind == VAL_BOOL && v.u.b == of;
        return true;
    default:
        *out = (of & KIND(v.kind)) != 0;
        return true;
    }
}
