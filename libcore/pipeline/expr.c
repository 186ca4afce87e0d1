/* SPDX-License-Identifier: Apache-2.0 */
/* expr.c - expressions: tests.status == 0 and not (class.json.name == 'math').  room: pipeline
 *
 *     or     = and { "or" and }            and    = not { "and" not }           not = "not" not | test
 *     test   = value [ ("==" | "!=" | "<" | ">" | "<=" | ">=" | "contains") value ]
 *     value  = path | text in quotes | number | "true" | "false" | "null" | "(" or ")"
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/internal.h"

enum { DEPTH_MAX = 32, NODES_MAX = 256, EXPR_BYTES_MAX = 4096 };

enum expr_op { OR, AND, NOT, EQ, NE, LT, GT, LE, GE, CONTAINS, PATH, TEXT, NUMBER, TRUE, FALSE, NOTHING };

struct pipeline_expr {
    enum expr_op op;
    const struct pipeline_expr *a, *b;
    struct pipeline_path path;
    struct str text;
    double number;
};

struct parse {
    struct arena *arena;
    struct str s;
    size_t at;
    int depth, n;
    const struct pipeline_scope *scope;
};

static void skip(struct parse *p)
{
    while (p->at < p->s.n && strchr(" \t\n", p->s.p[p->at]) != NULL && p->s.p[p->at] != '\0')
        p->at++;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.", c) != NULL;
}

/* Takes a word or an operator if it comes next. */
static bool take(struct parse *p, const char *what)
{
    const size_t n = strlen(what);

    skip(p);
    if (p->s.n - p->at < n || memcmp(p->s.p + p->at, what, n) != 0 ||
        (is_word(*what) && p->s.n - p->at > n && p->s.p[p->at + n] != '\0' && is_word(p->s.p[p->at + n])))
        return false;
    p->at += n;
    return true;
}

static struct pipeline_expr *new_node(struct parse *p, enum expr_op op, struct err *e)
{
    struct pipeline_expr *x = NULL;

    if (++p->n > NODES_MAX)
        err_set(e, ERR_FORMAT, "an expression of more than %d parts", NODES_MAX);
    else if ((x = arena_alloc(p->arena, sizeof *x)) == NULL)
        err_nomem(e);
    else
        x->op = op;
    return x;
}

static struct pipeline_expr *parse_or(struct parse *p, struct err *e);

static struct pipeline_expr *read_number(struct parse *p, struct err *e)
{
    char digits[40];
    size_t n = 0;
    char *end;
    struct pipeline_expr *x = new_node(p, NUMBER, e);

    while (p->at + n < p->s.n && n < sizeof digits - 1 && strchr("+-.eE0123456789", p->s.p[p->at + n]) != NULL &&
           p->s.p[p->at + n] != '\0') {
        digits[n] = p->s.p[p->at + n];
        n++;
    }
    digits[n] = '\0';
    if (x == NULL)
        return NULL;
    x->number = strtod(digits, &end);
    if (n == 0 || *end != '\0' || !isfinite(x->number)) {
        err_set(e, ERR_FORMAT, "no number at byte %zu of the expression", p->at);
        return NULL;
    }
    p->at += n;
    return x;
}

static struct pipeline_expr *parse_value(struct parse *p, struct err *e)
{
    static const struct {
        const char *word;
        enum expr_op op;
    } words[] = { { "true", TRUE }, { "false", FALSE }, { "null", NOTHING } };
    struct pipeline_expr *x;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (take(p, words[i].word))
            return new_node(p, words[i].op, e);
    if (take(p, "(")) {
        x = parse_or(p, e);
        if (x != NULL && !take(p, ")")) {
            err_set(e, ERR_FORMAT, "a bracket is not closed at byte %zu of the expression", p->at);
            return NULL;
        }
        return x;
    }
    skip(p);
    if (p->at < p->s.n && strchr("'\"", p->s.p[p->at]) != NULL) {
        x = new_node(p, TEXT, e);
        if (x != NULL && !pipeline_quoted(&x->text, p->s, &p->at)) {
            err_set(e, ERR_FORMAT, "a quote is not closed at byte %zu of the expression", p->at);
            return NULL;
        }
        return x;
    }
    if (p->at < p->s.n && strchr("-0123456789", p->s.p[p->at]) != NULL)
        return read_number(p, e);
    x = new_node(p, PATH, e);
    return x != NULL && pipeline_path_read(&x->path, p->s, &p->at, p->scope, e) == ERR_OK ? x : NULL;
}

