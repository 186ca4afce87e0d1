/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_print.c - values as text: str(), repr() and json.dumps().               room: chat */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

static bool add_text(struct jin *j, struct sbuf *b, const char *z)
{
    return chat_sbuf_add(j, b, str_of(z), true);
}

/* The fewest digits that read back as d; an exponent below 1e-4 and from 1e16 on. */
size_t chat_double_text(double d, char out[40])
{
    char buf[40], digits[24];
    int prec, n = 0, k = 0;

    if (isnan(d) || isinf(d))
        return (size_t)snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
    for (prec = fabs(d) < 1e-300 ? 0 : 14; prec < 17; prec++) { /* 15 digits survive, but not near the smallest */
        snprintf(buf, sizeof buf, "%.*e", prec, fabs(d));
        if (strtod(buf, NULL) == fabs(d))
            break;
    }
    char *exponent = strchr(buf, 'e');
    long e10 = strtol(exponent + 1, NULL, 10);
    for (const char *p = buf; p < exponent; p++)
        if (*p >= '0' && *p <= '9')
            digits[k++] = *p;
    while (k > 1 && digits[k - 1] == '0')
        k--;
    if (signbit(d))
        out[n++] = '-';
    if (e10 < -4 || e10 >= 16) {
        out[n++] = digits[0];
        if (k > 1)
            out[n++] = '.';
        for (int i = 1; i < k; i++)
            out[n++] = digits[i];
        return (size_t)(n + snprintf(out + n, (size_t)(40 - n), "e%c%02ld", e10 < 0 ? '-' : '+', labs(e10)));
    }
    for (long at = e10 < 0 ? e10 : 0; at < k || at <= e10 + 1; at++) {
        if (at == e10 + 1)
            out[n++] = '.';
        out[n++] = at < 0 || at >= k ? '0' : digits[at];
    }
    return (size_t)n;
}

static bool add_number(struct jin *j, struct sbuf *b, struct val v)
{
    char buf[40], *p = buf;
    size_t n;

    if (v.kind == VAL_FLOAT)
        n = chat_double_text(v.u.f, buf);
    else if (v.kind == VAL_INT)
        n = (size_t)snprintf(buf, sizeof buf, "%lld", (long long)v.u.i);
    else if (!chat_int_text(j, v, 10, &p, &n))
        return false;
    return chat_sbuf_add(j, b, (struct str){ p, n }, true);
}

