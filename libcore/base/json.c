/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - a thin layer over jansson (json.h).                                 room: base
 *
 * Depth is checked by one pass over the text before jansson, whose parser recurses, sees it. The
 * pass needs no grammar: outside strings, brackets are brackets in whatever order they come.
 */
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/memory.h"

enum { DEPTH_MAX = 64, TEXT_BYTES_MAX = 64 << 20, PLACE_BYTES = 400, NAME_BYTES_MAX = 64 };

/* "in.json: line 2, ", or where `what` is a line of a file itself, "in.jsonl: line 7, "; without `what` nothing. */
static const char *place_of(char buf[PLACE_BYTES], const char *what, size_t line)
{
    const char *at = strstr(what, "line "), *next;

    while (at != NULL && (next = strstr(at + 1, "line ")) != NULL) {
        at = next;
    }
    if (*what == '\0') {
        *buf = '\0';
    } else if (at != NULL && at[5] != '\0' && at[5 + strspn(at + 5, "0123456789")] == '\0') {
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

/* jansson reports a failed allocation as a mistake in the text. Its buffer for a token it takes to be longer after one,
 * and then reads and writes where nothing is. So while it parses, something is kept aside for that buffer, and all
 * else fails after the first failure, which ends the parsing. Its hook has no argument for whom it works, hence this
 * variable, which is of this thread. */
static _Thread_local struct {
    bool no_memory, ran_out, parses; /* ran_out: until it was told */
    void *kept;
} hook;

static void *note_malloc(size_t n)
{
    const bool buffer = hook.parses && n > 16 && (n & (n - 1)) == 0; /* it doubles */
    void *p = hook.parses && hook.no_memory && !buffer ? NULL : malloc(n);
    if (p == NULL && buffer && hook.kept != NULL) {
        hook.no_memory = true;
        free(hook.kept);
        hook.kept = NULL;
        p = malloc(n);
    }
    hook.no_memory = hook.no_memory || p == NULL;
    hook.ran_out = hook.ran_out || p == NULL;
    return p;
}

bool json_ran_out(void)
{
    const bool out = hook.ran_out;
    json_set_alloc_funcs(note_malloc, free);
    hook.ran_out = false;
    return out;
}

/* ---- what no value can hold ---- */

/* A text with numbers that the library's cannot hold, or halves of surrogate pairs, is copied with others in their
 * place. Numbers are rounded towards 0, so that the upper limit of a schema stays one, if a lower one than was meant by
 * less than 2^-52 of it. Where that would be another number than was said, the first place is noted. */
struct holding {
    struct str text;
    char *p; /* the copy */
    size_t n, room;
    int depth;
    struct level {
        bool object, key_next;
        size_t index;   /* of an array's item */
        struct str key; /* of an object's member */
    } level[DEPTH_MAX + 1];
    const char *lost; /* what is not as it was said; NULL: nothing */
    size_t lost_at;   /* in the text */
    char pointer[PLACE_BYTES];
    bool no_memory;
};

static void add_bytes(struct holding *h, const char *p, size_t n)
{
    if (h->no_memory || memory_room(&h->p, &h->room, h->n + n + 1, 1, NULL)) {
        h->no_memory = true;
        return;
    }
    memcpy(h->p + h->n, p, n);
    h->n += n;
    h->p[h->n] = '\0';
}

static void note_lost(struct holding *h, size_t at, const char *what)
{
    char key[PLACE_BYTES];
    size_t n = 0;
    if (h->lost != NULL) {
        return;
    }
    h->lost = what;
    h->lost_at = at;
    for (int i = 1; i <= h->depth; i++) {
        const struct level *l = &h->level[i];
        if (l->object) {
            snprintf(key, sizeof key, "%.*s", l->key.n < sizeof key ? (int)l->key.n : (int)sizeof key - 1, l->key.p);
        } else {
            snprintf(key, sizeof key, "%zu", l->index);
        }
        n = json_point_to(h->pointer, sizeof h->pointer, n, key);
    }
}

/* Whether the member's number is a limit of a schema that is kept as well when it is rounded towards 0, or only a
 * remark of one. */
static bool may_be_rounded(const struct holding *h, bool negative)
{
    static const char *const upper[] = { "maximum",  "exclusiveMaximum", "maxLength",
                                         "maxItems", "maxProperties",    "maxContains" };
    const struct level *l = &h->level[h->depth];
    if (h->depth == 0 || !l->object) {
        return false;
    }
    for (size_t i = 0; i < sizeof upper / sizeof upper[0]; i++) {
        if (!negative && str_is(l->key, upper[i])) {
            return true;
        }
    }
    return (negative && (str_is(l->key, "minimum") || str_is(l->key, "exclusiveMinimum"))) || str_is(l->key, "default");
}

/* The float next to a whole number, on the side of 0. */
static double round_whole(const char *digits)
{
    const bool negative = *digits == '-';
    const double x = strtod(digits, NULL);
    char exact[DBL_MAX_10_EXP + 3];
    if (isinf(x)) {
        return negative ? -DBL_MAX : DBL_MAX;
    }
    const int n = snprintf(exact, sizeof exact, "%.0f", fabs(x)), n_said = (int)strlen(digits + negative);
    const bool more = n != n_said ? n > n_said : memcmp(exact, digits + negative, (size_t)n) > 0;
    return more ? nextafter(x, 0) : x;
}

/* A number, and where it ends. */
static size_t copy_number(struct holding *h, size_t at)
{
    const size_t from = h->n;
    size_t end = at;
    bool whole = true, fits;
    char other[32];
    double x = 0;
    while (end < h->text.n && (isdigit((unsigned char)h->text.p[end]) || memchr("+-.eE", h->text.p[end], 5) != NULL)) {
        whole = whole && memchr(".eE", h->text.p[end], 3) == NULL;
        end++;
    }
    add_bytes(h, h->text.p + at, end - at);
    if (h->no_memory) {
        return end;
    }
    errno = 0;
    if (whole) {
        (void)strtoll(h->p + from, NULL, 10);
        fits = errno != ERANGE;
    } else {
        x = strtod(h->p + from, NULL);
        fits = !isinf(x);
    }
    if (fits) {
        return end;
    }
    if (!may_be_rounded(h, h->text.p[at] == '-')) {
        note_lost(h, at, whole ? "a whole number of more than 64 bits" : "a number that no float can hold");
    }
    x = whole ? round_whole(h->p + from) : x < 0 ? -DBL_MAX : DBL_MAX;
    h->n = from;
    add_bytes(h, other, (size_t)snprintf(other, sizeof other, "%.17g", x));
    return end;
}

/* The code unit of an escape such as \ud83d; -1: there is none. */
static long unit_at(struct str s, size_t at)
{
    char hex[5] = "";
    if (s.n < at + 6 || s.p[at] != '\\' || s.p[at + 1] != 'u') {
        return -1;
    }
    memcpy(hex, s.p + at + 2, 4);
    return strspn(hex, "0123456789abcdefABCDEF") == 4 ? strtol(hex, NULL, 16) : -1;
}

/* A string, and where its quote is that closes it. */
static size_t copy_string(struct holding *h, size_t at)
{
    const size_t end = end_of_string(h->text, at + 1), last = end < h->text.n ? end : h->text.n - 1;
    const struct str inner = { h->text.p, end };
    size_t done = at;
    struct level *l = &h->level[h->depth];
    if (h->depth > 0 && l->object && l->key_next) {
        l->key = (struct str){ h->text.p + at + 1, end - at - 1 };
        l->key_next = false;
    }
    for (size_t i = at + 1; i < end; i++) {
        const long unit = h->text.p[i] == '\\' ? unit_at(inner, i) : -1;
        const long next = unit >= 0xd800 && unit < 0xdc00 ? unit_at(inner, i + 6) : -1;
        if (unit >= 0xd800 && unit < 0xe000 && !(next >= 0xdc00 && next < 0xe000)) {
            note_lost(h, i, "half of a surrogate pair");
            add_bytes(h, h->text.p + done, i - done);
            add_bytes(h, "\\ufffd", 6);
            done = i + 6;
        }
        i += h->text.p[i] != '\\' ? 0 : unit < 0 ? 1 : next >= 0xdc00 && next < 0xe000 ? 11 : 5;
    }
    add_bytes(h, h->text.p + done, last + 1 - done);
    return last;
}

static void copy_held(struct holding *h)
{
    for (size_t i = 0; i < h->text.n && !h->no_memory; i++) {
        const char c = h->text.p[i];
        struct level *l = &h->level[h->depth];
        if (c == '"') {
            i = copy_string(h, i);
            continue;
        }
        if (c == '-' || isdigit((unsigned char)c)) {
            i = copy_number(h, i) - 1;
            continue;
        }
        add_bytes(h, &c, 1);
        if (c == ',') {
            l->index++;
            l->key_next = true;
        } else if (c == '{' || c == '[') {
            h->level[++h->depth] = (struct level){ .object = c == '{', .key_next = true };
        } else if ((c == '}' || c == ']') && h->depth > 0) {
            h->depth--;
        }
    }
}

static json_t *load(struct str text, size_t flags, json_error_t *why)
{
    json_t *value = NULL;
    hook.kept = malloc(4 * text.n + 64); /* more than a token's buffer and its copy of twice the size */
    hook.no_memory = hook.no_memory || hook.kept == NULL;
    hook.parses = true;
    if (!hook.no_memory) {
        value = json_loadb(text.n > 0 ? text.p : "", text.n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | flags, why);
    }
    hook.parses = false;
    free(hook.kept);
    hook.kept = NULL;
    return value;
}

static enum err_code fail_at(struct str text, size_t at, const char *what, const char *why, struct err *e)
{
    char where[PLACE_BYTES];
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++) {
        if (text.p[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    err_set(e, ERR_FORMAT, "%scolumn %zu: %s", place_of(where, what, line), at - start + 1, why);
    return err_at(e, "%zu:%zu", line, at - start + 1);
}

/* The value of a text that has something that no value can hold; untouched: it is wrong in other ways, too. of_client:
 * with the wrong value in its place. */
static enum err_code parse_held(json_t **out, struct str text, size_t flags, bool of_client, const char *what,
                                struct err *e)
{
    struct holding h = { .text = text };
    json_error_t why;
    json_t *value;
    enum err_code code = ERR_OK;
    copy_held(&h);
    hook.no_memory = hook.no_memory || h.no_memory;
    value = h.no_memory ? NULL : load((struct str){ h.p, h.n }, flags, &why);
    free(h.p);
    if (value != NULL && h.lost != NULL && of_client) {
        err_set(e, ERR_FORMAT, "%s%s%s%s%s", what, *what != '\0' ? ": " : "", h.pointer[0] != '\0' ? h.pointer + 1 : "",
                h.pointer[0] != '\0' ? ": " : "", h.lost);
        code = err_at(e, "%s", h.pointer);
    } else if (value != NULL && h.lost != NULL) {
        json_decref(value);
        return fail_at(text, h.lost_at, what, h.lost, e);
    }
    if (value != NULL) {
        *out = value;
    }
    return code;
}

static enum err_code parse(json_t **out, struct str text, size_t flags, bool of_client, const char *what, struct err *e)
{
    text = str_unmarked(text);
    enum err_code rc = check_depth(text, what, e);
    if (rc != ERR_OK) {
        return rc;
    }
    json_error_t why;
    json_set_alloc_funcs(note_malloc, free);
    hook.no_memory = false;
    json_t *value = load(text, flags, &why);
    if (value == NULL && !hook.no_memory &&
        (json_error_code(&why) == json_error_numeric_overflow || strncmp(why.text, "invalid Unicode", 15) == 0)) {
        rc = parse_held(&value, text, flags, of_client, what, e);
        if (rc != ERR_OK && !hook.no_memory) {
            *out = value != NULL ? value : *out;
            return rc;
        }
    }
    if (hook.no_memory) {
        json_decref(value);
        return err_set(e, ERR_NOMEM, "%s%sno memory", what, *what != '\0' ? ": " : "");
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

static enum err_code parse_short(json_t **out, struct str text, size_t flags, bool of_client, const char *what,
                                 struct err *e)
{
    if (text.n > TEXT_BYTES_MAX) {
        return err_set(e, ERR_LIMIT, "%s%slonger than %d MiB", what, *what != '\0' ? ": " : "", TEXT_BYTES_MAX >> 20);
    }
    return parse(out, text, flags, of_client, what, e);
}

enum err_code json_parse(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse_short(out, text, 0, false, what, e);
}

enum err_code json_parse_request(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse_short(out, text, JSON_ALLOW_NUL, true, what, e);
}

enum err_code json_parse_own(json_t **out, struct str text, const char *what, struct err *e)
{
    return parse(out, text, JSON_ALLOW_NUL, false, what, e);
}

struct str json_text(const json_t *v)
{
    return (struct str){ json_string_value(v), json_string_length(v) };
}

enum err_code json_begins(bool *whole, struct str text, struct err *e)
{
    struct err deep;
    json_error_t why;
    json_t *value;
    *whole = false;
    if (check_depth(text, "", &deep) != ERR_OK) {
        return ERR_OK;
    }
    json_set_alloc_funcs(note_malloc, free);
    hook.no_memory = false;
    value = load(text, JSON_DISABLE_EOF_CHECK, &why);
    *whole = value != NULL;
    json_decref(value);
    return hook.no_memory ? err_nomem(e) : ERR_OK;
}

bool json_get_str(const json_t *object, const char *key, struct str *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        return false;
    }
    *out = json_text(value);
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

char *json_dump(const json_t *v, size_t flags)
{
    json_set_alloc_funcs(note_malloc, free);
    hook.no_memory = false;
    char *text = json_dumps(v, flags);
    if (hook.no_memory) { /* the library leaves out a key for which there was none */
        free(text);
        return NULL;
    }
    return text;
}

char *json_line(const json_t *v)
{
    char *text = json_dump(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    size_t n_ends = 0, n;
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

json_t *json_shallow(const json_t *v)
{
    json_t *from = (json_t *)(uintptr_t)v, *to = json_is_array(v) ? json_array() : json_object();
    return json_if((json_is_array(v) ? json_array_extend(to, from) : json_object_update(to, from)) == 0, to);
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

bool json_is_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return false;
    }
    return s.n > 0 && s.n <= NAME_BYTES_MAX;
}

enum err_code json_check_members(const json_t *o, const char *known, struct err *e)
{
    char pointer[200], name[80];
    const char *key;
    json_t *v;

    if (!json_is_object(o))
        return err_set(e, ERR_FORMAT, "is not an object");
    json_object_foreach ((json_t *)(uintptr_t)o, key, v) {
        (void)snprintf(name, sizeof name, " %.70s ", key);
        if (strstr(known, name) != NULL && strchr(key, ' ') == NULL)
            continue;
        pointer[json_point_to(pointer, sizeof pointer - 1, 0, key)] = '\0';
        err_set(e, ERR_FORMAT, "there is no such member:%s", known);
        return err_at(e, "%s", pointer);
    }
    return ERR_OK;
}

enum err_code json_member_fault(struct err *e, const char *key, const char *why)
{
    err_set(e, ERR_FORMAT, "%s", why);
    return err_at(e, "/%s", key);
}
