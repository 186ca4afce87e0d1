/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - conversations in a directory, which outlast the server.          room: cmd
 *
 * Each conversation that a sequence of the engine ended is a session file (run/session.h) of its own: it is saved when
 * nothing else is to be done, before its place is taken, and at the end. A request whose prompt begins as one of them
 * does goes on from it. Files of other models, adapters, versions or kinds of products are passed by, damaged ones too.
 * Any number of processes may share a directory: one that is writing a file has it alone, the others do without it.
 * Troubles are warnings: no request fails by them.
 */
#ifndef SERVE_STDIO_CACHE_H
#define SERVE_STDIO_CACHE_H
#include "cli/cli.h"
#include "serve/serve.h"

struct cli_cache;
struct cli_opened;
struct gen;
struct run;

/* Makes the directory if there is none. What is passed is not owned, and outlives the cache. ERR_IO. */
MUST_CHECK enum err_code cli_cache_open(struct cli_cache **out, const char *dir, int64_t bytes_max,
                                        const struct cli_opened *model, struct run *r, struct gen *g, struct err *e);
void cli_cache_close(struct cli_cache *c);         /* saves what is to be saved; NULL is allowed */
extern const struct serve_keeper cli_cache_keeper; /* of a struct cli_cache */
#endif
