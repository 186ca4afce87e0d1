/* SPDX-License-Identifier: Apache-2.0 */
/* stdin_requests.h - requests as lines on stdin, replies to stdout, many in progress.  room: cmd */
#ifndef SERVE_STDIO_STDIN_REQUESTS_H
#define SERVE_STDIO_STDIN_REQUESTS_H
#include "serve-stdio/reload.h"
#include "cli/cli.h"
#include "serve/serve.h"

/* What the lines mean. */
struct cli_stdin_requests {
    void *of;
    enum err_code (*take)(void *of, struct str line, int64_t number, struct err *e);
    enum err_code (*lost)(void *of, int status, const char *why, struct err *e); /* a line that was not kept */
    enum err_code (*tell)(void *of, struct serve_reply *r, struct err *e);       /* takes the body */
    bool leaves; /* the end of the input or a signal ends everything; else what was asked is answered first */
};
/* Until the input ends or a signal comes, and what was asked is answered or drain_s is over since the signal. While
 * max_queue requests wait, no line is taken. */
MUST_CHECK enum err_code cli_stdin_requests(const struct cli_stdin_requests *t, struct serve *s,
                                            struct cli_reload *beside, int32_t max_queue, int32_t drain_s,
                                            struct err *e);
#endif
