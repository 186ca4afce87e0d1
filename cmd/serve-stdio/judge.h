/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - the verifier of a server, in a thread of its own, so that answers go on meanwhile.   room: cmd
 *
 * A command that has ended is started again for the next request.
 */
#ifndef SERVE_STDIO_JUDGE_H
#define SERVE_STDIO_JUDGE_H
#include "cli/verifier.h"
#include "serve/serve.h"

struct cli_judges;
/* Returns when the verifier is open. There is one at most in a program; what is used outlives it. */
MUST_CHECK enum err_code cli_judges_open(struct cli_judges **out, const struct cli_verifier_use *use, struct err *e);
void cli_judges_close(struct cli_judges *j); /* what is scored is given up. NULL is allowed */
/* For serve_opts; valid until it is closed. */
const struct serve_judge *cli_judges_of(struct cli_judges *j);
#endif
