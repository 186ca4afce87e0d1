/* SPDX-License-Identifier: Apache-2.0 */
/* cut_html.c - HTML into paragraphs and headings.                             room: recall
 *
 * No tree is made: elements that make a block end a paragraph, wherever they stand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recall/cutter.h"

enum { NAME_BYTES = 16 };

struct html {
    struct recall_cutter *c;
    struct str s;
    size_t at;
    int64_t line;
    int pre;                  /* depth of elements that keep their blanks */
    int heading;              /* level that is open; -1: none */
    struct recall_bytes word; /* text that was read and not given yet */
    struct recall_bytes title;
    bool space; /* a blank comes before the next word */
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_one_of(const char *name, const char *list)
{
    const size_t n = strlen(name);

    for (const char *at = list; n > 0 && (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* ---- text ---- */

static void give_word(struct html *h, char before)
{
    const struct str s = { h->word.p, h->word.n };

    if (s.n == 0)
        return;
    if (h->heading >= 0) {
        if ((h->title.n > 0 && before != '\0' && !recall_bytes_add(&h->title, STR(" "), h->c->e)) ||
            !recall_bytes_add(&h->title, s, h->c->e))
            h->c->code = h->c->e->code;
    } else
        recall_cutter_add(h->c, before, s, h->line);
    h->word.n = 0;
}

static void add_bytes(struct html *h, struct str s)
{
    if (h->c->code == ERR_OK && !recall_bytes_add(&h->word, s, h->c->e))
        h->c->code = h->c->e->code;
}

static void end_word(struct html *h, char blank)
{
    if (h->word.n > 0)
        give_word(h, h->space ? ' ' : '\0');
    if (h->pre > 0 && h->heading < 0)
        recall_cutter_add(h->c, blank, (struct str){ "", 0 }, h->line);
    h->space = h->pre == 0 || h->heading >= 0;
}

static void end_paragraph(struct html *h)
{
    give_word(h, h->space ? ' ' : '\0');
    h->space = false;
    if (h->heading < 0)
        recall_cutter_break(h->c);
}

/* What an entity at h->at stands for; its length, 0: it is none. */
static size_t entity(const struct html *h, char out[4], size_t *n)
{
    static const struct {
        const char *name;
        uint32_t cp;
    } known[] = { { "amp", '&' },      { "lt", '<' },       { "gt", '>' },        { "quot", '"' },
                  { "apos", '\'' },    { "nbsp", ' ' },     { "copy", 0xA9 },     { "reg", 0xAE },
                  { "mdash", 0x2014 }, { "ndash", 0x2013 }, { "hellip", 0x2026 }, { "lsquo", 0x2018 },
                  { "rsquo", 0x2019 }, { "ldquo", 0x201C }, { "rdquo", 0x201D },  { "times", 0xD7 },
                  { "auml", 0xE4 },    { "ouml", 0xF6 },    { "uuml", 0xFC },     { "szlig", 0xDF },
                  { "eacute", 0xE9 },  { "egrave", 0xE8 },  { "laquo", 0xAB },    { "raquo", 0xBB },
                  { "middot", 0xB7 },  { "bull", 0x2022 },  { "rarr", 0x2192 },   { "larr", 0x2190 },
                  { "le", 0x2264 },    { "ge", 0x2265 },    { "deg", 0xB0 },      { "micro", 0xB5 },
                  { "plusmn", 0xB1 },  { "shy", 0 },        { "zwnj", 0 },        { "para", 0xB6 } };
    const char *p = h->s.p + h->at;
    size_t len = 1;
    uint32_t cp = 0;

    while (len < 12 && h->at + len < h->s.n && p[len] != ';' && !is_blank(p[len]))
        len++;
    if (len < 2 || h->at + len >= h->s.n || p[len] != ';')
        return 0;
    if (p[1] == '#') {
        char digits[12] = { 0 }, *end;
        const bool hex = len > 2 && (p[2] | 32) == 'x';

        memcpy(digits, p + 2 + hex, len - 2 - hex);
        cp = (uint32_t)strtoul(digits, &end, hex ? 16 : 10);
        if (*end != '\0' || end == digits || cp == 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
            return 0;
        *n = str_utf8_put(out, cp == 0xA0 || cp < ' ' ? ' ' : cp);
        return len + 1;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].name) == len - 1 && memcmp(known[i].name, p + 1, len - 1) == 0) {
            *n = known[i].cp != 0 ? str_utf8_put(out, known[i].cp) : 0;
            return len + 1;
        }
    return 0;
}

/* ---- elements ---- */

/* Past the tag at h->at, which begins with '<'. *close: it ends an element. */
static void read_tag(struct html *h, char name[NAME_BYTES], bool *close)
{
    const struct str s = h->s;
    size_t i = h->at + 1, n = 0;
    char quote = 0;

    *close = i < s.n && s.p[i] == '/';
    i += *close;
    for (; i < s.n && ((s.p[i] | 32) >= 'a' ? (s.p[i] | 32) <= 'z' : s.p[i] >= '0' && s.p[i] <= '9'); i++)
        if (n < NAME_BYTES - 1)
            name[n++] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] + 32 : s.p[i]);
    name[n] = '\0';
    for (; i < s.n && (quote != 0 || s.p[i] != '>'); i++) {
        h->line += s.p[i] == '\n';
        if (quote != 0)
            quote = s.p[i] == quote ? 0 : quote;
        else if ((s.p[i] == '"' || s.p[i] == '\'') && s.p[i - 1] == '=')
            quote = s.p[i];
    }
    h->at = i < s.n ? i + 1 : s.n;
}

