/* SPDX-License-Identifier: Apache-2.0 */
/* reason.c - the options that end reasoning.                                 room: cmd */
#include <stdio.h>
#include <string.h>
#include "cli/reason.h"

void cli_reason_set(struct reason_opts *to, const struct cli_reason *r)
{
    *to = reason_defaults();
    to->budget_tokens = r->budget;
    to->grace_tokens = r->grace;
    to->least_tokens = r->least;
    to->effort = r->effort < 0 ? REASON_EFFORT_ANY : (enum reason_effort)(REASON_EFFORT_NONE + r->effort);
    to->message = r->message != NULL ? str_of(r->message) : STR("");
    to->loops = r->loops == 0;
}

void cli_reason_fault(struct err *e)
{
    char name[64];

    if (strncmp(e->where, "/reasoning_", 11) != 0)
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

    cli_reason_set(&o, r);
    if (reason_check(&o, &e) == ERR_OK)
        return;
    cli_reason_fault(&e);
    cli_usage("%s", e.msg);
}
