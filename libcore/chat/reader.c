/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c - an answer to reasoning, text and tool calls (reader.h).                  room: chat
 *
 * What is common to all syntaxes: bytes to characters, text and its white space, marks, pieces. How
 * a family writes its calls is in parse_*.c; which marks it has, in parsers.def.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/parse.h"

#define XML(...) \
    .call = chat_call_xml, .conf = &(const struct chat_xml) \
    { \
        __VA_ARGS__ \
    }
#define NAMED(...) \
    .call = chat_call_named, .conf = &(const struct chat_named) \
    { \
        __VA_ARGS__ \
    }
#define FIND(...)
#define SYNTAX(id, ...) { .name = id, __VA_ARGS__ },
static const struct chat_syntax syntaxes[] = {
#include "chat/parsers.def"
};
#define N_SYNTAXES (sizeof syntaxes / sizeof *syntaxes)

#define SYNTAX(id, ...)
#define FIND(id, ...) { id, { __VA_ARGS__ } },
static const struct {
    const char *name, *marks[CHAT_MARKS];
} finds[] = {
#include "chat/parsers.def"
};

const char *chat_reader_name(int i)
{
    return i >= 0 && (size_t)i < N_SYNTAXES ? syntaxes[i].name : NULL;
}

static bool contains_part(struct str s, const char *part)
{
    const size_t n = strlen(part);

    for (const char *p = s.p, *end = s.p + s.n; n <= (size_t)(end - p); p++) {
        p = memchr(p, part[0], (size_t)(end - p) - n + 1);
        if (p == NULL)
            return false;
        if (memcmp(p, part, n) == 0)
            return true;
    }
    return false;
}

const char *chat_reader_find(struct str template_text)
{
    for (size_t i = 0; i < sizeof finds / sizeof *finds && template_text.n > 0; i++) {
        bool all = true;
        for (int k = 0; k < CHAT_MARKS && finds[i].marks[k] != NULL; k++)
            all = all && contains_part(template_text, finds[i].marks[k]);
        if (all)
            return finds[i].name;
    }
    return "plain";
}

/* ---- pieces ---- */

static void give_text(struct chat_reader *r, enum chat_part part, struct str s)
{
    struct text_buf *b = &r->part[part].text;

    if (s.n == 0)
        return;
    chat_parse_add_piece(r, &(struct chat_out){ .part = part, .from = b->n, .n = s.n });
    text_buf_add(b, s);
}

static void give_space(struct chat_reader *r, enum chat_part part)
{
    struct chat_channel *c = &r->part[part];

    give_text(r, part, (struct str){ c->space.p, c->space.n });
    c->space.n = 0;
}

void chat_parse_say(struct chat_reader *r, enum chat_part part, struct str s)
{
    struct chat_channel *c = &r->part[part];

    while (s.n > 0) {
        size_t n = 0, end = s.n;
        while (n < s.n && chat_parse_is_space(s.p[n]))
            n++;
        text_buf_add(&c->space, (struct str){ s.p, n });
        if (n == s.n)
            return;
        while (chat_parse_is_space(s.p[end - 1]))
            end--;
        if (c->soft && !c->any)
            c->space.n = 0;
        if (c->join && c->any && c->space.n == 0)
            give_text(r, part, STR("\n"));
        give_space(r, part);
        give_text(r, part, (struct str){ s.p + n, end - n });
        c->any = true;
        c->soft = c->join = false;
        s.p += end;
        s.n -= end;
    }
}

void chat_parse_mark(struct chat_reader *r)
{
    for (int i = 0; i < 2; i++) {
        r->part[i].soft = true;
        if (!r->part[i].any)
            r->part[i].space.n = 0;
    }
}

/* ---- places in the answer ---- */

struct str chat_parse_slice(const struct chat_reader *r, struct chat_span s)
{
    return (struct str){ r->all.p + s.from, s.to - s.from };
}

void chat_parse_phase(struct chat_reader *r, int phase)
{
    r->phase = phase;
    r->probe = r->scan;
    r->look = 0;
}

void chat_parse_space(struct chat_reader *r)
{
    while (r->scan < r->all.n && chat_parse_is_space(r->all.p[r->scan]))
        r->scan++;
}

enum chat_step chat_parse_take(struct chat_reader *r, const char *mark)
{
    const size_t n = strlen(mark), left = r->all.n - r->scan;

