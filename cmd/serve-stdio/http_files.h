/* SPDX-License-Identifier: Apache-2.0 */
/* http_files.h - files and batches of clients over HTTP: OpenAI's /v1/files and /v1/batches.   room: cmd */
#ifndef SERVE_STDIO_HTTP_FILES_H
#define SERVE_STDIO_HTTP_FILES_H
#include "serve-stdio/batches.h"

struct MHD_Connection;
struct MHD_Response;
struct cli_form;
struct serve_row;

/* The verbs of a path; NULL: it is none of files or batches. */
const struct serve_row *cli_files_row(const char *path);
bool cli_files_uploads(const char *path, const char *verb);

/* A file that comes in as multipart/form-data. NULL: it comes in another way; or memory is out, which errno says. */
struct cli_form *cli_form_open(struct cli_files *f, struct MHD_Connection *of);
void cli_form_add(struct cli_form *form, struct str part);
void cli_form_close(struct cli_form *form); /* NULL is allowed */

/* A request that is here as a whole. */
struct cli_files_request {
    struct MHD_Connection *of;
    const char *path, *verb;
    struct str body;       /* as JSON */
    struct cli_form *form; /* instead; NULL: none */
    uint64_t owner;        /* of what is asked for */
};
/* NULL: memory is out. */
struct MHD_Response *cli_files_answer(struct cli_batches *b, const struct cli_files_request *q, int *status,
                                      const char **type);
#endif
