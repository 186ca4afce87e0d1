/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filters.c - filters that make text or numbers of one value; the table of all.
 * room: chat */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

/* ---- numbers ---- */
static bool filter_abs(struct jin *j, struct val v, struct val *out)
{
    bool neg = (v.kind == VAL_INT && v.u.i < 0) || (v.kind == VAL_BIG && v.u.big->neg);

    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (!chat_is_num(&v))
        return chat_raise(j, "bad operand type for abs(): '%s'", chat_type(&v));
    if (v.kind == VAL_FLOAT) {
        *out = chat_float(fabs(v.u.f));
        return true;
    }
    return chat_negate(j, v, !neg, out);
}

/* int(text, base): false in *ok where Python raises ValueError. */
static bool read_int(struct jin *j, struct str s, int base, struct val *out, bool *ok)
{
    char *p = chat_take(j, s.n + 2);
    size_t n = 0, len, i = 0;
    bool under = false, digits = false;

    *ok = false;
    if (p == NULL)
        return false;
    while (i < s.n && chat_cp_flags(str_utf8_get(s.p + i, s.n - i, &len)) & UNI_SPACE)
        i += len;
    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+')) {
        if (s.p[i] == '-')
            p[n++] = '-';
        i++;
    }
    if (s.n - i > 2 && s.p[i] == '0') {
        char c = (char)(s.p[i + 1] | 32);
        int of = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (of != 0 && (base == of || base == 0)) {
            base = of;
            i += 2;
            under = s.p[i] == '_';
            i += under;
            under = false;
        }
    }
    bool decimal = base == 0;
    base = base == 0 ? 10 : base;
    for (; i < s.n; i += len) {
        uint32_t cp = str_utf8_get(s.p + i, s.n - i, &len);
        int d = chat_cp_digit(cp);
        if (d < 0 && cp < 0x80 && (cp | 32) >= 'a' && (cp | 32) <= 'z')
            d = (int)(cp | 32) - 'a' + 10;
        if (cp == '_' && digits && !under) {
            under = true;
            continue;
        }
        if (d < 0 || d >= base)
            break;
        p[n++] = "0123456789abcdefghijklmnopqrstuvwxyz"[d];
        digits = true;
        under = false;
    }
    while (i < s.n && chat_cp_flags(str_utf8_get(s.p + i, s.n - i, &len)) & UNI_SPACE)
        i += len;
    size_t first = n > 0 && p[0] == '-';
    bool zeros = decimal && n - first > 1 && p[first] == '0' && strspn(p + first, "0") < n - first;
    if (i < s.n || !digits || under || zeros || (base == 10 && n > JIN_DIGITS_MAX))
        return true;
    *ok = true;
    return chat_int_read(j, (struct str){ p, n }, base, out);
}

static bool filter_int(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_int(0), chat_int(10) };
    int64_t base;
    double d;
    bool ok;

    if (!chat_args(j, "int", a, "default base", 0, arg) || !chat_index(j, arg[1], &base))
        return false;
    if (base != 0 && (base < 2 || base > 36))
        return chat_raise(j, "int() base must be >= 2 and <= 36, or 0");
    *out = arg[0];
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (v.kind == VAL_FLOAT)
        return isnan(v.u.f) || chat_int_of_double(j, v.u.f, out);
    if (chat_is_num(&v))
        return chat_negate(j, v, true, out);
    if (v.kind != VAL_STR)
        return true;
    if (!read_int(j, chat_str(&v), (int)base, out, &ok))
        return false;
    if (ok)
        return true;
    *out = arg[0];
    if (chat_float_read(chat_str(&v), &d) && isfinite(d))
        return chat_int_of_double(j, d, out);
    return true;
}

static bool filter_float(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg = chat_float(0);
    double d;

    if (!chat_args(j, "float", a, "default", 0, &arg))
        return false;
    *out = arg;
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (chat_is_num(&v)) {
        if (!chat_as_double(j, v, &d))
            return false;
        *out = chat_float(d);
    } else if (v.kind == VAL_STR && chat_float_read(chat_str(&v), &d)) {
        *out = chat_float(d);
    }
    return true;
}

