/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_eval.c - the value of an expression; scopes.                            room: chat */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "chat/jinja.h"

/* ---- failures and limits ---- */
/* Which message a loop is at: the number of the innermost variable that is one; -1: none. */
static int64_t message_at(const struct jin *j)
{
    if (j->messages.kind != VAL_LIST)
        return -1;
    for (const struct frame *f = j->frame; f != NULL; f = f->up)
        for (int i = 0; i < f->n; i++)
            for (size_t k = 0; f->v[i].v.kind == VAL_DICT && k < j->messages.u.l->n; k++)
                if (j->messages.u.l->v[k].kind == VAL_DICT && j->messages.u.l->v[k].u.d == f->v[i].v.u.d)
                    return (int64_t)k;
    return -1;
}

static bool note_error(struct jin *j, enum err_code code, const char *why)
{
    int line, column;
    int64_t message = message_at(j);

    if (j->e == NULL || j->e->code != ERR_OK)
        return false;
    chat_jinja_place(j->t, j->at, &line, &column);
    err_set(j->e, code, "template: line %d, column %d: %s", line, column, why);
    err_at(j->e, "%d:%d", line, column);
    if (message >= 0) {
        err_wrap(j->e, "message %lld", (long long)message);
        err_at(j->e, "/messages/%lld", (long long)message);
    }
    return false;
}

bool chat_raise(struct jin *j, const char *fmt, ...)
{
    char why[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return note_error(j, ERR_FORMAT, why);
}

bool chat_limit(struct jin *j, const char *what)
{
    return note_error(j, ERR_LIMIT, what);
}

bool chat_no_memory(struct jin *j)
{
    return note_error(j, ERR_LIMIT, "the template needs too much memory");
}

bool chat_work(struct jin *j, int64_t steps)
{
    j->steps += steps;
    return j->steps <= j->steps_max || chat_limit(j, "the template takes too many steps");
}

bool chat_enter(struct jin *j)
{
    if (++j->depth > JIN_DEPTH_MAX)
        return chat_limit(j, "nested too deep");
    return chat_work(j, 1);
}

void chat_leave(struct jin *j)
{
    j->depth--;
}

/* ---- scopes ---- */
struct frame *chat_frame_new(struct jin *j, struct frame *up)
{
    struct frame *f = chat_take(j, sizeof *f);

    if (f != NULL)
        *f = (struct frame){ .up = up };
    return f;
}

bool chat_frame_set(struct jin *j, struct frame *f, int sym, struct val v)
{
    if (f == NULL) {
        j->root[sym] = v;
        j->root_set[sym] = true;
        return true;
    }
    for (int i = 0; i < f->n; i++)
        if (f->v[i].sym == sym) {
            f->v[i].v = v;
            return true;
        }
    if (f->n == f->cap) {
        int cap = f->cap < 4 ? 4 : 2 * f->cap;
        struct var *p = chat_take_array(j, (size_t)cap, sizeof *p);
        if (p == NULL)
            return false;
        if (f->n > 0)
            memcpy(p, f->v, (size_t)f->n * sizeof *p);
        f->v = p;
        f->cap = cap;
    }
    f->v[f->n++] = (struct var){ sym, v };
    return true;
}

static const struct val *find_name(const struct jin *j, int sym)
{
    for (const struct frame *f = j->frame; f != NULL; f = f->up)
        for (int i = 0; i < f->n; i++)
            if (f->v[i].sym == sym)
                return &f->v[i].v;
    return j->root_set[sym] ? &j->root[sym] : NULL;
}

static bool unpack(struct jin *j, const struct node *target, struct val v)
{
    struct viter *it;
    struct val item;
    bool more;

    if (v.kind != VAL_UNDEFINED && (chat_is_num(&v) || v.kind == VAL_NONE))
        return chat_raise(j, "cannot unpack non-iterable %s object", chat_type(&v));
    if (!chat_iter(j, v, &it))
        return false;
    struct val list;
    if (!chat_list_new(j, VAL_LIST, (size_t)target->n + 1, &list))
        return false;
    for (int i = 0; i <= target->n; i++) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more && i < target->n)
            return chat_raise(j, "not enough values to unpack (expected %d, got %d)", target->n, i);
        if (more && i == target->n)
            return chat_raise(j, "too many values to unpack (expected %d)", target->n);
        if (more)
            list.u.l->v[list.u.l->n++] = item;
    }
    for (int i = 0; i < target->n; i++)
        if (!chat_bind(j, target->kid[i], list.u.l->v[i]))
            return false;
    return true;
}

