/* SPDX-License-Identifier: Apache-2.0 */
/* attn.cu - gradients: gated attention over each sequence, as libcore/grad/attn.c has it. Weights are computed again in
 * the backward pass, once for the queries and once for keys and values, so that every sum is one block's. room: kernels
 */
#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, EACH = 16 /* elements of a head that a lane has */, HEAD_MAX = 32 * EACH };
enum { SCORES_MAX = 40 << 10 /* bytes of shared memory: rows of a sequence times four */ };

int64_t cuda_grad_attn_rows(const struct arch_plan *p)
{
    return p->attn.dim_k <= HEAD_MAX ? SCORES_MAX / (int64_t)sizeof(float) : 0;
}

struct heads {
    const float *qg, *k, *v, *q_norm, *k_norm, *freq;
    float *q_turned, *k_turned, *peak, *o, *gated, *mean;
    float *dgated, *dqg, *dq, *dk_turned, *dk, *dv;
    const int *of, *first;
    int64_t rows;
    int n_head, n_head_kv, d, half;
    float eps, scale;
};

static struct heads heads_of(const struct pass *p, const struct attn_at *w, const struct attn_acts *a)
{
    const struct arch_attn_plan *t = &p->g->plan.attn;
    const struct cgrad *g = cgrad_of(p);
    struct heads h = {};

    h.qg = a->qg;
    h.k = a->k;
    h.v = a->v;
    h.q_norm = w->q_norm;
    h.k_norm = w->k_norm;
    h.freq = p->g->rope_freq;
    h.q_turned = a->q_turned;
    h.k_turned = a->k_turned;
    h.peak = a->peak;
    h.o = a->o;
    h.gated = a->gated;
    h.of = g->of;
    h.first = g->all.cut;
    h.rows = p->n;
    h.n_head = t->n_head;
    h.n_head_kv = t->n_head_kv;
    h.d = t->dim_k;
    h.half = t->n_rot / 2;
    h.eps = p->g->plan.norm_eps;
    h.scale = t->scale;
    return h;
}

static __device__ void turn_head(float *x, const heads &h, int pos, float sign, int lane)
{
    for (int i = lane; i < h.half; i += 32) {
        const float angle = (float)pos * h.freq[i], c = cosf(angle), s = sign * sinf(angle);
        const float u = x[i], v = x[i + h.half];

        x[i] = u * c - v * s;
        x[i + h.half] = u * s + v * c;
    }
}

/* A warp has a head of a row: queries, then keys, normalised and turned. */
static __global__ void __launch_bounds__(THREADS) turn_heads(const __grid_constant__ heads h)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, all = h.n_head + h.n_head_kv, head = (int)(i % all);
    const int64_t row = i / all;
    const bool key = head >= h.n_head;
    float sum = 0.0f;

    if (row >= h.rows)
        return;
    const int64_t q = row * h.n_head + head, k = row * h.n_head_kv + head - h.n_head;
    const float *x = key ? h.k + k * h.d : h.qg + 2 * q * h.d, *w = key ? h.k_norm : h.q_norm;
    float *y = key ? h.k_turned + k * h.d : h.q_turned + q * h.d;
    for (int j = lane; j < h.d; j += 32)
        sum = fmaf(x[j], x[j], sum);
    const float f = norm_factor(warp_sum(sum), h.d, h.eps);
    for (int j = lane; j < h.d; j += 32)
        y[j] = x[j] * f * w[j];
    __syncwarp();
    turn_head(y, h, (int)(row - h.first[h.of[row]]), 1.0f, lane);
}

static __device__ float dot_lanes(const float *x, const float *y, int n, int lane)
{
    float sum = 0.0f;

    for (int i = lane; i < n; i += 32)
        sum = fmaf(x[i], y[i], sum);
    return warp_sum(sum);
}

