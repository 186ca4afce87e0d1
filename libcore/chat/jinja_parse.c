/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_parse.c - expressions to trees.                                         room: chat
 *
 * Precedence, from loose to tight: if-else, or, and, not, comparison and in, + -, ~, * / // %, **,
 * unary + -, then calls, subscripts, filters and tests. Children of nodes: tuple, list: items;
 * dict: key, value, key, value ...; attr: of; item: of, key; slice: 3 bounds or NULL; call, filter,
 * test: what is called or applied to (NULL in filter blocks), positional, keyword arguments, *args
 * or NULL,
 *   **kwargs or NULL; compare: a, b, c ..., its operators in `sym`; cond: test, then, else or NULL.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja_tree.h"

void *chat_tree_fail(struct parse *p, const char *fmt, ...)
{
    char why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (p->e->code == ERR_OK)
        chat_jinja_fail(p->t, p->e, p->tok[p->at].at, "%s", why);
    return NULL;
}

void *chat_tree_nomem(struct parse *p)
{
    err_nomem(p->e);
    return NULL;
}

struct node *chat_tree_node(struct parse *p, enum node_kind kind, uint32_t at, int n)
{
    struct node *x = chat_heap_take(&p->t->heap, sizeof *x);

    if (x == NULL)
        return chat_tree_nomem(p);
    *x = (struct node){ .kind = (uint8_t)kind, .at = at, .height = 1 };
    if (n > 0) {
        if ((x->kid = chat_heap_take(&p->t->heap, (size_t)n * sizeof x->kid[0])) == NULL)
            return chat_tree_nomem(p);
        memset(x->kid, 0, (size_t)n * sizeof x->kid[0]);
        x->n = n;
    }
    return x;
}

bool chat_tree_measure(struct parse *p, struct node *n)
{
    for (int i = 0; i < n->n; i++)
        if (n->kid[i] != NULL && n->kid[i]->height >= n->height)
            n->height = (int16_t)(n->kid[i]->height + 1);
    if (n->height > JIN_TREE_MAX)
        return chat_tree_fail(p, "nested too deep") != NULL;
    return true;
}

/* Capacity is the power of two from n on, at least 4. */
bool chat_tree_add(struct parse *p, struct node *n, struct node *kid)
{
    if (kid == NULL)
        return false;
    if (n->n == 0 || (n->n >= 4 && (n->n & (n->n - 1)) == 0)) {
        struct node **v = chat_heap_take(&p->t->heap, (size_t)(n->n < 4 ? 4 : 2 * n->n) * sizeof *v);
        if (v == NULL)
            return chat_tree_nomem(p) != NULL;
        if (n->n > 0)
            memcpy(v, n->kid, (size_t)n->n * sizeof *v);
        n->kid = v;
    }
    n->kid[n->n++] = kid;
    return true;
}

bool chat_tree_name(struct parse *p, struct str s, struct val *out)
{
    struct vstr *v = chat_heap_take(&p->t->heap, sizeof *v);

    if (v == NULL)
        return chat_tree_nomem(p) != NULL;
    *v = (struct vstr){ .p = s.p, .n = s.n, .n_cp = 0, .ours = true };
    for (size_t i = 0; i < s.n; i++) /* trees are shared by threads: counted now */
        v->n_cp += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    *out = (struct val){ .kind = VAL_STR, .u.s = v };
    return true;
}

int chat_tree_symbol(struct parse *p, struct str s)
{
    struct jinja *t = p->t;

    for (int i = 0; i < t->n_sym; i++)
        if (str_eq(t->sym[i], s))
            return i;
    if (t->n_sym == t->cap_sym) {
        int cap = t->cap_sym < 32 ? 64 : 2 * t->cap_sym;
        struct str *v = chat_heap_take(&t->heap, (size_t)cap * sizeof *v);
        if (v == NULL) {
            chat_tree_nomem(p);
            return -1;
        }
        if (t->n_sym > 0)
            memcpy(v, t->sym, (size_t)t->n_sym * sizeof *v);
        t->sym = v;
        t->cap_sym = cap;
    }
    t->sym[t->n_sym] = s;
    return t->n_sym++;
}

