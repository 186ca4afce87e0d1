/* SPDX-License-Identifier: Apache-2.0 */
/* reason.c - the options that end reasoning.                                 room: cmd */
#include <stdio.h>
#include <string.h>
#include "cli/reason.h"
#include "run/run.h"

enum { SPARE_MAX = 8, SPARE_TRACED = 64 }; /* trial answers at a time; of requests that ask at every few tokens */

enum err_code cli_reason_set(struct reason_opts *to, const struct cli_reason *r, struct err *e)
{
    *to = reason_defaults();
    to->budget_tokens = r->budget;
    to->grace_tokens = r->grace;
    to->least_tokens = r->least;
    to->effort = r->effort < 0 ? REASON_EFFORT_ANY : (enum reason_effort)(REASON_EFFORT_NONE + r->effort);
    to->message = r->message != NULL ? str_of(r->message) : STR("");
    to->loops = r->loops == 0;
    if (r->stop != NULL && reason_read_stop(to, str_of(r->stop), e))
        return err_at(e, "/think_stop");
    if (r->probe != NULL && reason_read_probe(to, str_of(r->probe), e))
        return err_at(e, "/think_probe");
    if (r->suppress != NULL && reason_read_suppress(to, str_of(r->suppress), e))
        return err_at(e, "/think_suppress");
    return ERR_OK;
}

int cli_reason_room(struct run_opts *ro, const struct reason_opts *o)
{
    const int most = o->trace != NULL ? SPARE_TRACED : SPARE_MAX, n = ro->n_seq < most ? ro->n_seq : most;
    const int peek = reason_peek_tokens(o);

    if (peek > ro->draft_max)
        ro->draft_max = peek;
    if (peek > 0 && ro->rows_max > 0 && ro->rows_max <= peek)
        ro->rows_max = peek + 1;
    if (reason_trial_tokens(o) == 0)
        return 0;
    ro->n_seq += n;
    return n;
}

void cli_reason_fault(struct err *e)
{
    char name[64];

    if (strncmp(e->where, "/reasoning_", 11) != 0 && strncmp(e->where, "/think_", 7) != 0)
        return;
    (void)snprintf(name, sizeof name, "--%.50s", e->where + 1);
    for (char *p = strchr(name, '_'); p != NULL; p = strchr(p, '_'))
        *p = '-';
    err_wrap(e, "%s", name);
}

void cli_reason_check(const struct cli_reason *r)
{
    struct reason_opts o;
    struct err e = { 0 };

    if (cli_reason_set(&o, r, &e) == ERR_OK && reason_check(&o, &e) == ERR_OK)
        return;
    cli_reason_fault(&e);
    cli_usage("%s", e.msg);
}
