/* SPDX-License-Identifier: Apache-2.0 */
/* rec.cu - recurrent layers: causal convolution, and the recurrences token by token.
 *
 * The delta rules and Mamba-2 keep a matrix S of [dim][columns] for each head; columns are independent of each
 * other. A sum over the elements of a column is eight sums, each over every eighth element in order, which are then
 * folded: p and p + 4, then 0 and 1, 2 and 3, then those two. Four lanes share a column, two of the sums each, or eight
 * lanes two columns. */
#include "kernels/fused.cuh"

/* ---- convolution ---- */

struct conv_args {
    float         *y;
    const float   *x;
    int64_t        ys, xs;
    struct op_conv a;
    struct rows    r;
    int            channels, tile;
};
enum { TAPS = 16, CONV_TILE = 16 };

/* Input j rows before the sequence's row t; j <= taps - 1. */
static __device__ __forceinline__ float conv_in(const conv_args &a, const op_seq &s, int t, int c, const float *past)
{
    return t < 0 ? past[(int64_t)(a.a.taps - 1 + t) * a.channels + c] : a.x[(s.row + t) * a.xs + c];
}

static __device__ __forceinline__ void conv_update(const conv_args &a, const op_seq &s, int c, float *past)
{
    float keep[TAPS];
    int old = a.a.taps - 1;

    for (int j = 0; j < old; j++)
        keep[j] = conv_in(a, s, s.n - old + j, c, past);
    for (int j = 0; j < old; j++)
        past[(int64_t)j * a.channels + c] = keep[j];
}

/* grid: channels, sequence, tile of rows; one tile: updates the memory too. */
template <bool ONE>
__global__ void __launch_bounds__(128) conv(const __grid_constant__ conv_args a)
{
    int c = blockIdx.x * 128 + threadIdx.x, taps = a.a.taps;
    const op_seq &s = a.r.seq[blockIdx.y];
    float *past = a.a.rec.data + s.slot * a.a.rec.floats;
    int t0 = ONE ? 0 : (int)blockIdx.z * CONV_TILE, t1 = ONE ? s.n : t0 + CONV_TILE < s.n ? t0 + CONV_TILE : s.n;

    if (c >= a.channels || t0 >= s.n)
        return;
    for (int t = t0; t < t1; t++) {
        float sum = a.a.bias == NULL ? 0.0f : a.a.bias[c];

        for (int j = 0; j < taps; j++)
            sum = __fmaf_rn(a.a.w[(int64_t)j * a.channels + c], conv_in(a, s, t - taps + 1 + j, c, past), sum);
        a.y[(s.row + t) * a.ys + c] = a.a.silu ? silu(sum) : sum;
    }
    if (ONE)
        conv_update(a, s, c, past);
}

__global__ void __launch_bounds__(128) conv_memory(const __grid_constant__ conv_args a)
{
    int c = blockIdx.x * 128 + threadIdx.x;
    const op_seq &s = a.r.seq[blockIdx.y];

    if (c < a.channels && s.n > 0)
        conv_update(a, s, c, a.a.rec.data + s.slot * a.a.rec.floats);
}

static void convolve(struct cuda *c, const struct node *v)
{
    conv_args a = { (float *)v->t[0].data, (const float *)v->t[1].data, v->t[0].stride, v->t[1].stride, v->conv,
                    v->r, (int)v->t[1].ne[0], 0 };
    dim3 grid((unsigned)ceil_div(a.channels, 128), (unsigned)v->r.n_seq, 1);

    if (v->r.max_n <= CONV_TILE) {
        LAUNCH(c, conv<true>, grid, 128, 0, a);
        return;
    }
    grid.z = (unsigned)ceil_div(v->r.max_n, CONV_TILE);
    LAUNCH(c, conv<false>, grid, 128, 0, a);
    grid.z = 1;
    LAUNCH(c, conv_memory, grid, 128, 0, a);
}

/* ---- recurrences ---- */

enum rule { GDN, KDA, SSM2 };

/* Row r, head h: k at k + r * ks + key head * dim, and so on. g and b: [rows][heads]; KDA: g [rows][heads][dim]. */
struct scan_args {
    const float *k, *q, *v, *g, *b, *d;
    int64_t      ks, qs, vs;
    float       *y;
    int64_t      ys;
    int          heads, dim, cols; /* S is [dim][cols] */
    int          n_k, each;        /* key head of h: h / each, or h % n_k where each is 0 */
    float       *state;
    int64_t      floats;
    struct rows  r;
};

