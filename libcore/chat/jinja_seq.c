/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_seq.c - filters over the items of a value.                              room: chat
 *
 * As in jinja2, map, select, reject and unique are generators: they work when they are asked for an
 * item, and once.
 */
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"

/* ---- attributes by a path ---- */
/* attribute: None for the item itself, a number, or "a.0.b"; dflt: for what is undefined on the
 * way, or NULL. */
struct getter {
    struct val attribute;
    const struct val *dflt;
    bool fold; /* strings in lower case */
};

static bool step_path(struct jin *j, struct val *v, struct str part, const struct val *dflt)
{
    struct val key;
    bool digits = part.n > 0;

    for (size_t i = 0; i < part.n; i++)
        digits = digits && part.p[i] >= '0' && part.p[i] <= '9';
    if (!(digits ? chat_int_read(j, part, 10, &key) : chat_str_new(j, part, true, &key)) ||
        !chat_getitem(j, *v, key, v))
        return false;
    if (dflt != NULL && v->kind == VAL_UNDEFINED)
        *v = *dflt;
    return true;
}

static bool get_path(struct jin *j, struct val v, struct str path, const struct getter *g, struct val *out)
{
    for (;;) {
        const char *dot = path.n > 0 ? memchr(path.p, '.', path.n) : NULL;
        struct str part = { path.p, dot != NULL ? (size_t)(dot - path.p) : path.n };
        if (!step_path(j, &v, part, g->dflt))
            return false;
        if (dot == NULL)
            break;
        path = (struct str){ dot + 1, path.n - part.n - 1 };
    }
    *out = v;
    return !g->fold || v.kind != VAL_STR || chat_str_case(j, v.u.s, CASE_LOWER, out);
}

static bool get_item(struct jin *j, struct val v, const struct getter *g, struct val *out)
{
    if (g->attribute.kind == VAL_STR)
        return get_path(j, v, chat_str(&g->attribute), g, out);
    if (g->attribute.kind != VAL_NONE && !chat_getitem(j, v, g->attribute, &v))
        return false;
    if (g->dflt != NULL && v.kind == VAL_UNDEFINED)
        v = *g->dflt;
    *out = v;
    return !g->fold || v.kind != VAL_STR || chat_str_case(j, v.u.s, CASE_LOWER, out);
}

/* "a,b": a list of keys, always. */
static bool get_many(struct jin *j, struct val v, const struct getter *g, struct val *out)
{
    struct val key;

    if (!chat_list_new(j, VAL_LIST, 0, out))
        return false;
    if (g->attribute.kind != VAL_STR)
        return get_item(j, v, g, &key) && chat_list_add(j, out->u.l, key);
    for (struct str path = chat_str(&g->attribute);;) {
        const char *comma = path.n > 0 ? memchr(path.p, ',', path.n) : NULL;
        struct str one = { path.p, comma != NULL ? (size_t)(comma - path.p) : path.n };
        if (!get_path(j, v, one, g, &key) || !chat_list_add(j, out->u.l, key))
            return false;
        if (comma == NULL)
            return true;
        path = (struct str){ comma + 1, path.n - one.n - 1 };
    }
}

/* ---- sorting ---- */
/* Merges by keys; equal ones keep their order, also in reverse. */
static bool merge_sort(struct jin *j, struct vpair *v, struct vpair *tmp, size_t n, bool reverse)
{
    size_t half = n / 2, a = 0, b = half, k = 0;

    if (n < 2)
        return true;
    if (!merge_sort(j, v, tmp, half, reverse) || !merge_sort(j, v + half, tmp, n - half, reverse))
        return false;
    while (a < half && b < n) {
        bool less;
        if (!chat_less(j, reverse ? v[a].key : v[b].key, reverse ? v[b].key : v[a].key, "<", &less))
            return false;
        tmp[k++] = less ? v[b++] : v[a++];
    }
    while (a < half)
        tmp[k++] = v[a++];
    memcpy(v, tmp, k * sizeof *v);
    return true;
}

