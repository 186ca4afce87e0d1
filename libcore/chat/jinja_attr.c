/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_attr.c - attributes, subscripts, slices; methods of all but strings; global functions.
 * room: chat
 *
 * As in jinja2's immutable sandbox: names that begin with "_" and methods that change a value are
 * undefined. Lists alone may change, by append and pop, where a rendering allows it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "chat/jinja.h"

static bool no_attr(struct jin *j, struct val v, struct val name, struct val *out)
{
    char key[64];

    if (v.kind == VAL_NONE) {
        if (name.kind == VAL_STR)
            return chat_undefined(j, out, "'None' has no attribute '%.*s'", STR_ARG(chat_str(&name)));
        return chat_undefined(j, out, "'None' has no such element");
    }
    if (name.kind == VAL_STR)
        return chat_undefined(j, out, "'%s object' has no attribute '%.*s'", chat_type(&v), STR_ARG(chat_str(&name)));
    if (name.kind == VAL_INT) {
        snprintf(key, sizeof key, "%lld", (long long)name.u.i);
        return chat_undefined(j, out, "%s object has no element %s", chat_type(&v), key);
    }
    return chat_undefined(j, out, "'%s object' has no such element", chat_type(&v));
}

static bool unsafe(struct jin *j, struct val v, struct str name, struct val *out)
{
    return chat_undefined(j, out, "access to attribute '%.*s' of '%s' object is unsafe.", STR_ARG(name), chat_type(&v));
}

static bool method(struct jin *j, struct val self, int which, struct val *out)
{
    struct vmethod *m = chat_take(j, sizeof *m);

    if (m == NULL)
        return false;
    *m = (struct vmethod){ .self = self, .which = which };
    *out = (struct val){ .kind = VAL_METHOD, .u.me = m };
    return true;
}

static bool is_among(struct str s, const char *const *names)
{
    for (; *names != NULL; names++)
        if (str_is(s, *names))
            return true;
    return false;
}

struct method_name {
    const char *name;
    int which;
};

static int find_method(const struct method_name *t, struct str name)
{
    for (; t->name != NULL; t++)
        if (str_is(name, t->name))
            return t->which;
    return -1;
}

static bool number_attr(struct jin *j, struct val v, struct str n, struct val *out, bool *found)
{
    bool real = str_is(n, "real") || str_is(n, "numerator");

    if (v.kind == VAL_FLOAT && (str_is(n, "numerator") || str_is(n, "denominator"))) {
        *found = false;
        return true;
    }
    if (real && v.kind != VAL_FLOAT)
        return chat_negate(j, v, true, out);
    if (real)
        *out = v;
    else if (str_is(n, "imag"))
        *out = v.kind == VAL_FLOAT ? chat_float(0) : chat_int(0);
    else if (str_is(n, "denominator"))
        *out = chat_int(1);
    else
        *found = false;
    return true;
}

static bool macro_attr(struct jin *j, const struct node *n, struct str name, struct val *out, bool *found)
{
    if (str_is(name, "name")) {
        *out = n->v.kind == VAL_STR ? n->v : chat_none();
    } else if (str_is(name, "arguments")) {
        if (!chat_list_new(j, VAL_TUPLE, (size_t)n->n_pos, out))
            return false;
        for (int i = 0; i < n->n_pos; i++)
            out->u.l->v[out->u.l->n++] = n->name[i];
    } else if (str_is(name, "catch_kwargs") || str_is(name, "catch_varargs") || str_is(name, "caller")) {
        *out = chat_bool(name.n == 12 ? n->uses_kwargs : name.n == 13 ? n->uses_varargs : n->uses_caller);
    } else {
        *found = false;
    }
    return true;
}

