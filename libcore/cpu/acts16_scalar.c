/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_scalar.c - GEMV and GEMM with 16-bit activations in plain C: the sums of cpu/format.h, of weights unpacked before. */
#include <math.h>

#include "cpu/acts16.h"

static float fold_lanes(float sum[CPU_INT_LANES])
{
    for (int half = CPU_INT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

static float dot_row(const struct cpu_int_block *w, const struct cpu_act_block *x, int64_t k, int n_min)
{
    float sum[CPU_INT_LANES] = { 0 }, less[CPU_INT_LANES] = { 0 };

    for (int64_t b = 0; b < k / 256; b++, w++, x++) {
        const float *xs = n_min == 8 ? x->sum_32 : x->sum;
        int32_t      dots[CPU_INT_LANES] = { 0 };

        for (int i = 0; i < 256; i++)
            dots[i % 16 / 2] += w->w[i] * x->q[i];
        for (int i = 0; i < n_min; i++)
            less[i % 8] = fmaf(w->min[i], xs[i], less[i % 8]);
        for (int l = 0; l < CPU_INT_LANES; l++)
            sum[l] = fmaf(w->scale[l] * x->scale[l], (float)dots[l], sum[l]);
    }
    for (int l = 0; n_min > 0 && l < CPU_INT_LANES; l++)
        sum[l] -= less[l];
    return fold_lanes(sum);
}

/* The same where weights have a scale for each 32, in 4 products of each lane. */
static float group_dot(const struct cpu_int_block *w, const struct cpu_act_block *x, int64_t k)
{
    float sum[CPU_INT_LANES] = { 0 };

    for (int64_t b = 0; b < k / 256; b++, w++, x++) {
        float t[CPU_INT_LANES] = { 0 };

        for (int i = 0; i < 256; i += 4) {
            int p = cpu_int_place(i), l = i % 32 / 4;
            int32_t d = w->w[p] * x->q[p] + w->w[p + 1] * x->q[p + 1] + w->w[p + 32] * x->q[p + 32] +
                        w->w[p + 33] * x->q[p + 33];

            t[l] = fmaf(w->scale[i / 32], (float)d, t[l]);
        }
        for (int l = 0; l < CPU_INT_LANES; l++)
            sum[l] = fmaf(x->scale[l], t[l], sum[l]);
    }
    return fold_lanes(sum);
}

static void dot_ints(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct cpu_act_block *const *x, int nx,
                 int64_t k)
{
    for (int j = 0; j < nx; j++)
        for (int i = 0; i < w->n; i++)
            y[j][at + i] = w->groups ? group_dot(w->u + i * (k / 256), x[j], k)
                                     : dot_row(w->u + i * (k / 256), x[j], k, w->n_min);
}

const struct cpu_ints cpu_ints_scalar = { .name = "scalar", .dots = dot_ints };