bool chat_bind(struct jin *j, const struct node *target, struct val v)
{
    const struct val *ns;

    if (target->kind == NODE_TUPLE)
        return unpack(j, target, v);
    if (target->kind == NODE_NAME)
        return chat_frame_set(j, j->frame, target->op, v);
    ns = find_name(j, target->op);
    j->at = target->at;
    if (ns == NULL || ns->kind != VAL_SPACE)
        return chat_raise(j, "cannot assign attribute on non-namespace object");
    return chat_dict_set(j, ns->u.d, target->v, v);
}

/* ---- calls ---- */
bool chat_eval_args(struct jin *j, const struct node *n, int first, struct args *a)
{
    int n_kw = n->n - first - n->n_pos - 2;
    const struct node *dyn = n->kid[n->n - 2], *dyn_kw = n->kid[n->n - 1];
    struct val list = { 0 }, dict = { 0 };
    size_t more = 0, more_kw = 0;

    if (dyn != NULL) {
        struct val v;
        if (!chat_eval(j, dyn, &v) || !chat_list_of(j, v, &list))
            return false;
        more = list.u.l->n;
    }
    *a = (struct args){ 0 };
    if (n->n_pos + (int)more > 0 && (a->v = chat_take_array(j, (size_t)n->n_pos + more, sizeof *a->v)) == NULL)
        return false;
    for (int i = 0; i < n->n_pos; i++)
        if (!chat_eval(j, n->kid[first + i], &a->v[i]))
            return false;
    a->n = n->n_pos;
    for (size_t i = 0; i < more; i++)
        a->v[a->n++] = list.u.l->v[i];
    if (dyn_kw != NULL) {
        if (!chat_eval(j, dyn_kw, &dict))
            return false;
        if (dict.kind != VAL_DICT)
            return chat_raise(j, "argument after ** must be a mapping, not %s", chat_type(&dict));
        more_kw = dict.u.d->n;
    }
    if ((size_t)n_kw + more_kw == 0)
        return true;
    a->name = chat_take_array(j, (size_t)n_kw + more_kw + 1, sizeof *a->name);
    a->kw = chat_take_array(j, (size_t)n_kw + more_kw + 1, sizeof *a->kw);
    if (a->name == NULL || a->kw == NULL)
        return false;
    for (int i = 0; i < n_kw; i++, a->n_kw++) {
        a->name[i] = n->name[i];
        if (!chat_eval(j, n->kid[first + n->n_pos + i], &a->kw[i]))
            return false;
    }
    for (size_t i = 0; i < more_kw; i++, a->n_kw++) {
        struct val key = dict.u.d->v[i].key;
        if (key.kind != VAL_STR)
            return chat_raise(j, "keywords must be strings");
        for (int k = 0; k < n_kw; k++)
            if (str_eq(chat_str(&key), chat_str(&n->name[k])))
                return chat_raise(j, "got multiple values for keyword argument '%.*s'", STR_ARG(chat_str(&key)));
        a->name[a->n_kw] = key;
        a->kw[a->n_kw] = dict.u.d->v[i].v;
    }
    return true;
}

bool chat_args(struct jin *j, const char *what, const struct args *a, const char *names, int need, struct val *v)
{
    int n = 0;
    const char *at = names;
    bool given[8] = { 0 };

    for (const char *p = names; *p != '\0'; n++) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    if (a->n > n)
        return chat_raise(j, "%s() takes at most %d argument%s (%d given)", what, n, n == 1 ? "" : "s", a->n);
    for (int i = 0; i < a->n; i++) {
        v[i] = a->v[i];
        given[i] = true;
    }
    for (int k = 0; k < a->n_kw; k++) {
        struct str key = chat_str(&a->name[k]);
        int i = 0;
        at = names;
        while (*at != '\0' && !(strcspn(at, " ") == key.n && memcmp(at, key.p, key.n) == 0)) {
            at += strcspn(at, " ");
            at += strspn(at, " ");
            i++;
        }
        if (*at == '\0')
            return chat_raise(j, "%s() got an unexpected keyword argument '%.*s'", what, STR_ARG(key));
        if (given[i])
            return chat_raise(j, "%s() got multiple values for argument '%.*s'", what, STR_ARG(key));
        v[i] = a->kw[k];
        given[i] = true;
    }
    for (int i = 0; i < need; i++)
        if (!given[i])
            return chat_raise(j, "%s() misses an argument", what);
    return true;
}

