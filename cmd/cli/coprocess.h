/* SPDX-License-Identifier: Apache-2.0 */
/* coprocess.h - a program beside ours, started once: lines in, a line out for each.     room: cmd */
#ifndef CLI_COPROCESS_H
#define CLI_COPROCESS_H
#include "cli/cli.h"

struct cli_coprocess_opts {
    const char *name;           /* before the command in messages */
    const char *asked, *answer; /* what a line in is, "solution", and a line out, "score" */
    const char *option;         /* that sets `seconds` */
    int32_t seconds;            /* until the next line comes */
    enum err_code bad;          /* of an answer that is none */
    bool (*stop)(void);         /* whether to end with ERR_CANCEL; NULL: cli_interrupted() */
};
struct cli_coprocess;
/* Starts the words of a command, without a shell; quotes keep blanks in a word. Its standard error stays ours. */
MUST_CHECK enum err_code cli_coprocess_open(struct cli_coprocess **out, const char *command,
                                            const struct cli_coprocess_opts *o, struct err *e);
/* Its end, whether it wants to or not. NULL is allowed. */
void cli_coprocess_close(struct cli_coprocess *c);
/* Answer i of a call; an error ends the call. */
typedef enum err_code cli_coprocess_fn(void *ctx, int i, struct str line, struct err *e);
/* Writes text, n whole lines, and calls fn for each of n lines that come back. */
MUST_CHECK enum err_code cli_coprocess_ask(struct cli_coprocess *c, struct str text, int n, cli_coprocess_fn *fn,
                                           void *ctx, struct err *e);
#endif
