/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_str.c - what strings can do: Python's methods of str, by code points.    room: chat
 *
 * Every byte keeps its mark of origin: pieces share their string's bytes, and what is put together
 * is copied mark by mark.
 */
#include <string.h>
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

enum { FIND, INDEX, RFIND, RINDEX, COUNT };
enum { LEFT = 1, RIGHT = 2 };

static size_t before_char(const struct vstr *s, size_t i) /* where the character before byte i begins */
{
    do
        i--;
    while (i > 0 && ((unsigned char)s->p[i] & 0xC0) == 0x80);
    return i;
}

/* ---- cases ---- */
static unsigned flags_at(const struct vstr *s, size_t i, size_t *len)
{
    return chat_cp_flags(str_utf8_get(s->p + i, s->n - i, len));
}

static bool cased(unsigned f)
{
    return (f & (UNI_LOWER | UNI_UPPER | UNI_TITLE)) != 0;
}

/* A capital sigma at byte i is at the end of a word: cased characters before it, none after, apart
 * from ignorable ones. */
static bool final_sigma(const struct vstr *s, size_t i)
{
    size_t k = i, len;
    unsigned f = 0;

    while (k > 0) {
        k = before_char(s, k);
        f = flags_at(s, k, &len);
        if (!(f & UNI_IGNORABLE))
            break;
        f = 0;
    }
    if (!cased(f))
        return false;
    for (k = i + 2, f = 0; k < s->n; k += len) {
        f = flags_at(s, k, &len);
        if (!(f & UNI_IGNORABLE))
            break;
        f = 0;
    }
    return !cased(f);
}

static bool ascii_case(struct jin *j, const struct vstr *s, bool upper, struct val *out)
{
    char *p = chat_take(j, s->n + 1);

    if (p == NULL)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i], first = upper ? 'a' : 'A';
        p[i] = c >= first && c <= first + 25 ? (char)(c ^ 32) : c;
    }
    if (!chat_str_part(j, s, 0, s->n, out))
        return false;
    ((struct vstr *)(uintptr_t)out->u.s)->p = p;
    return true;
}

bool chat_str_case(struct jin *j, const struct vstr *s, enum letter_case how, struct val *out)
{
    struct sbuf b = { 0 };
    bool in_word = false, first = true;
    size_t len;

    if (!chat_work(j, (int64_t)s->n / 16))
        return false;
    if ((how == CASE_UPPER || how == CASE_LOWER) && chat_str_len(s) == (int64_t)s->n)
        return ascii_case(j, s, how == CASE_UPPER, out);
    for (size_t i = 0; i < s->n; i += len, first = false) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len), to[3];
        unsigned f = how == CASE_TITLE || how == CASE_SWAP ? chat_cp_flags(cp) : 0;
        enum letter_case one = how;
        char text[12];
        size_t n = 0;
        if (how == CASE_CAPITALIZE)
            one = first ? CASE_TITLE : CASE_LOWER;
        else if (how == CASE_TITLE)
            one = in_word ? CASE_LOWER : CASE_TITLE;
        else if (how == CASE_SWAP)
            one = f & UNI_UPPER ? CASE_LOWER : CASE_UPPER;
        in_word = cased(f);
        int k = chat_cp_case(cp, one, to);
        if (how == CASE_SWAP && !(f & (UNI_UPPER | UNI_LOWER))) {
            to[0] = cp;
            k = 1;
        }
        if (cp == 0x3A3 && one == CASE_LOWER && final_sigma(s, i))
            to[0] = 0x3C2;
        for (int m = 0; m < k; m++)
            n += str_utf8_put(text + n, to[m]);
        if (!chat_sbuf_add(j, &b, (struct str){ text, n }, s->mark ? s->mark[i] != 0 : s->ours))
            return false;
    }
    return chat_sbuf_val(j, &b, out) && chat_set_markup(out, s->markup);
}

/* ---- searching ---- */
static size_t find_last(struct str s, struct str part)
{
    for (size_t at = s.n - part.n + 1; part.n <= s.n && at-- > 0;)
        if (part.n == 0 || memcmp(s.p + at, part.p, part.n) == 0)
            return at;
    return SIZE_MAX;
}

