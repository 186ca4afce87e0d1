/* SPDX-License-Identifier: Apache-2.0 */
/* resident.h - a server that has the model open, for programs that ask it instead of opening the model.     room: cmd
 */
#ifndef CLI_RESIDENT_H
#define CLI_RESIDENT_H
#include "cli/open.h"

/* What has an effect on an answer and is not part of the question: "version", "model" (the file itself, not its name),
 * "adapters", "acts", "experts", "template" and "parser". */
MUST_CHECK enum err_code cli_resident_facts(json_t **out, const struct cli_opened *x, const char *template_file,
                                            const char *parser, struct err *e);
/* Adds what is only known of a model that is open and of its run, which may differ where the other program leaves it
 * open: "device", "kv", "kv_default" (no option says it), "kv_fallback"; and what reports tell: "arch", "n_vocab",
 * "ctx_train", "fingerprint". */
MUST_CHECK enum err_code cli_resident_add(json_t *facts, const struct cli_opened *x, const struct run *run,
                                          struct err *e);
/* Whether a server with these facts answers as this program would. ERR_ARG: what differs. */
MUST_CHECK enum err_code cli_resident_check(const json_t *theirs, const json_t *ours, const struct cli_model_opts *o,
                                            struct err *e);
/* Where a server of this user listens; false: there is no place for it. */
bool cli_resident_path(char *buf, size_t n);
#endif
