/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - the answers of a batch's shards, put together in the order of the batch.        room: cmd
 *
 * Nothing is written unless each request has one line, an answer or an error, that was made for it with the same
 * settings as all others. Memory holds a few numbers for each request; the texts stay in their files.
 */
#ifndef SERVE_STDIO_MERGE_H
#define SERVE_STDIO_MERGE_H
#include "cli/cli.h"

struct cli_merge_opts {
    const char *out;
    const char *errors; /* NULL: out with .errors */
    const char *in;     /* the batch */
    char *const *parts; /* [n_parts] outputs of shards; PART.errors goes with each, if there is one */
    int n_parts;
    bool lenient;
};
/* *n_wrong: lines that are missing, doubled, foreign or made with other settings; each is told as a line of JSON on
 * stdout. */
MUST_CHECK enum err_code cli_merge(const struct cli_merge_opts *o, size_t *n_wrong, size_t *n_refused, struct err *e);
#endif