static bool want_str(struct jin *j, const struct val *v, const char *what)
{
    if (v->kind == VAL_UNDEFINED)
        return chat_use_undefined(j, *v);
    return v->kind == VAL_STR || chat_raise(j, "%s must be str, not %s", what, chat_type(v));
}

/* Bytes of s between two code points as in slices; from > to when the first lies behind the end. */
static bool window(struct jin *j, const struct vstr *s, const struct val v[2], size_t *from, size_t *to)
{
    int64_t n = chat_str_len(s), b[2] = { 0, n };

    for (int i = 0; i < 2; i++) {
        if (v[i].kind == VAL_NONE)
            continue;
        if (!chat_index(j, v[i], &b[i]))
            return false;
        if (b[i] < 0)
            b[i] = b[i] + n < 0 ? 0 : b[i] + n;
    }
    *to = chat_str_byte(s, b[1] > n ? n : b[1]);
    *from = b[0] > n ? *to + 1 : chat_str_byte(s, b[0]);
    return chat_work(j, (int64_t)s->n / 64);
}

static bool method_find(struct jin *j, const struct vstr *s, const struct args *a, int which, struct val *out)
{
    struct val v[3] = { chat_none(), chat_none(), chat_none() };
    size_t from, to, at = SIZE_MAX;
    int64_t n = 0;

    if (!chat_args(j, "find", a, "sub start end", 1, v) || !want_str(j, &v[0], "argument") ||
        !window(j, s, v + 1, &from, &to))
        return false;
    struct str part = chat_str(&v[0]), all = { s->p, to };
    if (which == COUNT) {
        for (at = from; from <= to && (at = str_find(all, at, part)) != SIZE_MAX; n++) {
            size_t len = 1;
            if (part.n == 0 && at >= to) {
                n++;
                break;
            }
            if (part.n == 0)
                str_utf8_get(s->p + at, s->n - at, &len);
            at += part.n > 0 ? part.n : len;
        }
        *out = chat_int(n);
        return true;
    }
    if (from <= to && (which == FIND || which == INDEX)) {
        at = str_find(all, from, part);
    } else if (from <= to) {
        at = find_last((struct str){ s->p + from, to - from }, part);
        at = at == SIZE_MAX ? at : at + from;
    }
    if (at == SIZE_MAX) {
        *out = chat_int(-1);
        return which == FIND || which == RFIND || chat_raise(j, "substring not found");
    }
    for (size_t i = 0; i < at; i++)
        n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    *out = chat_int(n);
    return true;
}

static bool has_end(struct jin *j, const struct vstr *s, const struct args *a, int start, struct val *out)
{
    struct val v[3] = { chat_none(), chat_none(), chat_none() };
    size_t from, to;
    bool yes = false;

    if (!chat_args(j, start ? "startswith" : "endswith", a, "prefix start end", 1, v) ||
        !window(j, s, v + 1, &from, &to))
        return false;
    size_t n = v[0].kind == VAL_TUPLE ? v[0].u.l->n : 1;
    for (size_t i = 0; i < n && !yes; i++) {
        const struct val *one = v[0].kind == VAL_TUPLE ? &v[0].u.l->v[i] : &v[0];
        if (!want_str(j, one, "the argument"))
            return false;
        struct str p = chat_str(one);
        yes = from <= to && p.n <= to - from && memcmp(start ? s->p + from : s->p + to - p.n, p.p, p.n) == 0;
    }
    *out = chat_bool(yes);
    return true;
}

/* ---- taking away and putting in ---- */
static bool in_set(const struct vstr *set, uint32_t cp)
{
    size_t len;

    if (set == NULL)
        return (chat_cp_flags(cp) & UNI_SPACE) != 0;
    for (size_t i = 0; i < set->n; i += len)
        if (str_utf8_get(set->p + i, set->n - i, &len) == cp)
            return true;
    return false;
}