/* What Python's getattr() finds and the sandbox allows. */
bool chat_own_attr(struct jin *j, struct val v, struct str name, struct val *out, bool *found)
{
    static const struct method_name
        dict[] = { { "get", METHOD_GET },     { "keys", METHOD_KEYS }, { "values", METHOD_VALUES },
                   { "items", METHOD_ITEMS }, { "copy", METHOD_COPY }, { NULL, 0 } },
        list[] = { { "count", METHOD_COUNT }, { "index", METHOD_INDEX }, { "copy", METHOD_COPY }, { NULL, 0 } },
        change[] = { { "append", METHOD_APPEND }, { "pop", METHOD_POP }, { NULL, 0 } },
        integer[] = { { "bit_length", METHOD_BIT_LENGTH },
                      { "bit_count", METHOD_BIT_COUNT },
                      { "conjugate", METHOD_CONJUGATE },
                      { NULL, 0 } },
        real[] = { { "is_integer", METHOD_IS_INTEGER }, { "conjugate", METHOD_CONJUGATE }, { NULL, 0 } },
        cycler[] = { { "next", METHOD_NEXT }, { "reset", METHOD_RESET }, { NULL, 0 } },
        bytes[] = { { "decode", METHOD_DECODE }, { NULL, 0 } };
    static const char *const unsafe_dict[] = { "clear", "pop", "popitem", "setdefault", "update", NULL },
                             *const unsafe_list[] = { "append", "clear",   "extend", "insert", "pop",
                                                      "remove", "reverse", "sort",   NULL };
    int which = -1;

    *found = true;
    switch (v.kind) {
    case VAL_STR:
        which = chat_str_method_find(name);
        break;
    case VAL_BYTES:
        which = find_method(bytes, name);
        break;
    case VAL_DICT:
        if (is_among(name, unsafe_dict))
            return unsafe(j, v, name, out);
        which = find_method(dict, name);
        break;
    case VAL_LIST:
        which = j->lists_change ? find_method(change, name) : -1;
        if (which < 0 && is_among(name, unsafe_list))
            return unsafe(j, v, name, out);
        if (which < 0)
            which = find_method(list, name);
        break;
    case VAL_TUPLE:
        if (v.sub == 1 && (str_is(name, "grouper") || str_is(name, "list"))) {
            *out = v.u.l->v[name.p[0] == 'l'];
            return true;
        }
        which = str_is(name, "copy") ? -1 : find_method(list, name);
        break;
    case VAL_BOOL:
    case VAL_INT:
    case VAL_BIG:
    case VAL_FLOAT:
        which = find_method(v.kind == VAL_FLOAT ? real : integer, name);
        if (which < 0)
            return number_attr(j, v, name, out, found);
        break;
    case VAL_RANGE:
        if (str_is(name, "start") || str_is(name, "stop") || str_is(name, "step")) {
            *out = chat_int(name.n == 5 ? v.u.r->start : name.p[2] == 'o' ? v.u.r->stop : v.u.r->step);
            return true;
        }
        which = str_is(name, "copy") ? -1 : find_method(list, name);
        break;
    case VAL_LOOP:
        return chat_loop_attr(j, v.u.lo, name, out, found);
    case VAL_MACRO:
        return macro_attr(j, v.u.m->node, name, out, found);
    case VAL_CYCLER:
        if (str_is(name, "current")) {
            *out = v.u.cy->items->v[v.u.cy->pos];
            return true;
        }
        which = find_method(cycler, name);
        break;
    case VAL_SPACE: {
        struct val *at = chat_dict_find(v.u.d, name);
        if (at != NULL && name.p[0] == '_')
            return unsafe(j, v, name, out);
        *found = at != NULL;
        if (at != NULL)
            *out = *at;
        return true;
    }
    case VAL_SELF:
        for (int i = 0; i < j->t->n_block; i++)
            if (str_eq(chat_str(&j->t->block[i]->v), name)) {
                *out = (struct val){ .kind = VAL_BLOCK, .u.node = j->t->block[i] };
                return true;
            }
        break;
    default:
        break;
    }
    *found = which >= 0;
    return which < 0 || method(j, v, which, out);
}

static bool dunder(struct str s)
{
    return s.n > 4 && memcmp(s.p, "__", 2) == 0 && memcmp(s.p + s.n - 2, "__", 2) == 0;
}

bool chat_getattr(struct jin *j, struct val v, struct val name, struct val *out)
{
    bool found;
    struct str s = chat_str(&name);
    const struct val *at;

    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (!chat_own_attr(j, v, s, out, &found))
        return false;
    if (found)
        return true;
    if (dunder(s))
        return unsafe(j, v, s, out);
    if (v.kind == VAL_DICT && (at = chat_dict_find(v.u.d, s)) != NULL) {
        *out = *at;
        return true;
    }
    return no_attr(j, v, name, out);
}

/* An index from either end; false when there is no such item. */
static bool item_index(const struct val *key, int64_t n, int64_t *i)
{
    if (key->kind != VAL_INT && key->kind != VAL_BOOL)
        return false;
    *i = key->kind == VAL_BOOL ? key->u.b : key->u.i;
    if (*i < 0)
        *i += n;
    return *i >= 0 && *i < n;
}

