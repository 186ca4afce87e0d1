/* SPDX-License-Identifier: Apache-2.0 */
/* scan.cu - the delta rules and Mamba-2, token by token.
 *
 * A head keeps a matrix S of [dim][columns]; columns are independent of each other. Where dim is 32, 64, 128 or 256,
 * eight lanes share two columns, lane p the p-th eighth of their elements. A sum over a column is sixteen sums, over
 * the even and over the odd elements of each eighth, which are then folded: even and odd, eighths p and p + 4, then
 * 0 and 1, 2 and 3, then those two. A lane takes its elements four at a time and begins with the group that spares the
 * eight lanes meeting in a bank of shared memory. Of another dim a sum is eight sums, each over every eighth element,
 * folded likewise. One row: gdn_row.cu, in the same order. */
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

/* ---- dim a power of two: eight lanes share two columns ---- */

/* S of columns col and col + 1, or back to memory. */
template <int NE>
static __device__ __forceinline__ void load_state(float S[2][NE], const float *mem, int cols, int col, int p)
{
#pragma unroll
    for (int e = 0; e < NE; e++) {
        const float *at = mem + (int64_t)element_at<NE>(p, e) * cols + col;
        float2 two = make_float2(0.0f, 0.0f);

        if (cols % 2 == 0 && col < cols) {
            two = *(const float2 *)at;
        } else {
            two.x = col < cols ? at[0] : 0.0f;
            two.y = col + 1 < cols ? at[1] : 0.0f;
        }
        S[0][e] = two.x;
        S[1][e] = two.y;
    }
}

template <int NE>
static __device__ __forceinline__ void store_state(float *mem, const float S[2][NE], int cols, int col, int p)
{
#pragma unroll
    for (int e = 0; e < NE; e++) {
        float *at = mem + (int64_t)element_at<NE>(p, e) * cols + col;

        if (cols % 2 == 0 && col < cols) {
            *(float2 *)at = make_float2(S[0][e], S[1][e]);
        } else {
            if (col < cols)
                at[0] = S[0][e];
            if (col + 1 < cols)
                at[1] = S[1][e];
        }
    }
}

/* Sums of 8 rows and 2 columns, folded together: lane p gets those of row fold_row(p). */
static __device__ __forceinline__ int fold_row(int p)
{
    return (p & 4) | (p & 1) << 1 | (p & 2) >> 1;
}

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

static __device__ __forceinline__ void fold_rows(float y[2 * GROUP], int p)
{
    fold_half<8, 4>(y, p);
    fold_half<4, 1>(y, p);
    fold_half<2, 2>(y, p);
}

