/* SPDX-License-Identifier: Apache-2.0 */
/* moe.cu - gradients: the choice of experts, pairs of a row and an expert, and their weighted sum, as
 * libcore/grad/ffn.c has them.                                                        room: kernels */
#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, SORTERS = 1024 };

struct moe {
    const float *logits, *x, *dy, *dpair;
    float *prob, *weight, *pair_x, *y, *dx;
    const float *out, *shared, *open;
    int32_t *expert, *row, *place;
    int64_t *first;
    int *cut;
    const int *seq_first;
    struct moe_grads d;
    int64_t rows;
    int n_expert, n_used, n_embd, cuts;
    float scale;
    bool normalise, has_shared, gated;
};

static struct moe moe_of(const struct pass *p, const struct moe_acts *a)
{
    const struct arch_moe_plan *pl = &p->g->plan.moe;
    const struct cgrad *g = cgrad_of(p);
    struct moe m = {};

    m.logits = a->logits;
    m.prob = a->prob;
    m.weight = a->weight;
    m.pair_x = a->x;
    m.out = a->routed.out;
    m.expert = a->expert;
    m.row = a->row;
    m.place = a->place;
    m.first = a->first;
    m.cut = g->cut_experts;
    m.seq_first = g->all.cut;
    m.cuts = g->all.n;
    m.rows = p->n;
    m.n_expert = pl->n_expert;
    m.n_used = pl->n_used;
    m.n_embd = p->g->plan.n_embd;
    m.scale = pl->scale;
    m.normalise = pl->normalise;
    m.has_shared = pl->n_ff_shared > 0;
    m.gated = m.has_shared && pl->shared_gate;
    m.shared = m.has_shared ? a->shared.out : NULL;
    m.open = m.gated ? a->open : NULL;
    return m;
}

/* The largest logit that is not chosen yet, of equals the first; what is not a number counts as the smallest. */
static __device__ int next_best(const float *l, int n, const int32_t *chosen, int k, int lane)
{
    float best = -INFINITY;
    int at = n;

    for (int e = lane; e < n; e += 32) {
        const float v = l[e] == l[e] ? l[e] : -INFINITY;
        bool taken = false;

        for (int i = 0; i < k; i++)
            taken |= chosen[i] == e;
        if (!taken && (at == n || v > best)) {
            best = v;
            at = e;
        }
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        const float v = __shfl_xor_sync(0xffffffffu, best, half);
        const int e = __shfl_xor_sync(0xffffffffu, at, half);

        if (e < n && (at == n || v > best || (v == best && e < at))) {
            best = v;
            at = e;
        }
    }
    return at;
}

/* A warp has a row. */
static __global__ void __launch_bounds__(THREADS) choose(const __grid_constant__ moe m)
{
    const int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float top = -INFINITY, sum = 0.0f;

    if (r >= m.rows)
        return;
    const float *l = m.logits + r * m.n_expert;
    float *prob = m.prob + r * m.n_expert, *weight = m.weight + r * m.n_used;
    int32_t *expert = m.expert + r * m.n_used;
    for (int e = lane; e < m.n_expert; e += 32)
        top = fmaxf(top, l[e]);
    top = warp_max(top);
    for (int e = lane; e < m.n_expert; e += 32)
        sum += prob[e] = expf(l[e] - top);
    sum = warp_sum(sum);
    for (int e = lane; e < m.n_expert; e += 32)
        prob[e] = prob[e] / sum;
    __syncwarp();
    sum = 0.0f;
    for (int k = 0; k < m.n_used; k++) {
        const int e = next_best(l, m.n_expert, expert, k, lane);

        if (lane == 0) {
            expert[k] = e;
            weight[k] = prob[e];
        }
        sum += prob[e];
        __syncwarp();
    }
    const float f = m.scale / (!m.normalise ? 1.0f : sum > 0x1p-14f ? sum : 0x1p-14f);
    for (int k = lane; k < m.n_used; k += 32)
        weight[k] *= f;
}

/* A block has an expert: how many pairs it has. */
static __global__ void __launch_bounds__(SORTERS) count_pairs(const __grid_constant__ moe m)
{
    const int64_t pairs = m.rows * m.n_used;
    int n = 0;

    for (int64_t i0 = 0; i0 < pairs; i0 += SORTERS)
        n += __syncthreads_count(i0 + threadIdx.x < pairs && m.expert[i0 + threadIdx.x] == (int)blockIdx.x);
    if (threadIdx.x == 0)
        m.first[blockIdx.x + 1] = n;
}

