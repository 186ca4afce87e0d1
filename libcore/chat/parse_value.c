/* SPDX-License-Identifier: Apache-2.0 */
/* parse_value.c - values that models write, in JSON or in Python, as JSON.            room: chat
 *
 * JSON is RFC 8259's, read strictly. Python's literals add single quotes, its escapes, tuples, a
 * comma at the end, and True, False, None; and newlines within strings, which Python refuses and
 * models and their templates write. Numbers keep their digits: none is ever converted.
 */
#include <stdio.h>
#include <string.h>
#include "chat/parse.h"

bool chat_parse_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

void chat_parse_trim(struct str *s)
{
    while (s->n > 0 && chat_parse_is_space(s->p[0])) {
        s->p++;
        s->n--;
    }
    while (s->n > 0 && chat_parse_is_space(s->p[s->n - 1]))
        s->n--;
}

/* ---- the end of a value ---- */

void chat_parse_scan_begin(struct chat_scan *s, bool python)
{
    s->depth = 0;
    s->quote = 0;
    s->escape = false;
    s->python = python;
    s->inner = 0;
}

static bool outside_of_strings(const struct chat_scan *s, char c)
{
    static const char json[] = "{}[]:,+-.", python[] = "()=_";

    return chat_parse_is_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr(json, c) != NULL) ||
           (s->python && c != '\0' && (strchr(python, c) != NULL || (unsigned char)c >= 0x80));
}

/* A byte within a string. False: it may not be there. */
static bool scan_quoted(struct chat_scan *s, char c)
{
    if ((unsigned char)c < 0x20 && !s->python)
        return false;
    if (s->escape)
        s->escape = false;
    else if (c == '\\')
        s->escape = true;
    else if (c == s->quote)
        s->quote = 0;
    return true;
}

enum chat_step chat_parse_scan(struct chat_scan *s, struct str text, size_t *at)
{
    for (; *at < text.n; ++*at) {
        char c = text.p[*at];
        if (s->quote != 0) {
            if (!scan_quoted(s, c))
                return CHAT_BAD;
        } else if (c == '"' || (c == '\'' && s->python)) {
            s->quote = c;
        } else if (!outside_of_strings(s, c)) {
            return CHAT_BAD;
        } else if (c == '{' || c == '[' || c == '(') {
            if (s->depth == CHAT_DEPTH_MAX)
                return CHAT_BAD;
            s->close[s->depth++] = c == '{' ? '}' : c == '[' ? ']' : ')';
            if (s->depth == 2 && s->inner == 0)
                s->inner = *at;
        } else if (c == '}' || c == ']' || c == ')') {
            if (s->depth == 0 || s->close[s->depth - 1] != c)
                return CHAT_BAD;
            if (--s->depth == 0) {
                ++*at;
                return CHAT_DONE;
            }
        }
    }
    return CHAT_MORE;
}

/* ---- strings ---- */

static void put_char(struct text_buf *out, uint32_t c, bool as_json)
{
    char b[16];

    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        c = 0xFFFD;
    if (as_json && (c < 0x20 || c == '"' || c == '\\')) {
        const char *brief = c == '"'    ? "\\\""
                            : c == '\\' ? "\\\\"
                            : c == '\n' ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\b' ? "\\b"
                            : c == '\f' ? "\\f"
                                        : NULL;
        (void)snprintf(b, sizeof b, "\\u%04x", (unsigned)c);
        text_buf_addz(out, brief != NULL ? brief : b);
        return;
    }
    text_buf_add(out, (struct str){ b, str_utf8_put(b, c) });
}

void chat_parse_quote_part(struct text_buf *out, struct str s)
{
    size_t begin = 0;

    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        text_buf_add(out, (struct str){ s.p + begin, i - begin });
        put_char(out, c, true);
        begin = i + 1;
    }
    text_buf_add(out, (struct str){ s.p + begin, s.n - begin });
}

void chat_parse_quote(struct text_buf *out, struct str s)
{
    text_buf_addz(out, "\"");
    chat_parse_quote_part(out, s);
    text_buf_addz(out, "\"");
}