static bool repr_str(struct jin *j, struct sbuf *b, const struct vstr *s)
{
    bool single = memchr(s->p, '\'', s->n) != NULL, both = single && memchr(s->p, '"', s->n) != NULL;
    char quote[2] = { single && !both ? '"' : '\'', 0 }, esc[16];
    size_t begin = 0, len;

    if (!add_text(j, b, s->markup ? "Markup(" : "") || !add_text(j, b, quote))
        return false;
    for (size_t i = 0; i < s->n; i += len) {
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        if (cp == (unsigned char)quote[0] || cp == '\\')
            snprintf(esc, sizeof esc, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (cp < 0x20 || cp == 0x7F || (cp >= 0x80 && !(chat_cp_flags(cp) & UNI_PRINT)))
            snprintf(esc, sizeof esc, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        else
            continue;
        if (!chat_sbuf_part(j, b, s, begin, i) || !add_text(j, b, esc))
            return false;
        begin = i + len;
    }
    return chat_sbuf_part(j, b, s, begin, s->n) && add_text(j, b, quote) && add_text(j, b, s->markup ? ")" : "");
}

static bool repr_bytes(struct jin *j, struct sbuf *b, const struct vstr *s)
{
    bool single = memchr(s->p, '\'', s->n) != NULL, both = single && memchr(s->p, '"', s->n) != NULL;
    char quote = single && !both ? '"' : '\'', out[8];

    if (!add_text(j, b, quote == '"' ? "b\"" : "b'"))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        if (c == (unsigned char)quote || c == '\\')
            snprintf(out, sizeof out, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(out, sizeof out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else
            snprintf(out, sizeof out, c < 0x20 || c >= 0x7F ? "\\x%02x" : "%c", c);
        if (!chat_sbuf_add(j, b, str_of(out), s->ours))
            return false;
    }
    return add_text(j, b, quote == '"' ? "\"" : "'");
}

static bool repr_items(struct jin *j, struct sbuf *b, const struct vlist *l)
{
    for (size_t i = 0; i < l->n; i++)
        if ((i > 0 && !add_text(j, b, ", ")) || !chat_repr(j, b, l->v[i]))
            return false;
    return true;
}

static bool repr_dict(struct jin *j, struct sbuf *b, const struct vdict *d)
{
    if (!add_text(j, b, "{"))
        return false;
    for (size_t i = 0; i < d->n; i++)
        if ((i > 0 && !add_text(j, b, ", ")) || !chat_repr(j, b, d->v[i].key) || !add_text(j, b, ": ") ||
            !chat_repr(j, b, d->v[i].v))
            return false;
    return add_text(j, b, "}");
}

static bool repr_view(struct jin *j, struct sbuf *b, const struct val *v)
{
    const struct vdict *d = v->u.d;

    if (!add_text(j, b, chat_type(v)) || !add_text(j, b, "(["))
        return false;
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0 && !add_text(j, b, ", "))
            return false;
        if (v->sub == VIEW_ITEMS) {
            if (!add_text(j, b, "(") || !chat_repr(j, b, d->v[i].key) || !add_text(j, b, ", ") ||
                !chat_repr(j, b, d->v[i].v) || !add_text(j, b, ")"))
                return false;
        } else if (!chat_repr(j, b, v->sub == VIEW_KEYS ? d->v[i].key : d->v[i].v)) {
            return false;
        }
    }
    return add_text(j, b, "])");
}

static bool repr_loop(struct jin *j, struct sbuf *b, struct vloop *lo)
{
    char buf[64];
    int64_t n;

    if (!chat_len(j, (struct val){ .kind = VAL_LOOP, .u.lo = lo }, &n))
        return false;
    snprintf(buf, sizeof buf, "<LoopContext %lld/%lld>", (long long)lo->index0 + 1, (long long)n);
    return add_text(j, b, buf);
}

static bool repr_range(struct jin *j, struct sbuf *b, const struct vrange *r)
{
    char buf[80];

    if (r->step == 1)
        snprintf(buf, sizeof buf, "range(%lld, %lld)", (long long)r->start, (long long)r->stop);
    else
        snprintf(buf, sizeof buf, "range(%lld, %lld, %lld)", (long long)r->start, (long long)r->stop,
                 (long long)r->step);
    return add_text(j, b, buf);
}

static bool repr_one(struct jin *j, struct sbuf *b, struct val v)
{
    switch (v.kind) {
    case VAL_UNDEFINED:
        return add_text(j, b, "Undefined");
    case VAL_NONE:
        return add_text(j, b, "None");
    case VAL_BOOL:
        return add_text(j, b, v.u.b ? "True" : "False");
    case VAL_INT:
    case VAL_BIG:
    case VAL_FLOAT:
        return add_number(j, b, v);
    case VAL_STR:
        return repr_str(j, b, v.u.s);
    case VAL_BYTES:
        return repr_bytes(j, b, v.u.s);
    case VAL_LIST:
        return add_text(j, b, "[") && repr_items(j, b, v.u.l) && add_text(j, b, "]");
    case VAL_TUPLE:
        return add_text(j, b, "(") && repr_items(j, b, v.u.l) && add_text(j, b, v.u.l->n == 1 ? ",)" : ")");
    case VAL_DICT:
        return repr_dict(j, b, v.u.d);
    case VAL_VIEW:
        return repr_view(j, b, &v);
    case VAL_RANGE:
        return repr_range(j, b, v.u.r);
    case VAL_SPACE:
        return add_text(j, b, "<Namespace ") && repr_dict(j, b, v.u.d) && add_text(j, b, ">");
    case VAL_MACRO:
        return add_text(j, b, "<Macro ") &&
               (v.u.m->node->v.kind == VAL_STR ? repr_str(j, b, v.u.m->node->v.u.s) : add_text(j, b, "anonymous")) &&
               add_text(j, b, ">");
    case VAL_LOOP:
        return repr_loop(j, b, v.u.lo);
    case VAL_SELF:
        return add_text(j, b, "<TemplateReference None>");
    default: /* Python prints an address */
        return chat_raise(j, "a %s cannot be printed", chat_type(&v));
    }
}

bool chat_repr(struct jin *j, struct sbuf *b, struct val v)
{
    if (!chat_enter(j) || !repr_one(j, b, v))
        return false;
    chat_leave(j);
    return true;
}

bool chat_print(struct jin *j, struct sbuf *b, struct val v)
{
    if (v.kind == VAL_STR)
        return chat_sbuf_str(j, b, v.u.s);
    return v.kind == VAL_UNDEFINED || chat_repr(j, b, v);
}

bool chat_to_str(struct jin *j, struct val v, struct val *out)
{
    struct sbuf b = { 0 };

    if (v.kind == VAL_STR) {
        *out = v;
        return true;
    }
    return chat_print(j, &b, v) && chat_sbuf_val(j, &b, out);
}

/* ---- JSON ---- */
static bool json_str(struct jin *j, struct sbuf *b, const struct vstr *s, bool ascii)
{
    size_t begin = 0, len;
    char esc[16];

    if (!add_text(j, b, "\""))
        return false;
    for (size_t i = 0; i < s->n; i += len) {
        unsigned char c = (unsigned char)s->p[i];
        len = 1;
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !ascii))
            continue;
        const char *brief = c == '"'    ? "\\\""
                            : c == '\\' ? "\\\\"
                            : c == '\n' ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\b' ? "\\b"
                            : c == '\f' ? "\\f"
                                        : NULL;
        uint32_t cp = str_utf8_get(s->p + i, s->n - i, &len);
        if (brief != NULL)
            snprintf(esc, sizeof esc, "%s", brief);
        else if (cp < 0x10000)
            snprintf(esc, sizeof esc, "\\u%04x", cp);
        else
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
        if (!chat_sbuf_part(j, b, s, begin, i) || !add_text(j, b, esc))
            return false;
        begin = i + len;
    }
    return chat_sbuf_part(j, b, s, begin, s->n) && add_text(j, b, "\"");
}

