/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - files that a training reads and writes.                          room: train */
#ifndef TRAIN_FILES_H
#define TRAIN_FILES_H
#include "base/base.h"

/* Each line that is not blank; an error gets the file's name and the line's number. progress: bytes that were read. */
typedef enum err_code train_line_fn(void *ctx, struct str line, struct err *e);
MUST_CHECK enum err_code train_lines(const char *path, struct str all, const struct progress *progress,
                                     train_line_fn *fn, void *ctx, struct err *e);
/* The name with more at its end, malloc'ed; NULL: out of memory. */
char *train_beside(const char *path, const char *end);
/* An empty file beside `out` that nobody else has, with a temporary file's name (base/io.h): what is new is written to
 * it until it is published. Removes those that killed trainings of `out` left. */
MUST_CHECK enum err_code train_fresh(char **fresh, const char *out, struct err *e);
void train_drop(char **fresh); /* removes the file and forgets its name; NULL is allowed */
/* io_publish(), then removes the state of the training at `half`. If a kill comes between them, the state is left, and
 * train_drop_done() knows it. */
MUST_CHECK enum err_code train_publish(const char *out, const char *fresh, int keep, const char *half, struct err *e);
/* Removes a state whose training has published what is at `out`: nothing can go on from it. */
void train_drop_done(const char *out, const char *half);
#endif
