/* SPDX-License-Identifier: Apache-2.0 */
/* scan.cu - the delta rules and Mamba-2, token by token.
 *
 * A head keeps a matrix S of [dim][columns]; columns are independent of each other. Where dim is 32, 64, 128 or 256,
 * eight lanes share a column, lane p the p-th eighth of its elements. A sum over a column is sixteen sums, over
 * the even and over the odd elements of each eighth, which are then folded: even and odd, eighths p and p + 4, then
 * 0 and 1, 2 and 3, then those two. A lane takes its elements four at a time and begins with the group that spares the
 * eight lanes meeting in a bank of shared memory. Of another dim a sum is eight sums, each over every eighth element,
 * folded likewise. A few rows: gdn_row.cu, in the same order. */
#include "kernels/bulk.cuh"
#include "kernels/rec.cuh"

enum { COLS = 32, GROUP = 8 };

/* ---- any dim ---- */

static __device__ __forceinline__ float fold4(float v)
{
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 8));
    return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 16));
}

/* One token; S stays in memory; element i = 4 ii + part. */
template <int RULE>
static __device__ __forceinline__ float scan_step(float *mem, int64_t pitch, int dim, int part, const float *k,
                                                  const float *q, const float *gv, float v, float g, float b)
{
    float kv[2] = { 0.0f, 0.0f }, y[2] = { 0.0f, 0.0f }, d;
    int n = (dim + 3) / 4;

    if (RULE != SSM2) {
        for (int ii = 0; ii < n; ii++) {
            int i = 4 * ii + part;

            if (i < dim) {
                float s = mem[i * pitch];

                kv[ii & 1] = __fmaf_rn(s, RULE == KDA ? __fmul_rn(gv[i], k[i]) : k[i], kv[ii & 1]);
            }
        }
        float all = fold4(__fadd_rn(kv[0], kv[1]));
        d = __fmul_rn(b, RULE == KDA ? __fsub_rn(v, all) : __fsub_rn(v, __fmul_rn(g, all)));
    } else {
        d = __fmul_rn(b, v); /* dt x */
    }
    for (int ii = 0; ii < n; ii++) {
        int i = 4 * ii + part;

        if (i < dim) {
            float s = mem[i * pitch];

            s = __fmaf_rn(k[i], d, __fmul_rn(RULE == KDA ? gv[i] : g, s));
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
            float y = scan_step<RULE>(mem, a.cols, col < a.cols ? dim : 0, part, ks + t * dim, qs + t * dim,
                                         gs + t * dim, v, gb[2 * t], gb[2 * t + 1]);

            if (RULE == SSM2)
                y = __fmaf_rn(a.d[h], v, y);
            if (part == 0 && col < a.cols)
                a.y[(s.row + t0 + t) * a.ys + (int64_t)h * a.cols + col] = y;
        }
    }
}

/* ---- dim a power of two: eight lanes share a column ---- */

/* One step: of 2 LEFT numbers LEFT stay. */
template <int LEFT, int BIT>
static __device__ __forceinline__ void fold_half(float *y, int p)
{
#pragma unroll
    for (int j = 0; j < LEFT; j++) {
        float keep = p & BIT ? y[j + LEFT] : y[j], send = p & BIT ? y[j] : y[j + LEFT];

        y[j] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, BIT));
    }
}

/* Sums of 8 rows, folded together: lane p gets that of row fold_rows(). */
static __device__ __forceinline__ int fold_rows(float y[GROUP], int p)
{
    fold_half<4, 4>(y, p);
    fold_half<2, 1>(y, p);
    fold_half<1, 2>(y, p);
    return (p & 4) | (p & 1) << 1 | (p & 2) >> 1;
}

/* Where a group of rows lies in shared memory: k, q and, of KDA, g by elements; v by columns; g and b. */
template <int RULE, int DIM> struct group_space {
    enum { THREADS = 8 * COLS, FLOATS = GROUP * ((RULE == KDA ? 3 : 2) * DIM + COLS + 2) };
    float *k, *q, *g, *v, *gb;
    __device__ __forceinline__ explicit group_space(float *at)
    {
        k = at;
        q = k + GROUP * DIM;
        g = q + GROUP * DIM;
        v = g + (RULE == KDA ? GROUP * DIM : 0);
        gb = v + GROUP * COLS;
    }
};

