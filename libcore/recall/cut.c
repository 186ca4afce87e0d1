/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - documents into texts; plain text and Markdown.                      room: recall */
#include "recall/cut.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "recall/cutter.h"

bool recall_bytes_add(struct recall_bytes *b, struct str s, struct err *e)
{
    if (memory_room(&b->p, &b->cap, b->n + s.n + 1, 1, e))
        return false;
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct str trim(struct str s)
{
    while (s.n > 0 && is_blank(s.p[s.n - 1]))
        s.n--;
    while (s.n > 0 && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    return s;
}

/* ---- texts ---- */

static int64_t line_at(const struct recall_cutter *c, size_t at)
{
    size_t lo = 0, hi = c->n_text_marks;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;

        if (c->mark[mid].at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 ? c->mark[lo - 1].line : 1;
}

static size_t join_titles(const struct recall_cutter *c, char *out)
{
    size_t n = 0;

    for (int i = 0; i < RECALL_LEVELS; i++) {
        const size_t len = strlen(c->title[i]);

        if (len == 0)
            continue;
        if (n > 0) {
            memcpy(out + n, " > ", 3);
            n += 3;
        }
        memcpy(out + n, c->title[i], len);
        n += len;
    }
    return n;
}

/* Bytes [from, to) of the text. */
static void give_text(struct recall_cutter *c, size_t from, size_t to)
{
    char heading[RECALL_LEVELS * (RECALL_HEADING_BYTES + 3)];
    const struct str s = trim((struct str){ c->text.p + from, to - from });

    if (c->code != ERR_OK || s.n == 0)
        return;
    const struct recall_chunk chunk = { s,
                                        { heading, join_titles(c, heading) },
                                        line_at(c, (size_t)(s.p - c->text.p)) };

    c->code = c->fn(c->ctx, &chunk, c->e);
}

/* The last place in s, behind half of it, where it may be cut: behind a line, a sentence, a word, a character. */
static size_t cut_at(struct str s)
{
    size_t best = 0;
    int rank = 0;

    for (size_t i = s.n; i > s.n / 2; i--) {
        const char a = s.p[i - 1], b = i > 1 ? s.p[i - 2] : ' ';
        const int now = a == '\n' ? 3 : a == ' ' && strchr(".!?", b) != NULL ? 2 : a == ' ' || a == '\t' ? 1 : 0;

        if (now > rank) {
            rank = now;
            best = i;
        }
    }
    if (best > 0)
        return best;
    for (best = s.n; best > 1 && best + 4 > s.n && ((unsigned char)s.p[best] & 0xC0) == 0x80; best--)
        ;
    return best;
}

/* Where the last o.overlap bytes before `end` begin a line, sentence or word; end: nowhere. */
static size_t overlap_from(const struct recall_cutter *c, size_t from, size_t end)
{
    size_t at = end - from > c->o.overlap ? end - c->o.overlap : from;
    size_t best = end;
    int rank = 0;

    for (; at < end && c->o.overlap > 0; at++) {
        const char a = at > from ? c->text.p[at - 1] : '\n', b = at > from + 1 ? c->text.p[at - 2] : ' ';
        const int now = is_blank(c->text.p[at])                ? 0
                        : a == '\n'                            ? 3
                        : a == ' ' && strchr(".!?", b) != NULL ? 2
                        : is_blank(a)                          ? 1
                                                               : 0;

        if (now > rank) {
            rank = now;
            best = at;
        }
    }
    return best;
}

/* Forgets the text before `at`. */
static void drop_text(struct recall_cutter *c, size_t at)
{
    const int64_t line = line_at(c, at);
    size_t kept = 0;

    memmove(c->text.p, c->text.p + at, c->text.n - at);
    c->text.n -= at;
    if (c->text.n > 0)
        c->mark[kept++] = (struct recall_mark){ 0, line };
    for (size_t i = 0; i < c->n_text_marks; i++)
        if (c->mark[i].at > at && c->text.n > 0)
            c->mark[kept++] = (struct recall_mark){ c->mark[i].at - at, c->mark[i].line };
    for (size_t i = c->n_text_marks; i < c->n_marks; i++)
        c->mark[kept + i - c->n_text_marks] = c->mark[i];
    c->n_marks = kept + c->n_marks - c->n_text_marks;
    c->n_text_marks = kept;
}

/* Gives out whole texts until the rest has room in one. */
static void give_full(struct recall_cutter *c)
{
    size_t from = 0, to = 0;

    while (c->code == ERR_OK && c->text.n - from > c->o.chunk) {
        to = from + cut_at((struct str){ c->text.p + from, c->o.chunk });

        give_text(c, from, to);
        const size_t next = overlap_from(c, from, to);

        from = next > from ? next : to;
    }
    if (from == 0)
        return;
    drop_text(c, from);
    c->fresh = to - from;
}

/* All that waits; end: nothing that follows belongs to it. */
static void give_rest(struct recall_cutter *c, bool end)
{
    if (c->text.n > c->fresh)
        give_text(c, 0, c->text.n);
    const size_t at = end || c->text.n == 0 ? c->text.n : overlap_from(c, 0, c->text.n);

    if (c->text.n > 0)
        drop_text(c, at);
    c->fresh = c->text.n;
}

/* ---- paragraphs ---- */

void recall_cutter_add(struct recall_cutter *c, char before, struct str s, int64_t line)
{
    if (c->code != ERR_OK)
        return;
    if (memory_room(&c->mark, &c->marks_cap, c->n_marks + 2, sizeof *c->mark, c->e) ||
        (c->para.n > 0 && before != '\0' && !recall_bytes_add(&c->para, (struct str){ &before, 1 }, c->e))) {
        c->code = c->e->code;
        return;
    }
    if (c->n_marks == c->n_text_marks || c->mark[c->n_marks - 1].line != line)
        c->mark[c->n_marks++] = (struct recall_mark){ c->para.n, line };
    if (!recall_bytes_add(&c->para, s, c->e))
        c->code = c->e->code;
}

void recall_cutter_break(struct recall_cutter *c)
{
    const struct str s = trim((struct str){ c->para.p, c->para.n });

    if (c->code == ERR_OK && s.n > 0) {
        if (c->text.n > c->fresh && c->text.n + 2 + s.n > c->o.chunk)
            give_rest(c, false);
        if (c->text.n > 0 && !recall_bytes_add(&c->text, STR("\n\n"), c->e))
            c->code = c->e->code;
        const size_t at = c->text.n;

        /* Blanks at the beginning were left out: a line that consists of them is not where the text begins. */
        for (size_t i = c->n_text_marks; i < c->n_marks; i++) {
            const size_t cut = (size_t)(s.p - c->para.p);

            c->mark[i].at = at + (c->mark[i].at > cut ? c->mark[i].at - cut : 0);
        }
        c->n_text_marks = c->n_marks;
        if (c->code == ERR_OK && !recall_bytes_add(&c->text, s, c->e))
            c->code = c->e->code;
        give_full(c);
    }
    c->para.n = 0;
    c->n_marks = c->n_text_marks;
}

void recall_cutter_heading(struct recall_cutter *c, int level, struct str s)
{
    char *title = c->title[level];
    size_t n = 0;

    recall_cutter_break(c);
    give_rest(c, true);
    s = trim(s);
    for (int i = level; i < RECALL_LEVELS; i++)
        c->title[i][0] = '\0';
    for (size_t i = 0; i < s.n && n < RECALL_HEADING_BYTES - 1; i++)
        title[n++] = (char)(is_blank(s.p[i]) || s.p[i] == '\0' ? ' ' : s.p[i]);
    while (n > 0 && n < s.n && ((unsigned char)s.p[n] & 0xC0) == 0x80)
        n--;
    title[n] = '\0';
}

/* ---- plain text and Markdown ---- */

bool recall_next_line(struct str s, size_t *at, int64_t *line, struct str *out)
{
    if (*at >= s.n)
        return false;
    const char *end = memchr(s.p + *at, '\n', s.n - *at);
    const size_t n = end != NULL ? (size_t)(end - s.p) - *at : s.n - *at;

    *out = (struct str){ s.p + *at, n };
    *at += n + 1;
    ++*line;
    return true;
}

static size_t count_of(struct str s, char c)
{
    size_t n = 0;

    while (n < s.n && s.p[n] == c)
        n++;
    return n;
}

/* The level of a heading with # in front, and its text; 0: it is none. */
static int heading_of(struct str s, struct str *title)
{
    const size_t n = count_of(s, '#');

    if (n == 0 || n > 6 || (n < s.n && s.p[n] != ' ' && s.p[n] != '\t'))
        return 0;
    *title = trim((struct str){ s.p + n, s.n - n });
    while (title->n > 0 && title->p[title->n - 1] == '#')
        title->n--;
    return (int)n;
}

/* The level that a line under a title gives it; 0: it is no such line. */
static int underline(struct str s)
{
    s = trim(s);
    return s.n >= 2 && count_of(s, '=') == s.n ? 1 : s.n >= 2 && count_of(s, '-') == s.n ? 2 : 0;
}

static void cut_lines(struct recall_cutter *c, struct str document, bool markdown)
{
    struct str s, title = { 0 };
    size_t at = 0, fence = 0, lines = 0; /* fence: length of what opened the code; lines: of the open paragraph */
    int64_t line = 0;
    char mark = 0;

    while (c->code == ERR_OK && recall_next_line(document, &at, &line, &s)) {
        const struct str bare = trim(s);
        const size_t ticks = bare.n > 0 && (bare.p[0] == '`' || bare.p[0] == '~') ? count_of(bare, bare.p[0]) : 0;
        int level = 0;

        if (markdown && fence == 0 && lines == 1)
            level = underline(bare);
        if (level > 0) {
            title = trim((struct str){ c->para.p, c->para.n });
            c->para.n = 0;
            c->n_marks = c->n_text_marks;
        } else if (markdown && fence == 0)
            level = heading_of(bare, &title);
        if (level > 0) {
            lines = 0;
            recall_cutter_heading(c, level, title);
            continue;
        }
        if (markdown && ticks >= 3 && (fence == 0 || (bare.p[0] == mark && ticks >= fence && ticks == bare.n))) {
            mark = bare.p[0];
            fence = fence == 0 ? ticks : 0;
        }
        if (bare.n == 0 && fence == 0) {
            recall_cutter_break(c);
            lines = 0;
        } else {
            recall_cutter_add(c, '\n', (struct str){ s.p, (size_t)(bare.p - s.p) + bare.n }, line);
            lines++;
        }
    }
}

enum err_code recall_cut(struct str document, const struct recall_cut_opts *o, recall_chunk_fn *fn, void *ctx,
                         struct err *e)
{
    struct recall_cutter *c = calloc(1, sizeof *c);
    enum err_code code;

    if (c == NULL)
        return err_nomem(e);
    *c = (struct recall_cutter){ .o = *o, .fn = fn, .ctx = ctx, .e = e };
    if (o->form == RECALL_HTML)
        recall_cut_html(c, document);
    else if (o->form == RECALL_MAN)
        recall_cut_man(c, document);
    else
        cut_lines(c, document, o->form == RECALL_MARKDOWN);
    recall_cutter_break(c);
    give_rest(c, true);
    code = c->code;
    free(c->text.p);
    free(c->para.p);
    free(c->mark);
    free(c);
    return code;
}

/* ---- which form ---- */

static bool has_end(struct str name, const char *end)
{
    const size_t n = strlen(end);

    return name.n > n && memcmp(name.p + name.n - n, end, n) == 0;
}

enum recall_form recall_form_of(struct str name, struct str document)
{
    size_t dot = name.n;

    if (has_end(name, ".md") || has_end(name, ".markdown"))
        return RECALL_MARKDOWN;
    if (has_end(name, ".html") || has_end(name, ".htm") || has_end(name, ".xhtml"))
        return RECALL_HTML;
    while (dot > 0 && name.p[dot - 1] != '.' && name.p[dot - 1] != '/')
        dot--;
    if (dot > 1 && dot < name.n && name.p[dot - 1] == '.' && name.p[dot] >= '1' && name.p[dot] <= '9' &&
        document.n > 0 && (document.p[0] == '.' || document.p[0] == '\''))
        return RECALL_MAN;
    return RECALL_PLAIN;
}
