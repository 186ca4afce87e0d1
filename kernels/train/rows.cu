/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cu - norms, positions, the feed-forward part, and rows that move.           room: kernels */
#include "kernels/common/math.cuh"
#include "kernels/train/math.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

static __device__ __forceinline__ int64_t thread_of_all(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- norms: a warp has a row ---- */

static __global__ void __launch_bounds__(THREADS)
    rms_rows(float *y, float *inv, const float *x, const float *w, int64_t rows, int dim, float eps)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0;

    if (r >= rows)
        return;
    x += r * dim;
    y += r * dim;
    for (int i = lane; i < dim; i += 32)
        sum = fmaf(x[i], x[i], sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)dim + eps);
    if (lane == 0)
        inv[r] = scale;
    for (int i = lane; i < dim; i += 32)
        y[i] = x[i] * scale * w[i];
}

static void rms(struct dev_math *m, float *y, float *inv, const float *x, const float *w, int64_t rows, int64_t dim,
                float eps)
{
    if (rows > 0)
        MATH_LAUNCH(cuda_math_of(m), rms_rows, math_grid(rows, WARPS), THREADS, 0, y, inv, x, w, rows, (int)dim, eps);
}

/* With n = x inv: dx = inv (w dy - n mean(n w dy)). */
static __global__ void __launch_bounds__(THREADS) rms_back_rows(float *dx, bool add, const float *dy, const float *x,
                                                                const float *inv, const float *w, int64_t rows, int dim)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0;

    if (r >= rows)
        return;
    x += r * dim;
    dx += r * dim;
    dy += r * dim;
    for (int i = lane; i < dim; i += 32)
        sum = fmaf(w[i] * dy[i], x[i], sum);
    const float by = inv[r], scale = warp_sum(sum) * by * by / (float)dim;
    for (int i = lane; i < dim; i += 32) {
        const float d = by * (w[i] * dy[i] - x[i] * scale);

        dx[i] = add ? dx[i] + d : d;
    }
}

/* Part p of the rows' sum of dy x inv, by columns: 32 of them, 8 rows at a time. */
static __global__ void __launch_bounds__(THREADS)
    rms_back_weights(float *part, const float *dy, const float *x, const float *inv, int64_t rows, int dim)
{
    __shared__ float sums[WARPS][32];
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
    float sum = 0;

    for (int64_t r = begin + lane; column < dim && r < end; r += WARPS)
        sum = fmaf(dy[r * dim + column], x[r * dim + column] * inv[r], sum);
    sums[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    for (int i = 1; lane == 0 && i < WARPS; i++)
        sum += sums[i][threadIdx.x];
    if (lane == 0 && column < dim)
        part[(int64_t)blockIdx.y * dim + column] = sum;
}

static __global__ void __launch_bounds__(THREADS) add_parts(float *to, const float *part, int parts, int dim)
{
    __shared__ float sums[WARPS][32];
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    float sum = 0;

    for (int p = lane; column < dim && p < parts; p += WARPS)
        sum += part[(int64_t)p * dim + column];
    sums[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    for (int i = 1; lane == 0 && i < WARPS; i++)
        sum += sums[i][threadIdx.x];
    if (lane == 0 && column < dim)
        to[column] += sum;
}

static void rms_back(struct dev_math *m, float *dx, bool add, float *dw, const float *dy, const float *x,
                     const float *inv, const float *w, int64_t rows, int64_t dim)
{
    const unsigned each = 64, most = 256;
    struct cuda_math *c = cuda_math_of(m);
    const unsigned parts = math_grid(rows, each) < most ? math_grid(rows, each) : most;

    if (rows == 0)
        return;
    if (dw != NULL) {
        float *part = cuda_math_part(c, most * dim);

        MATH_LAUNCH(c, rms_back_weights, dim3(math_grid(dim, 32), parts), THREADS, 0, part, dy, x, inv, rows, (int)dim);
        MATH_LAUNCH(c, add_parts, math_grid(dim, 32), THREADS, 0, dw, part, (int)parts, (int)dim);
    }
    if (dx != NULL)
        MATH_LAUNCH(c, rms_back_rows, math_grid(rows, WARPS), THREADS, 0, dx, add, dy, x, inv, w, rows, (int)dim);
}

/* ---- positions ---- */

static __global__ void __launch_bounds__(THREADS)
    rope_pairs(float *x, const int32_t *pos, int64_t n, int heads, int half, const float2 *turn, bool back)
{
    const int64_t at = thread_of_all();

    if (at >= n)
        return;
    const int64_t head = at / half; /* of all rows */
    const int i = (int)(at % half);
    const float2 t = turn[(int64_t)pos[head / heads] * half + i];
    const float sin = back ? -t.y : t.y;
    float *v = x + head * 2 * half + i;
    const float p = v[0], q = v[half];

    v[0] = p * t.x - q * sin;
    v[half] = q * t.x + p * sin;
}

static void rope(struct dev_math *m, float *x, const int32_t *pos, int64_t rows, int heads, int64_t dim,
                 const float *turn, bool back)
{
    const int64_t n = rows * heads * (dim / 2);

    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), rope_pairs, math_grid(n, THREADS), THREADS, 0, x, pos, n, heads, (int)(dim / 2),
                    (const float2 *)turn, back);
}

