/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what a step costs by its rows, on a machine that may be busy with other things.  room: gen
 *
 * The speed of a busy machine changes from second to second. So steps are compared with other steps of the same moment. The
 * speed of the moment is a short average over all steps, each divided by the cost of its
 * rows as far as it is known. The cost of a number of rows is a ratio of two sums: the time that such steps took, and
 * the speed when they were made. For numbers of rows with few samples, the cost is drawn towards a line through all.
 * An uncertain cost is raised by half the error of its mean.
 * Means are used, not minima: a step with one row often runs between two interruptions, a step with many rows hardly ever
 * does.
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