bool chat_str_strip(struct jin *j, const struct vstr *s, const struct vstr *chars, bool left, bool right,
                    struct val *out)
{
    size_t from = 0, to = s->n, len;

    while (left && from < to && in_set(chars, str_utf8_get(s->p + from, s->n - from, &len)))
        from += len;
    while (right && to > from) {
        size_t i = before_char(s, to);
        if (!in_set(chars, str_utf8_get(s->p + i, s->n - i, &len)))
            break;
        to = i;
    }
    return chat_work(j, (int64_t)(from + s->n - to) / 16) && chat_str_part(j, s, from, to - from, out);
}

bool chat_str_replace(struct jin *j, const struct vstr *s, const struct vstr *old, const struct vstr *with, int64_t max,
                      struct val *out)
{
    struct sbuf b = { 0 };
    struct str all = { s->p, s->n }, part = { old->p, old->n };
    size_t at = 0, begin = 0, len = 0;

    for (; max != 0 && (at = str_find(all, at, part)) != SIZE_MAX; max--) {
        if (!chat_work(j, 1) || !chat_sbuf_part(j, &b, s, begin, at) || !chat_sbuf_str(j, &b, with))
            return false;
        begin = at + part.n;
        if (part.n == 0 && at >= s->n)
            break;
        if (part.n == 0)
            str_utf8_get(s->p + at, s->n - at, &len);
        at += part.n > 0 ? part.n : len;
    }
    return chat_sbuf_part(j, &b, s, begin, s->n) && chat_sbuf_val(j, &b, out) && chat_set_markup(out, s->markup);
}

static bool method_replace(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v[3] = { chat_none(), chat_none(), chat_int(-1) };
    int64_t max;

    if (!chat_args(j, "replace", a, "old new count", 2, v) || !want_str(j, &v[0], "replace() argument 1") ||
        !want_str(j, &v[1], "replace() argument 2") || !chat_index(j, v[2], &max))
        return false;
    if (s->markup && (!chat_escape(j, v[0], &v[0]) || !chat_escape(j, v[1], &v[1])))
        return false;
    return chat_str_replace(j, s, v[0].u.s, v[1].u.s, max, out);
}

/* side: -1 text at the left, 1 at the right, 0 centred. */
bool chat_str_pad(struct jin *j, const struct vstr *s, int64_t width, struct str fill, int side, struct val *out)
{
    struct sbuf b = { 0 };
    int64_t n = chat_str_len(s), room = width > n ? width - n : 0, left = side > 0 ? room : 0;

    if (room == 0)
        return chat_str_part(j, s, 0, s->n, out);
    if (side == 0)
        left = room / 2 + (room & width & 1);
    return chat_sbuf_fill(j, &b, fill, left, true) && chat_sbuf_str(j, &b, s) &&
           chat_sbuf_fill(j, &b, fill, room - left, true) && chat_sbuf_val(j, &b, out) &&
           chat_set_markup(out, s->markup);
}

static bool pad(struct jin *j, const struct vstr *s, const struct args *a, int side, struct val *out)
{
    struct val v[2] = { chat_none(), chat_none() };
    int64_t width;
    struct str fill = STR(" ");

    if (!chat_args(j, "the method", a, "width fillchar", 1, v) || !chat_index(j, v[0], &width))
        return false;
    if (v[1].kind != VAL_NONE) {
        if (!want_str(j, &v[1], "the fill character"))
            return false;
        if (chat_str_len(v[1].u.s) != 1)
            return chat_raise(j, "The fill character must be exactly one character long");
        fill = chat_str(&v[1]);
    }
    return chat_str_pad(j, s, width, fill, side, out);
}

static bool zfill(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v;
    struct sbuf b = { 0 };
    int64_t width;
    size_t sign = s->n > 0 && (s->p[0] == '-' || s->p[0] == '+');

    return chat_args(j, "zfill", a, "width", 1, &v) && chat_index(j, v, &width) && chat_sbuf_part(j, &b, s, 0, sign) &&
           chat_sbuf_fill(j, &b, STR("0"), width - chat_str_len(s), true) && chat_sbuf_part(j, &b, s, sign, s->n) &&
           chat_sbuf_val(j, &b, out);
}