/* Counts to beginnings; few, one after the other. */
static __global__ void __launch_bounds__(32) add_counts(int64_t *first, int n)
{
    int64_t before = 0;

    for (int i0 = 1; i0 <= n; i0 += 32) {
        const int i = i0 + (int)threadIdx.x;
        int64_t v = i <= n ? first[i] : 0;

#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int64_t more = __shfl_up_sync(0xffffffffu, v, d);

            v += (int)threadIdx.x >= d ? more : 0;
        }
        if (i <= n)
            first[i] = before + v;
        before += __shfl_sync(0xffffffffu, v, 31);
    }
    if (threadIdx.x == 0)
        first[0] = 0;
}

/* A block has an expert, whose pairs get places, rows ascending. */
static __global__ void __launch_bounds__(SORTERS) place_pairs(const __grid_constant__ moe m)
{
    __shared__ int before[SORTERS / 32];
    const int64_t pairs = m.rows * m.n_used;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t at = m.first[blockIdx.x];

    for (int64_t i0 = 0; i0 < pairs; i0 += SORTERS) {
        const int64_t i = i0 + threadIdx.x;
        const bool mine = i < pairs && m.expert[i] == (int)blockIdx.x;
        const unsigned all = __ballot_sync(0xffffffffu, mine);
        int n = 0;

        if (lane == 0)
            before[warp] = __popc(all);
        const int total = __syncthreads_count(mine);
        for (int w = 0; w < warp; w++)
            n += before[w];
        n += __popc(all & ((1u << lane) - 1));
        if (mine) {
            m.row[at + n] = (int32_t)(i / m.n_used);
            m.place[i] = (int32_t)(at + n);
        }
        at += total;
        __syncthreads();
    }
}

/* Where an expert's pairs of each sequence begin: a thread finds one. grid: sequences and one more, experts */
static __global__ void __launch_bounds__(THREADS) cut_pairs(const __grid_constant__ moe m)
{
    const int s = blockIdx.y * THREADS + threadIdx.x, e = blockIdx.x;

    if (s >= m.cuts)
        return;
    int64_t lo = m.first[e], hi = m.first[e + 1];
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;

        if (m.row[mid] < m.seq_first[s])
            lo = mid + 1;
        else
            hi = mid;
    }
    m.cut[(int64_t)e * m.cuts + s] = (int)lo;
}

static void cut_experts(const struct pass *p, const struct moe &m)
{
    LAUNCH(cgrad_of(p)->c, cut_pairs, dim3((unsigned)m.n_expert, (unsigned)ceil_div(m.cuts, THREADS)), THREADS, 0, m);
}

/* A block has a pair. */
static __global__ void __launch_bounds__(THREADS) gather(const __grid_constant__ moe m)
{
    const float *x = m.x + (int64_t)m.row[blockIdx.x] * m.n_embd;
    float *y = m.pair_x + (int64_t)blockIdx.x * m.n_embd;

    for (int i = threadIdx.x; i < m.n_embd; i += THREADS)
        y[i] = x[i];
}

void cuda_grad_route(const struct pass *p, const struct moe_acts *a, const float *x)
{
    struct cuda *c = cgrad_of(p)->c;
    struct moe m = moe_of(p, a);

    m.x = x;
    LAUNCH(c, choose, grid_of(m.rows, WARPS), THREADS, 0, m);
    LAUNCH(c, count_pairs, grid_of(m.n_expert, 1), SORTERS, 0, m);
    LAUNCH(c, add_counts, 1, 32, 0, m.first, m.n_expert);
    LAUNCH(c, place_pairs, grid_of(m.n_expert, 1), SORTERS, 0, m);
    cut_experts(p, m);
    LAUNCH(c, gather, grid_of(m.rows * m.n_used, 1), THREADS, 0, m);
}

