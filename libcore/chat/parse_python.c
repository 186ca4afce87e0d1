/* SPDX-License-Identifier: Apache-2.0 */
/* parse_python.c - calls as Python writes them: [name(key=value, ...), ...].          room: chat
 *
 * LFM2. Arguments have names and values are literals; anything else is no call that can be read.
 * The same models write a list of JSON objects when they are asked to.
 */
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

/* What comes next in the arguments. */
enum { KEY, VALUE, COMMA };

/* key=, to args. `look` is how far the key was looked at. */
static enum chat_step read_key(struct chat_reader *r, size_t to, bool end)
{
    struct chat_span key = { r->args_at, r->look > r->args_at ? r->look : r->args_at };

    while (key.to < to && r->all.p[key.to] != '=' &&
           (r->all.p[key.to] == '\0' || strchr("\"'[](){}:,", r->all.p[key.to]) == NULL))
        key.to++;
    r->look = key.to;
    if (key.to == to || r->all.p[key.to] != '=')
        return key.to == to && !end ? CHAT_MORE : CHAT_BAD;
    while (key.to > key.from && chat_parse_is_space(r->all.p[key.to - 1]))
        key.to--;
    for (size_t i = key.from; i < key.to; i++)
        if (chat_parse_is_space(r->all.p[i]))
            return CHAT_BAD;
    if (key.from == key.to || !chat_parse_new_param(r, key))
        return CHAT_BAD;
    text_buf_addz(&r->args, r->n_param > 1 ? ", " : "");
    chat_parse_quote(&r->args, chat_parse_slice(r, key));
    text_buf_addz(&r->args, ": ");
    r->args_at = r->look + 1;
    r->wants = VALUE;
    chat_parse_value_begin(&r->arg, r->syntax->values);
    return CHAT_ON;
}

static enum chat_step read_more(struct chat_reader *r, size_t to, bool end)
{
    while (r->wants != VALUE && r->args_at < to && chat_parse_is_space(r->all.p[r->args_at]))
        r->args_at++;
    if (r->wants != VALUE && r->args_at == to)
        return end ? CHAT_DONE : CHAT_MORE;
    if (r->wants == KEY)
        return read_key(r, to, end);
    if (r->wants == VALUE) {
        struct str s = chat_parse_slice(r, (struct chat_span){ r->args_at, to });
        const enum chat_step step = chat_parse_value_part(&r->arg, &r->args, &s, end);
        r->args_at = to - s.n;
        if (step != CHAT_DONE)
            return step;
        r->wants = COMMA;
        return CHAT_ON;
    }
    if (r->all.p[r->args_at] != ',')
        return CHAT_BAD;
    r->args_at++;
    r->wants = KEY;
    return CHAT_ON;
}

/* Reads what stands in the brackets on, up to `to`. end: that is all of it. */
static enum chat_step read_inside(struct chat_reader *r, size_t to, bool end)
{
    if (r->args_step == CHAT_MORE)
        do
            r->args_step = read_more(r, to, end);
        while (r->args_step == CHAT_ON);
    chat_parse_flow(r, r->args.n);
    return r->args_step;
}

static struct str call_name(const struct chat_reader *r)
{
    struct str name = chat_parse_slice(r, r->name);

    chat_parse_trim(&name);
    return name;
}

static enum chat_step read_name(struct chat_reader *r)
{
    enum chat_step step = chat_parse_until(r, "(", CHAT_NAME_BYTES_MAX, "\n<>[]{}\"'=,", &r->name);

    if (step != CHAT_ON)
        return step;
    chat_parse_begin(r, (struct str){ "", 0 }, call_name(r), r->scan);
    text_buf_addz(&r->args, "{");
    r->n_param = 0;
    r->wants = KEY;
    r->scan--; /* the bracket belongs to the arguments */
    chat_parse_phase(r, ARGUMENTS);
    return CHAT_ON;
}

static enum chat_step read_arguments(struct chat_reader *r)
{
    struct chat_span span;
    const enum chat_step step = chat_parse_take_value(r, &span),
                         args = read_inside(r, r->probe - (step == CHAT_ON), step == CHAT_ON);

    if (step != CHAT_ON)
        return step;
    if (args != CHAT_DONE)
        return CHAT_BAD;
    text_buf_addz(&r->args, "}");
    if (!chat_parse_give(r, (struct str){ "", 0 }, call_name(r)))
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
