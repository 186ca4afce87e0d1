/* SPDX-License-Identifier: Apache-2.0 */
/* f32_scalar.c - the specification of the CPU kernels, in plain C. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

#define TARGET
#include "cpu/f32_body.h"

static float dot_row(const float *w, const float *x, int64_t k)
{
    float sum[16] = { 0 };
    int64_t i = 0;

    for (; i + 16 <= k; i += 16)
        for (int l = 0; l < 16; l++)
            sum[l] = fmaf(w[i + l], x[i + l], sum[l]);
    for (int l = 0; i + l < k; l++)
        sum[l] = fmaf(w[i + l], x[i + l], sum[l]);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

static void dot_floats(float *const *y, int64_t at, const float *w, int64_t ldw, int nw, const float *const *x, int nx,
                       int64_t k)
{
    for (int j = 0; j < nx; j++)
        for (int i = 0; i < nw; i++)
            y[j][at + i] = dot_row(w + i * ldw, x[j], k);
}

static void mix_rows(float *const *y, const float *const *w, int ny, const float *v, int64_t ldv, int n_rows, int64_t n)
{
    for (int g = 0; g < ny; g++)
        for (int r = 0; r < n_rows; r++)
            axpy(y[g], v + r * ldv, w[g][r], n);
}

static void dot_halves(float *const *y, int64_t at, const uint16_t *w, int64_t ldw, int nw, const float *const *x,
                       int nx, int64_t k)
{
    for (int j = 0; j < nx; j++)
        for (int i = 0; i < nw; i++) {
            float sum[16] = { 0 };

            for (int64_t l = 0; l < k; l++)
                sum[l % 16] = fmaf(half_to_f32(w[i * ldw + l]), x[j][l], sum[l % 16]);
            for (int half = 8; half > 0; half /= 2)
                for (int l = 0; l < half; l++)
                    sum[l] += sum[l + half];
            y[j][at + i] = sum[0];
        }
}

static void half_mix_rows(float *const *y, const float *const *w, int ny, const uint16_t *v, int64_t ldv, int n_rows,
                          int64_t n)
{
    for (int g = 0; g < ny; g++)
        for (int r = 0; r < n_rows; r++)
            axpy_halves(y[g], v + r * ldv, w[g][r], n);
}

static void conv(float *y, const float *const *x, const float *w, int64_t ldw, const float *bias, int taps, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = bias == NULL ? 0.0f : bias[i];

        for (int j = 0; j < taps; j++)
            sum = fmaf(w[j * ldw + i], x[j][i], sum);
        y[i] = sum;
    }
}

static void gdn(float *S, const struct cpu_gdn *t, int dim, int dim_v)
{
    gdn_rest(S, t, 0, dim, dim_v);
}

static void ssm2(float *h, const struct cpu_ssm2 *t, int n_state, int dim)
{
    ssm2_rest(h, t, 0, n_state, dim);
}

KERNEL_SET(scalar);
