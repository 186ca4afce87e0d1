/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - a thin layer over jansson (json.h).                                 room: base
 *
 * Depth is checked by one pass over the text before jansson, whose parser recurses, sees it. The
 * pass needs no grammar: outside strings, brackets are brackets in whatever order they come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

enum { DEPTH_MAX = 64, TEXT_BYTES_MAX = 64 << 20, PLACE_BYTES = 400 };

/* "in.json: line 2, ", or where `what` is a line of a file itself, "in.jsonl: line 7, ". */
static const char *place_of(char buf[PLACE_BYTES], const char *what, size_t line)
{
    const char *at = strstr(what, "line "), *next;

    while (at != NULL && (next = strstr(at + 1, "line ")) != NULL) {
        at = next;
    }
    if (at != NULL && at[5] != '\0' && at[5 + strspn(at + 5, "0123456789")] == '\0') {
        snprintf(buf, PLACE_BYTES, "%s, ", what);
    } else {
        snprintf(buf, PLACE_BYTES, "%s: line %zu, ", what, line);
    }
    return buf;
}

/* Where the string that begins at `from` has its closing quote; the text's end: nowhere. */
static size_t end_of_string(struct str text, size_t from)
{
    for (size_t at = from; at < text.n;) {
        const char *quote = memchr(text.p + at, '"', text.n - at);
        size_t end = quote != NULL ? (size_t)(quote - text.p) : text.n;
        size_t slashes = 0;
        while (end - slashes > from && text.p[end - slashes - 1] == '\\') {
            slashes++;
        }
        if (quote == NULL || slashes % 2 == 0) {
            return end;
        }
        at = end + 1;
    }
    return text.n;
}

static enum err_code check_depth(struct str text, const char *what, struct err *e)
{
    char where[PLACE_BYTES];
    int depth = 0;
    size_t line = 1, line_start = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '\n') {
            line++;
            line_start = i + 1;
        } else if (c == '"') {
            i = end_of_string(text, i + 1);
        } else if (c == '[' || c == '{') {
            if (++depth > DEPTH_MAX) {
                err_set(e, ERR_FORMAT, "%scolumn %zu: nested deeper than %d", place_of(where, what, line),
                        i - line_start + 1, DEPTH_MAX);
                err_at(e, "%zu:%zu", line, i - line_start + 1);
                return ERR_FORMAT;
            }
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return ERR_OK;
}

/* jansson reports a failed allocation as a mistake in the text, or cuts a string or number short without a word. Its
 * hook has no argument for whom it works, hence the flag, which is of this thread. */
static _Thread_local bool no_memory;

static void *note_malloc(size_t n)
{
    void *p = malloc(n);
    no_memory = no_memory || p == NULL;
    return p;
}

static enum err_code parse(json_t **out, struct str text, size_t flags, const char *what, struct err *e)
{
    if (text.n >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark says nothing about UTF-8 */
        text = (struct str){ text.p + 3, text.n - 3 };
    }
    enum err_code rc = check_depth(text, what, e);
    if (rc != ERR_OK) {
        return rc;
    }
    json_error_t why;
    json_set_alloc_funcs(note_malloc, free);
    no_memory = false;
    json_t *value =
        json_loadb(text.n > 0 ? text.p : "", text.n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | flags, &why);
    if (no_memory) {
        json_decref(value);
        return err_set(e, ERR_NOMEM, "%s: no memory", what);
    }
    if (value == NULL) {
        /* what the library says of it names its own flag */
        char where[PLACE_BYTES];
        bool nul = json_error_code(&why) == json_error_null_character;
        err_set(e, ERR_FORMAT, "%scolumn %d: %s", place_of(where, what, (size_t)why.line), why.column,
                nul ? "\\u0000 is not allowed" : why.text);
        err_at(e, "%d:%d", why.line, why.column);
        return ERR_FORMAT;
    }
    *out = value;
    return ERR_OK;
}

static enum err_code parse_short(json_t **out, struct str text, size_t flags, const char *what, struct err *e)
{
    if (text.n > TEXT_BYTES_MAX) {
        return err_set(e, ERR_LIMIT, "%s: longer than %d MiB", what, TEXT_BYTES_MAX >> 20);
    }
    return parse(out, text, flags, what, e);
}

enum err_code json_parse(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse_short(out, text, 0, what, e);
}

enum err_code json_parse_nul(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse_short(out, text, JSON_ALLOW_NUL, what, e);
}

enum err_code json_parse_own(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse(out, text, JSON_ALLOW_NUL, what, e);
}

bool json_get_str(const json_t *object, const char *key, struct str *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        return false;
    }
    *out = (struct str){ json_string_value(value), json_string_length(value) };
    return true;
}

json_t *json_bytes(struct str s)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    const size_t n_replacement = sizeof replacement - 1;
    if (s.n > (SIZE_MAX - 1) / n_replacement) {
        return NULL;
    }
    char *buf = malloc(s.n * n_replacement + 1);
    if (buf == NULL) {
        return NULL;
    }
    size_t n = 0;
    while (s.n > 0) {
        size_t len = str_utf8(s);
        if (len > 0) {
            memcpy(buf + n, s.p, len);
            n += len;
        } else {
            memcpy(buf + n, replacement, n_replacement);
            n += n_replacement;
            len = 1;
        }
        s.p += len;
        s.n -= len;
    }
    json_t *value = json_stringn_nocheck(buf, n);
    free(buf);
    return value;
}

/* The escape of a character that ends a line for some readers, and its length in UTF-8; NULL: p is none. */
static const char *line_end_escape(const char *p, size_t *n)
{
    *n = 3;
    if (p[0] == '\xe2' && p[1] == '\x80' && (p[2] == '\xa8' || p[2] == '\xa9')) {
        return p[2] == '\xa8' ? "\\u2028" : "\\u2029";
    }
    *n = 2;
    return p[0] == '\xc2' && p[1] == '\x85' ? "\\u0085" : NULL;
}

char *json_line(const json_t *v)
{
    json_set_alloc_funcs(note_malloc, free);
    no_memory = false;
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    size_t n_ends = 0, n;
    if (no_memory) { /* the library leaves out a key for which there was none */
        free(text);
        return NULL;
    }
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        n_ends += line_end_escape(p, &n) != NULL;
    }
    if (n_ends == 0) {
        return text;
    }
    char *escaped = malloc(strlen(text) + 4 * n_ends + 1), *to = escaped; /* 6 bytes for 2 or 3 */
    for (const char *p = text; escaped != NULL && *p != '\0';) {
        const char *escape = line_end_escape(p, &n);
        if (escape != NULL) {
            memcpy(to, escape, 6);
            to += 6;
            p += n;
        } else {
            *to++ = *p++;
        }
    }
    if (escaped != NULL) {
        *to = '\0';
    }
    free(text);
    return escaped;
}

json_t *json_if(bool ok, json_t *o)
{
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

void json_push(json_t **list, json_t *v)
{
    *list = json_if(json_array_append_new(*list, v) == 0, *list);
}

size_t json_point_to(char *pointer, size_t room, size_t n, const char *key)
{
    if (n + 1 < room) {
        pointer[n++] = '/';
    }
    for (; *key != '\0' && n + 3 < room; key++) {
        if (*key == '~' || *key == '/') {
            pointer[n++] = '~';
            pointer[n++] = *key == '~' ? '0' : '1';
        } else {
            pointer[n++] = *key;
        }
    }
    pointer[n] = '\0';
    return n;
}
