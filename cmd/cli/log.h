/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - --log: answers are kept in a directory (journal/journal.h).        room: cmd */
#ifndef CLI_LOG_H
#define CLI_LOG_H
#include "cli/cli.h"
#include "cli/open.h"
#include "journal/journal.h"

struct cli_log_opts {
    const char *dir; /* NULL: nothing is kept */
    bool is_there;   /* it is not made */
    struct cli_list redact;
    int64_t bytes_max;
};
#define CLI_LOG_DEFAULTS \
    { \
        .bytes_max = 256 << 20 \
    }
#define ROWS_LOG(o) \
    PATH(0, "log", "directory", "keep answers there, to learn from", &(o).dir), \
        LIST("redact", "regex", "what matches is not kept; repeatable", &(o).redact), \
        INT64(0, "log-size", "bytes", "size of that directory (default 256M)", &(o).bytes_max, 1 << 20)
/* o->dir NULL: *out is NULL. */
MUST_CHECK enum err_code cli_log_open(struct journal **out, const struct cli_log_opts *o, struct err *e);

/* What answers are made with, as members of log lines. */
struct cli_log_beside { /* NULL: not given */
    const struct cli_opened *open;
    const struct cli_adapters *adapters;
    const struct cli_list *engrams;
    const char *context_table, *examples, *recite;
    const json_t *fingerprint; /* of a model that a server has open */
};
/* {"program", "build", "model", "adapters", "tables", "generation"}; "generation" is there where one of the files lies
 * in a directory that a link leads to: where that leads now. */
MUST_CHECK enum err_code cli_log_facts(json_t **out, const struct cli_log_beside *x, struct err *e);
#endif