const char *chat_tree_describe(const struct tok *t, char buf[64])
{
    static const char *const names[] = {
        [TOK_DATA] = "template data / text",
        [TOK_VAR_BEGIN] = "begin of print statement",
        [TOK_VAR_END] = "end of print statement",
        [TOK_BLOCK_BEGIN] = "begin of statement block",
        [TOK_BLOCK_END] = "end of statement block",
        [TOK_STRING] = "string",
        [TOK_INT] = "integer",
        [TOK_FLOAT] = "float",
        [TOK_EOF] = "end of template",
    };

    if (t->kind == TOK_OP)
        snprintf(buf, 64, "%c%s", t->op & 0xFF,
                 t->op >> 8 == '='   ? "="
                 : t->op >> 8 == '/' ? "/"
                 : t->op >> 8        ? "*"
                                     : "");
    else if (t->kind == TOK_NAME)
        snprintf(buf, 64, "%.*s", (int)(t->text.n < 60 ? t->text.n : 60), t->text.p);
    else
        snprintf(buf, 64, "%s", names[t->kind]);
    return buf;
}

bool chat_tree_is_op(const struct parse *p, int op)
{
    return p->tok[p->at].kind == TOK_OP && p->tok[p->at].op == op;
}

bool chat_tree_is_name(const struct parse *p, const char *z)
{
    return p->tok[p->at].kind == TOK_NAME && str_is(p->tok[p->at].text, z);
}

bool chat_tree_skip_op(struct parse *p, int op)
{
    bool is = chat_tree_is_op(p, op);

    p->at += is;
    return is;
}

bool chat_tree_skip_name(struct parse *p, const char *z)
{
    bool is = chat_tree_is_name(p, z);

    p->at += is;
    return is;
}

bool chat_tree_expect_op(struct parse *p, int op)
{
    char got[64], want[64];
    struct tok t = { .kind = TOK_OP, .op = op };

    if (chat_tree_skip_op(p, op))
        return true;
    chat_tree_fail(p, "expected token '%s', got '%s'", chat_tree_describe(&t, want),
                   chat_tree_describe(&p->tok[p->at], got));
    return false;
}

bool chat_tree_enter(struct parse *p)
{
    if (p->depth >= PARSE_DEPTH_MAX)
        return chat_tree_fail(p, "nested too deep") != NULL;
    p->depth++;
    return true;
}

static uint32_t place_here(const struct parse *p)
{
    return p->tok[p->at].at;
}

static struct node *checked_node(struct parse *p, struct node *n)
{
    return n != NULL && chat_tree_measure(p, n) ? n : NULL;
}

static struct node *two(struct parse *p, enum node_kind kind, uint32_t at, int op, struct node *a, struct node *b)
{
    struct node *n = a != NULL && b != NULL ? chat_tree_node(p, kind, at, 2) : NULL;

    if (n == NULL)
        return NULL;
    n->op = op;
    n->kid[0] = a;
    n->kid[1] = b;
    return checked_node(p, n);
}

/* ---- calls ---- */
struct call {
    struct node *pos, *kw, *dyn, *dyn_kw; /* pos and kw: bodies of nodes */
    struct val *name;
};

static bool is_keyword(const struct parse *p)
{
    const struct tok *t = &p->tok[p->at];

    return t->kind == TOK_NAME && t[1].kind == TOK_OP && t[1].op == '=';
}

static bool add_keyword(struct parse *p, struct call *c)
{
    struct val *v = c->name;
    int n = c->kw->n;

    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        if ((v = chat_heap_take(&p->t->heap, (size_t)(n < 4 ? 4 : 2 * n) * sizeof *v)) == NULL)
            return chat_tree_nomem(p) != NULL;
        if (n > 0)
            memcpy(v, c->name, (size_t)n * sizeof *v);
        c->name = v;
    }
    for (int i = 0; i < n; i++)
        if (str_eq(chat_str(&v[i]), p->tok[p->at].text))
            return chat_tree_fail(p, "keyword argument repeated: %.*s", STR_ARG(p->tok[p->at].text)) != NULL;
    if (!chat_tree_name(p, p->tok[p->at].text, &v[n]))
        return false;
    p->at += 2;
    return chat_tree_add(p, c->kw, chat_tree_expr(p, true));
}

