/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - what happened in a step, kept until it is taken.                room: gen */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gen/internal.h"

enum err_code gen_tell_text(struct gen *g, struct str s, struct err *e)
{
    if (memory_room(&g->text, &g->text_cap, g->n_text + s.n, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(g->text + g->n_text, s.p, s.n);
    g->n_text += s.n;
    return ERR_OK;
}

enum err_code gen_keep_room(struct gen *g, struct err *e)
{
    return memory_room(&g->event, &g->events_cap, g->n_events + g->n_open + 1, sizeof *g->event, e);
}

/* There is room for it. */
static struct event *add_event(struct gen *g, const struct gen_event *ev, int row)
{
    struct event *to = &g->event[g->n_events++];

    *to = (struct event){ *ev, g->n_told_text, g->n_top, row };
    to->ev.text.n = g->n_text - g->n_told_text;
    g->n_told_text = g->n_text;
    return to;
}

void gen_tell_end(struct gen *g, const struct gen_event *ev)
{
    g->n_open--;
    (void)add_event(g, ev, 0);
}

enum err_code gen_tell(struct gen *g, const struct gen_event *ev, const struct event_what *w, struct err *e)
{
    const size_t n_top = w->pick != NULL ? (size_t)w->pick->n_top : 0;

    if (gen_keep_room(g, e) || memory_room(&g->top, &g->top_cap, g->n_top + n_top, sizeof *g->top, e))
        return e->code;
    struct event *to = add_event(g, ev, w->row);

    if (w->pick != NULL)
        to->ev.pick = *w->pick;
    if (n_top > 0)
        memcpy(g->top + g->n_top, w->pick->top, n_top * sizeof *g->top);
    g->n_top += n_top;
    return ERR_OK;
}

void gen_events_clear(struct gen *g)
{
    g->n_events = g->told = g->n_text = g->n_told_text = g->n_top = 0;
}

void gen_events_free(struct gen *g)
{
    free(g->event);
    free(g->text);
    free(g->top);
}

bool gen_next(struct gen *g, struct gen_event *ev)
{
    const struct event *from;

    if (g->told == g->n_events)
        return false;
    from = &g->event[g->told++];
    *ev = from->ev;
    ev->text.p = ev->text.n > 0 ? g->text + from->text : "";
    ev->pick.top = ev->pick.n_top > 0 ? g->top + from->top : NULL;
    if (ev->kind == GEN_ROW)
        ev->logits = run_logits(g->o.run, from->row);
    return true;
}

const char *gen_why_name(enum gen_why w)
{
    static const char *const names[] = { "off", "model", "budget", "certainty", "loop", "stop" };

    _Static_assert(sizeof names / sizeof *names == GEN_WHYS, "each has a name");
    return names[w];
}
