/* SPDX-License-Identifier: Apache-2.0 */
/* softmax_body.h - work on one block of SOFTMAX_BLOCK floats.                    room: base
 *
 * softmax.c includes it once per instruction set: KERNEL(name) names the function, TARGET is its
 * target attribute. Every loop is elementwise or halves an array, so the compiler vectorises it
 * without reordering a sum: all instruction sets give the same bits.
 */

/* x = in with NaN as -inf and +inf as the largest float; returns the largest of x. */
TARGET static float KERNEL(scan)(const float *restrict in, float *restrict x)
{
    float m[SOFTMAX_BLOCK / 2];
    for (int i = 0; i < SOFTMAX_BLOCK; i++) {
        float v = in[i] >= -FLT_MAX ? in[i] : -INFINITY; /* false for NaN */
        x[i] = v < FLT_MAX ? v : FLT_MAX;
    }
    for (int i = 0; i < SOFTMAX_BLOCK / 2; i++) {
        m[i] = x[i] > x[i + SOFTMAX_BLOCK / 2] ? x[i] : x[i + SOFTMAX_BLOCK / 2];
    }
    for (int half = SOFTMAX_BLOCK / 4; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            m[i] = m[i] > m[i + half] ? m[i] : m[i + half];
        }
    }
    return m[0];
}

/* w = exp((x - max) * inv_temp), 0 where that is below 2^-125.5 or exp(-87). No x is above max, max
 * is finite. With r the rest after taking whole powers of two, |r| <= ln(2) / 2, the Taylor series
 * to r^7 leaves 6e-9. */
TARGET static void KERNEL(weigh)(const float *restrict x, float *restrict w, float max,
                                 float inv_temp)
{
    for (int i = 0; i < SOFTMAX_BLOCK; i++) {
        float d = (x[i] - max) * inv_temp;
        w[i] = d > -87.0f ? d : -87.0f;
    }
    for (int i = 0; i < SOFTMAX_BLOCK; i++) { /* a second loop: in one, the compiler branches on d */
        float c = w[i];
        float t = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
        float n = t - 12582912.0f;
        float r = (c - n * 0.693359375f) + n * 2.12194440e-4f; /* ln(2) in two parts */
        float p = 1.0f / 720 + r * (1.0f / 5040);
        p = 1.0f / 120 + r * p;
        p = 1.0f / 24 + r * p;
        p = 1.0f / 6 + r * p;
        p = 1.0f / 2 + r * p;
        p = 1.0f + r * (1.0f + r * p);
        int32_t exponent = (int32_t)n + 127; /* 1, for -126, is where c was cut: gives 0 */
        int32_t bits = (exponent & -(exponent > 1)) * (1 << 23);
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        w[i] = p * scale;
    }
}

/* s[i + half] is added to s[i], with half from SOFTMAX_BLOCK / 4 down to 1. */
TARGET static double KERNEL(halve)(double s[SOFTMAX_BLOCK / 2])
{
    for (int half = SOFTMAX_BLOCK / 4; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            s[i] += s[i + half];
        }
    }
    return s[0];
}

/* The sum of w in double, by halving. */
TARGET static double KERNEL(sum)(const float *w)
{
    double s[SOFTMAX_BLOCK / 2];
    for (int i = 0; i < SOFTMAX_BLOCK / 2; i++) {
        s[i] = (double)w[i] + (double)w[i + SOFTMAX_BLOCK / 2];
    }
    return KERNEL(halve)(s);
}

/* The sum of w (x - max), and to *second that of w (x - max)^2. Products are double, and summed by halving. */
TARGET static double KERNEL(moments)(const float *restrict x, const float *restrict w, float max,
                                     double *second)
{
    float d[SOFTMAX_BLOCK];
    double one[SOFTMAX_BLOCK / 2], two[SOFTMAX_BLOCK / 2];
    for (int i = 0; i < SOFTMAX_BLOCK; i++) {
        float v = x[i] - max;
        d[i] = v > -87.0f ? v : -87.0f; /* as in weigh(): where it is cut, w is 0 */
    }
    for (int i = 0; i < SOFTMAX_BLOCK / 2; i++) {
        double near = d[i], far = d[i + SOFTMAX_BLOCK / 2];
        double p = (double)w[i] * near, q = (double)w[i + SOFTMAX_BLOCK / 2] * far;
        one[i] = p + q;
        two[i] = p * near + q * far;
    }
    *second = KERNEL(halve)(two);
    return KERNEL(halve)(one);
}

static const struct softmax_kernels KERNEL(kernels) = { KERNEL(scan), KERNEL(weigh), KERNEL(sum),
                                                        KERNEL(moments) };
