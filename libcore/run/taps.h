/* SPDX-License-Identifier: Apache-2.0 */
/* taps.h - for the room draft: hidden rows of a run's last step, where they lie.      room: run */
#ifndef RUN_TAPS_H
#define RUN_TAPS_H
#include "base/base.h"

struct model_taps;
struct run;

/* Rows after run_opts.tap_layers (model/forward.h), until the next step; n is 0 without taps. Rows
 * of a step are in the order of their sequences. */
const struct model_taps *run_taps(const struct run *r);
/* Where the rows of a sequence begin; -1: it had none in the last step. */
int run_first_row(const struct run *r, int seq);
/* Copies n rows from `row` on, where they lie, of tap number `tap` to the host: [n][n_embd]. */
void run_tap_rows(const struct run *r, int tap, int row, int n, float *out);
#endif
