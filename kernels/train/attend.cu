/* SPDX-License-Identifier: Apache-2.0 */
/* attend.cu - attention of blocks over their contexts and themselves, and its gradient.     room: kernels
 *
 * 16 rows of a block and a tile of keys are in shared memory at a time, with a running softmax (Dao et al., arXiv
 * 2205.14135). With P a row's weights, S its scores and D = dO . O: dV += P^T dO;  dS = P (dO V^T - D);  dQ = scale dS
 * K;  dK += scale dS^T Q Gradients of a block's rows and own keys come from one kernel, those of context keys from
 * another, which goes through the blocks of a text; nobody else adds to them. Heads are padded to D elements. Of 128
 * threads thread (ty, tx), ty < 8, tx < 16, has the scores of rows 2 ty and 2 ty + 1 with keys tx, tx + 16 ... */
#include "kernels/train/math.cuh"

#include <math.h>

enum { THREADS = 128, ROWS = DEV_BLOCK_MAX, TX = 16 };

template <int D> struct tile {
    static constexpr int KEYS = D <= 64 ? 64 : 4096 / D, LD = D + 4, PD = KEYS + 4, COLS = D / TX, EACH = KEYS / TX;
};

/* n rows of one head to shared memory, scaled; zeros after them and past the head's end. */
template <int D>
static __device__ void load_rows(float *to, const float *from, int64_t row, int n, int all, int heads, int head,
                                 int dim, float scale)
{
    for (int i = threadIdx.x; i < all * D; i += THREADS) {
        const int r = i / D, c = i % D;

        to[r * tile<D>::LD + c] = r < n && c < dim ? from[((row + r) * heads + head) * dim + c] * scale : 0.0f;
    }
}

/* s[r][i] = x[2 ty + r] . y[tx + 16 i] */
template <int D>
static __device__ __forceinline__ void scores(float s[2][tile<D>::EACH], const float *x, const float *y, int ty, int tx)
{
    const float *x0 = x + 2 * ty * tile<D>::LD, *x1 = x0 + tile<D>::LD;

#pragma unroll
    for (int i = 0; i < tile<D>::EACH; i++)
        s[0][i] = s[1][i] = 0;
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        const float4 a = *(const float4 *)(x0 + d), b = *(const float4 *)(x1 + d);

#pragma unroll
        for (int i = 0; i < tile<D>::EACH; i++) {
            const float4 k = *(const float4 *)(y + (tx + TX * i) * tile<D>::LD + d);

            s[0][i] = fmaf(a.x, k.x, fmaf(a.y, k.y, fmaf(a.z, k.z, fmaf(a.w, k.w, s[0][i]))));
            s[1][i] = fmaf(b.x, k.x, fmaf(b.y, k.y, fmaf(b.z, k.z, fmaf(b.w, k.w, s[1][i]))));
        }
    }
}

/* o[r][c] += sum over keys of p[2 ty + r][key] v[key][tx + 16 c] */
template <int D>
static __device__ __forceinline__ void mix_values(float o[2][tile<D>::COLS], const float *p, const float *v, int ty,
                                                  int tx)
{
    const float *p0 = p + 2 * ty * tile<D>::PD, *p1 = p0 + tile<D>::PD;

#pragma unroll 4
    for (int j = 0; j < tile<D>::KEYS; j++) {
        const float a = p0[j], b = p1[j];

#pragma unroll
        for (int c = 0; c < tile<D>::COLS; c++) {
            const float x = v[j * tile<D>::LD + tx + TX * c];

            o[0][c] = fmaf(a, x, o[0][c]);
            o[1][c] = fmaf(b, x, o[1][c]);
        }
    }
}

/* Over the 16 threads that have a row. */
static __device__ __forceinline__ float row_sum(float v)
{
#pragma unroll
    for (int half = TX / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, half);
    return v;
}

static __device__ __forceinline__ float row_max(float v)
{
#pragma unroll
    for (int half = TX / 2; half > 0; half /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, half));
    return v;
}

/* A tile of keys of the context, and the block's own after them, from key `at` on. */
template <int D>
static __device__ void load_keys(float *to, const float *context, const float *own, const struct dev_block *b, int at,
                                 const struct dev_attend *a, int head)
{
    const int left = (int)b->start - at, n = left < tile<D>::KEYS ? left : tile<D>::KEYS; /* of the context */

    for (int i = threadIdx.x; i < tile<D>::KEYS * D; i += THREADS) {
        const int j = i / D, c = i % D;
        float v = 0;

        if (c < a->head_dim && j < n)
            v = context[((b->context + at + j) * a->n_head_kv + head) * a->head_dim + c];
        else if (c < a->head_dim && j < left + b->n)
            v = own[((b->row + j - left) * a->n_head_kv + head) * a->head_dim + c];
        to[j * tile<D>::LD + c] = v;
    }
}

