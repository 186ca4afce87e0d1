/* SPDX-License-Identifier: Apache-2.0 */
/* line_requests.h - a request on each line, its replies on lines (chimere-jsonl(5)).                 room: cmd */
#ifndef SERVE_STDIO_LINE_REQUESTS_H
#define SERVE_STDIO_LINE_REQUESTS_H
#include "serve-stdio/stdin_requests.h"

struct cli_line_requests {
    struct serve *serve;
    bool lenient;        /* unknown members are ignored */
    struct asked *asked; /* requests without their last reply */
};
/* For cli_stdin_requests(); it points to s. */
struct cli_stdin_requests cli_line_talk(struct cli_line_requests *s);
void cli_line_requests_end(struct cli_line_requests *s);
#endif