static void skip_bytes(struct str *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

/* n_min to n_max digits off the front of s, in base 8 or 16. */
static bool take_digits(struct str *s, int base, int n_min, int n_max, uint32_t *out)
{
    uint32_t v = 0;
    int n = 0;

    for (; n < n_max && s->n > 0; n++, skip_bytes(s, 1)) {
        char c = s->p[0];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 16;
        if (d >= base)
            break;
        v = v * (uint32_t)base + (uint32_t)d;
    }
    *out = v;
    return n >= n_min;
}

/* What follows \u: one code point of one or two escapes. Half of a pair becomes U+FFFD. */
static bool take_u(struct str *s, uint32_t *out)
{
    uint32_t low;

    if (!take_digits(s, 16, 4, 4, out))
        return false;
    if (*out >= 0xD800 && *out < 0xDC00 && s->n >= 6 && s->p[0] == '\\' && s->p[1] == 'u') {
        struct str next = { s->p + 2, s->n - 2 };
        if (take_digits(&next, 16, 4, 4, &low) && low >= 0xDC00 && low < 0xE000) {
            *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
            *s = next;
        }
    }
    return true;
}

/* What follows a backslash, added to out. */
static bool take_escape(struct text_buf *out, struct str *s, unsigned syntax, bool as_json)
{
    static const char from[] = "\"\\bfnrt/'av", to[] = "\"\\\b\f\n\r\t/'\a\v";
    const bool python = (syntax & CHAT_PYTHON) == CHAT_PYTHON;
    const char c = s->n > 0 ? s->p[0] : '\0', *known;
    uint32_t v;

    if (c == '\0' || c == 'N')
        return false;
    if (python && c >= '0' && c <= '7') {
        if (!take_digits(s, 8, 1, 3, &v))
            return false;
        put_char(out, v, as_json);
        return true;
    }
    skip_bytes(s, 1);
    if (c == 'u' || (python && (c == 'x' || c == 'U'))) {
        int n = c == 'x' ? 2 : 8;
        if (!(c == 'u' ? take_u(s, &v) : take_digits(s, 16, n, n, &v)))
            return false;
        put_char(out, v, as_json);
        return true;
    }
    known = strchr(from, c);
    if (python && c == '\n')
        return true;
    if (known != NULL && (python ? c != '/' : known - from < 8)) {
        put_char(out, (unsigned char)to[known - from], as_json);
        return true;
    }
    if (!python)
        return false;
    put_char(out, '\\', as_json); /* Python keeps the backslash of an escape that is none */
    s->p--;
    s->n++;
    return true;
}

/* How many bytes an escape needs, from its backslash on, so that what follows cannot change it. */
static size_t escape_bytes(struct str s, bool python)
{
    const char c = s.n > 1 ? s.p[1] : '\0';

    if (c == 'u')
        return s.n >= 6 && (s.p[2] == 'd' || s.p[2] == 'D') && strchr("89abAB", s.p[3]) != NULL ? 12 : 6;
    if (python && ((c >= '0' && c <= '7') || c == 'x'))
        return 4;
    return python && c == 'U' ? 10 : 2;
}

/* What s has of the inside of a string, and its quote: CHAT_DONE, or CHAT_MORE where the quote is missing. */
static enum chat_step string_part(struct text_buf *out, struct str *s, char quote, unsigned syntax, bool as_json,
                                  bool end)
{
    const bool python = (syntax & CHAT_PYTHON) == CHAT_PYTHON;

    for (;;) {
        size_t n = 0;
        while (n < s->n && (unsigned char)s->p[n] >= 0x20 && s->p[n] != '"' && s->p[n] != '\\' && s->p[n] != quote)
            n++;
        text_buf_add(out, (struct str){ s->p, n });
        skip_bytes(s, n);
        if (s->n == 0 || (s->p[0] == '\\' && !end && s->n < escape_bytes(*s, python)))
            return CHAT_MORE;
        if ((unsigned char)s->p[0] < 0x20 && !python)
            return CHAT_BAD;
        const char c = s->p[0];
        skip_bytes(s, 1);
        if (c == quote)
            return CHAT_DONE;
        if (c != '\\')
            put_char(out, (unsigned char)c, as_json);
        else if (!take_escape(out, s, syntax, as_json))
            return CHAT_BAD;
    }
}

static bool is_quote(char c, unsigned syntax)
{
    return c == '"' || (c == '\'' && (syntax & CHAT_PYTHON) == CHAT_PYTHON);
}

bool chat_parse_string(struct text_buf *out, struct str *s, unsigned syntax)
{
    const char quote = s->n > 0 ? s->p[0] : '\0';

    if (!is_quote(quote, syntax))
        return false;
    skip_bytes(s, 1);
    return string_part(out, s, quote, syntax, false, true) == CHAT_DONE;
}

/* ---- numbers and names ---- */

static size_t count_digits(struct str s, size_t from)
{
    size_t n = from;

    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
        n++;
    return n - from;
}

/* Bytes of the number that s begins with; 0: it begins with none. */
static size_t number_bytes(struct str s, bool *whole)
{
    size_t n = s.n > 0 && s.p[0] == '-' ? 1 : 0, k = count_digits(s, n);

    *whole = true;
    if (k == 0 || (k > 1 && s.p[n] == '0'))
        return 0;
    n += k;
    if (n < s.n && s.p[n] == '.') {
        k = count_digits(s, n + 1);
        if (k == 0)
            return 0;
        for (size_t i = 0; i < k; i++)
            *whole = *whole && s.p[n + 1 + i] == '0';
        n += 1 + k;
    }
    if (n < s.n && (s.p[n] == 'e' || s.p[n] == 'E')) {
        size_t sign = n + 1 < s.n && (s.p[n + 1] == '+' || s.p[n + 1] == '-') ? 1 : 0;
        k = count_digits(s, n + 1 + sign);
        if (k == 0)
            return 0;
        *whole = false;
        n += 1 + sign + k;
    }
    return n;
}

bool chat_parse_is_number(struct str s, bool *whole)
{
    return s.n > 0 && number_bytes(s, whole) == s.n;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool take_name(struct text_buf *out, struct str *s, unsigned syntax)
{
    static const struct {
        const char *name, *json;
        bool python;
    } names[] = {
        { "true", "true", false }, { "false", "false", false }, { "null", "null", false },
        { "True", "true", true },  { "False", "false", true },  { "None", "null", true },
    };
    size_t n = 0;

    while (n < s->n && is_word(s->p[n]))
        n++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!str_is((struct str){ s->p, n }, names[i].name) || (names[i].python && !(syntax & CHAT_PYTHON_NAMES)))
            continue;
        text_buf_addz(out, names[i].json);
        skip_bytes(s, n);
        return true;
    }
    return false;
}

