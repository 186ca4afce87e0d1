/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - what happened in a step, kept until it is taken.                room: gen */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gen/internal.h"

enum err_code gen_tell_text(struct events *to, struct str s, struct err *e)
{
    if (memory_room(&to->text, &to->text_cap, to->n_text + s.n, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(to->text + to->n_text, s.p, s.n);
    to->n_text += s.n;
    return ERR_OK;
}

enum err_code gen_keep_room(struct events *to, struct err *e)
{
    return memory_room(&to->v, &to->cap, to->n + to->n_open + 1, sizeof *to->v, e);
}

/* There is room for it. */
static struct event *add_event(struct events *to, const struct gen_event *ev, int row)
{
    struct event *one = &to->v[to->n++];

    *one = (struct event){ *ev, to->n_told_text, to->n_top, row };
    one->ev.text.n = to->n_text - to->n_told_text;
    to->n_told_text = to->n_text;
    return one;
}

void gen_tell_end(struct events *to, const struct gen_event *ev)
{
    to->n_open--;
    (void)add_event(to, ev, 0);
}

enum err_code gen_tell(struct events *to, const struct gen_event *ev, const struct event_what *w, struct err *e)
{
    const size_t n_top = w->pick != NULL ? (size_t)w->pick->n_top : 0;

    if (gen_keep_room(to, e) || memory_room(&to->top, &to->top_cap, to->n_top + n_top, sizeof *to->top, e))
        return e->code;
    struct event *one = add_event(to, ev, w->row);

    if (w->pick != NULL)
        one->ev.pick = *w->pick;
    if (n_top > 0)
        memcpy(to->top + to->n_top, w->pick->top, n_top * sizeof *to->top);
    to->n_top += n_top;
    return ERR_OK;
}

/* What an event says, with pointers into the buffers. */
static void read_event(const struct events *from, size_t i, struct gen_event *ev)
{
    const struct event *one = &from->v[i];

    *ev = one->ev;
    ev->text.p = ev->text.n > 0 ? from->text + one->text : "";
    ev->pick.top = ev->pick.n_top > 0 ? from->top + one->top : NULL;
}

enum err_code gen_tell_held(struct events *to, const struct events *held, struct err *e)
{
    for (size_t i = 0; i < held->n; i++) {
        struct gen_event ev;

        read_event(held, i, &ev);
        const struct event_what w = { &ev.pick, 0 };

        if (gen_tell_text(to, ev.text, e) || gen_tell(to, &ev, &w, e))
            return e->code;
    }
    return gen_tell_text(to, (struct str){ held->text + held->n_told_text, held->n_text - held->n_told_text }, e);
}

void gen_events_clear(struct events *to)
{
    to->n = to->told = to->n_text = to->n_told_text = to->n_top = 0;
}

void gen_events_free(struct events *to)
{
    free(to->v);
    free(to->text);
    free(to->top);
}

bool gen_next(struct gen *g, struct gen_event *ev)
{
    if (g->out.told == g->out.n)
        return false;
    const size_t i = g->out.told++;

    read_event(&g->out, i, ev);
    if (ev->kind == GEN_ROW)
        ev->logits = run_logits(g->o.run, g->out.v[i].row);
    return true;
}

const char *gen_why_name(enum gen_why w)
{
    static const char *const names[] = { "off", "model", "budget", "certainty", "loop", "stop" };

    _Static_assert(sizeof names / sizeof *names == GEN_WHYS, "each has a name");
    return names[w];
}
