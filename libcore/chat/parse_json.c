/* SPDX-License-Identifier: Apache-2.0 */
/* parse_json.c - calls as JSON: {"name": ..., "arguments": {...}}.                    room: chat
 *
 * One object or more, or a list of them: Hermes and Qwen within <tool_call>, Granite, Mistral,
 * Nemotron, Command R within their marks, Llama with or without one. Each call is given at the end
 * of its object, and reported where its arguments begin if its name came before them. Arguments are "parameters" in
 * some families, an object within a string in others.
 */
#include <string.h>
#include "chat/parse.h"

enum { BLOCK, ITEM = CHAT_JSON, OBJECT, NEXT, SEMICOLON };

enum { FIRST_KEY_BYTES_MAX = 256 };         /* from the bracket to the end of the first key */
enum { FIRST_KEY_SEEN = 1, HEAD_SEEN = 2 }; /* `look`, of an object */

enum key { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_ID, KEY_FUNCTION };

static enum key key_of(struct str s)
{
    static const struct {
        const char *name;
        enum key key;
    } keys[] = {
        { "name", KEY_NAME },
        { "tool_name", KEY_NAME },
        { "arguments", KEY_ARGUMENTS },
        { "parameters", KEY_ARGUMENTS },
        { "id", KEY_ID },
        { "tool_call_id", KEY_ID },
        { "function", KEY_FUNCTION },
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (str_is(s, keys[i].name))
            return keys[i].key;
    return KEY_OTHER;
}

static bool next_is(struct str *s, char c)
{
    while (s->n > 0 && chat_parse_is_space(s->p[0])) {
        s->p++;
        s->n--;
    }
    return s->n > 0 && s->p[0] == c;
}

static bool take_char(struct str *s, char c)
{
    if (!next_is(s, c))
        return false;
    s->p++;
    s->n--;
    return true;
}

static bool take_arguments(struct chat_reader *r, struct str *s)
{
    struct str text;

    r->args.n = 0;
    if (!next_is(s, '"'))
        return chat_parse_value(&r->args, s, r->syntax->values);
    r->scratch.n = 0;
    if (!chat_parse_string(&r->scratch, s, r->syntax->values))
        return false;
    text = (struct str){ r->scratch.p, r->scratch.n };
    chat_parse_trim(&text);
    if (text.n > 0 && !chat_parse_value(&r->args, &text, r->syntax->values))
        return false;
    return text.n == 0;
}

/* The members of a call's object off the front of s, to name_text, args and id_text; those of a call that was reported
 * are only checked. last: the key that was read last. */
static bool take_members(struct chat_reader *r, struct str *s, bool inner, enum key *last)
{
    bool ok = take_char(s, '{'), more = ok && !take_char(s, '}');

    while (ok && more) {
        r->scratch.n = 0;
        (void)next_is(s, '"');
        if (!chat_parse_string(&r->scratch, s, r->syntax->values) || !take_char(s, ':'))
            return false;
        const enum key key = r->calling ? KEY_OTHER : key_of((struct str){ r->scratch.p, r->scratch.n });
        const bool string = next_is(s, '"');
        struct text_buf *to = key == KEY_NAME || key == KEY_FUNCTION ? &r->name_text : &r->id_text;
        *last = inner ? KEY_FUNCTION : key;
        if (key == KEY_FUNCTION && !string && !inner) {
            ok = take_members(r, s, true, last);
        } else if (key == KEY_ARGUMENTS) {
            ok = take_arguments(r, s);
        } else if (string && key != KEY_OTHER) {
            to->n = 0;
            ok = chat_parse_string(to, s, r->syntax->values);
        } else {
            r->scratch.n = 0;
            ok = chat_parse_value(&r->scratch, s, r->syntax->values);
        }
        more = ok && take_char(s, ',');
        ok = ok && (more || take_char(s, '}'));
    }
    return ok;
}

static struct str text_of(const struct text_buf *b)
{
    return (struct str){ b->p, b->n };
}

/* Reports the call whose object begins at scan if the first bracket within it is that of its arguments. Mistral's
 * objects have the id behind them: there nothing is certain before the end. */
static void read_head(struct chat_reader *r, size_t scan)
{
    struct str s = chat_parse_slice(r, (struct chat_span){ scan, r->value.inner });
    enum key last = KEY_OTHER;

    r->look = HEAD_SEEN;
    if (r->syntax->call == chat_call_named || r->all.p[r->value.inner] != '{')
        return;
    r->name_text.n = r->args.n = r->id_text.n = 0;
    if (!take_members(r, &s, false, &last) && last == KEY_ARGUMENTS && s.n == 0)
        chat_parse_begin(r, text_of(&r->id_text), text_of(&r->name_text), r->value.inner);
}

/* Gives the object as a call, if it is one. */
static bool give_object(struct chat_reader *r, struct chat_span object)
{
    struct str s = chat_parse_slice(r, object);
    enum key last;

    if (!r->calling)
        r->name_text.n = r->args.n = r->id_text.n = 0;
    if (!take_members(r, &s, false, &last))
        return false;
    if (r->args.n == 0 && r->bare) /* any object may have a name */
        return false;
    if (r->args.n == 0 || str_is(text_of(&r->args), "null")) {
        r->args.n = 0;
        text_buf_addz(&r->args, "{}");
    }
    return !r->args.failed && r->args.p[0] == '{' && chat_parse_give(r, text_of(&r->id_text), text_of(&r->name_text));
}

/* Whether the object at scan may be a call, by its first key: CHAT_MORE, CHAT_ON or CHAT_BAD. */
static enum chat_step check_first_key(struct chat_reader *r)
{
    const size_t n = r->all.n - r->scan;
    struct str s = { r->all.p + r->scan, n < FIRST_KEY_BYTES_MAX ? n : FIRST_KEY_BYTES_MAX };

