/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - weights of logits and their sums, by blocks: the same bits everywhere.        room: base
 *
 * A sampler and a device must get the same result to the last bit. So the order of sums is fixed: a row of logits is
 * cut into blocks of SOFTMAX_BLOCK (the last one filled up with -inf). A block's weights are summed by halving, the
 * sums of blocks by softmax_fold(). */
#ifndef BASE_SOFTMAX_H
#define BASE_SOFTMAX_H
#include <stdint.h>

enum { SOFTMAX_BLOCK = 256 };

/* softmax_body.h says what they compute; each takes one block. */
struct softmax_kernels {
    float (*scan)(const float *in, float *x);
    void (*weigh)(const float *x, float *w, float max, float inv_temp);
    double (*sum)(const float *w);
    double (*moments)(const float *x, const float *w, float max, double *second);
};
const struct softmax_kernels *softmax_kernels_for(unsigned features); /* bits of base/simd.h */

/* The sum of n block sums. p is the smallest power of two that is not below n. For half = p / 2, p / 4 .. 1, sum[i +
 * half] is added to sum[i], for i < half and i + half < n. Overwrites sum. 0 for n = 0. */
double softmax_fold(double *sum, int32_t n);
#endif