static bool char_at(struct jin *j, const struct vstr *s, int64_t i, struct val *out)
{
    size_t at = chat_str_byte(s, i), len;

    str_utf8_get(s->p + at, s->n - at, &len);
    return chat_work(j, (int64_t)at / 64) && chat_str_part(j, s, at, len, out);
}

bool chat_getitem(struct jin *j, struct val v, struct val key, struct val *out)
{
    int64_t i;
    bool found = false;
    struct val *at = NULL;

    switch (v.kind) {
    case VAL_UNDEFINED:
        return chat_use_undefined(j, v);
    case VAL_DICT:
        if (key.kind == VAL_LIST || key.kind == VAL_DICT)
            break;
        if (!chat_dict_get(j, v.u.d, key, &at))
            return false;
        if (at != NULL) {
            *out = *at;
            return true;
        }
        break;
    case VAL_LIST:
    case VAL_TUPLE:
        if (item_index(&key, (int64_t)v.u.l->n, &i)) {
            *out = v.u.l->v[i];
            return true;
        }
        break;
    case VAL_RANGE:
        if (item_index(&key, v.u.r->n, &i)) {
            *out = chat_int(v.u.r->start + i * v.u.r->step);
            return true;
        }
        break;
    case VAL_STR:
        if (item_index(&key, chat_str_len(v.u.s), &i))
            return char_at(j, v.u.s, i, out);
        break;
    case VAL_BYTES:
        if (item_index(&key, (int64_t)v.u.s->n, &i)) {
            *out = chat_int((unsigned char)v.u.s->p[i]);
            return true;
        }
        break;
    default:
        break;
    }
    if (key.kind == VAL_STR) {
        if (!chat_own_attr(j, v, chat_str(&key), out, &found))
            return false;
        if (found)
            return true;
        if (dunder(chat_str(&key)))
            return unsafe(j, v, chat_str(&key), out);
    }
    return no_attr(j, v, key, out);
}

/* Python's slice.indices(). */
static bool indices(struct jin *j, const struct val b[3], int64_t n, int64_t *start, int64_t *stop, int64_t *step)
{
    *step = 1;
    for (int i = 0; i < 3; i++)
        if (b[i].kind != VAL_NONE && b[i].kind != VAL_INT && b[i].kind != VAL_BOOL && b[i].kind != VAL_BIG)
            return chat_raise(j, "slice indices must be integers or None");
    if (b[2].kind != VAL_NONE && !chat_index(j, b[2], step))
        return false;
    if (*step == 0)
        return chat_raise(j, "slice step cannot be zero");
    if (*step < -INT64_MAX)
        *step = -INT64_MAX;
    int64_t lo = *step < 0 ? -1 : 0, hi = *step < 0 ? n - 1 : n, *to[2] = { start, stop };
    *start = *step < 0 ? hi : lo;
    *stop = *step < 0 ? lo : hi;
    for (int i = 0; i < 2; i++) {
        if (b[i].kind == VAL_NONE)
            continue;
        if (!chat_index(j, b[i], to[i]))
            return false;
        if (*to[i] < 0)
            *to[i] += n;
        *to[i] = *to[i] < lo ? lo : *to[i] > hi ? hi : *to[i];
    }
    return true;
}

static bool slice_str(struct jin *j, const struct vstr *s, const struct val b[3], struct val *out)
{
    int64_t start, stop, step, n = chat_str_len(s);
    struct sbuf buf = { 0 };

    if (!chat_work(j, (int64_t)s->n / 64) || !indices(j, b, n, &start, &stop, &step))
        return false;
    if (step == 1) {
        size_t from = chat_str_byte(s, start), to = stop > start ? chat_str_byte(s, stop) : from;
        return chat_str_part(j, s, from, to - from, out);
    }
    /* Places of all characters, so that any of them is found at once. */
    uint32_t *at = chat_take_array(j, (size_t)n + 1, sizeof *at);
    if (at == NULL || s->n > UINT32_MAX)
        return chat_no_memory(j);
    for (size_t i = 0, k = 0, len; i < s->n; i += len) {
        str_utf8_get(s->p + i, s->n - i, &len);
        at[k++] = (uint32_t)i;
    }
    at[n] = (uint32_t)s->n;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (!chat_work(j, 1) || !chat_sbuf_part(j, &buf, s, at[i], at[i + 1]))
            return false;
        if (step > 0 ? i > stop - step : i < stop - step)
            break;
        i += step;
    }
    return chat_sbuf_val(j, &buf, out) && chat_set_markup(out, s->markup);
}

