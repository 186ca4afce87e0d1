/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - JSON objects of clients, each in a file of a directory.        room: cmd
 *
 * An object has an id, which begins as the ids of its table do, and belongs to an owner. Its file, ID.json, is
 * exchanged as a whole. All are in memory; who asks for one by its id gives no path.
 */
#ifndef SERVE_STDIO_RECORDS_H
#define SERVE_STDIO_RECORDS_H
#include "cli/cli.h"

enum { CLI_ID_BYTES = 40, CLI_RECORDS_MAX = 10000 };

struct cli_record {
    char id[CLI_ID_BYTES];
    uint64_t owner;
    int64_t number; /* in the order they were made */
    json_t *object; /* as clients see it */
    json_t *own;    /* as they do not */
};
struct cli_records {
    const char *dir;       /* not owned */
    const char *begins;    /* of an id: "file-" */
    struct cli_record **v; /* [n] in the order they were made */
    size_t n, cap;
};
/* Reads what is in the directory; files that are no records are passed by with a warning. */
MUST_CHECK enum err_code cli_records_open(struct cli_records *r, const char *dir, const char *begins, struct err *e);
void cli_records_close(struct cli_records *r); /* {0} is allowed */
/* An id that nobody has. */
MUST_CHECK enum err_code cli_record_id(char id[CLI_ID_BYTES], const char *begins, struct err *e);
/* Takes both objects. It is not in a file before it is saved. ERR_LIMIT: there are too many. */
MUST_CHECK enum err_code cli_record_add(struct cli_record **out, struct cli_records *r, const char *id, uint64_t owner,
                                        json_t *object, json_t *own, struct err *e);
MUST_CHECK enum err_code cli_record_save(const struct cli_records *r, const struct cli_record *x, struct err *e);
void cli_record_remove(struct cli_records *r, struct cli_record *x); /* with its file, if there is one */
/* NULL: there is none, or it is another owner's. */
struct cli_record *cli_record_find(const struct cli_records *r, struct str id, uint64_t owner);

/* A part of an owner's objects, the newest ones first. */
struct cli_records_page {
    int64_t limit;
    const char *after;       /* begins behind this id; NULL: at the first one */
    const char *member, *is; /* those whose member has this value alone; is NULL: all */
    bool oldest;             /* those first */
};
/* In the form of OpenAI's lists. NULL: memory is out. *known false: there is no object `after`. */
json_t *cli_records_list(const struct cli_records *r, uint64_t owner, const struct cli_records_page *page, bool *known);
#endif
