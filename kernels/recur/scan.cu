/* SPDX-License-Identifier: Apache-2.0 */
/* scan.cu - the delta rules and Mamba-2, token by token.
 *
 * A head keeps a state matrix S [dim][columns]; columns are independent. If dim is 32, 64, 128 or 256, eight lanes
 * share a column: lane p has the p-th eighth of its elements. A sum over a column is sixteen sums, over the even and
 * over the odd elements of each eighth, folded in this order: even and odd, eighths p and p + 4, then 0 and 1, 2 and 3,
 * then those two. A lane reads four elements at a time, starting with the group that avoids bank conflicts among the
 * eight lanes, and has two columns, since what it reads of a row serves both. For other dims a sum is eight sums, each
 * over every eighth element, folded likewise. 1 to 16 tokens: gdn_fused_r1_16.cu, in the same order. */
#include "kernels/common/tma.cuh"
#include "kernels/recur/state.cuh"

enum { COLS = 32, GROUP = 8, PER = 2 /* columns of a lane */, THREADS = 8 * COLS / PER };

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

/* Rows of sequence blockIdx.z, in three parts: those that are computed again, certain ones, drafts. `row`: of keys
 * and all that comes with them. */
struct scan_part {
    int64_t row;
    int n;
};
static __device__ __forceinline__ scan_part part_of(const scan_args &a, const op_seq &s, int part)
{
    const int certain = s.n - s.drafts;

    return part == 0   ? scan_part{ a.r.n + (int64_t)blockIdx.z * a.rec.log.most, s.again }
           : part == 1 ? scan_part{ s.row, certain }
                       : scan_part{ s.row + certain, s.drafts };
}

/* By a block of each head: what the scan takes beside the convolution. Nothing of this launch reads the log. */
template <int RULE> static __device__ __forceinline__ void log_gates(const scan_args &a, const op_seq &s, int h)
{
    const int each = RULE == KDA ? a.dim : 1, width = a.heads * each;

    if (blockIdx.x > 0)
        return;
    for (int t = s.n - s.logged; t < s.n; t++) {
        float *logged = log_row(a.rec.log, s, t);

        for (int i = threadIdx.x; i < each; i += blockDim.x)
            logged[h * each + i] = a.alpha[(s.row + t) * a.as + h * each + i];
        if (RULE != SSM2 && threadIdx.x == 0)
            logged[width + h] = a.beta[(s.row + t) * a.bs + h];
    }
}

/* Any dim; S in memory, of which draft rows have a copy. grid: columns, head, sequence */
template <int RULE> __global__ void __launch_bounds__(128) scan(const __grid_constant__ scan_args a)
{
    extern __shared__ float shared[];
    const op_seq &s = a.r.seq[blockIdx.z];
    int lane = threadIdx.x & 31, lane_part = lane / 8, local = threadIdx.x / 32 * 8 + lane % 8;
    int col = blockIdx.x * COLS + local, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k, dim = a.dim;
    int own = col < a.cols ? dim : 0;
    float *ks = shared, *qs = ks + GROUP * dim, *gs = qs + GROUP * dim;
    float *vs = gs + (RULE == KDA ? GROUP * dim : 0), *gb = vs + GROUP * COLS;
    const int64_t at = (int64_t)h * dim * a.cols + (col < a.cols ? col : 0);
    float *mem = a.rec.data + s.slot * a.rec.floats + at;

    for (int part = 0; part < 3; part++) {
        const scan_part p = part_of(a, s, part);

        if (part == 2 && p.n > 0) {
            float *copy = a.copy + blockIdx.z * a.rec.floats + at;

            for (int i = lane_part; i < own; i += 4)
                copy[(int64_t)i * a.cols] = mem[(int64_t)i * a.cols];
            mem = copy;
        }
        for (int t0 = 0; t0 < p.n; t0 += GROUP) {
            int n = p.n - t0 < GROUP ? p.n - t0 : GROUP;

            __syncthreads();
            for (int i = threadIdx.x; i < n * dim; i += 128) {
                int64_t row = p.row + t0 + i / dim;
                int e = i % dim;

                ks[i] = a.k[row * a.ks + (int64_t)hk * dim + e];
                qs[i] = a.q[row * a.qs + (int64_t)hk * dim + e];
                if (RULE == KDA)
                    gs[i] = a.g[(row * a.heads + h) * dim + e];
            }
            for (int i = threadIdx.x; i < n * COLS; i += 128) {
                int64_t row = p.row + t0 + i / COLS;
                int e = (int)blockIdx.x * COLS + i % COLS;

                vs[i] = e < a.cols ? a.v[row * a.vs + (int64_t)h * a.cols + e] : 0.0f;
            }
            for (int i = threadIdx.x; i < n; i += 128) {
                int64_t row = p.row + t0 + i;

                gb[2 * i] = RULE == KDA ? 0.0f : a.g[row * a.heads + h];
                gb[2 * i + 1] = a.b[row * a.heads + h];
            }
            __syncthreads();
            for (int t = 0; t < n; t++) {
                float v = vs[t * COLS + local];
                float y = scan_step<RULE>(mem, a.cols, own, lane_part, ks + t * dim, qs + t * dim, gs + t * dim, v,
                                          gb[2 * t], gb[2 * t + 1]);

                if (RULE == SSM2)
                    y = __fmaf_rn(a.d[h], v, y);
                if (part > 0 && lane_part == 0 && col < a.cols)
                    a.y[(p.row + t0 + t) * a.ys + (int64_t)h * a.cols + col] = y;
            }
        }
    }
    log_gates<RULE>(a, s, h);
}

