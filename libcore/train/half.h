/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - the file of an unfinished training.                                      room: train */
#ifndef TRAIN_HALF_H
#define TRAIN_HALF_H
#include "base/base.h"

struct train_half {
    int64_t n;
    float *w, *m, *v; /* [n] weights and their moments: train/adam.h */
    uint32_t step;
    double spent_s;
};
/* Writes the file, complete or not at all; `job` names the job. ERR_IO. */
MUST_CHECK enum err_code train_half_write(const struct train_half *h, const char *path, struct str job, struct err *e);
/* Reads it: fills w, m and v, which have room for n floats, and the rest. ERR_ARG: the file is of another job.
 * ERR_FORMAT: it is damaged. */
MUST_CHECK enum err_code train_half_read(struct train_half *h, const char *path, struct str job, struct err *e);
#endif