/* ---- values ---- */

enum { VALUE, FIRST, MEMBER, STRING, COLON, NEXT }; /* what a value waits for */

void chat_parse_value_begin(struct chat_value *v, unsigned syntax)
{
    v->syntax = syntax;
    v->state = VALUE;
    v->depth = 0;
    v->seen = 0;
}

static enum chat_step value_over(struct chat_value *v)
{
    v->state = NEXT;
    return v->depth == 0 ? CHAT_DONE : CHAT_ON;
}

static enum chat_step close_bracket(struct chat_value *v, struct text_buf *out, struct str *s)
{
    skip_bytes(s, 1);
    text_buf_addz(out, v->close[--v->depth] == '}' ? "}" : "]");
    return value_over(v);
}

static enum chat_step open_string(struct chat_value *v, struct text_buf *out, struct str *s, bool key)
{
    if (!is_quote(s->p[0], v->syntax))
        return CHAT_BAD;
    v->quote = s->p[0];
    v->key = key;
    v->state = STRING;
    skip_bytes(s, 1);
    text_buf_addz(out, "\"");
    return CHAT_ON;
}

/* A number or a name, which ends where something else follows. */
static enum chat_step read_word(struct chat_value *v, struct text_buf *out, struct str *s, bool end)
{
    bool whole;

