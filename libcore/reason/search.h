/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - diverse verifier tree search: which branches of an answer go on.                 room: reason
 *
 * n / width subtrees; in each step every live subtree gets `width` children, which continue its path, and keeps the one
 * with the highest score (DVTS of search-and-learn). A path that has ended is a candidate, and the candidates vote.
 * Nothing here writes or scores: who does it asks which subtrees live, and tells of their children.
 *
 *   while (reason_search_live(s) > 0 && !reason_search_decided(s))
 *       for each subtree i with reason_search_lives(s, i): make its children, score them, reason_search_add(s, i, ...)
 *
 * A choice in a subtree depends on its own children alone. One thread.
 */
#ifndef REASON_SEARCH_H
#define REASON_SEARCH_H
#include "reason/vote.h"

enum { REASON_SEARCH_MAX = 256 }; /* children of a step, of all subtrees */

struct reason_search_opts {
    int n, width;                    /* children of a step, 1 .. REASON_SEARCH_MAX; of a subtree: divides n */
    int steps_max;                   /* >= 1; a path that has not ended behind as many steps has no answer */
    enum reason_aggregate aggregate; /* a candidate's score, of those of its steps */
    enum reason_vote vote;
};
/* "N" or "NxM": n, and width, which is 4 or a smaller n by default. false: it is no such text, or M does not divide N.
 */
bool reason_search_size(const char *s, int *n, int *width);

struct reason_child {
    double score;     /* of the path with it, 0 .. 1; NaN: not known, below all others */
    bool ended;       /* the answer has ended with it */
    struct str canon; /* ended: of reason_canon(), copied; n 0: it has no vote */
};

struct reason_search;
/* ERR_ARG: a number out of range. ERR_NOMEM. */
MUST_CHECK enum err_code reason_search_open(struct reason_search **out, const struct reason_search_opts *o,
                                            struct err *e);
void reason_search_close(struct reason_search *s);                    /* NULL is allowed */
int reason_search_live(const struct reason_search *s);                /* live subtrees */
bool reason_search_lives(const struct reason_search *s, int subtree); /* subtree: 0 .. n / width - 1 */
int reason_search_steps(const struct reason_search *s, int subtree);  /* that it has taken */
/* The step of a live subtree: *kept is the one of child[0 .. width) that it goes on with, of equal scores the first.
 * ERR_NOMEM: nothing has changed. */
MUST_CHECK enum err_code reason_search_add(struct reason_search *s, int subtree, const struct reason_child *child,
                                           int *kept, struct err *e);
/* Whether the answer that wins the vote is the same whatever the live subtrees give. Asked where all live subtrees have
 * taken as many steps, it does not depend on which of them was faster. */
bool reason_search_decided(const struct reason_search *s);
/* The paths of the subtrees so far, a candidate for each; those that have not ended have no vote. */
const struct reason_candidate *reason_search_candidates(const struct reason_search *s);
struct reason_tally reason_search_vote(const struct reason_search *s); /* the winner is a subtree; -1: none has ended */
#endif
