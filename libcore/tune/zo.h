/* SPDX-License-Identifier: Apache-2.0 */
/* zo.h - training by forward passes alone.                                            room: tune
 *
 * Simultaneous perturbation (Spall 1992) with the noise made again instead of kept (MeZO, Malladi et al. 2023): for
 * sample k of step s, z = normals(s, k) and g_k = (loss(theta + eps z) - loss(theta - eps z)) / (2 eps) u = beta u +
 * sum over k of float(rate g_k / K) z_k,   theta -= u All samples of a step see the same theta, and theta +- eps z are
 * formed from it in float32.
 *
 * The noise (grad/grad.h) is that of tensors in the order of theta: a, b, a, b ... A step is known by its numbers
 * alone: a log of them has 12 bytes for each, and theta comes again from its beginning, to the bit.
 *
 * A rate that is right for the first batch can be too large later: the curvature grows with the adapter. So from time
 * to time a loss that is always of the same batch is measured (tune_zo_check): if it is above the least so far, theta
 * goes back to where that was and the rate is halved; else this is the new place to go back to, and the rate grows by a
 * quarter. Such a loss is in the log, too, so that a replay goes the same ways. */
#ifndef TUNE_ZO_H
#define TUNE_ZO_H
#include "base/base.h"

struct grad_seq;
struct tune_lora;

struct tune_zo_opts {
    uint64_t seed;
    double eps, rate;
    int samples;      /* K */
    float beta;       /* 0: no momentum */
    int64_t rows_max; /* rows of a pass, at most, but a sequence at least; 0: all 2 K copies side by side */
};
/* What a sample did, or TUNE_ZO_CHECK, a check: the log's entry, little-endian as here. */
#define TUNE_ZO_CHECK 0xffffffffu
struct tune_zo_note {
    uint32_t step, sample;
    float part; /* float(rate g / K); of a check the loss */
};
struct tune_zo {
    struct tune_zo_opts o;
    struct tune_lora *l;       /* not owned */
    uint32_t step, checked;    /* the last check was before step number `checked` */
    float *theta;              /* [n_params] where the grad computes; on the host l's own */
    float *u;                  /* [n_params] there; NULL without momentum */
    float *good;               /* [n_params] there: where the least loss of a check was; */
    float least;               /* INFINITY: there was none yet */
    float *moved;              /* [2 K][n_params] there */
    int64_t *tensor;           /* [2 l->n + 1] where tensors begin in theta */
    struct tune_zo_note *note; /* [samples] of the last step */
    double *g;                 /* [samples], the same */
    float *part;               /* [samples] */
};
MUST_CHECK enum err_code tune_zo_open(struct tune_zo **out, struct tune_lora *l, const struct tune_zo_opts *o,
                                      struct err *e);
void tune_zo_close(struct tune_zo *z); /* NULL is allowed */

/* One step on a batch, whose loss is that of grad_forward(). *loss: the mean over the samples of loss+ and loss-.
 * ERR_FORMAT: a loss is not finite, and nothing has changed. */
MUST_CHECK enum err_code tune_zo_step(struct tune_zo *z, const struct grad_seq *seq, int n_seq, double *loss,
                                      struct err *e);
/* The step of these notes again: [samples], all of one step, which is the next. ERR_FORMAT: they are not. */
MUST_CHECK enum err_code tune_zo_again(struct tune_zo *z, const struct tune_zo_note *note, struct err *e);

/* A check on a batch, before a step or after the last one: note->part is its loss. ERR_FORMAT: not finite before the
 * first step; later it counts as a rise. */
MUST_CHECK enum err_code tune_zo_check(struct tune_zo *z, const struct grad_seq *seq, int n_seq,
                                       struct tune_zo_note *note, struct err *e);
/* What followed from a check. ERR_FORMAT: it was not before this step. */
MUST_CHECK enum err_code tune_zo_check_again(struct tune_zo *z, const struct tune_zo_note *note, struct err *e);

/* l->theta as it is after the steps. */
void tune_zo_theta(struct tune_zo *z);

/* Measures on a batch what eps and rate should be, by the noise of `tries` directions. eps: of a ladder of powers of 2,
 * where slopes at eps and 2 eps agree best (a smaller one meets rounding and routers that choose otherwise, a larger
 * one curvature). rate: K (1 - beta) / the mean of z' H z at that eps, an estimate of the trace of the Hessian H: for K
 * far below the number of parameters the step whose expected loss is least. Either stays what it was where nothing can
 * be measured. */
MUST_CHECK enum err_code tune_zo_measure(struct tune_zo *z, const struct grad_seq *seq, int n_seq, int tries,
                                         const struct progress *progress, struct err *e);
#endif
