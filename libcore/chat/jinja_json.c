/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_json.c - JSON to values of a rendering.                                 room: chat
 *
 * A reader of its own beside jansson, because integers of any size are kept. Of two members with
 * one name the last counts, as in Python. Text read here is data: none of it is the template's.
 */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "chat/jinja.h"

enum { JSON_DEPTH_MAX = 64 };

struct reader {
    struct jin *j;
    const char *what;
    struct str s;
    size_t at;
    int depth;
};

static bool fail_json(struct reader *r, const char *why)
{
    int line = 1;
    size_t begin = 0;

    for (size_t i = 0; i < r->at && i < r->s.n; i++)
        if (r->s.p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    if (r->j->e != NULL && r->j->e->code == ERR_OK) {
        err_set(r->j->e, ERR_FORMAT, "%s: line %d, column %zu: %s", r->what, line, r->at - begin + 1, why);
        err_at(r->j->e, "%d:%zu", line, r->at - begin + 1);
    }
    return false;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->s.n && memchr(" \t\r\n", r->s.p[r->at], 4) != NULL)
        r->at++;
}

static bool took(struct reader *r, char c)
{
    skip_space(r);
    if (r->at >= r->s.n || r->s.p[r->at] != c)
        return false;
    r->at++;
    return true;
}