    r->scratch.n = 0;
    if (take_char(&s, '{') && next_is(&s, '"') && chat_parse_string(&r->scratch, &s, 0))
        return key_of(text_of(&r->scratch)) != KEY_OTHER || str_is(text_of(&r->scratch), "type") ? CHAT_ON : CHAT_BAD;
    return s.n == 0 && n < FIRST_KEY_BYTES_MAX && !r->end ? CHAT_MORE : CHAT_BAD;
}

bool chat_parse_json_next(struct chat_reader *r)
{
    const char c = r->scan < r->all.n ? r->all.p[r->scan] : '\0';

    if (c == '[')
        r->scan++;
    r->in_list = c == '[';
    if (c == '[' || c == '{')
        chat_parse_phase(r, c == '[' ? ITEM : OBJECT);
    return c == '[' || c == '{';
}

static enum chat_step read_block(struct chat_reader *r)
{
    const struct chat_syntax *s = r->syntax;
    enum chat_step step;

    if (r->n_block > 0 && s->close == NULL && !s->bare)
        return CHAT_DONE;
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    if (chat_parse_json_next(r))
        return CHAT_ON;
    step = s->close != NULL ? chat_parse_take(r, s->close) : CHAT_BAD;
    r->unclosed = s->close != NULL && step == CHAT_BAD && r->n_block > 0;
    if (step == CHAT_ON || (step == CHAT_BAD && r->n_block > 0))
        return r->n_block > 0 ? CHAT_DONE : CHAT_BAD;
    return step;
}

static enum chat_step read_object(struct chat_reader *r)
{
    struct chat_span object;
    enum chat_step step;

    r->begun = true;
    if (r->bare && r->n_block == 0 && r->look == 0) {
        step = check_first_key(r);
        if (step != CHAT_ON) {
            r->scan += step == CHAT_BAD;
            return step;
        }
        r->look = FIRST_KEY_SEEN;
    }
    const size_t scan = r->scan;
    step = chat_parse_take_value(r, &object);
    if (r->value.inner > 0 && r->look != HEAD_SEEN)
        read_head(r, scan);
    if (r->calling)
        (void)chat_parse_read_args(r, r->probe, step == CHAT_ON);
    if (step != CHAT_ON)
        return step;
    if (!give_object(r, object))
        return CHAT_BAD;
    chat_parse_phase(r, r->in_list ? NEXT : r->syntax->bare ? SEMICOLON : BLOCK);
    return CHAT_ON;
}

enum chat_step chat_call_json(struct chat_reader *r)
{
    if (r->phase == BLOCK)
        return read_block(r);
    if (r->phase == OBJECT)
        return read_object(r);
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    const char c = r->all.p[r->scan];
    if (r->phase == SEMICOLON) {
        if (c != ';') {
            r->scan = r->head; /* white space is text again */
            return CHAT_DONE;
        }
        r->scan++;
        chat_parse_phase(r, BLOCK);
        return CHAT_ON;
    }
    if (c == ']') {
        r->scan++;
        r->in_list = false;
        chat_parse_phase(r, BLOCK);
        return r->n_block > 0 ? CHAT_ON : CHAT_BAD;
    }
    if (r->phase == ITEM && c == '{') {
        chat_parse_phase(r, OBJECT);
        return CHAT_ON;
    }
    if (r->phase == NEXT && c == ',') {
        r->scan++;
        chat_parse_phase(r, ITEM);
        return CHAT_ON;
    }
    return CHAT_BAD;
}