/* ---- dim a power of two: eight lanes share a column ---- */

/* One step: of 2 LEFT numbers LEFT stay. */
template <int LEFT, int BIT> static __device__ __forceinline__ void fold_half(float *y, int p)
{
#pragma unroll
    for (int j = 0; j < LEFT; j++) {
        float keep = p & BIT ? y[j + LEFT] : y[j], send = p & BIT ? y[j] : y[j + LEFT];

        y[j] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, BIT));
    }
}

/* Sums of 8 rows, folded together: lane p gets that of row fold_row(). */
static __device__ __forceinline__ void fold_rows(float y[GROUP], int p)
{
    fold_half<4, 4>(y, p);
    fold_half<2, 1>(y, p);
    fold_half<1, 2>(y, p);
}
static __device__ __forceinline__ int fold_row(int p)
{
    return (p & 4) | (p & 1) << 1 | (p & 2) >> 1;
}

/* Where a group of rows lies in shared memory: k, q and, of KDA, g by elements; v by columns; g and b. */
template <int RULE, int DIM> struct group_space {
    enum { FLOATS = GROUP * ((RULE == KDA ? 3 : 2) * DIM + COLS + 2) };
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
template <int WIDTH>
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
    const int c = (int)blockIdx.x * COLS + threadIdx.x % COLS;

    copy_rows<DIM>(to.k, a.k + row * a.ks + (int64_t)hk * DIM, a.ks, n);
    copy_rows<DIM>(to.q, a.q + row * a.qs + (int64_t)hk * DIM, a.qs, n);
    if (RULE == KDA)
        copy_rows<DIM>(to.g, a.g + (row * a.heads + h) * DIM, (int64_t)a.heads * DIM, n);
#pragma unroll
    for (int t = threadIdx.x / COLS; t < GROUP; t += THREADS / COLS)
        if (t < n && c < a.cols)
            copy4(to.v + t * COLS + threadIdx.x % COLS, a.v + (row + t) * a.vs + (int64_t)h * a.cols + c);
    if ((int)threadIdx.x / 2 < n && !(RULE == KDA && threadIdx.x % 2 == 0))
        copy4(to.gb + threadIdx.x, (threadIdx.x % 2 == 0 ? a.g : a.b) + (row + threadIdx.x / 2) * a.heads + h);
    copy_end();
}

