/* SPDX-License-Identifier: Apache-2.0 */
/* parse_xml.c - calls as marks around names and bare text.                            room: chat
 *
 * Qwen3-Coder, Qwen3.5, Nemotron 3, Seed-OSS, GLM, MiniMax and the latest DeepSeek. It looks like
 * XML and is none: nothing is escaped. So a value may hold any mark; it ends at the first one that
 * is followed by what may follow a value. Values are typed by the tool's schema.
 */
#include <string.h>
#include "chat/parse.h"

enum { BLOCK, NAME, PARAM, KEY, INNER, VALUE };

static enum chat_step read_block(struct chat_reader *r, const struct chat_xml *c)
{
    const char *marks[] = { c->call, r->syntax->close };
    enum chat_step step;
    int which = 0;

    if (c->call == NULL && r->n_block > 0)
        return CHAT_DONE;
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    if (c->call != NULL && r->all.p[r->scan] == '{' && chat_parse_json_next(r)) /* as Hermes does */
        return CHAT_ON;
    step = c->call == NULL ? CHAT_ON : chat_parse_take_one(r, marks, 2, &which);
    r->unclosed = r->syntax->close != NULL && step == CHAT_BAD && r->n_block > 0;
    if (step == CHAT_BAD || (step == CHAT_ON && which == 1))
        return r->n_block > 0 ? CHAT_DONE : CHAT_BAD;
    if (step == CHAT_ON) {
        r->begun = true;
        r->n_param = 0;
        r->args.n = 0;
        chat_parse_phase(r, NAME);
    }
    return step;
}

/* A name that a space or the next mark ends. */
static enum chat_step read_word(struct chat_reader *r)
{
    for (; r->probe < r->all.n; r->probe++) {
        const char ch = r->all.p[r->probe];
        if (r->probe - r->scan > CHAT_NAME_BYTES_MAX)
            return CHAT_BAD;
        if (!chat_parse_is_space(ch) && ch != '<')
            continue;
        if (r->probe == r->scan)
            return CHAT_BAD;
        r->name = (struct chat_span){ r->scan, r->probe };
        r->scan = r->probe;
        chat_parse_phase(r, PARAM);
        return CHAT_ON;
    }
    return CHAT_MORE;
}

static enum chat_step read_name(struct chat_reader *r, const struct chat_xml *c)
{
    enum chat_step step;

    if (c->call_name_end == NULL)
        return read_word(r);
    step = chat_parse_until(r, c->call_name_end, CHAT_NAME_BYTES_MAX, "\n<", &r->name);
    if (step == CHAT_ON)
        chat_parse_phase(r, PARAM);
    return step;
}

static struct str call_name(const struct chat_reader *r)
{
    struct str name = chat_parse_slice(r, r->name);

    chat_parse_trim(&name);
    return name;
}

static bool give_call(struct chat_reader *r)
{
    text_buf_addz(&r->args, r->n_param == 0 ? "{}" : "}");
    return chat_parse_give(r, (struct str){ "", 0 }, call_name(r));
}

static enum chat_step read_param(struct chat_reader *r, const struct chat_xml *c)
{
    const char *marks[] = { c->param, c->call_end, r->syntax->close };
    enum chat_step step;
    int which = 0;

    chat_parse_space(r);
    step = chat_parse_take_one(r, marks, 3, &which);
    if (step != CHAT_ON)
        return step;
    if (which == 0) {
        if (r->n_param == 0) {
            const struct str name = call_name(r);
            r->schema = json_object_get(chat_parse_tool(r->tools, name), "parameters");
            chat_parse_begin(r, (struct str){ "", 0 }, name, r->scan);
            text_buf_addz(&r->args, "{");
        }
        chat_parse_phase(r, KEY);
        return CHAT_ON;
    }
    if (!give_call(r))
        return CHAT_BAD;
    chat_parse_phase(r, BLOCK);
    return which == 2 ? CHAT_DONE : CHAT_ON;
}

/* The value of the parameter begins. */
static void begin_value(struct chat_reader *r, bool is_text)
{
    const struct str key = chat_parse_slice(r, r->key);

    r->is_text = is_text || chat_parse_types(r->schema, key) == GRAMMAR_STRING;
    r->args_at = r->scan;
    chat_parse_phase(r, VALUE);
    if (r->repeated)
        return;
    text_buf_addz(&r->args, r->n_param > 1 ? ", " : "");
    chat_parse_quote(&r->args, key);
    text_buf_addz(&r->args, r->is_text ? ": \"" : ": ");
    chat_parse_flow(r, r->args.n);
}

