/* SPDX-License-Identifier: Apache-2.0 */
/* matvec.cu - products of a few rows with stored matrices, several matrices in one launch. */
#include "kernels/fused.cuh"
#include "kernels/tile.cuh"

/* Rounds rows of floats: 8 threads a pair of units, 8 elements each. */
__global__ void quantise(uint8_t *out, const float *x, int64_t stride, int k, int64_t row_bytes)
{
    int i = blockIdx.x * 256 + threadIdx.x;

    if (i < x_pairs(k) * 8)
        quantise_part(out + blockIdx.y * row_bytes, x + blockIdx.y * stride, k, i);
}

void cuda_quantise(struct cuda *c, uint8_t *out, struct tensor x)
{
    int k = (int)x.ne[0];

    for (int64_t r = 0; r < x.ne[1]; r += 65535) {
        int n = (int)(x.ne[1] - r < 65535 ? x.ne[1] - r : 65535);

        LAUNCH(c, quantise, dim3((unsigned)ceil_div(k, 64 * 32), (unsigned)n), 256, 0, out + r * x_row_bytes(k),
               (const float *)x.data + r * x.stride, x.stride, k, x_row_bytes(k));
    }
}

size_t cuda_matmul_ws(int64_t k, int64_t n_rows)
{
    return round_up((size_t)(x_row_bytes(k) * n_rows), 256);
}

/* One warp a row of weights and a row of x. */
template <int TYPE>
__global__ void __launch_bounds__(256) plain(const uint8_t *w, int64_t row_bytes, int n_rows, int k, float *y,
                                             int64_t y_stride, const float *x, int64_t x_stride)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32;
    const float *const xs[1] = { x + (int64_t)blockIdx.y * x_stride };
    float sum[1];

    if (row >= n_rows)
        return;
    plain_times<TYPE, 1>(sum, w + (int64_t)row * row_bytes, k, xs, 1);
    if ((threadIdx.x & 31) == 0)
        y[(int64_t)blockIdx.y * y_stride + row] = sum[0];
}

/* The same for 8 rows of weights and 8 of x a warp, 32 of each a block: values are exchanged as they are folded, half of
 * them each time. */
template <int TYPE>
__global__ void __launch_bounds__(512) plain_many(const uint8_t *w, int64_t row_bytes, int n_rows, int k, float *y,
                                                  int64_t y_stride, const float *x, int64_t x_stride, int nx)
{
    enum { N = 8 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int r0 = (blockIdx.x * 4 + warp % 4) * N, t0 = (blockIdx.y * 4 + warp / 4) * N;
    const float *xs[N];
    const uint8_t *ws[N];
    float v[N * N];

    if (r0 >= n_rows || t0 >= nx)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        xs[i] = x + (int64_t)min(t0 + i, nx - 1) * x_stride;
        ws[i] = w + (int64_t)min(r0 + i, n_rows - 1) * row_bytes;
    }
#pragma unroll
    for (int i = 0; i < N * N; i++)
        v[i] = 0.0f;
#pragma unroll 2
    for (int i = lane; i < k; i += 32) {
        float a[N], b[N];

#pragma unroll
        for (int j = 0; j < N; j++) {
            a[j] = plain_at(TYPE, ws[j], i);
            b[j] = xs[j][i];
        }
#pragma unroll
        for (int j = 0; j < N * N; j++)
            v[j] = __fmaf_rn(a[j / N], b[j % N], v[j]);
    }
    int at = 0;
#pragma unroll
    for (int half = 16, left = N * N / 2; half > 0; half /= 2, left /= 2) {
        bool upper = lane & half;

        at += upper ? left : 0;
#pragma unroll
        for (int j = 0; j < left; j++) {
            float keep = upper ? v[j + left] : v[j], send = upper ? v[j] : v[j + left];

            v[j] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, half));
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int r = r0 + (at + j) / N, t = t0 + (at + j) % N;

        if (r < n_rows && t < nx)
            y[(int64_t)t * y_stride + r] = v[j];
    }
}

