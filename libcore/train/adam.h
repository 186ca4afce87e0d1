/* SPDX-License-Identifier: Apache-2.0 */
/* adam.h - AdamW: the step of each weight follows from its gradients so far.       room: train
 *
 * Loshchilov and Hutter, "Decoupled weight decay regularization" (arXiv 1711.05101), with gradients
 * cut to a largest norm (Pascanu et al., arXiv 1211.5063):
 *   g = grad min(1, clip / |grad|);  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   w -= rate (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 */
#ifndef TRAIN_ADAM_H
#define TRAIN_ADAM_H
#include "ops/math.h"

struct pool;

struct train_adam {
    int64_t n, step;
    float *m, *v; /* [n] */
};
MUST_CHECK enum err_code train_adam_open(struct train_adam *a, int64_t n, struct err *e);
void train_adam_close(struct train_adam *a);

struct train_adam_opts {
    float b1, b2, eps, decay, clip;
};
extern const struct train_adam_opts train_adam_usual; /* 0.9, 0.95, 1e-8, 0.01, 1 */

/* how [n]: DEV_ADAM_* (ops/math.h) of each weight; NULL: all with decay. Returns the norm of grad; if that is not
 * finite, nothing has changed. */
double train_adam_step(struct train_adam *a, struct pool *pool, const struct train_adam_opts *o, float rate, float *w,
                       const float *grad, const unsigned char *how);
/* Warm-up over n_warm steps, then half a cosine over the whole job: part 0 .. 1 of it is done. (arXiv 1608.03983) */
double train_rate(double rate, int64_t step, int n_warm, double part);
#endif
