/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_format.c - "%d" % x and "{}".format(x), and the format specifications of both.
 * room: chat */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"

enum { WIDTH_MAX = 1 << 24, PRECISION_MAX = 1000 };

struct spec {
    char fill[4];
    size_t fill_bytes;
    char align; /* < > ^ = or 0 */
    char sign;  /* + - space or 0 */
    bool alternate, zero_neg;
    int64_t width, precision; /* -1: none */
    char group;               /* , _ or 0 */
    char type;                /* 0: none */
};

/* A number's digits with groups of `every`, so that all with sign and prefix fill `width` where
 * zeros pad. */
static size_t grouped(const char *digits, size_t n, char group, int every, int64_t min, char *out)
{
    size_t k = 0, left = n;
    int64_t zeros = 0;

    /* Zeros in front until there are `min` characters, separators counted. */
    while (min > 0) {
        int64_t total = (int64_t)left + zeros;
        int64_t with = total + (group ? (total - 1) / every : 0);
        if (with >= min)
            break;
        zeros++;
    }
    for (size_t i = (size_t)zeros + n; i > 0; i--) {
        size_t from_left = (size_t)zeros + n - i;
        out[k++] = from_left < (size_t)zeros ? '0' : digits[from_left - (size_t)zeros];
        if (group && i > 1 && (i - 1) % (size_t)every == 0)
            out[k++] = group;
    }
    return k;
}

/* sign, prefix, digits and the rest of a number, padded as the specification says. */
static bool put_number(struct jin *j, struct sbuf *b, const struct spec *f, const char *sign, const char *prefix,
                       struct str digits, struct str rest, int every)
{
    int64_t taken = (int64_t)(strlen(sign) + strlen(prefix) + rest.n), min = 0;
    bool zeros = f->align == '=' && f->fill_bytes == 1 && f->fill[0] == '0';
    char align = f->align ? f->align : '>';
    struct str fill = { f->fill, f->fill_bytes };

    if (f->width > WIDTH_MAX)
        return chat_no_memory(j);
    if (zeros && f->width > taken)
        min = f->width - taken;
    char *buf = chat_take(j, (digits.n + (size_t)min) * 2 + 4);
    if (buf == NULL || !chat_work(j, min / 16))
        return false;
    size_t n = grouped(digits.p, digits.n, f->group, every, min, buf);
    int64_t room = f->width - taken - (int64_t)n, left = align == '^' ? room / 2 : align == '>' ? room : 0;
    if (room < 0)
        room = left = 0;
    return chat_sbuf_fill(j, b, fill, left, true) && chat_sbuf_add(j, b, str_of(sign), true) &&
           chat_sbuf_add(j, b, str_of(prefix), true) && (align != '=' || chat_sbuf_fill(j, b, fill, room, true)) &&
           chat_sbuf_add(j, b, (struct str){ buf, n }, true) && chat_sbuf_add(j, b, rest, true) &&
           chat_sbuf_fill(j, b, fill, align == '<' || align == '^' ? room - left : 0, true);
}

