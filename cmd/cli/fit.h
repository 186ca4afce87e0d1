/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - a plan for a device's memory (run/fit.h), printed.                room: cmd (cli_) */
#ifndef CLI_FIT_H
#define CLI_FIT_H
#include "cli/cli.h"

struct run_fit;

/* The plan in lines of text, for --plan and -v. */
typedef void cli_fit_line(void *ctx, const char *line);
void    cli_fit_text(const struct run_fit *f, cli_fit_line *line, void *ctx);
json_t *cli_fit_json(const struct run_fit *f); /* NULL when memory is out */
/* Prints the plan to stdout. */
MUST_CHECK enum err_code cli_fit_print(const struct run_fit *f, bool json, struct err *e);
void cli_fit_note(const struct run_fit *f); /* with -v; NULL: nothing was planned */
#endif
