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

/* How a command ended: by itself, with a status; by a signal, or because it took too long or printed too much (then
 * *out has what came before). */
enum cli_child_how { CLI_CHILD_EXIT, CLI_CHILD_SIGNAL, CLI_CHILD_TIME, CLI_CHILD_BYTES };
struct cli_child_end {
    enum cli_child_how how;
    int status; /* or the signal's number */
};
/* The same of separate words; argv ends with NULL. Its end is no error; that it cannot be started
 * is. */
MUST_CHECK enum err_code cli_child_argv(struct cli_child_end *end, const char *const *argv, struct str in,
                                        struct cli_buf *out, size_t max, int seconds, struct err *e);
#endif
