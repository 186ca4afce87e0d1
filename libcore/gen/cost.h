/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what a step costs by its rows, on a machine that may be busy with other things.  room: gen
 *
 * The speed of a busy machine changes from second to second. So steps are compared with other steps of about the same
 * time. The current speed is a short average over all steps, each divided by the cost of its number of rows, as far as
 * that is known. The cost of a number of rows is a ratio of two sums: the time that such steps took, and the speed when
 * they were made. For numbers of rows with few samples, the cost is drawn towards a straight line through all samples.
 * An uncertain cost is raised by half the error of its mean.
 * Means are used, not minima: a step with one row often runs between two interruptions, a step with many rows hardly
 * ever does.
 */
#ifndef GEN_COST_H
#define GEN_COST_H

#include "base/base.h"

enum { GEN_COSTS = 64 }; /* numbers of rows, 0 .. 63 */

struct gen_cost {        /* all zero: nothing is known */
    float ms[GEN_COSTS]; /* of a step with k rows at the current speed, rather too high; 0: not known */
    float last;          /* time of the last step divided by the expected time, at most 3 */
    float speed;         /* milliseconds of a unit of work, now */
    float took[GEN_COSTS], base[GEN_COSTS]; /* decaying sums: of such steps' time, and of `speed` when they were made */
    float seen[GEN_COSTS];                  /* steps in these sums */
    float n;                                /* steps in `speed`, up to a few */
    float spread;                           /* how far single steps are from the expected time, as a share of it */
    bool records;       /* set by the owner: on this device not only the first step with a number of rows
                         * takes longer than later ones, but the second, too */
    int met[GEN_COSTS]; /* such steps that were left out */
};

/* Notes that a step with `rows` rows took `ms` (clock_work_ms(): on the host processor time). Steps with more than
 * GEN_COSTS - 1 rows are ignored. */
void gen_cost_note(struct gen_cost *c, int rows, float ms);
#endif
