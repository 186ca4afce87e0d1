/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - choose one option for each item: least loss under several budgets. room: ramp
 *
 * The multiple-choice knapsack with a few constraints. ramp_search() solves its Lagrangian dual, which bounds the loss
 * from below (Fisher, "The Lagrangian relaxation method for solving integer programming problems", Management
 * Science 27, 1981). It repairs the choice that belongs to the dual, then improves it by single changes and pairs. With
 * the dual's prices an option that costs more than the gap cannot be part of a better answer, so few are left: these
 * are searched depth first, up to a number of steps. If the search completes, the answer is optimal, bound == loss.
 * Nothing here knows of tensors. No state: any number of threads.
 */
#ifndef RAMP_SEARCH_H
#define RAMP_SEARCH_H
#include "base/base.h"

enum { RAMP_BUDGETS_MAX = 4 };

struct ramp_problem {
    size_t n;            /* items */
    int options;         /* of each, at least 1 */
    int budgets;         /* 1 .. RAMP_BUDGETS_MAX */
    const double *loss;  /* [n][options] >= 0; INFINITY: the item has no such option (one at least is finite) */
    const double *cost;  /* [n][options][budgets] >= 0, finite */
    const double *limit; /* [budgets] > 0, on the sum of costs */
};

struct ramp_answer {
    int *choice; /* [n], of the caller */
    double loss;
    double bound; /* no choice that keeps the budgets has a smaller loss; 0: not known */
};

/* ERR_LIMIT: even the cheapest options take more than a limit; *short_of (may be NULL) is its number, *least what they
 * take. ERR_NOMEM. */
MUST_CHECK enum err_code ramp_search(struct ramp_answer *out, const struct ramp_problem *p, int *short_of,
                                     double *least, struct err *e);
/* The same by evolution, for comparison: a population of 128 over 200 generations, of which an eighth survives;
 * tournaments of 3, crossover .3, mutation .15; a choice that exceeds a budget gets cheaper options until it fits, and
 * at the end single changes are tried. A function of the problem and the seed. bound: 0. */
MUST_CHECK enum err_code ramp_search_evo(struct ramp_answer *out, const struct ramp_problem *p, uint64_t seed,
                                         const struct progress *progress, int *short_of, double *least, struct err *e);
#endif
