/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_exec.c - statements: output, loops, macros, blocks; a rendering as a whole.     room: chat
 *
 * Scopes: each round of a loop, each call of a macro, and the bodies of set, filter, with, call and
 * generation blocks have one; "if" has none. A name is looked for from the inside out; "set" writes
 * to the innermost.
 */
#include <string.h>
#include "chat/jinja.h"

static bool exec(struct jin *j, const struct node *n);

/* What a body writes, as a string. */
static bool capture_body(struct jin *j, const struct node *body, struct val *out)
{
    struct sbuf b = { 0 }, *saved = j->out;
    bool ok;

    j->out = &b;
    ok = chat_exec_body(j, body);
    j->out = saved;
    return ok && chat_sbuf_val(j, &b, out);
}

/* The same in a scope of its own. */
static bool capture_inner(struct jin *j, const struct node *body, struct val *out)
{
    struct frame *saved = j->frame, *f = chat_frame_new(j, saved);
    bool ok;

    if (f == NULL)
        return false;
    j->frame = f;
    ok = capture_body(j, body, out);
    j->frame = saved;
    return ok;
}

/* ---- loops ---- */
/* The next item of the loop that passes its "if". */
static bool pull(struct jin *j, struct vloop *lo, struct val *out, bool *more)
{
    const struct node *test = lo->node->kid[2];
    struct frame *saved = j->frame;
    bool pass = test == NULL || lo->drained;

    do {
        if (!chat_next(j, lo->it, out, more))
            return false;
        if (!*more || pass)
            return true;
        struct val v;
        j->frame = lo->test;
        if (!chat_bind(j, lo->node->kid[0], *out) || !chat_eval(j, test, &v))
            return false;
        j->frame = saved;
        pass = chat_truth(&v);
    } while (!pass);
    return true;
}

static bool peek(struct jin *j, struct vloop *lo)
{
    if (lo->peeked)
        return true;
    lo->peeked = true;
    return pull(j, lo, &lo->next, &lo->has_next);
}

static bool length(struct jin *j, struct vloop *lo)
{
    struct val rest, item;
    bool more;

    if (lo->length >= 0)
        return true;
    if (lo->node->kid[2] == NULL && lo->items.kind != VAL_ITER)
        return chat_len(j, lo->items, &lo->length);
    if (!chat_list_new(j, VAL_LIST, 0, &rest))
        return false;
    for (;;) {
        if (!pull(j, lo, &item, &more))
            return false;
        if (!more)
            break;
        if (!chat_list_add(j, rest.u.l, item))
            return false;
    }
    lo->length = lo->index0 + 1 + (lo->peeked && lo->has_next) + (int64_t)rest.u.l->n;
    lo->drained = true;
    return chat_iter(j, rest, &lo->it);
}

static bool method(struct jin *j, struct vloop *lo, int which, struct val *out)
{
    struct vmethod *m = chat_take(j, sizeof *m);

    if (m == NULL)
        return false;
    *m = (struct vmethod){ .self = { .kind = VAL_LOOP, .u.lo = lo }, .which = which };
    *out = (struct val){ .kind = VAL_METHOD, .u.me = m };
    return true;
}

bool chat_loop_attr(struct jin *j, struct vloop *lo, struct str name, struct val *out, bool *found)
{
    *found = true;
    if (str_is(name, "index") || str_is(name, "index0")) {
        *out = chat_int(lo->index0 + (name.n == 5));
    } else if (str_is(name, "first")) {
        *out = chat_bool(lo->index0 == 0);
    } else if (str_is(name, "last") || str_is(name, "nextitem")) {
        if (!peek(j, lo))
            return false;
        if (name.n == 4)
            *out = chat_bool(!lo->has_next);
        else if (!lo->has_next)
            return chat_undefined(j, out, "there is no next item");
        else
            *out = lo->next;
    } else if (str_is(name, "previtem")) {
        if (lo->index0 == 0)
            return chat_undefined(j, out, "there is no previous item");
        *out = lo->prev;
    } else if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0")) {
        if (!length(j, lo))
            return false;
        *out = chat_int(name.n == 6 ? lo->length : lo->length - lo->index0 - (name.n == 9));
    } else if (str_is(name, "depth") || str_is(name, "depth0")) {
        *out = chat_int(lo->depth0 + (name.n == 5));
    } else if (str_is(name, "cycle")) {
        return method(j, lo, METHOD_CYCLE, out);
    } else if (str_is(name, "changed")) {
        return method(j, lo, METHOD_CHANGED, out);
    } else {
        *found = false;
    }
    return true;
}

