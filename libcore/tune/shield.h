/* SPDX-License-Identifier: Apache-2.0 */
/* shield.h - an adapter learns in directions that old texts do not use.                                  room: tune
 *
 * The rows of a look at the inputs x of a matrix. Of old texts C is the mean of x x', scaled to a mean of 1 on its
 * diagonal, and P = c (C + rho I)^-1,   c so that the mean of P's diagonal is 1. Gradients and steps of a are
 * multiplied by P: directions that are common in old texts are nearly removed, so the adapter changes their outputs
 * little (orthogonal weights modification, Zeng et al. 2019; for facts in language models, with a sharp cut, AlphaEdit,
 * Fang et al. 2024). Each expert has its own P; it is I if no old text used the expert.
 *
 *   tune_shield_open; tune_shield_see ...; tune_shield_raise; tune_shield_apply ...; tune_shield_close */
#ifndef TUNE_SHIELD_H
#define TUNE_SHIELD_H
#include "base/base.h"

struct grad_seq;
struct tune_lora;
struct tune_shield;

/* Of an adapter's matrices; l and its grad outlive it. ERR_NOMEM. */
MUST_CHECK enum err_code tune_shield_open(struct tune_shield **out, struct tune_lora *l, struct err *e);
void tune_shield_close(struct tune_shield *s); /* NULL is allowed */
int64_t tune_shield_bytes(const struct tune_lora *l);
/* Old texts: one pass of the bare model, backward as well. As grad_backward(). */
MUST_CHECK enum err_code tune_shield_see(struct tune_shield *s, const struct grad_seq *seq, int n_seq, struct err *e);
/* After all of them. rho above 0; ERR_ARG: too small. ERR_FORMAT: the inputs are not numbers. ERR_NOMEM. progress is
 * told by any thread after each row of a matrix, and only asked whether to go on: ERR_CANCEL. */
MUST_CHECK enum err_code tune_shield_raise(struct tune_shield *s, double rho, const struct progress *progress,
                                           struct err *e);
/* v [l->n_params]: each row of a times P; b stays as it is. */
void tune_shield_apply(const struct tune_shield *s, float *v);
#endif