/* n rows of WIDTH floats, `stride` apart. */
template <int WIDTH, int THREADS>
static __device__ __forceinline__ void copy_rows(float *to, const float *from, int64_t stride, int n)
{
    if (((uintptr_t)from % 16 | (unsigned)stride % 4) == 0) {
#pragma unroll
        for (int i = threadIdx.x * 4; i < GROUP * WIDTH; i += THREADS * 4)
            if (i / WIDTH < n)
                copy16(to + i, from + i / WIDTH * stride + i % WIDTH);
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < n * WIDTH; i += THREADS)
        copy4(to + i, from + i / WIDTH * stride + i % WIDTH);
}

/* Asks for n rows from `row` on. */
template <int RULE, int DIM>
static __device__ __forceinline__ void ask_group(const group_space<RULE, DIM> &to, const scan_args &a, int64_t row,
                                                 int n, int h, int hk)
{
    enum { THREADS = group_space<RULE, DIM>::THREADS };
    const int t = threadIdx.x / COLS, c = (int)blockIdx.x * COLS + threadIdx.x % COLS;

    static_assert((int)THREADS == GROUP * COLS, "a value a thread");
    copy_rows<DIM, THREADS>(to.k, a.k + row * a.ks + (int64_t)hk * DIM, a.ks, n);
    copy_rows<DIM, THREADS>(to.q, a.q + row * a.qs + (int64_t)hk * DIM, a.qs, n);
    if (RULE == KDA)
        copy_rows<DIM, THREADS>(to.g, a.g + (row * a.heads + h) * DIM, (int64_t)a.heads * DIM, n);
    if (t < n && c < a.cols)
        copy4(to.v + threadIdx.x, a.v + (row + t) * a.vs + (int64_t)h * a.cols + c);
    if ((int)threadIdx.x / 2 < n && !(RULE == KDA && threadIdx.x % 2 == 0))
        copy4(to.gb + threadIdx.x, (threadIdx.x % 2 == 0 ? a.g : a.b) + (row + threadIdx.x / 2) * a.heads + h);
    copy_end();
}

/* The lane's part of a row's output. */
template <int NE>
static __device__ __forceinline__ float row_out(const float S[NE], const float q[NE])
{
    float out[2] = { 0.0f, 0.0f };

#pragma unroll
    for (int e = 0; e < NE; e++)
        out[e % 2] = __fmaf_rn(S[e], q[e], out[e % 2]);
    return __fadd_rn(out[0], out[1]);
}

/* S of a column after row t, whose k is given. before: what has no part in it and may go on while lanes wait for each
 * other's sums. */
template <int RULE, int DIM, class F>
static __device__ __forceinline__ void scan_row(float S[DIM / 8], const float k[DIM / 8],
                                                const group_space<RULE, DIM> &s, int t, int p, int local, F before)
{
    enum { NE = DIM / 8 };
    const float v = s.v[t * COLS + local];
    const float2 gb = *(const float2 *)(s.gb + 2 * t);
    float g[RULE == KDA ? NE : 1], kv[2] = { 0.0f, 0.0f };

    if constexpr (RULE == KDA)
        lane_elements<NE>(g, s.g + t * DIM, p);
    if (RULE != SSM2) {
#pragma unroll
        for (int e = 0; e < NE; e++)
            kv[e % 2] = __fmaf_rn(S[e], RULE == KDA ? __fmul_rn(g[RULE == KDA ? e : 0], k[e]) : k[e], kv[e % 2]);
    }
    before();
    if (RULE != SSM2)
        kv[0] = fold8(__fadd_rn(kv[0], kv[1]));
    const float d = __fmul_rn(gb.y, RULE == SSM2  ? v
                                    : RULE == KDA ? __fsub_rn(v, kv[0])
                                                  : __fsub_rn(v, __fmul_rn(gb.x, kv[0])));
#pragma unroll
    for (int e = 0; e < NE; e++)
        S[e] = __fmaf_rn(k[e], d, __fmul_rn(RULE == KDA ? g[RULE == KDA ? e : 0] : gb.x, S[e]));
}

