/* SPDX-License-Identifier: Apache-2.0 */
/* batches.h - batches of clients, answered beside other requests.            room: cmd
 *
 * A batch is a record (records.h) in the directory of its files; batch.h answers it. Of an owner one is answered at a
 * time, the oldest first. What is not over goes on when the server comes back. Troubles end the batch, not the server.
 */
#ifndef SERVE_STDIO_BATCHES_H
#define SERVE_STDIO_BATCHES_H
#include "serve-stdio/files.h"

struct cli_batches;
struct serve;
struct serve_reply;

struct cli_batches_opts {
    const char *dir;   /* files.h; made if there is none */
    int64_t bytes_max; /* of all contents */
    bool lenient;      /* unknown members are passed by */
};
MUST_CHECK enum err_code cli_batches_open(struct cli_batches **out, const struct cli_batches_opts *o, struct err *e);
void cli_batches_close(struct cli_batches *b); /* NULL is allowed */
struct cli_files *cli_batches_files(struct cli_batches *b);

/* What answers are made with from now on (made_with.h): what was answered with something else is asked again. Takes
 * made_with. Before the first turn, and when something has changed. */
void cli_batches_set(struct cli_batches *b, struct serve *s, json_t *made_with);
/* In every turn of the loop that serves: reads some lines, gives requests to the engine, ends what is complete. */
void cli_batches_turn(struct cli_batches *b);
bool cli_batches_busy(const struct cli_batches *b);
/* Whether a reply belongs to a batch, which takes its body then. */
bool cli_batches_take(struct cli_batches *b, struct serve_reply *r);

/* What a client is told: the caller's, to be released. */
struct cli_told {
    int status;
    json_t *body; /* NULL: memory is out */
};
struct cli_told cli_told_error(int status, const char *pointer, const char *fmt, ...) PRINTF_LIKE(3, 4);
struct cli_told cli_batches_create(struct cli_batches *b, uint64_t owner, const json_t *body);
struct cli_told cli_batches_list(const struct cli_batches *b, uint64_t owner, const struct cli_records_page *page);
struct cli_told cli_batches_show(const struct cli_batches *b, uint64_t owner, struct str id);
struct cli_told cli_batches_cancel(struct cli_batches *b, uint64_t owner, struct str id);
/* Whether a batch that is not over reads the file. */
bool cli_batches_reads(const struct cli_batches *b, const char *file_id);
#endif
