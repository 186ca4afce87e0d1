/* SPDX-License-Identifier: Apache-2.0 */
/* f32_body.h - the loops that are the same text for every instruction set; each f32_*.c includes it
 * with TARGET set, and the compiler vectorises them. Lanes are independent and fmaf is exact, so the
 * bytes are the same everywhere. */
#include "cpu/exp_loop.h"
#include "quant/half.h"

TARGET static void axpy(float *restrict y, const float *restrict x, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

TARGET static void axpy_halves(float *restrict y, const uint16_t *restrict x, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(a, half_to_f32(x[i]), y[i]);
}

TARGET static void exp_sub(float *y, const float *x, float m, int64_t n)
{
    EXP_LOOP(x[i] - m, y[i] = ex)
}

/* Largest, or sum of 16 running ones; each folds as a product's sums do. */
TARGET static float softmax(float *x, float s, float *sum, int64_t n)
{
    float top[16], all[16] = { 0 };
    int64_t i = 0;

    for (int l = 0; l < 16; l++)
        top[l] = -INFINITY;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) {
            x[i + l] *= s;
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
        }
    for (int l = 0; i + l < n; l++) {
        x[i + l] *= s;
        top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    }
    for (int l = 1; l < 16; l++)
        top[0] = top[l] > top[0] ? top[l] : top[0];
    exp_sub(x, x, top[0], n);
    for (i = 0; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++)
            all[l] += x[i + l];
    for (int l = 0; i + l < n; l++)
        all[l] += x[i + l];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            all[l] += all[l + half];
    *sum = all[0];
    return top[0];
}

TARGET static void scale(float *y, const float *x, const float *w, float s, int64_t n)
{
    if (w == NULL)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * s;
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * s * w[i];
}

TARGET static void silu(float *y, const float *x, int64_t n)
{
    EXP_LOOP(-x[i], y[i] = x[i] / (1.0f + ex))
}

TARGET static void silu_mul(float *y, const float *g, const float *u, int64_t n)
{
    EXP_LOOP(-g[i], y[i] = g[i] / (1.0f + ex) * u[i])
}

/* gelu(x) = x Phi(x). For |x| Phi is 1 - q, for -|x| it is q = exp(-x^2 / 2) t p(t), t = 1 / (1 + 0.21 |x|): p of degree
 * 8 was fitted to the scaled complementary error function, to 1.3e-8 of it for |x| < 13. */
TARGET static inline float gelu_of(float x, float ex)
{
    float t = 1.0f / fmaf(0.21f, fabsf(x), 1.0f);
    float p = fmaf(-7.218950637e-02f, t, 2.862217685e-01f);

    p = fmaf(p, t, -3.358134433e-01f);
    p = fmaf(p, t, 3.559483277e-01f);
    p = fmaf(p, t, -9.862177261e-02f);
    p = fmaf(p, t, 1.269716728e-01f);
    p = fmaf(p, t, 6.862204331e-02f);
    p = fmaf(p, t, 8.515484366e-02f);
    p = fmaf(p, t, 8.370606539e-02f);
    float q = x * (ex * (p * t));
    return x > 0.0f ? x - q : q;
}

TARGET static void gelu_mul(float *y, const float *g, const float *u, int64_t n)
{
    EXP_LOOP(-0.5f * g[i] * g[i], y[i] = gelu_of(g[i], ex) * u[i])
}

TARGET static void sigmoid_mul(float *y, const float *g, int64_t n)
{
    EXP_LOOP(-g[i], y[i] = y[i] / (1.0f + ex))
}

TARGET static void hadamard(float *y, const float *x, int n)
{
    float s = 1.0f / sqrtf((float)n);

    if (y != x)
        memcpy(y, x, (size_t)n * sizeof *y);
    for (int half = 1; half < n; half *= 2)
        for (int i = 0; i < n; i += 2 * half) {
            float *restrict p = y + i, *restrict q = y + i + half;

            for (int j = 0; j < half; j++) {
                float a = p[j], b = q[j];

                p[j] = a + b;
                q[j] = a - b;
            }
        }
    for (int i = 0; i < n; i++)
        y[i] *= s;
}

/* Columns of a state from j on: the whole head in the specification, what is left over elsewhere. */
enum { GDN_COLS_MAX = 1024 };

TARGET static void gdn_token(float *restrict S, float *restrict y, const float *restrict k, const float *restrict q,
                             const float *restrict v, float g, float b, int dim, int64_t dim_v, int n)
{
    float kv[GDN_COLS_MAX];

    memset(kv, 0, (size_t)n * sizeof *kv);
    memset(y, 0, (size_t)n * sizeof *y);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < n; j++)
            kv[j] = fmaf(S[i * dim_v + j], k[i], kv[j]);
    for (int j = 0; j < n; j++)
        kv[j] = b * (v[j] - g * kv[j]);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < n; j++) {
            float s = fmaf(k[i], kv[j], g * S[i * dim_v + j]);

            S[i * dim_v + j] = s;
            y[j] = fmaf(s, q[i], y[j]);
        }
}

TARGET static void gdn_rest(float *S, const struct cpu_gdn *t, int j, int dim, int dim_v)
{
    for (int r = 0; r < t->n; r++)
        gdn_token(S + j, t->y + r * t->ldy + j, t->k + r * dim, t->q + r * dim, t->v + r * t->ldv + j, t->g[r], t->b[r],
                  dim, dim_v, dim_v - j);
}

/* Columns of a state of Mamba-2 from j on, likewise. */
TARGET static void ssm2_token(float *restrict h, float *restrict y, const float *restrict x, const float *restrict b,
                              const float *restrict c, float decay, float dt, float d, int n_state, int64_t dim, int n)
{
    for (int j = 0; j < n; j++)
        y[j] = d * x[j];
    for (int s = 0; s < n_state; s++)
        for (int j = 0; j < n; j++) {
            float new_h = fmaf(b[s], dt * x[j], decay * h[s * dim + j]);

            h[s * dim + j] = new_h;
            y[j] = fmaf(new_h, c[s], y[j]);
        }
}

TARGET static void ssm2_rest(float *h, const struct cpu_ssm2 *t, int j, int n_state, int dim)
{
    for (int r = 0; r < t->n; r++)
        ssm2_token(h + j, t->y + r * t->ldy + j, t->x + r * t->ldx + j, t->b + r * t->ldx, t->c + r * t->ldx, t->decay[r],
                   t->dt[r], t->d, n_state, dim, dim - j);
}

#define KERNEL_SET(n) \
    const struct cpu_kernels cpu_kernels_##n = { \
        .name = #n, .dots = dot_floats, .axpy = axpy, .mix = mix_rows, \
        .dots_half = dot_halves, .mix_half = half_mix_rows, .exp_sub = exp_sub, .softmax = softmax, \
        .scale = scale, .silu = silu, .silu_mul = silu_mul, .gelu_mul = gelu_mul, .sigmoid_mul = sigmoid_mul, \
        .conv = conv, .gdn = gdn, .ssm2 = ssm2, .hadamard = hadamard, \
    }
