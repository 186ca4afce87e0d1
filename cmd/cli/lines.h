/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - lines from a descriptor, without waiting for the rest.           room: cmd */
#ifndef CLI_LINES_H
#define CLI_LINES_H
#include "cli/cli.h"

struct cli_lines {
    int fd;
    size_t line_max; /* bytes; a longer line is skipped, and said to be */
    struct cli_buf b;
    size_t at;   /* the first byte that was not given out */
    size_t seen; /* bytes from `at` on without a newline */
    bool skipping, eof, no_room;
    int64_t n; /* lines given out or skipped */
};
/* Waits up to wait_ms (-1: for ever) for bytes and takes those that have come; a signal ends the wait. ERR_NOMEM:
 * before the first byte. */
MUST_CHECK enum err_code cli_lines_read(struct cli_lines *l, int wait_ms, struct err *e);
/* Nobody writes to it any more, whatever is still to be read. */
bool cli_lines_ended(const struct cli_lines *l);
/* A line for which memory is out is skipped as one that is too long. */
enum cli_line { CLI_LINE_NONE, CLI_LINE, CLI_LINE_TOO_LONG, CLI_LINE_NO_MEMORY };
/* The next whole line, without its newline; the last one at the end of the file needs none. Valid until the
 * next cli_lines_read(). */
enum cli_line cli_lines_next(struct cli_lines *l, struct str *line);
/* The next n bytes, whatever they are, if they have come; valid as long. */
bool cli_lines_take(struct cli_lines *l, size_t n, struct str *bytes);
void cli_lines_free(struct cli_lines *l);
#endif