/* ---- cutting ---- */
static bool push_part(struct jin *j, struct vlist *l, const struct vstr *s, size_t from, size_t to)
{
    struct val v;

    return chat_str_part(j, s, from, to - from, &v) && chat_list_add(j, l, v);
}

static bool split_space(struct jin *j, const struct vstr *s, int64_t max, bool right, struct vlist *l)
{
    size_t at = right ? s->n : 0, len;

    for (;;) {
        size_t begin = at;
        if (!right) {
            while (at < s->n && flags_at(s, at, &len) & UNI_SPACE)
                at += len;
            if (at >= s->n)
                return true;
            if (l->n == (size_t)max) /* the rest as it is */
                return push_part(j, l, s, at, s->n);
            for (begin = at; at < s->n && !(flags_at(s, at, &len) & UNI_SPACE);)
                at += len;
            if (!chat_work(j, 1) || !push_part(j, l, s, begin, at))
                return false;
            continue;
        }
        while (at > 0 && flags_at(s, before_char(s, at), &len) & UNI_SPACE)
            at = before_char(s, at);
        if (at == 0)
            return true;
        if (l->n == (size_t)max)
            return push_part(j, l, s, 0, at);
        for (begin = at; begin > 0 && !(flags_at(s, before_char(s, begin), &len) & UNI_SPACE);)
            begin = before_char(s, begin);
        if (!chat_work(j, 1) || !push_part(j, l, s, begin, at))
            return false;
        at = begin;
    }
}

static bool split_at(struct jin *j, const struct vstr *s, struct str sep, int64_t max, bool right, struct vlist *l)
{
    struct str all = { s->p, s->n };
    size_t at, begin = 0;

    if (right) {
        for (; l->n < (size_t)max && (at = find_last(all, sep)) != SIZE_MAX; all.n = at)
            if (!chat_work(j, 1) || !push_part(j, l, s, at + sep.n, all.n))
                return false;
        return push_part(j, l, s, 0, all.n);
    }
    for (; l->n < (size_t)max && (at = str_find(all, begin, sep)) != SIZE_MAX; begin = at + sep.n)
        if (!chat_work(j, 1) || !push_part(j, l, s, begin, at))
            return false;
    return push_part(j, l, s, begin, s->n);
}

static bool method_split(struct jin *j, const struct vstr *s, const struct args *a, int right, struct val *out)
{
    struct val v[2] = { chat_none(), chat_int(-1) };
    int64_t max;

    if (!chat_args(j, "split", a, "sep maxsplit", 0, v) || !chat_index(j, v[1], &max) ||
        !chat_list_new(j, VAL_LIST, 0, out) || !chat_work(j, (int64_t)s->n / 16))
        return false;
    if (max < 0)
        max = INT64_MAX;
    struct vlist *l = out->u.l;
    if (v[0].kind == VAL_NONE) {
        if (!split_space(j, s, max, right, l))
            return false;
    } else {
        if (!want_str(j, &v[0], "the separator"))
            return false;
        if (v[0].u.s->n == 0)
            return chat_raise(j, "empty separator");
        if (!split_at(j, s, chat_str(&v[0]), max, right, l))
            return false;
    }
    for (size_t i = 0; right && i < l->n / 2; i++) {
        struct val t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
    return true;
}

static bool partition(struct jin *j, const struct vstr *s, const struct args *a, int right, struct val *out)
{
    struct val v;
    struct str all = { s->p, s->n };

    if (!chat_args(j, "partition", a, "sep", 1, &v) || !want_str(j, &v, "the separator"))
        return false;
    if (v.u.s->n == 0)
        return chat_raise(j, "empty separator");
    struct str sep = chat_str(&v);
    size_t at = right ? find_last(all, sep) : str_find(all, 0, sep), end = at + sep.n;
    if (at == SIZE_MAX)
        at = end = right ? 0 : s->n;
    return chat_list_new(j, VAL_TUPLE, 3, out) && push_part(j, out->u.l, s, 0, at) &&
           push_part(j, out->u.l, s, at, end) && push_part(j, out->u.l, s, end, s->n);
}

bool chat_str_lines(struct jin *j, const struct vstr *s, bool keep, struct vlist *out)
{
    size_t begin = 0, len;

    if (!chat_work(j, (int64_t)s->n / 16))
        return false;
    for (size_t i = 0; i < s->n; i += len) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        if (!(cp == '\n' || cp == '\r' || cp == 0x0B || cp == 0x0C || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 ||
              cp == 0x2028 || cp == 0x2029))
            continue;
        if (cp == '\r' && i + 1 < s->n && s->p[i + 1] == '\n')
            len = 2;
        if (!push_part(j, out, s, begin, keep ? i + len : i))
            return false;
        begin = i + len;
    }
    return begin == s->n || push_part(j, out, s, begin, s->n);
}

