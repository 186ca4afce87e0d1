/* SPDX-License-Identifier: Apache-2.0 */
/* loops_body.h - the loops of loops.h but `panel`, the same text for every instruction set: the compiler's vectors do what the
 * scalar loops say, since each element is on its own and every multiply-add is written as a fused one. */
#include <math.h>

#include "cpu/exp_loop.h"
#include "grad/loops.h"

TARGET static inline float fold_lanes(const float sum[16])
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

TARGET static float dot_floats(const float *restrict x, const float *restrict y, int64_t n)
{
    float sum[16] = { 0 };
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            sum[j] = fmaf(x[i + j], y[i + j], sum[j]);
    for (int j = 0; i + j < n; j++)
        sum[j] = fmaf(x[i + j], y[i + j], sum[j]);
    return fold_lanes(sum);
}

TARGET static void axpy(float *restrict y, const float *restrict x, float s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

TARGET static void put_sums(float *restrict c, const float *restrict sums, float scale, bool add)
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

/* Columns of a state are on their own but for sums over them: SOME of them at a time can stay in registers. */
enum { SOME = 64, LANES = 16 };
#define INLINE TARGET static inline __attribute__((always_inline))
/* fn(..., first column, how many) for all n columns */
#define EACH_SOME(n, fn, ...) \
    for (int at_ = 0, n_; at_ < (n); at_ += n_) { \
        n_ = (n) - at_ >= SOME ? SOME : (n) - at_ >= LANES ? LANES : (n) - at_; \
        if (n_ == SOME) \
            fn(__VA_ARGS__, at_, SOME); \
        else if (n_ == LANES) \
            fn(__VA_ARGS__, at_, LANES); \
        else \
            fn(__VA_ARGS__, at_, n_); \
    }

/* error_j = v_j - g * sum over i of S_ij k_i */
INLINE void ask_some(float *restrict error, const float *restrict S, const struct grad_delta *t, int at, int n)
{
    float sum[SOME];

    for (int j = 0; j < n; j++)
        sum[j] = 0.0f;
    for (int i = 0; i < t->dim; i++) {
        const float *restrict row = S + (int64_t)i * t->dim_v + at, k = t->k[i];

        for (int j = 0; j < n; j++)
            sum[j] = fmaf(k, row[j], sum[j]);
    }
    for (int j = 0; j < n; j++)
        error[at + j] = fmaf(-t->g, sum[j], t->v[at + j]);
}

/* to = g from + k d', y = to' q */
INLINE void renew_some(float *restrict to, const float *restrict from, float *restrict y, const float *restrict d,
                       const struct grad_delta *t, int at, int n)
{
    const float g = t->g;
    float sum[SOME], mine[SOME];

    for (int j = 0; j < n; j++) {
        sum[j] = 0.0f;
        mine[j] = d[at + j];
    }
    for (int i = 0; i < t->dim; i++) {
        const float *restrict was = from + (int64_t)i * t->dim_v + at, k = t->k[i], q = t->q[i];
        float *restrict is = to + (int64_t)i * t->dim_v + at;

        for (int j = 0; j < n; j++) {
            const float s = fmaf(k, mine[j], g * was[j]);

            is[j] = s;
            sum[j] = fmaf(s, q, sum[j]);
        }
    }
    for (int j = 0; j < n; j++)
        y[at + j] = sum[j];
}

TARGET static void delta(float *to, const float *from, float *y, float *tmp, const struct grad_delta *t)
{
    EACH_SOME(t->dim_v, ask_some, tmp, from, t)
    for (int j = 0; j < t->dim_v; j++)
        tmp[j] *= t->b;
    EACH_SOME(t->dim_v, renew_some, to, from, y, tmp, t)
}

/* Row i of the state after the token is g from_i + k_i d. Its gradient ds_i takes what y gives it; from that come the gradient of
 * d, and sums over columns: of from_i and dy to dq, of ds_i and d to dk, of ds and from to dg. */
struct back {
    float       *dS, *dd, *dq, *dk, *dg;
    const float *from, *dy, *d, *ask_back;
};

INLINE void back_some(const struct back *b, const struct grad_delta *t, int at, int n)
{
    const float *restrict dy = b->dy + at, *restrict d = b->d + at;
    float *restrict dq = b->dq, *restrict dk = b->dk, dd[SOME], with_g[LANES] = { 0 };

    for (int j = 0; j < n; j++)
        dd[j] = 0.0f;
    for (int i = 0; i < t->dim; i++) {
        const float *restrict from = b->from + (int64_t)i * t->dim_v + at, k = t->k[i], q = t->q[i];
        float *restrict ds = b->dS + (int64_t)i * t->dim_v + at, with_q[LANES] = { 0 }, with_k[LANES] = { 0 };

        for (int c = 0; c < n; c += LANES)
            for (int j = 0; j < (n < LANES ? n : LANES); j++) {
                const float is = fmaf(q, dy[c + j], ds[c + j]);

                ds[c + j] = is;
                dd[c + j] = fmaf(is, k, dd[c + j]);
                with_q[j] = fmaf(from[c + j], dy[c + j], with_q[j]);
                with_k[j] = fmaf(is, d[c + j], with_k[j]);
                with_g[j] = fmaf(is, from[c + j], with_g[j]);
            }
        dq[i] += fold_lanes(with_q);
        dk[i] += fold_lanes(with_k);
    }
    for (int j = 0; j < n; j++)
        b->dd[at + j] = dd[j];
    *b->dg += fold_lanes(with_g);
}

/* The same for what the state before the token gives to the error. */
INLINE void ask_back_some(const struct back *b, const struct grad_delta *t, int at, int n)
{
    const float *restrict ask_back = b->ask_back + at, g = t->g;

    for (int i = 0; i < t->dim; i++) {
        const float *restrict from = b->from + (int64_t)i * t->dim_v + at, k = t->k[i];
        float *restrict ds = b->dS + (int64_t)i * t->dim_v + at, with_from[LANES] = { 0 }, sum;

        for (int c = 0; c < n; c += LANES)
            for (int j = 0; j < (n < LANES ? n : LANES); j++) {
                with_from[j] = fmaf(from[c + j], ask_back[c + j], with_from[j]);
                ds[c + j] = g * fmaf(ask_back[c + j], k, ds[c + j]);
            }
        sum = fold_lanes(with_from);
        b->dk[i] = fmaf(g, sum, b->dk[i]);
        *b->dg = fmaf(k, sum, *b->dg);
    }
}

TARGET static void delta_back(float *dS, const float *from, const float *dy, float *dq, float *dk, float *dv, float dgb[2],
                              float *tmp, const struct grad_delta *t)
{
    const int n = t->dim_v;
    float *error = tmp, *d = tmp + n, *dd = tmp + 2 * n, *ask_back = tmp + 3 * n, both;
    const struct back b = { dS, dd, dq, dk, &dgb[0], from, dy, d, ask_back };

    EACH_SOME(n, ask_some, error, from, t)
    for (int j = 0; j < n; j++)
        d[j] = t->b * error[j];
    for (int i = 0; i < t->dim; i++)
        dq[i] = dk[i] = 0.0f;
    dgb[0] = 0.0f;
    EACH_SOME(n, back_some, &b, t)
    both = dot_floats(d, dy, n);
    for (int i = 0; i < t->dim; i++)
        dq[i] = fmaf(t->g, dq[i], t->k[i] * both);
    for (int j = 0; j < n; j++) {
        dv[j] = t->b * dd[j];
        ask_back[j] = -dv[j];
    }
    EACH_SOME(n, ask_back_some, &b, t)
    dgb[1] = dot_floats(error, dd, n);
}

/* y = 1 / (1 + exp(-x)) */
TARGET static void sigmoid(float *restrict y, const float *restrict x, int64_t n)
{
    EXP_LOOP(-x[i], y[i] = 1.0f / (1.0f + ex))
}

#define GRAD_LOOPS(set, n_rows) \
    const struct grad_loops grad_loops_##set = { \
        .rows = (n_rows), .panel = multiply_panel, .put = put_sums, .dot = dot_floats, .axpy = axpy, \
        .times_add = times_add, .delta = delta, .delta_back = delta_back, .sigmoid = sigmoid, \
    }
