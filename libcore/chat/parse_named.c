/* SPDX-License-Identifier: Apache-2.0 */
/* parse_named.c - calls as a name, a mark and the arguments in JSON.                  room: chat
 *
 * Kimi, DeepSeek, Mistral and Functionary. Kimi's name is an id, "functions.NAME:NUMBER". Mistral
 * may put an id between name and arguments, and its older models write a list of objects. The first
 * models of DeepSeek write the kind of tool where later ones have its name, then the name and a
 * fenced block.
 */
#include <string.h>
#include "chat/parse.h"

enum { BLOCK, NAME, ARGUMENTS, KIND, VALUE, AFTER };

static const char fence[] = "```";

static enum chat_step read_block(struct chat_reader *r, const struct chat_named *c)
{
    const char *marks[] = { c->begin, r->syntax->close };
    enum chat_step step;
    int which = 0;

    if (r->n_block > 0 && r->syntax->close == NULL)
        return CHAT_DONE;
    chat_parse_space(r);
    step = chat_parse_take_one(r, marks, 2, &which);
    r->unclosed = r->syntax->close != NULL && step == CHAT_BAD && r->n_block > 0;
    if (step == CHAT_BAD || (step == CHAT_ON && which == 1))
        return r->n_block > 0 ? CHAT_DONE : CHAT_BAD;
    if (step == CHAT_ON) {
        r->begun = true;
        chat_parse_phase(r, NAME);
    }
    return step;
}

static enum chat_step read_name(struct chat_reader *r, const struct chat_named *c)
{
    enum chat_step step;

    if (r->probe == r->scan) { /* nothing was looked at yet */
        chat_parse_space(r);
        r->probe = r->scan;
        if (c->end == NULL && chat_parse_json_next(r))
            return CHAT_ON;
    }
    step = chat_parse_until(r, c->name_end, CHAT_NAME_BYTES_MAX, "\n{}\"", &r->name);
    if (step == CHAT_ON)
        chat_parse_phase(r, ARGUMENTS);
    return step;
}

/* What comes after the mark that ends the name: arguments, or the name after its kind. */
static enum chat_step read_arguments(struct chat_reader *r, const struct chat_named *c)
{
    chat_parse_space(r);
    if (r->scan == r->all.n)
        return CHAT_MORE;
    if (r->all.p[r->scan] != '{' && !c->kind)
        return CHAT_BAD;
    chat_parse_phase(r, r->all.p[r->scan] == '{' ? VALUE : KIND);
    return CHAT_ON;
}

static enum chat_step read_kind(struct chat_reader *r)
{
    enum chat_step step = chat_parse_until(r, fence, CHAT_NAME_BYTES_MAX, "{}\"", &r->name);

    if (step != CHAT_ON)
        return step;
    r->scan -= strlen(fence);
    chat_parse_phase(r, VALUE);
    return CHAT_ON;
}

/* "functions.db.read:0" is "db.read". */
static struct str name_of(const struct chat_named *c, struct str s)
{
    const size_t n = c->prefix != NULL ? strlen(c->prefix) : 0;
    size_t k = s.n;

    if (c->prefix == NULL)
        return s;
    while (k > 0 && s.p[k - 1] >= '0' && s.p[k - 1] <= '9')
        k--;
    if (k > 0 && k < s.n && s.p[k - 1] == ':')
        s.n = k - 1;
    if (s.n > n && memcmp(s.p, c->prefix, n) == 0)
        s = (struct str){ s.p + n, s.n - n };
    return s;
}

/* The name of the call, and its id if it has one. */
static struct str call_name(const struct chat_reader *r, const struct chat_named *c, struct str *id)
{
    const size_t n = c->id != NULL ? strlen(c->id) : 0;
    struct str name = chat_parse_slice(r, r->name);

    *id = (struct str){ "", 0 };
    for (size_t i = 0; n > 0 && i + n <= name.n && id->n == 0; i++)
        if (memcmp(name.p + i, c->id, n) == 0) {
            *id = (struct str){ name.p + i + n, name.n - i - n };
            name.n = i;
        }
    chat_parse_trim(&name);
    if (c->prefix != NULL)
        *id = name;
    chat_parse_trim(id);
    return name_of(c, name);
}

static enum chat_step read_value(struct chat_reader *r, const struct chat_named *c)
{
    static const char *const fences[] = { "```json", fence };
    struct str name, id;
    enum chat_step step;
    int which;

    if (r->probe == r->scan) {
        step = c->kind ? chat_parse_take_one(r, fences, 2, &which) : CHAT_BAD;
        if (step == CHAT_MORE)
            return step;
        chat_parse_space(r);
        r->probe = r->scan;
        if (r->scan == r->all.n)
            return CHAT_MORE;
        if (r->all.p[r->scan] != '{')
            return CHAT_BAD;
        name = call_name(r, c, &id);
        chat_parse_begin(r, id, name, r->scan);
    }
    step = chat_parse_take_args(r);
    if (step != CHAT_ON)
        return step;
    name = call_name(r, c, &id);
    if (!chat_parse_give(r, id, name))
        return CHAT_BAD;
    chat_parse_phase(r, AFTER);
    return CHAT_ON;
}

/* Behind a call: its fence and mark, if they are there. */
static enum chat_step read_after(struct chat_reader *r, const struct chat_named *c)
{
    const char *marks[] = { c->end, c->kind ? fence : NULL };
    enum chat_step step;
    int which = 0;

    if (c->end != NULL)
        chat_parse_space(r);
    step = chat_parse_take_one(r, marks, 2, &which);
    if (step == CHAT_BAD || (step == CHAT_ON && which == 0))
        chat_parse_phase(r, BLOCK);
    return step == CHAT_MORE ? CHAT_MORE : CHAT_ON;
}

enum chat_step chat_call_named(struct chat_reader *r)
{
    const struct chat_named *c = r->syntax->conf;

    switch (r->phase) {
    case BLOCK:
        return read_block(r, c);
    case NAME:
        return read_name(r, c);
    case ARGUMENTS:
        return read_arguments(r, c);
    case KIND:
        return read_kind(r);
    case VALUE:
        return read_value(r, c);
    case AFTER:
        return read_after(r, c);
    default:
        return chat_call_json(r);
    }
}