/* n rows; those of a whole group overlap: a row's output is summed while the next row's lanes wait. */
template <int RULE, int DIM>
static __device__ __forceinline__ void scan_group(float S[DIM / 8], float y[GROUP], const group_space<RULE, DIM> &at,
                                                  int n, int p, int local)
{
    enum { NE = DIM / 8 };
    float k[2][NE], q[2][NE];

    if (n < GROUP) {
#pragma unroll
        for (int t = 0; t < GROUP; t++) {
            y[t] = 0.0f;
            if (t >= n)
                continue;
            lane_elements<NE>(k[0], at.k + t * DIM, p);
            lane_elements<NE>(q[0], at.q + t * DIM, p);
            scan_row<RULE, DIM>(S, k[0], at, t, p, local, [] {});
            y[t] = row_out<NE>(S, q[0]);
        }
        return;
    }
    lane_elements<NE>(k[0], at.k, p);
#pragma unroll
    for (int t = 0; t < GROUP; t++) {
        lane_elements<NE>(q[t % 2], at.q + t * DIM, p);
        scan_row<RULE, DIM>(S, k[t % 2], at, t, p, local, [&] {
            if (t + 1 < GROUP)
                lane_elements<NE>(k[(t + 1) % 2], at.k + (t + 1) * DIM, p);
            if (t > 0)
                y[t - 1] = row_out<NE>(S, q[(t + 1) % 2]);
        });
    }
    y[GROUP - 1] = row_out<NE>(S, q[(GROUP - 1) % 2]);
}

/* grid: columns, head, sequence */
template <int RULE, int DIM>
__global__ void __launch_bounds__(8 * COLS) scan_rows(const __grid_constant__ scan_args a)
{
    typedef group_space<RULE, DIM> space;
    enum { NE = DIM / 8 };
    extern __shared__ __align__(16) float shared[];
    const op_seq &s = a.r.seq[blockIdx.z];
    const int p = threadIdx.x % 8, local = threadIdx.x / 8;
    const int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k;
    float *mem = a.state + s.slot * a.floats + (int64_t)h * DIM * a.cols + col, S[NE];

    if (s.n == 0)
        return;
    ask_group<RULE, DIM>(space(shared), a, s.row, min(s.n, (int)GROUP), h, hk);
#pragma unroll
    for (int e = 0; e < NE; e++)
        S[e] = col < a.cols ? mem[(int64_t)element_at<NE>(p, e) * a.cols] : 0.0f;
    for (int t0 = 0; t0 < s.n; t0 += GROUP) {
        const space at(shared + t0 / GROUP % 2 * space::FLOATS);
        const int n = min(s.n - t0, (int)GROUP);
        float y[GROUP];

        copy_wait<0>();
        __syncthreads();
        if (t0 + GROUP < s.n)
            ask_group<RULE, DIM>(space(shared + (t0 / GROUP + 1) % 2 * space::FLOATS), a, s.row + t0 + GROUP,
                                 min(s.n - t0 - GROUP, (int)GROUP), h, hk);
        scan_group<RULE, DIM>(S, y, at, n, p, local);
        const int t = fold_rows(y, p);
        if (t < n && col < a.cols) {
            if (RULE == SSM2)
                y[0] = __fmaf_rn(a.d[h], at.v[t * COLS + local], y[0]);
            a.y[(s.row + t0 + t) * a.ys + (int64_t)h * a.cols + col] = y[0];
        }
    }
#pragma unroll
    for (int e = 0; e < NE; e++)
        if (col < a.cols)
            mem[(int64_t)element_at<NE>(p, e) * a.cols] = S[e];
}

template <int RULE, int DIM>
static void launch_rows(struct cuda *c, const scan_args &a, dim3 grid)
{
    size_t smem = 2 * (size_t)group_space<RULE, DIM>::FLOATS * sizeof(float);

    cuda_fail(c, cudaFuncSetAttribute(scan_rows<RULE, DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
              "scan_rows");
    LAUNCH(c, (scan_rows<RULE, DIM>), grid, 8 * COLS, smem, a);
}

template <int RULE>
static void launch_scan(struct cuda *c, const scan_args &a)
{
    size_t smem = (size_t)GROUP * (size_t)((RULE == KDA ? 3 : 2) * a.dim + COLS + 2) * sizeof(float);
    dim3 grid((unsigned)ceil_div(a.cols, COLS), (unsigned)a.heads, (unsigned)a.r.n_seq);

    if (a.dim == 32)
        launch_rows<RULE, 32>(c, a, grid);
    else if (a.dim == 64)
        launch_rows<RULE, 64>(c, a, grid);
    else if (a.dim == 128)
        launch_rows<RULE, 128>(c, a, grid);
    else if (a.dim == 256)
        launch_rows<RULE, 256>(c, a, grid);
    else {
        cuda_fail(c, cudaFuncSetAttribute(scan<RULE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
                  "scan");
        LAUNCH(c, scan<RULE>, grid, 128, smem, a);
    }
}

void cuda_scan(struct cuda *c, const scan_args &a, enum rule rule)
{
    switch (rule) {
    case GDN: launch_scan<GDN>(c, a); break;
    case KDA: launch_scan<KDA>(c, a); break;
    default: launch_scan<SSM2>(c, a); break;
    }
}
