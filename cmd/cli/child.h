/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - a command whose output the program reads: text, vectors, a picture.   room: cmd */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H
#include "cli/cli.h"

enum { CLI_CHILD_SECONDS = 60 };

/* Runs the words of a command, without a shell, and adds what it prints to *out, at most max bytes. Its standard input
 * is in_fd, or, where that is -1, `in`; what it says on standard error goes nowhere. The command and what it started
 * end when it takes longer than `seconds`, or at an interrupt (ERR_CANCEL). Else an error, of one line, is ERR_FORMAT.
 */
MUST_CHECK enum err_code cli_child_run(const char *command, int in_fd, struct str in, struct cli_buf *out, size_t max,
                                       int seconds, struct err *e);
#endif