enum { COLS = 32, GROUP = 8 };

static __device__ __forceinline__ float fold4(float v)
{
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 8));
    return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 16));
}

/* One token; S in registers (NI of them), element i = 4 ii + part. NI 0: S stays in memory. */
template <int RULE, int NI>
static __device__ __forceinline__ float scan_step(float *S, float *mem, int64_t pitch, int dim, int part,
                                                  const float *k, const float *q, const float *gv, float v, float g,
                                                  float b)
{
    float kv[2] = { 0.0f, 0.0f }, y[2] = { 0.0f, 0.0f }, d;
    int n = NI > 0 ? NI : (dim + 3) / 4;

    if (RULE != SSM2) {
#pragma unroll
        for (int ii = 0; ii < n; ii++) {
            int i = 4 * ii + part;

            if (i < dim) {
                float s = NI > 0 ? S[ii] : mem[i * pitch];

                kv[ii & 1] = __fmaf_rn(s, RULE == KDA ? __fmul_rn(gv[i], k[i]) : k[i], kv[ii & 1]);
            }
        }
        float all = fold4(__fadd_rn(kv[0], kv[1]));
        d = __fmul_rn(b, RULE == KDA ? __fsub_rn(v, all) : __fsub_rn(v, __fmul_rn(g, all)));
    } else {
        d = __fmul_rn(b, v); /* dt x */
    }
#pragma unroll
    for (int ii = 0; ii < n; ii++) {
        int i = 4 * ii + part;

        if (i < dim) {
            float s = NI > 0 ? S[ii] : mem[i * pitch];

            s = __fmaf_rn(k[i], d, __fmul_rn(RULE == KDA ? gv[i] : g, s));
            if (NI > 0)
                S[ii] = s;
            else
                mem[i * pitch] = s;
            y[ii & 1] = __fmaf_rn(s, q[i], y[ii & 1]);
        }
    }
    return fold4(__fadd_rn(y[0], y[1]));
}

/* Any dim; S in memory. grid: columns, head, sequence */
template <int RULE>
__global__ void __launch_bounds__(128) scan(const __grid_constant__ scan_args a)
{
    extern __shared__ float shared[];
    const op_seq &s = a.r.seq[blockIdx.z];
    int lane = threadIdx.x & 31, part = lane / 8, local = threadIdx.x / 32 * 8 + lane % 8;
    int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k, dim = a.dim;
    float *ks = shared, *qs = ks + GROUP * dim, *gs = qs + GROUP * dim;
    float *vs = gs + (RULE == KDA ? GROUP * dim : 0), *gb = vs + GROUP * COLS;
    float *mem = a.state + s.slot * a.floats + (int64_t)h * dim * a.cols + (col < a.cols ? col : 0);

    if (s.n == 0)
        return;
    for (int t0 = 0; t0 < s.n; t0 += GROUP) {
        int n = s.n - t0 < GROUP ? s.n - t0 : GROUP;

        __syncthreads();
        for (int i = threadIdx.x; i < n * dim; i += 128) {
            int64_t row = s.row + t0 + i / dim;
            int e = i % dim;

            ks[i] = a.k[row * a.ks + (int64_t)hk * dim + e];
            qs[i] = a.q[row * a.qs + (int64_t)hk * dim + e];
            if (RULE == KDA)
                gs[i] = a.g[(row * a.heads + h) * dim + e];
        }
        for (int i = threadIdx.x; i < n * COLS; i += 128) {
            int64_t row = s.row + t0 + i / COLS;
            int e = (int)blockIdx.x * COLS + i % COLS;

            vs[i] = e < a.cols ? a.v[row * a.vs + (int64_t)h * a.cols + e] : 0.0f;
        }
        for (int i = threadIdx.x; i < n; i += 128) {
            int64_t row = s.row + t0 + i;

            gb[2 * i] = RULE == KDA ? 0.0f : a.g[row * a.heads + h];
            gb[2 * i + 1] = a.b[row * a.heads + h];
        }
        __syncthreads();
        for (int t = 0; t < n; t++) {
            float v = vs[t * COLS + local];
            float y = scan_step<RULE, 0>(NULL, mem, a.cols, col < a.cols ? dim : 0, part, ks + t * dim, qs + t * dim,
                                         gs + t * dim, v, gb[2 * t], gb[2 * t + 1]);

            if (RULE == SSM2)
                y = __fmaf_rn(a.d[h], v, y);
            if (part == 0 && col < a.cols)
                a.y[(s.row + t0 + t) * a.ys + (int64_t)h * a.cols + col] = y;
        }
    }
}

