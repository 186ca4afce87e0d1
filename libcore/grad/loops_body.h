/* SPDX-License-Identifier: Apache-2.0 */
/* loops_body.h - the loops of loops.h but `panel`, the same text for every instruction set: the compiler's vectors do what the
 * scalar loops say, since each element is on its own and every multiply-add is written as a fused one. */
#include <math.h>

#include "grad/loops.h"

TARGET static float fold(const float sum[16])
{
    float s[16];

    for (int i = 0; i < 16; i++)
        s[i] = sum[i];
    for (int i = 0; i < 8; i++)
        s[i] += s[i + 8];
    for (int i = 0; i < 4; i++)
        s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

TARGET static float dot(const float *restrict x, const float *restrict y, int64_t n)
{
    float sum[16] = { 0 };
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            sum[j] = fmaf(x[i + j], y[i + j], sum[j]);
    for (int j = 0; i + j < n; j++)
        sum[j] = fmaf(x[i + j], y[i + j], sum[j]);
    return fold(sum);
}

TARGET static void axpy(float *restrict y, const float *restrict x, float s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

TARGET static void put(float *restrict c, const float *restrict sums, float scale, bool add)
{
    if (add)
        for (int j = 0; j < GRAD_COLS; j++)
            c[j] += scale * sums[j];
    else
        for (int j = 0; j < GRAD_COLS; j++)
            c[j] = scale * sums[j];
}

TARGET static void times_add(float *restrict y, const float *restrict x, const float *restrict w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(w[i], x[i], y[i]);
}

/* error_j = v_j - g * sum over i of S_ij k_i */
TARGET static void ask(float *restrict error, const float *restrict S, const struct grad_delta *t)
{
    for (int j = 0; j < t->dim_v; j++)
        error[j] = 0.0f;
    for (int i = 0; i < t->dim; i++)
        axpy(error, S + (int64_t)i * t->dim_v, t->k[i], t->dim_v);
    for (int j = 0; j < t->dim_v; j++)
        error[j] = fmaf(-t->g, error[j], t->v[j]);
}

TARGET static void renew(float *restrict to, const float *restrict from, float *restrict y, const float *restrict d,
                         const struct grad_delta *t, int i)
{
    float k = t->k[i], q = t->q[i];

    for (int j = 0; j < t->dim_v; j++) {
        float s = fmaf(k, d[j], t->g * from[j]);

        to[j] = s;
        y[j] = fmaf(s, q, y[j]);
    }
}

TARGET static void delta(float *to, const float *from, float *y, float *tmp, const struct grad_delta *t)
{
    ask(tmp, from, t);
    for (int j = 0; j < t->dim_v; j++) {
        tmp[j] *= t->b;
        y[j] = 0.0f;
    }
    for (int i = 0; i < t->dim; i++)
        renew(to + (int64_t)i * t->dim_v, from + (int64_t)i * t->dim_v, y, tmp, t, i);
}

/* One row of the state: its gradient from y and d; and what it gives to those of q, k and d. */
struct back_row {
    float       *ds, *dd;
    const float *from, *dy, *d;
    float        q, k, g;
    int          n;
};

TARGET static inline void back_some(const struct back_row *r, int at, int n, float *restrict sum_q, float *restrict sum_k)
{
    float *restrict ds = r->ds + at, *restrict dd = r->dd + at, k = r->k, q = r->q, g = r->g;
    const float *restrict from = r->from + at, *restrict dy = r->dy + at, *restrict d = r->d + at;

    for (int j = 0; j < n; j++) {
        float s = fmaf(k, d[j], g * from[j]), new_ds = fmaf(q, dy[j], ds[j]);

        ds[j] = new_ds;
        dd[j] = fmaf(new_ds, k, dd[j]);
        sum_q[j] = fmaf(s, dy[j], sum_q[j]);
        sum_k[j] = fmaf(new_ds, d[j], sum_k[j]);
    }
}

TARGET static void back_row(const struct back_row *r, float *dq, float *dk)
{
    float sum_q[16] = { 0 }, sum_k[16] = { 0 };
    int j = 0;

    for (; j + 16 <= r->n; j += 16)
        back_some(r, j, 16, sum_q, sum_k);
    back_some(r, j, r->n - j, sum_q, sum_k);
    *dq = fold(sum_q);
    *dk = fold(sum_k);
}

TARGET static void delta_back(float *dS, const float *from, const float *dy, float *dq, float *dk, float *dv, float dgb[2],
                              float *tmp, const struct grad_delta *t)
{
    int n = t->dim_v;
    float *error = tmp, *d = tmp + n, *dd = tmp + 2 * n, *ask_back = tmp + 3 * n, dg = 0.0f;

    ask(error, from, t);
    for (int j = 0; j < n; j++) {
        d[j] = t->b * error[j];
        dd[j] = 0.0f;
    }
    for (int i = 0; i < t->dim; i++)
        back_row(&(struct back_row){ dS + (int64_t)i * n, dd, from + (int64_t)i * n, dy, d, t->q[i], t->k[i], t->g, n },
                 &dq[i], &dk[i]);
    for (int j = 0; j < n; j++) {
        dv[j] = t->b * dd[j];
        ask_back[j] = -dv[j];
    }
    for (int i = 0; i < t->dim; i++) {
        float *row = dS + (int64_t)i * n;

        axpy(row, ask_back, t->k[i], n);
        dk[i] = fmaf(t->g, dot(from + (int64_t)i * n, ask_back, n), dk[i]);
        dg += dot(row, from + (int64_t)i * n, n);
        for (int j = 0; j < n; j++)
            row[j] *= t->g;
    }
    dgb[0] = dg;
    dgb[1] = dot(error, dd, n);
}

#define GRAD_LOOPS(set, n_rows) \
    const struct grad_loops grad_loops_##set = { \
        .rows = (n_rows), .panel = panel, .put = put, .dot = dot, .axpy = axpy, .times_add = times_add, .delta = delta, \
        .delta_back = delta_back, \
    }
