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
#include "serve/serve.h"

struct cli_batch_opts { /* what is pointed to outlives the batch */
    const char *in, *out;
    const char *errors;      /* NULL: out with .errors */
    const char *shard;       /* as serve_shard() takes it; NULL: all */
    const char *name;        /* of the input in messages; NULL: its path */
    const char *url;         /* that all requests have; NULL: any that the engine answers */
    bool lenient;            /* lines may have other members */
    bool again;              /* what was answered with other settings is asked again; else it is an error */
    const json_t *made_with; /* of answers; NULL: not known yet */
    int64_t *room;           /* bytes that may still be written, less with each line; NULL: any number */
    struct serve_client client;
};
/* Before the model is opened: every line is a request, no custom_id comes twice, and the output files are ours. */
MUST_CHECK enum err_code cli_batch_check(const struct cli_batch_opts *o, struct err *e);
struct cli_batch_counts {
    size_t n, done, refused; /* requests; with an answer or an error; with an error */
    int64_t line;            /* that was read last */
    int64_t asked;           /* requests that the engine has */
    int64_t bytes;           /* of both outputs */
};
/* The whole batch, or as much as was answered when a signal came. ERR_FORMAT also: an answer that was made with
 * something else. */
MUST_CHECK enum err_code cli_batch_run(const struct cli_batch_opts *o, struct serve *s, struct cli_batch_counts *counts,
                                       struct err *e);

/* The same beside other requests: cli_batch_open(), cli_batch_read() while there is more, cli_batch_begin(),
 * cli_batch_ask() while there is more, cli_batch_take() with each reply, cli_batch_end(), cli_batch_close(). */
struct cli_batch;
MUST_CHECK enum err_code cli_batch_open(struct cli_batch **out, const struct cli_batch_opts *o, struct err *e);
void cli_batch_close(struct cli_batch *b); /* NULL is allowed */
/* Checks the next line. ERR_FORMAT: it is no request; the next one can be checked all the same. */
MUST_CHECK enum err_code cli_batch_read(struct cli_batch *b, bool *more, struct err *e);
/* Takes what earlier runs have answered. */
MUST_CHECK enum err_code cli_batch_begin(struct cli_batch *b, struct err *e);
/* Gives the next request without an answer to the engine. */
MUST_CHECK enum err_code cli_batch_ask(struct cli_batch *b, struct serve *s, bool *more, struct err *e);
bool cli_batch_owns(const struct cli_batch *b, const void *user); /* a reply's */
/* Writes an answer; takes the reply's body. ERR_IO, ERR_LIMIT: there is no room for it. */
MUST_CHECK enum err_code cli_batch_take(struct cli_batch *b, struct serve_reply *r, struct err *e);
/* Writes an error for each request without an answer. */
MUST_CHECK enum err_code cli_batch_give_up(struct cli_batch *b, const char *code, const char *message, struct err *e);
void cli_batch_cancel(struct cli_batch *b, struct serve *s);                      /* the requests that the engine has */
MUST_CHECK enum err_code cli_batch_end(const struct cli_batch *b, struct err *e); /* all that was written is on disk */
struct cli_batch_counts cli_batch_counts(const struct cli_batch *b);
#endif