    if (left > 0 && memcmp(r->all.p + r->scan, mark, left < n ? left : n) != 0)
        return CHAT_BAD;
    if (left < n)
        return CHAT_MORE;
    r->scan += n;
    return CHAT_ON;
}

enum chat_step chat_parse_take_one(struct chat_reader *r, const char *const *marks, int n, int *which)
{
    enum chat_step best = CHAT_BAD;

    for (int i = 0; i < n && best != CHAT_ON; i++) {
        enum chat_step step = marks[i] != NULL ? chat_parse_take(r, marks[i]) : CHAT_BAD;
        if (step == CHAT_MORE && !r->end)
            return CHAT_MORE;
        if (step == CHAT_ON)
            *which = i;
        if (step != CHAT_BAD)
            best = step;
    }
    return best;
}

enum chat_step chat_parse_until(struct chat_reader *r, const char *mark, size_t n_max, const char *never,
                                struct chat_span *out)
{
    const size_t n = strlen(mark);

    for (;; r->probe++) {
        const size_t left = r->all.n - r->probe;
        if (r->probe - r->scan > n_max)
            return CHAT_BAD;
        if (left == 0)
            return CHAT_MORE;
        if (memcmp(r->all.p + r->probe, mark, left < n ? left : n) == 0)
            break;
        if (r->all.p[r->probe] == '\0' || strchr(never, r->all.p[r->probe]) != NULL)
            return CHAT_BAD;
    }
    if (r->all.n - r->probe < n)
        return CHAT_MORE;
    *out = (struct chat_span){ r->scan, r->probe };
    r->scan = r->probe + n;
    return CHAT_ON;
}

bool chat_parse_search(const struct chat_reader *r, size_t from, const char *const *marks, int n, size_t *at,
                       int *which)
{
    bool first[256] = { false };

    for (int i = 0; i < n; i++)
        if (marks[i] != NULL)
            first[(unsigned char)marks[i][0]] = true;
    for (size_t k = from; k < r->all.n; k++) {
        bool part = false;
        if (!first[(unsigned char)r->all.p[k]])
            continue;
        for (int i = 0; i < n; i++) {
            const size_t left = r->all.n - k, len = marks[i] != NULL ? strlen(marks[i]) : 0;
            if (len == 0 || memcmp(r->all.p + k, marks[i], left < len ? left : len) != 0)
                continue;
            *at = k;
            *which = i;
            if (len <= left)
                return true;
            part = true;
        }
        if (part && !r->end)
            return false;
    }
    *at = r->all.n;
    return false;
}

enum chat_step chat_parse_take_value(struct chat_reader *r, struct chat_span *out)
{
    size_t at = r->probe;
    enum chat_step step;

    if (at == r->scan)
        chat_parse_scan_begin(&r->value, (r->syntax->values & CHAT_PYTHON) == CHAT_PYTHON);
    step = chat_parse_scan(&r->value, (struct str){ r->all.p, r->all.n }, &at);
    r->probe = at;
    if (step == CHAT_DONE)
        *out = (struct chat_span){ r->scan, at };
    if (step != CHAT_MORE)
        r->scan = at;
    return step == CHAT_DONE ? CHAT_ON : step;
}

/* ---- text ---- */

enum chat_step chat_text_plain(struct chat_reader *r)
{
    give_text(r, CHAT_TEXT, (struct str){ r->all.p + r->head, r->all.n - r->head });
    r->head = r->all.n;
    return CHAT_MORE;
}

static void begin_calls(struct chat_reader *r, size_t scan, bool bare)
{
    r->in_call = true;
    r->bare = bare;
    r->begun = true;
    r->in_list = false;
    r->n_block = 0;
    r->scan = scan;
    chat_parse_phase(r, 0);
}

/* The text, or what follows a mark, begins with an object, which may be a call. */
static bool begins_bare(struct chat_reader *r)
{
    size_t at = r->head;

    while (at < r->all.n && chat_parse_is_space(r->all.p[at]))
        at++;
    if (at == r->all.n || r->all.p[at] != '{')
        return false;
    chat_parse_say(r, CHAT_TEXT, chat_parse_slice(r, (struct chat_span){ r->head, at }));
    r->head = at;
    begin_calls(r, at, true);
    return true;
}

/* The marks that mean something now, in this order; which of them one is. */
enum {
    THINK,
    THINK_END,
    CLOSE,
    OPEN,
    INSIDE = OPEN + CHAT_MARKS,
    DROP = INSIDE + CHAT_MARKS,
    MARKS_MAX = DROP + CHAT_MARKS
};

