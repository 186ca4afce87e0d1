/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_lex.c - a template's text to tokens.                                    room: chat
 *
 * As jinja2's lexer with trim_blocks and lstrip_blocks: the newline after a block or comment goes;
 * white space between the beginning of a line and a block or comment goes; "-" takes all white
 * space on its side, "+" keeps it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

struct lex {
    struct jinja *t;
    struct str s;
    size_t at;
    struct tok *tok;
    size_t n, cap;
    char closers[1000]; /* of open brackets */
    int n_closers;
    bool line_starting;
    struct err *e;
};

void chat_jinja_place(const struct jinja *t, uint32_t at, int *line, int *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at && i < t->source.n; i++) {
        unsigned char c = (unsigned char)t->source.p[i];
        if (c == '\n') {
            ++*line;
            *column = 1;
        } else if ((c & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

enum err_code chat_jinja_fail(const struct jinja *t, struct err *e, uint32_t at, const char *fmt, ...)
{
    char why[300];
    int line, column;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    chat_jinja_place(t, at, &line, &column);
    err_set(e, ERR_FORMAT, "template: line %d, column %d: %s", line, column, why);
    err_at(e, "%d:%d", line, column);
    return ERR_FORMAT;
}

static enum err_code push_token(struct lex *x, struct tok t)
{
    if (memory_room(&x->tok, &x->cap, x->n + 1, sizeof *x->tok, x->e))
        return x->e->code;
    x->tok[x->n++] = t;
    return ERR_OK;
}

static bool looking_at(const struct lex *x, const char *z)
{
    size_t n = strlen(z);

    return x->s.n - x->at >= n && memcmp(x->s.p + x->at, z, n) == 0;
}

/* Bytes of white space at byte i, or 0. */
static size_t space_at(struct str s, size_t i)
{
    size_t len;

    if (i >= s.n)
        return 0;
    return chat_cp_flags(str_utf8_get(s.p + i, s.n - i, &len)) & UNI_SPACE ? len : 0;
}

static size_t skip_space(struct str s, size_t i)
{
    for (size_t len; (len = space_at(s, i)) > 0;)
        i += len;
    return i;
}

static size_t rstrip(struct str s, size_t from, size_t to)
{
    while (to > from) {
        size_t i = to - 1;
        while (i > from && ((unsigned char)s.p[i] & 0xC0) == 0x80)
            i--;
        if (space_at(s, i) == 0)
            break;
        to = i;
    }
    return to;
}

/* Text from..to before a tag that is followed by `sign`; `block`: it is no print statement. */
static enum err_code push_data(struct lex *x, size_t from, size_t to, char sign, bool block)
{
    if (sign == '-') {
        to = rstrip(x->s, from, to);
    } else if (sign != '+' && block) {
        size_t line = to;
        while (line > from && x->s.p[line - 1] != '\n')
            line--;
        if ((line > from || x->line_starting) && line < to && skip_space(x->s, line) >= to)
            to = line;
    }
    if (from == to)
        return ERR_OK;
    return push_token(x, (struct tok){ .kind = TOK_DATA, .at = (uint32_t)from, .text = { x->s.p + from, to - from } });
}

static char sign_at(const struct lex *x, size_t i)
{
    return i < x->s.n && (x->s.p[i] == '-' || x->s.p[i] == '+') ? x->s.p[i] : 0;
}

/* The end of a block or comment at x->at: its length with what it takes after it; 0: none here. */
static size_t block_end(const struct lex *x, const char *mark)
{
    size_t i = x->at;
    char sign = sign_at(x, i);

    i += sign != 0;
    if (x->s.n - i < 2 || memcmp(x->s.p + i, mark, 2) != 0)
        return 0;
    i += 2;
    if (sign == '-')
        i = skip_space(x->s, i);
    else if (sign == 0 && i < x->s.n && x->s.p[i] == '\n')
        i++;
    return i - x->at;
}

static void skip_chars(struct lex *x, size_t n)
{
    x->at += n;
    x->line_starting = x->at > 0 && x->s.p[x->at - 1] == '\n';
}

static enum err_code lex_comment(struct lex *x, size_t begin)
{
    size_t from = x->at;

    for (; x->at < x->s.n; x->at++) {
        size_t n = block_end(x, "#}");
        if (n > 0) {
            skip_chars(x, n);
            return ERR_OK;
        }
    }
    if (from >= x->s.n) /* jinja2 lets a template end right here */
        return ERR_OK;
    return chat_jinja_fail(x->t, x->e, (uint32_t)begin, "Missing end of comment tag");
}

/* "{%- raw -%}" at x->at: its length, or 0. */
static size_t raw_begin(const struct lex *x)
{
    size_t i = x->at + 2;

    i = skip_space(x->s, i + (sign_at(x, i) != 0));
    if (x->s.n - i < 3 || memcmp(x->s.p + i, "raw", 3) != 0)
        return 0;
    i = skip_space(x->s, i + 3);
    if (x->s.n - i >= 3 && memcmp(x->s.p + i, "-%}", 3) == 0)
        return skip_space(x->s, i + 3) - x->at;
    return x->s.n - i >= 2 && memcmp(x->s.p + i, "%}", 2) == 0 ? i + 2 - x->at : 0;
}

static enum err_code lex_raw(struct lex *x, size_t begin)
{
    size_t from = x->at;

    for (; x->at < x->s.n; x->at++) {
        size_t to = x->at, i;
        if (!looking_at(x, "{%"))
            continue;
        char sign = sign_at(x, to + 2);
        i = skip_space(x->s, to + 2 + (sign != 0));
        if (x->s.n - i < 6 || memcmp(x->s.p + i, "endraw", 6) != 0)
            continue;
        x->at = skip_space(x->s, i + 6);
        size_t n = block_end(x, "%}");
        if (n == 0) {
            x->at = to;
            continue;
        }
        if (push_data(x, from, to, sign, true))
            return x->e->code;
        skip_chars(x, n);
        return ERR_OK;
    }
    if (from >= x->s.n)
        return ERR_OK;
    return chat_jinja_fail(x->t, x->e, (uint32_t)begin, "Missing end of raw directive");
}

/* ---- inside tags ---- */
static size_t run_of_digits(struct str s, size_t i) /* (\d+_)*\d+: where it ends, or i */
{
    for (size_t end = i, k;; i = k + 1) {
        for (k = i; k < s.n && s.p[k] >= '0' && s.p[k] <= '9';)
            k++;
        if (k == i)
            return end;
        end = k;
        if (k >= s.n || s.p[k] != '_')
            return end;
    }
}

static size_t float_at(const struct lex *x) /* where a float at x->at ends, or x->at */
{
    struct str s = x->s;
    size_t i = run_of_digits(s, x->at), k;
    bool fraction = false;

    if (i == x->at || (x->at > 0 && s.p[x->at - 1] == '.'))
        return x->at;
    if (i < s.n && s.p[i] == '.' && (k = run_of_digits(s, i + 1)) > i + 1) {
        i = k;
        fraction = true;
    }
    if (i < s.n && (s.p[i] | 32) == 'e') {
        size_t from = i + 1 + (i + 1 < s.n && (s.p[i + 1] == '+' || s.p[i + 1] == '-'));
        if ((k = run_of_digits(s, from)) > from)
            return k;
    }
    return fraction ? i : x->at;
}

static size_t int_at(const struct lex *x)
{
    struct str s = x->s;
    size_t i = x->at, end;
    const char *set = "0123456789";

    if (s.p[i] < '0' || s.p[i] > '9')
        return i;
    if (s.p[i] == '0') {
        char c = i + 1 < s.n ? (char)(s.p[i + 1] | 32) : 0;
        const char *other = c == 'b' ? "01" : c == 'o' ? "01234567" : c == 'x' ? "0123456789abcdefABCDEF" : NULL;
        size_t first = i + 2 + (i + 2 < s.n && s.p[i + 2] == '_');
        if (other != NULL && first < s.n && s.p[first] != 0 && strchr(other, s.p[first]) != NULL) {
            set = other;
            i += 2;
            goto digits;
        }
        set = "0";
    }
    i++;
digits:
    for (end = i; i < s.n; end = i) {
        i += s.p[i] == '_';
        if (i >= s.n || s.p[i] == 0 || strchr(set, s.p[i]) == NULL)
            break;
        i++;
    }
    return end;
}

static size_t name_at(const struct lex *x)
{
    size_t i = x->at, len;

    while (i < x->s.n && chat_is_word(str_utf8_get(x->s.p + i, x->s.n - i, &len)))
        i += len;
    return i;
}

static int escape_digits(struct str s, size_t i, int n, int base, uint32_t *v)
{
    int k = 0;

    for (*v = 0; k < n && i + (size_t)k < s.n; k++) {
        char c = s.p[i + (size_t)k];
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
        if (d >= base)
            break;
        *v = *v * (uint32_t)base + (uint32_t)d;
    }
    return k;
}

/* An escape whose backslash is at byte i of s: its text to p, its length to *n, NULL or what is
 * wrong. */
static const char *unescape(struct str s, size_t *i, char *p, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.p[*i + 1];
    const char *which = c != 0 ? strchr(from, c) : NULL;
    uint32_t cp;
    int k, want;

    if (which != NULL) {
        p[(*n)++] = to[which - from];
        *i += 2;
    } else if (c == '\n') {
        *i += 2;
    } else if (c >= '0' && c <= '7') {
        k = escape_digits(s, *i + 1, 3, 8, &cp);
        *n += str_utf8_put(p + *n, cp);
        *i += 1 + (size_t)k;
    } else if (c == 'x' || c == 'u' || c == 'U') {
        want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (escape_digits(s, *i + 2, want, 16, &cp) < want)
            return "a truncated escape";
        if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
            return "an escape that is no character";
        *n += str_utf8_put(p + *n, cp);
        *i += 2 + (size_t)want;
    } else if (c == 'N') {
        return "names of characters are not supported";
    } else if ((unsigned char)c >= 0x80) { /* Python escapes it first and then takes the two backslashes for one */
        size_t len;
        cp = str_utf8_get(s.p + *i + 1, s.n - *i - 1, &len);
        *n += (size_t)snprintf(p + *n, 12, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        *i += 1 + len;
    } else {
        p[(*n)++] = '\\';
        ++*i;
    }
    return NULL;
}

static enum err_code lex_string(struct lex *x)
{
    size_t begin = x->at, end = begin + 1, n = 0;
    char quote = x->s.p[begin];

    while (end < x->s.n && x->s.p[end] != quote)
        end += x->s.p[end] == '\\' ? 2 : 1;
    if (end >= x->s.n)
        return chat_jinja_fail(x->t, x->e, (uint32_t)begin, "a string has no end");
    struct str raw = { x->s.p + begin + 1, end - begin - 1 };
    char *p = chat_heap_take(&x->t->heap, raw.n * 3 + 12);
    if (p == NULL)
        return err_nomem(x->e);
    for (size_t i = 0; i < raw.n;) {
        const char *why;
        if (raw.p[i] != '\\') {
            p[n++] = raw.p[i++];
        } else if ((why = unescape(raw, &i, p, &n)) != NULL) {
            return chat_jinja_fail(x->t, x->e, (uint32_t)(begin + 1 + i), "%s", why);
        }
    }
    skip_chars(x, end + 1 - begin);
    return push_token(x, (struct tok){ .kind = TOK_STRING, .at = (uint32_t)begin, .text = { p, n } });
}

static enum err_code push_number(struct lex *x, size_t end, uint8_t kind)
{
    struct tok t = { .kind = kind, .at = (uint32_t)x->at };
    char *p = chat_heap_take(&x->t->heap, end - x->at);

    if (p == NULL)
        return err_nomem(x->e);
    for (size_t i = x->at; i < end; i++)
        if (x->s.p[i] != '_')
            p[t.text.n++] = x->s.p[i];
    t.text.p = p;
    x->at = end;
    return push_token(x, t);
}

static enum err_code lex_operator(struct lex *x)
{
    static const char two[][3] = { "//", "**", "==", "!=", ">=", "<=" };
    static const char one[] = "+-/*%~[](){}><=.:|,;", open[] = "([{", close[] = ")]}";
    char c = x->s.p[x->at];
    int op = (unsigned char)c;
    size_t n = 1;

    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (looking_at(x, two[i])) {
            op = two[i][0] | two[i][1] << 8;
            n = 2;
        }
    if (n == 1 && (c == 0 || strchr(one, c) == NULL))
        return chat_jinja_fail(x->t, x->e, (uint32_t)x->at, "unexpected char");
    if (n == 1 && strchr(open, c) != NULL) {
        if (x->n_closers == (int)sizeof x->closers)
            return chat_jinja_fail(x->t, x->e, (uint32_t)x->at, "brackets nested too deep");
        x->closers[x->n_closers++] = close[strchr(open, c) - open];
    }
    if (n == 1 && strchr(close, c) != NULL) {
        if (x->n_closers == 0)
            return chat_jinja_fail(x->t, x->e, (uint32_t)x->at, "unexpected '%c'", c);
        if (x->closers[--x->n_closers] != c)
            return chat_jinja_fail(x->t, x->e, (uint32_t)x->at, "unexpected '%c', expected '%c'", c,
                                   x->closers[x->n_closers]);
    }
    x->at += n;
    return push_token(x, (struct tok){ .kind = TOK_OP, .op = op, .at = (uint32_t)(x->at - n) });
}

/* The end of a tag at x->at: its length, or 0. */
static size_t tag_end(const struct lex *x, bool block)
{
    if (x->n_closers > 0)
        return 0;
    if (block)
        return block_end(x, "%}");
    if (looking_at(x, "-}}"))
        return skip_space(x->s, x->at + 3) - x->at;
    return looking_at(x, "}}") ? 2 : 0;
}

static enum err_code lex_tag(struct lex *x, bool block)
{
    while (x->at < x->s.n) {
        size_t end = tag_end(x, block), n;
        enum err_code rc = ERR_OK;
        if (end > 0) {
            rc = push_token(x, (struct tok){ .kind = block ? TOK_BLOCK_END : TOK_VAR_END, .at = (uint32_t)x->at });
            skip_chars(x, end);
            return rc;
        }
        if ((n = space_at(x->s, x->at)) > 0)
            x->at += n;
        else if ((end = float_at(x)) > x->at)
            rc = push_number(x, end, TOK_FLOAT);
        else if ((end = int_at(x)) > x->at)
            rc = push_number(x, end, TOK_INT);
        else if ((end = name_at(x)) > x->at) {
            rc = push_token(
                x, (struct tok){ .kind = TOK_NAME, .at = (uint32_t)x->at, .text = { x->s.p + x->at, end - x->at } });
            x->at = end;
        } else if (x->s.p[x->at] == '\'' || x->s.p[x->at] == '"')
            rc = lex_string(x);
        else
            rc = lex_operator(x);
        if (rc)
            return rc;
    }
    return ERR_OK; /* the parser says what is missing */
}

static enum err_code lex_all(struct lex *x)
{
    while (x->at < x->s.n) {
        size_t from = x->at, n;
        enum err_code rc;
        while (x->at < x->s.n && !looking_at(x, "{{") && !looking_at(x, "{%") && !looking_at(x, "{#"))
            x->at++;
        if (x->at >= x->s.n)
            return push_data(x, from, x->s.n, '+', false);
        size_t to = x->at;
        char kind = x->s.p[to + 1], sign = sign_at(x, to + 2);
        if (kind == '%' && (n = raw_begin(x)) > 0) {
            if (push_data(x, from, to, sign, true))
                return x->e->code;
            skip_chars(x, n);
            rc = lex_raw(x, to);
        } else {
            if (push_data(x, from, to, sign, kind != '{'))
                return x->e->code;
            x->at = to + 2 + (sign != 0);
            x->line_starting = false;
            rc = ERR_OK;
            if (kind != '#')
                rc = push_token(
                    x, (struct tok){ .kind = kind == '%' ? TOK_BLOCK_BEGIN : TOK_VAR_BEGIN, .at = (uint32_t)to });
            if (rc == ERR_OK)
                rc = kind == '#' ? lex_comment(x, to) : lex_tag(x, kind == '%');
        }
        if (rc)
            return rc;
    }
    return ERR_OK;
}

enum err_code chat_jinja_lex(struct jinja *t, struct tok **out, size_t *n, struct err *e)
{
    struct lex x = { .t = t, .s = t->source, .e = e, .line_starting = true };
    enum err_code rc = lex_all(&x);

    if (rc == ERR_OK)
        rc = push_token(&x, (struct tok){ .kind = TOK_EOF, .at = (uint32_t)x.s.n });
    if (rc) {
        free(x.tok);
        return rc;
    }
    *out = x.tok;
    *n = x.n;
    return ERR_OK;
}