static bool json_break(struct jin *j, struct sbuf *b, const struct dump_style *y, int level)
{
    if (y->indent == NULL)
        return true;
    if (!add_text(j, b, "\n"))
        return false;
    return chat_sbuf_fill(j, b, (struct str){ y->indent->p, y->indent->n }, level, y->indent->ours);
}

static bool json_any(struct jin *j, struct sbuf *b, struct val v, const struct dump_style *y, int level);

static bool json_key(struct jin *j, struct sbuf *b, struct val key, const struct dump_style *y)
{
    if (key.kind == VAL_STR)
        return json_str(j, b, key.u.s, y->ascii);
    if (key.kind == VAL_NONE || chat_is_num(&key))
        return add_text(j, b, "\"") && json_any(j, b, key, y, 0) && add_text(j, b, "\"");
    return chat_raise(j, "keys must be str, int, float, bool or None, not %s", chat_type(&key));
}

/* Members in the order of their keys; Python refuses to compare keys of unlike types. */
static bool sorted(struct jin *j, const struct vdict *d, struct vpair **out)
{
    struct vpair *v = chat_take_array(j, d->n + 1, sizeof *v);

    if (v == NULL || !chat_work(j, (int64_t)(d->n * d->n / 4)))
        return false;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = i;
        for (bool less; at > 0; at--) {
            if (!chat_less(j, d->v[i].key, v[at - 1].key, "<", &less))
                return false;
            if (!less)
                break;
            v[at] = v[at - 1];
        }
        v[at] = d->v[i];
    }
    *out = v;
    return true;
}

static bool json_dict(struct jin *j, struct sbuf *b, const struct vdict *d, const struct dump_style *y, int level)
{
    struct vpair *v = d->v;

    if (d->n == 0)
        return add_text(j, b, "{}");
    if ((y->sort && !sorted(j, d, &v)) || !add_text(j, b, "{"))
        return false;
    for (size_t i = 0; i < d->n; i++)
        if ((i > 0 && !chat_sbuf_add(j, b, y->item, true)) || !json_break(j, b, y, level + 1) ||
            !json_key(j, b, v[i].key, y) || !chat_sbuf_add(j, b, y->key, true) || !json_any(j, b, v[i].v, y, level + 1))
            return false;
    return json_break(j, b, y, level) && add_text(j, b, "}");
}

static bool json_list(struct jin *j, struct sbuf *b, const struct vlist *l, const struct dump_style *y, int level)
{
    if (l->n == 0)
        return add_text(j, b, "[]");
    if (!add_text(j, b, "["))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i > 0 && !chat_sbuf_add(j, b, y->item, true)) || !json_break(j, b, y, level + 1) ||
            !json_any(j, b, l->v[i], y, level + 1))
            return false;
    return json_break(j, b, y, level) && add_text(j, b, "]");
}

static bool json_one(struct jin *j, struct sbuf *b, struct val v, const struct dump_style *y, int level)
{
    switch (v.kind) {
    case VAL_NONE:
        return add_text(j, b, "null");
    case VAL_BOOL:
        return add_text(j, b, v.u.b ? "true" : "false");
    case VAL_FLOAT:
        if (isnan(v.u.f) || isinf(v.u.f))
            return add_text(j, b, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity");
        return add_number(j, b, v);
    case VAL_INT:
    case VAL_BIG:
        return add_number(j, b, v);
    case VAL_STR:
        return json_str(j, b, v.u.s, y->ascii);
    case VAL_LIST:
    case VAL_TUPLE:
        return json_list(j, b, v.u.l, y, level);
    case VAL_DICT:
        return json_dict(j, b, v.u.d, y, level);
    default:
        return chat_raise(j, "Object of type %s is not JSON serializable", chat_type(&v));
    }
}

static bool json_any(struct jin *j, struct sbuf *b, struct val v, const struct dump_style *y, int level)
{
    if (!chat_enter(j) || !json_one(j, b, v, y, level))
        return false;
    chat_leave(j);
    return true;
}

bool chat_json(struct jin *j, struct sbuf *b, struct val v, const struct dump_style *style)
{
    return json_any(j, b, v, style, 0);
}