static bool method_join(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v, item;
    struct viter *it;
    struct sbuf b = { 0 };
    bool more;

    if (!chat_args(j, "join", a, "iterable", 1, &v) || !chat_iter(j, v, &it))
        return false;
    for (int64_t i = 0;; i++) {
        if (!chat_next(j, it, &item, &more))
            return false;
        if (!more)
            break;
        if (item.kind != VAL_STR && !s->markup)
            return chat_raise(j, "sequence item %lld: expected str instance, %s found", (long long)i, chat_type(&item));
        if (s->markup && !chat_escape(j, item, &item))
            return false;
        if ((i > 0 && !chat_sbuf_str(j, &b, s)) || !chat_sbuf_str(j, &b, item.u.s))
            return false;
    }
    return chat_sbuf_val(j, &b, out) && chat_set_markup(out, s->markup);
}

static bool expandtabs(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v = chat_int(8);
    int64_t size, column = 0;
    struct sbuf b = { 0 };
    size_t len;

    if (!chat_args(j, "expandtabs", a, "tabsize", 0, &v) || !chat_index(j, v, &size))
        return false;
    for (size_t i = 0; i < s->n; i += len) {
        char c = s->p[i];
        str_utf8_get(s->p + i, s->n - i, &len);
        if (c == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            if (!chat_sbuf_fill(j, &b, STR(" "), n, s->mark ? s->mark[i] != 0 : s->ours))
                return false;
            column += n;
        } else {
            column = c == '\n' || c == '\r' ? 0 : column + 1;
            if (!chat_sbuf_part(j, &b, s, i, i + len))
                return false;
        }
    }
    return chat_sbuf_val(j, &b, out);
}

static bool translate(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v, *to;
    struct sbuf b = { 0 };
    size_t len;
    char text[4];

    if (!chat_args(j, "translate", a, "table", 1, &v))
        return false;
    if (v.kind != VAL_DICT)
        return chat_raise(j, "'%s' object is not a table of characters", chat_type(&v));
    for (size_t i = 0; i < s->n; i += len) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        if (!chat_dict_get(j, v.u.d, chat_int(cp), &to))
            return false;
        bool ok = true;
        if (to == NULL)
            ok = chat_sbuf_part(j, &b, s, i, i + len);
        else if (to->kind == VAL_STR)
            ok = chat_sbuf_str(j, &b, to->u.s);
        else if (to->kind == VAL_INT && to->u.i >= 0 && to->u.i < 0x110000 && (to->u.i < 0xD800 || to->u.i > 0xDFFF))
            ok = chat_sbuf_add(j, &b, (struct str){ text, str_utf8_put(text, (uint32_t)to->u.i) }, true);
        else if (to->kind != VAL_NONE)
            ok = chat_raise(j, "character mapping must return integer, None or str");
        if (!ok)
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}

/* ---- questions ---- */
static bool is_title(const struct vstr *s, unsigned begin)
{
    bool any = false, in_word = false;
    size_t len;

    for (size_t i = 0; i < s->n; i += len) {
        unsigned f = flags_at(s, i, &len);
        if (f & begin) {
            if (in_word)
                return false;
            any = in_word = true;
        } else if (f & UNI_LOWER) {
            if (!in_word)
                return false;
            any = true;
        } else {
            in_word = false;
        }
    }
    return any;
}

