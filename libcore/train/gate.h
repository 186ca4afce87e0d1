/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - is the trained file better than the one in use?                    room: train */
#ifndef TRAIN_GATE_H
#define TRAIN_GATE_H
#include "base/base.h"

/* One-sided paired test: how likely a mean as large as that of gain[n] is, were the sign of each as likely + as -.
 * Signs are drawn at random (Fisher, "The design of experiments", 1935; the p of Phipson and Smyth, 2010, which is
 * never 0). 1 where nothing differs. */
double train_gate(const double *gain, int64_t n, uint64_t seed);

#define TRAIN_Z  1.6448536 /* quantile for 95 % confidence, one-sided, */
#define TRAIN_Z2 1.9       /* and where a test is looked at twice, by part of its data and by all */

/* How much worse the share of right answers may be: of n questions `lost` were right before and are not now, `won` the
 * other way round; parts of answers make it larger than it need be. The upper bound of the difference, z standard
 * errors above it (the score interval of paired shares: Tango, Statistics in Medicine 17, 1998). From -1 to 1; 1 for
 * n = 0. */
double train_loss_bound(double lost, double won, int64_t n, double z);
#endif
