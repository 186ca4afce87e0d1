/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - a plan for a device's memory (run/placement.h), printed.                room: cmd */
#ifndef CLI_PLACEMENT_H
#define CLI_PLACEMENT_H
#include "cli/cli.h"

struct run_placement;

/* The plan in lines of text, for --plan and -v. */
typedef void cli_placement_line(void *ctx, const char *line);
/* device_bytes_per_s: cli_estimate()'s */
void cli_placement_text(const struct run_placement *f, double device_bytes_per_s, cli_placement_line *line, void *ctx);
json_t *cli_placement_json(const struct run_placement *f, double device_bytes_per_s); /* NULL when memory is out */
/* Prints the plan to stdout. */
MUST_CHECK enum err_code cli_placement_print(const struct run_placement *f, double device_bytes_per_s, bool json,
                                             struct err *e);
void cli_placement_note(const struct run_placement *f); /* with -v; NULL: nothing was planned */
#endif