/* The same of rows that begin at multiples of 16 bytes, group after group: what a thread copies is found once. */
template <int RULE, int DIM> struct feeder {
    enum { PIECES = DIM / 4, ROWS = THREADS / PIECES /* at once */, V_THREADS = GROUP * COLS / 4 };
    const float *k, *q, *g, *other; /* other: of v, or of g and b */
    int64_t step;                   /* of other, from group to group */
    int row, at, other_row;

    static __device__ __forceinline__ bool fits(const scan_args &a, int h, int hk)
    {
        const float *v = a.v + (int64_t)h * a.cols + (int)blockIdx.x * COLS;
        const uintptr_t at = (uintptr_t)(a.k + (int64_t)hk * DIM) | (uintptr_t)(a.q + (int64_t)hk * DIM) |
                             (uintptr_t)v | (RULE == KDA ? (uintptr_t)a.g : 0);

        return (at % 16 | (unsigned)(a.ks | a.qs | a.vs) % 4) == 0 && (int)blockIdx.x * COLS + COLS <= a.cols;
    }
    __device__ __forceinline__ feeder(const scan_args &a, int64_t first, int h, int hk)
    {
        const int t = threadIdx.x, one = t - V_THREADS;

        row = t / PIECES;
        at = row * DIM + t % PIECES * 4;
        k = a.k + (first + row) * a.ks + (int64_t)hk * DIM + t % PIECES * 4;
        q = a.q + (first + row) * a.qs + (int64_t)hk * DIM + t % PIECES * 4;
        g = RULE == KDA ? a.g + ((first + row) * a.heads + h) * DIM + t % PIECES * 4 : NULL;
        if (t < V_THREADS) {
            other_row = t / (COLS / 4);
            other =
                a.v + (first + other_row) * a.vs + (int64_t)h * a.cols + (int)blockIdx.x * COLS + t % (COLS / 4) * 4;
            step = GROUP * a.vs;
        } else {
            other_row = one / 2 < GROUP && !(RULE == KDA && one % 2 == 0) ? one / 2 : (int)GROUP;
            other = (one % 2 == 0 ? a.g : a.b) + (first + other_row) * a.heads + h;
            step = (int64_t)GROUP * a.heads;
        }
    }
    /* The next n rows. */
    __device__ __forceinline__ void ask(const scan_args &a, const group_space<RULE, DIM> &to, int n)
    {
#pragma unroll
        for (int r = 0; r < GROUP; r += ROWS) {
            if (r + row >= n)
                continue;
            copy16(to.k + r * DIM + at, k + r * a.ks);
            copy16(to.q + r * DIM + at, q + r * a.qs);
            if (RULE == KDA)
                copy16(to.g + r * DIM + at, g + (int64_t)r * a.heads * DIM);
        }
        if (other_row < n) {
            if (threadIdx.x < V_THREADS)
                copy16(to.v + threadIdx.x * 4, other);
            else
                copy4(to.gb + threadIdx.x - V_THREADS, other);
        }
        copy_end();
        k += GROUP * a.ks;
        q += GROUP * a.qs;
        g += (int64_t)GROUP * a.heads * DIM;
        other += step;
    }
};

/* What a lane takes of a row: its elements of k and, of KDA, g; v; g and b. */
template <int RULE, int NE> struct row_in {
    float k[NE], g[RULE == KDA ? NE : 1], v[PER];
    float2 gb;
    __device__ __forceinline__ float decay(int e) const
    {
        return RULE == KDA ? g[RULE == KDA ? e : 0] : gb.x;
    }
};
template <int RULE, int DIM>
static __device__ __forceinline__ void load_in(row_in<RULE, DIM / 8> &r, const group_space<RULE, DIM> &s, int t, int p,
                                               int local)
{
    const float2 v = *(const float2 *)(s.v + t * COLS + local * PER);

    lane_elements<DIM / 8>(r.k, s.k + t * DIM, p);
    if constexpr (RULE == KDA)
        lane_elements<DIM / 8>(r.g, s.g + t * DIM, p);
    r.v[0] = v.x;
    r.v[1] = v.y;
    r.gb = *(const float2 *)(s.gb + 2 * t);
}

/* The lane's parts of S k, decayed, and of an output: sums of even elements and of odd ones. */
template <int RULE, int NE>
static __device__ __forceinline__ void parts_of_k(float kv[PER], const float S[PER][NE], const row_in<RULE, NE> &r)
{
    float two[PER][2] = {};

#pragma unroll
    for (int e = 0; e < NE; e++) {
        const float k = RULE == KDA ? __fmul_rn(r.decay(e), r.k[e]) : r.k[e];

#pragma unroll
        for (int j = 0; j < PER; j++)
            two[j][e % 2] = __fmaf_rn(S[j][e], k, two[j][e % 2]);
    }
#pragma unroll
    for (int j = 0; j < PER; j++)
        kv[j] = __fadd_rn(two[j][0], two[j][1]);
}
template <int NE>
static __device__ __forceinline__ void parts_of_out(float y[PER], const float S[PER][NE], const float q[NE])
{
    float two[PER][2] = {};

#pragma unroll
    for (int e = 0; e < NE; e++)
#pragma unroll
        for (int j = 0; j < PER; j++)
            two[j][e % 2] = __fmaf_rn(S[j][e], q[e], two[j][e % 2]);
#pragma unroll
    for (int j = 0; j < PER; j++)
        y[j] = __fadd_rn(two[j][0], two[j][1]);
}

/* What is added to S, of each element of k; kv: S k. */
template <int RULE, int NE>
static __device__ __forceinline__ float delta_rule(const row_in<RULE, NE> &r, int j, float kv)
{
    return __fmul_rn(r.gb.y, RULE == SSM2  ? r.v[j]
                             : RULE == KDA ? __fsub_rn(r.v[j], kv)
                                           : __fsub_rn(r.v[j], __fmul_rn(r.gb.x, kv)));
}