static bool call_args(struct parse *p, struct call *c)
{
    if (!chat_tree_expect_op(p, '('))
        return false;
    for (bool first = true; !chat_tree_is_op(p, ')'); first = false) {
        bool ok;
        if (!first && !chat_tree_expect_op(p, ','))
            return false;
        if (!first && chat_tree_is_op(p, ')'))
            break;
        if (chat_tree_is_op(p, OP_MUL) && c->dyn == NULL && c->dyn_kw == NULL) {
            p->at++;
            ok = (c->dyn = chat_tree_expr(p, true)) != NULL;
        } else if (chat_tree_is_op(p, OP_POW) && c->dyn_kw == NULL) {
            p->at++;
            ok = (c->dyn_kw = chat_tree_expr(p, true)) != NULL;
        } else if (is_keyword(p) && c->dyn_kw == NULL) {
            ok = add_keyword(p, c);
        } else if (!is_keyword(p) && c->dyn == NULL && c->dyn_kw == NULL && c->kw->n == 0 &&
                   !chat_tree_is_op(p, OP_MUL) && !chat_tree_is_op(p, OP_POW)) {
            ok = chat_tree_add(p, c->pos, chat_tree_expr(p, true));
        } else {
            return chat_tree_fail(p, "invalid syntax for function call expression") != NULL;
        }
        if (!ok)
            return false;
    }
    return chat_tree_expect_op(p, ')');
}

/* of(args), of | name(args), of is name(args); one: the argument of a test without brackets, or
 * NULL */
static struct node *call_node(struct parse *p, enum node_kind kind, uint32_t at, struct node *of, bool args,
                              struct node *one)
{
    struct call c = { .pos = chat_tree_node(p, NODE_BODY, at, 0), .kw = chat_tree_node(p, NODE_BODY, at, 0) };

    if (c.pos == NULL || c.kw == NULL || (args && !call_args(p, &c)) || (one != NULL && !chat_tree_add(p, c.pos, one)))
        return NULL;
    struct node *n = chat_tree_node(p, kind, at, 1 + c.pos->n + c.kw->n + 2);
    if (n == NULL)
        return NULL;
    n->kid[0] = of;
    n->n_pos = c.pos->n;
    n->name = c.name;
    for (int i = 0; i < c.pos->n; i++)
        n->kid[1 + i] = c.pos->kid[i];
    for (int i = 0; i < c.kw->n; i++)
        n->kid[1 + c.pos->n + i] = c.kw->kid[i];
    n->kid[n->n - 2] = c.dyn;
    n->kid[n->n - 1] = c.dyn_kw;
    return checked_node(p, n);
}

/* "name" or "name.name": of a filter or test */
static bool dotted_name(struct parse *p, struct str *out)
{
    struct str s = p->tok[p->at].text;
    char got[64];

    if (p->tok[p->at].kind != TOK_NAME) {
        chat_tree_fail(p, "expected token 'name', got '%s'", chat_tree_describe(&p->tok[p->at], got));
        return false;
    }
    p->at++;
    if (chat_tree_is_op(p, '.'))
        return chat_tree_fail(p, "no filter or test has such a name") != NULL;
    *out = s;
    return true;
}

struct node *chat_tree_filter(struct parse *p, struct node *of, bool begun)
{
    while (chat_tree_is_op(p, '|') || begun) {
        struct str name;
        uint32_t at;
        if (!begun)
            p->at++;
        begun = false;
        at = place_here(p);
        if (!dotted_name(p, &name))
            return NULL;
        int which = chat_filter_find(name);
        if (which < 0 && !p->soft) {
            p->at--;
            return chat_tree_fail(p, "No filter named '%.*s'.", STR_ARG(name));
        }
        of = call_node(p, NODE_FILTER, at, of, chat_tree_is_op(p, '('), NULL);
        if (of == NULL || !chat_tree_name(p, name, &of->v))
            return NULL;
        of->op = which;
    }
    return of;
}

static struct node *postfix(struct parse *p, struct node *n);
static struct node *primary(struct parse *p, bool spaces);

static struct node *parse_test(struct parse *p, struct node *of)
{
    struct str name;
    uint32_t at = place_here(p);
    bool negated, args;
    struct node *one = NULL;

