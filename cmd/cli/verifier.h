/* SPDX-License-Identifier: Apache-2.0 */
/* verifier.h - scores of solutions: by a model, or by a command.             room: cmd
 *
 *   --verifier self           the model that answers
 *   --verifier FILE.gguf      another model
 *   --verifier cmd:COMMAND    a program, started once and without a shell: a line with a solution in, a line with its
 *                             score out
 *
 * A model says of each step whether it is correct, and of the whole whether it is: its score is the probability of yes,
 * of yes and no. chimere-reason(7) has what it is asked, chimere-jsonl(5) the lines. One thread.
 */
#ifndef CLI_VERIFIER_H
#define CLI_VERIFIER_H
#include "ask/verdict.h"
#include "cli/open.h"

/* What an option table sets; all zero: no verifier. */
struct cli_verifier_opts {
    const char *what; /* NULL: none */
    int32_t seconds;  /* that a command has for a solution */
};
#define CLI_VERIFIER_DEFAULTS .seconds = 10
/* Rows of the option table; v is a struct cli_verifier_opts (table.h has the short names). */
#define ROWS_VERIFIER(v) \
    STRING(0, "verifier", "what", "scores answers: self, FILE.gguf, cmd:COMMAND", &(v).what), \
        INT32("verifier-time", "s", "a command's time for an answer (default 10)", &(v).seconds, 1, 86400)

struct cli_verifier;
struct cli_verifier_use {
    struct cli_verifier_opts o;
    const struct cli_model_opts *model; /* how a model runs: device, threads ... */
    struct cli_opened *self;            /* open, with its text; NULL where `what` is not self */
    bool think;                         /* a model reasons before it says so */
    int parallel;                       /* solutions at a time */
    bool (*stop)(void);                 /* whether to end with ERR_CANCEL; NULL: cli_interrupted() */
    bool quiet;                         /* tells no progress */
};
/* Opens the model or starts the command; what is used outlives it. */
MUST_CHECK enum err_code cli_verifier_open(struct cli_verifier **out, const struct cli_verifier_use *use,
                                           struct err *e);
/* What a model of a file will take of its device's memory for solutions of this length; 0 of another verifier.
 * Nothing is loaded. */
MUST_CHECK enum err_code cli_verifier_bytes(int64_t bytes[MODEL_DEVS_MAX], const struct cli_verifier_use *use,
                                            int64_t tokens, struct err *e);
/* The end of a command, whether it wants to or not. NULL is allowed. */
void cli_verifier_close(struct cli_verifier *v);
/* Scores all. */
MUST_CHECK enum err_code cli_verifier_score(struct cli_verifier *v, struct ask_solution *s, size_t n, struct err *e);
int64_t cli_verifier_tokens(const struct cli_verifier *v); /* that a model has written so far */

/* verifier_command.c */
struct cli_coprocess;
MUST_CHECK enum err_code cli_judge_open(struct cli_coprocess **out, const char *command, int32_t seconds,
                                        bool (*stop)(void), struct err *e);
MUST_CHECK enum err_code cli_judge_score(struct cli_coprocess *c, struct ask_solution *s, struct err *e);

/* verifier_model.c: opened is another's, whose text and model are there */
MUST_CHECK enum err_code cli_ask_verdicts(struct cli_opened *opened, const struct cli_verifier_use *use,
                                          struct ask_solution *s, size_t n, int64_t *n_tokens, struct err *e);
#endif