bool chat_call(struct jin *j, struct val fn, const struct args *a, struct val *out)
{
    switch (fn.kind) {
    case VAL_METHOD:
        return chat_call_method(j, fn.u.me, a, out);
    case VAL_FUNC:
        return chat_call_func(j, fn.sub, a, out);
    case VAL_MACRO:
        return chat_call_macro(j, fn.u.m, a, out);
    case VAL_LOOP:
        return chat_call_loop(j, fn.u.lo, a, out);
    case VAL_BLOCK:
        return chat_args(j, "block", a, "", 0, NULL) && chat_call_block(j, fn.u.node, NULL, out);
    case VAL_JOINER:
        if (!chat_args(j, "joiner", a, "", 0, NULL))
            return false;
        *out = fn.u.cy->items->v[0];
        if (fn.u.cy->pos++ == 0)
            return chat_str_new(j, STR(""), true, out);
        return true;
    case VAL_UNDEFINED:
        return chat_use_undefined(j, fn);
    default:
        return chat_raise(j, "'%s' object is not callable", chat_type(&fn));
    }
}

static bool eval_call(struct jin *j, const struct node *n, struct val *out)
{
    struct args a;
    struct val fn;

    if (!chat_eval(j, n->kid[0], &fn) || !chat_eval_args(j, n, 1, &a))
        return false;
    j->at = n->at;
    return chat_call(j, fn, &a, out);
}

static bool eval_filter(struct jin *j, const struct node *n, struct val *out)
{
    struct args a;
    struct val v;

    if (!chat_eval(j, n->kid[0], &v) || !chat_eval_args(j, n, 1, &a))
        return false;
    j->at = n->at;
    if (n->op < 0)
        return chat_raise(j, "No filter named '%.*s'.", STR_ARG(chat_str(&n->v)));
    return chat_filter(j, n->op, v, &a, out);
}

static bool eval_test(struct jin *j, const struct node *n, struct val *out)
{
    struct args a;
    struct val v;
    bool yes;

    if (!chat_eval(j, n->kid[0], &v) || !chat_eval_args(j, n, 1, &a))
        return false;
    j->at = n->at;
    if (n->op < 0)
        return chat_raise(j, "No test named '%.*s'.", STR_ARG(chat_str(&n->v)));
    if (!chat_test(j, n->op, v, &a, &yes))
        return false;
    *out = chat_bool(yes);
    return true;
}

/* ---- the rest ---- */
static bool eval_items(struct jin *j, const struct node *n, struct val *out)
{
    if (!chat_list_new(j, n->kind == NODE_LIST ? VAL_LIST : VAL_TUPLE, (size_t)n->n, out))
        return false;
    for (int i = 0; i < n->n; i++)
        if (!chat_eval(j, n->kid[i], &out->u.l->v[out->u.l->n++]))
            return false;
    return true;
}

static bool eval_dict(struct jin *j, const struct node *n, struct val *out)
{
    struct val key, v;

    if (!chat_dict_new(j, out))
        return false;
    for (int i = 0; i < n->n; i += 2)
        if (!chat_eval(j, n->kid[i], &key) || !chat_eval(j, n->kid[i + 1], &v) || !chat_dict_set(j, out->u.d, key, v))
            return false;
    return true;
}

static bool eval_item(struct jin *j, const struct node *n, struct val *out)
{
    struct val v, key, bound[3];
    const struct node *k = n->kid[1];

    if (!chat_eval(j, n->kid[0], &v))
        return false;
    if (k->kind != NODE_SLICE) {
        if (!chat_eval(j, k, &key))
            return false;
        j->at = n->at;
        return chat_getitem(j, v, key, out);
    }
    for (int i = 0; i < 3; i++) {
        bound[i] = chat_none();
        if (k->kid[i] != NULL && !chat_eval(j, k->kid[i], &bound[i]))
            return false;
    }
    j->at = n->at;
    if (j->constant && v.kind != VAL_UNDEFINED && v.kind != VAL_STR && v.kind != VAL_LIST && v.kind != VAL_TUPLE)
        return chat_undefined(j, out, "'%s object' has no such element", chat_type(&v));
    return chat_slice(j, v, bound, out);
}

