/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.c - memory and values of one rendering.                           room: chat
 *
 * Strings never change, so parts of one share its bytes. The one exception is invisible: a string
 * that ends where the last concatenation ended may get more bytes behind its end, which makes text
 * that grows in a loop cheap.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "chat/jinja.h"

/* ---- memory ---- */
struct heap_block {
    struct heap_block *next;
    max_align_t data[];
};

void *chat_heap_take(struct heap *h, size_t n)
{
    enum { BLOCK_BYTES = 64 << 10 };

    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + 15) & ~(size_t)15;
    if ((size_t)(h->end - h->at) < n || h->at == NULL) {
        size_t bytes = h->used / 4 > BLOCK_BYTES ? h->used / 4 : BLOCK_BYTES;
        struct heap_block *b;
        if (bytes < n)
            bytes = n;
        if (bytes > h->max - h->used)
            bytes = h->max - h->used;
        if (bytes < n || (b = malloc(sizeof *b + bytes)) == NULL)
            return NULL;
        b->next = h->head;
        h->head = b;
        h->at = (char *)b->data;
        h->end = h->at + bytes;
        h->used += bytes;
    }
    void *p = h->at;
    h->at += n;
    return p;
}

void chat_heap_free(struct heap *h)
{
    while (h->head != NULL) {
        struct heap_block *next = h->head->next;
        free(h->head);
        h->head = next;
    }
    *h = (struct heap){ .max = h->max };
}

void *chat_take(struct jin *j, size_t n)
{
    void *p = chat_heap_take(&j->heap, n);

    if (p == NULL)
        chat_no_memory(j);
    return p;
}

void *chat_take_array(struct jin *j, size_t n, size_t size)
{
    if (n > SIZE_MAX / 2 / size) {
        chat_no_memory(j);
        return NULL;
    }
    return chat_take(j, n * size);
}

/* ---- small values ---- */
struct val chat_none(void)
{
    return (struct val){ .kind = VAL_NONE };
}

struct val chat_bool(bool b)
{
    return (struct val){ .kind = VAL_BOOL, .u.b = b };
}

struct val chat_int(int64_t i)
{
    return (struct val){ .kind = VAL_INT, .u.i = i };
}

struct val chat_float(double f)
{
    return (struct val){ .kind = VAL_FLOAT, .u.f = f };
}

bool chat_undefined(struct jin *j, struct val *out, const char *fmt, ...)
{
    char buf[160];
    va_list ap;
    struct vundef *u = chat_take(j, sizeof *u);
    char *why;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (u == NULL || (why = chat_take(j, strlen(buf) + 1)) == NULL)
        return false;
    memcpy(why, buf, strlen(buf) + 1);
    *u = (struct vundef){ .why = why };
    *out = (struct val){ .kind = VAL_UNDEFINED, .u.un = u };
    return true;
}

bool chat_use_undefined(struct jin *j, struct val v)
{
    return chat_raise(j, "%s", v.u.un->why);
}

const char *chat_type(const struct val *v)
{
    static const char *const names[] = {
        [VAL_UNDEFINED] = "Undefined",
        [VAL_NONE] = "NoneType",
        [VAL_BOOL] = "bool",
        [VAL_INT] = "int",
        [VAL_BIG] = "int",
        [VAL_FLOAT] = "float",
        [VAL_STR] = "str",
        [VAL_BYTES] = "bytes",
        [VAL_LIST] = "list",
        [VAL_TUPLE] = "tuple",
        [VAL_DICT] = "dict",
        [VAL_VIEW] = "dict_items",
        [VAL_RANGE] = "range",
        [VAL_SPACE] = "Namespace",
        [VAL_MACRO] = "Macro",
        [VAL_METHOD] = "builtin_function_or_method",
        [VAL_FUNC] = "function",
        [VAL_LOOP] = "LoopContext",
        [VAL_ITER] = "generator",
        [VAL_CYCLER] = "Cycler",
        [VAL_JOINER] = "Joiner",
        [VAL_SELF] = "TemplateReference",
        [VAL_BLOCK] = "BlockReference",
    };

    if (v->kind == VAL_VIEW && v->sub != VIEW_ITEMS)
        return v->sub == VIEW_KEYS ? "dict_keys" : "dict_values";
    return v->kind == VAL_STR && v->u.s->markup ? "Markup" : names[v->kind];
}

