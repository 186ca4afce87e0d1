/* SPDX-License-Identifier: Apache-2.0 */
/* made_with.h - what answers are made with, besides their requests.          room: cmd */
#ifndef SERVE_STDIO_MADE_WITH_H
#define SERVE_STDIO_MADE_WITH_H
#include "cli/cli.h"

struct cli_opened;
struct reason_opts;
struct sample_opts;

struct cli_made_with_opts {        /* NULL: not given */
    const struct cli_opened *open; /* with its run */
    const struct cli_beside_opts *beside;
    const char *template_file, *parser, *name, *calibration, *verifier;
    const struct sample_opts *sample;
    int64_t ctx_tokens, predict_max;
    int embed_layer; /* -1: not given */
    const struct reason_opts *reason;
};
/* {"model", "adapters", "tables", "options"}, a hash of each: of tables and templates that of their contents. What is
 * not the same in two of them may have made other answers. The caller's, to be released. */
MUST_CHECK enum err_code cli_made_with(json_t **out, const struct cli_made_with_opts *o, struct err *e);
/* A number of all of that, and of this build. Tables count by their size and age: they may be too large to be read at
 * the start. */
MUST_CHECK enum err_code cli_fingerprint(uint64_t *out, const struct cli_made_with_opts *o, struct err *e);
#endif
