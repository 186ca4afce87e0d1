/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what a step costs by its rows, on a machine that may be busy with other things.  room: gen
 *
 * Nobody can wait until a busy machine is idle, and its speed changes from second to second. So steps are compared
 * with steps beside them. The speed of the moment is a short average over all steps, each divided by the cost of its
 * rows as far as it is known. The cost of a number of rows is a ratio of two sums: the time that such steps took, and
 * the speed when they were made. Numbers of rows that were seldom seen lean on a line through all.
 * An uncertain cost is raised by half the error of its mean.
 * A mean is what counts: the quickest step misleads, as one row often comes through between two interruptions and
 * many hardly ever do.
 */
#ifndef GEN_COST_H
#define GEN_COST_H

#include "base/base.h"

enum { GEN_COSTS = 64 }; /* numbers of rows, 0 .. 63 */

struct gen_cost {                         /* all zero: nothing is known */
    float ms[GEN_COSTS];                  /* of a step with k rows as things are now, rather more than less; 0: not known */
    float last;                           /* time of the last step over what was expected, at most 3 */
    float speed;                          /* milliseconds of a unit of work, now */
    float took[GEN_COSTS], base[GEN_COSTS]; /* sums that fade: of such steps' time, and of `speed` when they were made */
    float seen[GEN_COSTS];                /* steps in these sums */
    float n;                              /* steps in `speed`, up to a few */
    float spread;                         /* of single steps around what was expected, as a share of it */
    bool  met[GEN_COSTS];                 /* there was such a step */
};

/* A step with these rows took so long. More rows than GEN_COSTS - 1 are not noted. */
void gen_cost_note(struct gen_cost *c, int rows, float ms);
#endif