    while (v->seen < s->n && (is_word(s->p[v->seen]) || strchr("+-.", s->p[v->seen]) != NULL) && s->p[v->seen] != '\0')
        v->seen++;
    if (v->seen == s->n && !end)
        return CHAT_MORE;
    v->seen = 0;
    const size_t n = number_bytes(*s, &whole);
    if (n == 0)
        return take_name(out, s, v->syntax) ? value_over(v) : CHAT_BAD;
    text_buf_add(out, (struct str){ s->p, n });
    skip_bytes(s, n);
    return s->n > 0 && (is_word(s->p[0]) || s->p[0] == '.') ? CHAT_BAD : value_over(v);
}

static enum chat_step read_start(struct chat_value *v, struct text_buf *out, struct str *s, bool end)
{
    const char c = s->p[0];

    if (c == '"' || c == '\'')
        return open_string(v, out, s, false);
    if (c != '{' && c != '[' && !(c == '(' && (v->syntax & CHAT_PYTHON) == CHAT_PYTHON))
        return read_word(v, out, s, end);
    if (v->depth == CHAT_DEPTH_MAX)
        return CHAT_BAD;
    v->many[v->depth] = false;
    v->close[v->depth++] = c == '{' ? '}' : c == '[' ? ']' : ')';
    v->state = FIRST;
    skip_bytes(s, 1);
    text_buf_addz(out, c == '{' ? "{" : "[");
    return CHAT_ON;
}

/* A member, or the end of the brackets where there may be one. */
static enum chat_step read_member(struct chat_value *v, struct text_buf *out, struct str *s)
{
    const char close = v->close[v->depth - 1];

    if (s->p[0] == close && (v->state == FIRST || (v->syntax & CHAT_PYTHON) == CHAT_PYTHON))
        return close_bracket(v, out, s);
    if (v->state == MEMBER)
        text_buf_addz(out, ", ");
    if (close == '}')
        return open_string(v, out, s, true);
    v->state = VALUE;
    return CHAT_ON;
}

static enum chat_step read_next(struct chat_value *v, struct text_buf *out, struct str *s)
{
    const int top = v->depth - 1;

    if (s->p[0] == v->close[top] && (s->p[0] != ')' || v->many[top])) /* (1) is 1 in Python, no tuple */
        return close_bracket(v, out, s);
    if (s->p[0] != ',')
        return CHAT_BAD;
    skip_bytes(s, 1);
    v->many[top] = true;
    v->state = MEMBER;
    return CHAT_ON;
}

static enum chat_step value_step(struct chat_value *v, struct text_buf *out, struct str *s, bool end)
{
    enum chat_step step;

    if (v->state == STRING) {
        step = string_part(out, s, v->quote, v->syntax, true, end);
        if (step != CHAT_DONE)
            return step;
        text_buf_addz(out, "\"");
        if (!v->key)
            return value_over(v);
        v->state = COLON;
        return CHAT_ON;
    }
    while (s->n > 0 && chat_parse_is_space(s->p[0]) && v->seen == 0)
        skip_bytes(s, 1);
    if (s->n == 0)
        return CHAT_MORE;
    if (v->state == VALUE)
        return read_start(v, out, s, end);
    if (v->state == NEXT)
        return read_next(v, out, s);
    if (v->state != COLON)
        return read_member(v, out, s);
    if (s->p[0] != ':')
        return CHAT_BAD;
    skip_bytes(s, 1);
    text_buf_addz(out, ": ");
    v->state = VALUE;
    return CHAT_ON;
}

enum chat_step chat_parse_value_part(struct chat_value *v, struct text_buf *out, struct str *s, bool end)
{
    enum chat_step step;

    do
        step = value_step(v, out, s, end);
    while (step == CHAT_ON);
    return step == CHAT_MORE && end ? CHAT_BAD : step;
}

bool chat_parse_value(struct text_buf *out, struct str *s, unsigned syntax)
{
    struct chat_value v;

    chat_parse_value_begin(&v, syntax);
    return chat_parse_value_part(&v, out, s, true) == CHAT_DONE;
}
