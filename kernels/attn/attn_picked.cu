/* SPDX-License-Identifier: Apache-2.0 */
/* attn_picked.cu - an indexer's keys, the blocks of positions that a query takes, and attention over these.
 *
 * A block of threads has a row (and a query head); sums have an order that depends on nothing but the shapes. */
#include <math_constants.h>

#include "kernels/common/math.cuh"
#include "kernels/quant/unit.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, DIM_MAX = 1024 };

struct index_args {
    const float *x; /* keys or queries of the rows */
    int64_t xs;
    const float *norm, *freq;
    int ratio, most, n_head, n_rot;
    bool pairs;
    float eps;
    struct op_kv kv;
    int64_t k_bytes, v_bytes, v_at, x_bytes, x_at; /* of a row; of a page's first value, of its first indexer's key */
    struct rows r;
    struct pages pg;
    int *pick;
    float *scores; /* [rows][stride] */
    int64_t stride;
    float *y; /* attention */
    int64_t ys;
    int group; /* query heads of a KV head */
    float scale;
};

static __device__ __forceinline__ uint8_t *page_of(const index_args &a, int seq, int pos)
{
    return a.kv.pages + (size_t)a.pg.page[(int64_t)seq * a.pg.stride + pos / OP_KV_PAGE] * a.kv.page_bytes;
}

static __device__ __forceinline__ uint8_t *index_row(const index_args &a, int seq, int pos)
{
    return page_of(a, seq, pos) + a.x_at + pos % OP_KV_PAGE * a.x_bytes;
}

static __device__ __forceinline__ float element(int type, const uint8_t *row, int i)
{
    switch (type) {
    case QUANT_f32:
        return ((const float *)row)[i];
    case QUANT_f16:
        return half_at(row + 2 * i);
    case QUANT_q8_0:
        row += i / 32 * 34;
        return __fmul_rn(half_at(row), (float)(int8_t)row[2 + i % 32]);
    default: /* q4_0 */
        row += i / 32 * 18;
        return __fmul_rn(half_at(row), (float)((row[2 + i % 16] >> i % 32 / 16 * 4 & 15) - 8));
    }
}

static __device__ __forceinline__ void put(int type, uint8_t *row, int i, float v)
{
    if (type == QUANT_f32)
        ((float *)row)[i] = v;
    else
        ((__half *)row)[i] = __float2half_rn(v);
}

/* ---- keys ---- */

/* grid: row */
__global__ void __launch_bounds__(THREADS) store_keys(const __grid_constant__ index_args a)
{
    const int row = blockIdx.x;
    uint8_t *to = index_row(a, a.r.of[row], a.r.pos[row]);

    for (int i = threadIdx.x; i < a.kv.dim_x; i += THREADS)
        put(a.kv.type_x, to, i, a.x[row * a.xs + i]);
}

/* Rows that end a block: its key in the place of their own. grid: row */
__global__ void __launch_bounds__(THREADS) end_blocks(const __grid_constant__ index_args a)
{
    __shared__ float v[DIM_MAX], tmp[8];
    const int row = blockIdx.x, seq = a.r.of[row], end = a.r.pos[row], first = end - a.ratio + 1, half = a.n_rot / 2;
    const int dim = a.kv.dim_x;
    float squares = 0.0f;

    if ((end + 1) % a.ratio != 0)
        return;
    for (int i = threadIdx.x; i < dim; i += THREADS) {
        float sum = 0.0f;

        for (int p = first; p <= end; p++)
            sum = __fadd_rn(sum, element(a.kv.type_x, index_row(a, seq, p), i));
        v[i] = __fmul_rn(sum, __fdiv_rn(1.0f, (float)a.ratio));
        squares = __fmaf_rn(v[i], v[i], squares);
    }
    const float f = norm_factor(block_sum(squares, tmp), dim, a.eps);
    for (int i = threadIdx.x; i < dim; i += THREADS)
        v[i] = __fmul_rn(__fmul_rn(v[i], f), a.norm[i]);
    __syncthreads();
    for (int i = threadIdx.x; i < half; i += THREADS) {
        float *p = v + (a.pairs ? 2 * i : i), *q = p + (a.pairs ? 1 : half), sn, cs;
        const float u = *p, w = *q;

        sincosf(__fmul_rn((float)first, a.freq[i]), &sn, &cs);
        *p = __fsub_rn(__fmul_rn(u, cs), __fmul_rn(w, sn));
        *q = __fadd_rn(__fmul_rn(u, sn), __fmul_rn(w, cs));
    }
    __syncthreads();
    uint8_t *to = index_row(a, seq, end);
    for (int i = threadIdx.x; i < dim; i += THREADS)
        put(a.kv.type_x, to, i, v[i]);
}