static bool slice_range(struct jin *j, const struct vrange *r, const struct val b[3], struct val *out)
{
    int64_t start, stop, step;
    struct vrange *part = chat_take(j, sizeof *part);

    if (part == NULL || !indices(j, b, r->n, &start, &stop, &step))
        return false;
    if (step > JIN_RANGE_MAX || step < -JIN_RANGE_MAX)
        step = step < 0 ? -JIN_RANGE_MAX : JIN_RANGE_MAX; /* no more than one item either way */
    *part = (struct vrange){ r->start + start * r->step, r->start + stop * r->step, r->step * step, 0 };
    if (step > 0 ? stop > start : stop < start)
        part->n = step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1;
    *out = (struct val){ .kind = VAL_RANGE, .u.r = part };
    return true;
}

bool chat_slice(struct jin *j, struct val v, const struct val b[3], struct val *out)
{
    int64_t start, stop, step;

    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (v.kind == VAL_STR)
        return slice_str(j, v.u.s, b, out);
    if (v.kind == VAL_RANGE)
        return slice_range(j, v.u.r, b, out);
    if (v.kind != VAL_LIST && v.kind != VAL_TUPLE)
        return v.kind == VAL_DICT ? chat_raise(j, "unhashable type: 'slice'")
                                  : chat_raise(j, "'%s' object is not subscriptable", chat_type(&v));
    if (!indices(j, b, (int64_t)v.u.l->n, &start, &stop, &step) || !chat_list_new(j, v.kind, 0, out))
        return false;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (!chat_work(j, 1) || !chat_list_add(j, out->u.l, v.u.l->v[i]))
            return false;
        if (step > 0 ? i > stop - step : i < stop - step)
            break;
        i += step;
    }
    return true;
}

/* ---- methods ---- */
static bool index_of(struct jin *j, struct val self, const struct args *a, bool count, struct val *out)
{
    struct val v[3] = { chat_none(), chat_int(0), chat_int(INT64_MAX) }, list;
    int64_t from, to, n = 0;

    if (!chat_args(j, count ? "count" : "index", a, count ? "value" : "value start stop", 1, v) ||
        !chat_list_of(j, self, &list) || !chat_index(j, v[1], &from) || !chat_index(j, v[2], &to))
        return false;
    int64_t len = (int64_t)list.u.l->n;
    from = from < 0 ? (from + len < 0 ? 0 : from + len) : from;
    to = to < 0 ? to + len : to > len ? len : to;
    for (int64_t i = from; i < to; i++) {
        bool same;
        if (!chat_equal(j, list.u.l->v[i], v[0], &same))
            return false;
        if (same && !count) {
            *out = chat_int(i);
            return true;
        }
        n += same;
    }
    *out = chat_int(n);
    return count || chat_raise(j, "the value is not in the list");
}

static bool list_pop(struct jin *j, struct vlist *l, const struct args *a, struct val *out)
{
    struct val v = chat_int(-1);
    int64_t i;

    if (!chat_args(j, "pop", a, "index", 0, &v) || !chat_index(j, v, &i))
        return false;
    if (l->n == 0)
        return chat_raise(j, "pop from empty list");
    if (!item_index(&v, (int64_t)l->n, &i))
        return chat_raise(j, "pop index out of range");
    *out = l->v[i];
    memmove(l->v + i, l->v + i + 1, (l->n - (size_t)i - 1) * sizeof *l->v);
    l->n--;
    return chat_work(j, (int64_t)l->n / 16);
}

static bool bits(struct jin *j, struct val v, bool count, struct val *out)
{
    char *p;
    size_t n, i = 0;
    int64_t ones = 0;

    if (!chat_int_text(j, v, 2, &p, &n))
        return false;
    i = n > 0 && p[0] == '-';
    for (size_t k = i; k < n; k++)
        ones += p[k] == '1';
    *out = chat_int(count ? ones : ones == 0 ? 0 : (int64_t)(n - i));
    return true;
}

static bool cycle(struct jin *j, struct vloop *lo, const struct args *a, struct val *out)
{
    if (a->n == 0 || a->n_kw > 0)
        return chat_raise(j, "no items for cycling given");
    *out = a->v[lo->index0 % a->n];
    return true;
}

