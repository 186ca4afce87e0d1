/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - the options that end reasoning: their rows, and what a question gets.      room: cmd */
#ifndef CLI_REASON_H
#define CLI_REASON_H
#include "cli/cli.h"
#include "reason/reason.h"

struct cli_reason {
    int64_t budget, grace, least; /* tokens; -1: not given, of `least` 0 */
    int effort;                   /* index of the choice; -1: not given */
    int loops;                    /* 0: on */
    const char *message;          /* NULL: none */
};
#define CLI_REASON_DEFAULTS .budget = -1, .grace = -1, .effort = -1

#define ROW_LOOPS(to) CHOICE("think-loops", "on|off", "end what repeats itself (default on)", to)
/* Rows of the option table; r is a struct cli_reason (table.h has the short names). */
#define ROWS_REASON(r) \
    INT64(0, "reasoning-budget", "tokens", "close the reasoning then (-1: no limit)", &(r).budget, -1), \
        CHOICE("reasoning-effort", "none|minimal|low|medium|high|xhigh", "share of that budget", &(r).effort), \
        INT64(0, "reasoning-grace", "tokens", "wait that long for the end of a line", &(r).grace, 0), \
        INT64(0, "reasoning-min", "tokens", "hold back an earlier end, once", &(r).least, 0), \
        STRING(0, "reasoning-budget-message", "text", "said where the budget closes it", &(r).message), \
        ROW_LOOPS(&(r).loops)

void cli_reason_set(struct reason_opts *to, const struct cli_reason *r);
/* Options that contradict each other: exits with EXIT_USAGE. */
void cli_reason_check(const struct cli_reason *r);
/* Puts the option before the message of an error at one of its members; another error stays as it is. */
void cli_reason_fault(struct err *e);
#endif
