/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.cu - adapters (LoRA): what they add to products, in float32.
 *
 * A launch does both small products. A cluster of blocks has a few rows and some outputs of one matrix: its blocks
 * share the ranks of a x, tell each other the results, and each adds b's columns to its own outputs. Which adapters a
 * row has is data of the step, so a graph serves any.
 *
 * Orders of sums, the same for any number of rows: a x is four parts of consecutive elements, added in order; in a part
 * a lane takes every 32nd four elements, and warp_sum() adds lanes. Then rank by rank, as ops.h says. */
#include "kernels/adapt/adapt.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/device/fused.cuh"

enum { CLUSTER = 8, THREADS = 256, PARTS = 4, RANKS = THREADS / 32 / PARTS, TOGETHER = 8, EARLY = 16 };
enum { R16_MAX = 16, ONE_ROWS = 16 * 16 /* or pairs */, FLOATS_TOGETHER = 512, GRID_Y = 65535 };

struct adapt_args {
    struct adapt_job job[OP_PRODUCTS_MAX];
    const struct adapt_term *list;
    const float *x;
    const int *token, *expert, *slot;
    int64_t x_stride;
    int n_in, max, per_list, per_x, rows, floats, first;
    float *res; /* += scale times the first job's output; or NULL */
    int64_t res_stride;
    float scale;
};