static void marks_now(const struct chat_reader *r, const char *m[MARKS_MAX])
{
    const struct chat_syntax *s = r->syntax;
    const bool text = !r->reasoning, calls = (text || s->call_over) && r->tools != NULL;

    m[THINK_END] = r->reasoning ? s->think_end[0] : NULL;
    m[THINK] = r->part[r->reasoning ? CHAT_REASONING : CHAT_TEXT].any || r->n_given > 0 || (text && r->thought)
                   ? NULL
                   : s->think;
    m[CLOSE] = calls && r->unclosed ? s->close : NULL;
    for (int i = 0; i < CHAT_MARKS; i++) {
        m[OPEN + i] = calls ? s->open[i] : NULL;
        m[INSIDE + i] = calls ? s->inside[i] : NULL;
        m[DROP + i] = text && (r->thought || !s->drop_thought) ? s->drop[i] : NULL;
    }
}

enum chat_step chat_text_marked(struct chat_reader *r)
{
    const enum chat_part part = r->reasoning ? CHAT_REASONING : CHAT_TEXT;
    const char *m[MARKS_MAX];
    size_t at;
    int which;

    if (r->syntax->bare && r->tools != NULL && part == CHAT_TEXT && (!r->part[part].any || r->part[part].soft) &&
        begins_bare(r))
        return CHAT_ON;
    marks_now(r, m);
    const bool found = chat_parse_search(r, r->head, m, MARKS_MAX, &at, &which);
    chat_parse_say(r, part, chat_parse_slice(r, (struct chat_span){ r->head, at }));
    r->head = at;
    if (!found)
        return CHAT_MORE;
    at += strlen(m[which]);
    if (which >= OPEN && which < DROP) {
        begin_calls(r, which < INSIDE ? at : r->head, false);
        return CHAT_ON;
    }
    if (which == THINK && r->part[part].any) { /* text came before it in the same piece */
        chat_parse_say(r, part, chat_parse_slice(r, (struct chat_span){ r->head, at }));
    } else {
        chat_parse_mark(r);
        r->reasoning = which == THINK || (r->reasoning && which != THINK_END);
        r->thought = r->thought || r->reasoning;
        r->unclosed = r->unclosed && which != CLOSE;
    }
    r->head = at;
    return CHAT_ON;
}

void chat_parse_call_over(struct chat_reader *r)
{
    if (r->n_block > 0) {
        struct chat_given *last = &r->given[r->n_given - 1];
        last->raw_n = r->scan - last->raw;
    }
    chat_parse_fail_call(r);
    chat_parse_mark(r);
    r->reasoning = r->reasoning && !(r->syntax->call_over && r->n_block > 0);
    r->head = r->scan;
    r->in_call = r->begun = false;
}

void chat_parse_call_is_text(struct chat_reader *r)
{
    chat_parse_fail_call(r);
    r->unclosed = r->unclosed || r->n_block > 0;
    chat_parse_say(r, r->reasoning && r->syntax->call_over ? CHAT_REASONING : CHAT_TEXT,
                   chat_parse_slice(r, (struct chat_span){ r->head, r->scan }));
    r->head = r->scan;
    r->in_call = r->begun = false;
}

/* ---- bytes to characters ---- */

/* Whether bytes that are no character may still become one. */
static bool may_become(const char *p, size_t n)
{
    static const char fill[2] = { (char)0x80, (char)0xBF };
    char c[4];

    for (int i = 0; i < 2 && n < 4; i++) {
        memset(c, fill[i], sizeof c);
        memcpy(c, p, n);
        if (str_utf8((struct str){ c, 4 }) > n)
            return true;
    }
    return false;
}

/* Takes characters from s, and U+FFFD for each byte that is part of none; returns what is left,
 * which may become a character unless this is the last of it. */
static struct str take_chars(struct chat_reader *r, struct str s, bool last)
{
    while (s.n > 0) {
        size_t n = 0, len;
        while (n < s.n && (len = str_utf8((struct str){ s.p + n, s.n - n })) > 0)
            n += len;
        text_buf_add(&r->all, (struct str){ s.p, n });
        s = (struct str){ s.p + n, s.n - n };
        if (s.n == 0 || (!last && may_become(s.p, s.n)))
            break;
        text_buf_add(&r->all, STR("\xef\xbf\xbd"));
        s = (struct str){ s.p + 1, s.n - 1 };
    }
    return s;
}

