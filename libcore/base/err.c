/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - strings, errors as values, progress (base.h).                        room: base
 *
 * Messages quote what files and users say, so every message is cleaned on its way in: whatever
 * is not valid UTF-8 and every control character becomes '?'. A hostile tensor name can then
 * neither break the one-line rule nor send escape sequences to a terminal.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/base.h"

struct str str_of(const char *z)
{
    return (struct str){ z, strlen(z) };
}

bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

struct str str_unmarked(struct str s)
{
    const bool marked = s.n >= 3 && memcmp(s.p, "\xef\xbb\xbf", 3) == 0;

    return marked ? (struct str){ s.p + 3, s.n - 3 } : s;
}

/* The Unicode standard's table 3-7: the second byte's range depends on the first, which excludes
 * overlong forms, surrogates and code points above U+10FFFF. */
size_t str_utf8(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    if (s.n == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (s.n < len) {
        return 0;
    }
    unsigned lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < lo || p[1] > hi) {
        return 0;
    }
    for (size_t i = 2; i < len; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }
    return len;
}

uint32_t str_utf8_get(const char *p, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)*p;
    size_t k = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    uint32_t cp = k == 1 ? c : c & (0xFFU >> (k + 1));

    if (k > n)
        k = n;
    for (size_t i = 1; i < k; i++)
        cp = cp << 6 | ((unsigned char)p[i] & 0x3F);
    *len = k;
    return cp;
}

size_t str_utf8_put(char out[4], uint32_t cp)
{
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;

    if (n == 1) {
        out[0] = (char)cp;
        return 1;
    }
    for (size_t i = n; i-- > 1; cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00U >> n & 0xFF) | cp);
    return n;
}

size_t str_find(struct str s, size_t from, struct str part)
{
    while (from + part.n <= s.n) {
        const char *p = part.n > 0 ? memchr(s.p + from, part.p[0], s.n - part.n + 1 - from) : s.p + from;

        if (p == NULL)
            break;
        from = (size_t)(p - s.p);
        if (part.n == 0 || memcmp(p, part.p, part.n) == 0)
            return from;
        from++;
    }
    return SIZE_MAX;
}

bool str_has(struct str s, const char *z)
{
    return str_find(s, 0, str_of(z)) != SIZE_MAX;
}

static bool is_control(const char *p, size_t len)
{
    unsigned char a = (unsigned char)p[0];
    if (len == 1) {
        return a < 0x20 || a == 0x7f;
    }
    return len == 2 && a == 0xc2 && (unsigned char)p[1] < 0xa0; /* C1: U+0080..U+009F */
}

/* Cleaned text into out, cut between characters when it does not fit. */
static void store_text(char *out, size_t out_bytes, const char *text)
{
    struct str s = str_of(text);
    size_t n = 0;
    while (s.n > 0) {
        size_t len = str_utf8(s);
        bool keep = len > 0 && !is_control(s.p, len);
        size_t put = keep ? len : 1;
        if (n + put >= out_bytes) {
            break;
        }
        if (keep) {
            memcpy(out + n, s.p, len);
        } else {
            out[n] = '?';
        }
        n += put;
        size_t step = len > 0 ? len : 1;
        s.p += step;
        s.n -= step;
    }
    out[n] = '\0';
}

/* The text is formatted apart from e->msg because an argument may point into it. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (e == NULL) {
        return code;
    }
    char text[2 * sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->code = code;
    e->where[0] = '\0';
    store_text(e->msg, sizeof e->msg, n < 0 ? "message lost" : text);
    return code;
}

enum err_code err_nomem(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

enum err_code err_at(struct err *e, const char *fmt, ...)
{
    if (e == NULL) {
        return ERR_OK;
    }
    char text[4 * sizeof e->where];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, 2 * sizeof e->where, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : strlen(text);
    bool inside = text[0] == '/' && e->where[0] != '/'; /* a line of a text that is a string of the JSON */
    snprintf(text + at, sizeof text - at, "%s", inside ? "" : e->where);
    store_text(e->where, sizeof e->where, text);
    return e->code;
}

enum err_code err_copy(struct err *e, const struct err *from)
{
    if (e != NULL) {
        *e = *from;
    }
    return from->code;
}

enum err_code err_wrap(struct err *e, const char *fmt, ...)
{
    assert(e != NULL); /* without it there would be no code to return */
    char text[4 * sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, 2 * sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : strlen(text);
    snprintf(text + at, sizeof text - at, ": %s", e->msg);
    store_text(e->msg, sizeof e->msg, text);
    return e->code;
}

enum err_code err_errno(struct err *e, enum err_code code, int errnum, const char *fmt, ...)
{
    if (e == NULL) {
        return code;
    }
    char text[4 * sizeof e->msg];
    char why[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, 2 * sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : strlen(text);
    if (strerror_r(errnum, why, sizeof why) != 0) {
        snprintf(why, sizeof why, "error %d", errnum);
    }
    snprintf(text + at, sizeof text - at, ": %s", why);
    e->code = code;
    e->where[0] = '\0';
    store_text(e->msg, sizeof e->msg, text);
    return code;
}

bool progress_tick(const struct progress *p, uint64_t done, uint64_t total)
{
    return p == NULL || p->tick == NULL || p->tick(p->ctx, done, total);
}
