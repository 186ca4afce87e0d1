/* SPDX-License-Identifier: Apache-2.0 */
/* parse_call.c - a call from its beginning to its end, and its pieces.                room: chat
 *
 * The arguments are made in `args` as they are read, whether they are given out or not: so the pieces are the whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "chat/parse.h"

static bool adds_to(const struct chat_out *last, const struct chat_out *o)
{
    if (last->part != o->part)
        return false;
    return o->part != CHAT_TOOL || (last->step == CHAT_CALL_MORE && o->step == CHAT_CALL_MORE && last->call == o->call);
}

void chat_parse_add_piece(struct chat_reader *r, const struct chat_out *o)
{
    if (r->n_out > 0 && adds_to(&r->out[r->n_out - 1], o))
        r->out[r->n_out - 1].n += o->n;
    else if (memory_room(&r->out, &r->out_cap, r->n_out + 1, sizeof *r->out, NULL))
        r->failed = true;
    else
        r->out[r->n_out++] = *o;
}

static void add_step(struct chat_reader *r, enum chat_call_step step, size_t from, size_t n)
{
    chat_parse_add_piece(
        r, &(struct chat_out){
               .part = CHAT_TOOL, .step = step, .call = (int)r->n_begun - 1, .of = r->current, .from = from, .n = n });
}

static bool is_name(struct str s)
{
    if (s.n == 0 || s.n > CHAT_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7F)
            return false;
    return true;
}

static size_t add_words(struct chat_reader *r, struct str s)
{
    text_buf_add(&r->words, s);
    return r->words.n - s.n;
}

static void report(struct chat_reader *r, struct str id, struct str name)
{
    char made[32];

    if (id.n == 0) {
        (void)snprintf(made, sizeof made, "call%05lld", (long long)r->first_call + (long long)r->n_begun);
        id = str_of(made);
    }
    r->current = (struct chat_given){ .id_n = id.n, .name_n = name.n };
    r->current.id = add_words(r, id);
    r->current.name = add_words(r, name);
    r->current.arguments = r->words.n;
    r->calling = true;
    r->n_begun++;
    add_step(r, CHAT_CALL_BEGIN, r->words.n, 0);
}

void chat_parse_begin(struct chat_reader *r, struct str id, struct str name, size_t at)
{
    r->args.n = 0;
    r->args_at = at;
    r->args_step = CHAT_MORE;
    chat_parse_value_begin(&r->arg, r->syntax->values);
    if (is_name(name) && chat_parse_tool(r->tools, name) != NULL)
        report(r, id, name);
}

void chat_parse_flow(struct chat_reader *r, size_t n)
{
    struct chat_given *g = &r->current;

    if (!r->calling || n <= g->arguments_n || r->words.failed || r->args.failed)
        return;
    const struct str more = { r->args.p + g->arguments_n, n - g->arguments_n };
    const size_t from = add_words(r, more);

    g->arguments_n = n;
    add_step(r, CHAT_CALL_MORE, from, more.n);
}

enum chat_step chat_parse_read_args(struct chat_reader *r, size_t to, bool end)
{
    struct str s = chat_parse_slice(r, (struct chat_span){ r->args_at, to });

    if (r->args_step == CHAT_MORE)
        r->args_step = chat_parse_value_part(&r->arg, &r->args, &s, end);
    r->args_at = to - s.n;
    chat_parse_flow(r, r->args.n - (r->args_step == CHAT_DONE));
    return r->args_step;
}

enum chat_step chat_parse_take_args(struct chat_reader *r)
{
    struct chat_span span;
    const enum chat_step step = chat_parse_take_value(r, &span);
    const enum chat_step args = chat_parse_read_args(r, r->probe, step == CHAT_ON);

    return step == CHAT_ON && args != CHAT_DONE ? CHAT_BAD : step;
}

bool chat_parse_new_param(struct chat_reader *r, struct chat_span key)
{
    if (r->param == NULL)
        r->param = malloc(CHAT_PARAMS_MAX * sizeof *r->param);
    r->failed = r->failed || r->param == NULL;
    if (r->failed || r->n_param == CHAT_PARAMS_MAX) {
        r->args_step = CHAT_BAD;
        return false;
    }
    const size_t n = r->n_param++;
    size_t i = 0;

    r->param[n] = key;
    while (!str_eq(chat_parse_slice(r, r->param[i]), chat_parse_slice(r, key)))
        i++;
    return i == n;
}

bool chat_parse_give(struct chat_reader *r, struct str id, struct str name)
{
    if (!r->calling && !is_name(name))
        return false;
    if (!r->calling)
        report(r, id, name);
    chat_parse_flow(r, r->args.n);
    r->current.raw = r->head;
    r->current.raw_n = r->scan - r->head;
    if (memory_room(&r->given, &r->given_cap, r->n_given + 1, sizeof *r->given, NULL)) {
        r->failed = true;
        return true;
    }
    r->given[r->n_given++] = r->current;
    add_step(r, CHAT_CALL_END, r->current.arguments, r->current.arguments_n);
    r->calling = false;
    chat_parse_mark(r);
    r->n_block++;
    r->begun = false;
    r->head = r->scan;
    return true;
}

void chat_parse_fail_call(struct chat_reader *r)
{
    if (r->calling)
        add_step(r, CHAT_CALL_FAILED, r->words.n, 0);
    r->calling = false;
}
