/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - the options that end reasoning: their rows, and what a question gets.      room: cmd */
#ifndef CLI_REASON_H
#define CLI_REASON_H
#include "cli/cli.h"
#include "reason/reason.h"

struct run_opts;

struct cli_reason {
    int64_t budget, grace, least;        /* tokens; -1: not given, of `least` 0 */
    int effort;                          /* index of the choice; -1: not given */
    int loops;                           /* 0: on */
    const char *message;                 /* NULL: none */
    const char *stop, *probe, *suppress; /* NULL: not given */
};
#define CLI_REASON_DEFAULTS .budget = -1, .grace = -1, .effort = -1

#define ROW_LOOPS(to) CHOICE("think-loops", "on|off", "end what repeats itself (default on)", to)
#define ROWS_CERTAINTY(r) \
    STRING(0, "think-stop", "rule[:x]", "close it when certain: eat, cgr, deer, same, abf", &(r).stop), \
        STRING(0, "think-probe", "key=n,...", "how to ask: every, after, tokens, lag, stub", &(r).probe), \
        STRING(0, "think-suppress", "x", "when certain, leave reflections out (0 to 1)", &(r).suppress)
/* Rows of the option table; r is a struct cli_reason (table.h has the short names). */
#define ROWS_REASON(r) \
    INT64(0, "reasoning-budget", "tokens", "close the reasoning then (-1: no limit)", &(r).budget, -1), \
        CHOICE("reasoning-effort", "none|minimal|low|medium|high|xhigh", "share of that budget", &(r).effort), \
        INT64(0, "reasoning-grace", "tokens", "wait that long for the end of a line", &(r).grace, 0), \
        INT64(0, "reasoning-min", "tokens", "hold back an earlier end, once", &(r).least, 0), \
        STRING(0, "reasoning-budget-message", "text", "said where the budget closes it", &(r).message), \
        ROWS_CERTAINTY(r), ROW_LOOPS(&(r).loops)

MUST_CHECK enum err_code cli_reason_set(struct reason_opts *to, const struct cli_reason *r, struct err *e);
/* Values out of range, and options that contradict each other: exits with EXIT_USAGE. */
void cli_reason_check(const struct cli_reason *r);
/* Makes room in a run for what is asked of answers in progress: draft rows, and sequences to spare, whose number it
 * returns. */
int cli_reason_room(struct run_opts *ro, const struct reason_opts *o);
/* Puts the option before the message of an error at one of its members; another error stays as it is. */
void cli_reason_fault(struct err *e);
#endif
