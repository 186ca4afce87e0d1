/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - what computes steps of training (ops/math.h): a GPU, or threads of the host.    room: train */
#ifndef TRAIN_HOST_H
#define TRAIN_HOST_H
#include "ops/math.h"
#include "train/gemm.h"

struct pool;

struct train_host {
    struct dev_math m; /* first: it is what callers have */
    struct train_gemms gemms;
    double norm; /* of the last gradient */
};
static inline struct train_host *train_host_of(struct dev_math *m)
{
    return (struct train_host *)m;
}
static inline struct pool *train_host_pool(struct dev_math *m)
{
    return train_host_of(m)->gemms.pool;
}
/* They fill their part of the table. */
void train_host_parts(struct dev_math *m);  /* parts.c */
void train_host_attend(struct dev_math *m); /* attend.c */

/* By a GPU if the device is one ("cuda", "cuda:N") and the build has what that needs, else by the host: (*out)->host
 * says so. The pool is not owned. ERR_NOMEM, ERR_DEVICE. */
MUST_CHECK enum err_code train_math_open(struct dev_math **out, const char *device, struct pool *pool, struct err *e);
/* The pool is not owned. ERR_NOMEM. */
MUST_CHECK enum err_code train_host_open(struct dev_math **out, struct pool *pool, struct err *e);
#endif
