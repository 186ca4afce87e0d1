/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.cu - adapters (LoRA): what they add to products, in float32.
 *
 * A launch does both small products. A cluster of blocks has a few rows and some outputs of one matrix: its blocks share
 * the ranks of a x, tell each other the results, and each adds b's columns to its own outputs. Which adapters a row has
 * is data of the step, so a graph serves any.
 *
 * Orders of sums, the same for any number of rows: a x is four parts of consecutive elements, added in order; in a part
 * a lane takes every 32nd four elements, and warp_sum() adds lanes. Then rank by rank, as ops.h says. */
#include "kernels/adapt/adapt.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/device/fused.cuh"

enum { CLUSTER = 8, THREADS = 256, PARTS = 4, RANKS = THREADS / 32 / PARTS, TOGETHER = 8, EARLY = 16 };
enum { FEW = 16, FLOATS_TOGETHER = 512, GRID_Y = 65535 };

struct adapt_args {
    struct adapt_job         job[OP_PRODUCTS_MAX];
    const struct adapt_term *list;
    const float             *x;
    const int               *token, *expert, *slot;
    int64_t                  x_stride;
    int                      n_in, max, per_list, per_x, rows, floats, first;
    float                   *res; /* += scale times the first job's output; or NULL */
    int64_t                  res_stride;
    float                    scale;
};

/* One part of <w, x[t]> for n rows of x, by a warp. Rows at multiples of 16 bytes are read in fours. */
template <int T>
static __device__ __forceinline__ void dot_part(float sum[T], const float *w, const float *x, int64_t x_stride, int n_in,
                                                int part, int n, bool fours)
{
    const int all = (n_in + 3) / 4, each = (all + PARTS - 1) / PARTS, end = min((part + 1) * each, all);

#pragma unroll
    for (int t = 0; t < T; t++)
        sum[t] = 0.0f;
#pragma unroll (T > 1 ? 1 : 4)
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
    int64_t      stride;
    int          width, n;
};

/* scale * <a[j], x[t]>: the blocks of the cluster share the ranks j. give(t, j, of, v) is called for each block `of`, by
 * threads of the one that has j. */
template <int T, class F>
static __device__ __forceinline__ void inputs(const op_pair &p, int64_t mat, float scale, const some_inputs &in, F give)
{
    __shared__ float part[RANKS][PARTS][T];
    const int mine = blockIdx.x % CLUSTER, warp = threadIdx.x / 32;
    const float *w = p.a + mat * p.rank * in.width;
    const bool fours = ((uintptr_t)w | (uintptr_t)in.x) % 16 == 0 && in.width % 4 == 0 && (in.n == 1 || in.stride % 4 == 0);

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
static __device__ __forceinline__ void looked_up(const adapt_args &a, const op_pair &p, float scale, int64_t row, int n, int at,
                                                 float *h)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < n * p.rank; i += THREADS) {
        const int t = i / p.rank, j = i - t * p.rank;

        h[t * a.floats + at + j] = __fmul_rn(p.a[(int64_t)a.token[row + t] * p.rank + j], scale);
    }
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
static __device__ __forceinline__ void some_rows(const adapt_args &a, const adapt_job &job, int64_t row, int n, int o, float *h)
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
        if (first) { /* on their way while inputs() waits */
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
            inputs<T>(p, mat, scale, in, [&](int t, int rank, int to, float y) {
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

/* Asks for what this block will read of a pair of matrices, whatever the inputs are: its ranks of a (width 0: none), and
 * outputs from .. end - 1 of b. */
static __device__ __forceinline__ void ask_pair(const op_pair &p, int64_t mat, int64_t n_out, int width, int from, int end)
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
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.b + (mat * p.rank + i / lines) * n_out + from + i % lines * LINE));
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
template <int T>
__global__ void __launch_bounds__(THREADS) adapt_rows(const __grid_constant__ adapt_args a)
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
        inputs<1>(p, mat, __fmul_rn(a.list[i].scale, p.scale), in,
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
            ask_part(a, e.part[i], likely + e.part[i].mat, i < 2 ? a.n_in : e.ff, mine * each, i < 2 ? end : mine * each);
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

/* ---- host ---- */

static void launch(struct cuda *c, struct adapt_args *a, int jobs)
{
    const bool together = a->rows > FEW && a->expert == NULL && a->floats <= FLOATS_TOGETHER;
    const int each = together ? (int)TOGETHER : 1;
    unsigned clusters = 0;

    for (int i = 0; i < jobs; i++) {
        a->job[i].slices = (int)ceil_div(a->job[i].n, CLUSTER * THREADS);
        clusters += (unsigned)a->job[i].slices;
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
    return { (float *)y.data, (const op_pair *)pairs + number * adapters, y.stride, w.pitch, w.from / w.pitch, (int)y.ne[0],
             (int)(w.from % w.pitch), 0 };
}

static bool alike(const struct node *v, const struct node *w)
{
    return w->op == DEV_OP_adapt && w->p[1] == v->p[1] && w->p[3] == v->p[3] && memcmp(&w->t[1], &v->t[1], sizeof v->t[1]) == 0;
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
    launch_clusters(c, "adapt_between", adapt_between, dim3(CLUSTER), dim3((unsigned)(experts * CLUSTER)), THREADS,
                    (size_t)(2 * a->floats) * sizeof(float), *a);
}

int cuda_adapt(struct cuda *c, const struct node *v, int n)
{
    struct adapt_args a = args_of(v, v->t[0], v->t[1].ne[0], 1);
    int k = 0;

    a.x = (const float *)v->t[1].data;
    a.x_stride = v->t[1].stride;
    a.token = (const int *)v->p[1];
    for (; k < n && k < OP_PRODUCTS_MAX && alike(v, v + k); k++)
        a.job[k] = job_of(v[k].p[0], 0, v[k].i[1], v[k].t[0], v[k].t[2]);
    const struct node *add = v + k;
    const int jobs = k;
    if (k == 1 && n > 1 && add->op == DEV_OP_add && add->t[1].data == v->t[0].data && add->t[1].ne[0] == v->t[0].ne[0] &&
        add->t[1].ne[1] == v->t[0].ne[1]) {
        a.res = (float *)add->t[0].data;
        a.res_stride = add->t[0].stride;
        a.scale = add->f[0];
        k++;
    }
    launch(c, &a, jobs);
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
        launch(c, &a, jobs);
}
