/* SPDX-License-Identifier: Apache-2.0 */
/* reload.h - files that stand beside a model, opened anew on SIGHUP while requests go on.    room: cmd
 *
 * Adapters, tables of n-grams and the text to answer from, indexes of texts and drafters. When a signal comes, each of
 * these kinds is opened from the same names again. Requests that have begun keep what they have, those that begin later
 * get the new ones; what no request has any more is closed. Drafters change no answer, so that all get the new ones
 * with the next step. Of a kind of which a file cannot be used, that is a warning, and the old ones stay.
 */
#ifndef SERVE_STDIO_RELOAD_H
#define SERVE_STDIO_RELOAD_H
#include "cli/beside.h"
#include "cli/guess.h"
#include "serve/serve.h"

struct cli_reload;
struct cli_opened;
struct run;

struct cli_reload_opts {                  /* not copied */
    const struct cli_beside_opts *beside; /* a context becomes a table, too */
    int64_t table_bytes;                  /* of tables of requests' texts, all together */
    const struct cli_guess *guess;
    struct draft **draft; /* *draft: what the gen guesses with, exchanged with it; NULL: nothing */
    struct gen *gen;
    bool logs; /* sets have facts for a log */
};
/* The adapters are the model's, which cli_open_run() has loaded for r; the rest is opened here. What is passed is not
 * owned, and outlives it. */
MUST_CHECK enum err_code cli_reload_open(struct cli_reload **out, const struct cli_reload_opts *o,
                                         struct cli_opened *model, struct run *r, struct err *e);
const struct serve_attachments *cli_reload_now(const struct cli_reload *b);
/* In every turn of the loop that serves: opens anew when a SIGHUP has come, and closes what nobody has. True: it has
 * come, and the caller may read its own files again. */
bool cli_reload_turn(struct cli_reload *b, struct serve *s);
/* The warning that a file cannot be used. */
void cli_reload_stays(const char *option, const struct err *e);
void cli_reload_close(struct cli_reload *b); /* after serve and the run; NULL is allowed */
#endif