/* ---- several rows: eight lanes share two columns, element i = 8 e + p of lane p ---- */

/* A row's elements in shared memory: those of a lane together, the lanes' apart by a number of 16 bytes that is odd. */
static __host__ __device__ inline int lane_pitch(int dim)
{
    return (dim / 8 + 3) / 4 % 2 == 0 ? dim / 8 + 4 : (dim / 8 + 3) / 4 * 4;
}

template <int NE>
static __device__ __forceinline__ void lane_elements(float *v, const float *row, int p, int pitch)
{
#pragma unroll
    for (int e = 0; e < NE; e += 4) {
        float4 f = *(const float4 *)(row + p * pitch + e);

        v[e] = f.x;
        v[e + 1] = f.y;
        v[e + 2] = f.z;
        v[e + 3] = f.w;
    }
}

static __device__ __forceinline__ float fold8(float v)
{
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 4));
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

/* Sums of 8 rows and 2 columns, folded together: lane p gets those of row fold_row(p). */
static __device__ __forceinline__ int fold_row(int p)
{
    return (p & 4) | (p & 1) << 1 | (p & 2) >> 1;
}

static __device__ __forceinline__ void fold_rows(float y[2 * GROUP], int p)
{
#pragma unroll
    for (int left = GROUP; left >= 2; left /= 2) {
        int bit = left == 8 ? 4 : left == 4 ? 1 : 2;
        bool upper = p & bit;

#pragma unroll
        for (int j = 0; j < left; j++) {
            float keep = upper ? y[j + left] : y[j], send = upper ? y[j] : y[j + left];

            y[j] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, bit));
        }
    }
}

/* Where a group of rows lies in shared memory. */
template <int RULE> struct group_space {
    float *k, *q, *g, *v, *gb;
    __device__ __forceinline__ group_space(float *at, int row)
    {
        k = at;
        q = k + GROUP * row;
        g = q + GROUP * row;
        v = g + (RULE == KDA ? GROUP * row : 0);
        gb = v + GROUP * COLS;
    }
};
static __host__ __device__ inline int group_floats(int rule, int dim)
{
    return GROUP * ((rule == KDA ? 3 : 2) * 8 * lane_pitch(dim) + COLS + 2);
}

/* A group's inputs on their way to shared memory. */
template <int RULE, int NE> struct group_inputs {
    enum { EACH = GROUP * NE * 8 / 128 };
    float k[EACH], q[EACH], g[RULE == KDA ? (int)EACH : 1], v[2], gb;

    __device__ __forceinline__ void read(const scan_args &a, int64_t row, int n, int h, int hk)
    {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int i = (int)threadIdx.x + 128 * j, t = i / a.dim, e = i % a.dim;

            if (t < n) {
                k[j] = a.k[(row + t) * a.ks + (int64_t)hk * a.dim + e];
                q[j] = a.q[(row + t) * a.qs + (int64_t)hk * a.dim + e];
                if (RULE == KDA)
                    g[RULE == KDA ? j : 0] = a.g[((row + t) * a.heads + h) * a.dim + e];
            }
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int i = (int)threadIdx.x + 128 * j, c = (int)blockIdx.x * COLS + i % COLS;

            if (i / COLS < n)
                v[j] = c < a.cols ? a.v[(row + i / COLS) * a.vs + (int64_t)h * a.cols + c] : 0.0f;
        }
        if ((int)threadIdx.x / 2 < n && !(RULE == KDA && threadIdx.x % 2 == 0))
            gb = (threadIdx.x % 2 == 0 ? a.g : a.b)[(row + threadIdx.x / 2) * a.heads + h];
    }

    __device__ __forceinline__ void put(const group_space<RULE> &s, int dim, int n)
    {
        const int pitch = lane_pitch(dim);

#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int i = (int)threadIdx.x + 128 * j, t = i / dim, e = i % dim, at = (t * 8 + e % 8) * pitch + e / 8;

            if (t < n) {
                s.k[at] = k[j];
                s.q[at] = q[j];
                if (RULE == KDA)
                    s.g[at] = g[RULE == KDA ? j : 0];
            }
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
            if ((int)threadIdx.x + 128 * j < n * COLS)
                s.v[threadIdx.x + 128 * j] = v[j];
        if ((int)threadIdx.x / 2 < n)
            s.gb[threadIdx.x] = RULE == KDA && threadIdx.x % 2 == 0 ? 0.0f : gb;
    }
};

