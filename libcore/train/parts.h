/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - inside the room train: layers of the block network without products, and their gradients.
 *
 * All functions use the threads of a pool; rows are [rows][dim] without gaps. "Back" functions take
 * dy, the gradient of the loss with respect to the output. */
#ifndef TRAIN_PARTS_H
#define TRAIN_PARTS_H
#include "base/base.h"

struct pool;

/* y = x inv w, inv[rows] = 1 / sqrt(mean of squares of the row + eps). */
void train_rms(struct pool *pool, float *y, float *inv, const float *x, const float *w, int64_t rows, int64_t dim,
               float eps);
/* Writes the gradient to dx, or adds it if `add`; always adds that of w to dw [dim] (NULL: not wanted). Without `add`, dx may
 * be dy. */
void train_rms_back(struct pool *pool, float *dx, bool add, float *dw, const float *dy, const float *x,
                    const float *inv, const float *w, int64_t rows, int64_t dim);

/* Rotates pairs (i, i + dim / 2) of each head by the angles of the row's position, or back. turn: [positions][dim / 2]
 * of (cos, sin). */
void train_rope(struct pool *pool, float *x, const int32_t *pos, int64_t rows, int heads, int64_t dim,
                const float *turn, bool back);

/* h = silu(gate) up. */
void train_glu(struct pool *pool, float *h, const float *gate, const float *up, int64_t n);
/* gate and up become their gradients. */
void train_glu_back(struct pool *pool, float *gate, float *up, const float *dh, int64_t n);

void train_add(struct pool *pool, float *y, const float *x, int64_t n); /* y += x */

/* logits [rows][n] become the gradient of weight[i] / total * cross entropy of want[i]; loss[i] = that cross entropy,
 * best[i] the most likely token. */
void train_cross_entropy(struct pool *pool, float *logits, const int32_t *want, const float *weight, double total,
                         float *loss, int32_t *best, int64_t rows, int64_t n);
/* best[i] of each row. */
void train_best(struct pool *pool, const float *logits, int32_t *best, int64_t rows, int64_t n);
#endif