/* n rows, one after the other; WHOLE: all of a group. */
template <int RULE, int DIM, bool WHOLE>
static __device__ __forceinline__ void scan_some(float S[PER][DIM / 8], float y[PER][GROUP],
                                                 const group_space<RULE, DIM> &s, int n, int p, int local)
{
    enum { NE = DIM / 8 };

#pragma unroll
    for (int t = 0; t < GROUP; t++) {
        row_in<RULE, NE> r;
        float q[NE], kv[PER] = {}, out[PER];

#pragma unroll
        for (int j = 0; j < PER; j++)
            y[j][t] = 0.0f;
        if (!WHOLE && t >= n)
            continue;
        load_in<RULE, DIM>(r, s, t, p, local);
        lane_elements<NE>(q, s.q + t * DIM, p);
        if (RULE != SSM2)
            parts_of_k<RULE, NE>(kv, S, r);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            const float d = delta_rule<RULE, NE>(r, j, RULE == SSM2 ? 0.0f : fold8(kv[j]));

#pragma unroll
            for (int e = 0; e < NE; e++)
                S[j][e] = __fmaf_rn(r.k[e], d, __fmul_rn(r.decay(e), S[j][e]));
        }
        parts_of_out<NE>(out, S, q);
#pragma unroll
        for (int j = 0; j < PER; j++)
            y[j][t] = out[j];
    }
}

/* A step of fold8(), in two parts: what lies between goes on while lanes wait for each other. */
template <int BIT> static __device__ __forceinline__ void send_step(float other[PER], const float v[PER])
{
#pragma unroll
    for (int j = 0; j < PER; j++)
        other[j] = __shfl_xor_sync(0xffffffffu, v[j], BIT);
}
static __device__ __forceinline__ void add_step(float v[PER], const float other[PER])
{
#pragma unroll
    for (int j = 0; j < PER; j++)
        v[j] = __fadd_rn(v[j], other[j]);
}

/* A group: while lanes wait for each other's parts of S k the output of the row before is summed, what the next row
 * needs is read, and S decays. */
template <int RULE, int DIM>
static __device__ __forceinline__ void scan_group(float S[PER][DIM / 8], float y[PER][GROUP],
                                                  const group_space<RULE, DIM> &s, int p, int local)
{
    enum { NE = DIM / 8 };
    row_in<RULE, NE> r[2];
    float q[NE], out[PER];

    load_in<RULE, DIM>(r[0], s, 0, p, local);
#pragma unroll
    for (int t = 0; t < GROUP; t++) {
        const row_in<RULE, NE> &now = r[t % 2];
        float kv[PER], other[PER];

        parts_of_k<RULE, NE>(kv, S, now);
        send_step<4>(other, kv);
        if (t > 0)
            parts_of_out<NE>(out, S, q);
        add_step(kv, other);
        send_step<1>(other, kv);
        if (t + 1 < GROUP)
            load_in<RULE, DIM>(r[(t + 1) % 2], s, t + 1, p, local);
        lane_elements<NE>(q, s.q + t * DIM, p);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            if (t > 0)
                y[j][t - 1] = out[j];
#pragma unroll
            for (int e = 0; e < NE / 2; e++)
                S[j][e] = __fmul_rn(now.decay(e), S[j][e]);
        }
        add_step(kv, other);
        send_step<2>(other, kv);
#pragma unroll
        for (int j = 0; j < PER; j++)
#pragma unroll
            for (int e = NE / 2; e < NE; e++)
                S[j][e] = __fmul_rn(now.decay(e), S[j][e]);
        add_step(kv, other);
#pragma unroll
        for (int j = 0; j < PER; j++)
            kv[j] = delta_rule<RULE, NE>(now, j, kv[j]);
#pragma unroll
        for (int e = 0; e < NE; e++)
#pragma unroll
            for (int j = 0; j < PER; j++)
                S[j][e] = __fmaf_rn(now.k[e], kv[j], S[j][e]);
    }
    parts_of_out<NE>(out, S, q);
#pragma unroll
    for (int j = 0; j < PER; j++)
        y[j][GROUP - 1] = out[j];
}

