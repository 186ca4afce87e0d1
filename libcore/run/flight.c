/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - several steps under way at once, on several devices. */
#include "model/forward.h"
#include "run/internal.h"

_Static_assert((int)RUN_FLIGHTS_MAX >= (int)DEV_LIST_MAX, "one for each device");
enum { SPARE_ROWS = 64 }; /* of such a step, beside one for each sequence: guesses, tokens that were not chosen */

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* With experts on the host a step more would read them again; a drafter's steps on the last device come after all that
 * is under way there. */
static int count_flights(const struct run *r, const struct run_opts *o)
{
    const int n = least_of(model_n_devs(r->m), r->n_seq);

    if (model_host(r->m) != NULL || (o->n_taps > 0 && !o->taps_skip))
        return 1;
    return least_of(n, least_of(r->rows_max, r->logits_max));
}

void run_flights_open(struct run *r, const struct run_opts *o)
{
    const int n = count_flights(r, o), each = (r->n_seq + n - 1) / n;
    const int rows = least_of(r->rows_max / n, each + SPARE_ROWS), logits = r->logits_max / n;

    r->n_flights = n;
    r->asked[0] = (struct run_asked){ .rows_max = r->rows_max, .logits_max = r->logits_max };
    r->now = &r->asked[0];
    r->last = &r->asked[0];
    for (int i = 0; i < n && n > 1; i++)
        r->asked[1 + i] = (struct run_asked){
            .first_row = i * rows, .first_pick = i * logits, .rows_max = rows, .logits_max = least_of(rows, logits)
        };
}

int run_flights(const struct run *r)
{
    return r->n_flights;
}

int run_flight_rows(const struct run *r)
{
    return r->asked[1].rows_max;
}

int run_flight_logits(const struct run *r)
{
    return r->asked[1].logits_max;
}

enum err_code run_step_begin(struct run *r, int number, const struct run_row *rows, const struct logits_want *want,
                             int n, run_masks *masks, void *ctx, struct err *e)
{
    if (r->n_flights == 1 || number < 0 || number >= r->n_flights || r->asked[1 + number].under_way)
        return err_set(e, ERR_ARG, "step number %d of %d cannot begin", number, r->n_flights);
    if (run_start(r, 1 + number, rows, want, n, masks, ctx, e))
        return e->code;
    for (int i = 0; i < n; i++)
        r->flight[rows[i].seq] = 1 + number;
    r->asked[1 + number].under_way = true;
    r->n_under_way++;
    return ERR_OK;
}

enum err_code run_step_end(struct run *r, int number, struct err *e)
{
    if (number < 0 || number >= r->n_flights || !r->asked[1 + number].under_way)
        return err_set(e, ERR_ARG, "step number %d of %d has not begun", number, r->n_flights);
    const enum err_code code = model_land(r->m, 1 + number, e);

    r->asked[1 + number].under_way = false;
    r->n_under_way--;
    r->last = &r->asked[1 + number];
    for (int q = 0; q < r->n_seq; q++) {
        if (r->flight[q] != 1 + number)
            continue;
        r->flight[q] = 0;
        if (code == ERR_OK && r->draft[q] == 0)
            run_cache_grown(r, q);
        else if (code != ERR_OK && code != ERR_DEVICE)
            run_clear(r, q);
    }
    return code;
}