/* Where a group of rows lies in shared memory: k, q and, of KDA, g by elements; v by columns; g and b. */
template <int RULE, int NE> struct group_space {
    enum { DIM = 8 * NE, FLOATS = GROUP * ((RULE == KDA ? 3 : 2) * DIM + COLS + 2) };
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

static __device__ __forceinline__ void copy_async(float *to, const float *from, bool four)
{
    if (four)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                     "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                     "l"(from));
}

/* n rows of `width` floats, `stride` apart. */
template <int WIDTH>
static __device__ __forceinline__ void copy_rows(float *to, const float *from, int64_t stride, int n)
{
    const bool four = ((uintptr_t)from % 16 | (unsigned)stride % 4) == 0;
    const int each = four ? 4 : 1;

#pragma unroll 4
    for (int i = threadIdx.x; i < GROUP * WIDTH / each; i += 128) {
        const int t = i / (WIDTH / each), e = i % (WIDTH / each) * each;

        if (t < n)
            copy_async(to + t * WIDTH + e, from + t * stride + e, four);
    }
}

/* Asks for n rows from `row` on. */
template <int RULE, int NE>
static __device__ __forceinline__ void ask_group(const group_space<RULE, NE> &to, const scan_args &a, int64_t row,
                                                 int n, int h, int hk)
{
    enum { DIM = 8 * NE };

    copy_rows<DIM>(to.k, a.k + row * a.ks + (int64_t)hk * DIM, a.ks, n);
    copy_rows<DIM>(to.q, a.q + row * a.qs + (int64_t)hk * DIM, a.qs, n);
    if (RULE == KDA)
        copy_rows<DIM>(to.g, a.g + (row * a.heads + h) * DIM, (int64_t)a.heads * DIM, n);
#pragma unroll
    for (int j = 0; j < GROUP * COLS / 128; j++) {
        const int i = (int)threadIdx.x + 128 * j, c = (int)blockIdx.x * COLS + i % COLS;

        if (i / COLS < n && c < a.cols)
            copy_async(to.v + i, a.v + (row + i / COLS) * a.vs + (int64_t)h * a.cols + c, false);
    }
    if ((int)threadIdx.x / 2 < n && !(RULE == KDA && threadIdx.x % 2 == 0))
        copy_async(to.gb + threadIdx.x, (threadIdx.x % 2 == 0 ? a.g : a.b) + (row + threadIdx.x / 2) * a.heads + h,
                   false);
    asm volatile("cp.async.commit_group;");
}

/* One row: S of two columns, and the lane's part of y of both. */
template <int RULE, int NE>
static __device__ __forceinline__ void scan_row(float S[2][NE], float y[2], const group_space<RULE, NE> &s, int t,
                                                int p, int local)
{
    float k[NE], q[NE], g[RULE == KDA ? NE : 1], d[2], kv[2][2] = {}, out[2][2] = {};
    float2 v = *(const float2 *)(s.v + t * COLS + local), gb = *(const float2 *)(s.gb + 2 * t);

    lane_elements<NE>(k, s.k + t * 8 * NE, p);
    lane_elements<NE>(q, s.q + t * 8 * NE, p);
    if constexpr (RULE == KDA)
        lane_elements<NE>(g, s.g + t * 8 * NE, p);
    if (RULE != SSM2) {
#pragma unroll
        for (int e = 0; e < NE; e++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                kv[c][e % 2] =
                    __fmaf_rn(S[c][e], RULE == KDA ? __fmul_rn(g[RULE == KDA ? e : 0], k[e]) : k[e], kv[c][e % 2]);
        kv[0][0] = fold8(__fadd_rn(kv[0][0], kv[0][1]));
        kv[1][0] = fold8(__fadd_rn(kv[1][0], kv[1][1]));
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float in = c == 0 ? v.x : v.y;

        d[c] = __fmul_rn(gb.y, RULE == SSM2  ? in
                               : RULE == KDA ? __fsub_rn(in, kv[c][0])
                                             : __fsub_rn(in, __fmul_rn(gb.x, kv[c][0])));
    }
#pragma unroll
    for (int e = 0; e < NE; e++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            S[c][e] = __fmaf_rn(k[e], d[c], __fmul_rn(RULE == KDA ? g[RULE == KDA ? e : 0] : gb.x, S[c][e]));
            out[c][e % 2] = __fmaf_rn(S[c][e], q[e], out[c][e % 2]);
        }
    y[0] = __fadd_rn(out[0][0], out[0][1]);
    y[1] = __fadd_rn(out[1][0], out[1][1]);
}

/* grid: columns, head, sequence; dim = 8 NE */
template <int RULE, int NE>
__global__ void __launch_bounds__(128) scan_rows(const __grid_constant__ scan_args a)
{
    typedef group_space<RULE, NE> space;
    extern __shared__ __align__(16) float shared[];
    const op_seq &s = a.r.seq[blockIdx.z];
    const int lane = threadIdx.x & 31, p = lane & 7, local = threadIdx.x / 32 * 8 + lane / 8 * 2;
    const int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k;
    float *mem = a.state + s.slot * a.floats + (int64_t)h * a.dim * a.cols, S[2][NE];

    if (s.n == 0)
        return;
    ask_group<RULE, NE>(space(shared), a, s.row, min(s.n, (int)GROUP), h, hk);
    load_state<NE>(S, mem, a.cols, col, p);
    for (int t0 = 0; t0 < s.n; t0 += GROUP) {
        const space at(shared + t0 / GROUP % 2 * space::FLOATS);
        const int n = min(s.n - t0, (int)GROUP);
        float y[2 * GROUP];

        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (t0 + GROUP < s.n)
            ask_group<RULE, NE>(space(shared + (t0 / GROUP + 1) % 2 * space::FLOATS), a, s.row + t0 + GROUP,
                                min(s.n - t0 - GROUP, (int)GROUP), h, hk);
        if (n == GROUP) { /* without branches reads go ahead */
#pragma unroll
            for (int t = 0; t < GROUP; t++)
                scan_row<RULE, NE>(S, y + 2 * t, at, t, p, local);
        } else {
#pragma unroll
            for (int t = 0; t < GROUP; t++) {
                y[2 * t] = y[2 * t + 1] = 0.0f;
                if (t < n)
                    scan_row<RULE, NE>(S, y + 2 * t, at, t, p, local);
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
    store_state<NE>(mem, S, a.cols, col, p);
}

template <int RULE, int NE>
static void launch_rows(struct cuda *c, const scan_args &a, dim3 grid)
{
    size_t smem = 2 * (size_t)group_space<RULE, NE>::FLOATS * sizeof(float);

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

void cuda_scan(struct cuda *c, const scan_args &a, enum rule rule)
{
    switch (rule) {
    case GDN: launch_scan<GDN>(c, a); break;
    case KDA: launch_scan<KDA>(c, a); break;
    default: launch_scan<SSM2>(c, a); break;
    }
}