/* The items of v sorted by what g takes from them. many: keys are lists. */
static bool sort_by(struct jin *j, struct val v, const struct getter *g, bool many, bool reverse, struct vpair **pairs,
                    size_t *n)
{
    struct val list;

    if (!chat_list_of(j, v, &list))
        return false;
    *n = list.u.l->n;
    struct vpair *p = chat_take_array(j, *n + 1, sizeof *p), *tmp = chat_take_array(j, *n + 1, sizeof *tmp);
    if (p == NULL || tmp == NULL)
        return false;
    for (size_t i = 0; i < *n; i++) {
        p[i].v = list.u.l->v[i];
        if (!(many ? get_many(j, p[i].v, g, &p[i].key) : get_item(j, p[i].v, g, &p[i].key)))
            return false;
    }
    *pairs = p;
    return merge_sort(j, p, tmp, *n, reverse);
}

static bool list_of_pairs(struct jin *j, const struct vpair *p, size_t n, struct val *out)
{
    if (!chat_list_new(j, VAL_LIST, n, out))
        return false;
    for (size_t i = 0; i < n; i++)
        out->u.l->v[out->u.l->n++] = p[i].v;
    return true;
}

static bool filter_sort(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[3] = { chat_bool(false), chat_bool(false), chat_none() };
    struct vpair *p;
    size_t n;

    if (!chat_args(j, "sort", a, "reverse case_sensitive attribute", 0, arg))
        return false;
    struct getter g = { .attribute = arg[2], .fold = !chat_truth(&arg[1]) };
    return sort_by(j, v, &g, true, chat_truth(&arg[0]), &p, &n) && list_of_pairs(j, p, n, out);
}

static bool dictsort(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[3] = { chat_bool(false), chat_none(), chat_bool(false) };
    struct vpair *p;
    size_t n;

    if (!chat_args(j, "dictsort", a, "case_sensitive by reverse", 0, arg))
        return false;
    bool value = arg[1].kind == VAL_STR && str_is(chat_str(&arg[1]), "value");
    if (arg[1].kind != VAL_NONE && !value && !(arg[1].kind == VAL_STR && str_is(chat_str(&arg[1]), "key")))
        return chat_raise(j, "You can only sort by either \"key\" or \"value\"");
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (v.kind != VAL_DICT)
        return chat_raise(j, "'%s' object has no attribute 'items'", chat_type(&v));
    v.kind = VAL_VIEW;
    v.sub = VIEW_ITEMS;
    struct getter g = { .attribute = chat_int(value), .fold = !chat_truth(&arg[0]) };
    return sort_by(j, v, &g, false, chat_truth(&arg[2]), &p, &n) && list_of_pairs(j, p, n, out);
}

static bool groupby(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[3] = { chat_none(), chat_none(), chat_bool(false) }, group, key;
    struct vpair *p;
    size_t n;

    if (!chat_args(j, "groupby", a, "attribute default case_sensitive", 1, arg))
        return false;
    struct getter g = { .attribute = arg[0],
                        .dflt = arg[1].kind != VAL_NONE ? &arg[1] : NULL,
                        .fold = !chat_truth(&arg[2]) };
    if (!sort_by(j, v, &g, false, false, &p, &n) || !chat_list_new(j, VAL_LIST, 0, out))
        return false;
    g.fold = false;
    for (size_t i = 0, k; i < n; i = k) {
        bool same = true;
        if (!chat_list_new(j, VAL_LIST, 0, &group))
            return false;
        for (k = i; k < n; k++) {
            if (!chat_equal(j, p[i].key, p[k].key, &same))
                return false;
            if (!same)
                break;
            if (!chat_list_add(j, group.u.l, p[k].v))
                return false;
        }
        struct val pair;
        if (!get_item(j, p[i].v, &g, &key) || !chat_pair(j, key, group, &pair))
            return false;
        pair.sub = 1; /* has the names grouper and list */
        if (!chat_list_add(j, out->u.l, pair))
            return false;
    }
    return true;
}

static bool min_max(struct jin *j, struct val v, const struct args *a, int max, struct val *out)
{
    struct val arg[2] = { chat_bool(false), chat_none() }, item, key, best;
    struct viter *it;
    bool more, less, any = false;

    if (!chat_args(j, "min", a, "case_sensitive attribute", 0, arg) || !chat_iter(j, v, &it))
        return false;
    struct getter g = { .attribute = arg[1], .fold = !chat_truth(&arg[0]) };
    for (;; any = true) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more)
            break;
        if (!get_item(j, item, &g, &key))
            return false;
        if (any && !chat_less(j, max ? best : key, max ? key : best, max ? ">" : "<", &less))
            return false;
        if (!any || less) {
            best = key;
            *out = item;
        }
    }
    return any || chat_undefined(j, out, "No aggregated item, sequence was empty.");
}

