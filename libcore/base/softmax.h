/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - weights of logits and their sums, by blocks: the same bits everywhere.        room: base
 *
 * What a sampler and a device must agree on to the last bit: a row of logits is cut into blocks of SOFTMAX_BLOCK (the
 * last one filled up with -inf); a block's weights are summed by halving, the sums of blocks by softmax_fold(). */
#ifndef BASE_SOFTMAX_H
#define BASE_SOFTMAX_H
#include <stdint.h>

enum { SOFTMAX_BLOCK = 256 };

/* softmax_body.h says what they compute; each takes one block. */
struct softmax_kernels {
    float (*scan)(const float *in, float *x);
    void (*weigh)(const float *x, float *w, float max, float inv_temp);
    double (*sum)(const float *w);
};
const struct softmax_kernels *softmax_kernels_for(unsigned features); /* bits of base/simd.h */

/* The sum of n block sums: for half = p / 2, p / 4 .. 1, where p is the smallest power of two that is not below n, i
 * gets i + half added, for i < half and i + half < n. Overwrites sum. 0 for n = 0. */
double softmax_fold(double *sum, int32_t n);
#endif