static bool run_rounds(struct jin *j, struct vloop *lo)
{
    const struct node *n = lo->node;
    struct frame *f = NULL;
    struct val self = { .kind = VAL_LOOP, .u.lo = lo };

    for (;;) {
        if (!peek(j, lo))
            return false;
        if (!lo->has_next)
            return true;
        lo->peeked = false;
        lo->prev = lo->cur;
        lo->cur = lo->next;
        lo->index0++;
        if (f == NULL || f->kept) {
            if ((f = chat_frame_new(j, lo->outer)) == NULL)
                return false;
        } else {
            f->n = 0;
        }
        j->frame = f;
        if (!chat_bind(j, n->kid[0], lo->cur) || !chat_frame_set(j, f, SYM_LOOP, self) || !chat_exec_body(j, n->kid[3]))
            return false;
        j->frame = lo->outer;
        lo->completed |= j->flow == FLOW_ON;
        if (j->flow == FLOW_BREAK) {
            j->flow = FLOW_ON;
            return true;
        }
        j->flow = FLOW_ON;
    }
}

static bool run_loop(struct jin *j, const struct node *n, struct frame *outer, struct val items, int64_t depth0)
{
    struct vloop *lo = chat_take(j, sizeof *lo);
    struct frame *saved = j->frame;
    bool ok;

    if (lo == NULL)
        return false;
    *lo = (struct vloop){ .node = n, .outer = outer, .items = items, .index0 = -1, .depth0 = depth0, .length = -1 };
    j->frame = outer;
    if ((n->kid[2] != NULL && (lo->test = chat_frame_new(j, outer)) == NULL) || !chat_iter(j, items, &lo->it))
        return false;
    ok = run_rounds(j, lo);
    if (ok && !lo->completed && n->kid[4] != NULL) { /* jinja2: no round came to its end */
        if ((j->frame = chat_frame_new(j, outer)) == NULL)
            return false;
        ok = chat_exec_body(j, n->kid[4]);
    }
    j->frame = saved;
    return ok;
}

static bool exec_for(struct jin *j, const struct node *n)
{
    struct val items;

    if (!chat_eval(j, n->kid[1], &items))
        return false;
    j->at = n->kid[1]->at;
    return run_loop(j, n, j->frame, items, 0);
}