/* grid: columns, head, sequence. S is stored where draft rows begin. */
template <int RULE, int DIM>
__global__ void __launch_bounds__(THREADS, 1) scan_rows(const __grid_constant__ scan_args a)
{
    typedef group_space<RULE, DIM> space;
    enum { NE = DIM / 8 };
    extern __shared__ __align__(16) float shared[];
    const op_seq s = a.r.seq[blockIdx.z];
    const int p = threadIdx.x % 8, local = threadIdx.x / 8;
    const int col = blockIdx.x * COLS + local * PER, h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k;
    float *mem = a.rec.data + s.slot * a.rec.floats + (int64_t)h * DIM * a.cols + col, S[PER][NE];
    bool begun = false;

    if (s.n + s.again == 0)
        return;
    const bool fits = feeder<RULE, DIM>::fits(a, h, hk);
#pragma unroll 1
    for (int part = 0; part < 3; part++) {
        const scan_part of = part_of(a, s, part);

        if (part == 2)
#pragma unroll
            for (int j = 0; j < PER; j++)
#pragma unroll
                for (int e = 0; e < NE; e++)
                    if (begun && col + j < a.cols)
                        mem[(int64_t)element_at<NE>(p, e) * a.cols + j] = S[j][e];
        if (of.n == 0)
            continue;
        feeder<RULE, DIM> feed(a, of.row, h, hk);
        const auto ask = [&](int t0) {
            const space to(shared + t0 / GROUP % 2 * space::FLOATS);
            const int n = min(of.n - t0, (int)GROUP);

            if (fits)
                feed.ask(a, to, n);
            else
                ask_group<RULE, DIM>(to, a, of.row + t0, n, h, hk);
        };
        if (begun)
            __syncthreads(); /* all have read the part before */
        ask(0);
        if (!begun)
#pragma unroll
            for (int j = 0; j < PER; j++)
#pragma unroll
                for (int e = 0; e < NE; e++)
                    S[j][e] = col + j < a.cols ? mem[(int64_t)element_at<NE>(p, e) * a.cols + j] : 0.0f;
        begun = true;
        float *to = a.y + (of.row + fold_row(p)) * a.ys + (int64_t)h * a.cols + col;
        for (int t0 = 0; t0 < of.n; t0 += GROUP, to += GROUP * a.ys) {
            const space at(shared + t0 / GROUP % 2 * space::FLOATS);
            const int n = min(of.n - t0, (int)GROUP);
            float y[PER][GROUP];

            copy_wait<0>();
            __syncthreads();
            if (t0 + GROUP < of.n)
                ask(t0 + GROUP);
            if (n < GROUP)
                scan_some<RULE, DIM, false>(S, y, at, n, p, local);
            else if (RULE == SSM2)
                scan_some<RULE, DIM, true>(S, y, at, n, p, local);
            else
                scan_group<RULE, DIM>(S, y, at, p, local);
#pragma unroll
            for (int j = 0; j < PER; j++) {
                fold_rows(y[j], p);
                if (RULE == SSM2)
                    y[j][0] = __fmaf_rn(a.d[h], at.v[fold_row(p) * COLS + local * PER + j], y[j][0]);
                if (part > 0 && fold_row(p) < n && col + j < a.cols)
                    to[j] = y[j][0];
            }
        }
    }
    log_gates<RULE>(a, s, h);
}

template <int RULE, int DIM> static void launch_rows(struct cuda *c, const scan_args &a, dim3 grid)
{
    size_t smem = 2 * (size_t)group_space<RULE, DIM>::FLOATS * sizeof(float);

    cuda_fail(c, cudaFuncSetAttribute(scan_rows<RULE, DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
              "scan_rows");
    LAUNCH(c, (scan_rows<RULE, DIM>), grid, THREADS, smem, a);
}

template <int RULE> static void launch_scan(struct cuda *c, const scan_args &a)
{
    size_t smem = (size_t)GROUP * (size_t)((RULE == KDA ? 3 : 2) * a.dim + COLS + 2) * sizeof(float);
    dim3 grid((unsigned)ceil_div(a.cols, COLS), (unsigned)a.heads, (unsigned)a.r.n_seq);

    if (!scan_in_registers(a.dim)) {
        cuda_fail(c, cudaFuncSetAttribute(scan<RULE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem), "scan");
        LAUNCH(c, scan<RULE>, grid, 128, smem, a);
    } else if (a.dim == 32)
        launch_rows<RULE, 32>(c, a, grid);
    else if (a.dim == 64)
        launch_rows<RULE, 64>(c, a, grid);
    else if (a.dim == 128)
        launch_rows<RULE, 128>(c, a, grid);
    else
        launch_rows<RULE, 256>(c, a, grid);
}

void cuda_scan(struct cuda *c, const scan_args &a, enum rule rule)
{
    switch (rule) {
    case GDN:
        launch_scan<GDN>(c, a);
        break;
    case KDA:
        launch_scan<KDA>(c, a);
        break;
    default:
        launch_scan<SSM2>(c, a);
        break;
    }
}
