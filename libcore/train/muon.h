/* SPDX-License-Identifier: Apache-2.0 */
/* muon.h - Muon: the step of a matrix is its momentum with all singular values made nearly equal.   room: train
 *
 * Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024); Liu et al., arXiv 2502.16982.
 *   m = 0.95 m + g;  u = g + 0.95 m;  o = NewtonSchulz(u);  w -= rate (sqrt(max(1, rows / columns)) o + decay w)
 * NewtonSchulz: x = u / |u|; five times: s = x x^T, x = 3.4445 x + (-4.775 s + 2.0315 s s) x. */
#ifndef TRAIN_MUON_H
#define TRAIN_MUON_H
#include "train/net.h"

/* Bytes that it takes of the network's memory. */
int64_t train_muon_bytes(const struct train_net *net);
/* A step of all matrices. momentum [n_params]: of matrices only; scratch: train_muon_bytes(). Nothing changes if the
 * math's norm() is not finite. */
void train_muon_step(const struct train_net *net, float *momentum, float rate, float *scratch);
#endif