/* A block has a row. */
static __global__ void __launch_bounds__(THREADS) weighted_sum(const __grid_constant__ moe m)
{
    const int64_t r = blockIdx.x;
    const float open = m.gated ? sigmoid(m.open[r]) : 1.0f;

    for (int i = threadIdx.x; i < m.n_embd; i += THREADS) {
        float y = 0.0f;

        for (int64_t k = r * m.n_used; k < (r + 1) * m.n_used; k++)
            y = fmaf(m.weight[k], m.out[(int64_t)m.place[k] * m.n_embd + i], y);
        m.y[r * m.n_embd + i] = m.has_shared ? fmaf(open, m.shared[r * m.n_embd + i], y) : y;
    }
}

void cuda_grad_moe_sum(const struct pass *p, const struct moe_acts *a, float *y)
{
    struct moe m = moe_of(p, a);

    m.y = y;
    LAUNCH(cgrad_of(p)->c, weighted_sum, grid_of(m.rows, 1), THREADS, 0, m);
}

/* A block has a row. */
static __global__ void __launch_bounds__(THREADS) sum_back(const __grid_constant__ moe m)
{
    __shared__ float tmp[WARPS];
    const int64_t r = blockIdx.x;
    const float *dy = m.dy + r * m.n_embd, *prob = m.prob + r * m.n_expert, *weight = m.weight + r * m.n_used;
    const int32_t *expert = m.expert + r * m.n_used, *place = m.place + r * m.n_used;
    float *dl = m.d.logits + r * m.n_expert, *dw = m.d.weight + r * m.n_used, sum = 0.0f, mean = 0.0f, along = 0.0f;

    for (int k = 0; k < m.n_used; k++) {
        const int64_t at = (int64_t)place[k] * m.n_embd;
        float d = 0.0f;

        for (int i = threadIdx.x; i < m.n_embd; i += THREADS) {
            d = fmaf(dy[i], m.out[at + i], d);
            m.d.out[at + i] = weight[k] * dy[i];
        }
        d = block_sum(d, tmp);
        if (threadIdx.x == 0)
            dw[k] = d;
        sum += prob[expert[k]];
        along += d * weight[k];
    }
    sum = !m.normalise ? 1.0f : sum > 0x1p-14f ? sum : 0x1p-14f;
    along = m.normalise && sum > 0x1p-14f ? along : 0.0f;
    for (int e = threadIdx.x; e < m.n_expert; e += THREADS)
        dl[e] = 0.0f;
    __syncthreads();                     /* dw is there, too */
    for (int k = 0; k < m.n_used; k++) { /* weight = scale prob / sum */
        const float dp = (dw[k] * m.scale - along) / sum;

        if (threadIdx.x == 0)
            dl[expert[k]] = dp;
        mean += dp * prob[expert[k]];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < m.n_expert; e += THREADS)
        dl[e] = prob[e] * (dl[e] - mean);
    if (!m.has_shared)
        return;
    const float open = m.gated ? sigmoid(m.open[r]) : 1.0f;
    float d = 0.0f;
    for (int i = threadIdx.x; i < m.n_embd; i += THREADS) {
        m.d.shared[r * m.n_embd + i] = open * dy[i];
        d = fmaf(dy[i], m.shared[r * m.n_embd + i], d);
    }
    d = block_sum(d, tmp);
    if (threadIdx.x == 0)
        m.d.open[r] = d * open * (1.0f - open);
}

void cuda_grad_moe_sum_back(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *d)
{
    struct moe m = moe_of(p, a);

    m.dy = dy;
    m.d = *d;
    cut_experts(p, m); /* another layer may have been computed since */
    LAUNCH(cgrad_of(p)->c, sum_back, grid_of(m.rows, 1), THREADS, 0, m);
}

/* A block has a row. */
static __global__ void __launch_bounds__(THREADS) gather_back(const __grid_constant__ moe m)
{
    const int64_t r = blockIdx.x;

    for (int i = threadIdx.x; i < m.n_embd; i += THREADS) {
        float dx = m.dx[r * m.n_embd + i];

        for (int64_t k = r * m.n_used; k < (r + 1) * m.n_used; k++)
            dx += m.dpair[(int64_t)m.place[k] * m.n_embd + i];
        m.dx[r * m.n_embd + i] = dx;
    }
}

void cuda_grad_gather_back(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair)
{
    struct moe m = moe_of(p, a);

    m.dx = dx;
    m.dpair = dpair;
    LAUNCH(cgrad_of(p)->c, gather_back, grid_of(m.rows, 1), THREADS, 0, m);
}
