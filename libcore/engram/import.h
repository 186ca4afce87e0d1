/* SPDX-License-Identifier: Apache-2.0 */
/* import.h - tables of an earlier format become tables of this one. */
#ifndef ENGRAM_IMPORT_H
#define ENGRAM_IMPORT_H
#include "base/base.h"

/* Imports tables of an earlier format, ".engr" version 1, which have hashes instead of contexts. Contexts that occur in
 * the given texts are found, and those that follow from them. ERR_FORMAT, ERR_UNSUPPORTED: the file is not such a
 * table. */
struct engram_import;
MUST_CHECK enum err_code engram_import_open(struct engram_import **out, const char *path, struct err *e);
void engram_import_close(struct engram_import *x); /* NULL is allowed */
MUST_CHECK enum err_code engram_import_text(struct engram_import *x, const int32_t *token, int64_t n, struct err *e);
void engram_import_stat(const struct engram_import *x, uint64_t *found, uint64_t *all); /* contexts */
/* Writes what was found as a table; shorter contexts get the sums of longer ones. */
struct engram_build_opts; /* of which tokenizer, day and versions are used */
MUST_CHECK enum err_code engram_import_write(const struct engram_import *x, const char *path,
                                             const struct engram_build_opts *o, struct err *e);
#endif
