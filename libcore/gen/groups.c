/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - answers in groups whose steps are under way at once, on several devices.        room: gen
 *
 * As long as there is nothing to do but to write at least two answers, they are written in as many groups as the run
 * may have steps under way (run_flights()). gen_step() begins steps until there are as many, then waits for the one
 * that began first and chooses its tokens: so a group's step is under way while another's tokens are chosen and its
 * next step is put together. Who is in a group is decided anew with each of its steps. All else happens when no step is
 * under way: requests that come in get a sequence, prompts are read, probes of governors run, and a lack of KV rows is
 * dealt with, in steps of all requests. */
#include <assert.h>

#include "gen/internal.h"

void gen_groups_open(struct gen *g)
{
    const struct group *all = &g->group[0];
    const int rows = run_flight_rows(g->o.run), logits = run_flight_logits(g->o.run);

    g->n_groups = run_flights(g->o.run);
    g->group[0].flight = -1;
    for (int i = 0; i < g->n_groups && g->n_groups > 1; i++)
        g->group[1 + i] = (struct group){ .flight = i,
                                          .row = all->row + (size_t)i * (size_t)rows,
                                          .want = all->want + (size_t)i * (size_t)rows,
                                          .rows_max = rows,
                                          .ask = all->ask + (size_t)i * (size_t)logits,
                                          .logits_max = logits,
                                          .masks = all->masks + (size_t)i * (size_t)logits * g->mask_words };
}

void gen_groups_close(struct gen *g)
{
    struct err e = { 0 };

    for (; g->n_under_way > 0; g->n_under_way--) {
        e.code = run_step_end(g->o.run, g->due, &e); /* nobody hears of it */
        g->due = (g->due + 1) % g->n_groups;
    }
    for (int i = 0; g->at != NULL && i < g->n_seq; i++)
        if (g->at[i] != NULL && g->at[i]->under_way)
            run_settle(g->o.run, i, 0); /* another gen may use the sequence */
}

static bool goes_in_groups(const struct gen *g)
{
    int n = 0;

    if (g->n_groups == 1 || (g->may_admit && g->queue != NULL) || gen_probe_due(g))
        return false;
    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        const struct request *q = g->at[i];

        if (q != NULL && (q->probe_of != NULL || (q->state == REQUEST_ACTIVE && reading(q))))
            return false;
        n += writes(q);
    }
    return n > 1;
}

/* May begin no step: nobody finds room, or the step fails at once. */
static enum err_code begin_step(struct gen *g, struct err *e)
{
    struct group *p = g->now = &g->group[1 + (g->due + g->n_under_way) % g->n_groups];
    struct err why = { 0 };

    if (gen_compose(g, e))
        return e->code;
    if (p->n_rows == 0)
        return ERR_OK;
    p->from = clock_work();
    if (run_step_begin(g->o.run, p->flight, p->row, p->want, p->n_rows, gen_fill_masks, g, &why))
        return gen_take_step(g, 0, &why, e);
    p->ms = (float)clock_work_ms(&p->from, true);
    g->n_under_way++;
    for (int i = 0; i < g->n_seq; i++)
        if (is_in(g, g->at[i]))
            g->at[i]->under_way = true;
    return ERR_OK;
}

/* The step that began first. What it costs is what it would cost alone: it was at most on one device at a time. */
static enum err_code end_step(struct gen *g, struct err *e)
{
    struct group *p = g->now = &g->group[1 + g->due];
    struct err why = { 0 };
    const bool done = run_step_end(g->o.run, p->flight, &why) == ERR_OK;

    g->due = (g->due + 1) % g->n_groups;
    g->n_under_way--;
    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];

        if (!is_in(g, q))
            continue;
        q->under_way = false;
        if (q->cancelled && !q->ended)
            gen_end(q, GEN_CANCELLED);
    }
    return gen_take_step(g, g->cost.records ? (float)clock_work_ms(&p->from, false) : p->ms, done ? NULL : &why, e);
}

static bool is_cancelled(const struct gen *g)
{
    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] != NULL && g->at[i]->under_way && g->at[i]->cancelled)
            return true;
    return false;
}

enum err_code gen_land(struct gen *g, bool all, struct err *e)
{
    while (g->n_under_way > 0 && (all || is_cancelled(g)))
        if (end_step(g, e))
            return e->code;
    return ERR_OK;
}

enum err_code gen_step_groups(struct gen *g, bool *none, struct err *e)
{
    for (int n = -1; n < g->n_under_way && g->n_under_way < g->n_groups && goes_in_groups(g);) {
        n = g->n_under_way;
        if (begin_step(g, e))
            return e->code;
    }
    *none = g->n_under_way == 0;
    return *none ? ERR_OK : end_step(g, e);
}
