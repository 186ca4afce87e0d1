/* SPDX-License-Identifier: Apache-2.0 */
/* parse_python.c - calls as Python writes them: [name(key=value, ...), ...].          room: chat
 *
 * LFM2. Arguments have names and values are literals; anything else is no call that can be read.
 * The same models write a list of JSON objects when they are asked to.
 */
#include <stdlib.h>
#include <string.h>
#include "chat/parse.h"

enum { BLOCK, ITEM, NAME, ARGUMENTS, NEXT };

static enum chat_step read_block(struct chat_reader *r)
{
    enum chat_step step;

    chat_parse_space(r);
    step = chat_parse_take(r, r->syntax->close);
    r->unclosed = step == CHAT_BAD && r->n_block > 0;
    if (step == CHAT_MORE)
        return step;
    if (step == CHAT_ON || r->n_block > 0)
        return r->n_block > 0 ? CHAT_DONE : CHAT_BAD;
    r->in_list = r->all.p[r->scan] == '[';
    r->scan += r->in_list;
    chat_parse_phase(r, ITEM);
    return CHAT_ON;
}

static enum chat_step read_item(struct chat_reader *r)
{
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    r->begun = true;
    if (r->all.p[r->scan] == '{') {
        const bool in_list = r->in_list;
        (void)chat_parse_json_next(r);
        r->in_list = in_list;
        return CHAT_ON;
    }
    if (r->in_list && r->all.p[r->scan] == ']') { /* after a comma, or an empty list */
        r->scan++;
        r->begun = false;
        chat_parse_phase(r, BLOCK);
        return r->n_block > 0 ? CHAT_ON : CHAT_BAD;
    }
    chat_parse_phase(r, NAME);
    return CHAT_ON;
}

/* Whether the name of the last parameter is new. */
static bool is_new(const struct chat_reader *r)
{
    struct str last = chat_parse_slice(r, r->param[r->n_param - 1].key);

    for (size_t i = 0; i + 1 < r->n_param; i++)
        if (str_eq(chat_parse_slice(r, r->param[i].key), last))
            return false;
    return true;
}

static struct str skip_space(struct str s)
{
    while (s.n > 0 && chat_parse_is_space(s.p[0]))
        s = (struct str){ s.p + 1, s.n - 1 };
    return s;
}

/* key=value, to the parameters and, as JSON, to args. */
static bool take_argument(struct chat_reader *r, struct str *s)
{
    size_t n = 0;

    while (n < s->n && s->p[n] != '=' && strchr("\"'[](){}:,", s->p[n]) == NULL)
        n++;
    if (n == s->n || s->p[n] != '=' || r->n_param == CHAT_PARAMS_MAX)
        return false;
    struct str key = { s->p, n };
    chat_parse_trim(&key);
    for (size_t i = 0; i < key.n; i++)
        if (chat_parse_is_space(key.p[i]))
            return false;
    const size_t from = (size_t)(key.p - r->all.p);
    r->param[r->n_param++].key = (struct chat_span){ from, from + key.n };
    if (key.n == 0 || !is_new(r))
        return false;
    text_buf_addz(&r->args, r->args.n > 1 ? ", " : "");
    chat_parse_quote(&r->args, key);
    text_buf_addz(&r->args, ": ");
    *s = (struct str){ s->p + n + 1, s->n - n - 1 };
    return chat_parse_value(&r->args, s, r->syntax->values);
}

/* Gives the call with the arguments "(...)". */
static bool give_call(struct chat_reader *r, struct chat_span span)
{
    struct str s = chat_parse_slice(r, (struct chat_span){ span.from + 1, span.to - 1 });
    struct str name = chat_parse_slice(r, r->name);

    if (r->param == NULL)
        r->param = malloc(CHAT_PARAMS_MAX * sizeof *r->param);
    r->failed = r->failed || r->param == NULL;
    if (r->failed)
        return false;
    r->n_param = r->args.n = 0;
    text_buf_addz(&r->args, "{");
    for (s = skip_space(s); s.n > 0; s = skip_space(s)) {
        if (!take_argument(r, &s))
            return false;
        s = skip_space(s);
        if (s.n > 0 && s.p[0] != ',')
            return false;
        if (s.n > 0)
            s = (struct str){ s.p + 1, s.n - 1 };
    }
    text_buf_addz(&r->args, "}");
    chat_parse_trim(&name);
    return chat_parse_give(r, (struct str){ "", 0 }, name, (struct str){ r->args.p, r->args.n });
}

static enum chat_step read_name(struct chat_reader *r)
{
    enum chat_step step = chat_parse_until(r, "(", CHAT_NAME_BYTES_MAX, "\n<>[]{}\"'=,", &r->name);

    if (step != CHAT_ON)
        return step;
    r->scan--; /* the bracket belongs to the arguments */
    chat_parse_phase(r, ARGUMENTS);
    return CHAT_ON;
}

static enum chat_step read_arguments(struct chat_reader *r)
{
    struct chat_span span;
    enum chat_step step = chat_parse_take_value(r, &span);

    if (step != CHAT_ON)
        return step;
    if (!give_call(r, span))
        return CHAT_BAD;
    chat_parse_phase(r, r->in_list ? NEXT : BLOCK);
    return CHAT_ON;
}

static enum chat_step read_next(struct chat_reader *r)
{
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    const char c = r->all.p[r->scan];
    if (c != ',' && c != ']')
        return CHAT_BAD;
    r->scan++;
    chat_parse_phase(r, c == ',' ? ITEM : BLOCK);
    return CHAT_ON;
}

enum chat_step chat_call_python(struct chat_reader *r)
{
    switch (r->phase) {
    case BLOCK:
        return read_block(r);
    case ITEM:
        return read_item(r);
    case NAME:
        return read_name(r);
    case ARGUMENTS:
        return read_arguments(r);
    case NEXT:
        return read_next(r);
    default:
        return chat_call_json(r);
    }
}
