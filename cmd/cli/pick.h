/* SPDX-License-Identifier: Apache-2.0 */
/* pick.h - the next token of a row, from as little of it as the sampler can do with.      room: cmd (cli_) */
#ifndef CLI_PICK_H
#define CLI_PICK_H
#include "run/run.h"
#include "sample/sample.h"

/* Chooses from row i of the last step (-1: its last row), made with sample_wants() or with no want. *whole: all logits of
 * the row were needed. */
MUST_CHECK enum err_code cli_pick(struct sampler *s, struct run *r, int i, struct sample_pick *pick, bool *whole,
                                  struct err *e);
#endif