static int hex4(const char *p)
{
    int v = 0;

    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* The code point of \uXXXX, whose backslash is at `at`; surrogates come in pairs. */
static bool unicode(struct reader *r, uint32_t *cp)
{
    int hi = r->s.n - r->at >= 6 ? hex4(r->s.p + r->at + 2) : -1, lo;

    if (hi < 0)
        return fail_json(r, "a bad \\u");
    r->at += 6;
    *cp = (uint32_t)hi;
    if (hi < 0xD800 || hi > 0xDFFF)
        return true;
    lo = r->s.n - r->at >= 6 && r->s.p[r->at] == '\\' && r->s.p[r->at + 1] == 'u' ? hex4(r->s.p + r->at + 2) : -1;
    if (hi > 0xDBFF || lo < 0xDC00 || lo > 0xDFFF)
        return fail_json(r, "half of a surrogate pair");
    r->at += 6;
    *cp = 0x10000 + ((uint32_t)(hi - 0xD800) << 10) + (uint32_t)(lo - 0xDC00);
    return true;
}

/* A string after its first quote. Without escapes it stays where it is. */
static bool read_str(struct reader *r, struct val *out)
{
    size_t begin = r->at, n = 0;
    char *p = NULL;

    for (;;) {
        if (r->at >= r->s.n)
            return fail_json(r, "a string has no end");
        unsigned char c = (unsigned char)r->s.p[r->at];
        if (c == '"')
            break;
        if (c < 0x20)
            return fail_json(r, "a control character in a string");
        if (c != '\\') {
            size_t len = c < 0x80 ? 1 : str_utf8((struct str){ r->s.p + r->at, r->s.n - r->at });
            if (len == 0)
                return fail_json(r, "not valid UTF-8");
            if (p != NULL)
                memcpy(p + n, r->s.p + r->at, len);
            n += len;
            r->at += len;
            continue;
        }
        if (p == NULL) { /* a decoded string is not longer than its text */
            const char *end = memchr(r->s.p + r->at, '"', r->s.n - r->at);
            while (end != NULL && end[-1] == '\\') { /* perhaps too far: only room is lost */
                const char *next = memchr(end + 1, '"', r->s.n - (size_t)(end + 1 - r->s.p));
                end = next;
            }
            size_t room = end != NULL ? (size_t)(end - r->s.p) - begin : r->s.n - begin;
            if ((p = chat_take(r->j, room + 4)) == NULL)
                return false;
            memcpy(p, r->s.p + begin, n);
        }
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        char e = r->at + 1 < r->s.n ? r->s.p[r->at + 1] : 0;
        const char *which = e != 0 ? strchr(from, e) : NULL;
        if (which != NULL) {
            p[n++] = to[which - from];
            r->at += 2;
        } else if (e == 'u') {
            uint32_t cp = 0;
            if (!unicode(r, &cp))
                return false;
            n += str_utf8_put(p + n, cp);
        } else {
            return fail_json(r, "an unknown escape");
        }
    }
    r->at++;
    return chat_str_new(r->j, (struct str){ p != NULL ? p : r->s.p + begin, n }, false, out);
}

static size_t skip_digits(struct reader *r)
{
    size_t from = r->at;

    while (r->at < r->s.n && r->s.p[r->at] >= '0' && r->s.p[r->at] <= '9')
        r->at++;
    return r->at - from;
}

static bool read_number(struct reader *r, struct val *out)
{
    size_t from = r->at, whole;
    bool real = false;
    double d;

    if (r->s.p[r->at] == '-')
        r->at++;
    whole = r->at;
    if (skip_digits(r) == 0 || (r->s.p[whole] == '0' && r->at - whole > 1))
        return fail_json(r, "a bad number");
    if (r->at < r->s.n && r->s.p[r->at] == '.') {
        r->at++;
        real = true;
        if (skip_digits(r) == 0)
            return fail_json(r, "a bad number");
    }
    if (r->at < r->s.n && (r->s.p[r->at] | 32) == 'e') {
        r->at++;
        real = true;
        if (r->at < r->s.n && (r->s.p[r->at] == '+' || r->s.p[r->at] == '-'))
            r->at++;
        if (skip_digits(r) == 0)
            return fail_json(r, "a bad number");
    }
    struct str s = { r->s.p + from, r->at - from };
    if (!real)
        return chat_int_read(r->j, s, 10, out);
    if (!chat_float_read(s, &d))
        return fail_json(r, "a bad number");
    *out = chat_float(d);
    return true;
}

static bool read_any(struct reader *r, struct val *out);

static bool read_list(struct reader *r, struct val *out)
{
    struct val v;

    if (!chat_list_new(r->j, VAL_LIST, 0, out))
        return false;
    if (took(r, ']'))
        return true;
    do {
        if (!read_any(r, &v) || !chat_list_add(r->j, out->u.l, v))
            return false;
    } while (took(r, ','));
    return took(r, ']') || fail_json(r, "expected ',' or ']'");
}

static bool read_dict(struct reader *r, struct val *out)
{
    struct val key, v;

    if (!chat_dict_new(r->j, out))
        return false;
    if (took(r, '}'))
        return true;
    do {
        if (!took(r, '"'))
            return fail_json(r, "expected a name in quotes");
        if (!read_str(r, &key))
            return false;
        if (!took(r, ':'))
            return fail_json(r, "expected ':'");
        if (!read_any(r, &v) || !chat_dict_set(r->j, out->u.d, key, v))
            return false;
    } while (took(r, ','));
    return took(r, '}') || fail_json(r, "expected ',' or '}'");
}

static bool take_word(struct reader *r, const char *w)
{
    size_t n = strlen(w);

    if (r->s.n - r->at < n || memcmp(r->s.p + r->at, w, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool read_any(struct reader *r, struct val *out)
{
    bool ok;

    skip_space(r);
    if (r->at >= r->s.n)
        return fail_json(r, "the text ends where a value is expected");
    char c = r->s.p[r->at];
    if (c == '"') {
        r->at++;
        return read_str(r, out);
    }
    if (c == '{' || c == '[') {
        if (++r->depth > JSON_DEPTH_MAX)
            return fail_json(r, "nested too deep");
        r->at++;
        ok = c == '{' ? read_dict(r, out) : read_list(r, out);
        r->depth--;
        return ok;
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r, out);
    if (take_word(r, "true"))
        *out = chat_bool(true);
    else if (take_word(r, "false"))
        *out = chat_bool(false);
    else if (take_word(r, "null"))
        *out = chat_none();
    else
        return fail_json(r, "expected a value");
    return true;
}

bool chat_json_read(struct jin *j, struct str text, const char *what, struct val *out)
{
    struct reader r = { .j = j, .what = what, .s = text, .at = text.n - str_unmarked(text).n };

    if (!read_any(&r, out))
        return false;
    skip_space(&r);
    return r.at == text.n || fail_json(&r, "text after the value");
}

static bool object_value(struct jin *j, json_t *v, struct val *out)
{
    if (!chat_dict_new(j, out))
        return false;
    for (void *it = json_object_iter(v); it != NULL; it = json_object_iter_next(v, it)) {
        struct val key, one;
        if (!chat_str_new(j, str_of(json_object_iter_key(it)), false, &key) ||
            !chat_json_value(j, json_object_iter_value(it), &one) || !chat_dict_set(j, out->u.d, key, one))
            return false;
    }
    return true;
}

bool chat_json_value(struct jin *j, const struct json_t *v, struct val *out)
{
    bool ok = true;

    if (!chat_enter(j))
        return false;
    switch (v == NULL ? JSON_NULL : json_typeof(v)) {
    case JSON_OBJECT:
        ok = object_value(j, (json_t *)(uintptr_t)v, out);
        break;
    case JSON_ARRAY:
        ok = chat_list_new(j, VAL_LIST, json_array_size(v), out);
        for (size_t i = 0; ok && i < json_array_size(v); i++) {
            struct val one;
            ok = chat_json_value(j, json_array_get(v, i), &one) && chat_list_add(j, out->u.l, one);
        }
        break;
    case JSON_STRING:
        ok = chat_str_new(j, (struct str){ json_string_value(v), json_string_length(v) }, false, out);
        break;
    case JSON_INTEGER:
        *out = chat_int(json_integer_value(v));
        break;
    case JSON_REAL:
        *out = chat_float(json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = chat_bool(json_is_true(v));
        break;
    case JSON_NULL:
        *out = chat_none();
        break;
    }
    chat_leave(j);
    return ok;
}
