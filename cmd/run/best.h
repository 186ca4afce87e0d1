/* SPDX-License-Identifier: Apache-2.0 */
/* best.h - --best-of, --vote, --verifier, --verify.                          room: cmd */
#ifndef RUN_BEST_H
#define RUN_BEST_H
#include "run/program.h"

bool cli_run_wants_best(const struct cli_run_options *o);
/* The threshold of --verify[=x]: 0 .. 1; "" is a half. false: it is no such number. */
bool cli_run_threshold(const char *verify, double *x);
/* The verifier, if one is asked for, before the model is loaded. */
MUST_CHECK enum err_code cli_run_open_verifier(struct cli_run *s, struct err *e);
/* Answers the question as often as asked, and prints the answer that is kept. */
MUST_CHECK enum err_code cli_run_best(struct cli_run *s, struct err *e);
#endif
