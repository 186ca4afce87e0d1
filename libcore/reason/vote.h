/* SPDX-License-Identifier: Apache-2.0 */
/* vote.h - which of several answers to keep: canonical answers, votes, scores of verifiers.   room: reason
 *
 * Pure functions: no model, no file, no process.
 */
#ifndef REASON_VOTE_H
#define REASON_VOTE_H
#include "base/base.h"

/* The answer that a text gives, in a form in which equal answers have equal bytes: "so \boxed{\frac{3}{6}}", "0.50" and
 * "The answer is 1/2." all give "1/2" (chimere-reason(7) has the rules). *out: malloc'ed, NUL-terminated, *n bytes,
 * which are UTF-8 where `answer` is; n 0: there is none. Time and memory are linear in answer.n, and the result is at
 * most 256 KiB longer. ERR_NOMEM. */
MUST_CHECK enum err_code reason_canon(struct str answer, char **out, size_t *n, struct err *e);

/* A number as a reduced fraction: "p" or "p/q" and a NUL to out. Decimals, an exponent of at most two digits, or a
 * quotient of two of these, at most 40 bytes. false: it is none. */
enum { REASON_NUMBER_BYTES = 704 };
bool reason_canon_number(struct str s, char out[REASON_NUMBER_BYTES]);

enum reason_vote { REASON_MAJORITY, REASON_WEIGHTED, REASON_BEST };
const char *reason_vote_name(enum reason_vote v);
struct reason_candidate {
    struct str canon; /* of reason_canon(); n 0: it has no vote */
    double score;     /* 0 .. 1; NaN counts as 0 */
};
struct reason_tally {
    int winner;    /* index; of equal answers the first one, with REASON_BEST the one of the highest score; -1: none */
    int votes;     /* for its answer */
    double weight; /* the sum of their scores */
    double agreement; /* the majority's votes, of all candidates */
    bool by_majority; /* all scores are 0: the majority decided */
};
/* The answer with the most votes, with the largest sum of scores (2408.03314's weighted best of N), or the candidate
 * with the highest score. Of equal ones the first. Takes n^2 comparisons. */
struct reason_tally reason_vote(const struct reason_candidate *c, int n, enum reason_vote how);

/* The score of a solution from those of its steps, n >= 1. */
enum reason_aggregate { REASON_LAST, REASON_MIN, REASON_PROD, REASON_MEAN };
double reason_aggregate(const double *step, int n, enum reason_aggregate how);

/* Whether a token says the one word or the other: 1, -1; 0: neither. Its text without blanks is the word, in any case
 * of letters, or with `part` a beginning of it, but not of the other. */
int reason_word_side(struct str piece, const char *yes, const char *no, bool part);
/* yes / (yes + no) (2504.16828); NaN: both are 0. */
double reason_verdict(double yes, double no);

/* A line that a verifier answers with: a number, or {"score": number, "steps": [number or null, ...]}. Numbers are
 * 0 .. 1; a step that it says nothing of is NaN. *score and step[0 .. n_steps) are set. ERR_FORMAT says what is
 * wrong; ERR_NOMEM. */
MUST_CHECK enum err_code reason_score_line(struct str line, double *score, double *step, size_t n_steps, struct err *e);
#endif