/* One part of <w, x[t]> for n rows of x, by a warp. Rows at multiples of 16 bytes are read in fours. */
template <int T>
static __device__ __forceinline__ void dot_part(float sum[T], const float *w, const float *x, int64_t x_stride,
                                                int n_in, int part, int n, bool fours)
{
    const int all = (n_in + 3) / 4, each = (all + PARTS - 1) / PARTS, end = min((part + 1) * each, all);

#pragma unroll
    for (int t = 0; t < T; t++)
        sum[t] = 0.0f;
#pragma unroll(T > 1 ? 1 : 4)
    for (int i = part * each + (threadIdx.x & 31); i < end; i += 32) {
        float a[4];

        if (fours) {
            *(float4 *)a = ((const float4 *)w)[i];
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[j] = 4 * i + j < n_in ? w[4 * i + j] : 0.0f;
        }
#pragma unroll
        for (int t = 0; t < T; t++) {
            const float *row = x + min(t, n - 1) * x_stride;
            float v[4];

            if (fours) {
                *(float4 *)v = ((const float4 *)row)[i];
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[j] = 4 * i + j < n_in ? row[4 * i + j] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[t] = __fmaf_rn(a[j], v[j], sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < T; t++)
        sum[t] = warp_sum(sum[t]);
}

/* n rows of inputs. */
struct some_inputs {
    const float *x;
    int64_t stride;
    int width, n;
};

/* scale * <a[j], x[t]>: the blocks of the cluster share the ranks j. give(t, j, of, v) is called for each block `of`,
 * by threads of the one that has j. */
template <int T, class F>
static __device__ __forceinline__ void sum_inputs(const op_pair &p, int64_t mat, float scale, const some_inputs &in,
                                                  F give)
{
    __shared__ float part[RANKS][PARTS][T];
    const int mine = blockIdx.x % CLUSTER, warp = threadIdx.x / 32;
    const float *w = p.a + mat * p.rank * in.width;
    const bool fours =
        ((uintptr_t)w | (uintptr_t)in.x) % 16 == 0 && in.width % 4 == 0 && (in.n == 1 || in.stride % 4 == 0);

#pragma unroll 1
    for (int first = mine; first < p.rank; first += CLUSTER * RANKS) {
        const int j = first + warp / PARTS * CLUSTER;
        float sum[T];

        if (j < p.rank) {
            dot_part<T>(sum, w + (int64_t)j * in.width, in.x, in.stride, in.width, warp % PARTS, in.n, fours);
#pragma unroll
            for (int t = 0; t < T; t++)
                if (threadIdx.x % 32 == 0)
                    part[warp / PARTS][warp % PARTS][t] = sum[t];
        }
        __syncthreads();
        if (threadIdx.x < RANKS * T * CLUSTER) {
            const int to = threadIdx.x % CLUSTER, t = threadIdx.x / CLUSTER % T, of = threadIdx.x / CLUSTER / T;
            const int rank = first + of * CLUSTER;

            if (rank < p.rank && t < in.n) {
                float v = part[of][0][t];

#pragma unroll
                for (int q = 1; q < PARTS; q++)
                    v = __fadd_rn(v, part[of][q][t]);
                give(t, rank, to, __fmul_rn(v, scale));
            }
        }
        __syncthreads();
    }
}

/* The same for rows of the embedding: each block has all. */
static __device__ __forceinline__ void looked_up(const adapt_args &a, const op_pair &p, float scale, int64_t row, int n,
                                                 int at, float *h)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < n * p.rank; i += THREADS) {
        const int t = i / p.rank, j = i - t * p.rank;

        h[t * a.floats + at + j] = __fmul_rn(p.a[(int64_t)a.token[row + t] * p.rank + j], scale);
    }
    __syncwarp(); /* barriers of a cluster want whole warps */
}

static __device__ __forceinline__ bool same_list(const adapt_args &a, int64_t r, int64_t s)
{
    const adapt_term *x = a.list + r * a.max, *y = a.list + s * a.max;

    for (int i = 0; i < a.max; i++)
        if (x[i].which != y[i].which || __float_as_uint(x[i].scale) != __float_as_uint(y[i].scale))
            return false;
    return true;
}

/* Where a row's matrix is among those of its job; -1: the row has nothing to add. */
static __device__ __forceinline__ int64_t matrix_of(const adapt_args &a, const adapt_job &job, int64_t row)
{
    if (a.expert == NULL)
        return job.mat;
    const int e = a.expert[row];

    return a.slot != NULL && a.slot[e] < 0 ? -1 : e;
}

/* n rows with one list. All threads of a cluster come here, or none. */
template <int T>
static __device__ __forceinline__ void some_rows(const adapt_args &a, const adapt_job &job, int64_t row, int n, int o,
                                                 float *h)
{
    const adapt_term *list = a.list + row / a.per_list * a.max;
    const int64_t mat = matrix_of(a, job, row);
    const some_inputs in = { a.x + row / a.per_x * a.x_stride, a.x_stride, a.n_in, n };
    const bool has = o < job.n;
    float v[T], early[EARLY];
    bool first = true;
    int at = 0;

    if (mat < 0)
        return;
#pragma unroll
    for (int t = 0; t < T; t++)
        v[t] = has && t < n ? job.y[(row + t) * job.y_stride + o] : 0.0f;
#pragma unroll 1
    for (int i = 0; i < a.max && list[i].which >= 0; i++) {
        const op_pair p = job.pair[list[i].which];

        if (p.a == NULL)
            continue;
        if (first) { /* on their way while sum_inputs() waits */
            const float *b = p.b + mat * p.rank * job.n_out + job.first + o;
#pragma unroll
            for (int j = 0; j < EARLY; j++)
                early[j] = has && j < p.rank ? b[j * job.n_out] : 0.0f;
            first = false;
        }
        const float scale = __fmul_rn(list[i].scale, p.scale);
        if (a.token != NULL)
            looked_up(a, p, scale, row, n, at, h);
        else
            sum_inputs<T>(p, mat, scale, in, [&](int t, int rank, int to, float y) {
                cluster_store(cluster_at(h + t * a.floats + at + rank, to), y);
            });
        at += p.rank;
    }
    cluster_given();
    cluster_wait();
    first = true;
    at = 0;
#pragma unroll 1
    for (int i = 0; i < a.max && list[i].which >= 0; i++) {
        const op_pair p = job.pair[list[i].which];
        int j = 0;

        if (p.a == NULL)
            continue;
        if (first) {
#pragma unroll
            for (; j < EARLY; j++)
                if (j < p.rank)
#pragma unroll
                    for (int t = 0; t < T; t++)
                        v[t] = __fmaf_rn(h[t * a.floats + at + j], early[j], v[t]);
            first = false;
        }
        const float *b = p.b + mat * p.rank * job.n_out + job.first + o;
#pragma unroll 4
        for (; has && j < p.rank; j++) {
            const float w = b[j * job.n_out];

#pragma unroll
            for (int t = 0; t < T; t++)
                v[t] = __fmaf_rn(h[t * a.floats + at + j], w, v[t]);
        }
        at += p.rank;
    }
#pragma unroll
    for (int t = 0; t < T; t++)
        if (has && t < n)
            job.y[(row + t) * job.y_stride + o] = v[t];
    if (T > 1) { /* h is written again */
        __syncwarp();
        cluster_given();
        cluster_wait();
    }
}

/* Asks for what this block will read of a pair of matrices, whatever the inputs are: its ranks of a (width 0: none),
 * and outputs from .. end - 1 of b. */
static __device__ __forceinline__ void ask_pair(const op_pair &p, int64_t mat, int64_t n_out, int width, int from,
                                                int end)
{
    enum { LINE = 32 /* floats */ };
    const int lines = (end - from + LINE - 1) / LINE;

    if (p.a == NULL)
        return;
#pragma unroll 1
    for (int j = blockIdx.x % CLUSTER; width > 0 && j < p.rank; j += CLUSTER)
        prefetch((const uint8_t *)(p.a + (mat * p.rank + j) * width), width * (int)sizeof(float), threadIdx.x, THREADS);
#pragma unroll 1
    for (int i = threadIdx.x; lines > 0 && i < p.rank * lines; i += THREADS)
        asm volatile(
            "prefetch.global.L2 [%0];" ::"l"(p.b + (mat * p.rank + i / lines) * n_out + from + i % lines * LINE));
}

/* Before the inputs are there. */
static __device__ __forceinline__ void ask_early(const adapt_args &a, const adapt_job &job, int64_t row, int o)
{
    const int which = a.list[row / a.per_list * a.max].which, from = o - (int)threadIdx.x;

    if (which >= 0 && a.expert == NULL)
        ask_pair(job.pair[which], job.mat, job.n_out, a.token == NULL ? a.n_in : 0, job.first + from,
                 job.first + min(from + THREADS, job.n));
}

/* grid: clusters of outputs of the jobs; T rows each. */
template <int T> __global__ void __launch_bounds__(THREADS) adapt_rows(const __grid_constant__ adapt_args a)
{
    extern __shared__ float h[]; /* [T][floats] */
    const int64_t row = a.first + (int64_t)blockIdx.y * T;
    const int rows = (int)min((int64_t)T, a.rows - row);
    int slice = (int)(blockIdx.x / CLUSTER), j = 0;

    for (; slice >= a.job[j].slices; j++)
        slice -= a.job[j].slices;
    const adapt_job &job = a.job[j];
    const int o = (slice * CLUSTER + (int)(blockIdx.x % CLUSTER)) * THREADS + (int)threadIdx.x;

    cluster_here();
    let_next_begin();
    ask_early(a, job, row, o);
    only_wait_for_inputs();
    cluster_wait(); /* all have begun: their shared memory is there */
#pragma unroll 1
    for (int t = 0, n; t < rows; t += n) {
        for (n = 1; T > 1 && t + n < rows && same_list(a, row + t, row + t + n);)
            n++;
        if (a.list[(row + t) / a.per_list * a.max].which >= 0)
            some_rows<T>(a, job, row + t, n, o, h);
    }
    if (a.res == NULL || j > 0 || o >= job.n)
        return;
#pragma unroll 1
    for (int t = 0; t < rows; t++) {
        float *to = a.res + (row + t) * a.res_stride + o;

        *to = __fmaf_rn(a.scale, job.y[(row + t) * job.y_stride + o], *to);
    }
}

/* ---- lists of one term of few ranks: short code, as what few rows wait for is mostly instructions ---- */

/* The ranks that a warp has a part of, of matrices that it reads before their inputs are there. */
template <int QUADS> struct early_rows {
    float4 w[QUADS];
};

static __device__ __forceinline__ int own_rank(void)
{
    return (int)(blockIdx.x % CLUSTER) + (int)(threadIdx.x / 32) / PARTS * CLUSTER;
}

/* The quads of a part of a row that a lane has are numbers first, first + 32 .. end - 1: as dot_part(). */
struct own_quads {
    int first, end;
};
static __device__ __forceinline__ own_quads quads_of(int width)
{
    const int all = width / 4, each = (all + PARTS - 1) / PARTS, part = threadIdx.x / 32 % PARTS;

    return { part * each + (int)(threadIdx.x & 31), min((part + 1) * each, all) };
}

template <int QUADS>
static __device__ __forceinline__ void read_rows(early_rows<QUADS> &r, const op_pair &p, int64_t mat, int width)
{
    const int j = own_rank();
    const own_quads own = quads_of(width);
    const float4 *w = (const float4 *)(p.a + (mat * p.rank + j) * width);

#pragma unroll
    for (int i = 0; i < QUADS; i++)
        r.w[i] = p.a != NULL && j < p.rank && own.first + 32 * i < own.end ? w[own.first + 32 * i]
                                                                           : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

static __device__ __forceinline__ void read_outputs(float b[EARLY], const op_pair &p, int64_t mat, int64_t n_out,
                                                    int at, bool has)
{
    const float *from = p.b + mat * p.rank * n_out + at;

#pragma unroll
    for (int j = 0; j < EARLY; j++)
        b[j] = p.a != NULL && has && j < p.rank ? from[j * n_out] : 0.0f;
}

/* The warp's part of its rank, for all lanes. */
template <int QUADS>
static __device__ __forceinline__ float times_rows(const early_rows<QUADS> &r, const float4 x[QUADS], int width)
{
    const own_quads own = quads_of(width);
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < QUADS; i++)
        if (own.first + 32 * i < own.end) {
            sum = __fmaf_rn(r.w[i].x, x[i].x, sum);
            sum = __fmaf_rn(r.w[i].y, x[i].y, sum);
            sum = __fmaf_rn(r.w[i].z, x[i].z, sum);
            sum = __fmaf_rn(r.w[i].w, x[i].w, sum);
        }
    return warp_sum(sum);
}

template <int QUADS> static __device__ __forceinline__ void read_inputs(float4 x[QUADS], const float *from, int width)
{
    const own_quads own = quads_of(width);

#pragma unroll
    for (int i = 0; i < QUADS; i++)
        if (own.first + 32 * i < own.end)
            x[i] = ((const float4 *)from)[own.first + 32 * i];
}

static __device__ __forceinline__ float parts_sum(const float part[PARTS], float scale)
{
    float v = part[0];

#pragma unroll
    for (int q = 1; q < PARTS; q++)
        v = __fadd_rn(v, part[q]);
    return __fmul_rn(v, scale);
}

/* v with what EARLY ranks or fewer add. */
static __device__ __forceinline__ float plus_early(float v, const float *h, const float b[EARLY], int rank)
{
#pragma unroll
    for (int j = 0; j < EARLY; j++)
        if (j < rank)
            v = __fmaf_rn(h[j], b[j], v);
    return v;
}

/* As adapt_rows<1>, of lists of one term of at most EARLY ranks, and rows at multiples of 16 bytes, of at most
 * QUADS * 512 elements. */
template <int QUADS> __global__ void __launch_bounds__(THREADS) adapt_one(const __grid_constant__ adapt_args a)
{
    __shared__ float h[EARLY], part[RANKS][PARTS];
    const int64_t row = a.first + (int64_t)blockIdx.y;
    const int warp = threadIdx.x / 32;
    const adapt_term term = a.list[row / a.per_list];
    int slice = (int)(blockIdx.x / CLUSTER), k = 0;

    cluster_here();
    let_next_begin();
    for (; slice >= a.job[k].slices; k++)
        slice -= a.job[k].slices;
    const adapt_job &job = a.job[k];
    const int o = (slice * CLUSTER + (int)(blockIdx.x % CLUSTER)) * THREADS + (int)threadIdx.x;
    const bool has = o < job.n;
    op_pair p = { NULL, NULL, 0, 0.0f };
    early_rows<QUADS> rows;
    float b[EARLY];
    float4 x[QUADS];

    if (term.which >= 0)
        p = job.pair[term.which];
    if (a.expert == NULL) {
        read_rows<QUADS>(rows, p, job.mat, a.n_in);
        read_outputs(b, p, job.mat, job.n_out, job.first + o, has);
    }
    only_wait_for_inputs();
    cluster_wait();
    if (a.expert != NULL) {
        const int64_t mat = matrix_of(a, job, row);

        p.a = mat < 0 ? NULL : p.a;
        read_rows<QUADS>(rows, p, mat, a.n_in);
        read_outputs(b, p, mat, job.n_out, job.first + o, has);
    }
    float *y = job.y + row * job.y_stride + o,
          *res = a.res != NULL && k == 0 && has ? a.res + row * a.res_stride + o : NULL;
    float v = has ? *y : 0.0f, before = res != NULL ? *res : 0.0f;
    if (p.a != NULL) {
        read_inputs<QUADS>(x, a.x + row / a.per_x * a.x_stride, a.n_in);
        const float sum = times_rows<QUADS>(rows, x, a.n_in);
        if (threadIdx.x % 32 == 0)
            part[warp / PARTS][warp % PARTS] = sum;
        __syncthreads();
        const int of = threadIdx.x / CLUSTER, rank = (int)(blockIdx.x % CLUSTER) + of * CLUSTER;
        if (of < RANKS && rank < p.rank)
            cluster_store(cluster_at(h + rank, threadIdx.x % CLUSTER),
                          parts_sum(part[of], __fmul_rn(term.scale, p.scale)));
        __syncwarp();
        cluster_given();
        cluster_wait();
        v = plus_early(v, h, b, p.rank);
        if (has)
            *y = v;
    }
    if (res != NULL)
        *res = __fmaf_rn(a.scale, v, before);
}

/* ---- one row: between an expert's first products and its second ---- */

/* v with what the lists' terms add to output o of a matrix, whose ranks' inputs are at h. */
static __device__ __forceinline__ float plus(float v, const adapt_middle &a, const adapt_part &part, int64_t mat, int o,
                                             const float *h)
{
#pragma unroll 1
    for (int i = 0; part.pair != NULL && i < a.max && a.list[i].which >= 0; i++) {
        const op_pair p = part.pair[a.list[i].which];
        const float *b = p.b + (mat * p.rank) * part.n_out + part.first + o;

        if (p.a == NULL)
            continue;
#pragma unroll 8
        for (int j = 0; j < p.rank; j++)
            v = __fmaf_rn(h[j], b[j * part.n_out], v);
        h += p.rank;
    }
    return v;
}

template <class F>
static __device__ __forceinline__ void all_inputs(const adapt_middle &a, const adapt_part &part, int64_t mat,
                                                  const some_inputs &in, F give)
{
    int at = 0;

#pragma unroll 1
    for (int i = 0; part.pair != NULL && i < a.max && a.list[i].which >= 0; i++) {
        const op_pair p = part.pair[a.list[i].which];

        if (p.a == NULL)
            continue;
        sum_inputs<1>(p, mat, __fmul_rn(a.list[i].scale, p.scale), in,
                      [&](int, int rank, int to, float y) { give(at + rank, to, y); });
        at += p.rank;
    }
}

static __device__ __forceinline__ void ask_part(const adapt_middle &a, const adapt_part &part, int64_t mat, int width,
                                                int from, int end)
{
    const int which = a.list[0].which;

    if (part.pair != NULL && which >= 0)
        ask_pair(part.pair[which], mat, part.n_out, width, part.first + from, part.first + end);
}

/* grid: a cluster for each expert. */
__global__ void __launch_bounds__(THREADS) adapt_between(const __grid_constant__ adapt_middle a)
{
    extern __shared__ float h[]; /* [gate, up][floats] */
    const int k = (int)(blockIdx.x / CLUSTER), mine = (int)(blockIdx.x % CLUSTER);
    const bool routed = k < a.routed;
    const adapt_expert &e = routed ? a.e[0] : a.e[1];
    const int each = (e.ff + CLUSTER * 32 - 1) / (CLUSTER * 32) * 32, end = min((mine + 1) * each, e.ff);
    float *gate = e.gate + (routed ? (int64_t)k * e.ff : 0), *hid = e.hid + (routed ? (int64_t)k * e.ff : 0);

    cluster_here();
    let_next_begin();
    /* the launch before this one has told who was chosen before this began (moe/moe_r1.cu) */
    const int likely = routed ? __ldcg(a.expert + k) : 0;
    if (!routed || a.slot == NULL || a.slot[likely] >= 0)
        for (int i = 0; i < 3; i++)
            ask_part(a, e.part[i], likely + e.part[i].mat, i < 2 ? a.n_in : e.ff, mine * each,
                     i < 2 ? end : mine * each);
    only_wait_for_inputs();
    cluster_wait();
    const int64_t expert = routed ? a.expert[k] : 0;
    if (routed && a.slot != NULL && a.slot[expert] < 0)
        return;
    const some_inputs in = { a.x, 0, a.n_in, 1 };
#pragma unroll 1
    for (int i = 0; i < 2; i++)
        all_inputs(a, e.part[i], expert + e.part[i].mat, in,
                   [&](int at, int to, float y) { cluster_store(cluster_at(h + i * a.floats + at, to), y); });
    __syncwarp();
    cluster_given();
    cluster_wait();
#pragma unroll 1
    for (int o = mine * each + (int)threadIdx.x; o < end; o += THREADS) {
        float up = plus(hid[o], a, e.part[1], expert + e.part[1].mat, o, h + a.floats), v = up;

        if (e.gate != NULL)
            v = plus(gate[o], a, e.part[0], expert + e.part[0].mat, o, h);
        up = e.gate != NULL ? up : 1.0f;
        const float pos = fmaxf(v, 0.0f);
        hid[o] = a.act == OP_SILU || !routed ? __fmul_rn(silu(v), up) : __fmul_rn(__fmul_rn(pos, pos), up);
    }
    __syncwarp();
    cluster_given(); /* hid of the others */
    cluster_wait();
    const some_inputs its = { hid, 0, e.ff, 1 };
    all_inputs(a, e.part[2], expert + e.part[2].mat, its, [&](int at, int to, float y) {
        if (to == 0)
            a.h[(int64_t)(routed ? k : a.used) * a.floats + at] = y;
    });
}

static __device__ __forceinline__ op_pair pair_of(const adapt_part &part, int which)
{
    return part.pair != NULL && which >= 0 ? part.pair[which] : op_pair{ NULL, NULL, 0, 0.0f };
}

/* The same of a list of one term of at most EARLY ranks, and rows of at most IN * 512 and OUT * 512 elements. */
template <int IN, int OUT>
__global__ void __launch_bounds__(THREADS) adapt_between_one(const __grid_constant__ adapt_middle a)
{
    __shared__ float h[2][EARLY], part[2][RANKS][PARTS];
    __shared__ __align__(16) float near[OUT * 512];
    const int k = (int)(blockIdx.x / CLUSTER), mine = (int)(blockIdx.x % CLUSTER), warp = threadIdx.x / 32;
    const bool routed = k < a.routed;
    const adapt_expert &e = routed ? a.e[0] : a.e[1];
    const int each = (e.ff + CLUSTER * 32 - 1) / (CLUSTER * 32) * 32, o = mine * each + (int)threadIdx.x;
    const bool has = (int)threadIdx.x < each && o < e.ff;
    const adapt_term term = a.list[0];
    op_pair p[3];
    early_rows<IN> in[2];
    early_rows<OUT> out;
    float b[2][EARLY];
    float4 x[IN], y[OUT];

    cluster_here();
    let_next_begin();
    /* the launch before this one has told who was chosen before this began (moe/moe_r1.cu) */
    const int likely = routed ? __ldcg(a.expert + k) : 0;
    const bool away = routed && a.slot != NULL && a.slot[likely] < 0;
    if (!away) {
#pragma unroll
        for (int i = 0; i < 3; i++)
            p[i] = pair_of(e.part[i], term.which);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            read_rows<IN>(in[i], p[i], likely + e.part[i].mat, a.n_in);
            read_outputs(b[i], p[i], likely + e.part[i].mat, e.part[i].n_out, e.part[i].first + o, has);
        }
        read_rows<OUT>(out, p[2], likely + e.part[2].mat, e.ff);
    }
    only_wait_for_inputs();
    cluster_wait();
    if (routed && a.expert[k] != likely)
        __trap(); /* it was not: the step fails */
    if (away)
        return;
    float *hid = e.hid + (routed ? (int64_t)k * e.ff : 0) + o, *gate = e.gate + (routed ? (int64_t)k * e.ff : 0) + o;
    float up = has ? *hid : 0.0f, v = has && e.gate != NULL ? *gate : 0.0f;
    read_inputs<IN>(x, a.x, a.n_in);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float sum = times_rows<IN>(in[i], x, a.n_in);

        if (threadIdx.x % 32 == 0)
            part[i][warp / PARTS][warp % PARTS] = sum;
    }
    __syncthreads();
    const int to = threadIdx.x % CLUSTER, of = threadIdx.x / CLUSTER % RANKS, m = threadIdx.x / CLUSTER / RANKS;
    const int rank = mine + of * CLUSTER;
    if (m < 2 && rank < (m == 0 ? p[0].rank : p[1].rank))
        cluster_store(cluster_at(h[m] + rank, to),
                      parts_sum(part[m][of], __fmul_rn(term.scale, m == 0 ? p[0].scale : p[1].scale)));
    __syncwarp();
    cluster_given();
    cluster_wait();
    up = plus_early(up, h[1], b[1], p[1].rank);
    v = e.gate != NULL ? plus_early(v, h[0], b[0], p[0].rank) : up;
    up = e.gate != NULL ? up : 1.0f;
    const float pos = fmaxf(v, 0.0f);
    v = a.act == OP_SILU || !routed ? __fmul_rn(silu(v), up) : __fmul_rn(__fmul_rn(pos, pos), up);
    if (has) {
        *hid = v;
#pragma unroll
        for (int i = 0; i < CLUSTER; i++)
            cluster_store(cluster_at(near + o, i), v);
    }
    __syncwarp();
    cluster_given();
    cluster_wait();
    read_inputs<OUT>(y, near, e.ff);
    const float sum = times_rows<OUT>(out, y, e.ff);
    if (threadIdx.x % 32 == 0)
        part[0][warp / PARTS][warp % PARTS] = sum;
    __syncthreads();
    const int its = mine + (int)threadIdx.x * CLUSTER;
    if (threadIdx.x < RANKS && its < p[2].rank)
        a.h[(int64_t)(routed ? k : a.used) * a.floats + its] =
            parts_sum(part[0][threadIdx.x], __fmul_rn(term.scale, p[2].scale));
}

