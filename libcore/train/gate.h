/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h - is the trained file better than the one in use?                    room: train */
#ifndef TRAIN_GATE_H
#define TRAIN_GATE_H
#include "base/base.h"

/* One-sided paired test: how likely a mean as large as that of gain[n] is, were the sign of each as likely + as -.
 * Signs are drawn at random (Fisher, "The design of experiments", 1935; the p of Phipson and Smyth, 2010, which is
 * never 0). 1 where nothing differs. */
double train_gate(const double *gain, int64_t n, uint64_t seed);
#endif