static bool round_common(struct jin *j, struct val v, int64_t digits, struct val *out)
{
    char buf[800];

    if (v.kind != VAL_FLOAT) {
        struct val p, half, rest;
        if (!chat_negate(j, v, true, &v))
            return false;
        *out = v;
        if (digits >= 0)
            return true;
        if (digits < -60)
            return chat_limit(j, "too many digits to round");
        bool less;
        if (!chat_int_pow(j, chat_int(10), -digits, &p) || !chat_int_op(j, OP_MOD, v, p, &rest) ||
            !chat_int_op(j, OP_FLOORDIV, p, chat_int(2), &half) || !chat_int_op(j, OP_SUB, v, rest, out) ||
            !chat_less(j, rest, half, "<", &less))
            return false;
        bool tie = chat_int_cmp(rest, half) == 0;
        struct val q, odd;
        if (!chat_int_op(j, OP_FLOORDIV, *out, p, &q) || !chat_int_op(j, OP_MOD, q, chat_int(2), &odd))
            return false;
        if (less || (tie && !chat_truth(&odd)))
            return true;
        return chat_int_op(j, OP_ADD, *out, p, out);
    }
    if (!isfinite(v.u.f) || digits > 330) {
        *out = v;
        return true;
    }
    if (digits >= 0) {
        snprintf(buf, sizeof buf, "%.*f", (int)digits, v.u.f);
        *out = chat_float(strtod(buf, NULL));
        return true;
    }
    if (digits < -308) {
        *out = chat_float(copysign(0, v.u.f));
        return true;
    }
    double p = pow(10, (double)-digits);
    *out = chat_float(nearbyint(v.u.f / p) * p);
    return true;
}

static bool filter_round(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_int(0), chat_none() }, p;
    int64_t digits;
    double d, scale;

    if (!chat_args(j, "round", a, "precision method", 0, arg))
        return false;
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    bool ceiling = arg[1].kind == VAL_STR && str_is(chat_str(&arg[1]), "ceil"),
         down = arg[1].kind == VAL_STR && str_is(chat_str(&arg[1]), "floor");
    if (arg[1].kind != VAL_NONE && !ceiling && !down &&
        !(arg[1].kind == VAL_STR && str_is(chat_str(&arg[1]), "common")))
        return chat_raise(j, "method must be common, ceil or floor");
    if (!chat_is_num(&v))
        return chat_raise(j, "type %s doesn't define __round__ method", chat_type(&v));
    if (arg[0].kind == VAL_NONE && !ceiling && !down) { /* round(x, None): an integer */
        return v.kind == VAL_FLOAT ? chat_int_of_double(j, nearbyint(v.u.f), out) : chat_negate(j, v, true, out);
    }
    if (!chat_index(j, arg[0], &digits))
        return false;
    if (!ceiling && !down)
        return round_common(j, v, digits, out);
    if (!chat_binary(j, OP_POW, chat_int(10),
                     chat_int(digits > 400    ? 400
                              : digits < -400 ? -400
                                              : digits),
                     &p) ||
        !chat_binary(j, OP_MUL, v, p, &v) || !chat_as_double(j, v, &d) || !chat_as_double(j, p, &scale))
        return false;
    if (!chat_int_of_double(j, ceiling ? ceil(d) : floor(d), &v))
        return false;
    return chat_binary(j, OP_DIV, v, p, out);
}

static bool filesizeformat(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    static const char units[] = "kMGTPEZY";
    struct val arg = chat_bool(false);
    char buf[80];
    double d;

    if (!chat_args(j, "filesizeformat", a, "binary", 0, &arg))
        return false;
    if (v.kind == VAL_STR && chat_float_read(chat_str(&v), &d))
        v = chat_float(d);
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (!chat_is_num(&v))
        return chat_raise(j, "could not convert to float");
    if (!chat_as_double(j, v, &d))
        return false;
    bool binary = chat_truth(&arg);
    double base = binary ? 1024 : 1000, unit = base * base;
    if (d == 1) {
        snprintf(buf, sizeof buf, "1 Byte");
    } else if (d < base) {
        snprintf(buf, sizeof buf, "%.0f Bytes", trunc(d) + 0.0);
    } else {
        int i = 0;
        for (; i < 7 && d >= unit; i++)
            unit *= base;
        snprintf(buf, sizeof buf, "%.1f %c%sB", base * d / unit, binary && i == 0 ? 'K' : units[i], binary ? "i" : "");
    }
    return chat_str_copy(j, str_of(buf), true, out);
}

