/* SPDX-License-Identifier: Apache-2.0 */
/* model_list.h - what is in model files: one in full, several in a table.          room: cmd */
#ifndef RUN_MODEL_LIST_H
#define RUN_MODEL_LIST_H
#include "base/base.h"

struct gguf;
/* inspect.c: from its header alone. */
MUST_CHECK enum err_code cli_inspect(const struct gguf *g, bool json, struct err *e);
/* A row for each file, or with json a line. Of a split file all parts are one row. One that cannot be read is a row
 * with its error; *status is then that of the first such file, else 0. */
MUST_CHECK enum err_code cli_model_list(char *const *paths, bool json, int *status, struct err *e);
#endif