/* A block has a row of a head. */
static __global__ void __launch_bounds__(THREADS) attend(const __grid_constant__ heads h)
{
    extern __shared__ float s[];
    __shared__ float tmp[WARPS];
    const int head = blockIdx.x % h.n_head, kv = head / (h.n_head / h.n_head_kv), lane = threadIdx.x % 32;
    const int64_t row = blockIdx.x / h.n_head, step = (int64_t)h.n_head_kv * h.d;
    const int first = h.first[h.of[row]], n = (int)row - first + 1;
    const float *q = h.q_turned + (row * h.n_head + head) * h.d, *k = h.k_turned + first * step + kv * h.d;
    const float *v = h.v + first * step + kv * h.d;
    float top = -INFINITY, sum = 0.0f;

    for (int j = threadIdx.x / 32; j < n; j += WARPS) {
        const float score = h.scale * dot_lanes(q, k + j * step, h.d, lane);

        if (lane == 0)
            s[j] = score;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += THREADS)
        top = fmaxf(top, s[j]);
    top = block_max(top, tmp);
    for (int j = threadIdx.x; j < n; j += THREADS)
        sum += s[j] = expf(s[j] - top);
    sum = block_sum(sum, tmp);
    if (threadIdx.x == 0)
        h.peak[row * h.n_head + head] = top + logf(sum);
    for (int i = threadIdx.x; i < h.d; i += THREADS) {
        const int64_t at = (row * h.n_head + head) * h.d + i;
        float o = 0.0f;

        for (int j = 0; j < n; j++)
            o = fmaf(s[j] / sum, v[j * step + i], o);
        h.o[at] = o;
        h.gated[at] = o * sigmoid(h.qg[2 * at - i + h.d]);
    }
}

void cuda_grad_attn(struct pass *p, const struct attn_at *w, const struct attn_acts *a)
{
    if (p->stack.base == NULL)
        return;
    const struct heads h = heads_of(p, w, a);
    struct cgrad *g = cgrad_of(p);
    int64_t longest = 0;

    for (int s = 0; s < p->b->n_seq; s++)
        longest = p->b->seq[s].n > longest ? p->b->seq[s].n : longest;
    LAUNCH(g->c, turn_heads, grid_of(p->n * (h.n_head + h.n_head_kv), WARPS), THREADS, 0, h);
    LAUNCH(g->c, attend, grid_of(p->n * h.n_head, 1), THREADS, (size_t)longest * sizeof(float), h);
}

/* ---- backward ---- */

/* dgated to the gradient of o in its place, and the gates' part of dqg. */
static __global__ void __launch_bounds__(THREADS) gate_back(const __grid_constant__ heads h)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (at >= h.rows * h.n_head * h.d)
        return;
    const int64_t gate = at / h.d * 2 * h.d + h.d + at % h.d;
    const float open = sigmoid(h.qg[gate]);
    h.dqg[gate] = h.dgated[at] * h.o[at] * open * (1.0f - open);
    h.dgated[at] *= open;
}

/* Weight of a key for a query, and the gradient of its score. Of a warp. */
struct pair {
    float weight, ds;
};
static __device__ pair pair_of(const heads &h, const float *q, const float *k, const float *d_o, const float *v,
                               float peak, float mean, int lane)
{
    pair r;

    r.weight = expf(h.scale * dot_lanes(q, k, h.d, lane) - peak);
    r.ds = h.scale * r.weight * (dot_lanes(d_o, v, h.d, lane) - mean);
    return r;
}

static __global__ void __launch_bounds__(THREADS) back_queries(const __grid_constant__ heads h)
{
    extern __shared__ float s[];
    const int head = blockIdx.x % h.n_head, kv = head / (h.n_head / h.n_head_kv), lane = threadIdx.x % 32;
    const int64_t row = blockIdx.x / h.n_head, step = (int64_t)h.n_head_kv * h.d, at = (row * h.n_head + head) * h.d;
    const int first = h.first[h.of[row]], n = (int)row - first + 1;
    const float *k = h.k_turned + first * step + kv * h.d, *v = h.v + first * step + kv * h.d;
    const float mean = dot_lanes(h.dgated + at, h.o + at, h.d, lane), peak = h.peak[row * h.n_head + head];

    if (threadIdx.x == 0)
        h.mean[row * h.n_head + head] = mean;
    for (int j = threadIdx.x / 32; j < n; j += WARPS) {
        const pair r = pair_of(h, h.q_turned + at, k + j * step, h.dgated + at, v + j * step, peak, mean, lane);

        if (lane == 0)
            s[j] = r.ds;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < h.d; i += THREADS) {
        float dq = 0.0f;

        for (int j = 0; j < n; j++)
            dq = fmaf(s[j], k[j * step + i], dq);
        h.dq[at + i] = dq;
    }
}

