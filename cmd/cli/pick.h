/* SPDX-License-Identifier: Apache-2.0 */
/* pick.h - the next token of a row, from as little of it as the sampler can do with.      room: cmd (cli_) */
#ifndef CLI_PICK_H
#define CLI_PICK_H
#include "run/run.h"
#include "sample/sample.h"

/* What the sampler will want of the row that the next step computes. Valid until the sampler is used again. */
struct run_want cli_pick_want(struct sampler *s);
/* Chooses from row i of the last step (-1: its last row), made with that want or with none. *whole: all logits of
 * the row were needed. */
MUST_CHECK enum err_code cli_pick(struct sampler *s, struct run *r, int i, struct sample_pick *pick, bool *whole,
                                  struct err *e);
#endif