/* ---- host ---- */

/* Rows of `width` elements at such places are read in fours. */
static bool in_fours(const void *x, int64_t stride, int64_t width)
{
    return (uintptr_t)x % 16 == 0 && stride % 4 == 0 && width % 4 == 0;
}

static auto one_kernel(const struct adapt_args *a)
{
    const bool fits = a->max == 1 && a->floats <= EARLY && a->token == NULL && a->rows <= ONE_ROWS &&
                      in_fours(a->x, a->x_stride, a->n_in);

    return !fits || a->n_in > 4096 ? (decltype(&adapt_one<1>))NULL
           : a->n_in <= 512        ? adapt_one<1>
           : a->n_in <= 2048       ? adapt_one<4>
                                   : adapt_one<8>;
}

static void launch_jobs(struct cuda *c, struct adapt_args *a, int jobs)
{
    const auto one = one_kernel(a);
    const bool together = a->rows > R16_MAX && a->expert == NULL && a->floats <= FLOATS_TOGETHER;
    const int each = together ? (int)TOGETHER : 1;
    unsigned clusters = 0;

    for (int i = 0; i < jobs; i++) {
        a->job[i].slices = (int)ceil_div(a->job[i].n, CLUSTER * THREADS);
        clusters += (unsigned)a->job[i].slices;
    }
    if (one != NULL) {
        launch_clusters(c, "adapt_one", one, dim3(CLUSTER), dim3(clusters * CLUSTER, (unsigned)a->rows), THREADS, 0,
                        *a);
        return;
    }
    for (a->first = 0; a->first < a->rows; a->first += GRID_Y * each) {
        const int64_t left = ceil_div(a->rows - a->first, each);

        launch_clusters(c, "adapt_rows", together ? adapt_rows<(int)TOGETHER> : adapt_rows<1>, dim3(CLUSTER),
                        dim3(clusters * CLUSTER, (unsigned)(left < (int)GRID_Y ? left : (int)GRID_Y)), THREADS,
                        (size_t)(each * a->floats) * sizeof(float), *a);
    }
}