static void take_bytes(struct chat_reader *r, struct str s)
{
    while (r->n_tail > 0 && (s.n > 0 || r->end)) {
        if (s.n > 0) {
            r->tail[r->n_tail++] = s.p[0];
            s = (struct str){ s.p + 1, s.n - 1 };
        }
        struct str left = take_chars(r, (struct str){ r->tail, r->n_tail }, r->end && s.n == 0);
        memmove(r->tail, left.p, left.n);
        r->n_tail = left.n;
    }
    s = take_chars(r, s, r->end);
    if (s.n > 0)
        memcpy(r->tail, s.p, s.n);
    r->n_tail += s.n;
}

/* ---- the reader ---- */

static enum err_code check_tools(const json_t *tools, struct err *e)
{
    struct str name;

    if (!json_is_array(tools) && tools != NULL && !json_is_null(tools))
        return err_set(e, ERR_FORMAT, "tools: not a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *f = json_object_get(tool, "function");

        f = json_is_object(f) ? f : tool;
        if (!json_get_str(f, "name", &name) || name.n == 0)
            return err_set(e, ERR_FORMAT, "tools: tool %zu is not a function with a name", i);
        f = json_object_get(f, "strict");
        if (f != NULL && !json_is_boolean(f) && !json_is_null(f))
            return err_set(e, ERR_FORMAT, "tools: tool %zu: strict is not true or false", i);
    }
    return ERR_OK;
}

const struct chat_syntax *chat_parse_syntax(const char *name)
{
    for (size_t i = 0; i < N_SYNTAXES; i++)
        if (strcmp(syntaxes[i].name, name) == 0)
            return &syntaxes[i];
    return NULL;
}

enum err_code chat_parse_no_syntax(const char *name, struct err *e)
{
    char known[400] = "";
    size_t n = 0;

    for (size_t i = 0; i < N_SYNTAXES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, " %s", syntaxes[i].name);
    return err_set(e, ERR_ARG, "no parser is called '%.60s'; there are:%s", name, known);
}

enum err_code chat_reader_open(struct chat_reader **out, const struct chat_reader_opts *o, struct err *e)
{
    const struct chat_syntax *s = chat_parse_syntax(o->parser);
    enum err_code rc = check_tools(o->tools, e);
    struct chat_reader *r;

    if (rc != ERR_OK)
        return rc;
    if (s == NULL)
        return chat_parse_no_syntax(o->parser, e);
    r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_nomem(e);
    r->syntax = s;
    if (json_array_size(o->tools) > 0)
        r->tools = json_incref((json_t *)(uintptr_t)o->tools);
    r->first_call = o->first_call;
    r->reasoning = r->thought = o->reasoning && s->think != NULL;
    r->part[CHAT_REASONING].soft = true;
    *out = r;
    return ERR_OK;
}

void chat_reader_close(struct chat_reader *r)
{
    if (r == NULL)
        return;
    json_decref(r->tools);
    for (int i = 0; i < 2; i++) {
        free(r->part[i].text.p);
        free(r->part[i].space.p);
    }
    free(r->all.p);
    free(r->words.p);
    free(r->args.p);
    free(r->scratch.p);
    free(r->id_text.p);
    free(r->name_text.p);
    free(r->out);
    free(r->piece);
    free(r->given);
    free(r->param);
    free(r);
}

static void take_steps(struct chat_reader *r)
{
    enum chat_step step;

    do {
        step = r->in_call ? r->syntax->call(r) : r->syntax->text(r);
        if (step == CHAT_DONE)
            chat_parse_call_over(r);
        else if (step == CHAT_BAD)
            chat_parse_call_is_text(r);
    } while (step != CHAT_MORE && !r->failed);
}

static void finish_answer(struct chat_reader *r)
{
    if (r->in_call && r->begun) {
        r->cut = CHAT_CUT_CALL;
        chat_parse_fail_call(r);
        chat_parse_mark(r);
        r->in_call = false;
    } else if (r->in_call) {
        r->scan = r->all.n;
        chat_parse_call_over(r);
    } else if (r->reasoning) {
        r->cut = CHAT_CUT_REASONING;
    }
    for (int i = 0; i < 2; i++)
        if (!r->part[i].soft)
            give_space(r, (enum chat_part)i);
}