/* ---- the best blocks ---- */

/* Threads before this one, of all in the block, for which `mine` is true; *all: of all. tmp: WARPS ints. */
static __device__ __forceinline__ int count_before(bool mine, int *all, int *tmp)
{
    const unsigned mask = __ballot_sync(0xffffffffu, mine);
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    int before = __popc(mask & ((1u << lane) - 1));

    __syncthreads();
    if (lane == 0)
        tmp[warp] = __popc(mask);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? tmp[i] : 0;
        *all += tmp[i];
    }
    return before;
}

/* Scores are not negative: their bits have their order. grid: row of a sequence, sequence */
__global__ void __launch_bounds__(THREADS) pick_blocks(const __grid_constant__ index_args a)
{
    extern __shared__ float q[]; /* [n_head][dim] */
    __shared__ int count[256], tmp[WARPS];
    __shared__ unsigned found;
    __shared__ int still;
    const op_seq &s = a.r.seq[blockIdx.y];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, dim = a.kv.dim_x, row = s.row + (int)blockIdx.x;

    if ((int)blockIdx.x >= s.n)
        return;
    const int blocks = (a.r.pos[row] + 1) / a.ratio, type = a.kv.type_x;
    float *scores = a.scores + row * a.stride;

    for (int i = threadIdx.x; i < a.n_head * dim; i += THREADS)
        q[i] = a.x[row * a.xs + i];
    __syncthreads();
    for (int b = warp; b < blocks; b += WARPS) {
        const uint8_t *key = index_row(a, blockIdx.y, (b + 1) * a.ratio - 1);
        float all = 0.0f;

        for (int h = 0; h < a.n_head; h++) {
            float sum = 0.0f;

            for (int i = lane; i < dim; i += 32)
                sum = __fmaf_rn(q[h * dim + i], element(type, key, i), sum);
            sum = warp_sum(sum);
            all = __fadd_rn(all, sum > 0.0f ? sum : 0.0f);
        }
        if (lane == 0)
            scores[b] = all;
    }
    unsigned least = 0;
    int need = a.most;
    for (int shift = 24; shift >= 0; shift -= 8) {
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int b = threadIdx.x; b < blocks; b += THREADS) {
            const unsigned u = __float_as_uint(scores[b]);

            if (shift == 24 || u >> (shift + 8) == least >> (shift + 8))
                atomicAdd(&count[u >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int byte = 255;

            while (byte > 0 && count[byte] < need)
                need -= count[byte--];
            found = least | (unsigned)byte << shift;
            still = need;
        }
        __syncthreads();
        least = found;
        need = still;
    }
    int taken = 0, equal = 0;
    for (int b0 = 0; b0 < blocks; b0 += THREADS) {
        const int b = b0 + threadIdx.x;
        const unsigned u = b < blocks ? __float_as_uint(scores[b]) : 0;
        const bool same = b < blocks && u == least;
        int all;
        const int earlier = equal + count_before(same, &all, tmp);

        equal += all;
        const bool take = b < blocks && (u > least || (same && earlier < need));
        const int at = taken + count_before(take, &all, tmp);

        taken += all;
        if (take)
            a.pick[(int64_t)row * a.most + at] = b;
    }
}

/* ---- attention ---- */

/* Position number j of those that a query at `pos` takes. */
static __device__ __forceinline__ int position(const index_args &a, const int *pick, int pos, int j)
{
    const int block = j / a.ratio;

    return (block < a.most ? pick[block] : (pos + 1) / a.ratio) * a.ratio + j % a.ratio;
}

/* grid: row of a sequence, query head, sequence */
__global__ void __launch_bounds__(THREADS) attend_picked(const __grid_constant__ index_args a)
{
    extern __shared__ float weight[]; /* [positions], then the query */
    __shared__ float tmp[8], part[THREADS];
    const op_seq &s = a.r.seq[blockIdx.z];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, row = s.row + (int)blockIdx.x, head = blockIdx.y;
    const int h = head / a.group, dim_k = a.kv.dim_k, dim_v = a.kv.dim_v;

    if ((int)blockIdx.x >= s.n)
        return;
    const int pos = a.r.pos[row], n = a.most * a.ratio + (pos + 1) % a.ratio, *pick = a.pick + (int64_t)row * a.most;
    float *q = weight + (a.most + 1) * a.ratio, top = -CUDART_INF_F, sum = 0.0f;

    for (int i = threadIdx.x; i < dim_k; i += THREADS)
        q[i] = a.x[row * a.xs + (int64_t)head * dim_k + i];
    __syncthreads();
    for (int j = warp; j < n; j += WARPS) {
        const int p = position(a, pick, pos, j);
        const uint8_t *key = page_of(a, blockIdx.z, p) + ((int64_t)h * OP_KV_PAGE + p % OP_KV_PAGE) * a.k_bytes;
        float dot = 0.0f;

        for (int i = lane; i < dim_k; i += 32)
            dot = __fmaf_rn(q[i], element(a.kv.type_k, key, i), dot);
        dot = __fmul_rn(warp_sum(dot), a.scale);
        if (lane == 0)
            weight[j] = dot;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += THREADS)
        top = fmaxf(top, weight[j]);
    top = block_max(top, tmp);
    for (int j = threadIdx.x; j < n; j += THREADS) {
        weight[j] = expf(__fsub_rn(weight[j], top));
        sum = __fadd_rn(sum, weight[j]);
    }
    sum = block_sum(sum, tmp);
    /* columns side by side, and as many groups of positions as threads are left for */
    const int columns = min((dim_v + 31) / 32 * 32, (int)THREADS), groups = THREADS / columns;
    const int g = threadIdx.x / columns;
    for (int d0 = 0; d0 < dim_v; d0 += columns) {
        const int d = d0 + threadIdx.x % columns;
        float v = 0.0f;

        if (g < groups && d < dim_v)
            for (int j = g; j < n; j += groups) {
                const int p = position(a, pick, pos, j);
                const uint8_t *value =
                    page_of(a, blockIdx.z, p) + a.v_at + ((int64_t)h * OP_KV_PAGE + p % OP_KV_PAGE) * a.v_bytes;

                v = __fmaf_rn(weight[j], element(a.kv.type_v, value, d), v);
            }
        part[threadIdx.x] = v;
        __syncthreads();
        if (g == 0 && d < dim_v) {
            for (int i = 1; i < groups; i++)
                v = __fadd_rn(v, part[i * columns + threadIdx.x]);
            a.y[row * a.ys + (int64_t)head * dim_v + d] = __fdiv_rn(v, sum);
        }
        __syncthreads();
    }
}

/* ---- launches ---- */

static int64_t most_blocks(const struct node *v)
{
    return (int64_t)v->pg.stride * OP_KV_PAGE / v->i[0];
}

size_t cuda_index_ws(const struct node *v)
{
    return (size_t)(v->r.n * most_blocks(v)) * sizeof(float);
}

void cuda_index(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    const struct tensor &x = v->t[v->op == DEV_OP_index_store ? 0 : 1];
    index_args a = {};

    a.x = (const float *)x.data;
    a.xs = x.stride;
    a.norm = (const float *)v->p[0];
    a.freq = (const float *)v->p[1];
    a.ratio = v->i[0];
    a.most = v->i[1];
    a.n_head = v->i[2];
    a.n_rot = v->i[3];
    a.pairs = v->n != 0;
    a.eps = v->f[0];
    a.kv = kv;
    a.k_bytes = quant_row_bytes(kv.type_k, kv.dim_k);
    a.v_bytes = quant_row_bytes(kv.type_v, kv.dim_v);
    a.x_bytes = quant_row_bytes(kv.type_x, kv.dim_x);
    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.x_at = kv.n_head * OP_KV_PAGE * (a.k_bytes + a.v_bytes);
    a.r = v->r;
    a.pg = v->pg;
    if (v->op == DEV_OP_index_store) {
        LAUNCH(c, store_keys, (unsigned)v->r.n, THREADS, 0, a);
        LAUNCH(c, end_blocks, (unsigned)v->r.n, THREADS, 0, a);
        return;
    }
    if (v->op == DEV_OP_index_pick) {
        a.pick = (int *)v->out;
        a.scores = (float *)c->ws;
        a.stride = most_blocks(v);
        LAUNCH(c, pick_blocks, dim3((unsigned)v->r.max_n, (unsigned)v->r.n_seq), THREADS,
               (size_t)(a.n_head * kv.dim_x) * sizeof(float), a);
        return;
    }
    a.pick = (int *)(uintptr_t)v->p[2];
    a.y = (float *)v->t[0].data;
    a.ys = v->t[0].stride;
    a.group = (int)(x.ne[0] / kv.dim_k) / kv.n_head;
    a.scale = v->f[0];
    LAUNCH(c, attend_picked, dim3((unsigned)v->r.max_n, (unsigned)(kv.n_head * a.group), (unsigned)v->r.n_seq), THREADS,
           (size_t)((a.most + 1) * a.ratio + kv.dim_k) * sizeof(float), a);
}