template <int TYPE>
static void plain_rows(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    int64_t bytes = quant_row_bytes(w.type, w.ne[0]);
    int k = (int)w.ne[0], rows = (int)w.ne[1], nx = (int)x.ne[1];
    const uint8_t *wd = (const uint8_t *)w.data;
    float *yd = (float *)y.data;
    const float *xd = (const float *)x.data;

    if (nx <= FEW_ROWS)
        LAUNCH(c, plain<TYPE>, dim3((unsigned)ceil_div(rows, 8), (unsigned)nx), 256, 0, wd, bytes, rows, k, yd, y.stride,
               xd, x.stride);
    else
        LAUNCH(c, plain_many<TYPE>, dim3((unsigned)ceil_div(rows, 32), (unsigned)ceil_div(nx, 32)), 512, 0, wd, bytes,
               rows, k, yd, y.stride, xd, x.stride, nx);
}

static void plain_matmul(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    switch (w.type) {
    case QUANT_f32: plain_rows<QUANT_f32>(c, w, y, x); break;
    case QUANT_f16: plain_rows<QUANT_f16>(c, w, y, x); break;
    case QUANT_bf16: plain_rows<QUANT_bf16>(c, w, y, x); break;
    case QUANT_f64: plain_rows<QUANT_f64>(c, w, y, x); break;
    case QUANT_i8: plain_rows<QUANT_i8>(c, w, y, x); break;
    case QUANT_i16: plain_rows<QUANT_i16>(c, w, y, x); break;
    case QUANT_i32: plain_rows<QUANT_i32>(c, w, y, x); break;
    case QUANT_i64: plain_rows<QUANT_i64>(c, w, y, x); break;
    default: plain_rows<QUANT_iq6_k>(c, w, y, x); break;
    }
}

/* Jobs of one format at a time. */
static void tile_jobs(struct cuda *c, struct mv_args *m)
{
    while (m->n > 0) {
        struct tile_args a = {};
        int left = 0;

        for (int i = 0; i < m->n; i++)
            if (m->job[i].type == m->job[0].type)
                a.job[a.n++] = m->job[i];
        for (int i = 0; i < m->n; i++)
            if (m->job[i].type != a.job[0].type)
                m->job[left++] = m->job[i];
        m->n = left;
        a.k = m->k;
        a.nx = m->nx;
        a.x = m->x;
        a.x_bytes = m->x_bytes;
        a.tab = m->tab;
        a.div = 1;
        if (a.nx > FEW_ROWS)
            cuda_tile(c, &a, ceil_div(a.nx, TILE_COLUMNS));
        else
            cuda_strip(c, &a, 1);
    }
}

/* Jobs of formats of most files, rounded activations. */
static void common_matmul(struct cuda *c, struct mv_args *a)
{
    struct fused_args f = {};

    if (a->nx > 1) {
        tile_jobs(c, a);
        return;
    }
    f.a = *a;
    f.mode = IN_ROUNDED;
    cuda_fused_matvec(c, &f);
}

void cuda_matmul(struct cuda *c, const struct job *job, int n, struct tensor x)
{
    struct mv_args a = {};
    bool quantised = false;

    for (int i = 0; i < n; i++) {
        const struct tensor &w = job[i].w, &y = job[i].y;

        if (is_plain(w.type)) {
            plain_matmul(c, w, y, x);
            continue;
        }
        if (!quantised)
            cuda_quantise(c, c->ws, x);
        quantised = true;
        if (!cuda_is_common(w.type)) {
            cuda_rare(c, w, y, c->ws, (int)x.ne[1]);
            continue;
        }
        a.job[a.n++] = (struct mv_job){ (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), (float *)y.data,
                                        y.stride, (int)w.ne[1], w.type, 0 };
    }
    if (a.n == 0)
        return;
    a.k = (int)x.ne[0];
    a.nx = (int)x.ne[1];
    a.x = c->ws;
    a.x_bytes = x_row_bytes(a.k);
    a.tab = c->tab;
    common_matmul(c, &a);
}