static struct adapt_args args_of(const struct node *v, struct tensor y, int64_t width, int per)
{
    struct adapt_args a = {};

    a.list = (const adapt_term *)v->p[3];
    a.max = v->i[0];
    a.floats = v->i[2];
    a.n_in = (int)width;
    a.rows = (int)y.ne[1];
    a.per_list = per;
    a.per_x = 1;
    return a;
}

static struct adapt_job job_of(const void *pairs, int number, int adapters, struct tensor y, struct tensor w)
{
    return { (float *)y.data,
             (const op_pair *)pairs + number * adapters,
             y.stride,
             w.pitch,
             w.from / w.pitch,
             (int)y.ne[0],
             (int)(w.from % w.pitch),
             0 };
}

static bool same_adapters(const struct node *v, const struct node *w)
{
    return w->op == DEV_OP_adapt && w->p[1] == v->p[1] && w->p[3] == v->p[3] &&
           memcmp(&w->t[1], &v->t[1], sizeof v->t[1]) == 0;
}

struct adapt_part cuda_adapt_part(const struct node *v, int number)
{
    const struct tensor w[3] = { v->moe.gate, v->moe.up, v->moe.down };
    const struct adapt_job j = v->op == DEV_OP_adapt ? job_of(v->p[0], 0, v->i[1], v->t[0], v->t[2])
                                                     : job_of(v->p[0], number, v->i[1], v->t[0], w[number]);