/* ---- generators ---- */
struct picker {
    const struct args *a;
    struct args rest;
    struct getter attr;
    bool ready, reject, by_attr, map_attr;
    int which; /* a filter or test; -1: truth */
    struct val dflt;
};

/* The name of a filter or test among arguments; what follows it goes to it. */
static bool named(struct jin *j, struct picker *p, int at, bool test)
{
    if (p->a->v[at].kind != VAL_STR)
        return chat_raise(j, "the name of a %s is a string", test ? "test" : "filter");
    struct str name = chat_str(&p->a->v[at]);
    p->which = test ? chat_test_find(name) : chat_filter_find(name);
    if (p->which < 0)
        return chat_raise(j, "No %s named '%.*s'.", test ? "test" : "filter", STR_ARG(name));
    p->rest = *p->a;
    p->rest.v += at + 1;
    p->rest.n -= at + 1;
    return true;
}

static bool ready_map(struct jin *j, struct picker *p)
{
    p->ready = true;
    for (int i = 0; i < p->a->n_kw; i++)
        p->map_attr |= p->a->n == 0 && str_is(chat_str(&p->a->name[i]), "attribute");
    if (p->map_attr) {
        for (int i = 0; i < p->a->n_kw; i++) {
            struct str name = chat_str(&p->a->name[i]);
            if (str_is(name, "attribute"))
                p->attr.attribute = p->a->kw[i];
            else if (str_is(name, "default"))
                p->dflt = p->a->kw[i];
            else
                return chat_raise(j, "Unexpected keyword argument '%.*s'", STR_ARG(name));
        }
        p->attr.dflt = p->dflt.kind != VAL_NONE ? &p->dflt : NULL;
        return true;
    }
    if (p->a->n == 0)
        return chat_raise(j, "map requires a filter argument");
    return named(j, p, 0, false);
}

static bool map_item(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep)
{
    struct picker *p = ctx;

    (void)keep;
    if (!p->ready && !ready_map(j, p))
        return false;
    return p->map_attr ? get_item(j, item, &p->attr, out) : chat_filter(j, p->which, item, &p->rest, out);
}

static bool ready_pick(struct jin *j, struct picker *p)
{
    p->ready = true;
    p->which = -1;
    if (p->by_attr) {
        if (p->a->n == 0)
            return chat_raise(j, "Missing parameter for attribute name");
        p->attr.attribute = p->a->v[0];
    }
    return p->a->n <= p->by_attr || named(j, p, p->by_attr, true);
}

static bool pick_item(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep)
{
    struct picker *p = ctx;
    struct val v = item;

    if ((!p->ready && !ready_pick(j, p)) || (p->by_attr && !get_item(j, item, &p->attr, &v)))
        return false;
    *keep = chat_truth(&v);
    if (p->which >= 0 && !chat_test(j, p->which, v, &p->rest, keep))
        return false;
    *keep = *keep != p->reject;
    *out = item;
    return true;
}

static bool generator(struct jin *j, struct val v, const struct args *a, struct picker init, iter_fn *fn,
                      struct val *out)
{
    struct picker *p = chat_take(j, sizeof *p);
    struct args *copy = chat_take(j, sizeof *copy);
    struct val none;

    if (p == NULL || copy == NULL || !chat_list_new(j, VAL_LIST, 0, &none))
        return false;
    *copy = *a;
    *p = init;
    p->a = copy;
    p->attr.attribute = p->dflt = chat_none();
    return chat_generate(j, chat_truth(&v) ? v : none, fn, p, out);
}

struct seen {
    struct vdict *d;
    struct getter g;
};

static bool unique_item(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep)
{
    struct seen *s = ctx;
    struct val key, *had;

    if (!get_item(j, item, &s->g, &key) || !chat_dict_get(j, s->d, key, &had))
        return false;
    *keep = had == NULL;
    *out = item;
    return had != NULL || chat_dict_set(j, s->d, key, chat_none());
}

static bool unique(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_bool(false), chat_none() }, d;
    struct seen *s = chat_take(j, sizeof *s);

    if (s == NULL || !chat_args(j, "unique", a, "case_sensitive attribute", 0, arg) || !chat_dict_new(j, &d))
        return false;
    *s = (struct seen){ .d = d.u.d, .g = { .attribute = arg[1], .fold = !chat_truth(&arg[0]) } };
    return chat_generate(j, v, unique_item, s, out);
}

