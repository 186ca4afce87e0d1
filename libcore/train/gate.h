/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - what was trained takes the place of what serves only when it is better.        room: train
 *
 * A file has versions: OUT is what serves, OUT.1 what served before it, OUT.2 before that. Whatever
 * happens meanwhile, OUT is there and whole.
 */
#ifndef TRAIN_GATE_H
#define TRAIN_GATE_H
#include "base/base.h"

/* One-sided paired test: how likely a mean as large as that of gain[n] is, were the sign of each as likely + as -.
 * Signs are drawn at random (Fisher, "The design of experiments", 1935; the p of Phipson and Smyth, 2010, which is
 * never 0). 1 where nothing differs. */
double train_gate(const double *gain, int64_t n, uint64_t seed);

/* The file `fresh` becomes `path`; what was there becomes path.1, and so on; the `keep` newest of them stay. ERR_IO. */
MUST_CHECK enum err_code train_publish(const char *path, const char *fresh, int keep, struct err *e);
/* path.1 becomes path, path.2 path.1 and so on, and what was path the last of them: nothing is lost, and as many calls
 * as there are versions end where they began. ERR_IO: there is no path.1. */
MUST_CHECK enum err_code train_rollback(const char *path, struct err *e);
#endif
