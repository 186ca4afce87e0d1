/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - a growing string, and values written as Python writes them.           room: text
 *
 * Chat templates are rendered by Python when models are trained, so numbers and JSON must come out
 * digit for digit as there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/buf.h"

void text_buf_add(struct text_buf *b, struct str s)
{
    if (b->failed || s.n == 0)
        return;
    if (s.n > b->cap - b->n) {
        size_t cap = b->cap < 256 ? 256 : b->cap;
        while (cap - b->n < s.n && cap <= SIZE_MAX / 2)
            cap *= 2;
        char *p = cap - b->n < s.n ? NULL : realloc(b->p, cap);
        if (p == NULL) {
            b->failed = true;
            return;
        }
        b->p = p;
        b->cap = cap;
    }
    memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
}

void text_buf_addz(struct text_buf *b, const char *z)
{
    text_buf_add(b, str_of(z));
}

/* The fewest digits that read back as v; an exponent below 1e-4 and from 1e16 on. */
static void add_real(struct text_buf *b, double v)
{
    char buf[64], out[64], *exponent;
    int prec = 0, n = 0;

    do
        snprintf(buf, sizeof buf, "%.*e", prec, fabs(v));
    while (strtod(buf, NULL) != fabs(v) && ++prec < 17);
    exponent = strchr(buf, 'e');
    long e10 = strtol(exponent + 1, NULL, 10);
    if (signbit(v))
        out[n++] = '-';
    if (e10 < -4 || e10 >= 16) {
        n += snprintf(out + n, sizeof out - (size_t)n, "%.*se%c%02ld", (int)(exponent - buf), buf,
                      e10 < 0 ? '-' : '+', labs(e10));
        text_buf_add(b, (struct str){out, (size_t)n});
        return;
    }
    char digits[32];
    long k = 0;
    for (const char *p = buf; p < exponent; p++)
        if (*p >= '0' && *p <= '9')
            digits[k++] = *p;
    for (long at = e10 < 0 ? e10 : 0; at < k || at <= e10 + 1; at++) {
        if (at == e10 + 1)
            out[n++] = '.';
        out[n++] = at < 0 || at >= k ? '0' : digits[at];
    }
    text_buf_add(b, (struct str){out, (size_t)n});
}

static void add_quoted(struct text_buf *b, struct str s)
{
    size_t begin = 0;
    char u[8];

    text_buf_addz(b, "\"");
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        text_buf_add(b, (struct str){s.p + begin, i - begin});
        begin = i + 1;
        const char *brief = c == '"'    ? "\\\""
                            : c == '\\' ? "\\\\"
                            : c == '\n' ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\b' ? "\\b"
                            : c == '\f' ? "\\f"
                                        : NULL;
        snprintf(u, sizeof u, "\\u%04x", c);
        text_buf_addz(b, brief != NULL ? brief : u);
    }
    text_buf_add(b, (struct str){s.p + begin, s.n - begin});
    text_buf_addz(b, "\"");
}

static void add_number(struct text_buf *b, const json_t *v)
{
    char buf[32];

    if (json_is_real(v)) {
        add_real(b, json_real_value(v));
        return;
    }
    snprintf(buf, sizeof buf, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    text_buf_addz(b, buf);
}

void text_buf_json(struct text_buf *b, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        const char *sep = "{";
        void *it = json_object_iter((json_t *)(uintptr_t)v);
        for (; it != NULL; it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
            text_buf_addz(b, sep);
            add_quoted(b, str_of(json_object_iter_key(it)));
            text_buf_addz(b, ": ");
            text_buf_json(b, json_object_iter_value(it));
            sep = ", ";
        }
        text_buf_addz(b, sep[0] == '{' ? "{}" : "}");
        break;
    }
    case JSON_ARRAY:
        text_buf_addz(b, "[");
        for (size_t i = 0; i < json_array_size(v); i++) {
            text_buf_addz(b, i > 0 ? ", " : "");
            text_buf_json(b, json_array_get(v, i));
        }
        text_buf_addz(b, "]");
        break;
    case JSON_STRING:
        add_quoted(b, (struct str){json_string_value(v), json_string_length(v)});
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        add_number(b, v);
        break;
    case JSON_TRUE:
        text_buf_addz(b, "true");
        break;
    case JSON_FALSE:
        text_buf_addz(b, "false");
        break;
    case JSON_NULL:
        text_buf_addz(b, "null");
        break;
    }
}

void text_buf_str(struct text_buf *b, const json_t *v)
{
    if (json_is_string(v))
        text_buf_add(b, (struct str){json_string_value(v), json_string_length(v)});
    else if (json_is_boolean(v))
        text_buf_addz(b, json_is_true(v) ? "True" : "False");
    else if (json_is_null(v))
        text_buf_addz(b, "None");
    else
        text_buf_json(b, v);
}
