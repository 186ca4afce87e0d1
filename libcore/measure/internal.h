/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the room share.                                    room: measure */
#ifndef MEASURE_INTERNAL_H
#define MEASURE_INTERNAL_H
#include "gguf/gguf.h"
#include "measure/losses.h"
#include "measure/measure.h"
#include "ramp/ramp.h"

/* text.c: draws a token at temperature 1; u: a uniform random number from [0, 1). */
int32_t measure_draw(const float *logits, int32_t n, double u);

/* fisher.c: kl[type] for each of the types but the tensor's own: what second moments say that it costs. */
MUST_CHECK enum err_code measure_fisher(double kl[], const struct measure_moments *m, const struct gguf_tensor *t,
                                        const struct ramp_coder *c, const int *types, size_t n_types,
                                        const struct progress *progress, struct err *e);

/* ---- plan.c ---- */

/* The types that a search may choose from for rows like a tensor's. */
const int *measure_types(const struct gguf_tensor *t, size_t *n);
/* The number of the group that tensor i is measured with: of the first tensor of its kind. group: of those before it.
 */
int measure_group_of(const struct gguf *g, size_t i, int n_layer, enum measure_grouping by, const bool *wanted,
                     const int *group);
/* The loss of a type whose error is `at` from runs in others: the logarithm of losses over that of errors is a line
 * between two runs, and rises as the errors do outside. */
double measure_between(const double *error, const double *kl, int n, double at);
#endif
