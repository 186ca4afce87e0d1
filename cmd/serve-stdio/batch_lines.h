/* SPDX-License-Identifier: Apache-2.0 */
/* batch_lines.h - lines of batches and of their answers.                     room: cmd */
#ifndef SERVE_STDIO_BATCH_LINES_H
#define SERVE_STDIO_BATCH_LINES_H
#include "base/io.h"
#include "cli/cli.h"
#include "serve/serve.h"

/* A batch, and what its requests may be. */
struct cli_batch_kind {
    const char *name; /* in messages */
    const char *url;  /* that all requests have; NULL: any that the engine answers */
    bool lenient;     /* lines may have other members */
};
/* The next line of a file in memory that is not empty; *at and *line move on. */
bool cli_batch_next_line(struct str all, size_t *at, int64_t *line, struct str *out);
/* The custom_id of a line as text; "": there is none. */
const char *cli_batch_id(const json_t *line, char number[24]);
/* A line of an output, which may have whatever an answer has. */
MUST_CHECK enum err_code cli_batch_own_line(json_t **out, struct str line, const char *path, int64_t number,
                                            struct err *e);
/* A line of the batch as a request, whose id can be kept as it is; *o is set where it is JSON. refused: a value in it
 * is wrong, so that this request is refused, and no other. */
MUST_CHECK enum err_code cli_batch_request(const struct cli_batch_kind *b, struct str line, int64_t number, json_t **o,
                                           enum serve_method *m, struct err *refused, struct err *e);
/* What a request asks for, as a hash: the same with its members in another order. */
MUST_CHECK enum err_code cli_batch_hash(uint64_t *out, enum serve_method m, json_t *body, struct err *e);
/* What a line was made with that is not made_with; NULL: it is the same, or made_with is NULL. */
const char *cli_batch_other(const json_t *made_with, const json_t *line);
/* Maps a batch. One that is packed with zstd is unpacked into a file without a name, in the directory of `beside`. */
MUST_CHECK enum err_code cli_batch_map(struct io_map *out, const char *path, const char *beside, struct err *e);
bool cli_batch_is_packed(const struct io_map *m); /* with zstd */
#endif