/* All characters have one of the flags. */
static bool all_have(const struct vstr *s, unsigned want)
{
    size_t len;

    for (size_t i = 0; i < s->n; i += len)
        if (!(flags_at(s, i, &len) & want))
            return false;
    return s->n > 0 || want == UNI_PRINT;
}

static bool one_case(const struct vstr *s, unsigned want) /* no cased character of another kind, and at least one */
{
    bool any = false;
    size_t len;

    for (size_t i = 0; i < s->n; i += len) {
        unsigned f = flags_at(s, i, &len);
        if ((f & (UNI_LOWER | UNI_UPPER | UNI_TITLE)) & ~want)
            return false;
        any |= (f & want) != 0;
    }
    return any;
}

static bool all_below(const struct vstr *s, unsigned limit)
{
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->p[i] >= limit)
            return false;
    return true;
}

static bool is_identifier(const struct vstr *s, unsigned begin)
{
    size_t len;

    for (size_t i = 0; i < s->n; i += len) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        if (!(cp == '_' || chat_cp_flags(cp) & begin || (i > 0 && chat_cp_flags(cp) & UNI_DECIMAL)))
            return false;
    }
    return s->n > 0;
}

/* ---- the table ---- */
static bool method_strip(struct jin *j, const struct vstr *s, const struct args *a, int sides, struct val *out)
{
    struct val v = chat_none();

    if (!chat_args(j, "strip", a, "chars", 0, &v) || (v.kind != VAL_NONE && !want_str(j, &v, "strip arg")))
        return false;
    return chat_str_strip(j, s, v.kind == VAL_STR ? v.u.s : NULL, sides & LEFT, sides & RIGHT, out);
}

static bool remove_end(struct jin *j, const struct vstr *s, const struct args *a, int start, struct val *out)
{
    struct val v;

    if (!chat_args(j, "removeprefix", a, "prefix", 1, &v) || !want_str(j, &v, "argument"))
        return false;
    struct str p = chat_str(&v);
    bool has = p.n <= s->n && memcmp(start ? s->p : s->p + s->n - p.n, p.p, p.n) == 0;
    return chat_str_part(j, s, has && start ? p.n : 0, s->n - (has ? p.n : 0), out);
}

static bool splitlines(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v = chat_bool(false);

    return chat_args(j, "splitlines", a, "keepends", 0, &v) && chat_list_new(j, VAL_LIST, 0, out) &&
           chat_str_lines(j, s, chat_truth(&v), out->u.l);
}

static bool method_encode(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v[2];

    if (!chat_args(j, "encode", a, "encoding errors", 0, v))
        return false;
    if (a->n + a->n_kw > 0 &&
        !(v[0].kind == VAL_STR && (str_is(chat_str(&v[0]), "utf-8") || str_is(chat_str(&v[0]), "utf8"))))
        return chat_raise(j, "encode knows utf-8 alone");
    *out = (struct val){ .kind = VAL_BYTES, .u.s = s };
    return true;
}

static bool format_map(struct jin *j, const struct vstr *s, const struct args *a, struct val *out)
{
    struct val v;
    struct args named = { 0 };

    if (!chat_args(j, "format_map", a, "mapping", 1, &v))
        return false;
    if (v.kind != VAL_DICT)
        return chat_raise(j, "format_map takes a mapping");
    size_t n = v.u.d->n;
    if ((named.name = chat_take_array(j, n + 1, sizeof *named.name)) == NULL ||
        (named.kw = chat_take_array(j, n + 1, sizeof *named.kw)) == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (v.u.d->v[i].key.kind != VAL_STR)
            continue;
        named.name[named.n_kw] = v.u.d->v[i].key;
        named.kw[named.n_kw++] = v.u.d->v[i].v;
    }
    return chat_format(j, s, &named, out);
}

static bool change_case(struct jin *j, const struct vstr *s, const struct args *a, int how, struct val *out)
{
    return chat_args(j, "the method", a, "", 0, NULL) && chat_str_case(j, s, (enum letter_case)how, out);
}