static enum chat_step read_key(struct chat_reader *r, const struct chat_xml *c)
{
    enum chat_step step = chat_parse_until(r, c->param_name_end, CHAT_KEY_BYTES_MAX, "\n", &r->key);

    if (step != CHAT_ON)
        return step;
    while (r->key.from < r->key.to && chat_parse_is_space(r->all.p[r->key.from]))
        r->key.from++;
    while (r->key.to > r->key.from && chat_parse_is_space(r->all.p[r->key.to - 1]))
        r->key.to--;
    r->repeated = !chat_parse_new_param(r, r->key);
    if (r->args_step == CHAT_BAD)
        return CHAT_BAD;
    if (c->value[0] != NULL)
        chat_parse_phase(r, INNER);
    else
        begin_value(r, false);
    return CHAT_ON;
}

static enum chat_step read_inner(struct chat_reader *r, const struct chat_xml *c)
{
    enum chat_step step;
    int which;

    chat_parse_space(r);
    step = chat_parse_take_one(r, c->value, 2, &which);
    if (step == CHAT_ON)
        begin_value(r, which == 1);
    return step;
}

/* The value that begins at scan and reaches to probe, without the newlines that are not its own. */
static struct chat_span value_of(const struct chat_reader *r, const struct chat_xml *c)
{
    struct chat_span v = { r->scan, r->probe };

    if (c->own_lines && v.from < v.to && r->all.p[v.from] == '\n')
        v.from++;
    if (c->own_lines && v.from < v.to && r->all.p[v.to - 1] == '\n')
        v.to--;
    return v;
}

/* Text is a string's as soon as it is not a mark; any other value is known at its end. */
static void flow_text(struct chat_reader *r, const struct chat_xml *c)
{
    struct chat_span v = value_of(r, c);

    if (!r->is_text || r->repeated)
        return;
    v.from = r->args_at > v.from ? r->args_at : v.from;
    if (v.from >= v.to)
        return;
    chat_parse_quote_part(&r->args, chat_parse_slice(r, v));
    r->args_at = v.to;
    chat_parse_flow(r, r->args.n);
}

static enum chat_step end_value(struct chat_reader *r, const struct chat_xml *c)
{
    if (!r->repeated && r->is_text)
        text_buf_addz(&r->args, "\"");
    else if (!r->repeated)
        chat_parse_typed(&r->args, r->schema, chat_parse_slice(r, r->key), chat_parse_slice(r, value_of(r, c)),
                         r->syntax->values);
    chat_parse_flow(r, r->args.n);
    r->scan = r->probe + strlen(c->param_end);
    chat_parse_phase(r, PARAM);
    return CHAT_ON;
}

/* `look` is behind the mark that begins at probe and the white space after it, or 0. */
static enum chat_step read_value(struct chat_reader *r, const struct chat_xml *c)
{
    const char *end[] = { c->param_end }, *next[] = { c->param, c->call_end, r->syntax->close };
    const size_t scan = r->scan;
    enum chat_step step;
    int which;

    for (;;) {
        if (r->look == 0) {
            size_t at;
            const bool found = chat_parse_search(r, r->probe, end, 1, &at, &which);
            r->probe = at;
            flow_text(r, c);
            if (!found)
                return CHAT_MORE;
            r->look = at + strlen(c->param_end);
        }
        r->scan = r->look;
        chat_parse_space(r);
        r->look = r->scan;
        step = chat_parse_take_one(r, next, 3, &which);
        r->scan = scan;
        if (step == CHAT_ON)
            return end_value(r, c);
        if (step == CHAT_MORE)
            return CHAT_MORE;
        r->probe++;
        r->look = 0;
    }
}

enum chat_step chat_call_xml(struct chat_reader *r)
{
    const struct chat_xml *c = r->syntax->conf;

    switch (r->phase) {
    case BLOCK:
        return read_block(r, c);
    case NAME:
        return read_name(r, c);
    case PARAM:
        return read_param(r, c);
    case KEY:
        return read_key(r, c);
    case INNER:
        return read_inner(r, c);
    case VALUE:
        return read_value(r, c);
    default:
        return chat_call_json(r);
    }
}