template <int D> static __global__ void __launch_bounds__(THREADS) forward(struct dev_attend a, float scale)
{
    typedef struct tile<D> T;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *k = q + ROWS * T::LD, *v = k + T::KEYS * T::LD, *p = v + T::KEYS * T::LD;
    const struct dev_block b = a.block[blockIdx.x];
    const int head = blockIdx.y, of = head / (a.n_head / a.n_head_kv), ty = threadIdx.x / TX, tx = threadIdx.x % TX;
    const int total = (int)b.start + b.n;
    float o[2][T::COLS] = {}, max[2] = { -INFINITY, -INFINITY }, sum[2] = {};

    load_rows<D>(q, a.q, b.row, b.n, ROWS, a.n_head, head, a.head_dim, scale);
    for (int at = 0; at < total; at += T::KEYS) {
        float s[2][T::EACH];

        __syncthreads();
        load_keys<D>(k, a.kc, a.k, &b, at, &a, of);
        load_keys<D>(v, a.vc, a.v, &b, at, &a, of);
        __syncthreads();
        scores<D>(s, q, k, ty, tx);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = max[r];

#pragma unroll
            for (int i = 0; i < T::EACH; i++)
                most = at + tx + TX * i < total ? fmaxf(most, s[r][i]) : most;
            most = row_max(most);
            const float less = expf(max[r] - most);

            max[r] = most;
            sum[r] *= less;
#pragma unroll
            for (int i = 0; i < T::EACH; i++) {
                const float w = at + tx + TX * i < total ? expf(s[r][i] - most) : 0.0f;

                sum[r] += w;
                p[(2 * ty + r) * T::PD + tx + TX * i] = w;
            }
#pragma unroll
            for (int c = 0; c < T::COLS; c++)
                o[r][c] *= less;
        }
        __syncwarp(); /* a row's weights are its own 16 threads' */
        mix_values<D>(o, p, v, ty, tx);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t at = (b.row + 2 * ty + r) * a.n_head + head;
        const float all = row_sum(sum[r]);

        if (2 * ty + r >= b.n)
            continue;
        if (tx == 0)
            a.lse[at] = max[r] + logf(all);
#pragma unroll
        for (int c = 0; c < T::COLS; c++)
            if (tx + TX * c < a.head_dim)
                a.o[at * a.head_dim + tx + TX * c] = o[r][c] / all;
    }
}

/* Weights of a tile and gradients of its scores in place of s and dp: of keys below n. */
template <int D>
static __device__ __forceinline__ void score_gradients(float s[2][tile<D>::EACH], float dp[2][tile<D>::EACH],
                                                       const float lse[2], const float delta[2], int n, int tx)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < tile<D>::EACH; i++) {
            const float w = tx + TX * i < n ? expf(s[r][i] - lse[r]) : 0.0f;

            s[r][i] = w;
            dp[r][i] = w * (dp[r][i] - delta[r]);
        }
}

template <int D> static __device__ __forceinline__ void keep(float *to, const float s[2][tile<D>::EACH], int ty, int tx)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < tile<D>::EACH; i++)
            to[(2 * ty + r) * tile<D>::PD + tx + TX * i] = s[r][i];
}

