/* SPDX-License-Identifier: Apache-2.0 */
/* loss.cu - cross entropy with its gradient, and the step of AdamW.                room: kernels */
#include "kernels/train/math.cuh"

#include <math.h>

enum { THREADS = 256, WARPS = THREADS / 32 };

/* ---- cross entropy: a block has a row ---- */

struct top {
    float v;
    int i;
};

/* The larger value, of equals the first. */
static __device__ __forceinline__ struct top larger_of(struct top a, struct top b)
{
    return b.v > a.v || (b.v == a.v && b.i < a.i) ? b : a;
}

static __device__ struct top best_of(const float *x, int n)
{
    __shared__ struct top tops[WARPS];
    struct top t = { -INFINITY, n };

    for (int i = threadIdx.x; i < n; i += THREADS)
        t = larger_of(t, { x[i], i });
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        t = larger_of(t, { __shfl_xor_sync(0xffffffffu, t.v, half), __shfl_xor_sync(0xffffffffu, t.i, half) });
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = t;
    __syncthreads();
    t = tops[0];
    for (int i = 1; i < WARPS; i++)
        t = larger_of(t, tops[i]);
    return t.i < n ? t : (struct top){ t.v, 0 }; /* all of them not a number */
}

static __global__ void __launch_bounds__(THREADS) best_rows(const float *logits, int32_t *best, int n)
{
    const struct top t = best_of(logits + (int64_t)blockIdx.x * n, n);

    if (threadIdx.x == 0)
        best[blockIdx.x] = t.i;
}

static void best_logits(struct dev_math *m, const float *logits, int32_t *to, int64_t rows, int64_t n)
{
    if (rows > 0)
        MATH_LAUNCH(cuda_math_of(m), best_rows, (unsigned)rows, THREADS, 0, logits, to, (int)n);
}

static __global__ void __launch_bounds__(THREADS)
    loss_rows(float *logits, const int32_t *want, const float *weight, double total, float *loss, int32_t *best, int n)
{
    __shared__ float sums[WARPS];
    const int64_t r = blockIdx.x;
    float *x = logits + r * n, sum = 0;
    const struct top t = best_of(x, n);
    const float chosen = x[want[r]], part = (float)((double)weight[r] / total);

    __syncthreads(); /* chosen is read */
    for (int i = threadIdx.x; i < n; i += THREADS) {
        x[i] = expf(x[i] - t.v);
        sum += x[i];
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += sums[i];
    if (threadIdx.x == 0) {
        loss[r] = t.v + logf(sum) - chosen;
        best[r] = t.i;
    }
    for (int i = threadIdx.x; i < n; i += THREADS)
        x[i] = x[i] * (part / sum) - (i == want[r] ? part : 0.0f);
}

static void cross_entropy(struct dev_math *m, float *logits, const int32_t *want, const float *weight, double total,
                          float *loss, int32_t *to, int64_t rows, int64_t n)
{
    if (rows > 0)
        MATH_LAUNCH(cuda_math_of(m), loss_rows, (unsigned)rows, THREADS, 0, logits, want, weight, total, loss, to,
                    (int)n);
}

/* ---- AdamW ---- */

static __device__ double block_sum(double sum)
{
    __shared__ double sums[THREADS];

    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

static __global__ void __launch_bounds__(THREADS) add_squares(double *part, const float *grad, int64_t n)
{
    const int64_t begin = n * blockIdx.x / gridDim.x, end = n * (blockIdx.x + 1) / gridDim.x;
    double sum = 0;

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += (double)grad[i] * (double)grad[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS) norm_of(double *part)
{
    const double sum = block_sum(threadIdx.x < MATH_PARTS ? part[threadIdx.x] : 0);

    if (threadIdx.x == 0)
        part[MATH_PARTS] = sqrt(sum);
}

static __global__ void __launch_bounds__(THREADS)
    update(struct dev_adam a, const double *norm, float unbias1, float unbias2)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= a.n || !isfinite(*norm) || (a.how != NULL && a.how[i] == DEV_ADAM_NOT))
        return;
    const float scale = *norm > (double)a.clip ? (float)((double)a.clip / *norm) : 1.0f, g = a.grad[i] * scale;
    const float decay = a.how == NULL || a.how[i] == DEV_ADAM_DECAYED ? a.decay : 0.0f;
    const float m = a.b1 * a.m[i] + (1 - a.b1) * g, v = a.b2 * a.v[i] + (1 - a.b2) * g * g;

    a.m[i] = m;
    a.v[i] = v;
    a.w[i] -= a.rate * (m * unbias1 / (sqrtf(v * unbias2) + a.eps) + decay * a.w[i]);
}

static void adam(struct dev_math *m, const struct dev_adam *a)
{
    struct cuda_math *c = cuda_math_of(m);

    MATH_LAUNCH(c, add_squares, MATH_PARTS, THREADS, 0, c->norm, a->grad, a->n);
    MATH_LAUNCH(c, norm_of, 1, THREADS, 0, c->norm);
    MATH_LAUNCH(c, update, math_grid(a->n, THREADS), THREADS, 0, *a, c->norm + MATH_PARTS,
                (float)(1 / (1 - pow((double)a->b1, (double)a->step))),
                (float)(1 / (1 - pow((double)a->b2, (double)a->step))));
}

static double norm(struct dev_math *m)
{
    double is = NAN;

    m->get(m, &is, cuda_math_of(m)->norm + MATH_PARTS, sizeof is);
    return is;
}

void cuda_math_loss(struct dev_math *m)
{
    m->best = best_logits;
    m->cross_entropy = cross_entropy;
    m->adam = adam;
    m->norm = norm;
}
