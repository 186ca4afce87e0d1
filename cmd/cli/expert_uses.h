/* SPDX-License-Identifier: Apache-2.0 */
/* expert_uses.h - how often each routed expert of a model was used, in a file (chimere-jsonl(5)).  room: cmd */
#ifndef CLI_EXPERT_USES_H
#define CLI_EXPERT_USES_H
#include "cli/cli.h"

struct model;

/* [n_layer][n_expert] uses, which the caller frees; NULL when there is no such file. ERR_FORMAT when it is not a
 * profile, or one of another model. */
MUST_CHECK enum err_code cli_uses_read(uint64_t **uses, const char *path, uint64_t fingerprint, int n_layer,
                                       int n_expert, struct err *e);
/* Writes `had` (NULL: nothing) and the uses that m counted; the file appears complete or not at all. */
MUST_CHECK enum err_code cli_uses_write(const char *path, uint64_t fingerprint, const uint64_t *had,
                                        const struct model *m, struct err *e);
#endif