/* ---- text ---- */
/* Words begin after spaces and -({[<. */
static bool filter_title(struct jin *j, const struct vstr *s, struct val *out)
{
    struct sbuf b = { 0 };
    size_t len;

    for (size_t i = 0; i < s->n;) {
        bool gap = false;
        size_t from = i, first = 0;
        for (; i < s->n; i += len) {
            uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
            bool is =
                (chat_cp_flags(cp) & UNI_SPACE) != 0 || (cp < 0x80 && cp != 0 && strchr("-({[<", (int)cp) != NULL);
            if (i == from) {
                gap = is;
                first = len;
            } else if (is != gap) {
                break;
            }
        }
        struct val head, tail;
        if (!chat_str_part(j, s, from, first, &head) || !chat_str_part(j, s, from + first, i - from - first, &tail) ||
            !chat_str_case(j, head.u.s, CASE_UPPER, &head) || !chat_str_case(j, tail.u.s, CASE_LOWER, &tail) ||
            !chat_sbuf_str(j, &b, head.u.s) || !chat_sbuf_str(j, &b, tail.u.s))
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}

static bool filter_indent(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[3] = { chat_int(4), chat_bool(false), chat_bool(false) }, lines;
    struct sbuf b = { 0 }, pad = { 0 };
    int64_t n = 0;

    if (!chat_args(j, "indent", a, "width first blank", 0, arg))
        return false;
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    if (v.kind != VAL_STR)
        return chat_raise(j, "indent wants a string, not %s", chat_type(&v));
    if (arg[0].kind == VAL_STR ? !chat_sbuf_str(j, &pad, arg[0].u.s)
                               : !chat_index(j, arg[0], &n) || !chat_sbuf_fill(j, &pad, STR(" "), n, true))
        return false;
    struct val indent;
    if (!chat_sbuf_val(j, &pad, &indent) || !chat_list_new(j, VAL_LIST, 0, &lines))
        return false;
    struct sbuf whole = { 0 };
    struct val text;
    if (!chat_sbuf_str(j, &whole, v.u.s) || !chat_sbuf_add(j, &whole, STR("\n"), true) ||
        !chat_sbuf_val(j, &whole, &text) || !chat_str_lines(j, text.u.s, false, lines.u.l))
        return false;
    for (size_t i = 0; i < lines.u.l->n; i++) {
        const struct vstr *line = lines.u.l->v[i].u.s;
        bool in = i == 0 ? chat_truth(&arg[1]) : line->n > 0 || chat_truth(&arg[2]);
        if ((i > 0 && !chat_sbuf_add(j, &b, STR("\n"), true)) || (in && !chat_sbuf_str(j, &b, indent.u.s)) ||
            !chat_sbuf_str(j, &b, line))
            return false;
    }
    return chat_sbuf_val(j, &b, out) && chat_set_markup(out, v.u.s->markup);
}

static bool filter_replace(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[3] = { chat_none(), chat_none(), chat_none() }, s;
    int64_t max = -1;

    if (!chat_args(j, "replace", a, "old new count", 2, arg) || !chat_to_str(j, v, &s) ||
        !chat_to_str(j, arg[0], &arg[0]) || !chat_to_str(j, arg[1], &arg[1]) ||
        (arg[2].kind != VAL_NONE && !chat_index(j, arg[2], &max)))
        return false;
    return chat_str_replace(j, s.u.s, arg[0].u.s, arg[1].u.s, max, out) && chat_set_markup(out, false);
}

static bool truncate(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[4] = { chat_int(255), chat_bool(false), chat_none(), chat_int(5) };
    int64_t length, leeway;
    struct sbuf b = { 0 };

    if (!chat_str_new(j, STR("..."), true, &arg[2]) ||
        !chat_args(j, "truncate", a, "length killwords end leeway", 0, arg) || !chat_index(j, arg[0], &length) ||
        (arg[3].kind != VAL_NONE && !chat_index(j, arg[3], &leeway)))
        return false;
    leeway = arg[3].kind == VAL_NONE ? 5 : leeway;
    int64_t end, len;
    if (!chat_len(j, arg[2], &end) || !chat_len(j, v, &len))
        return false;
    if (length < end || leeway < 0)
        return chat_raise(j, "expected length >= %lld and leeway >= 0", (long long)end);
    *out = v;
    if (len <= length + leeway)
        return true;
    if (v.kind != VAL_STR || arg[2].kind != VAL_STR)
        return chat_raise(j, "truncate wants strings");
    size_t to = chat_str_byte(v.u.s, length - end), cut = to;
    while (!chat_truth(&arg[1]) && cut > 0 && v.u.s->p[cut - 1] != ' ')
        cut--;
    if (!chat_truth(&arg[1]) && cut > 0)
        to = cut - 1;
    return chat_sbuf_part(j, &b, v.u.s, 0, to) && chat_sbuf_str(j, &b, arg[2].u.s) && chat_sbuf_val(j, &b, out) &&
           chat_set_markup(out, v.u.s->markup);
}

static bool wordcount(struct jin *j, const struct vstr *s, struct val *out)
{
    int64_t n = 0;
    bool in = false;
    size_t len;

    for (size_t i = 0; i < s->n; i += len) {
        bool word = chat_is_word(str_utf8_get(s->p + i, s->n - i, &len));
        n += word && !in;
        in = word;
    }
    *out = chat_int(n);
    return chat_work(j, (int64_t)s->n / 8);
}

/* One line of text in lines of at most `width`, as Python's textwrap does it where there are no
 * hyphens. */
static bool wrap_line(struct jin *j, const struct vstr *s, int64_t width, bool break_long, const struct vstr *sep,
                      struct sbuf *b, bool *any)
{
    size_t at = 0;

    for (bool first = true; at < s->n;) {
        size_t begin = at, end = at, last_word = at;
        int64_t n = 0;
        bool blank = memchr(" \t\v\f\r\n", s->p[at], 6) != NULL;
        if (blank && !first) { /* space at the start of all lines but the first goes */
            while (at < s->n && memchr(" \t\v\f\r\n", s->p[at], 6) != NULL)
                at++;
            begin = end = last_word = at;
            if (at >= s->n)
                break;
        }
        while (end < s->n) { /* whole chunks that fit */
            bool space = memchr(" \t\v\f\r\n", s->p[end], 6) != NULL;
            size_t k = end;
            int64_t m = 0;
            for (; k < s->n && (memchr(" \t\v\f\r\n", s->p[k], 6) != NULL) == space; k++)
                m += ((unsigned char)s->p[k] & 0xC0) != 0x80;
            if (n + m > width) {
                if (m > width && (break_long || n == 0)) {
                    int64_t room = break_long ? width - n : m;
                    for (; room > 0 && end < k; room--)
                        do
                            end++;
                        while (end < k && ((unsigned char)s->p[end] & 0xC0) == 0x80);
                    if (!space)
                        last_word = end;
                }
                break;
            }
            n += m;
            end = k;
            if (!space)
                last_word = end;
        }
        at = end;
        if (last_word > begin) {
            if ((*any && !chat_sbuf_str(j, b, sep)) || !chat_sbuf_part(j, b, s, begin, last_word))
                return false;
            *any = true;
        }
        first = first && last_word == begin;
        if (!chat_work(j, 1))
            return false;
    }
    return true;
}

static bool wordwrap(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[4] = { chat_int(79), chat_bool(true), chat_none(), chat_bool(true) }, lines;
    int64_t width;
    struct sbuf b = { 0 };

    if (!chat_args(j, "wordwrap", a, "width break_long_words wrapstring break_on_hyphens", 0, arg) ||
        !chat_index(j, arg[0], &width))
        return false;
    if (arg[2].kind == VAL_NONE && !chat_str_new(j, STR("\n"), true, &arg[2]))
        return false;
    if (v.kind != VAL_STR || arg[2].kind != VAL_STR)
        return chat_raise(j, "wordwrap wants strings");
    if (chat_truth(&arg[3]) && memchr(v.u.s->p, '-', v.u.s->n) != NULL)
        return chat_raise(j, "wordwrap of text with hyphens is not supported");
    if (width <= 0)
        return chat_raise(j, "invalid width (must be > 0)");
    if (!chat_list_new(j, VAL_LIST, 0, &lines) || !chat_str_lines(j, v.u.s, false, lines.u.l))
        return false;
    for (size_t i = 0; i < lines.u.l->n; i++) {
        bool any = false;
        if ((i > 0 && !chat_sbuf_str(j, &b, arg[2].u.s)) ||
            !wrap_line(j, lines.u.l->v[i].u.s, width, chat_truth(&arg[1]), arg[2].u.s, &b, &any))
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}

/* Tags and comments go, runs of white space become one space, entities their characters. */
static bool striptags(struct jin *j, const struct vstr *s, struct val *out)
{
    struct sbuf b = { 0 }, c = { 0 };
    size_t begin = 0, len;

    for (int pass = 0; pass < 2; pass++) {
        const char *open = pass == 0 ? "<!--" : "<", *close = pass == 0 ? "-->" : ">";
        size_t n_open = strlen(open), n_close = strlen(close);
        struct val v;
        struct sbuf *to = pass == 0 ? &b : &c;
        begin = 0;
        for (size_t i = 0; i + n_open <= s->n; i++) {
            size_t end = i + (pass == 0 ? 0 : 1);
            if (memcmp(s->p + i, open, n_open) != 0)
                continue;
            while (end + n_close <= s->n && memcmp(s->p + end, close, n_close) != 0)
                end++;
            if (end + n_close > s->n)
                break;
            if (!chat_work(j, 1 + (int64_t)(end - i) / 16) || !chat_sbuf_part(j, to, s, begin, i))
                return false;
            begin = end + n_close;
            i = begin - 1;
        }
        if (!chat_sbuf_part(j, to, s, begin, s->n) || !chat_sbuf_val(j, to, &v))
            return false;
        s = v.u.s;
    }
    struct sbuf d = { 0 };
    bool gap = false, any = false;
    for (size_t i = 0; i < s->n; i += len) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        static const char *const names[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#34;", "&#39;" };
        static const char chars[] = "&<>\"\"'";
        if (chat_cp_flags(cp) & UNI_SPACE) {
            gap = true;
            continue;
        }
        if (gap && any && !chat_sbuf_add(j, &d, STR(" "), true))
            return false;
        gap = false;
        any = true;
        if (cp == '&') {
            size_t k = 0;
            while (k < 6 && !(s->n - i >= strlen(names[k]) && memcmp(s->p + i, names[k], strlen(names[k])) == 0))
                k++;
            if (k < 6) {
                len = strlen(names[k]);
                if (!chat_sbuf_add(j, &d, (struct str){ chars + k, 1 }, s->mark ? s->mark[i] != 0 : s->ours))
                    return false;
                continue;
            }
            if (i + 1 < s->n && (chat_is_word((unsigned char)s->p[i + 1]) || s->p[i + 1] == '#'))
                return chat_raise(j, "striptags knows only the entities of <, >, & and quotes");
        }
        if (!chat_sbuf_part(j, &d, s, i, i + len))
            return false;
    }
    return chat_sbuf_val(j, &d, out);
}

static bool quote(struct jin *j, struct val v, bool query, struct sbuf *b)
{
    if (!chat_to_str(j, v, &v))
        return false;
    for (size_t i = 0; i < v.u.s->n; i++) {
        unsigned char c = (unsigned char)v.u.s->p[i];
        char buf[8];
        bool safe =
            (c < 0x80 && chat_is_word(c)) || (c != 0 && c < 0x80 && strchr("-.~", c) != NULL) || (c == '/' && !query);
        snprintf(buf, sizeof buf, safe ? "%c" : c == ' ' && query ? "+" : "%%%02X", c);
        if (!chat_sbuf_add(j, b, str_of(buf), v.u.s->mark ? v.u.s->mark[i] != 0 : v.u.s->ours))
            return false;
    }
    return true;
}

static bool urlencode(struct jin *j, struct val v, struct val *out)
{
    struct sbuf b = { 0 };
    struct val items, pair;

    if (v.kind != VAL_LIST && v.kind != VAL_TUPLE && v.kind != VAL_DICT && v.kind != VAL_VIEW && v.kind != VAL_ITER &&
        v.kind != VAL_UNDEFINED)
        return quote(j, v, false, &b) && chat_sbuf_val(j, &b, out);
    if (v.kind == VAL_DICT) {
        v.kind = VAL_VIEW;
        v.sub = VIEW_ITEMS;
    }
    if (!chat_list_of(j, v, &items))
        return false;
    for (size_t i = 0; i < items.u.l->n; i++) {
        if (!chat_list_of(j, items.u.l->v[i], &pair))
            return false;
        if (pair.u.l->n != 2)
            return chat_raise(j, "urlencode wants pairs");
        if ((i > 0 && !chat_sbuf_add(j, &b, STR("&"), true)) || !quote(j, pair.u.l->v[0], true, &b) ||
            !chat_sbuf_add(j, &b, STR("="), true) || !quote(j, pair.u.l->v[1], true, &b))
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}

static bool xmlattr(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val space = chat_bool(true), text;
    struct sbuf b = { 0 };
    bool any = false;

    if (!chat_args(j, "xmlattr", a, "autospace", 0, &space))
        return false;
    if (v.kind != VAL_DICT)
        return v.kind == VAL_UNDEFINED ? chat_use_undefined(j, v) : chat_raise(j, "xmlattr wants a mapping");
    for (size_t i = 0; i < v.u.d->n; i++) {
        struct vpair *p = &v.u.d->v[i];
        if (p->v.kind == VAL_NONE || p->v.kind == VAL_UNDEFINED)
            continue;
        if (p->key.kind != VAL_STR)
            return chat_raise(j, "expected string or bytes-like object");
        for (size_t k = 0; k < p->key.u.s->n; k++)
            if (memchr(" \t\n\r\f\v/>=", p->key.u.s->p[k], 9) != NULL)
                return chat_raise(j, "Invalid character in attribute name");
        if (((any || chat_truth(&space)) && !chat_sbuf_add(j, &b, STR(" "), true)) || !chat_escape(j, p->key, &text) ||
            !chat_sbuf_str(j, &b, text.u.s) || !chat_sbuf_add(j, &b, STR("=\""), true) ||
            !chat_escape(j, p->v, &text) || !chat_sbuf_str(j, &b, text.u.s) || !chat_sbuf_add(j, &b, STR("\""), true))
            return false;
        any = true;
    }
    return chat_sbuf_val(j, &b, out);
}

/* ---- JSON ---- */
static bool tojson(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[4] = { chat_bool(false), chat_none(), chat_none(), chat_bool(false) }, indent;
    struct dump_style style = { .item = STR(", "), .key = STR(": ") };
    struct sbuf b = { 0 }, pad = { 0 };
    int64_t n;

    if (!chat_args(j, "tojson", a, "ensure_ascii indent separators sort_keys", 0, arg))
        return false;
    style.ascii = chat_truth(&arg[0]);
    style.sort = chat_truth(&arg[3]);
    if (arg[1].kind != VAL_NONE) {
        style.item = STR(",");
        if (arg[1].kind == VAL_STR) {
            indent = arg[1];
        } else if (!chat_index(j, arg[1], &n) || !chat_sbuf_fill(j, &pad, STR(" "), n, true) ||
                   !chat_sbuf_val(j, &pad, &indent)) {
            return false;
        }
        style.indent = indent.u.s;
    }
    if (arg[2].kind != VAL_NONE) {
        struct val pair;
        if (!chat_list_of(j, arg[2], &pair))
            return false;
        if (pair.u.l->n != 2 || pair.u.l->v[0].kind != VAL_STR || pair.u.l->v[1].kind != VAL_STR)
            return chat_raise(j, "separators are two strings");
        style.item = chat_str(&pair.u.l->v[0]);
        style.key = chat_str(&pair.u.l->v[1]);
    }
    return chat_json(j, &b, v, &style) && chat_sbuf_val(j, &b, out);
}

static bool filter_default(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val arg[2] = { chat_none(), chat_bool(false) };

    if (!chat_str_new(j, STR(""), true, &arg[0]) || !chat_args(j, "default", a, "default_value boolean", 0, arg))
        return false;
    *out = v.kind == VAL_UNDEFINED || (chat_truth(&arg[1]) && !chat_truth(&v)) ? arg[0] : v;
    return true;
}

static bool filter_format(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val s, args;

    if (a->n > 0 && a->n_kw > 0)
        return chat_raise(j, "can't handle positional and keyword arguments at the same time");
    if (!chat_to_str(j, v, &s))
        return false;
    if (a->n_kw > 0) {
        if (!chat_dict_new(j, &args))
            return false;
        for (int i = 0; i < a->n_kw; i++)
            if (!chat_dict_set(j, args.u.d, a->name[i], a->kw[i]))
                return false;
    } else {
        if (!chat_list_new(j, VAL_TUPLE, (size_t)a->n, &args))
            return false;
        for (int i = 0; i < a->n; i++)
            args.u.l->v[args.u.l->n++] = a->v[i];
    }
    return chat_percent(j, s.u.s, args, out);
}

static bool filter_center(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val s, arg = chat_int(80);
    int64_t width;

    return chat_to_str(j, v, &s) && chat_args(j, "center", a, "width", 0, &arg) && chat_index(j, arg, &width) &&
           chat_str_pad(j, s.u.s, width, STR(" "), 0, out);
}

static bool filter_trim(struct jin *j, struct val v, const struct args *a, struct val *out)
{
    struct val s, arg = chat_none();

    if (!chat_to_str(j, v, &s) || !chat_args(j, "trim", a, "chars", 0, &arg))
        return false;
    if (arg.kind != VAL_NONE && arg.kind != VAL_STR)
        return chat_raise(j, "strip arg must be None or str");
    return chat_str_strip(j, s.u.s, arg.kind == VAL_STR ? arg.u.s : NULL, true, true, out);
}

static bool filter_pprint(struct jin *j, struct val v, struct val *out)
{
    struct sbuf b = { 0 };

    if (v.kind == VAL_DICT || v.kind == VAL_LIST || v.kind == VAL_TUPLE || v.kind == VAL_STR)
        return chat_raise(j, "pprint is not supported");
    return chat_repr(j, &b, v) && chat_sbuf_val(j, &b, out);
}

static bool filter_capitalize(struct jin *j, const struct vstr *s, struct val *out)
{
    return chat_str_case(j, s, CASE_CAPITALIZE, out);
}

static bool filter_lower(struct jin *j, const struct vstr *s, struct val *out)
{
    return chat_str_case(j, s, CASE_LOWER, out);
}

static bool filter_upper(struct jin *j, const struct vstr *s, struct val *out)
{
    return chat_str_case(j, s, CASE_UPPER, out);
}

static bool filter_forceescape(struct jin *j, const struct vstr *s, struct val *out)
{
    struct val plain;

    return chat_str_part(j, s, 0, s->n, &plain) && chat_set_markup(&plain, false) && chat_escape(j, plain, out);
}

static bool filter_safe(struct jin *j, const struct vstr *s, struct val *out)
{
    return chat_str_part(j, s, 0, s->n, out) && chat_set_markup(out, true);
}

/* ---- the table ---- */
static const struct filter filters[] = {
    { "abs", .alone = filter_abs },
    { "capitalize", .text = filter_capitalize },
    { "center", .call = filter_center },
    { "d", .call = filter_default },
    { "default", .call = filter_default },
    { "e", .alone = chat_escape },
    { "escape", .alone = chat_escape },
    { "filesizeformat", .call = filesizeformat },
    { "float", .call = filter_float },
    { "forceescape", .text = filter_forceescape },
    { "format", .call = filter_format },
    { "indent", .call = filter_indent },
    { "int", .call = filter_int },
    { "lower", .text = filter_lower },
    { "pprint", .alone = filter_pprint },
    { "replace", .call = filter_replace },
    { "round", .call = filter_round },
    { "safe", .text = filter_safe },
    { "string", .alone = chat_to_str },
    { "striptags", .text = striptags },
    { "title", .text = filter_title },
    { "tojson", .call = tojson },
    { "trim", .call = filter_trim },
    { "truncate", .call = truncate },
    { "upper", .text = filter_upper },
    { "urlencode", .alone = urlencode },
    { "urlize", .refuses = "urlize is not supported" },
    { "wordcount", .text = wordcount },
    { "wordwrap", .call = wordwrap },
    { "xmlattr", .call = xmlattr },
};
enum { N_FILTERS = sizeof filters / sizeof *filters };

/* Filter `which`; past the last NULL. */
static const struct filter *filter_at(int which)
{
    return which < N_FILTERS ? &filters[which] : chat_filter_seq(which - N_FILTERS);
}

int chat_filter_find(struct str name)
{
    const struct filter *f;

    for (int i = 0; (f = filter_at(i)) != NULL; i++)
        if (str_is(name, f->name))
            return i;
    return -1;
}

static bool apply_filter(struct jin *j, const struct filter *f, struct val v, const struct args *a, struct val *out)
{
    struct val s;

    if (f->refuses != NULL)
        return chat_raise(j, "%s", f->refuses);
    if (f->call != NULL)
        return f->call(j, v, a, out);
    if (f->call_how != NULL)
        return f->call_how(j, v, a, f->how, out);
    if (!chat_args(j, "the filter", a, "", 0, NULL))
        return false;
    if (f->alone != NULL)
        return f->alone(j, v, out);
    return chat_to_str(j, v, &s) && f->text(j, s.u.s, out);
}

bool chat_filter(struct jin *j, int which, struct val v, const struct args *a, struct val *out)
{
    const bool ok = chat_enter(j) && apply_filter(j, filter_at(which), v, a, out);

    chat_leave(j);
    return ok;
}