static bool changed(struct jin *j, struct vloop *lo, const struct args *a, struct val *out)
{
    struct val now;
    bool same = false;

    if (a->n_kw > 0)
        return chat_raise(j, "changed() takes no keyword arguments");
    if (!chat_list_new(j, VAL_TUPLE, (size_t)a->n, &now))
        return false;
    for (int i = 0; i < a->n; i++)
        now.u.l->v[now.u.l->n++] = a->v[i];
    if (lo->has_changed && !chat_equal(j, lo->changed, now, &same))
        return false;
    lo->changed = now;
    lo->has_changed = true;
    *out = chat_bool(!same);
    return true;
}

static bool copy_value(struct jin *j, struct val v, struct val *out)
{
    if (v.kind == VAL_LIST)
        return chat_list_of(j, v, out);
    if (!chat_dict_new(j, out))
        return false;
    for (size_t i = 0; i < v.u.d->n; i++)
        if (!chat_dict_set(j, out->u.d, v.u.d->v[i].key, v.u.d->v[i].v))
            return false;
    return true;
}

static bool dict_get(struct jin *j, const struct vdict *d, const struct args *a, struct val *out)
{
    struct val v[2] = { chat_none(), chat_none() }, *at;

    if (a->n_kw > 0)
        return chat_raise(j, "get() takes no keyword arguments");
    if (!chat_args(j, "get", a, "key default", 1, v) || !chat_dict_get(j, d, v[0], &at))
        return false;
    *out = at != NULL ? *at : v[1];
    return true;
}

bool chat_call_method(struct jin *j, const struct vmethod *m, const struct args *a, struct val *out)
{
    struct val self = m->self, v;

    if (self.kind == VAL_STR)
        return chat_str_method(j, m->which, self, a, out);
    switch (m->which) {
    case METHOD_CYCLE:
        return cycle(j, self.u.lo, a, out);
    case METHOD_CHANGED:
        return changed(j, self.u.lo, a, out);
    case METHOD_GET:
        return dict_get(j, self.u.d, a, out);
    case METHOD_APPEND:
        *out = chat_none();
        return chat_args(j, "append", a, "object", 1, &v) && chat_list_add(j, self.u.l, v);
    case METHOD_POP:
        return list_pop(j, self.u.l, a, out);
    case METHOD_COUNT:
    case METHOD_INDEX:
        return index_of(j, self, a, m->which == METHOD_COUNT, out);
    default:
        break;
    }
    v = chat_none();
    if (!chat_args(j, "the method", a, m->which == METHOD_DECODE ? "encoding" : "", 0, &v))
        return false;
    switch (m->which) {
    case METHOD_KEYS:
    case METHOD_VALUES:
    case METHOD_ITEMS:
        *out = self;
        out->kind = VAL_VIEW;
        out->sub = m->which == METHOD_KEYS ? VIEW_KEYS : m->which == METHOD_VALUES ? VIEW_VALUES : VIEW_ITEMS;
        return true;
    case METHOD_COPY:
        return copy_value(j, self, out);
    case METHOD_BIT_LENGTH:
    case METHOD_BIT_COUNT:
        return bits(j, self, m->which == METHOD_BIT_COUNT, out);
    case METHOD_CONJUGATE:
        return chat_negate(j, self, true, out);
    case METHOD_IS_INTEGER:
        *out = chat_bool(isfinite(self.u.f) && floor(self.u.f) == self.u.f);
        return true;
    case METHOD_NEXT:
        *out = self.u.cy->items->v[self.u.cy->pos];
        self.u.cy->pos = (self.u.cy->pos + 1) % self.u.cy->items->n;
        return true;
    case METHOD_RESET:
        self.u.cy->pos = 0;
        *out = chat_none();
        return true;
    default: /* decode: what encode made is valid UTF-8 */
        *out = self;
        out->kind = VAL_STR;
        return true;
    }
}

/* ---- global functions ---- */
enum { FUNC_RANGE, FUNC_DICT, FUNC_LIPSUM, FUNC_CYCLER, FUNC_JOINER, FUNC_NAMESPACE, FUNC_RAISE, FUNC_NOW };

int chat_func_find(struct str name)
{
    static const char *const names[] = { "range",  "dict",      "lipsum",          "cycler",
                                         "joiner", "namespace", "raise_exception", "strftime_now" };

    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (str_is(name, names[i]))
            return i;
    return -1;
}

