/* SPDX-License-Identifier: Apache-2.0 */
/* kern_body.h - the loops that are the same text for every instruction set; each kern_*.c includes it
 * with TARGET set, and the compiler vectorises them. Lanes are independent and fmaf is exact, so the
 * bytes are the same everywhere. */

/* exp by 2^n * p(r), |r| <= ln2 / 2, p of degree 6 (Cephes' expf coefficients; error below 2 ulp). Below
 * -87.3 the result stays at about 1e-38; above 88.7 at about 3e38. */
#define EXP_LOOP(arg, use) \
    for (int64_t i = 0; i < n; i++) { \
        float t_ = (arg); \
        t_ = t_ < -87.33f ? -87.33f : t_; \
        t_ = t_ > 88.72f ? 88.72f : t_; \
        float z_ = fmaf(t_, 1.44269504f, 12582912.0f); \
        float n_ = z_ - 12582912.0f; \
        float r_ = fmaf(n_, -0.693359375f, t_); \
        r_ = fmaf(n_, 2.12194440e-4f, r_); \
        float p_ = fmaf(1.9875691500e-4f, r_, 1.3981999507e-3f); \
        p_ = fmaf(p_, r_, 8.3334519073e-3f); \
        p_ = fmaf(p_, r_, 4.1665795894e-2f); \
        p_ = fmaf(p_, r_, 1.6666665459e-1f); \
        p_ = fmaf(p_, r_, 5.0000001201e-1f); \
        p_ = fmaf(p_ * r_, r_, r_) + 1.0f; \
        /* n is in the low bits of z; 2^n in two factors, for n may be 128 */ \
        union { float f; uint32_t u; } zb_ = { z_ }, a_, b_; \
        uint32_t e_ = zb_.u - 0x4b400000u + 256u, h_ = e_ >> 1; \
        a_.u = (h_ - 1u) << 23; \
        b_.u = (e_ - h_ - 1u) << 23; \
        float ex = p_ * a_.f * b_.f; \
        use; \
    }

TARGET static void axpy(float *restrict y, const float *restrict x, float a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

TARGET static void blend(float *restrict y, const float *restrict x, float a, float b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(b, x[i], a * y[i]);
}

TARGET static void exp_sub(float *y, const float *x, float m, int64_t n)
{
    EXP_LOOP(x[i] - m, y[i] = ex)
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

TARGET static void sigmoid_mul(float *y, const float *g, int64_t n)
{
    EXP_LOOP(-g[i], y[i] = y[i] / (1.0f + ex))
}

TARGET static void conv(float *restrict y, const float *const *x, const float *restrict w, int64_t ldw,
                        const float *restrict bias, int taps, int64_t n)
{
    if (bias == NULL)
        memset(y, 0, (size_t)n * sizeof *y);
    else
        memcpy(y, bias, (size_t)n * sizeof *y);
    for (int j = 0; j < taps; j++) {
        const float *restrict xj = x[j], *restrict wj = w + j * ldw;

        for (int64_t i = 0; i < n; i++)
            y[i] = fmaf(wj[i], xj[i], y[i]);
    }
}

TARGET static void gdn_step(float *restrict S, float *restrict y, float *restrict kv,
                            const float *restrict k, const float *restrict q, const float *restrict v,
                            float g, float b, int dim, int dim_v)
{
    memset(kv, 0, (size_t)dim_v * sizeof *kv);
    memset(y, 0, (size_t)dim_v * sizeof *y);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim_v; j++)
            kv[j] = fmaf(S[i * dim_v + j], k[i], kv[j]);
    for (int j = 0; j < dim_v; j++)
        kv[j] = b * (v[j] - g * kv[j]);
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim_v; j++) {
            float s = fmaf(k[i], kv[j], g * S[i * dim_v + j]);

            S[i * dim_v + j] = s;
            y[j] = fmaf(s, q[i], y[j]);
        }
}

#define KERNEL_SET(n) \
    const struct cpu_kernels cpu_kernels_##n = { \
        .name = #n, .dots = dots, .axpy = axpy, .blend = blend, .exp_sub = exp_sub, .scale = scale, \
        .silu = silu, .silu_mul = silu_mul, .sigmoid_mul = sigmoid_mul, .conv = conv, \
        .gdn_step = gdn_step, \
    }
