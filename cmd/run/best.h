/* SPDX-License-Identifier: Apache-2.0 */
/* best.h - --best-of, --dvts, --vote, --verifier, --verify.                  room: cmd */
#ifndef RUN_BEST_H
#define RUN_BEST_H
#include "reason/vote.h"
#include "run/program.h"

bool cli_run_wants_best(const struct cli_run_options *o);
/* The threshold of --verify[=x]: 0 .. 1; "" is a half. false: it is no such number. */
bool cli_run_threshold(const char *verify, double *x);
int cli_run_n_answers(const struct cli_run_options *o); /* that are written side by side */
enum reason_vote cli_run_vote(const struct cli_run_options *o);
const char *cli_run_vote_name(const struct cli_run_options *o);
/* The verifier, if one is asked for, before the model is loaded. */
MUST_CHECK enum err_code cli_run_open_verifier(struct cli_run *s, struct err *e);
/* Counts the memory of another model as the verifier, for answers in a context of this length. */
MUST_CHECK enum err_code cli_run_count_verifier(struct cli_run *s, int64_t ctx_tokens, struct err *e);
/* What a verifier is told of an answer, or of its beginning: as steps its reasoning, or its text if it has none.
 * n_steps 0: there is nothing to score. ask_solution_free() frees it also after an error. */
MUST_CHECK enum err_code cli_run_solution(struct ask_solution *out, const struct cli_run *s, const struct cli_answer *a,
                                          bool whole, struct str step_end, struct err *e);
/* Answers the question as often as asked, and prints the answer that is kept. */
MUST_CHECK enum err_code cli_run_best(struct cli_run *s, struct err *e);
/* tree.c: the same by a tree search, --dvts. */
MUST_CHECK enum err_code cli_run_tree(struct cli_run *s, struct err *e);
#endif