bool chat_is_num(const struct val *v)
{
    return v->kind >= VAL_BOOL && v->kind <= VAL_FLOAT;
}

bool chat_as_double(struct jin *j, struct val v, double *out)
{
    if (v.kind == VAL_FLOAT) {
        *out = v.u.f;
        return true;
    }
    return chat_int_double(v, out) || chat_raise(j, "int too large to convert to float");
}

bool chat_index(struct jin *j, struct val v, int64_t *out)
{
    if (v.kind == VAL_BIG)
        *out = v.u.big->neg ? INT64_MIN : INT64_MAX;
    else if (v.kind == VAL_INT)
        *out = v.u.i;
    else if (v.kind == VAL_BOOL)
        *out = v.u.b;
    else if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    else
        return chat_raise(j, "'%s' object cannot be interpreted as an integer", chat_type(&v));
    return true;
}

/* ---- strings ---- */
static bool new_str(struct jin *j, struct vstr s, uint8_t kind, struct val *out)
{
    struct vstr *p = chat_take(j, sizeof *p);

    if (p == NULL)
        return false;
    *p = s;
    *out = (struct val){ .kind = kind, .u.s = p };
    return true;
}

bool chat_str_new(struct jin *j, struct str s, bool ours, struct val *out)
{
    return new_str(j, (struct vstr){ .p = s.p, .n = s.n, .n_cp = -1, .ours = ours }, VAL_STR, out);
}

bool chat_str_copy(struct jin *j, struct str s, bool ours, struct val *out)
{
    char *p = chat_take(j, s.n);

    if (p == NULL)
        return false;
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return chat_str_new(j, (struct str){ p, s.n }, ours, out);
}

bool chat_set_markup(struct val *v, bool on)
{
    ((struct vstr *)(uintptr_t)v->u.s)->markup = on;
    return true;
}

bool chat_str_part(struct jin *j, const struct vstr *s, size_t from, size_t n, struct val *out)
{
    struct vstr part = { .p = s->p + from,
                         .mark = s->mark != NULL ? s->mark + from : NULL,
                         .n = n,
                         .n_cp = s->n_cp == (int64_t)s->n ? (int64_t)n : -1,
                         .ours = s->ours,
                         .markup = s->markup };

    return new_str(j, part, VAL_STR, out);
}

struct str chat_str(const struct val *v)
{
    return (struct str){ v->u.s->p, v->u.s->n };
}

int64_t chat_str_len(const struct vstr *s)
{
    if (s->n_cp < 0) {
        int64_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
        ((struct vstr *)(uintptr_t)s)->n_cp = n; /* a note, in this rendering's own memory */
    }
    return s->n_cp;
}

size_t chat_str_byte(const struct vstr *s, int64_t cp)
{
    size_t i = 0;

    if (chat_str_len(s) == (int64_t)s->n)
        return (size_t)cp;
    for (; cp > 0 && i < s->n; cp--)
        do
            i++;
        while (i < s->n && ((unsigned char)s->p[i] & 0xC0) == 0x80);
    return i;
}

static bool sbuf_grow(struct jin *j, struct sbuf *b, size_t n, bool marks)
{
    size_t cap = b->cap;

    if (!chat_work(j, (int64_t)(n / 64)))
        return false;
    if (n > cap - b->n) {
        if (n > SIZE_MAX / 4)
            return chat_no_memory(j);
        cap = 2 * b->n > b->n + n ? 2 * b->n : b->n + n;
        if (cap < 64)
            cap = 64;
    }
    if (cap != b->cap) {
        char *p = chat_take(j, cap);
        if (p == NULL)
            return false;
        if (b->n > 0)
            memcpy(p, b->p, b->n);
        b->p = p;
    }
    if ((marks && b->mark == NULL) || (b->mark != NULL && cap != b->cap)) {
        unsigned char *mark = chat_take(j, cap);
        if (mark == NULL)
            return false;
        if (b->mark != NULL)
            memcpy(mark, b->mark, b->n);
        else
            memset(mark, b->ours, b->n);
        b->mark = mark;
    }
    b->cap = cap;
    return true;
}