/* dq of a block's rows, dk and dv of its own keys, and delta = dO . O. */
template <int D> static __global__ void __launch_bounds__(THREADS) backward_rows(struct dev_attend a, float scale)
{
    typedef struct tile<D> T;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *d_o = q + ROWS * T::LD, *k = d_o + ROWS * T::LD, *v = k + T::KEYS * T::LD;
    float *p = v + T::KEYS * T::LD, *ds = p + ROWS * T::PD;
    const struct dev_block b = a.block[blockIdx.x];
    const int of = blockIdx.y, each = a.n_head / a.n_head_kv, ty = threadIdx.x / TX, tx = threadIdx.x % TX;
    float dk[2][T::COLS] = {}, dv[2][T::COLS] = {};

    for (int head = of * each; head < (of + 1) * each; head++) {
        float dq[2][T::COLS] = {}, lse[2], delta[2], s[2][T::EACH], dp[2][T::EACH];

        __syncthreads();
        load_rows<D>(q, a.q, b.row, b.n, ROWS, a.n_head, head, a.head_dim, scale);
        load_rows<D>(d_o, a.d_o, b.row, b.n, ROWS, a.n_head, head, a.head_dim, 1.0f);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const bool there = 2 * ty + r < b.n;
            const int64_t at = (b.row + 2 * ty + r) * a.n_head + head;

            lse[r] = there ? a.lse[at] : INFINITY;
            delta[r] = 0;
#pragma unroll
            for (int c = 0; c < T::COLS; c++)
                if (there && tx + TX * c < a.head_dim)
                    delta[r] =
                        fmaf(d_o[(2 * ty + r) * T::LD + tx + TX * c], a.o[at * a.head_dim + tx + TX * c], delta[r]);
            delta[r] = row_sum(delta[r]);
            if (there && tx == 0)
                a.scratch[at] = delta[r];
        }
        for (int at = 0; at < (int)b.start + T::KEYS; at += T::KEYS) { /* the last tile has the own keys alone */
            const bool own = at >= (int)b.start;
            const int n = own ? b.n : (int)b.start - at;

            __syncthreads();
            if (own) {
                load_rows<D>(k, a.k, b.row, b.n, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
                load_rows<D>(v, a.v, b.row, b.n, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
            } else {
                const int some = n < T::KEYS ? n : T::KEYS;

                load_rows<D>(k, a.kc, b.context + at, some, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
                load_rows<D>(v, a.vc, b.context + at, some, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
            }
            __syncthreads();
            scores<D>(s, q, k, ty, tx);
            scores<D>(dp, d_o, v, ty, tx);
            score_gradients<D>(s, dp, lse, delta, n, tx);
            keep<D>(ds, dp, ty, tx);
            if (own)
                keep<D>(p, s, ty, tx);
            __syncwarp();
            mix_values<D>(dq, ds, k, ty, tx);
            if (own)
                break;
        }
        __syncthreads();
        for (int i = 0; i < b.n; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int c = 0; c < T::COLS; c++) {
                    const int to = i * T::LD + tx + TX * c;

                    dk[r][c] = fmaf(ds[i * T::PD + 2 * ty + r], q[to], dk[r][c]);
                    dv[r][c] = fmaf(p[i * T::PD + 2 * ty + r], d_o[to], dv[r][c]);
                }
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int c = 0; c < T::COLS; c++)
                if (2 * ty + r < b.n && tx + TX * c < a.head_dim)
                    a.dq[((b.row + 2 * ty + r) * a.n_head + head) * a.head_dim + tx + TX * c] = dq[r][c] * scale;
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int c = 0; c < T::COLS; c++)
            if (2 * ty + r < b.n && tx + TX * c < a.head_dim) {
                const int64_t at = ((b.row + 2 * ty + r) * a.n_head_kv + of) * a.head_dim + tx + TX * c;

                a.dk[at] += dk[r][c];
                a.dv[at] += dv[r][c];
            }
}

/* dkc and dvc of a tile of keys of a text: thread (ty, tx) has keys ty KEYS / 8 ..., columns tx, tx + 16 ... */
template <int D> static __global__ void __launch_bounds__(THREADS) backward_keys(struct dev_attend a, float scale)
{
    typedef struct tile<D> T;
    constexpr int MINE = T::KEYS / 8;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *d_o = q + ROWS * T::LD, *k = d_o + ROWS * T::LD, *v = k + T::KEYS * T::LD;
    float *p = v + T::KEYS * T::LD, *ds = p + ROWS * T::PD;
    const struct dev_text t = a.text[blockIdx.z];
    const int of = blockIdx.y, each = a.n_head / a.n_head_kv, ty = threadIdx.x / TX, tx = threadIdx.x % TX;
    const int at = blockIdx.x * T::KEYS, keys = (int)t.n_context - at;
    float dk[MINE][T::COLS] = {}, dv[MINE][T::COLS] = {};

    if (keys <= 0)
        return;
    load_rows<D>(k, a.kc, t.context + at, keys < T::KEYS ? keys : T::KEYS, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
    load_rows<D>(v, a.vc, t.context + at, keys < T::KEYS ? keys : T::KEYS, T::KEYS, a.n_head_kv, of, a.head_dim, 1.0f);
    for (int i = t.first; i < t.first + t.n; i++) {
        const struct dev_block b = a.block[i];

        if (b.start <= at)
            continue;
        for (int head = of * each; head < (of + 1) * each; head++) {
            float s[2][T::EACH], dp[2][T::EACH], lse[2], delta[2];

            __syncthreads();
            load_rows<D>(q, a.q, b.row, b.n, ROWS, a.n_head, head, a.head_dim, scale);
            load_rows<D>(d_o, a.d_o, b.row, b.n, ROWS, a.n_head, head, a.head_dim, 1.0f);
            __syncthreads();
            for (int r = 0; r < 2; r++) {
                const bool there = 2 * ty + r < b.n;
                const int64_t row = (b.row + 2 * ty + r) * a.n_head + head;

                lse[r] = there ? a.lse[row] : INFINITY;
                delta[r] = there ? a.scratch[row] : 0.0f;
            }
            scores<D>(s, q, k, ty, tx);
            scores<D>(dp, d_o, v, ty, tx);
            score_gradients<D>(s, dp, lse, delta, (int)b.start - at, tx);
            keep<D>(p, s, ty, tx);
            keep<D>(ds, dp, ty, tx);
            __syncthreads();
            for (int r = 0; r < b.n; r++) {
                float x[T::COLS], y[T::COLS];

#pragma unroll
                for (int c = 0; c < T::COLS; c++) {
                    x[c] = q[r * T::LD + tx + TX * c];
                    y[c] = d_o[r * T::LD + tx + TX * c];
                }
#pragma unroll
                for (int j = 0; j < MINE; j++) {
                    const float g = ds[r * T::PD + ty * MINE + j], w = p[r * T::PD + ty * MINE + j];

#pragma unroll
                    for (int c = 0; c < T::COLS; c++) {
                        dk[j][c] = fmaf(g, x[c], dk[j][c]);
                        dv[j][c] = fmaf(w, y[c], dv[j][c]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < MINE; j++)
#pragma unroll
        for (int c = 0; c < T::COLS; c++)
            if (ty * MINE + j < keys && tx + TX * c < a.head_dim) {
                const int64_t to = ((t.context + at + ty * MINE + j) * a.n_head_kv + of) * a.head_dim + tx + TX * c;

                a.dkc[to] += dk[j][c];
                a.dvc[to] += dv[j][c];
            }
}

/* ---- launches ---- */

static float scale_of(const struct dev_attend *a)
{
    return 1.0f / sqrtf((float)a->head_dim);
}

template <int D> static void launch_forward(struct cuda_math *c, const struct dev_attend *a)
{
    typedef struct tile<D> T;
    const size_t bytes = (size_t)(ROWS * (T::LD + T::PD) + 2 * T::KEYS * T::LD) * sizeof(float);

    MATH_TRY(c, cudaFuncSetAttribute(forward<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    MATH_LAUNCH(c, forward<D>, dim3((unsigned)a->n_block, (unsigned)a->n_head), THREADS, bytes, *a, scale_of(a));
}

template <int D> static void launch_backward(struct cuda_math *c, const struct dev_attend *a)
{
    typedef struct tile<D> T;
    const size_t bytes = (size_t)(2 * ROWS * (T::LD + T::PD) + 2 * T::KEYS * T::LD) * sizeof(float);

    MATH_TRY(c, cudaFuncSetAttribute(backward_rows<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    MATH_TRY(c, cudaFuncSetAttribute(backward_keys<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    MATH_LAUNCH(c, backward_rows<D>, dim3((unsigned)a->n_block, (unsigned)a->n_head_kv), THREADS, bytes, *a,
                scale_of(a));
    if (a->seen_max > 0)
        MATH_LAUNCH(c, backward_keys<D>,
                    dim3(math_grid(a->seen_max, T::KEYS), (unsigned)a->n_head_kv, (unsigned)a->n_text), THREADS, bytes,
                    *a, scale_of(a));
}

#define BY_DIM(dim, launch) \
    ((dim) <= 16    ? launch<16> \
     : (dim) <= 32  ? launch<32> \
     : (dim) <= 64  ? launch<64> \
     : (dim) <= 128 ? launch<128> \
                    : launch<256>)

static void attend(struct dev_math *m, const struct dev_attend *a)
{
    if (a->n_block > 0)
        BY_DIM(a->head_dim, launch_forward)(cuda_math_of(m), a);
}

static void attend_back(struct dev_math *m, const struct dev_attend *a)
{
    if (a->n_block > 0)
        BY_DIM(a->head_dim, launch_backward)(cuda_math_of(m), a);
}

static int64_t attend_floats(const struct dev_math *, int64_t rows, int n_head, int64_t)
{
    return rows * n_head;
}

void cuda_math_attend(struct dev_math *m)
{
    m->attend = attend;
    m->attend_back = attend_back;
    m->attend_floats = attend_floats;
}