/* x, or a node with both. */
static struct pipeline_expr *join(struct parse *p, enum expr_op op, struct pipeline_expr *a, struct pipeline_expr *b,
                                  struct err *e)
{
    struct pipeline_expr *x = a != NULL && b != NULL ? new_node(p, op, e) : NULL;

    if (x != NULL) {
        x->a = a;
        x->b = b;
    }
    return x;
}

static struct pipeline_expr *parse_test(struct parse *p, struct err *e)
{
    static const struct {
        const char *word;
        enum expr_op op;
    } tests[] = {
        { "==", EQ }, { "!=", NE }, { "<=", LE }, { ">=", GE }, { "<", LT }, { ">", GT }, { "contains", CONTAINS }
    };
    struct pipeline_expr *x = parse_value(p, e);

    for (size_t i = 0; i < sizeof tests / sizeof *tests && x != NULL; i++)
        if (take(p, tests[i].word))
            return join(p, tests[i].op, x, parse_value(p, e), e);
    return x;
}

static struct pipeline_expr *parse_not(struct parse *p, struct err *e)
{
    struct pipeline_expr *x;

    if (!take(p, "not"))
        return parse_test(p, e);
    if (++p->depth > DEPTH_MAX) {
        err_set(e, ERR_FORMAT, "an expression of more than %d levels", DEPTH_MAX);
        return NULL;
    }
    x = parse_not(p, e);
    p->depth--;
    return join(p, NOT, x, x, e);
}

static struct pipeline_expr *parse_and(struct parse *p, struct err *e)
{
    struct pipeline_expr *x = parse_not(p, e);

    while (x != NULL && take(p, "and"))
        x = join(p, AND, x, parse_not(p, e), e);
    return x;
}

static struct pipeline_expr *parse_or(struct parse *p, struct err *e)
{
    struct pipeline_expr *x;

    if (++p->depth > DEPTH_MAX) {
        err_set(e, ERR_FORMAT, "an expression of more than %d levels", DEPTH_MAX);
        return NULL;
    }
    x = parse_and(p, e);
    while (x != NULL && take(p, "or"))
        x = join(p, OR, x, parse_and(p, e), e);
    p->depth--;
    return x;
}

enum err_code pipeline_expr_make(const struct pipeline_expr **out, struct arena *a, struct str s,
                                 const struct pipeline_scope *scope, struct err *e)
{
    struct parse p = { .arena = a, .s = s, .scope = scope };
    const struct pipeline_expr *x;

    if (s.n > EXPR_BYTES_MAX)
        return err_set(e, ERR_FORMAT, "an expression of more than %d bytes", EXPR_BYTES_MAX);
    x = parse_or(&p, e);
    if (x == NULL)
        return e->code;
    skip(&p);
    if (p.at < s.n)
        return err_set(e, ERR_FORMAT, "the expression has more than a test at byte %zu", p.at);
    *out = x;
    return ERR_OK;
}

/* ---- what it is ---- */

/* A value without JSON's allocations. */
struct value {
    enum { IS_NULL, IS_BOOL, IS_NUMBER, IS_TEXT, IS_OTHER } kind;
    bool yes;
    double number;
    struct str text;
    const json_t *json;
};

static bool holds(const struct pipeline_expr *x, const json_t *state);

