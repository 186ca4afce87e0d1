/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - what happened in a step, kept until it is taken.                room: gen */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/internal.h"

/* Room for n more elements of `size` bytes; the buffer is kept from step to step. */
static enum err_code grow(void **v, size_t n_used, size_t n, size_t *cap, size_t size, struct err *e)
{
    size_t want = *cap > 0 ? *cap : 64;
    void *p;

    if (n_used + n <= *cap)
        return ERR_OK;
    while (want < n_used + n)
        want *= 2;
    p = realloc(*v, want * size);
    if (p == NULL)
        return err_nomem(e);
    *v = p;
    *cap = want;
    return ERR_OK;
}

enum err_code gen_tell_text(struct gen *g, struct str s, struct err *e)
{
    void *text = g->text;
    const enum err_code code = grow(&text, g->n_text, s.n, &g->text_cap, 1, e);

    g->text = text;
    if (code == ERR_OK && s.n > 0) {
        memcpy(g->text + g->n_text, s.p, s.n);
        g->n_text += s.n;
    }
    return code;
}

enum err_code gen_tell(struct gen *g, const struct gen_event *ev, const struct event_what *w, struct err *e)
{
    const size_t n_top = w->pick != NULL ? (size_t)w->pick->n_top : 0;
    void *event = g->event, *top = g->top;
    enum err_code code = grow(&event, g->n_events, 1, &g->events_cap, sizeof *g->event, e);

    g->event = event;
    if (code == ERR_OK)
        code = grow(&top, g->n_top, n_top, &g->top_cap, sizeof *g->top, e);
    g->top = top;
    if (code)
        return code;
    struct event *to = &g->event[g->n_events++];

    *to = (struct event){ *ev, g->n_told_text, g->n_top, w->row };
    to->ev.text.n = g->n_text - g->n_told_text;
    g->n_told_text = g->n_text;
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
