/* SPDX-License-Identifier: Apache-2.0 */
/* scan_body.h - the loops of scans.h, the same text for every instruction set: see f32_body.h. */
#include <string.h>

#include "cpu/exp_loop.h"
#include "cpu/scans.h"

/* max(x, 0) + log1p(e), e = exp(-|x|) <= 1; log1p(e) = 2 atanh(s), s = e / (2 + e) <= 1/3, by its series
 * up to s^15. */
TARGET static void softplus(float *y, const float *x, const float *bias, int64_t n)
{
    if (bias == NULL) {
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] + bias[i];
    }
    EXP_LOOP(y[i] < 0.0f ? y[i] : -y[i],
             float s = ex / (2.0f + ex);
             float w = s * s;
             float p = fmaf(w, 2.0f / 15.0f, 2.0f / 13.0f);
             p = fmaf(w, p, 2.0f / 11.0f);
             p = fmaf(w, p, 2.0f / 9.0f);
             p = fmaf(w, p, 2.0f / 7.0f);
             p = fmaf(w, p, 2.0f / 5.0f);
             p = fmaf(w, p, 2.0f / 3.0f);
             p = fmaf(w, p, 2.0f);
             y[i] = fmaf(p, s, y[i] > 0.0f ? y[i] : 0.0f))
}

TARGET static void ssm1(float *restrict h, float *restrict y, const float *restrict x,
                        const float *restrict dt, const float *restrict a, const float *restrict d,
                        const float *restrict b, const float *restrict c, int n_state, int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = d[i] * x[i];
    for (int s = 0; s < n_state; s++) {
        float *restrict hs = h + s * pitch;
        const float *restrict as = a + s * pitch;

        EXP_LOOP(dt[i] * as[i],
                 float new_h = fmaf(ex, hs[i], dt[i] * x[i] * b[s]);
                 hs[i] = new_h;
                 y[i] = fmaf(new_h, c[s], y[i]))
    }
}

TARGET static void kda(float *restrict S, float *restrict y, float *restrict kv, const float *restrict k,
                       const float *restrict q, const float *restrict v, const float *restrict g, float beta,
                       int dim, int dim_v)
{
    memset(kv, 0, (size_t)dim_v * sizeof *kv);
    memset(y, 0, (size_t)dim_v * sizeof *y);
    for (int i = 0; i < dim; i++) {
        const float *restrict row = S + (int64_t)i * dim_v;
        float gk = g[i] * k[i];

        for (int j = 0; j < dim_v; j++)
            kv[j] = fmaf(row[j], gk, kv[j]);
    }
    for (int j = 0; j < dim_v; j++)
        kv[j] = beta * (v[j] - kv[j]);
    for (int i = 0; i < dim; i++) {
        float *restrict row = S + (int64_t)i * dim_v;

        for (int j = 0; j < dim_v; j++) {
            float s = fmaf(k[i], kv[j], g[i] * row[j]);

            row[j] = s;
            y[j] = fmaf(s, q[i], y[j]);
        }
    }
}

#define SCAN_SET(n) \
    const struct cpu_scans cpu_scans_##n = { \
        .softplus = softplus, .ssm1 = ssm1, .kda = kda, \
    }