static bool same_item(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep)
{
    (void)j;
    (void)ctx;
    (void)keep;
    *out = item;
    return true;
}

/* A generator over a value. */
static bool once(struct jin *j, struct val v, struct val *out)
{
    return chat_generate(j, v, same_item, NULL, out);
}

static bool batch(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_none(), chat_none() }, list, all, row;
    int64_t n;

    if (!chat_args(j, "batch", a, "linecount fill_with", 1, arg) || !chat_index(j, arg[0], &n) ||
        !chat_list_of(j, v, &list) || !chat_list_new(j, VAL_LIST, 0, &all))
        return false;
    for (size_t i = 0; i < list.u.l->n; i++) {
        if (i == 0 || (int64_t)row.u.l->n == n) {
            if (!chat_list_new(j, VAL_LIST, 0, &row) || !chat_list_add(j, all.u.l, row))
                return false;
        }
        if (!chat_list_add(j, row.u.l, list.u.l->v[i]))
            return false;
    }
    if (n == 0 && list.u.l->n > 0) { /* Python gives an empty row first */
        struct val empty;
        if (!chat_list_new(j, VAL_LIST, 0, &empty))
            return false;
        return chat_raise(j, "batches of nothing");
    }
    while (list.u.l->n > 0 && arg[1].kind != VAL_NONE && (int64_t)row.u.l->n < n)
        if (!chat_work(j, 1) || !chat_list_add(j, row.u.l, arg[1]))
            return false;
    return once(j, all, out);
}

static bool filter_slice(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_none(), chat_none() }, list, all, row;
    int64_t n, at = 0;

    if (!chat_args(j, "slice", a, "slices fill_with", 1, arg) || !chat_index(j, arg[0], &n) ||
        !chat_list_of(j, v, &list) || !chat_list_new(j, VAL_LIST, 0, &all))
        return false;
    if (n == 0)
        return chat_raise(j, "integer division or modulo by zero");
    int64_t len = (int64_t)list.u.l->n, each = n > 0 ? len / n : 0, extra = n > 0 ? len % n : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t end = at + each + (i < extra);
        if (!chat_work(j, 1) || !chat_list_new(j, VAL_LIST, 0, &row) || !chat_list_add(j, all.u.l, row))
            return false;
        for (; at < end; at++)
            if (!chat_list_add(j, row.u.l, list.u.l->v[at]))
                return false;
        if (arg[1].kind != VAL_NONE && i >= extra && !chat_list_add(j, row.u.l, arg[1]))
            return false;
    }
    return once(j, all, out);
}

static bool reverse(struct jin *j, struct val v, struct val *out)
{
    struct val list, bound[3] = { chat_none(), chat_none(), chat_int(-1) };
    bool generator_given = v.kind == VAL_ITER;

    if (v.kind == VAL_STR)
        return chat_slice(j, v, bound, out);
    if (!chat_list_of(j, v, &list))
        return false;
    for (size_t i = 0, k = list.u.l->n; i + 1 < k; i++) {
        struct val t = list.u.l->v[i];
        list.u.l->v[i] = list.u.l->v[--k];
        list.u.l->v[k] = t;
    }
    *out = list;
    return generator_given || once(j, list, out);
}

/* ---- the rest ---- */
static bool first(struct jin *j, struct val v, struct val *out)
{
    struct viter *it;
    bool more;

    if (!chat_iter(j, v, &it) || !chat_next(j, it, out, &more))
        return false;
    return more || chat_undefined(j, out, "No first item, sequence was empty.");
}

static bool last(struct jin *j, struct val v, struct val *out)
{
    struct val list;

    if (v.kind == VAL_ITER)
        return chat_raise(j, "'generator' object is not reversible");
    if (v.kind == VAL_STR && v.u.s->n > 0)
        return chat_getitem(j, v, chat_int(-1), out);
    if (!chat_list_of(j, v, &list))
        return false;
    if (list.u.l->n == 0)
        return chat_undefined(j, out, "No last item, sequence was empty.");
    *out = list.u.l->v[list.u.l->n - 1];
    return true;
}

static bool filter_join(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_none(), chat_none() }, item;
    struct viter *it;
    struct sbuf b = { 0 };
    bool more;

    if (!chat_str_new(j, STR(""), true, &arg[0]) || !chat_args(j, "join", a, "d attribute", 0, arg) ||
        !chat_to_str(j, arg[0], &arg[0]) || !chat_iter(j, v, &it))
        return false;
    struct getter g = { .attribute = arg[1] };
    for (bool any = false;; any = true) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more)
            break;
        if (arg[1].kind != VAL_NONE && !get_item(j, item, &g, &item))
            return false;
        if ((any && !chat_sbuf_str(j, &b, arg[0].u.s)) || !chat_print(j, &b, item))
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}

