/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_iter.c - items of values, one after another.                            room: chat */
#include <string.h>
#include "chat/jinja.h"

struct viter {
    struct val of;
    size_t at; /* bytes of a string, items of the others */
    iter_fn *fn;
    void *ctx;
    struct viter *from; /* what fn works on: opened when the first item is wanted */
};

bool chat_iter(struct jin *j, struct val v, struct viter **out)
{
    struct viter *it;

    switch (v.kind) {
    case VAL_ITER:
        *out = v.u.it;
        return true;
    case VAL_UNDEFINED:
    case VAL_STR:
    case VAL_BYTES:
    case VAL_LIST:
    case VAL_TUPLE:
    case VAL_DICT:
    case VAL_VIEW:
    case VAL_RANGE:
    case VAL_LOOP:
        break;
    default:
        return chat_raise(j, "'%s' object is not iterable", chat_type(&v));
    }
    if ((it = chat_take(j, sizeof *it)) == NULL)
        return false;
    *it = (struct viter){ .of = v };
    *out = it;
    return true;
}

static bool next_char(struct jin *j, struct viter *it, struct val *out)
{
    const struct vstr *s = it->of.u.s;
    size_t len, at = it->at;

    str_utf8_get(s->p + at, s->n - at, &len);
    it->at += len;
    return chat_str_part(j, s, at, len, out);
}

static bool next_made(struct jin *j, struct viter *it, struct val *out, bool *more)
{
    bool keep = false;
    struct val item;

    if (it->from == NULL && !chat_iter(j, it->of, &it->from))
        return false;
    while (!keep) {
        keep = true;
        if (!chat_next(j, it->from, &item, more))
            return false;
        if (!*more)
            return true;
        if (!it->fn(j, it->ctx, item, out, &keep))
            return false;
    }
    return true;
}

bool chat_next(struct jin *j, struct viter *it, struct val *out, bool *more)
{
    const struct val *v = &it->of;
    size_t at = it->at;

    *more = true;
    if (!chat_work(j, 1))
        return false;
    if (it->fn != NULL) {
        bool ok = chat_enter(j) && next_made(j, it, out, more);
        chat_leave(j);
        return ok;
    }
    switch (v->kind) {
    case VAL_STR:
        *more = at < v->u.s->n;
        return !*more || next_char(j, it, out);
    case VAL_BYTES:
        *more = at < v->u.s->n;
        if (*more)
            *out = chat_int((unsigned char)v->u.s->p[at]);
        break;
    case VAL_LIST:
    case VAL_TUPLE:
        *more = at < v->u.l->n;
        if (*more)
            *out = v->u.l->v[at];
        break;
    case VAL_DICT:
    case VAL_VIEW:
        *more = at < v->u.d->n;
        if (!*more)
            return true;
        it->at++;
        if (v->kind == VAL_VIEW && v->sub == VIEW_ITEMS)
            return chat_pair(j, v->u.d->v[at].key, v->u.d->v[at].v, out);
        *out = v->kind == VAL_VIEW && v->sub == VIEW_VALUES ? v->u.d->v[at].v : v->u.d->v[at].key;
        return true;
    case VAL_RANGE:
        *more = (int64_t)at < v->u.r->n;
        if (*more)
            *out = chat_int(v->u.r->start + (int64_t)at * v->u.r->step);
        break;
    case VAL_LOOP:
        return chat_raise(j, "the loop is not to be iterated over");
    default: /* undefined: nothing */
        *more = false;
        break;
    }
    it->at++;
    return true;
}

bool chat_list_of(struct jin *j, struct val v, struct val *out)
{
    struct viter *it;
    struct val item;
    bool more;

    if (!chat_iter(j, v, &it) || !chat_list_new(j, VAL_LIST, 0, out))
        return false;
    for (;;) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more)
            return true;
        if (!chat_list_add(j, out->u.l, item))
            return false;
    }
}

bool chat_contains(struct jin *j, struct val v, struct val item, bool *out)
{
    struct viter *it;
    struct val one, *at;
    bool more;

    *out = false;
    if (v.kind == VAL_STR) {
        if (item.kind != VAL_STR)
            return chat_raise(j, "'in <string>' requires string as left operand, not %s", chat_type(&item));
        *out = str_find(chat_str(&v), 0, chat_str(&item)) != SIZE_MAX;
        return chat_work(j, (int64_t)v.u.s->n / 64);
    }
    if (v.kind == VAL_DICT || (v.kind == VAL_VIEW && v.sub == VIEW_KEYS)) {
        if (!chat_dict_get(j, v.u.d, item, &at))
            return false;
        *out = at != NULL;
        return true;
    }
    if (v.kind == VAL_NONE || chat_is_num(&v) || v.kind == VAL_SPACE || v.kind == VAL_MACRO || v.kind == VAL_METHOD ||
        v.kind == VAL_FUNC)
        return chat_raise(j, "argument of type '%s' is not iterable", chat_type(&v));
    if (!chat_iter(j, v, &it))
        return false;
    for (;;) {
        if (!chat_next(j, it, &one, &more))
            return false;
        if (!more)
            return true;
        if (!chat_equal(j, one, item, out))
            return false;
        if (*out)
            return true;
    }
}

bool chat_generate(struct jin *j, struct val v, iter_fn *fn, void *ctx, struct val *out)
{
    struct viter *it = chat_take(j, sizeof *it);

    if (it == NULL)
        return false;
    *it = (struct viter){ .of = v, .fn = fn, .ctx = ctx };
    *out = (struct val){ .kind = VAL_ITER, .u.it = it };
    return true;
}