bool chat_call_loop(struct jin *j, struct vloop *lo, const struct args *a, struct val *out)
{
    struct sbuf b = { 0 }, *saved = j->out;
    struct val items;
    bool ok;

    if (!lo->node->recursive)
        return chat_raise(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (!chat_args(j, "loop", a, "iterable", 1, &items))
        return false;
    if (++j->calls > JIN_CALLS_MAX)
        return chat_limit(j, "too many calls inside each other");
    j->out = &b;
    ok = chat_enter(j) && run_loop(j, lo->node, lo->outer, items, lo->depth0 + 1);
    chat_leave(j);
    j->out = saved;
    j->calls--;
    return ok && chat_sbuf_val(j, &b, out);
}

/* ---- macros ---- */
static bool define(struct jin *j, const struct node *n, struct val *out)
{
    struct vmacro *m = chat_take(j, sizeof *m);

    if (m == NULL)
        return false;
    *m = (struct vmacro){ .node = n, .frame = j->frame };
    for (struct frame *f = j->frame; f != NULL && !f->kept; f = f->up)
        f->kept = true;
    *out = (struct val){ .kind = VAL_MACRO, .u.m = m };
    return true;
}

/* Arguments into the scope of the macro, which is j->frame. */
static bool bind_parameters(struct jin *j, const struct vmacro *m, const struct args *a, bool *used)
{
    const struct node *n = m->node;
    struct val v;

    for (int i = 0; i < n->n_pos; i++) {
        bool given = i < a->n;
        if (given)
            v = a->v[i];
        for (int k = 0; k < a->n_kw && !given; k++)
            if (!used[k] && str_eq(chat_str(&a->name[k]), chat_str(&n->name[i]))) {
                v = a->kw[k];
                given = used[k] = true;
            }
        if (!given && n->kid[1 + i] != NULL) {
            if (!chat_eval(j, n->kid[1 + i], &v))
                return false;
        } else if (!given &&
                   !chat_undefined(j, &v, "parameter '%.*s' was not provided", STR_ARG(chat_str(&n->name[i])))) {
            return false;
        }
        if (!chat_frame_set(j, j->frame, n->sym[i], v))
            return false;
    }
    return true;
}

/* caller, kwargs and varargs, which a macro takes when its body names them. */
static bool bind_rest(struct jin *j, const struct vmacro *m, const struct args *a, bool *used)
{
    const struct node *n = m->node;
    const char *name = n->v.kind == VAL_STR ? n->v.u.s->p : "caller";
    int name_bytes = n->v.kind == VAL_STR ? (int)n->v.u.s->n : 6;
    bool has_caller = false;
    struct val v, dict, list;

    for (int i = 0; i < n->n_pos; i++)
        has_caller |= n->sym[i] == SYM_CALLER;
    if (n->uses_caller && !has_caller) {
        int k = 0;
        while (k < a->n_kw && (used[k] || !str_is(chat_str(&a->name[k]), "caller")))
            k++;
        if (k < a->n_kw)
            used[k] = true;
        if (k < a->n_kw && a->kw[k].kind != VAL_NONE)
            v = a->kw[k];
        else if (!chat_undefined(j, &v, "No caller defined"))
            return false;
        if (!chat_frame_set(j, j->frame, SYM_CALLER, v))
            return false;
    }
    if (!chat_dict_new(j, &dict) || !chat_list_new(j, VAL_TUPLE, 0, &list))
        return false;
    for (int k = 0; k < a->n_kw; k++) {
        if (used[k])
            continue;
        if (!n->uses_kwargs)
            return chat_raise(j, "macro '%.*s' takes no keyword argument '%.*s'", name_bytes, name,
                              STR_ARG(chat_str(&a->name[k])));
        if (!chat_dict_set(j, dict.u.d, a->name[k], a->kw[k]))
            return false;
    }
    if (n->uses_kwargs && !chat_frame_set(j, j->frame, SYM_KWARGS, dict))
        return false;
    if (a->n > n->n_pos && !n->uses_varargs)
        return chat_raise(j, "macro '%.*s' takes not more than %d argument(s)", name_bytes, name, n->n_pos);
    for (int i = n->n_pos; i < a->n; i++)
        if (!chat_list_add(j, list.u.l, a->v[i]))
            return false;
    return !n->uses_varargs || chat_frame_set(j, j->frame, SYM_VARARGS, list);
}

bool chat_call_macro(struct jin *j, const struct vmacro *m, const struct args *a, struct val *out)
{
    struct frame *saved = j->frame, *f;
    bool *used = chat_take(j, (size_t)a->n_kw + 1), ok;

    if (++j->calls > JIN_CALLS_MAX)
        return chat_limit(j, "too many calls inside each other");
    if (used == NULL || (f = chat_frame_new(j, m->frame)) == NULL)
        return false;
    memset(used, 0, (size_t)a->n_kw + 1);
    j->frame = f;
    ok = bind_parameters(j, m, a, used) && bind_rest(j, m, a, used) && capture_body(j, m->node->kid[0], out);
    j->frame = saved;
    j->calls--;
    return ok;
}

static bool exec_callblock(struct jin *j, const struct node *n)
{
    const struct node *call = n->kid[n->n - 1];
    struct val fn, caller, out, name;
    struct args a;

    if (!define(j, n, &caller) || !chat_eval(j, call->kid[0], &fn) || !chat_eval_args(j, call, 1, &a) ||
        !chat_str_new(j, STR("caller"), true, &name))
        return false;
    struct val *names = chat_take_array(j, (size_t)a.n_kw + 1, sizeof *names),
               *kw = chat_take_array(j, (size_t)a.n_kw + 1, sizeof *kw);
    if (names == NULL || kw == NULL)
        return false;
    for (int i = 0; i < a.n_kw; i++) {
        names[i] = a.name[i];
        kw[i] = a.kw[i];
    }
    names[a.n_kw] = name;
    kw[a.n_kw] = caller;
    a.name = names;
    a.kw = kw;
    a.n_kw++;
    j->at = n->at;
    return chat_call(j, fn, &a, &out) && chat_print(j, j->out, out);
}

/* ---- the other statements ---- */
/* jinja2 writes constants beforehand, by a way on which a slice of what has none is undefined. */
static bool is_constant_slice(const struct node *n, bool top)
{
    bool all = n->kind != NODE_NAME && n->kind != NODE_CALL && n->kind != NODE_FILTER &&
               (!top || (n->kind == NODE_ITEM && n->kid[1]->kind == NODE_SLICE));

    for (int i = 0; i < n->n && all; i++)
        all = n->kid[i] == NULL || is_constant_slice(n->kid[i], false);
    return all;
}

static bool exec_output(struct jin *j, const struct node *n)
{
    struct val v;

    for (int i = 0; i < n->n; i++) {
        if (n->kid[i]->kind == NODE_CONST && n->kid[i]->v.kind == VAL_STR) {
            if (!chat_sbuf_str(j, j->out, n->kid[i]->v.u.s))
                return false;
            continue;
        }
        j->constant = is_constant_slice(n->kid[i], true);
        if (!chat_eval(j, n->kid[i], &v))
            return false;
        j->constant = false;
        j->at = n->kid[i]->at;
        if (!chat_print(j, j->out, v))
            return false;
    }
    return true;
}

static bool exec_if(struct jin *j, const struct node *n)
{
    struct val v;
    int i = 0;

    for (; i + 1 < n->n; i += 2) {
        if (!chat_eval(j, n->kid[i], &v))
            return false;
        if (chat_truth(&v))
            return chat_exec_body(j, n->kid[i + 1]);
    }
    return i >= n->n || chat_exec_body(j, n->kid[i]);
}

/* The filters of a block around its text: their innermost has no operand. */
static bool apply_filters(struct jin *j, const struct node *filter, struct val v, struct val *out)
{
    struct args a;

    if (filter->kid[0] != NULL && !apply_filters(j, filter->kid[0], v, &v))
        return false;
    if (!chat_eval_args(j, filter, 1, &a))
        return false;
    j->at = filter->at;
    if (filter->op < 0)
        return chat_raise(j, "No filter named '%.*s'.", STR_ARG(chat_str(&filter->v)));
    return chat_filter(j, filter->op, v, &a, out);
}

static bool exec_setblock(struct jin *j, const struct node *n)
{
    struct val v;

    if (!capture_inner(j, n->kid[2], &v))
        return false;
    if (j->flow != FLOW_ON)
        return true;
    if (n->kid[1] != NULL && !apply_filters(j, n->kid[1], v, &v))
        return false;
    return chat_bind(j, n->kid[0], v);
}

static bool exec_filterblock(struct jin *j, const struct node *n)
{
    struct val v;

    return capture_inner(j, n->kid[1], &v) &&
           (j->flow != FLOW_ON || (apply_filters(j, n->kid[0], v, &v) && chat_print(j, j->out, v)));
}

static bool exec_with(struct jin *j, const struct node *n)
{
    struct frame *saved = j->frame, *f = chat_frame_new(j, saved);
    struct val v;
    bool ok;

    if (f == NULL)
        return false;
    for (int i = 0; i + 1 < n->n; i += 2) {
        if (!chat_eval(j, n->kid[i + 1], &v)) /* in the scope outside */
            return false;
        j->frame = f;
        if (!chat_bind(j, n->kid[i], v))
            return false;
        j->frame = saved;
    }
    j->frame = f;
    ok = chat_exec_body(j, n->kid[n->n - 1]);
    j->frame = saved;
    return ok;
}

bool chat_call_block(struct jin *j, const struct node *block, struct frame *frame, struct val *out)
{
    struct frame *saved = j->frame;
    bool ok;

    if (++j->calls > JIN_CALLS_MAX)
        return chat_limit(j, "too many calls inside each other");
    j->frame = frame;
    ok = capture_inner(j, block->kid[0], out);
    j->frame = saved;
    j->calls--;
    return ok;
}

static bool exec_escape(struct jin *j, const struct node *n)
{
    struct val v;

    if (!chat_eval(j, n->kid[0], &v))
        return false;
    if (chat_truth(&v))
        return chat_raise(j, "autoescape is not supported");
    return capture_inner(j, n->kid[1], &v) && chat_print(j, j->out, v);
}

static bool exec_any(struct jin *j, const struct node *n)
{
    struct val v;

    switch (n->kind) {
    case NODE_OUTPUT:
        return exec_output(j, n);
    case NODE_IF:
        return exec_if(j, n);
    case NODE_FOR:
        return exec_for(j, n);
    case NODE_SET:
        return chat_eval(j, n->kid[1], &v) && chat_bind(j, n->kid[0], v);
    case NODE_SETBLOCK:
        return exec_setblock(j, n);
    case NODE_MACRO:
        return define(j, n, &v) && chat_frame_set(j, j->frame, n->op, v);
    case NODE_CALLBLOCK:
        return exec_callblock(j, n);
    case NODE_FILTERBLOCK:
        return exec_filterblock(j, n);
    case NODE_WITH:
        return exec_with(j, n);
    case NODE_BLOCK:
        return chat_call_block(j, n, n->scoped ? j->frame : NULL, &v) && chat_print(j, j->out, v);
    case NODE_GENERATION:
        return capture_inner(j, n->kid[0], &v) && chat_print(j, j->out, v);
    case NODE_ESCAPE:
        return exec_escape(j, n);
    case NODE_BREAK:
    case NODE_CONTINUE:
        j->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return true;
    default:
        return chat_raise(j, "no loader for this environment specified");
    }
}

static bool exec(struct jin *j, const struct node *n)
{
    bool ok;

    j->at = n->at;
    ok = chat_enter(j) && exec_any(j, n);
    chat_leave(j);
    return ok;
}

bool chat_exec_body(struct jin *j, const struct node *n)
{
    for (int i = 0; i < n->n && j->flow == FLOW_ON; i++)
        if (!exec(j, n->kid[i]))
            return false;
    return true;
}

/* ---- a rendering ---- */
enum err_code chat_jin_open(struct jin *j, const struct jinja *t, size_t data_bytes, struct err *e)
{
    size_t n = (size_t)t->n_sym;

    *j = (struct jin){ .t = t, .e = e, .steps_max = JIN_STEPS_MAX };
    if (data_bytes < (size_t)1 << 40)
        j->steps_max += 4 * (int64_t)data_bytes;
    e->code = ERR_OK;
    j->heap.max =
        data_bytes > (SIZE_MAX - JIN_HEAP_BYTES_MAX) / 16 ? SIZE_MAX : (size_t)JIN_HEAP_BYTES_MAX + 16 * data_bytes;
    j->root = chat_take_array(j, n, sizeof *j->root);
    j->root_set = chat_take_array(j, n, sizeof *j->root_set);
    if (j->root == NULL || j->root_set == NULL) {
        chat_jin_close(j);
        return err_nomem(e);
    }
    for (size_t i = 0; i < n; i++) {
        int which = chat_func_find(t->sym[i]);
        j->root_set[i] = which >= 0;
        j->root[i] = (struct val){ .kind = VAL_FUNC, .sub = (uint8_t)which };
    }
    j->root[SYM_SELF] = (struct val){ .kind = VAL_SELF };
    j->root_set[SYM_SELF] = true;
    return ERR_OK;
}

void chat_jin_close(struct jin *j)
{
    chat_heap_free(&j->heap);
}

bool chat_jin_set(struct jin *j, const char *name, struct val v)
{
    for (int i = 0; i < j->t->n_sym; i++)
        if (str_is(j->t->sym[i], name)) {
            j->root[i] = v;
            j->root_set[i] = true;
        }
    return true;
}

bool chat_jin_run(struct jin *j, struct sbuf *out)
{
    j->out = out;
    return chat_exec_body(j, j->t->root);
}
