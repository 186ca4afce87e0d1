/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_text.c - small things about text: numbers read, markup escaped, dates written.
 * room: chat */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/jinja.h"
#include "chat/unicode_tables.h"

/* As float() reads: white space around it, underscores between digits, inf and nan in any case. */
bool chat_float_read(struct str s, double *out)
{
    char buf[800], *end;
    size_t n = 0, len;
    bool digit = false;

    while (s.n > 0 && chat_cp_flags(str_utf8_get(s.p, s.n, &len)) & UNI_SPACE) {
        s.p += len;
        s.n -= len;
    }
    for (size_t i = 0; i < s.n; i += len) {
        uint32_t cp = str_utf8_get(s.p + i, s.n - i, &len);
        int d = chat_cp_digit(cp);
        if (chat_cp_flags(cp) & UNI_SPACE) { /* only at the end */
            for (size_t k = i; k < s.n; k += len)
                if (!(chat_cp_flags(str_utf8_get(s.p + k, s.n - k, &len)) & UNI_SPACE))
                    return false;
            break;
        }
        if (n + 2 > sizeof buf)
            return false;
        if (cp == '_') { /* between digits */
            if (!digit || i + 1 >= s.n || chat_cp_digit(str_utf8_get(s.p + i + 1, s.n - i - 1, &len)) < 0)
                return false;
            len = 1;
            digit = false;
            continue;
        }
        if (d < 0 && (cp >= 0x80 || cp == 0 || strchr("+-.eEinftyaINFTYA", (int)cp) == NULL))
            return false;
        digit = d >= 0;
        buf[n++] = (char)(d >= 0 ? '0' + d : (int)cp);
    }
    buf[n] = '\0';
    if (n == 0 || strpbrk(buf, "xX(") != NULL)
        return false;
    *out = strtod(buf, &end);
    return end == buf + n;
}

bool chat_escape(struct jin *j, struct val v, struct val *out)
{
    struct sbuf b = { 0 };
    size_t begin = 0;

    if (v.kind == VAL_STR && v.u.s->markup) {
        *out = v;
        return true;
    }
    if (!chat_to_str(j, v, &v))
        return false;
    const struct vstr *s = v.u.s;
    for (size_t i = 0; i <= s->n; i++) {
        char c = i < s->n ? s->p[i] : 0;
        const char *with = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&#34;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        if (with == NULL && i < s->n)
            continue;
        if (!chat_sbuf_part(j, &b, s, begin, i) ||
            (with != NULL && !chat_sbuf_add(j, &b, str_of(with), s->mark ? s->mark[i] != 0 : s->ours)))
            return false;
        begin = i + 1;
    }
    return chat_sbuf_val(j, &b, out) && chat_set_markup(out, true);
}

/* ---- dates ---- */
struct date {
    int64_t year;
    int month, day, hour, minute, second, weekday, yearday; /* from 1, 1, 0, 0, 0, Sunday 0, 0 */
};

/* Civil date of a number of days since 1970-01-01, proleptic Gregorian calendar. */
static struct date date_of(int64_t s)
{
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
    struct date d = { 0 };
    int64_t days = s / 86400 - (s % 86400 < 0), rest = s - days * 86400, z = days + 719468; /* from 0000-03-01 */
    int64_t era = z / 146097 - (z % 146097 < 0), doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    d.day = (int)(doy - (153 * mp + 2) / 5 + 1);
    d.month = (int)(mp < 10 ? mp + 3 : mp - 9);
    d.year = yoe + era * 400 + (d.month <= 2);
    d.hour = (int)(rest / 3600);
    d.minute = (int)(rest / 60 % 60);
    d.second = (int)(rest % 60);
    d.weekday = (int)(((days + 4) % 7 + 7) % 7);
    bool leap = (d.year % 4 == 0 && d.year % 100 != 0) || d.year % 400 == 0;
    d.yearday = before[d.month - 1] + d.day - 1 + (leap && d.month > 2);
    return d;
}

/* ISO 8601: the week that has the Thursday. */
static void iso_week(const struct date *d, int64_t *year, int *week)
{
    int wday = (d->weekday + 6) % 7; /* Monday 0 */
    int w = (d->yearday - wday + 10) / 7;
    int64_t y = d->year;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

    if (w < 1) {
        y--;
        bool was = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        int last = d->yearday + 365 + was;
        w = (last - wday + 10) / 7;
    } else if (w == 53 && d->yearday - wday + 3 >= 365 + leap) {
        y++;
        w = 1;
    }
    *year = y;
    *week = w;
}