static const char *sign_of(const struct spec *f, bool neg)
{
    return neg ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

static bool put_int(struct jin *j, struct sbuf *b, const struct spec *f, struct val v)
{
    char type = f->type ? f->type : 'd', *p;
    int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    size_t n;

    if (!chat_int_text(j, v, base, &p, &n))
        return false;
    bool neg = n > 0 && p[0] == '-';
    for (size_t i = 0; type == 'X' && i < n; i++)
        p[i] = (char)(p[i] >= 'a' ? p[i] - 32 : p[i]);
    const char *prefix = !f->alternate || base == 10 ? ""
                         : type == 'x'               ? "0x"
                         : type == 'X'               ? "0X"
                         : type == 'o'               ? "0o"
                                                     : "0b";
    return put_number(j, b, f, sign_of(f, neg), prefix, (struct str){ p + neg, n - neg }, STR(""), base == 10 ? 3 : 4);
}

/* Python's repr-like text of |d| for format without a type: at least one digit after the point,
 * "precision" digits if given. */
static size_t general(double d, const struct spec *f, char *buf, size_t cap)
{
    char type = f->type;
    int prec = f->precision < 0 ? 6 : (int)f->precision;

    if (type == 0 && f->precision < 0)
        return chat_double_text(d, buf);
    if (type == 0) { /* as g, but a whole number keeps ".0" and exponents begin one earlier */
        prec = prec == 0 ? 1 : prec;
        snprintf(buf, cap, "%.*e", prec - 1, d);
        int exp = (int)strtol(strchr(buf, 'e') + 1, NULL, 10);
        if (exp < -4 || exp >= prec - (prec > 1)) {
            size_t n = (size_t)(strchr(buf, 'e') - buf), k = n;
            char tail[16];
            snprintf(tail, sizeof tail, "%s", buf + n);
            if (memchr(buf, '.', n) != NULL) {
                while (k > 0 && buf[k - 1] == '0')
                    k--;
                k -= k > 0 && buf[k - 1] == '.';
            }
            return k + (size_t)snprintf(buf + k, cap - k, "%s", tail);
        }
        size_t n = (size_t)snprintf(buf, cap, "%.*f", prec - 1 - exp, d);
        if (memchr(buf, '.', n) != NULL)
            while (n > 0 && buf[n - 1] == '0' && buf[n - 2] != '.')
                n--;
        else
            n += (size_t)snprintf(buf + n, cap - n, ".0");
        return n;
    }
    char fmt[8] = {
        '%', f->alternate ? '#' : '.', f->alternate ? '.' : '*', f->alternate ? '*' : type, f->alternate ? type : 0, 0
    };
    return (size_t)snprintf(buf, cap, fmt, prec, d);
}

static bool put_float(struct jin *j, struct sbuf *b, const struct spec *f, double d)
{
    char buf[1500], type = f->type;
    struct spec g = *f;
    bool percent = type == '%', neg = signbit(d) != 0 && !isnan(d);
    size_t n;

    if (f->precision > PRECISION_MAX)
        return chat_raise(j, "precision too big");
    if (percent) {
        d *= 100;
        g.type = 'f';
    }
    if (type == 'n')
        g.type = 'g';
    d = fabs(d);
    if (isnan(d) || isinf(d)) {
        bool upper = type == 'F' || type == 'E' || type == 'G';
        n = (size_t)snprintf(buf, sizeof buf, "%s%s", isnan(d) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"),
                             percent ? "%" : "");
        g.group = 0;
        if (g.align == '=' && g.fill[0] == '0')
            return put_number(j, b, &g, sign_of(f, neg), "", (struct str){ buf, n }, STR(""), 3);
        return put_number(j, b, &g, sign_of(f, neg), "", STR(""), (struct str){ buf, n }, 3);
    }
    n = general(d, &g, buf, sizeof buf - 2);
    if (percent)
        buf[n++] = '%';
    size_t whole = 0;
    while (whole < n && buf[whole] >= '0' && buf[whole] <= '9')
        whole++;
    return put_number(j, b, f, sign_of(f, neg), "", (struct str){ buf, whole }, (struct str){ buf + whole, n - whole },
                      3);
}

static bool put_str(struct jin *j, struct sbuf *b, const struct spec *f, const struct vstr *s)
{
    struct vstr cut = *s;
    int64_t n = chat_str_len(s), room, left;

    if (f->precision >= 0 && f->precision < n) {
        cut.n = chat_str_byte(s, f->precision);
        n = f->precision;
    }
    if (f->width > WIDTH_MAX)
        return chat_no_memory(j);
    room = f->width > n ? f->width - n : 0;
    left = f->align == '>' ? room : f->align == '^' ? room / 2 : 0;
    struct str fill = { f->fill, f->fill_bytes };
    return chat_sbuf_fill(j, b, fill, left, true) && chat_sbuf_str(j, b, &cut) &&
           chat_sbuf_fill(j, b, fill, room - left, true);
}

/* ---- the language of {:...} ---- */
static int64_t read_number(struct str s, size_t *i)
{
    int64_t v = 0;

    if (*i >= s.n || s.p[*i] < '0' || s.p[*i] > '9')
        return -1;
    for (; *i < s.n && s.p[*i] >= '0' && s.p[*i] <= '9'; ++*i)
        v = v < INT64_MAX / 20 ? v * 10 + (s.p[*i] - '0') : v;
    return v;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static bool parse_spec(struct jin *j, struct str s, struct spec *f)
{
    size_t i = 0, len = 0;

    *f = (struct spec){ .fill = " ", .fill_bytes = 1, .width = -1, .precision = -1 };
    if (s.n > 0)
        str_utf8_get(s.p, s.n, &len);
    if (len > 0 && len < s.n && is_align(s.p[len])) {
        memcpy(f->fill, s.p, len);
        f->fill_bytes = len;
        f->align = s.p[len];
        i = len + 1;
    } else if (s.n > 0 && is_align(s.p[0])) {
        f->align = s.p[0];
        i = 1;
    }
    bool filled = i > 1;
    if (i < s.n && (s.p[i] == '+' || s.p[i] == '-' || s.p[i] == ' '))
        f->sign = s.p[i++];
    if (i < s.n && s.p[i] == 'z')
        f->zero_neg = s.p[i++] == 'z';
    if (i < s.n && s.p[i] == '#')
        f->alternate = s.p[i++] == '#';
    if (i < s.n && s.p[i] == '0' && !filled) {
        f->fill[0] = '0';
        if (f->align == 0)
            f->align = '=';
        i++;
    }
    f->width = read_number(s, &i);
    if (i < s.n && (s.p[i] == ',' || s.p[i] == '_'))
        f->group = s.p[i++];
    if (i < s.n && s.p[i] == '.') {
        i++;
        if ((f->precision = read_number(s, &i)) < 0)
            return chat_raise(j, "Format specifier missing precision");
    }
    if (i < s.n)
        f->type = s.p[i++];
    if (i < s.n || f->zero_neg)
        return chat_raise(j, "Invalid format specifier");
    return true;
}

static bool bad_type(struct jin *j, const struct spec *f, const struct val *v)
{
    return chat_raise(j, "Unknown format code '%c' for object of type '%s'", f->type, chat_type(v));
}

bool chat_format_spec(struct jin *j, struct val v, struct str s, struct sbuf *b)
{
    struct spec f;
    struct val text;
    double d;
    bool integer = v.kind == VAL_INT || v.kind == VAL_BIG || v.kind == VAL_BOOL;

    if (s.n == 0)
        return chat_print(j, b, v);
    if (v.kind == VAL_UNDEFINED || !(integer || v.kind == VAL_FLOAT || v.kind == VAL_STR))
        return chat_raise(j, "unsupported format string passed to %s.__format__", chat_type(&v));
    if (!parse_spec(j, s, &f))
        return false;
    if (v.kind == VAL_STR) {
        if (f.type != 0 && f.type != 's')
            return bad_type(j, &f, &v);
        if (f.sign || f.alternate || f.group || f.align == '=') {
            if (f.align == '=' && f.fill[0] == '0' && !f.sign && !f.alternate && !f.group && s.p[0] == '0')
                f.align = '<'; /* "05" of a string pads at the right */
            else
                return chat_raise(j, "the format specifier does not fit a string");
        }
        return put_str(j, b, &f, v.u.s);
    }
    if (f.group && f.type != 0 && strchr(f.group == ',' ? "deEfFgG%" : "deEfFgG%boxX", f.type) == NULL)
        return chat_raise(j, "Cannot specify '%c' with '%c'.", f.group, f.type);
    if (integer && (f.type == 0 || strchr("dboxXnc", f.type) != NULL)) {
        if (f.precision >= 0)
            return chat_raise(j, "Precision not allowed in integer format specifier");
        if (f.type == 'c') {
            char c[4];
            if (v.kind != VAL_INT || v.u.i < 0 || v.u.i > 0x10FFFF || (v.u.i >= 0xD800 && v.u.i <= 0xDFFF))
                return chat_raise(j, "%%c arg not in range(0x110000)");
            struct vstr one = { .p = c, .n = str_utf8_put(c, (uint32_t)v.u.i), .n_cp = 1, .ours = true };
            f.align = f.align && f.align != '=' ? f.align : '>';
            f.precision = -1;
            return chat_str_copy(j, (struct str){ one.p, one.n }, true, &text) && put_str(j, b, &f, text.u.s);
        }
        if (f.type == 'n')
            f.type = 'd';
        return put_int(j, b, &f, v);
    }
    if (f.type != 0 && strchr("eEfFgGn%", f.type) == NULL)
        return bad_type(j, &f, &v);
    return chat_as_double(j, v, &d) && put_float(j, b, &f, d);
}

/* ---- {} ---- */
struct fields {
    struct jin *j;
    const struct args *a;
    int next; /* of automatic numbering; -1: numbers are given */
    bool manual, escape;
};

/* The value of "0.name[key]". */
static bool field_value(struct fields *x, struct str name, struct val *out)
{
    struct jin *j = x->j;
    size_t i = 0;
    int64_t n;

    while (i < name.n && name.p[i] != '.' && name.p[i] != '[')
        i++;
    struct str first = { name.p, i };
    size_t k = 0;
    n = read_number(first, &k);
    if (first.n == 0 || (n >= 0 && k == first.n)) {
        if ((first.n == 0 && x->manual) || (first.n > 0 && x->next > 0))
            return chat_raise(j, "cannot switch between automatic field numbering and manual field specification");
        if (first.n == 0)
            n = x->next++;
        else
            x->manual = true;
        if (n >= x->a->n)
            return chat_raise(j, "Replacement index %lld out of range for positional args tuple", (long long)n);
        *out = x->a->v[n];
    } else {
        int m = 0;
        while (m < x->a->n_kw && !str_eq(chat_str(&x->a->name[m]), first))
            m++;
        if (m == x->a->n_kw)
            return chat_raise(j, "KeyError: '%.*s'", STR_ARG(first));
        *out = x->a->kw[m];
    }
    while (i < name.n) {
        struct val key;
        size_t from = i + 1, end = from;
        bool index = name.p[i] == '[';
        while (end < name.n && (index ? name.p[end] != ']' : name.p[end] != '.' && name.p[end] != '['))
            end++;
        if (index && end == name.n)
            return chat_raise(j, "Missing ']' in format string");
        if (end == from)
            return chat_raise(j, "Empty attribute in format string");
        struct str part = { name.p + from, end - from };
        k = 0;
        n = read_number(part, &k);
        if (index && n >= 0 && k == part.n)
            key = chat_int(n);
        else if (!chat_str_new(j, part, true, &key))
            return false;
        if (!(index ? chat_getitem(j, *out, key, out) : chat_getattr(j, *out, key, out)))
            return false;
        i = end + index;
        if (i < name.n && name.p[i] != '.' && name.p[i] != '[')
            return chat_raise(j, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return true;
}

static bool fill_fields(struct fields *x, const struct vstr *f, size_t from, size_t to, int depth, struct sbuf *b);

/* "name!r:spec" at from..to. */
static bool put_field(struct fields *x, const struct vstr *f, size_t from, size_t to, int depth, struct sbuf *b)
{
    struct jin *j = x->j;
    size_t end = from, spec;
    char conversion = 0;
    struct val v;
    struct sbuf text = { 0 }, format = { 0 };

    for (bool in = false; end < to && (in || (f->p[end] != '!' && f->p[end] != ':')); end++)
        in = f->p[end] == '[' ? true : f->p[end] == ']' ? false : in;
    if (!field_value(x, (struct str){ f->p + from, end - from }, &v))
        return false;
    spec = end;
    if (end < to && f->p[end] == '!') {
        if (end + 1 >= to || (end + 2 < to && f->p[end + 2] != ':'))
            return chat_raise(j, "expected ':' after conversion specifier");
        conversion = f->p[end + 1];
        spec = end + 2;
    }
    if (conversion == 'r' || conversion == 'a') {
        if (!chat_repr(j, &text, v) || !chat_sbuf_val(j, &text, &v))
            return false;
    } else if (conversion == 's') {
        if (!chat_to_str(j, v, &v))
            return false;
    } else if (conversion != 0) {
        return chat_raise(j, "Unknown conversion specifier '%c'", conversion);
    }
    if (spec < to)
        spec++;
    if (!fill_fields(x, f, spec, to, depth + 1, &format))
        return false;
    if (x->escape && format.n == 0)
        return chat_escape(j, v, &v) && chat_sbuf_str(j, b, v.u.s);
    return chat_format_spec(j, v, (struct str){ format.p, format.n }, b);
}

static bool fill_fields(struct fields *x, const struct vstr *f, size_t from, size_t to, int depth, struct sbuf *b)
{
    struct jin *j = x->j;
    size_t begin = from;

    if (depth > 2)
        return chat_raise(j, "Max string recursion exceeded");
    for (size_t i = from; i < to; i++) {
        char c = f->p[i];
        if (c != '{' && c != '}')
            continue;
        if (!chat_work(j, 1) || !chat_sbuf_part(j, b, f, begin, i))
            return false;
        if (depth == 0 && i + 1 < to && f->p[i + 1] == c) { /* {{ and }} */
            begin = ++i;
            continue;
        }
        if (c == '}')
            return chat_raise(j, "Single '}' encountered in format string");
        size_t end = i + 1;
        for (int open = 1; end < to; end++) {
            open += f->p[end] == '{';
            open -= f->p[end] == '}';
            if (open == 0)
                break;
        }
        if (end >= to)
            return chat_raise(j, i + 1 == to ? "Single '{' encountered in format string"
                                             : "expected '}' before end of string");
        if (!put_field(x, f, i + 1, end, depth, b))
            return false;
        i = end;
        begin = end + 1;
    }
    return chat_sbuf_part(j, b, f, begin, to);
}

bool chat_format(struct jin *j, const struct vstr *f, const struct args *a, struct val *out)
{
    struct fields x = { .j = j, .a = a, .escape = f->markup };
    struct sbuf b = { 0 };

    return fill_fields(&x, f, 0, f->n, 0, &b) && chat_sbuf_val(j, &b, out) && chat_set_markup(out, f->markup);
}

/* ---- % ---- */
struct percent {
    struct jin *j;
    const struct vstr *f;
    size_t i;
    struct val args, map;
    bool tuple, mapped;
    size_t next;
};

static bool next_arg(struct percent *x, struct val *v)
{
    size_t n = x->tuple ? x->args.u.l->n : 1;

    if (x->mapped) {
        *v = x->map;
        return true;
    }
    if (x->next >= n)
        return chat_raise(x->j, "not enough arguments for format string");
    *v = x->tuple ? x->args.u.l->v[x->next] : x->args;
    x->next++;
    return true;
}

/* A width or precision: digits, or * for the next argument. */
static bool star(struct percent *x, int64_t *n)
{
    struct str s = { x->f->p, x->f->n };
    struct val v;

    if (x->i < s.n && s.p[x->i] == '*') {
        x->i++;
        return next_arg(x, &v) && (v.kind == VAL_INT || chat_raise(x->j, "* wants int")) && chat_index(x->j, v, n);
    }
    *n = read_number(s, &x->i);
    return true;
}

static bool put_percent(struct percent *x, struct spec *f, char c, struct sbuf *b)
{
    struct jin *j = x->j;
    struct val v, text;
    struct sbuf repr = { 0 };
    double d;

    if (!next_arg(x, &v))
        return false;
    if (c == 's' || c == 'r' || c == 'a') {
        if (c == 's' ? !chat_to_str(j, v, &text) : !(chat_repr(j, &repr, v) && chat_sbuf_val(j, &repr, &text)))
            return false;
        if (x->f->markup && !chat_escape(j, c == 's' ? v : text, &text))
            return false;
        f->align = f->align == '<' ? '<' : '>';
        f->fill[0] = ' ';
        return put_str(j, b, f, text.u.s);
    }
    if (c == 'c') {
        char one[4];
        if (v.kind == VAL_STR && chat_str_len(v.u.s) == 1)
            text = v;
        else if (v.kind != VAL_INT || v.u.i < 0 || v.u.i > 0x10FFFF || (v.u.i >= 0xD800 && v.u.i <= 0xDFFF))
            return chat_raise(j, "%%c requires int or char");
        else if (!chat_str_copy(j, (struct str){ one, str_utf8_put(one, (uint32_t)v.u.i) }, true, &text))
            return false;
        f->align = f->align == '<' ? '<' : '>';
        f->fill[0] = ' ';
        f->precision = -1;
        return put_str(j, b, f, text.u.s);
    }
    if (strchr("diuxXoeEfFgG", c) == NULL || c == 0)
        return chat_raise(j, "unsupported format character '%c'", c);
    if (v.kind == VAL_UNDEFINED)
        return chat_use_undefined(j, v);
    bool whole = strchr("diu", c) != NULL;
    if (!chat_is_num(&v) || (v.kind == VAL_FLOAT && strchr("xXo", c) != NULL))
        return chat_raise(j, "%%%c format: %s is required, not %s", c, whole ? "a real number" : "a number",
                          chat_type(&v));
    if (f->align == 0)
        f->align = '>';
    if (strchr("eEfFgG", c) != NULL) {
        f->type = c;
        return chat_as_double(j, v, &d) && put_float(j, b, f, d);
    }
    if (v.kind == VAL_FLOAT && !chat_int_of_double(j, v.u.f, &v))
        return false;
    f->type = whole ? 'd' : c;
    if (f->precision > 0) { /* the least number of digits */
        struct spec digits = { .fill = "0",
                               .fill_bytes = 1,
                               .align = '=',
                               .sign = f->sign,
                               .alternate = f->alternate,
                               .width = f->precision,
                               .precision = -1,
                               .type = f->type };
        bool neg = v.kind == VAL_BIG ? v.u.big->neg : v.kind == VAL_INT && v.u.i < 0;
        digits.width += neg || f->sign ? 1 : 0;
        digits.width += f->alternate && !whole ? 2 : 0;
        if (f->align == '=' && f->width > digits.width)
            digits.width = f->width;
        if (!put_int(j, &repr, &digits, v) || !chat_sbuf_val(j, &repr, &text))
            return false;
        f->precision = -1;
        f->align = f->align == '<' ? '<' : '>';
        f->fill[0] = ' ';
        return put_str(j, b, f, text.u.s);
    }
    f->precision = -1;
    return put_int(j, b, f, v);
}

static bool one_percent(struct percent *x, struct sbuf *b)
{
    struct jin *j = x->j;
    struct str s = { x->f->p, x->f->n };
    struct spec f = { .fill = " ", .fill_bytes = 1, .width = -1, .precision = -1 };
    int64_t width = -1;
    bool minus = false, zero = false;

    x->i++;
    x->mapped = false;
    if (x->i < s.n && s.p[x->i] == '(') {
        size_t from = ++x->i;
        struct val key, *at;
        for (int open = 1; x->i < s.n; x->i++) {
            open += s.p[x->i] == '(';
            open -= s.p[x->i] == ')';
            if (open == 0)
                break;
        }
        if (x->i >= s.n)
            return chat_raise(j, "incomplete format key");
        if (x->args.kind != VAL_DICT)
            return chat_raise(j, "format requires a mapping");
        if (!chat_str_new(j, (struct str){ s.p + from, x->i - from }, true, &key) ||
            !chat_dict_get(j, x->args.u.d, key, &at))
            return false;
        if (at == NULL)
            return chat_raise(j, "KeyError: '%.*s'", STR_ARG(chat_str(&key)));
        x->map = *at;
        x->mapped = true;
        x->i++;
    }
    for (; x->i < s.n && s.p[x->i] != 0 && strchr("#0- +", s.p[x->i]) != NULL; x->i++) {
        char c = s.p[x->i];
        f.alternate |= c == '#';
        minus |= c == '-';
        zero |= c == '0';
        if (c == '+' || (c == ' ' && f.sign == 0))
            f.sign = c;
    }
    if (!star(x, &width))
        return false;
    if (width < -1) {
        minus = true;
        width = width < -WIDTH_MAX ? WIDTH_MAX + 1 : -width;
    }
    f.width = width;
    if (x->i < s.n && s.p[x->i] == '.') {
        x->i++;
        if (!star(x, &f.precision))
            return false;
        if (f.precision < 0)
            f.precision = 0;
    }
    while (x->i < s.n && s.p[x->i] != 0 && strchr("hlL", s.p[x->i]) != NULL)
        x->i++;
    if (x->i >= s.n)
        return chat_raise(j, "incomplete format");
    char c = s.p[x->i++];
    if (c == '%')
        return chat_sbuf_add(j, b, STR("%"), true);
    f.align = minus ? '<' : zero ? '=' : 0;
    if (zero && !minus)
        f.fill[0] = '0';
    if (f.width > WIDTH_MAX || f.precision > WIDTH_MAX)
        return chat_no_memory(j);
    return put_percent(x, &f, c, b);
}

bool chat_percent(struct jin *j, const struct vstr *f, struct val args, struct val *out)
{
    struct percent x = { .j = j, .f = f, .args = args, .tuple = args.kind == VAL_TUPLE };
    struct sbuf b = { 0 };
    bool mapping = args.kind == VAL_DICT || args.kind == VAL_LIST || args.kind == VAL_RANGE ||
                   args.kind == VAL_UNDEFINED || args.kind == VAL_BYTES;

    while (x.i < f->n) {
        size_t from = x.i;
        const char *p = memchr(f->p + from, '%', f->n - from);
        size_t to = p != NULL ? (size_t)(p - f->p) : f->n;
        if (!chat_work(j, 1) || !chat_sbuf_part(j, &b, f, from, to))
            return false;
        x.i = to;
        if (to < f->n && !one_percent(&x, &b))
            return false;
    }
    if (x.next < (x.tuple ? args.u.l->n : 1) && !mapping)
        return chat_raise(j, "not all arguments converted during string formatting");
    return chat_sbuf_val(j, &b, out) && chat_set_markup(out, f->markup);
}