bool chat_sbuf_add(struct jin *j, struct sbuf *b, struct str s, bool ours)
{
    if (s.n == 0)
        return true;
    if (b->n == 0 && b->mark == NULL)
        b->ours = ours;
    if (!sbuf_grow(j, b, s.n, b->ours != ours))
        return false;
    memcpy(b->p + b->n, s.p, s.n);
    if (b->mark != NULL)
        memset(b->mark + b->n, ours, s.n);
    b->n += s.n;
    return true;
}

bool chat_sbuf_str(struct jin *j, struct sbuf *b, const struct vstr *s)
{
    if (s->mark == NULL || s->n == 0)
        return chat_sbuf_add(j, b, (struct str){ s->p, s->n }, s->ours);
    if (!sbuf_grow(j, b, s->n, true))
        return false;
    memcpy(b->p + b->n, s->p, s->n);
    memcpy(b->mark + b->n, s->mark, s->n);
    b->n += s->n;
    return true;
}

bool chat_sbuf_part(struct jin *j, struct sbuf *b, const struct vstr *s, size_t from, size_t to)
{
    struct vstr part = { .p = s->p + from, .mark = s->mark ? s->mark + from : NULL, .n = to - from, .ours = s->ours };

    return chat_sbuf_str(j, b, &part);
}

bool chat_sbuf_fill(struct jin *j, struct sbuf *b, struct str s, int64_t times, bool ours)
{
    if (times <= 0 || s.n == 0)
        return true;
    if ((uint64_t)times > j->heap.max / s.n)
        return chat_no_memory(j);
    if (b->n == 0 && b->mark == NULL)
        b->ours = ours;
    if (!sbuf_grow(j, b, s.n * (size_t)times, b->ours != ours))
        return false;
    for (; times > 0; times--) {
        memcpy(b->p + b->n, s.p, s.n);
        if (b->mark != NULL)
            memset(b->mark + b->n, ours, s.n);
        b->n += s.n;
    }
    return true;
}

bool chat_sbuf_val(struct jin *j, struct sbuf *b, struct val *out)
{
    struct vstr s = {
        .p = b->n > 0 ? b->p : "", .mark = b->n > 0 ? b->mark : NULL, .n = b->n, .n_cp = -1, .ours = b->ours
    };

    *b = (struct sbuf){ 0 };
    return new_str(j, s, VAL_STR, out);
}

bool chat_concat(struct jin *j, const struct vstr *a, const struct vstr *b, struct val *out)
{
    struct sbuf s = { 0 };

    if (a->n == 0 || b->n == 0) {
        const struct vstr *one = a->n == 0 ? b : a;
        return new_str(j, *one, VAL_STR, out);
    }
    bool same = a->mark == NULL && b->mark == NULL && a->ours == b->ours;
    if (a->p + a->n == j->tail && b->n <= j->tail_room && (same || a->mark != NULL)) {
        s = (struct sbuf){ .p = (char *)(uintptr_t)a->p,
                           .mark = (unsigned char *)(uintptr_t)a->mark,
                           .n = a->n,
                           .cap = a->n + j->tail_room,
                           .ours = a->ours };
    } else {
        size_t room = a->n > 256 ? a->n : 0; /* it may go on */
        if (!sbuf_grow(j, &s, a->n + b->n + room, !same) || !chat_sbuf_str(j, &s, a))
            return false;
    }
    if (!chat_sbuf_str(j, &s, b))
        return false;
    j->tail = s.p + s.n;
    j->tail_room = s.cap - s.n;
    return chat_sbuf_val(j, &s, out);
}

/* ---- lists and dicts ---- */
bool chat_list_new(struct jin *j, uint8_t kind, size_t cap, struct val *out)
{
    struct vlist *l = chat_take(j, sizeof *l);

    if (l == NULL)
        return false;
    *l = (struct vlist){ .cap = cap };
    if (cap > 0 && (l->v = chat_take_array(j, cap, sizeof *l->v)) == NULL)
        return false;
    *out = (struct val){ .kind = kind, .u.l = l };
    return true;
}

