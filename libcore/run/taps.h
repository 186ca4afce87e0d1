/* SPDX-License-Identifier: Apache-2.0 */
/* taps.h - for the room draft: hidden rows of a run's last step, on the device.       room: run */
#ifndef RUN_TAPS_H
#define RUN_TAPS_H
#include "base/base.h"

struct model_taps;
struct run;

/* The rows after run_opts.tap_layers (model/forward.h), valid until the next step; n is 0 without taps. The rows
 * of a step are sorted by sequence. */
const struct model_taps *run_taps(const struct run *r);
/* The first row of a sequence among them; -1: it had no rows in the last step. */
int run_first_row(const struct run *r, int seq);
int run_tap_n(const struct run *r); /* rows of the last step */
/* Copies n rows of tap number `tap`, from row `row` of that order on, to the host: [n][n_embd]. */
void run_tap_rows(const struct run *r, int tap, int row, int n, float *out);
#endif