static bool no_memory(const struct chat_reader *r)
{
    return r->failed || r->all.failed || r->words.failed || r->args.failed || r->scratch.failed || r->id_text.failed ||
           r->name_text.failed || r->part[0].text.failed || r->part[0].space.failed || r->part[1].text.failed ||
           r->part[1].space.failed;
}

static struct chat_piece piece_of(const struct chat_reader *r, const struct chat_out *o)
{
    const struct chat_given *g = &o->of;

    if (o->part != CHAT_TOOL)
        return (struct chat_piece){
            .part = o->part, .id = STR(""), .name = STR(""), .text = { r->part[o->part].text.p + o->from, o->n }
        };
    return (struct chat_piece){
        .part = CHAT_TOOL,
        .step = o->step,
        .call = o->call,
        .id = { r->words.p + g->id, g->id_n },
        .name = { r->words.p + g->name, g->name_n },
        .text = { r->words.p + o->from, o->n },
    };
}

enum err_code chat_read(struct chat_reader *r, struct str text, bool end, const struct chat_piece **v, int *n,
                        struct err *e)
{
    if (r->end || no_memory(r))
        return err_set(e, ERR_ARG, "the answer was read to its end");
    if (r->all.n > CHAT_ANSWER_BYTES_MAX || text.n > CHAT_ANSWER_BYTES_MAX - r->all.n)
        return err_set(e, ERR_LIMIT, "the answer is longer than %d MiB", CHAT_ANSWER_BYTES_MAX >> 20);
    r->end = end;
    r->n_out = 0;
    take_bytes(r, text);
    take_steps(r);
    if (end)
        finish_answer(r);
    struct chat_piece *p = r->piece;
    if (!no_memory(r) && r->n_out > r->piece_cap && (p = realloc(p, r->out_cap * sizeof *p)) != NULL) {
        r->piece = p;
        r->piece_cap = r->out_cap;
    }
    r->failed = r->failed || r->n_out > r->piece_cap;
    if (no_memory(r))
        return err_nomem(e);
    for (size_t i = 0; i < r->n_out; i++)
        p[i] = piece_of(r, &r->out[i]);
    *v = p;
    *n = (int)r->n_out;
    return ERR_OK;
}

enum chat_part chat_reader_where(const struct chat_reader *r)
{
    return r->in_call && r->begun ? CHAT_TOOL : r->reasoning ? CHAT_REASONING : CHAT_TEXT;
}

int chat_reader_calls(const struct chat_reader *r)
{
    return (int)r->n_given;
}

struct chat_call chat_reader_call(const struct chat_reader *r, int i)
{
    assert(i >= 0 && (size_t)i < r->n_given);
    const struct chat_given *g = &r->given[i];
    return (struct chat_call){
        .id = { r->words.p + g->id, g->id_n },
        .name = { r->words.p + g->name, g->name_n },
        .arguments = { r->words.p + g->arguments, g->arguments_n },
        .raw = { r->all.p + g->raw, g->raw_n },
    };
}

enum chat_cut chat_reader_cut(const struct chat_reader *r)
{
    return r->cut;
}

static json_t *string_of(const struct text_buf *b)
{
    return json_stringn(b->n > 0 ? b->p : "", b->n);
}

static json_t *call_object(const struct chat_call *c)
{
    return json_pack("{s:s%, s:s, s:{s:s%, s:s%}}", "id", c->id.p, c->id.n, "type", "function", "function", "name",
                     c->name.p, c->name.n, "arguments", c->arguments.p, c->arguments.n);
}

enum err_code chat_reader_result(json_t **out, const struct chat_reader *r, struct err *e)
{
    json_t *calls = json_array(), *o = NULL;
    bool ok = calls != NULL;

    for (int i = 0; ok && i < chat_reader_calls(r); i++) {
        struct chat_call c = chat_reader_call(r, i);
        ok = json_array_append_new(calls, call_object(&c)) == 0;
    }
    if (ok)
        o = json_pack("{s:o, s:o, s:O}", "reasoning", string_of(&r->part[CHAT_REASONING].text), "content",
                      string_of(&r->part[CHAT_TEXT].text), "tool_calls", calls);
    json_decref(calls);
    ok = o != NULL;
    if (ok && r->cut != CHAT_CUT_NONE)
        ok = json_object_set_new(o, "cut_off", json_string(r->cut == CHAT_CUT_CALL ? "tool_call" : "reasoning")) == 0;
    if (!ok) {
        json_decref(o);
        return err_nomem(e);
    }
    *out = o;
    return ERR_OK;
}
