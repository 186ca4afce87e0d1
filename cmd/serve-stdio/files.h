/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - files of clients, in a directory that outlasts the server.       room: cmd
 *
 * The contents of a file are in ID, what is known of it in ID.json (records.h), which is written after the contents and
 * removed before them: a file is there with both, or it is not. One process has the directory.
 */
#ifndef SERVE_STDIO_FILES_H
#define SERVE_STDIO_FILES_H
#include "serve-stdio/records.h"

enum { CLI_PATH_BYTES = 4096 };
#define CLI_FILES_BEGIN "file-" /* of ids */

struct cli_files {
    const char *dir; /* not owned */
    int lock;
    int64_t room; /* bytes that may still be written, of all contents together */
    struct cli_records table;
};
/* Makes the directory if there is none. ERR_IO: it is a link, not this user's, others may write to it, or another
 * process has it. From here on what the process writes is for this user alone. */
MUST_CHECK enum err_code cli_files_open(struct cli_files *f, const char *dir, int64_t bytes_max, struct err *e);
void cli_files_close(struct cli_files *f); /* {0} is allowed */
/* Counts all contents, and removes those that belong to no file and that keeps() does not want. */
MUST_CHECK enum err_code cli_files_tidy(struct cli_files *f, bool (*keeps)(void *of, const char *id), void *of,
                                        struct err *e);
void cli_file_path(const struct cli_files *f, const char *id, char path[CLI_PATH_BYTES]);

/* A file that is coming in. {0} is none. */
struct cli_upload {
    struct cli_files *files;
    struct io_out *out;
    char id[CLI_ID_BYTES];
    int64_t bytes;
};
MUST_CHECK enum err_code cli_upload_begin(struct cli_upload *u, struct cli_files *f, struct err *e);
/* ERR_LIMIT: there is no room left. */
MUST_CHECK enum err_code cli_upload_add(struct cli_upload *u, struct str part, struct err *e);
/* It becomes a file. */
MUST_CHECK enum err_code cli_upload_end(struct cli_upload *u, uint64_t owner, const char *name, const char *purpose,
                                        struct cli_record **out, struct err *e);
void cli_upload_drop(struct cli_upload *u);

/* Contents that lie under an id already, and are counted, become a file. */
MUST_CHECK enum err_code cli_file_add(struct cli_files *f, const char *id, uint64_t owner, int64_t bytes,
                                      const char *name, const char *purpose, struct cli_record **out, struct err *e);
void cli_file_remove(struct cli_files *f, struct cli_record *x);
#endif
