/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - a file of requests, answered into another one; a killed run can be continued.  room: cmd
 *
 * The file has lines of OpenAI's batch form: {"custom_id", "method": "POST", "url", "body"}. Each answer is appended
 * as one line in one write, so a killed run loses at most the answers in progress; the next run takes up what is
 * missing. Memory grows with the number of requests (their ids), not with their size.
 */
#ifndef SERVE_STDIO_BATCH_H
#define SERVE_STDIO_BATCH_H
#include "cli/cli.h"

struct serve;

struct cli_batch_opts {
    const char *in, *out;
    const char *errors; /* NULL: out with .errors */
    const char *shard;  /* "i/n"; NULL: all */
    bool lenient;       /* lines may have other members */
};
/* Before the model is opened: every line is a request, no custom_id comes twice, and the output files are ours. */
MUST_CHECK enum err_code cli_batch_check(const struct cli_batch_opts *o, struct err *e);
MUST_CHECK enum err_code cli_batch_run(const struct cli_batch_opts *o, struct serve *s, struct err *e);
#endif