/* A block has a row of a key head: what later rows of the sequence, and the query heads that share it, give to it. */
static __global__ void __launch_bounds__(THREADS) back_keys(const __grid_constant__ heads h)
{
    extern __shared__ float s[]; /* [2][WARPS][d] */
    const int kv = blockIdx.x % h.n_head_kv, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
              group = h.n_head / h.n_head_kv;
    const int64_t row = blockIdx.x / h.n_head_kv, at = (row * h.n_head_kv + kv) * h.d;
    const int after = h.first[h.of[row] + 1] - (int)row;
    float dk[EACH] = {}, dv[EACH] = {};

    for (int i = warp; i < after * group; i += WARPS) {
        const int64_t q = ((row + i / group) * h.n_head + kv * group + i % group);
        const float *query = h.q_turned + q * h.d, *d_o = h.dgated + q * h.d;
        const pair r = pair_of(h, query, h.k_turned + at, d_o, h.v + at, h.peak[q], h.mean[q], lane);

#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (lane + 32 * e < h.d) {
                dk[e] = fmaf(r.ds, query[lane + 32 * e], dk[e]);
                dv[e] = fmaf(r.weight, d_o[lane + 32 * e], dv[e]);
            }
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (lane + 32 * e < h.d) {
            s[warp * h.d + lane + 32 * e] = dk[e];
            s[(WARPS + warp) * h.d + lane + 32 * e] = dv[e];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * h.d; i += THREADS) {
        const float *from = s + i / h.d * WARPS * h.d + i % h.d;
        float sum = 0.0f;

        for (int j = 0; j < WARPS; j++)
            sum += from[j * h.d];
        (i < h.d ? h.dk_turned : h.dv)[at + i % h.d] = sum;
    }
}

/* Turned back, and through the norms: a warp has a head of a row. */
static __global__ void __launch_bounds__(THREADS) back_heads(const __grid_constant__ heads h)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, all = h.n_head + h.n_head_kv, head = (int)(i % all);
    const int64_t row = i / all;
    const bool key = head >= h.n_head;

    if (row >= h.rows)
        return;
    const int64_t q = row * h.n_head + head, k = row * h.n_head_kv + head - h.n_head;
    const float *x = key ? h.k + k * h.d : h.qg + 2 * q * h.d, *w = key ? h.k_norm : h.q_norm;
    float *dy = key ? h.dk_turned + k * h.d : h.dq + q * h.d, *dx = key ? h.dk + k * h.d : h.dqg + 2 * q * h.d;
    float sum = 0.0f, along = 0.0f;

    turn_head(dy, h, (int)(row - h.first[h.of[row]]), -1.0f, lane);
    __syncwarp();
    for (int j = lane; j < h.d; j += 32) {
        sum = fmaf(x[j], x[j], sum);
        along = fmaf(w[j] * dy[j], x[j], along);
    }
    const float f = norm_factor(warp_sum(sum), h.d, h.eps);
    along = warp_sum(along) * f * f / (float)h.d;
    for (int j = lane; j < h.d; j += 32)
        dx[j] = f * (w[j] * dy[j] - along * x[j]);
}

void cuda_grad_attn_back(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                         float *dk, float *dv)
{
    const struct arch_attn_plan *t = &p->g->plan.attn;
    const int64_t mark = p->stack.used;
    float *dq = grad_take(&p->stack, p->n * t->n_head * t->dim_k);
    float *dk_turned = grad_take(&p->stack, p->n * t->n_head_kv * t->dim_k),
          *mean = grad_take(&p->stack, p->n * t->n_head);
    int64_t longest = 0;

    p->stack.used = mark;
    if (p->stack.base == NULL)
        return;
    struct cgrad *g = cgrad_of(p);
    struct heads h = heads_of(p, w, a);
    h.mean = mean;
    h.dgated = dgated;
    h.dqg = dqg;
    h.dq = dq;
    h.dk_turned = dk_turned;
    h.dk = dk;
    h.dv = dv;
    for (int s = 0; s < p->b->n_seq; s++)
        longest = p->b->seq[s].n > longest ? p->b->seq[s].n : longest;
    LAUNCH(g->c, gate_back, grid_of(p->n * h.n_head * h.d, THREADS), THREADS, 0, h);
    LAUNCH(g->c, back_queries, grid_of(p->n * h.n_head, 1), THREADS, (size_t)longest * sizeof(float), h);
    LAUNCH(g->c, back_keys, grid_of(p->n * h.n_head_kv, 1), THREADS, 2 * WARPS * (size_t)h.d * sizeof(float), h);
    LAUNCH(g->c, back_heads, grid_of(p->n * (h.n_head + h.n_head_kv), WARPS), THREADS, 0, h);
}