    p->at++;
    negated = chat_tree_skip_name(p, "not");
    if (!dotted_name(p, &name))
        return NULL;
    int which = chat_test_find(name);
    if (which < 0 && !p->soft) {
        p->at--;
        return chat_tree_fail(p, "No test named '%.*s'.", STR_ARG(name));
    }
    const struct tok *t = &p->tok[p->at];
    args = chat_tree_is_op(p, '(');
    if (!args &&
        (t->kind == TOK_NAME || t->kind == TOK_STRING || t->kind == TOK_INT || t->kind == TOK_FLOAT ||
         chat_tree_is_op(p, '[') || chat_tree_is_op(p, '{')) &&
        !chat_tree_is_name(p, "else") && !chat_tree_is_name(p, "or") && !chat_tree_is_name(p, "and")) {
        if (chat_tree_is_name(p, "is"))
            return chat_tree_fail(p, "You cannot chain multiple tests with is");
        if ((one = primary(p, false)) == NULL || (one = postfix(p, one)) == NULL)
            return NULL;
    }
    struct node *n = call_node(p, NODE_TEST, at, of, args, one);
    if (n == NULL || !chat_tree_name(p, name, &n->v))
        return NULL;
    n->op = which;
    if (negated) {
        struct node *not = chat_tree_node(p, NODE_NOT, at, 1);
        if (not == NULL)
            return NULL;
        not ->kid[0] = n;
        return checked_node(p, not );
    }
    return n;
}

/* ---- subscripts ---- */
static struct node *subscribed(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *first = NULL, *n;

    if (!chat_tree_is_op(p, ':')) {
        first = chat_tree_expr(p, true);
        if (first == NULL || !chat_tree_is_op(p, ':'))
            return first;
    }
    p->at++;
    if ((n = chat_tree_node(p, NODE_SLICE, at, 3)) == NULL)
        return NULL;
    n->kid[0] = first;
    for (int i = 1; i < 3; i++) {
        if (i == 2 && !chat_tree_skip_op(p, ':'))
            break;
        if (!chat_tree_is_op(p, ':') && !chat_tree_is_op(p, ']') && !chat_tree_is_op(p, ',') &&
            (n->kid[i] = chat_tree_expr(p, true)) == NULL)
            return NULL;
    }
    return checked_node(p, n);
}

static struct node *subscript(struct parse *p, struct node *of)
{
    uint32_t at = place_here(p);
    struct node *key, *n;

    if (chat_tree_skip_op(p, '.')) {
        const struct tok *t = &p->tok[p->at];
        if (t->kind == TOK_NAME) {
            if ((n = chat_tree_node(p, NODE_ATTR, at, 1)) == NULL || !chat_tree_name(p, t->text, &n->v))
                return NULL;
            n->kid[0] = of;
            p->at++;
            return checked_node(p, n);
        }
        if (t->kind != TOK_INT)
            return chat_tree_fail(p, "expected name or number");
        return two(p, NODE_ITEM, at, 0, of, primary(p, false));
    }
    p->at++;
    struct node *keys = chat_tree_node(p, NODE_TUPLE, at, 0);
    while (keys != NULL && !chat_tree_is_op(p, ']')) {
        if (keys->n > 0 && !chat_tree_expect_op(p, ','))
            return NULL;
        if (!chat_tree_add(p, keys, subscribed(p)))
            return NULL;
    }
    if (keys == NULL || !chat_tree_expect_op(p, ']'))
        return NULL;
    key = keys->n == 1 ? keys->kid[0] : checked_node(p, keys);
    for (int i = 0; keys->n > 1 && i < keys->n; i++)
        if (keys->kid[i]->kind == NODE_SLICE)
            return chat_tree_fail(p, "a slice among several subscripts");
    return two(p, NODE_ITEM, at, 0, of, key);
}

static struct node *postfix(struct parse *p, struct node *n)
{
    while (n != NULL) {
        if (chat_tree_is_op(p, '.') || chat_tree_is_op(p, '['))
            n = subscript(p, n);
        else if (chat_tree_is_op(p, '('))
            n = call_node(p, NODE_CALL, place_here(p), n, true, NULL);
        else
            break;
    }
    return n;
}

/* ---- literals and names ---- */
static struct node *constant(struct parse *p, uint32_t at, struct val v)
{
    struct node *n = chat_tree_node(p, NODE_CONST, at, 0);

    if (n != NULL)
        n->v = v;
    return n;
}

static struct node *parse_number(struct parse *p)
{
    const struct tok *t = &p->tok[p->at++];
    struct str s = t->text;
    int base = 10;
    double d;
    struct val v;