static size_t find_any_case(struct str s, size_t from, const char *what)
{
    const size_t n = strlen(what);

    for (size_t i = from; i + n <= s.n; i++) {
        size_t k = 0;

        while (k < n && (what[k] >= 'a' && what[k] <= 'z' ? s.p[i + k] | 32 : s.p[i + k]) == what[k])
            k++;
        if (k == n)
            return i;
    }
    return s.n;
}

static void skip_to(struct html *h, size_t to)
{
    for (; h->at < to && h->at < h->s.n; h->at++)
        h->line += h->s.p[h->at] == '\n';
}

static void begin_heading(struct html *h, int level)
{
    end_paragraph(h);
    h->heading = level;
    h->title.n = 0;
}

static void end_heading(struct html *h)
{
    give_word(h, h->space ? ' ' : '\0');
    h->space = false;
    recall_cutter_heading(h->c, h->heading, (struct str){ h->title.p, h->title.n });
    h->heading = -1;
}

static void element(struct html *h)
{
    static const char blocks[] = "address article aside blockquote br body center dd details dialog div dl dt fieldset "
                                 "figcaption figure footer form header hr html li main nav ol option p pre section "
                                 "summary table tbody td tfoot th thead tr ul";
    char name[NAME_BYTES], end[NAME_BYTES + 3];
    bool close;

    read_tag(h, name, &close);
    const int level = strcmp(name, "title") == 0                                              ? 0
                      : name[0] == 'h' && name[1] >= '1' && name[1] <= '6' && name[2] == '\0' ? name[1] - '0'
                                                                                              : -1;

    if (level >= 0) {
        if (h->heading >= 0)
            end_heading(h);
        if (!close)
            begin_heading(h, level);
    } else if (!close && is_one_of(name, "script style template noscript svg")) {
        (void)snprintf(end, sizeof end, "</%s", name);
        skip_to(h, find_any_case(h->s, h->at, end));
    } else if (strcmp(name, "br") == 0 || is_one_of(name, "td th")) {
        end_word(h, '\n');
    } else if (is_one_of(name, blocks))
        end_paragraph(h);
    if (strcmp(name, "pre") == 0)
        h->pre = close ? 0 : 1;
}

static void markup(struct html *h)
{
    const struct str s = h->s;
    const char next = h->at + 1 < s.n ? s.p[h->at + 1] : ' ';
    size_t end;

    if (s.n - h->at >= 4 && memcmp(s.p + h->at, "<!--", 4) == 0) {
        end = str_find(s, h->at + 4, STR("-->"));
        skip_to(h, end == SIZE_MAX ? s.n : end + 3);
    } else if (next == '!' || next == '?') {
        end = str_find(s, h->at, STR(">"));
        skip_to(h, end == SIZE_MAX ? s.n : end + 1);
    } else if (next == '/' || ((next | 32) >= 'a' && (next | 32) <= 'z')) {
        element(h);
    } else {
        add_bytes(h, STR("<"));
        h->at++;
    }
}

void recall_cut_html(struct recall_cutter *c, struct str s)
{
    struct html h = { .c = c, .s = s, .line = 1, .heading = -1 };

    while (c->code == ERR_OK && h.at < s.n) {
        char out[4], ch = s.p[h.at];
        size_t n = 0, len = ch == '&' ? entity(&h, out, &n) : 0;

        if (ch == '<')
            markup(&h);
        else if (len > 0) {
            if (n == 1 && out[0] == ' ')
                end_word(&h, ' ');
            else
                add_bytes(&h, (struct str){ out, n });
            h.at += len;
        } else if (is_blank(ch)) {
            end_word(&h, ch);
            h.line += ch == '\n';
            h.at++;
        } else {
            add_bytes(&h, (struct str){ s.p + h.at, 1 });
            h.at++;
        }
    }
    if (h.heading >= 0)
        end_heading(&h);
    end_paragraph(&h);
    free(h.word.p);
    free(h.title.p);
}