static bool eval_concat(struct jin *j, const struct node *n, struct val *out)
{
    struct val v, s;

    for (int i = 0; i < n->n; i++) {
        if (!chat_eval(j, n->kid[i], &v) || !chat_to_str(j, v, &s))
            return false;
        if (i == 0)
            *out = s;
        else if (!chat_concat(j, out->u.s, s.u.s, out))
            return false;
    }
    if (out->u.s->markup) { /* the parts are joined as plain text */
        if (!chat_str_part(j, out->u.s, 0, out->u.s->n, out))
            return false;
        chat_set_markup(out, false);
    }
    return true;
}

static bool eval_compare(struct jin *j, const struct node *n, struct val *out)
{
    struct val a, b;
    bool yes = true;

    if (!chat_eval(j, n->kid[0], &a))
        return false;
    for (int i = 1; i < n->n && yes; i++, a = b) {
        if (!chat_eval(j, n->kid[i], &b))
            return false;
        j->at = n->at;
        if (!chat_compare(j, n->sym[i - 1], a, b, &yes))
            return false;
    }
    *out = chat_bool(yes);
    return true;
}

static bool eval_cond(struct jin *j, const struct node *n, struct val *out)
{
    struct val v;

    if (!chat_eval(j, n->kid[0], &v))
        return false;
    if (chat_truth(&v))
        return chat_eval(j, n->kid[1], out);
    if (n->kid[2] != NULL)
        return chat_eval(j, n->kid[2], out);
    return chat_undefined(j, out, "the inline if-expression evaluated to false and no else section was defined.");
}

static bool eval_name(struct jin *j, const struct node *n, struct val *out)
{
    const struct val *v = find_name(j, n->op);

    if (v == NULL)
        return chat_undefined(j, out, "'%.*s' is undefined", STR_ARG(chat_str(&n->v)));
    *out = *v;
    return true;
}

static bool eval_any(struct jin *j, const struct node *n, struct val *out)
{
    struct val a, b;

    switch (n->kind) {
    case NODE_CONST:
        *out = n->v;
        return true;
    case NODE_NAME:
        return eval_name(j, n, out);
    case NODE_TUPLE:
    case NODE_LIST:
        return eval_items(j, n, out);
    case NODE_DICT:
        return eval_dict(j, n, out);
    case NODE_ATTR:
        if (!chat_eval(j, n->kid[0], &a))
            return false;
        j->at = n->at;
        return chat_getattr(j, a, n->v, out);
    case NODE_ITEM:
        return eval_item(j, n, out);
    case NODE_CALL:
        return eval_call(j, n, out);
    case NODE_FILTER:
        return eval_filter(j, n, out);
    case NODE_TEST:
        return eval_test(j, n, out);
    case NODE_NOT:
        if (!chat_eval(j, n->kid[0], &a))
            return false;
        *out = chat_bool(!chat_truth(&a));
        return true;
    case NODE_NEG:
    case NODE_POS:
        if (!chat_eval(j, n->kid[0], &a))
            return false;
        j->at = n->at;
        return chat_negate(j, a, n->kind == NODE_POS, out);
    case NODE_BINARY:
        if (!chat_eval(j, n->kid[0], &a) || !chat_eval(j, n->kid[1], &b))
            return false;
        j->at = n->at;
        return chat_binary(j, n->op, a, b, out);
    case NODE_CONCAT:
        return eval_concat(j, n, out);
    case NODE_COMPARE:
        return eval_compare(j, n, out);
    case NODE_AND:
    case NODE_OR:
        if (!chat_eval(j, n->kid[0], out))
            return false;
        return chat_truth(out) == (n->kind == NODE_OR) || chat_eval(j, n->kid[1], out);
    default:
        return eval_cond(j, n, out);
    }
}

bool chat_eval(struct jin *j, const struct node *n, struct val *out)
{
    bool ok;

    j->at = n->at;
    ok = chat_enter(j) && eval_any(j, n, out);
    chat_leave(j);
    return ok;
}