    if (t->kind == TOK_FLOAT) {
        if (!chat_float_read(s, &d))
            return chat_tree_fail(p, "a bad number");
        return constant(p, t->at, chat_float(d));
    }
    if (s.n > 2 && s.p[0] == '0') {
        char c = (char)(s.p[1] | 32);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        s = base != 10 ? (struct str){ s.p + 2, s.n - 2 } : s;
    }
    /* Numbers of a tree lie in its own memory: a rendering is put around it to read one. */
    struct jin j = { .heap = p->t->heap, .t = p->t, .e = p->e, .at = t->at, .steps_max = JIN_STEPS_MAX };
    bool ok = chat_int_read(&j, s, base, &v);
    p->t->heap = j.heap;
    return ok ? constant(p, t->at, v) : NULL;
}

static struct node *string(struct parse *p)
{
    const struct tok *first = &p->tok[p->at];
    struct str s = first->text;
    struct val v;
    size_t n = 0, count = 0;

    for (const struct tok *t = first; t->kind == TOK_STRING; t++, count++)
        n += t->text.n;
    if (count > 1) {
        char *q = chat_heap_take(&p->t->heap, n);
        if (q == NULL)
            return chat_tree_nomem(p);
        s = (struct str){ q, 0 };
        for (size_t i = 0; i < count; s.n += first[i++].text.n)
            if (first[i].text.n > 0)
                memcpy(q + s.n, first[i].text.p, first[i].text.n);
    }
    p->at += count;
    return chat_tree_name(p, s, &v) ? constant(p, first->at, v) : NULL;
}

static struct node *parse_items(struct parse *p, enum node_kind kind, char close)
{
    struct node *n = chat_tree_node(p, kind, place_here(p), 0);

    p->at++;
    for (bool first = true; n != NULL && !chat_tree_is_op(p, close); first = false) {
        if (!first && !chat_tree_expect_op(p, ','))
            return NULL;
        if (!first && chat_tree_is_op(p, close))
            break;
        if (!chat_tree_add(p, n, chat_tree_expr(p, true)))
            return NULL;
        if (kind == NODE_DICT && (!chat_tree_expect_op(p, ':') || !chat_tree_add(p, n, chat_tree_expr(p, true))))
            return NULL;
    }
    return n != NULL && chat_tree_expect_op(p, close) ? checked_node(p, n) : NULL;
}

static void note_use(struct parse *p, int sym)
{
    for (int i = 0; i < p->n_macro; i++) {
        p->macro[i]->uses_caller |= sym == SYM_CALLER;
        p->macro[i]->uses_kwargs |= sym == SYM_KWARGS;
        p->macro[i]->uses_varargs |= sym == SYM_VARARGS;
    }
}

static struct node *name(struct parse *p, bool spaces)
{
    const struct tok *t = &p->tok[p->at++];
    struct node *n;
    size_t len;

    if (str_is(t->text, "true") || str_is(t->text, "false") || str_is(t->text, "True") || str_is(t->text, "False"))
        return constant(p, t->at, chat_bool((t->text.p[0] | 32) == 't'));
    if (str_is(t->text, "none") || str_is(t->text, "None"))
        return constant(p, t->at, chat_none());
    if (chat_cp_digit(str_utf8_get(t->text.p, t->text.n, &len)) >= 0) {
        p->at--;
        return chat_tree_fail(p, "Invalid character in identifier");
    }
    bool ref = spaces && chat_tree_skip_op(p, '.');
    if ((n = chat_tree_node(p, ref ? NODE_NSREF : NODE_NAME, t->at, 0)) == NULL ||
        (n->op = chat_tree_symbol(p, t->text)) < 0)
        return NULL;
    if (ref && p->tok[p->at].kind != TOK_NAME)
        return chat_tree_fail(p, "expected a name after '.'");
    note_use(p, n->op);
    return chat_tree_name(p, ref ? p->tok[p->at++].text : t->text, &n->v) ? n : NULL;
}

static struct node *primary(struct parse *p, bool spaces)
{
    char got[64];
    struct node *n;

    switch (p->tok[p->at].kind) {
    case TOK_NAME:
        return name(p, spaces);
    case TOK_STRING:
        return string(p);
    case TOK_INT:
    case TOK_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (chat_tree_skip_op(p, '(')) {
        n = chat_tree_tuple(p, true, NULL, true);
        return n != NULL && chat_tree_expect_op(p, ')') ? n : NULL;
    }
    if (chat_tree_is_op(p, '['))
        return parse_items(p, NODE_LIST, ']');
    if (chat_tree_is_op(p, '{'))
        return parse_items(p, NODE_DICT, '}');
    return chat_tree_fail(p, "unexpected '%s'", chat_tree_describe(&p->tok[p->at], got));
}

/* ---- operators ---- */
static struct node *unary(struct parse *p, bool with_filter)
{
    uint32_t at = place_here(p);
    struct node *n;

