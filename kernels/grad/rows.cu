/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cu - gradients: norms, sums, feed-forwards element by element.   room: kernels */
#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

void cuda_grad_zero(const struct pass *p, float *x, int64_t n)
{
    struct cuda *c = cgrad_of(p)->c;

    TRY(c, cudaMemsetAsync(x, 0, (size_t)n * sizeof *x, c->stream));
}

void cuda_grad_copy(const struct pass *p, float *to, const float *from, int64_t n)
{
    struct cuda *c = cgrad_of(p)->c;

    TRY(c, cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDefault, c->stream));
}

static __global__ void __launch_bounds__(THREADS) add_floats(float *y, const float *x, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        y[i] += x[i];
}

void cuda_grad_add(const struct pass *p, float *y, const float *x, int64_t n)
{
    LAUNCH(cgrad_of(p)->c, add_floats, grid_of(n, THREADS), THREADS, 0, y, x, n);
}

/* ---- norms: a warp has a row ---- */

static __device__ float factor_of(const float *x, int n, float eps, int lane)
{
    float sum = 0.0f;

    for (int i = lane; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    return norm_factor(warp_sum(sum), n, eps);
}

static __global__ void __launch_bounds__(THREADS)
    norm_rows(float *y, const float *x, const float *w, int n, int64_t rows, float eps)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;

    if (r >= rows)
        return;
    x += r * n;
    y += r * n;
    const float f = factor_of(x, n, eps, lane);
    for (int i = lane; i < n; i += 32)
        y[i] = x[i] * f * w[i];
}

void cuda_grad_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows)
{
    LAUNCH(cgrad_of(p)->c, norm_rows, grid_of(n_rows, WARPS), THREADS, 0, y, x, w, (int)n, n_rows, p->g->plan.norm_eps);
}

static __global__ void __launch_bounds__(THREADS)
    norm_back_rows(float *dx, const float *dy, const float *x, const float *w, int n, int64_t rows, float eps)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float along = 0.0f;

    if (r >= rows)
        return;
    x += r * n;
    dy += r * n;
    dx += r * n;
    const float f = factor_of(x, n, eps, lane);
    for (int i = lane; i < n; i += 32)
        along = fmaf(w[i] * dy[i], x[i], along);
    along = warp_sum(along) * f * f / (float)n;
    for (int i = lane; i < n; i += 32)
        dx[i] += f * (w[i] * dy[i] - along * x[i]);
}

void cuda_grad_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                         int64_t n_rows)
{
    LAUNCH(cgrad_of(p)->c, norm_back_rows, grid_of(n_rows, WARPS), THREADS, 0, dx, dy, x, w, (int)n, n_rows,
           p->g->plan.norm_eps);
}

/* ---- feed-forwards ---- */

static __global__ void __launch_bounds__(THREADS) glu_floats(float *h, const float *gate, const float *up, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        h[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void cuda_grad_glu(const struct pass *p, const struct glu_acts *a, int64_t n)
{
    LAUNCH(cgrad_of(p)->c, glu_floats, grid_of(n, THREADS), THREADS, 0, a->h, a->gate, a->up, n);
}

static __global__ void __launch_bounds__(THREADS) glu_back_floats(float *gate, float *up, const float *dh, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= n)
        return;
    const float g = gate[i], s = sigmoid(g);
    gate[i] = dh[i] * up[i] * s * (1.0f + g * (1.0f - s));
    up[i] = dh[i] * g * s;
}

void cuda_grad_glu_back(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n)
{
    LAUNCH(cgrad_of(p)->c, glu_back_floats, grid_of(n, THREADS), THREADS, 0, a->gate, a->up, dh, n);
}