/* Each has one of the three functions. */
static const struct method {
    const char *name;
    bool (*call)(struct jin *j, const struct vstr *s, const struct args *a, struct val *out);
    bool (*call_how)(struct jin *j, const struct vstr *s, const struct args *a, int how, struct val *out);
    bool (*is)(const struct vstr *s, unsigned how);
    int how;
} methods[] = {
    { "capitalize", .call_how = change_case, .how = CASE_CAPITALIZE },
    { "casefold", .call_how = change_case, .how = CASE_FOLD },
    { "center", .call_how = pad, .how = 0 },
    { "count", .call_how = method_find, .how = COUNT },
    { "encode", .call = method_encode },
    { "endswith", .call_how = has_end, .how = false },
    { "expandtabs", .call = expandtabs },
    { "find", .call_how = method_find, .how = FIND },
    { "format", .call = chat_format },
    { "format_map", .call = format_map },
    { "index", .call_how = method_find, .how = INDEX },
    { "isalnum", .is = all_have, .how = UNI_ALPHA | UNI_DECIMAL | UNI_DIGIT | UNI_NUMERIC },
    { "isalpha", .is = all_have, .how = UNI_ALPHA },
    { "isascii", .is = all_below, .how = 0x80 },
    { "isdecimal", .is = all_have, .how = UNI_DECIMAL },
    { "isdigit", .is = all_have, .how = UNI_DIGIT },
    { "isidentifier", .is = is_identifier, .how = UNI_ALPHA },
    { "islower", .is = one_case, .how = UNI_LOWER },
    { "isnumeric", .is = all_have, .how = UNI_NUMERIC },
    { "isprintable", .is = all_have, .how = UNI_PRINT },
    { "isspace", .is = all_have, .how = UNI_SPACE },
    { "istitle", .is = is_title, .how = UNI_UPPER | UNI_TITLE },
    { "isupper", .is = one_case, .how = UNI_UPPER },
    { "join", .call = method_join },
    { "ljust", .call_how = pad, .how = -1 },
    { "lower", .call_how = change_case, .how = CASE_LOWER },
    { "lstrip", .call_how = method_strip, .how = LEFT },
    { "partition", .call_how = partition, .how = false },
    { "removeprefix", .call_how = remove_end, .how = true },
    { "removesuffix", .call_how = remove_end, .how = false },
    { "replace", .call = method_replace },
    { "rfind", .call_how = method_find, .how = RFIND },
    { "rindex", .call_how = method_find, .how = RINDEX },
    { "rjust", .call_how = pad, .how = 1 },
    { "rpartition", .call_how = partition, .how = true },
    { "rsplit", .call_how = method_split, .how = true },
    { "rstrip", .call_how = method_strip, .how = RIGHT },
    { "split", .call_how = method_split, .how = false },
    { "splitlines", .call = splitlines },
    { "startswith", .call_how = has_end, .how = true },
    { "strip", .call_how = method_strip, .how = LEFT | RIGHT },
    { "swapcase", .call_how = change_case, .how = CASE_SWAP },
    { "title", .call_how = change_case, .how = CASE_TITLE },
    { "translate", .call = translate },
    { "upper", .call_how = change_case, .how = CASE_UPPER },
    { "zfill", .call = zfill },
};

int chat_str_method_find(struct str name)
{
    for (int i = 0; i < (int)(sizeof methods / sizeof *methods); i++)
        if (str_is(name, methods[i].name))
            return i;
    return -1;
}

bool chat_str_method(struct jin *j, int which, struct val self, const struct args *a, struct val *out)
{
    const struct method *m = &methods[which];
    const struct vstr *s = self.u.s;

    if (m->call != NULL)
        return m->call(j, s, a, out);
    if (m->call_how != NULL)
        return m->call_how(j, s, a, m->how, out);
    *out = chat_bool(m->is(s, (unsigned)m->how));
    return chat_work(j, (int64_t)s->n / 16) && chat_args(j, "the method", a, "", 0, NULL);
}