static struct value of_json(const json_t *v)
{
    if (v == NULL || json_is_null(v))
        return (struct value){ .kind = IS_NULL };
    if (json_is_boolean(v))
        return (struct value){ .kind = IS_BOOL, .yes = json_is_true(v) };
    if (json_is_number(v))
        return (struct value){ .kind = IS_NUMBER, .number = json_number_value(v) };
    if (json_is_string(v))
        return (struct value){ .kind = IS_TEXT, .text = json_text(v) };
    return (struct value){ .kind = IS_OTHER, .json = v };
}

static struct value value_of(const struct pipeline_expr *x, const json_t *state)
{
    switch (x->op) {
    case PATH:
        return of_json(pipeline_path_find(&x->path, state));
    case TEXT:
        return (struct value){ .kind = IS_TEXT, .text = x->text };
    case NUMBER:
        return (struct value){ .kind = IS_NUMBER, .number = x->number };
    case NOTHING:
        return (struct value){ .kind = IS_NULL };
    default:
        return (struct value){ .kind = IS_BOOL, .yes = holds(x, state) };
    }
}

static bool is_true(const struct value *v)
{
    switch (v->kind) {
    case IS_NULL:
        return false;
    case IS_BOOL:
        return v->yes;
    case IS_NUMBER:
        return v->number < 0 || v->number > 0;
    case IS_TEXT:
        return v->text.n > 0;
    default:
        return json_object_size(v->json) > 0 || json_array_size(v->json) > 0;
    }
}

static bool equal(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case IS_NULL:
        return true;
    case IS_BOOL:
        return a->yes == b->yes;
    case IS_NUMBER:
        return !(a->number < b->number) && !(a->number > b->number);
    case IS_TEXT:
        return str_eq(a->text, b->text);
    default:
        return json_equal(a->json, b->json) != 0;
    }
}

/* -1, 0, 1; 2: they have no order. */
static int order(const struct value *a, const struct value *b)
{
    if (a->kind == IS_NUMBER && b->kind == IS_NUMBER)
        return a->number < b->number ? -1 : a->number > b->number;
    if (a->kind != IS_TEXT || b->kind != IS_TEXT)
        return 2;
    const size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
    const int c = n > 0 ? memcmp(a->text.p, b->text.p, n) : 0;

    return c != 0 ? (c < 0 ? -1 : 1) : a->text.n < b->text.n ? -1 : a->text.n > b->text.n;
}

static bool contains(const struct value *a, const struct value *b)
{
    const json_t *one;
    size_t i;

    if (a->kind == IS_TEXT && b->kind == IS_TEXT)
        return str_find(a->text, 0, b->text) != SIZE_MAX;
    if (a->kind != IS_OTHER)
        return false;
    if (json_is_object(a->json))
        return b->kind == IS_TEXT && json_object_getn(a->json, b->text.p, b->text.n) != NULL;
    json_array_foreach (a->json, i, one) {
        const struct value v = of_json(one);

        if (equal(&v, b))
            return true;
    }
    return false;
}

static bool holds(const struct pipeline_expr *x, const json_t *state)
{
    struct value a, b;

    switch (x->op) {
    case OR:
        return holds(x->a, state) || holds(x->b, state);
    case AND:
        return holds(x->a, state) && holds(x->b, state);
    case NOT:
        return !holds(x->a, state);
    case TRUE:
    case FALSE:
        return x->op == TRUE;
    case PATH:
    case TEXT:
    case NUMBER:
    case NOTHING:
        a = value_of(x, state);
        return is_true(&a);
    default:
        break;
    }
    a = value_of(x->a, state);
    b = value_of(x->b, state);
    const int c = order(&a, &b);

    switch (x->op) {
    case EQ:
        return equal(&a, &b);
    case NE:
        return !equal(&a, &b);
    case LT:
        return c == -1;
    case GT:
        return c == 1;
    case LE:
        return c == -1 || c == 0;
    case GE:
        return c == 1 || c == 0;
    default:
        return contains(&a, &b);
    }
}

bool pipeline_holds(const struct pipeline_expr *x, const json_t *state)
{
    return holds(x, state);
}