    if (v->op != DEV_OP_adapt && !(v->i[3] >> number & 1))
        return {};
    return { j.pair, j.n_out, v->op == DEV_OP_adapt ? j.mat : 0, j.first };
}

void cuda_adapt_between(struct cuda *c, const struct adapt_middle *a, int experts)
{
    const int ff = a->e[0].ff > a->e[1].ff ? a->e[0].ff : a->e[1].ff;
    const bool one = a->near && in_fours(a->x, 0, a->n_in) && a->e[0].ff % 4 == 0 && a->e[1].ff % 4 == 0;
    const auto kernel = one && a->n_in <= 2048 && ff <= 512    ? adapt_between_one<4, 1>
                        : one && a->n_in <= 4096 && ff <= 1024 ? adapt_between_one<8, 2>
                                                               : adapt_between;

    launch_clusters(c, "adapt_between", kernel, dim3(CLUSTER), dim3((unsigned)(experts * CLUSTER)), THREADS,
                    kernel == adapt_between ? (size_t)(2 * a->floats) * sizeof(float) : 0, *a);
}

int cuda_adapt(struct cuda *c, const struct node *v, int n)
{
    struct adapt_args a = args_of(v, v->t[0], v->t[1].ne[0], 1);
    int k = 0;

    a.x = (const float *)v->t[1].data;
    a.x_stride = v->t[1].stride;
    a.token = (const int *)v->p[1];
    for (; k < n && k < OP_PRODUCTS_MAX && same_adapters(v, v + k); k++)
        a.job[k] = job_of(v[k].p[0], 0, v[k].i[1], v[k].t[0], v[k].t[2]);
    const struct node *add = v + k;
    const int jobs = k;
    if (k == 1 && n > 1 && add->op == DEV_OP_add && add->t[1].data == v->t[0].data &&
        add->t[1].ne[0] == v->t[0].ne[0] && add->t[1].ne[1] == v->t[0].ne[1]) {
        a.res = (float *)add->t[0].data;
        a.res_stride = add->t[0].stride;
        a.scale = add->f[0];
        k++;
    }
    launch_jobs(c, &a, jobs);
    return k;
}

void cuda_adapt_experts(struct cuda *c, const struct node *v, const struct adapt_experts *e)
{
    const struct op_moe &m = v->moe;
    const struct tensor w[3] = { m.gate, m.up, m.down };
    const int64_t pairs = v->t[1].ne[1] * m.n_used;
    const struct tensor rows = { QUANT_f32, { e->n, pairs, 1 }, e->stride, 0, NULL, false, 0, 0 };
    struct adapt_args a = args_of(v, rows, e->n_in, m.n_used);
    int jobs = 0;

    a.x = e->x;
    a.x_stride = e->x_stride;
    a.per_x = e->per_x;
    a.expert = m.expert;
    a.slot = m.slot;
    for (int i = 0; i < 3; i++) {
        struct tensor y = rows;

        y.data = e->y[i];
        if (e->y[i] != NULL && v->i[3] >> i & 1)
            a.job[jobs++] = job_of(v->p[0], i, v->i[1], y, w[i]);
    }
    if (jobs > 0)
        launch_jobs(c, &a, jobs);
}