static size_t one_code(const struct date *d, int64_t now_s, char c, char *buf, size_t cap)
{
    static const char *const days[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" },
                             *const months[] = {
                                 "January", "February", "March",     "April",   "May",      "June",
                                 "July",    "August",   "September", "October", "November", "December"
                             };
    int hour12 = d->hour % 12 == 0 ? 12 : d->hour % 12, week;
    int64_t iso;
    const char *half = d->hour < 12 ? "AM" : "PM";
    long long year = (long long)d->year;

    iso_week(d, &iso, &week);
    switch (c) {
    case 'a':
        return (size_t)snprintf(buf, cap, "%.3s", days[d->weekday]);
    case 'A':
        return (size_t)snprintf(buf, cap, "%s", days[d->weekday]);
    case 'b':
    case 'h':
        return (size_t)snprintf(buf, cap, "%.3s", months[d->month - 1]);
    case 'B':
        return (size_t)snprintf(buf, cap, "%s", months[d->month - 1]);
    case 'c':
        return (size_t)snprintf(buf, cap, "%.3s %.3s %2d %02d:%02d:%02d %lld", days[d->weekday], months[d->month - 1],
                                d->day, d->hour, d->minute, d->second, year);
    case 'C':
        return (size_t)snprintf(buf, cap, "%02lld", year / 100);
    case 'd':
        return (size_t)snprintf(buf, cap, "%02d", d->day);
    case 'D':
    case 'x':
        return (size_t)snprintf(buf, cap, "%02d/%02d/%02lld", d->month, d->day, year % 100);
    case 'e':
        return (size_t)snprintf(buf, cap, "%2d", d->day);
    case 'f':
        return (size_t)snprintf(buf, cap, "000000");
    case 'F':
        return (size_t)snprintf(buf, cap, "%lld-%02d-%02d", year, d->month, d->day);
    case 'g':
        return (size_t)snprintf(buf, cap, "%02lld", (long long)iso % 100);
    case 'G':
        return (size_t)snprintf(buf, cap, "%lld", (long long)iso);
    case 'H':
        return (size_t)snprintf(buf, cap, "%02d", d->hour);
    case 'I':
        return (size_t)snprintf(buf, cap, "%02d", hour12);
    case 'j':
        return (size_t)snprintf(buf, cap, "%03d", d->yearday + 1);
    case 'k':
        return (size_t)snprintf(buf, cap, "%2d", d->hour);
    case 'l':
        return (size_t)snprintf(buf, cap, "%2d", hour12);
    case 'm':
        return (size_t)snprintf(buf, cap, "%02d", d->month);
    case 'M':
        return (size_t)snprintf(buf, cap, "%02d", d->minute);
    case 'n':
    case 't':
        return (size_t)snprintf(buf, cap, c == 'n' ? "\n" : "\t");
    case 'p':
        return (size_t)snprintf(buf, cap, "%s", half);
    case 'P':
        return (size_t)snprintf(buf, cap, "%s", d->hour < 12 ? "am" : "pm");
    case 'r':
        return (size_t)snprintf(buf, cap, "%02d:%02d:%02d %s", hour12, d->minute, d->second, half);
    case 'R':
        return (size_t)snprintf(buf, cap, "%02d:%02d", d->hour, d->minute);
    case 's':
        return (size_t)snprintf(buf, cap, "%lld", (long long)now_s);
    case 'S':
        return (size_t)snprintf(buf, cap, "%02d", d->second);
    case 'T':
    case 'X':
        return (size_t)snprintf(buf, cap, "%02d:%02d:%02d", d->hour, d->minute, d->second);
    case 'u':
        return (size_t)snprintf(buf, cap, "%d", d->weekday == 0 ? 7 : d->weekday);
    case 'U':
        return (size_t)snprintf(buf, cap, "%02d", (d->yearday + 7 - d->weekday) / 7);
    case 'V':
        return (size_t)snprintf(buf, cap, "%02d", week);
    case 'w':
        return (size_t)snprintf(buf, cap, "%d", d->weekday);
    case 'W':
        return (size_t)snprintf(buf, cap, "%02d", (d->yearday + 7 - (d->weekday + 6) % 7) / 7);
    case 'y':
        return (size_t)snprintf(buf, cap, "%02lld", year % 100);
    case 'Y':
        return (size_t)snprintf(buf, cap, "%lld", year);
    case 'z': /* a date without a zone */
    case 'Z':
        return 0;
    default:
        return (size_t)snprintf(buf, cap, "%%%c", c);
    }
}

/* Python's strftime of a datetime without a zone in the C locale; "%-d" and the like leave out
 * zeros, as in glibc. */
bool chat_strftime(struct jin *j, int64_t now_s, struct str f, struct val *out)
{
    struct date d = date_of(now_s);
    struct sbuf b = { 0 };
    char buf[80];

    for (size_t i = 0; i < f.n; i++) {
        char flag = 0;
        if (f.p[i] != '%' || i + 1 >= f.n) {
            if (!chat_sbuf_add(j, &b, (struct str){ f.p + i, 1 }, true))
                return false;
            continue;
        }
        i++;
        if (i + 1 < f.n && memchr("-_0^", f.p[i], 4) != NULL)
            flag = f.p[i++];
        if (f.p[i] == '%') {
            if (!chat_sbuf_add(j, &b, STR("%"), true))
                return false;
            continue;
        }
        size_t n = one_code(&d, now_s, f.p[i], buf, sizeof buf), from = 0;
        if (flag == '-')
            while (from + 1 < n && (buf[from] == '0' || buf[from] == ' '))
                from++;
        for (size_t k = 0; k < n; k++) {
            if (flag == '^' && buf[k] >= 'a' && buf[k] <= 'z')
                buf[k] = (char)(buf[k] - 32);
            else if (flag == '_' && buf[k] == '0' && k + 1 < n && (k == 0 || buf[k - 1] == ' '))
                buf[k] = ' ';
            else if (flag == '0' && buf[k] == ' ' && k == 0)
                buf[k] = '0';
        }
        if (!chat_sbuf_add(j, &b, (struct str){ buf + from, n - from }, true))
            return false;
    }
    return chat_sbuf_val(j, &b, out);
}
