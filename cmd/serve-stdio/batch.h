/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - a file of requests, answered into another one; a killed run can be continued.  room: cmd
 *
 * The file has lines of OpenAI's batch form: {"custom_id", "method": "POST", "url", "body"}. Each answer is appended
 * as one line in one write, so a killed run loses at most the answers in progress; the next run takes up what is
 * missing. An answer counts while its request is the same: each line has "asked", a hash of url and body, and
 * "made_with" (made_with.h). Memory grows with the number of requests (their ids), not with their size.
 */
#ifndef SERVE_STDIO_BATCH_H
#define SERVE_STDIO_BATCH_H
#include "cli/cli.h"

struct serve;

struct cli_batch_opts {
    const char *in, *out;
    const char *errors;      /* NULL: out with .errors */
    const char *shard;       /* "i/n"; NULL: all */
    bool lenient;            /* lines may have other members */
    const json_t *made_with; /* of answers; NULL: not known yet */
};
/* Before the model is opened: every line is a request, no custom_id comes twice, and the output files are ours. */
MUST_CHECK enum err_code cli_batch_check(const struct cli_batch_opts *o, struct err *e);
/* *n_refused: requests that the errors file has an entry of. ERR_FORMAT also: an answer that was made with something
 * else. */
MUST_CHECK enum err_code cli_batch_run(const struct cli_batch_opts *o, struct serve *s, size_t *n_refused,
                                       struct err *e);
#endif