bool chat_list_add(struct jin *j, struct vlist *l, struct val v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap < 4 ? 4 : 2 * l->cap;
        struct val *p = chat_take_array(j, cap, sizeof *p);
        if (p == NULL)
            return false;
        if (l->n > 0)
            memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

bool chat_pair(struct jin *j, struct val a, struct val b, struct val *out)
{
    if (!chat_list_new(j, VAL_TUPLE, 2, out))
        return false;
    out->u.l->v[0] = a;
    out->u.l->v[1] = b;
    out->u.l->n = 2;
    return true;
}

bool chat_dict_new(struct jin *j, struct val *out)
{
    struct vdict *d = chat_take(j, sizeof *d);

    if (d == NULL)
        return false;
    *d = (struct vdict){ 0 };
    *out = (struct val){ .kind = VAL_DICT, .u.d = d };
    return true;
}

static uint64_t hash_bytes(struct str s)
{
    return io_hash(0, s.p, s.n);
}

static bool hash(struct jin *j, struct val v, uint64_t *out)
{
    switch (v.kind) {
    case VAL_STR:
    case VAL_BYTES:
        *out = hash_bytes(chat_str(&v));
        return true;
    case VAL_BOOL:
    case VAL_INT:
    case VAL_BIG:
        *out = chat_int_hash(v);
        return true;
    case VAL_FLOAT:
        if (floor(v.u.f) == v.u.f && fabs(v.u.f) < 9e18)
            *out = chat_int_hash(chat_int((int64_t)v.u.f));
        else
            *out = hash_bytes((struct str){ (const char *)&v.u.f, sizeof v.u.f });
        return true;
    case VAL_TUPLE:
        *out = 31;
        if (!chat_enter(j))
            return false;
        for (size_t i = 0; i < v.u.l->n; i++) {
            uint64_t h;
            if (!hash(j, v.u.l->v[i], &h))
                return false;
            *out = *out * 1000003 ^ h;
        }
        chat_leave(j);
        return true;
    case VAL_LIST:
    case VAL_DICT:
    case VAL_VIEW:
        return chat_raise(j, "unhashable type: '%s'", chat_type(&v));
    case VAL_NONE:
    case VAL_UNDEFINED:
        *out = v.kind;
        return true;
    default:
        *out = (uint64_t)(uintptr_t)v.u.l >> 4;
        return true;
    }
}

static bool find_pair(struct jin *j, const struct vdict *d, struct val key, uint64_t h, struct vpair **out)
{
    bool same = false;

    *out = NULL;
    if (d->slot == NULL) {
        for (size_t i = 0; i < d->n && !same; i++) {
            if (!chat_equal(j, d->v[i].key, key, &same))
                return false;
            if (same)
                *out = &d->v[i];
        }
        return true;
    }
    uint32_t mask = (1U << d->bits) - 1, at = (uint32_t)(h & mask);
    for (; d->slot[at] != 0 && !same; at = (at + 1) & mask) {
        if (!chat_equal(j, d->v[d->slot[at] - 1].key, key, &same))
            return false;
        if (same)
            *out = &d->v[d->slot[at] - 1];
    }
    return true;
}

bool chat_dict_get(struct jin *j, const struct vdict *d, struct val key, struct val **out)
{
    uint64_t h;
    struct vpair *p;

    if (!hash(j, key, &h) || !find_pair(j, d, key, h, &p))
        return false;
    *out = p != NULL ? &p->v : NULL;
    return true;
}

struct val *chat_dict_find(const struct vdict *d, struct str key)
{
    if (d->slot == NULL) {
        for (size_t i = 0; i < d->n; i++)
            if (d->v[i].key.kind == VAL_STR && str_eq(chat_str(&d->v[i].key), key))
                return &d->v[i].v;
        return NULL;
    }
    uint32_t mask = (1U << d->bits) - 1, at = (uint32_t)(hash_bytes(key) & mask);
    for (; d->slot[at] != 0; at = (at + 1) & mask) {
        struct vpair *p = &d->v[d->slot[at] - 1];
        if (p->key.kind == VAL_STR && str_eq(chat_str(&p->key), key))
            return &p->v;
    }
    return NULL;
}

static bool index_dict(struct jin *j, struct vdict *d)
{
    unsigned bits = 5;

    while ((size_t)1 << bits < 2 * d->cap)
        bits++;
    if (bits > 30)
        return chat_no_memory(j);
    uint32_t *slot = chat_take_array(j, (size_t)1 << bits, sizeof *slot), mask = (1U << bits) - 1;
    if (slot == NULL)
        return false;
    memset(slot, 0, sizeof *slot << bits);
    for (size_t i = 0; i < d->n; i++) {
        uint64_t h;
        if (!hash(j, d->v[i].key, &h))
            return false;
        uint32_t at = (uint32_t)(h & mask);
        while (slot[at] != 0)
            at = (at + 1) & mask;
        slot[at] = (uint32_t)i + 1;
    }
    d->slot = slot;
    d->bits = bits;
    return true;
}

bool chat_dict_set(struct jin *j, struct vdict *d, struct val key, struct val v)
{
    uint64_t h;
    struct vpair *p;

    if (!hash(j, key, &h) || !find_pair(j, d, key, h, &p))
        return false;
    if (p != NULL) {
        p->v = v;
        return true;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap < 4 ? 4 : 2 * d->cap;
        struct vpair *w = chat_take_array(j, cap, sizeof *w);
        if (w == NULL)
            return false;
        if (d->n > 0)
            memcpy(w, d->v, d->n * sizeof *w);
        d->v = w;
        d->cap = cap;
        if (cap > 8 && !index_dict(j, d))
            return false;
    }
    d->v[d->n++] = (struct vpair){ key, v };
    if (d->slot != NULL) {
        uint32_t mask = (1U << d->bits) - 1, at = (uint32_t)(h & mask);
        while (d->slot[at] != 0)
            at = (at + 1) & mask;
        d->slot[at] = (uint32_t)d->n;
    }
    return true;
}

/* ---- what all values have ---- */
bool chat_truth(const struct val *v)
{
    switch (v->kind) {
    case VAL_UNDEFINED:
    case VAL_NONE:
        return false;
    case VAL_BOOL:
        return v->u.b;
    case VAL_INT:
        return v->u.i != 0;
    case VAL_FLOAT:
        return v->u.f != 0;
    case VAL_STR:
    case VAL_BYTES:
        return v->u.s->n > 0;
    case VAL_LIST:
    case VAL_TUPLE:
        return v->u.l->n > 0;
    case VAL_DICT:
    case VAL_VIEW:
        return v->u.d->n > 0;
    case VAL_RANGE:
        return v->u.r->n > 0;
    default:
        return true;
    }
}

bool chat_len(struct jin *j, struct val v, int64_t *n)
{
    switch (v.kind) {
    case VAL_UNDEFINED:
        *n = 0;
        return true;
    case VAL_STR:
        *n = chat_str_len(v.u.s);
        return true;
    case VAL_BYTES:
        *n = (int64_t)v.u.s->n;
        return true;
    case VAL_LIST:
    case VAL_TUPLE:
        *n = (int64_t)v.u.l->n;
        return true;
    case VAL_DICT:
    case VAL_VIEW:
        *n = (int64_t)v.u.d->n;
        return true;
    case VAL_RANGE:
        *n = v.u.r->n;
        return true;
    case VAL_LOOP: {
        struct val length;
        bool found;
        if (!chat_loop_attr(j, v.u.lo, STR("length"), &length, &found))
            return false;
        *n = length.u.i;
        return true;
    }
    default:
        return chat_raise(j, "object of type '%s' has no len()", chat_type(&v));
    }
}

static bool equal_lists(struct jin *j, const struct vlist *a, const struct vlist *b, bool *out)
{
    *out = a->n == b->n;
    if (!chat_enter(j))
        return false;
    for (size_t i = 0; i < a->n && i < b->n && *out; i++)
        if (!chat_equal(j, a->v[i], b->v[i], out))
            return false;
    chat_leave(j);
    return true;
}

static bool equal_dicts(struct jin *j, const struct vdict *a, const struct vdict *b, bool *out)
{
    *out = a->n == b->n;
    if (!chat_enter(j))
        return false;
    for (size_t i = 0; i < a->n && *out; i++) {
        struct val *other;
        if (!chat_dict_get(j, b, a->v[i].key, &other))
            return false;
        *out = other != NULL;
        if (other != NULL && !chat_equal(j, a->v[i].v, *other, out))
            return false;
    }
    chat_leave(j);
    return true;
}

/* -1, 0, 1; 2 where one is not a number. */
static int num_cmp(struct val a, struct val b)
{
    if (a.kind == VAL_FLOAT && b.kind == VAL_FLOAT)
        return a.u.f < b.u.f ? -1 : a.u.f > b.u.f ? 1 : a.u.f == b.u.f ? 0 : 2;
    if (a.kind != VAL_FLOAT)
        return b.kind == VAL_FLOAT ? chat_int_cmp_double(a, b.u.f) : chat_int_cmp(a, b);
    const int c = chat_int_cmp_double(b, a.u.f);

    return c == 2 ? 2 : -c;
}

bool chat_equal(struct jin *j, struct val a, struct val b, bool *out)
{
    if (!chat_work(j, 1))
        return false;
    if (chat_is_num(&a) && chat_is_num(&b)) {
        *out = num_cmp(a, b) == 0;
        return true;
    }
    *out = false;
    if (a.kind != b.kind)
        return true;
    switch (a.kind) {
    case VAL_UNDEFINED:
    case VAL_NONE:
        *out = true;
        return true;
    case VAL_STR:
    case VAL_BYTES:
        *out = str_eq(chat_str(&a), chat_str(&b));
        return true;
    case VAL_LIST:
    case VAL_TUPLE:
        return equal_lists(j, a.u.l, b.u.l, out);
    case VAL_DICT:
        return equal_dicts(j, a.u.d, b.u.d, out);
    case VAL_RANGE:
        *out = a.u.r->n == b.u.r->n &&
               (a.u.r->n == 0 || (a.u.r->start == b.u.r->start && (a.u.r->n == 1 || a.u.r->step == b.u.r->step)));
        return true;
    case VAL_VIEW:
        if (a.sub == b.sub && a.sub != VIEW_VALUES)
            return a.sub == VIEW_ITEMS || a.u.d == b.u.d ? equal_dicts(j, a.u.d, b.u.d, out)
                                                         : chat_raise(j, "views of keys cannot be compared");
        *out = false;
        return true;
    case VAL_FUNC:
        *out = a.sub == b.sub;
        return true;
    default:
        *out = a.u.l == b.u.l;
        return true;
    }
}

static int cmp_str(struct str a, struct str b) /* the order of UTF-8 is that of code points */
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;

    return c != 0 ? c : a.n < b.n ? -1 : a.n > b.n;
}