    if (!chat_tree_enter(p))
        return NULL;
    if (chat_tree_is_op(p, '-') || chat_tree_is_op(p, '+')) {
        bool minus = p->tok[p->at++].op == '-';
        struct node *of = unary(p, false);
        if (of == NULL || (n = chat_tree_node(p, minus ? NODE_NEG : NODE_POS, at, 1)) == NULL)
            return NULL;
        n->kid[0] = of;
        n = checked_node(p, n);
    } else {
        n = primary(p, false);
    }
    n = postfix(p, n);
    while (with_filter && n != NULL) {
        if (chat_tree_is_op(p, '|'))
            n = chat_tree_filter(p, n, false);
        else if (chat_tree_is_name(p, "is"))
            n = parse_test(p, n);
        else if (chat_tree_is_op(p, '('))
            n = call_node(p, NODE_CALL, place_here(p), n, true, NULL);
        else
            break;
    }
    p->depth--;
    return n;
}

static struct node *power(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *n = unary(p, true);

    while (n != NULL && chat_tree_skip_op(p, OP_POW))
        n = two(p, NODE_BINARY, at, OP_POW, n, unary(p, true));
    return n;
}

static struct node *parse_product(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *n = power(p);

    while (n != NULL && (chat_tree_is_op(p, OP_MUL) || chat_tree_is_op(p, OP_DIV) || chat_tree_is_op(p, OP_FLOORDIV) ||
                         chat_tree_is_op(p, OP_MOD))) {
        int op = p->tok[p->at++].op;
        n = two(p, NODE_BINARY, at, op, n, power(p));
    }
    return n;
}

static struct node *concat(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *first = parse_product(p), *n;

    if (first == NULL || !chat_tree_is_op(p, OP_TILDE))
        return first;
    if ((n = chat_tree_node(p, NODE_CONCAT, at, 0)) == NULL || !chat_tree_add(p, n, first))
        return NULL;
    while (chat_tree_skip_op(p, OP_TILDE))
        if (!chat_tree_add(p, n, parse_product(p)))
            return NULL;
    return checked_node(p, n);
}

static struct node *sum(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *n = concat(p);

    while (n != NULL && (chat_tree_is_op(p, OP_ADD) || chat_tree_is_op(p, OP_SUB))) {
        int op = p->tok[p->at++].op;
        n = two(p, NODE_BINARY, at, op, n, concat(p));
    }
    return n;
}

static int comparison(struct parse *p) /* its operator, or 0 */
{
    static const int ops[] = { OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (chat_tree_skip_op(p, ops[i]))
            return ops[i];
    if (chat_tree_skip_name(p, "in"))
        return OP_IN;
    if (chat_tree_is_name(p, "not") && p->tok[p->at + 1].kind == TOK_NAME && str_is(p->tok[p->at + 1].text, "in")) {
        p->at += 2;
        return OP_NOTIN;
    }
    return 0;
}

static struct node *parse_compare(struct parse *p)
{
    enum { OPS_MAX = 64 };
    uint32_t at = place_here(p);
    struct node *first = sum(p), *n;
    int op = first != NULL ? comparison(p) : 0;

    if (op == 0)
        return first;
    if ((n = chat_tree_node(p, NODE_COMPARE, at, 0)) == NULL || !chat_tree_add(p, n, first))
        return NULL;
    if ((n->sym = chat_heap_take(&p->t->heap, OPS_MAX * sizeof n->sym[0])) == NULL)
        return chat_tree_nomem(p);
    for (; op != 0; op = comparison(p)) {
        if (n->n > OPS_MAX)
            return chat_tree_fail(p, "too many comparisons in one expression");
        n->sym[n->n - 1] = op;
        if (!chat_tree_add(p, n, sum(p)))
            return NULL;
    }
    return checked_node(p, n);
}

static struct node *negation(struct parse *p)
{
    uint32_t at = place_here(p);
    struct node *of, *n;

    if (!chat_tree_skip_name(p, "not"))
        return parse_compare(p);
    if (!chat_tree_enter(p) || (of = negation(p)) == NULL || (n = chat_tree_node(p, NODE_NOT, at, 1)) == NULL)
        return NULL;
    p->depth--;
    n->kid[0] = of;
    return checked_node(p, n);
}

static struct node *and_or(struct parse *p, bool is_or)
{
    uint32_t at = place_here(p);
    struct node *n = is_or ? and_or(p, false) : negation(p);

    while (n != NULL && chat_tree_skip_name(p, is_or ? "or" : "and"))
        n = two(p, is_or ? NODE_OR : NODE_AND, at, 0, n, is_or ? and_or(p, false) : negation(p));
    return n;
}

struct node *chat_tree_expr(struct parse *p, bool with_cond)
{
    bool soft = p->soft;
    uint32_t at;
    struct node *n, *cond;

    if (!chat_tree_enter(p))
        return NULL;
    at = place_here(p);
    size_t from = p->at;
    int depth = p->depth;
    n = and_or(p, true);
    /* What stands before "if" is soft, which shows only now: an unknown name in it is looked at
     * again. */
    if (n == NULL && with_cond && !soft && p->e->code == ERR_FORMAT) {
        struct err first = *p->e;
        *p->e = (struct err){ 0 };
        p->at = from;
        p->depth = depth;
        p->soft = true;
        n = and_or(p, true);
        p->soft = soft;
        if (n == NULL || !chat_tree_is_name(p, "if")) {
            *p->e = first;
            return NULL;
        }
    }
    while (with_cond && n != NULL && chat_tree_skip_name(p, "if")) {
        if ((cond = chat_tree_node(p, NODE_COND, at, 3)) == NULL)
            return NULL;
        p->soft = true;
        cond->kid[1] = n;
        if ((cond->kid[0] = and_or(p, true)) == NULL)
            return NULL;
        if (chat_tree_skip_name(p, "else") && (cond->kid[2] = chat_tree_expr(p, true)) == NULL)
            return NULL;
        p->soft = soft;
        n = checked_node(p, cond);
    }
    p->depth--;
    return n;
}

struct node *chat_tree_tuple(struct parse *p, bool with_cond, const char *end_name, bool parens)
{
    uint32_t at = place_here(p);
    struct node *n = chat_tree_node(p, NODE_TUPLE, at, 0);
    bool tuple = false;
    char got[64];

    while (n != NULL) {
        const struct tok *t = &p->tok[p->at];
        if (n->n > 0 && !chat_tree_expect_op(p, ','))
            return NULL;
        t = &p->tok[p->at];
        if (t->kind == TOK_VAR_END || t->kind == TOK_BLOCK_END || chat_tree_is_op(p, ')') ||
            (end_name != NULL && chat_tree_is_name(p, end_name)))
            break;
        if (!chat_tree_add(p, n, chat_tree_expr(p, with_cond)))
            return NULL;
        if (!chat_tree_is_op(p, ','))
            break;
        tuple = true;
    }
    if (n == NULL || (!tuple && n->n > 0))
        return n != NULL ? n->kid[0] : NULL;
    if (!tuple && !parens)
        return chat_tree_fail(p, "Expected an expression, got '%s'", chat_tree_describe(&p->tok[p->at], got));
    return checked_node(p, n);
}

struct node *chat_tree_target(struct parse *p, const char *end_name, bool spaces)
{
    uint32_t at = place_here(p);
    struct node *n = chat_tree_node(p, NODE_TUPLE, at, 0), *one;
    bool tuple = false;

    if (n == NULL || !chat_tree_enter(p))
        return NULL;
    for (;;) {
        const struct tok *t = &p->tok[p->at];
        if (n->n > 0 && (t->kind == TOK_BLOCK_END || chat_tree_is_op(p, ')') || chat_tree_is_op(p, '=') ||
                         (end_name != NULL && chat_tree_is_name(p, end_name))))
            break;
        if (chat_tree_skip_op(p, '(')) {
            one = chat_tree_target(p, NULL, spaces);
            if (one == NULL || !chat_tree_expect_op(p, ')'))
                return NULL;
        } else {
            one = primary(p, spaces);
        }
        if (one == NULL)
            return NULL;
        if (one->kind != NODE_NAME && one->kind != NODE_NSREF && one->kind != NODE_TUPLE)
            return chat_tree_fail(p, "can't assign to that");
        if (!chat_tree_add(p, n, one))
            return NULL;
        if (!chat_tree_skip_op(p, ','))
            break;
        tuple = true;
    }
    p->depth--;
    return tuple ? checked_node(p, n) : n->kid[0];
}