static bool make_range(struct jin *j, const struct args *a, struct val *out)
{
    int64_t v[3] = { 0, 0, 1 };
    struct vrange *r = chat_take(j, sizeof *r);

    if (r == NULL)
        return false;
    if (a->n < 1 || a->n > 3 || a->n_kw > 0)
        return chat_raise(j, "range expected 1 to 3 arguments, got %d", a->n);
    for (int i = 0; i < a->n; i++)
        if (!chat_index(j, a->v[i], &v[a->n == 1 ? 1 : i]))
            return false;
    if (v[2] == 0)
        return chat_raise(j, "range() arg 3 must not be zero");
    *r = (struct vrange){ v[0], v[1], v[2], 0 };
    if (v[2] > 0 ? v[1] > v[0] : v[1] < v[0]) {
        uint64_t far = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1],
                 step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = (far - 1) / step + 1;
        if (n > JIN_RANGE_MAX)
            return chat_raise(j, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", JIN_RANGE_MAX);
        r->n = (int64_t)n;
    }
    *out = (struct val){ .kind = VAL_RANGE, .u.r = r };
    return true;
}

static bool make_dict(struct jin *j, const struct args *a, struct val *out)
{
    struct viter *it;
    struct val item, pair;
    bool more = true;

    if (a->n > 1)
        return chat_raise(j, "dict expected at most 1 argument, got %d", a->n);
    if (!chat_dict_new(j, out))
        return false;
    if (a->n == 1 && (a->v[0].kind == VAL_DICT)) {
        if (!copy_value(j, a->v[0], out))
            return false;
    } else if (a->n == 1) {
        if (!chat_iter(j, a->v[0], &it))
            return false;
        while (more) {
            if (!chat_next(j, it, &item, &more))
                return false;
            if (!more)
                break;
            if (!chat_list_of(j, item, &pair))
                return false;
            if (pair.u.l->n != 2)
                return chat_raise(j, "dictionary update sequence element has length %zu; 2 is required", pair.u.l->n);
            if (!chat_dict_set(j, out->u.d, pair.u.l->v[0], pair.u.l->v[1]))
                return false;
        }
    }
    for (int i = 0; i < a->n_kw; i++)
        if (!chat_dict_set(j, out->u.d, a->name[i], a->kw[i]))
            return false;
    return true;
}

static bool make_cycle(struct jin *j, uint8_t kind, const struct args *a, struct val *out)
{
    struct vcycle *c = chat_take(j, sizeof *c);
    struct val list, sep;

    if (c == NULL || !chat_list_new(j, VAL_LIST, (size_t)a->n + 1, &list))
        return false;
    if (kind == VAL_CYCLER) {
        if (a->n == 0 || a->n_kw > 0)
            return chat_raise(j, "at least one item has to be provided");
        for (int i = 0; i < a->n; i++)
            list.u.l->v[list.u.l->n++] = a->v[i];
    } else {
        if (!chat_str_new(j, STR(", "), true, &sep) || !chat_args(j, "joiner", a, "sep", 0, &sep))
            return false;
        list.u.l->v[list.u.l->n++] = sep;
    }
    *c = (struct vcycle){ .items = list.u.l };
    *out = (struct val){ .kind = kind, .u.cy = c };
    return true;
}

bool chat_call_func(struct jin *j, int which, const struct args *a, struct val *out)
{
    struct val v;

    switch (which) {
    case FUNC_RANGE:
        return make_range(j, a, out);
    case FUNC_DICT:
        return make_dict(j, a, out);
    case FUNC_NAMESPACE:
        if (!make_dict(j, a, out))
            return false;
        out->kind = VAL_SPACE;
        return true;
    case FUNC_CYCLER:
    case FUNC_JOINER:
        return make_cycle(j, which == FUNC_CYCLER ? VAL_CYCLER : VAL_JOINER, a, out);
    case FUNC_RAISE:
        if (!chat_args(j, "raise_exception", a, "message", 1, &v) || !chat_to_str(j, v, &v))
            return false;
        return chat_raise(j, "%.*s", (int)(v.u.s->n < 350 ? v.u.s->n : 350), v.u.s->p);
    case FUNC_NOW:
        if (!chat_args(j, "strftime_now", a, "format", 1, &v))
            return false;
        if (v.kind != VAL_STR)
            return chat_raise(j, "strftime() argument 1 must be str, not %s", chat_type(&v));
        return chat_strftime(j, j->now_s, chat_str(&v), out);
    default:
        return chat_raise(j, "lipsum is not supported");
    }
}