static bool less_lists(struct jin *j, const struct vlist *a, const struct vlist *b, const char *op, bool *out)
{
    bool same = true;
    size_t i = 0;

    if (!chat_enter(j))
        return false;
    for (; i < a->n && i < b->n; i++) {
        if (!chat_equal(j, a->v[i], b->v[i], &same))
            return false;
        if (!same)
            break;
    }
    if (i < a->n && i < b->n) {
        if (!chat_less(j, a->v[i], b->v[i], op, out))
            return false;
    } else {
        *out = a->n < b->n;
    }
    chat_leave(j);
    return true;
}

bool chat_less(struct jin *j, struct val a, struct val b, const char *op, bool *out)
{
    if (!chat_work(j, 1))
        return false;
    if (chat_is_num(&a) && chat_is_num(&b)) {
        *out = num_cmp(a, b) < 0;
        return true;
    }
    if (a.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, a);
    if (b.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, b);
    if (a.kind == b.kind && (a.kind == VAL_STR || a.kind == VAL_BYTES)) {
        *out = cmp_str(chat_str(&a), chat_str(&b)) < 0;
        return true;
    }
    if (a.kind == b.kind && (a.kind == VAL_LIST || a.kind == VAL_TUPLE))
        return less_lists(j, a.u.l, b.u.l, op, out);
    return chat_raise(j, "'%s' not supported between instances of '%s' and '%s'", op, chat_type(&a), chat_type(&b));
}