/* One row: S of two columns, and the lane's part of y of both. */
template <int RULE, int NE>
static __device__ __forceinline__ void scan_row(float S[2][NE], float y[2], const group_space<RULE> &s, int t, int p,
                                                int local, int pitch)
{
    float k[NE], q[NE], g[RULE == KDA ? NE : 1], d[2], kv[2] = { 0.0f, 0.0f };
    float2 v = *(const float2 *)(s.v + t * COLS + local), gb = *(const float2 *)(s.gb + 2 * t);

    lane_elements<NE>(k, s.k + t * 8 * pitch, p, pitch);
    lane_elements<NE>(q, s.q + t * 8 * pitch, p, pitch);
    if (RULE == KDA)
        lane_elements<RULE == KDA ? NE : 0>(g, s.g + t * 8 * pitch, p, pitch);
    if (RULE != SSM2) {
#pragma unroll
        for (int e = 0; e < NE; e++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                kv[c] = __fmaf_rn(S[c][e], RULE == KDA ? __fmul_rn(g[RULE == KDA ? e : 0], k[e]) : k[e], kv[c]);
        kv[0] = fold8(kv[0]);
        kv[1] = fold8(kv[1]);
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float in = c == 0 ? v.x : v.y;

        d[c] = __fmul_rn(gb.y, RULE == SSM2 ? in : RULE == KDA ? __fsub_rn(in, kv[c]) : __fsub_rn(in, __fmul_rn(gb.x, kv[c])));
        y[c] = 0.0f;
    }
#pragma unroll
    for (int e = 0; e < NE; e++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            S[c][e] = __fmaf_rn(k[e], d[c], __fmul_rn(RULE == KDA ? g[RULE == KDA ? e : 0] : gb.x, S[c][e]));
            y[c] = __fmaf_rn(S[c][e], q[e], y[c]);
        }
}

/* grid: columns, head, sequence; dim = 8 NE */
template <int RULE, int NE>
__global__ void __launch_bounds__(128) scan_rows(const __grid_constant__ scan_args a)
{
    extern __shared__ __align__(16) float shared[];
    const op_seq &s = a.r.seq[blockIdx.z];
    const int lane = threadIdx.x & 31, p = lane & 7, local = threadIdx.x / 32 * 8 + lane / 8 * 2, pitch = lane_pitch(8 * NE);
    const int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k;
    float *mem = a.state + s.slot * a.floats + (int64_t)h * a.dim * a.cols + col, S[2][NE];
    group_inputs<RULE, NE> in;

    if (s.n == 0)
        return;
    in.read(a, s.row, min(s.n, (int)GROUP), h, hk);
#pragma unroll
    for (int e = 0; e < NE; e++)
#pragma unroll
        for (int c = 0; c < 2; c++)
            S[c][e] = col + c < a.cols ? mem[(int64_t)(8 * e + p) * a.cols + c] : 0.0f;
    for (int t0 = 0; t0 < s.n; t0 += GROUP) {
        group_space<RULE> at(shared + t0 / GROUP % 2 * group_floats(RULE, 8 * NE), 8 * pitch);
        int n = min(s.n - t0, (int)GROUP);
        float y[2 * GROUP];

        in.put(at, 8 * NE, n);
        __syncthreads();
        if (t0 + GROUP < s.n)
            in.read(a, s.row + t0 + GROUP, min(s.n - t0 - GROUP, (int)GROUP), h, hk);
        if (n == GROUP) { /* without branches reads go ahead */
#pragma unroll
            for (int t = 0; t < GROUP; t++)
                scan_row<RULE, NE>(S, y + 2 * t, at, t, p, local, pitch);
        } else {
#pragma unroll
            for (int t = 0; t < GROUP; t++) {
                y[2 * t] = y[2 * t + 1] = 0.0f;
                if (t < n)
                    scan_row<RULE, NE>(S, y + 2 * t, at, t, p, local, pitch);
            }
        }
        fold_rows(y, p);
        int t = fold_row(p);
#pragma unroll
        for (int c = 0; c < 2; c++)
            if (t < n && col + c < a.cols) {
                if (RULE == SSM2)
                    y[c] = __fmaf_rn(a.d[h], at.v[t * COLS + local + c], y[c]);
                a.y[(s.row + t0 + t) * a.ys + (int64_t)h * a.cols + col + c] = y[c];
            }
    }
#pragma unroll
    for (int e = 0; e < NE; e++)
#pragma unroll
        for (int c = 0; c < 2; c++)
            if (col + c < a.cols)
                mem[(int64_t)(8 * e + p) * a.cols + c] = S[c][e];
}

/* Normalised keys and queries, decays and betas of every row: a warp a row and head. */
struct prep_args {
    const float *x, *alpha, *beta, *a, *dt_bias;
    int64_t      xs, as, bs;
    float       *k, *q, *g, *b;
    int          n_k, n_v, dim, rule;
    float        eps;
    int64_t      items;
};

static __device__ void l2_norm(float *y, const float *x, int n, float eps, float s)
{
    float sum = 0.0f;

    for (int i = threadIdx.x & 31; i < n; i += 32)
        sum = __fmaf_rn(x[i], x[i], sum);
    float f = __fdiv_rn(s, __fsqrt_rn(__fadd_rn(warp_sum(sum), eps)));
    for (int i = threadIdx.x & 31; i < n; i += 32)
        y[i] = __fmul_rn(x[i], f);
}

__global__ void __launch_bounds__(256) prep(prep_args a)
{
    int64_t item = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, r = item / a.n_v;
    int h = (int)(item % a.n_v), lane = threadIdx.x & 31;

    if (item >= a.items)
        return;
    if (a.rule != SSM2 && h < a.n_k) {
        const float *x = a.x + r * a.xs + (int64_t)h * a.dim;
        int64_t at = (r * a.n_k + h) * a.dim;

        l2_norm(a.q + at, x, a.dim, a.eps, __fdiv_rn(1.0f, __fsqrt_rn((float)a.dim)));
        l2_norm(a.k + at, x + (int64_t)a.n_k * a.dim, a.dim, a.eps, 1.0f);
    }
    if (a.rule == KDA) {
        for (int i = lane; i < a.dim; i += 32) {
            int64_t e = (int64_t)h * a.dim + i;

            a.g[r * a.n_v * a.dim + e] =
                expf(__fmul_rn(a.a[h], softplus(__fadd_rn(a.alpha[r * a.as + e], a.dt_bias[e]))));
        }
    } else if (lane == 0) {
        float dt = softplus(__fadd_rn(a.alpha[r * a.as + h], a.dt_bias[h]));

        a.g[r * a.n_v + h] = expf(__fmul_rn(a.a[h], dt));
        if (a.rule == SSM2)
            a.b[r * a.n_v + h] = dt;
    }
    if (a.rule != SSM2 && lane == 0)
        a.b[r * a.n_v + h] = sigmoid(a.beta[r * a.bs + h]);
}

template <int RULE, int NE>
static void launch_rows(struct cuda *c, const scan_args &a, dim3 grid)
{
    size_t smem = 2 * (size_t)group_floats(RULE, 8 * NE) * sizeof(float);

    cuda_fail(c, cudaFuncSetAttribute(scan_rows<RULE, NE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
              "scan_rows");
    LAUNCH(c, (scan_rows<RULE, NE>), grid, 128, smem, a);
}

template <int RULE>
static void launch_scan(struct cuda *c, const scan_args &a)
{
    size_t smem = (size_t)GROUP * (size_t)((RULE == KDA ? 3 : 2) * a.dim + COLS + 2) * sizeof(float);
    dim3 grid((unsigned)ceil_div(a.cols, COLS), (unsigned)a.heads, (unsigned)a.r.n_seq);

    if (a.dim == 32)
        launch_rows<RULE, 4>(c, a, grid);
    else if (a.dim == 64)
        launch_rows<RULE, 8>(c, a, grid);
    else if (a.dim == 128)
        launch_rows<RULE, 16>(c, a, grid);
    else if (a.dim == 256)
        launch_rows<RULE, 32>(c, a, grid);
    else {
        cuda_fail(c, cudaFuncSetAttribute(scan<RULE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
                  "scan");
        LAUNCH(c, scan<RULE>, grid, 128, smem, a);
    }
}

static void delta(struct cuda *c, const struct node *v, bool kda)
{
    const struct tensor &y = v->t[0], &x = v->t[1], &alpha = v->t[2], &beta = v->t[3];
    int64_t n = v->r.n;
    int n_k = kda ? v->kda.n_head : v->gdn.n_k, n_v = kda ? v->kda.n_head : v->gdn.n_v;
    int dim = kda ? v->kda.dim : v->gdn.dim, dim_v = kda ? dim : v->gdn.dim_v;
    const struct op_rec &rec = kda ? v->kda.rec : v->gdn.rec;
    float *k = (float *)c->ws, *q = k + n * n_k * dim, *b = q + n * n_k * dim, *g = b + n * n_v;
    prep_args p = { (const float *)x.data, (const float *)alpha.data, (const float *)beta.data,
                    kda ? v->kda.a : v->gdn.a, kda ? v->kda.dt_bias : v->gdn.dt_bias, x.stride, alpha.stride,
                    beta.stride, k, q, g, b, n_k, n_v, dim, kda ? KDA : GDN, kda ? v->kda.eps : v->gdn.eps, n * n_v };
    int64_t inner = (int64_t)n_k * dim;
    scan_args s = { k, q, (const float *)x.data + 2 * inner, g, b, NULL, inner, inner, x.stride, (float *)y.data,
                    y.stride, n_v, dim, dim_v, n_k, !kda && !v->gdn.k_grouped ? 0 : n_v / n_k, rec.data, rec.floats,
                    v->r };

    LAUNCH(c, prep, (unsigned)ceil_div(p.items, 8), 256, 0, p);
    if (kda)
        launch_scan<KDA>(c, s);
    else
        launch_scan<GDN>(c, s);
}

static void mamba2(struct cuda *c, const struct node *v)
{
    const struct op_ssm2 &a = v->ssm2;
    const struct tensor &y = v->t[0], &x = v->t[1], &dt = v->t[2];
    int64_t n = v->r.n, inner = (int64_t)a.n_head * a.dim;
    float *g = (float *)c->ws, *b = g + n * a.n_head;
    const float *xd = (const float *)x.data;
    prep_args p = { xd, (const float *)dt.data, NULL, a.a, a.dt_bias, x.stride, dt.stride, 0, NULL, NULL, g, b, 0,
                    a.n_head, 0, SSM2, 0.0f, n * a.n_head };
    scan_args s = { xd + inner, xd + inner + (int64_t)a.n_group * a.n_state, xd, g, b, a.d, x.stride, x.stride,
                    x.stride, (float *)y.data, y.stride, a.n_head, a.n_state, a.dim, a.n_group,
                    a.n_head / a.n_group, a.rec.data, a.rec.floats, v->r };

    LAUNCH(c, prep, (unsigned)ceil_div(p.items, 8), 256, 0, p);
    launch_scan<SSM2>(c, s);
}

struct ssm1_args {
    float         *y;
    const float   *x, *dt, *b, *c;
    int64_t        ys, xs, ds, bs, cs;
    struct op_ssm1 a;
    struct rows    r;
    int            channels;
};

/* A thread a channel; states in registers up to 16, else in memory. */
template <bool REGS>
__global__ void __launch_bounds__(64) mamba1(const __grid_constant__ ssm1_args a)
{
    enum { N = 16 };
    int c = blockIdx.x * 64 + threadIdx.x, n = a.a.n_state;
    const op_seq &s = a.r.seq[blockIdx.y];
    float *mem = a.a.rec.data + s.slot * a.a.rec.floats + c, h[N], decay[N];

    if (c >= a.channels)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        h[i] = REGS && i < n ? mem[(int64_t)i * a.channels] : 0.0f;
        decay[i] = REGS && i < n ? a.a.a[(int64_t)i * a.channels + c] : 0.0f;
    }
    for (int t = 0; t < s.n; t++) {
        int64_t row = s.row + t;
        float x = a.x[row * a.xs + c], dt = softplus(__fadd_rn(a.dt[row * a.ds + c], a.a.dt_bias[c]));
        float y = __fmul_rn(a.a.d[c], x), in = __fmul_rn(dt, x);
        const float *b = a.b + row * a.bs, *cc = a.c + row * a.cs;

        if (REGS) {
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i < n) {
                    h[i] = __fmaf_rn(expf(__fmul_rn(dt, decay[i])), h[i], __fmul_rn(in, b[i]));
                    y = __fmaf_rn(h[i], cc[i], y);
                }
        } else {
            for (int i = 0; i < n; i++) {
                float *p = mem + (int64_t)i * a.channels;
                float e = expf(__fmul_rn(dt, a.a.a[(int64_t)i * a.channels + c]));

                *p = __fmaf_rn(e, *p, __fmul_rn(in, b[i]));
                y = __fmaf_rn(*p, cc[i], y);
            }
        }
        a.y[row * a.ys + c] = y;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (REGS && i < n)
            mem[(int64_t)i * a.channels] = h[i];
}

static void selective(struct cuda *c, const struct node *v)
{
    const struct tensor *t = v->t;
    ssm1_args a = { (float *)t[0].data, (const float *)t[1].data, (const float *)t[2].data, (const float *)t[3].data,
                    (const float *)t[4].data, t[0].stride, t[1].stride, t[2].stride, t[3].stride, t[4].stride,
                    v->ssm1, v->r, (int)t[1].ne[0] };
    dim3 grid((unsigned)ceil_div(a.channels, 64), (unsigned)v->r.n_seq);

    if (v->ssm1.n_state <= 16)
        LAUNCH(c, mamba1<true>, grid, 64, 0, a);
    else
        LAUNCH(c, mamba1<false>, grid, 64, 0, a);
}

/* ---- one row: convolution, normalisation and delta rule at once ---- */

enum { CHANNELS = 3 }; /* of a thread: 2 dim + COLS channels, dim up to 128 */
struct one_args {
    conv_args conv;
    prep_args prep;
    scan_args scan;
};

template <int NI>
__global__ void __launch_bounds__(128) one_gdn(const __grid_constant__ one_args a)
{
    extern __shared__ float shared[];
    const scan_args &n = a.scan;
    const op_seq &s = n.r.seq[0];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, part = lane / 8, local = warp * 8 + lane % 8, dim = n.dim;
    int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = n.each > 0 ? h / n.each : h % n.n_k;
    float *q = shared, *k = q + dim, *v = k + dim, *gb = v + COLS, S[NI];

    /* the memories are of earlier steps: they may be read before the launch before this one has ended */
    float *mem = n.state + s.slot * n.floats + (int64_t)h * dim * n.cols + (col < n.cols ? col : 0);
    const float *past = a.conv.a.rec.data + s.slot * a.conv.a.rec.floats;
    const int taps = a.conv.a.taps;
    float early[CHANNELS], last[CHANNELS];
    int channel[CHANNELS];
#pragma unroll
    for (int ii = 0; ii < NI; ii++)
        S[ii] = col < n.cols && 4 * ii + part < dim ? mem[(int64_t)(4 * ii + part) * n.cols] : 0.0f;
#pragma unroll
    for (int m = 0; m < CHANNELS; m++) {
        int i = (int)threadIdx.x + 128 * m, e = i - 2 * dim;
        bool in = i < 2 * dim + COLS && (i < 2 * dim || (int)blockIdx.x * COLS + e < n.cols);
        int c = i < dim ? hk * dim + i
              : i < 2 * dim ? (n.n_k + hk) * dim + i - dim
                            : 2 * n.n_k * dim + h * n.cols + (int)blockIdx.x * COLS + e;

        channel[m] = in ? c : -1;
        early[m] = last[m] = 0.0f;
        if (!in)
            continue;
        early[m] = a.conv.a.bias == NULL ? 0.0f : a.conv.a.bias[c];
        last[m] = a.conv.a.w[(int64_t)(taps - 1) * a.conv.channels + c];
        for (int j = 0; j + 1 < taps; j++)
            early[m] = __fmaf_rn(a.conv.a.w[(int64_t)j * a.conv.channels + c], past[(int64_t)j * a.conv.channels + c],
                                 early[m]);
    }
    wait_for_inputs();
    const float *row = a.conv.x + s.row * a.conv.xs;
    float in[CHANNELS], alpha = a.prep.alpha[s.row * a.prep.as + h], beta = a.prep.beta[s.row * a.prep.bs + h];
#pragma unroll
    for (int m = 0; m < CHANNELS; m++)
        in[m] = channel[m] >= 0 ? row[channel[m]] : 0.0f;
#pragma unroll
    for (int m = 0; m < CHANNELS; m++)
        if (channel[m] >= 0) {
            float sum = __fmaf_rn(last[m], in[m], early[m]);

            shared[threadIdx.x + 128 * m] = a.conv.a.silu ? silu(sum) : sum;
        }
    __syncthreads();
    if (warp == 0)
        l2_norm(q, q, dim, a.prep.eps, __fdiv_rn(1.0f, __fsqrt_rn((float)dim)));
    else if (warp == 1)
        l2_norm(k, k, dim, a.prep.eps, 1.0f);
    else if (warp == 2 && lane == 0) {
        float dt = softplus(__fadd_rn(alpha, a.prep.dt_bias[h]));

        gb[0] = expf(__fmul_rn(a.prep.a[h], dt));
        gb[1] = sigmoid(beta);
    }
    __syncthreads();
    float y = scan_step<GDN, NI>(S, mem, n.cols, col < n.cols ? dim : 0, part, k, q, NULL, v[local], gb[0], gb[1]);
    if (part == 0 && col < n.cols)
        n.y[s.row * n.ys + (int64_t)h * n.cols + col] = y;
#pragma unroll
    for (int ii = 0; ii < NI; ii++)
        if (col < n.cols && 4 * ii + part < dim)
            mem[(int64_t)(4 * ii + part) * n.cols] = S[ii];
}

bool cuda_fused_gdn(struct cuda *c, const struct node *cv, const struct node *g)
{
    const struct op_gdn &d = g->gdn;
    one_args a = {};
    size_t smem = (size_t)(2 * d.dim + COLS + 2) * sizeof(float);
    dim3 grid((unsigned)ceil_div(d.dim_v, COLS), (unsigned)d.n_v);

    if (d.dim > 128 || d.dim % 4 != 0)
        return false;
    a.conv = (conv_args){ NULL, (const float *)cv->t[1].data, 0, cv->t[1].stride, cv->conv, cv->r,
                          (int)cv->t[1].ne[0], 0 };
    a.prep.alpha = (const float *)g->t[2].data;
    a.prep.beta = (const float *)g->t[3].data;
    a.prep.a = d.a;
    a.prep.dt_bias = d.dt_bias;
    a.prep.as = g->t[2].stride;
    a.prep.bs = g->t[3].stride;
    a.prep.eps = d.eps;
    a.scan.y = (float *)g->t[0].data;
    a.scan.ys = g->t[0].stride;
    a.scan.heads = d.n_v;
    a.scan.dim = d.dim;
    a.scan.cols = d.dim_v;
    a.scan.n_k = d.n_k;
    a.scan.each = d.k_grouped ? d.n_v / d.n_k : 0;
    a.scan.state = d.rec.data;
    a.scan.floats = d.rec.floats;
    a.scan.r = g->r;
    if (d.dim <= 32)
        launch_early(c, "one_gdn", one_gdn<8>, grid, 128, smem, a);
    else if (d.dim <= 64)
        launch_early(c, "one_gdn", one_gdn<16>, grid, 128, smem, a);
    else
        launch_early(c, "one_gdn", one_gdn<32>, grid, 128, smem, a);
    return true;
}

size_t cuda_rec_ws(const struct node *v)
{
    size_t n = (size_t)v->r.n, f = sizeof(float);

    switch (v->op) {
    case DEV_OP_gdn: return n * (size_t)(2 * v->gdn.n_k * v->gdn.dim + 2 * v->gdn.n_v) * f;
    case DEV_OP_kda: return n * (size_t)(3 * v->kda.n_head * v->kda.dim + v->kda.n_head) * f;
    case DEV_OP_ssm2: return n * (size_t)(2 * v->ssm2.n_head) * f;
    default: return 0;
    }
}

void cuda_rec(struct cuda *c, const struct node *v)
{
    switch (v->op) {
    case DEV_OP_conv: convolve(c, v); break;
    case DEV_OP_gdn: delta(c, v, false); break;
    case DEV_OP_kda: delta(c, v, true); break;
    case DEV_OP_ssm1: selective(c, v); break;
    default: mamba2(c, v); break;
    }
}