static bool filter_sum(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_none(), chat_int(0) }, item;
    struct viter *it;
    bool more;

    if (!chat_args(j, "sum", a, "attribute start", 0, arg) || !chat_iter(j, v, &it))
        return false;
    if (arg[1].kind == VAL_STR)
        return chat_raise(j, "sum() can't sum strings [use ''.join(seq) instead]");
    struct getter g = { .attribute = arg[0] };
    *out = arg[1];
    for (;;) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more)
            return true;
        if ((arg[0].kind != VAL_NONE && !get_item(j, item, &g, &item)) || !chat_binary(j, OP_ADD, *out, item, out))
            return false;
    }
}

static bool no_items(struct jin *j, void *ctx, struct val item, struct val *out, bool *keep)
{
    (void)ctx;
    (void)item;
    (void)out;
    (void)keep;
    return chat_raise(j, "Can only get item pairs from a mapping.");
}

static bool filter_items(struct jin *j, struct val v, struct val *out)
{
    struct val one;

    if (v.kind != VAL_UNDEFINED && v.kind != VAL_DICT) /* found out when the first pair is wanted */
        return chat_pair(j, v, v, &one) && chat_generate(j, one, no_items, NULL, out);
    if (v.kind == VAL_DICT) {
        v.kind = VAL_VIEW;
        v.sub = VIEW_ITEMS;
    }
    return once(j, v, out);
}

static bool attr(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val name;
    bool found;

    if (!chat_args(j, "attr", a, "name", 1, &name))
        return false;
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (name.kind != VAL_STR)
        return chat_raise(j, "attribute name must be string, not '%s'", chat_type(&name));
    if (!chat_own_attr(j, v, chat_str(&name), out, &found))
        return false;
    return found ||
           chat_undefined(j, out, "'%s object' has no attribute '%.*s'", chat_type(&v), STR_ARG(chat_str(&name)));
}

static bool pick_random(struct jin *j, struct val v, struct val *out)
{
    int64_t n;

    if (!chat_len(j, v, &n))
        return false;
    if (n == 0)
        return chat_undefined(j, out, "No random item, sequence was empty.");
    return n == 1 ? first(j, v, out) : chat_raise(j, "random is not supported: a prompt is the same each time");
}

static bool filter_count(struct jin *j, struct val v, struct val *out)
{
    int64_t n;

    if (!chat_len(j, v, &n))
        return false;
    *out = chat_int(n);
    return true;
}

static bool filter_map(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    return generator(j, v, a, (struct picker){ 0 }, map_item, out);
}

enum { REJECT = 1, BY_ATTR = 2 };

static bool filter_pick(struct jin *j, struct val v, const struct args *a, int how, struct val *out)
{
    return generator(j, v, a, (struct picker){ .reject = how & REJECT, .by_attr = how & BY_ATTR }, pick_item, out);
}

static const struct filter filters[] = {
    { "attr", .call = attr },
    { "batch", .call = batch },
    { "count", .alone = filter_count },
    { "dictsort", .call = dictsort },
    { "first", .alone = first },
    { "groupby", .call = groupby },
    { "items", .alone = filter_items },
    { "join", .call = filter_join },
    { "last", .alone = last },
    { "length", .alone = filter_count },
    { "list", .alone = chat_list_of },
    { "map", .call = filter_map },
    { "max", .call_how = min_max, .how = true },
    { "min", .call_how = min_max, .how = false },
    { "random", .alone = pick_random },
    { "reject", .call_how = filter_pick, .how = REJECT },
    { "rejectattr", .call_how = filter_pick, .how = REJECT | BY_ATTR },
    { "reverse", .alone = reverse },
    { "select", .call_how = filter_pick, .how = 0 },
    { "selectattr", .call_how = filter_pick, .how = BY_ATTR },
    { "slice", .call = filter_slice },
    { "sort", .call = filter_sort },
    { "sum", .call = filter_sum },
    { "unique", .call = unique },
};

const struct filter *chat_filter_seq(int i)
{
    return i < (int)(sizeof filters / sizeof *filters) ? &filters[i] : NULL;
}