/* ---- the feed-forward part, sums ---- */

static __global__ void __launch_bounds__(THREADS) glu_floats(float *h, const float *gate, const float *up, int64_t n)
{
    const int64_t i = thread_of_all();

    if (i < n)
        h[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void glu(struct dev_math *m, float *h, const float *gate, const float *up, int64_t n)
{
    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), glu_floats, math_grid(n, THREADS), THREADS, 0, h, gate, up, n);
}

static __global__ void __launch_bounds__(THREADS) glu_back_floats(float *gate, float *up, const float *dh, int64_t n)
{
    const int64_t i = thread_of_all();

    if (i >= n)
        return;
    const float x = gate[i], s = 1.0f / (1.0f + expf(-x));

    gate[i] = dh[i] * up[i] * s * (1.0f + x * (1.0f - s));
    up[i] = dh[i] * x * s;
}

static void glu_back(struct dev_math *m, float *gate, float *up, const float *dh, int64_t n)
{
    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), glu_back_floats, math_grid(n, THREADS), THREADS, 0, gate, up, dh, n);
}

static __global__ void __launch_bounds__(THREADS) add_floats(float *y, const float *x, int64_t n)
{
    const int64_t i = thread_of_all();

    if (i < n)
        y[i] += x[i];
}

static void add_rows(struct dev_math *m, float *y, const float *x, int64_t n)
{
    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), add_floats, math_grid(n, THREADS), THREADS, 0, y, x, n);
}

static __global__ void __launch_bounds__(THREADS)
    blend_floats(float *y, float by, float ax, const float *x, int64_t n, const double *norm)
{
    const int64_t i = thread_of_all();

    if (i < n && (norm == NULL || isfinite(*norm)))
        y[i] = by * y[i] + ax * x[i];
}

static void launch_blend(struct dev_math *m, float *y, float by, float ax, const float *x, int64_t n, bool checked)
{
    struct cuda_math *c = cuda_math_of(m);

    if (n > 0)
        MATH_LAUNCH(c, blend_floats, math_grid(n, THREADS), THREADS, 0, y, by, ax, x, n,
                    checked ? c->norm + MATH_PARTS : NULL);
}

static __global__ void __launch_bounds__(1024) unit_matrices(float *x, int64_t n, float eps)
{
    __shared__ float sums[32];
    float sum = 0;

    x += blockIdx.x * n;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = fmaf(x[i], x[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    const float scale = 1.0f / (sqrtf(warp_sum(sums[threadIdx.x % 32])) + eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] *= scale;
}

static void launch_unit(struct dev_math *m, float *x, int64_t count, int64_t n, float eps)
{
    if (count > 0)
        MATH_LAUNCH(cuda_math_of(m), unit_matrices, (unsigned)count, 1024, 0, x, n, eps);
}

/* ---- rows that move ---- */

static __device__ __forceinline__ float as_float(float v)
{
    return v;
}

static __device__ __forceinline__ float as_float(uint16_t v)
{
    return __uint_as_float((uint32_t)v << 16);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    gather_rows(float *to, const T *from, const int32_t *index, int64_t n, int dim)
{
    const int64_t i = thread_of_all();

    if (i < n)
        to[i] = as_float(from[(int64_t)index[i / dim] * dim + i % dim]);
}

template <typename T>
static void gather(struct dev_math *m, float *to, const T *from, const int32_t *index, int64_t rows, int64_t dim)
{
    const int64_t n = rows * dim;

    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), gather_rows, math_grid(n, THREADS), THREADS, 0, to, from, index, n, (int)dim);
}

static __global__ void __launch_bounds__(THREADS)
    scatter_rows(float *to, const int32_t *index, const float *from, int64_t n, int dim)
{
    const int64_t i = thread_of_all();

    if (i < n)
        to[(int64_t)index[i / dim] * dim + i % dim] = from[i];
}

static void scatter(struct dev_math *m, float *to, const int32_t *index, const float *from, int64_t rows, int64_t dim)
{
    const int64_t n = rows * dim;

    if (n > 0)
        MATH_LAUNCH(cuda_math_of(m), scatter_rows, math_grid(n, THREADS), THREADS, 0, to, index, from, n, (int)dim);
}

void cuda_math_rows(struct dev_math *m)
{
    m->rms = rms;
    m->rms_back = rms_back;
    m->rope = rope;
    m->glu = glu;
    m->glu_back = glu_back;
    m->add = add_rows;
    m->blend = launch_blend;
    m->unit = launch_unit;
    m->gather = gather;
    m->scatter = scatter;
    m->widen = gather;
}
