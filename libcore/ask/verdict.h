/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - solutions, and what a model says of them: of each step and of the whole whether it is correct.  room: ask
 *
 * The score is the probability of yes, of yes and no. chimere-reason(7) has what a model is asked.
 */
#ifndef ASK_VERDICT_H
#define ASK_VERDICT_H
#include "ask/ask.h"

enum {
    ASK_STEPS_MAX = 256,      /* of a solution */
    ASK_VERDICT_TOKENS = 2048 /* what a verdict takes beside a solution of a few steps, with reasoning */
};

/* A solution, and its scores. It owns what it points to (ask_solution_free()). */
struct ask_solution {
    char *problem, *answer; /* answer NULL: it has none of its own */
    char **step;            /* [n_steps] */
    size_t n_steps;
    double *scores; /* [n_steps] of the steps, 0 .. 1; NaN: not known */
    double score;   /* of the whole; NaN: the verifier cannot say */
};
/* What of a text is between ends, "\n" for lines, and has more than blanks is a step. ERR_LIMIT: there are more than
 * ASK_STEPS_MAX. */
MUST_CHECK enum err_code ask_solution_split(struct ask_solution *s, struct str text, struct str end, struct err *e);
MUST_CHECK enum err_code ask_solution_add(struct ask_solution *s, struct str step, struct err *e);
void ask_solution_free(struct ask_solution *s);
/* Of an answer, or of its beginning, whole false: the user's last message is the problem, the reasoning has the steps,
 * or the text where there is none. ERR_LIMIT as above, with n_steps 0: it gets no score. */
MUST_CHECK enum err_code ask_solution_make(struct ask_solution *out, const json_t *messages, struct str reasoning,
                                           struct str text, bool whole, struct str step_end, struct err *e);

/* A question, and what its answer has said so far. */
struct ask_verdict {
    struct ask_solution *solution;
    const struct text *text;
    struct ask_request *asked; /* its q is for the engine */
    char *said;
    size_t n_said, said_cap;
    int64_t n_tokens;
};
/* think: the model reasons before it says so. The solution's scores are not known then. */
MUST_CHECK enum err_code ask_verdict_open(struct ask_verdict *v, struct ask_solution *s, const struct ask_model *m,
                                          bool think, struct err *e);
void ask_verdict_close(struct ask_verdict *v);
/* Tokens of the context that it needs. */
int64_t ask_verdict_room(const struct ask_verdict *v, bool think);
/* A GEN_TOKEN event of it. */
MUST_CHECK enum err_code ask_verdict_take(struct ask_verdict *v, const struct gen_event *ev, struct err *e);
#endif
