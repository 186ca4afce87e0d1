/* SPDX-License-Identifier: Apache-2.0 */
/* gdn.cu - gradients: gated delta nets, as libcore/grad/gdn.c has them. The states before all tokens of a head are kept
 * in its backward pass, of as many heads at a time as SPACE allows.       room: kernels */
#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    SHARE = 8 /* lanes of a column of a state */,
    WIDE_MAX = 128,
    DEEP_MAX = 256
};
enum { SPACE = 1 << 26 /* floats of states, and a 16th of the memory at most */ };

bool cuda_grad_gdn_fits(const struct arch_plan *p)
{
    return p->gdn.dim <= DEEP_MAX && p->gdn.dim_v <= WIDE_MAX;
}

struct nets {
    const float *qkv, *conv, *dt_bias, *decay, *norm, *alpha, *beta, *z;
    float *mixed, *q, *k, *o, *gated, *ba;
    const float *dgated;
    float *d_o, *dz, *dq, *dk, *dmixed, *dqkv, *dalpha, *dbeta, *states;
    const int *of, *first;
    int64_t rows, longest;
    int n_k, n_v, dim, dim_v, taps, channels, keys, inner, unit;
    bool grouped;
    float eps;
};

static struct nets nets_of(const struct pass *p, const struct gdn_at *w, const struct gdn_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct arch_gdn_plan *d = &pl->gdn;
    const struct cgrad *g = cgrad_of(p);
    struct nets n = {};

    n.qkv = a->qkv;
    n.conv = w->conv;
    n.dt_bias = w->dt_bias;
    n.decay = w->a;
    n.norm = w->norm;
    n.alpha = a->alpha;
    n.beta = a->beta;
    n.z = a->z;
    n.mixed = a->mixed;
    n.q = a->q;
    n.k = a->k;
    n.o = a->o;
    n.gated = a->gated;
    n.ba = a->ba;
    n.of = g->of;
    n.first = g->all.cut;
    n.rows = p->n;
    n.n_k = d->n_k;
    n.n_v = d->n_v;
    n.dim = d->dim;
    n.dim_v = d->dim_v;
    n.taps = pl->taps;
    n.keys = d->n_k * d->dim;
    n.inner = d->n_v * d->dim_v;
    n.channels = 2 * n.keys + n.inner;
    n.grouped = d->k_grouped;
    n.eps = pl->norm_eps;
    for (int s = 0; s < p->b->n_seq; s++)
        n.longest = p->b->seq[s].n > n.longest ? p->b->seq[s].n : n.longest;
    return n;
}

/* Between the one matrix of beta and alpha, by key head, and the two: there, or back. */
static __global__ void __launch_bounds__(THREADS)
    split_ba(float *ba, float *beta, float *alpha, int64_t n, int n_v, int n_k, bool there)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, r = i / n_v;
    const int h = (int)(i % n_v), each = n_v / n_k;

    if (i >= n)
        return;
    float *b = ba + r * 2 * n_v + h / each * 2 * each + h % each, *a = b + each;
    *(there ? &beta[i] : b) = *(there ? b : &beta[i]);
    *(there ? &alpha[i] : a) = *(there ? a : &alpha[i]);
}

/* The convolution before its SiLU. */
static __device__ float conv_at(const nets &n, int64_t row, int first, int c)
{
    float sum = 0.0f;

    for (int t = 0; t < n.taps; t++) {
        const int64_t r = row - n.taps + 1 + t;

        if (r >= first)
            sum = fmaf(n.conv[t * n.channels + c], n.qkv[r * n.channels + c], sum);
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS) convolve(const __grid_constant__ nets n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / n.channels;

    if (row >= n.rows)
        return;
    const float x = conv_at(n, row, n.first[n.of[row]], (int)(i % n.channels));
    n.mixed[i] = x * sigmoid(x);
}

/* Queries, then keys, of unit length: a warp has a head of a row. */
static __global__ void __launch_bounds__(THREADS) unit_heads(const __grid_constant__ nets n)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, row = i / (2 * n.n_k);
    const int head = (int)(i % (2 * n.n_k)), lane = threadIdx.x % 32;
    const bool key = head >= n.n_k;
    float sum = 0.0f;

    if (row >= n.rows)
        return;
    const float *x = n.mixed + row * n.channels + (int64_t)head * n.dim;
    float *y = (key ? n.k : n.q) + row * n.keys + (int64_t)(key ? head - n.n_k : head) * n.dim;
    for (int j = lane; j < n.dim; j += 32)
        sum = fmaf(x[j], x[j], sum);
    const float f = (key ? 1.0f : 1.0f / sqrtf((float)n.dim)) / sqrtf(warp_sum(sum) + n.eps);
    for (int j = lane; j < n.dim; j += 32)
        y[j] = f * x[j];
}

/* A token of a head for a thread: column `col` of its state, of rows part + SHARE r. */
struct token {
    const float *q, *k;
    float g, b, u, v;
};

static __device__ float softplus_of(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static __device__ token token_of(const nets &n, int64_t row, int h, int col)
{
    const int64_t at = row * n.n_v + h;
    const int key = n.grouped ? h / (n.n_v / n.n_k) : h % n.n_k;
    token t;

    t.q = n.q + row * n.keys + (int64_t)key * n.dim;
    t.k = n.k + row * n.keys + (int64_t)key * n.dim;
    t.u = n.alpha[at] + n.dt_bias[h];
    t.g = expf(n.decay[h] * softplus_of(t.u));
    t.b = sigmoid(n.beta[at]);
    t.v = col < n.dim_v ? n.mixed[row * n.channels + 2 * n.keys + (int64_t)h * n.dim_v + col] : 0.0f;
    return t;
}

static __device__ __forceinline__ float column_sum(float v)
{
#pragma unroll
    for (int half = SHARE / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, half);
    return v;
}

static __device__ __forceinline__ float at_or_zero(const float *x, int i, int n)
{
    return i < n ? x[i] : 0.0f;
}

/* Returns v - g sum over i of S_i k_i */
template <int NI> static __device__ float error_of(const float s[NI], const token &t, int part, int dim)
{
    float sum = 0.0f;

#pragma unroll
    for (int r = 0; r < NI; r++)
        sum = fmaf(s[r], at_or_zero(t.k, part + SHARE * r, dim), sum);
    return fmaf(-t.g, column_sum(sum), t.v);
}

/* grid: sequence and head, columns */
template <int NI> static __global__ void __launch_bounds__(THREADS) scan(const __grid_constant__ nets n)
{
    const int seq = blockIdx.x / n.n_v, h = blockIdx.x % n.n_v, part = threadIdx.x % SHARE;
    const int col = blockIdx.y * (THREADS / SHARE) + threadIdx.x / SHARE;
    float s[NI] = {};

    for (int64_t row = n.first[seq]; row < n.first[seq + 1]; row++) {
        const token t = token_of(n, row, h, col);
        const float d = t.b * error_of<NI>(s, t, part, n.dim);
        float y = 0.0f;

#pragma unroll
        for (int r = 0; r < NI; r++) {
            s[r] = fmaf(at_or_zero(t.k, part + SHARE * r, n.dim), d, t.g * s[r]);
            y = fmaf(s[r], at_or_zero(t.q, part + SHARE * r, n.dim), y);
        }
        y = column_sum(y);
        if (part == 0 && col < n.dim_v)
            n.o[row * n.inner + (int64_t)h * n.dim_v + col] = y;
    }
}

/* gated = norm(o) silu(z): a warp has a head of a row. */
static __global__ void __launch_bounds__(THREADS) gate_heads(const __grid_constant__ nets n)
{
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;

    if (i >= n.rows * n.n_v)
        return;
    const float *o = n.o + i * n.dim_v, *z = n.z + i * n.dim_v;
    for (int c = lane; c < n.dim_v; c += 32)
        sum = fmaf(o[c], o[c], sum);
    const float f = norm_factor(warp_sum(sum), n.dim_v, n.eps);
    for (int c = lane; c < n.dim_v; c += 32)
        n.gated[i * n.dim_v + c] = f * o[c] * n.norm[c] * (z[c] * sigmoid(z[c]));
}

void cuda_grad_gdn(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a)
{
    if (p->stack.base == NULL)
        return;
    const struct nets n = nets_of(p, w, a);
    struct cuda *c = cgrad_of(p)->c;
    const dim3 grid((unsigned)(p->b->n_seq * n.n_v), (unsigned)ceil_div(n.dim_v, THREADS / SHARE));

    if (w->ba >= 0)
        LAUNCH(c, split_ba, grid_of(p->n * n.n_v, THREADS), THREADS, 0, a->ba, a->beta, a->alpha, p->n * n.n_v, n.n_v,
               n.n_k, true);
    LAUNCH(c, convolve, grid_of(p->n * n.channels, THREADS), THREADS, 0, n);
    LAUNCH(c, unit_heads, grid_of(p->n * 2 * n.n_k, WARPS), THREADS, 0, n);
    if (n.dim <= 64)
        LAUNCH(c, scan<64 / SHARE>, grid, THREADS, 0, n);
    else if (n.dim <= 128)
        LAUNCH(c, scan<128 / SHARE>, grid, THREADS, 0, n);
    else
        LAUNCH(c, scan<DEEP_MAX / SHARE>, grid, THREADS, 0, n);
    LAUNCH(c, gate_heads, grid_of(p->n * n.n_v, WARPS), THREADS, 0, n);
}

/* ---- backward ---- */

static __device__ float silu_slope(float x)
{
    const float s = sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

static __global__ void __launch_bounds__(THREADS) gate_heads_back(const __grid_constant__ nets n)
{
    const int64_t i = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * n.dim_v;
    const int lane = threadIdx.x % 32;
    float sum = 0.0f, along = 0.0f;

    if (i >= n.rows * n.inner)
        return;
    const float *o = n.o + i, *z = n.z + i, *dg = n.dgated + i;
    for (int c = lane; c < n.dim_v; c += 32) {
        sum = fmaf(o[c], o[c], sum);
        along = fmaf(dg[c] * n.norm[c] * (z[c] * sigmoid(z[c])), o[c], along);
    }
    const float f = norm_factor(warp_sum(sum), n.dim_v, n.eps);
    along = warp_sum(along) * f * f / (float)n.dim_v;
    for (int c = lane; c < n.dim_v; c += 32) {
        n.dz[i + c] = dg[c] * f * o[c] * n.norm[c] * silu_slope(z[c]);
        n.d_o[i + c] = f * (dg[c] * n.norm[c] * (z[c] * sigmoid(z[c])) - along * o[c]);
    }
}

/* Sums of the block's columns: element i of dq and dk, and of the two gates. */
static __device__ void put_sums(const nets &n, const float *sums, int64_t row, int h, const token &t)
{
    const int warps = blockDim.x / 32, wide = 2 * n.dim + 2;
    const int64_t at = row * n.n_v + h;

    for (int i = threadIdx.x; i < wide; i += blockDim.x) {
        float v = 0.0f;

        for (int w = 0; w < warps; w++)
            v += sums[w * wide + i];
        if (i < n.dim)
            n.dq[at * n.dim + i] = v;
        else if (i < 2 * n.dim)
            n.dk[at * n.dim + i - n.dim] = v;
        else if (i == 2 * n.dim)
            n.dalpha[at] = v * t.g * n.decay[h] * sigmoid(t.u);
        else
            n.dbeta[at] = v * t.b * (1.0f - t.b);
    }
}

/* A block has a head of a sequence, SHARE threads a column; the state before each token is in n.states. */
template <int NI> static __global__ void __launch_bounds__(WIDE_MAX *SHARE) scan_back(const __grid_constant__ nets n)
{
    extern __shared__ float sums[]; /* [warps][2 dim + 2] */
    const int unit = n.unit + blockIdx.x, seq = unit / n.n_v, h = unit % n.n_v;
    const int part = threadIdx.x % SHARE, col = threadIdx.x / SHARE, lane = threadIdx.x % 32;
    const int64_t first = n.first[seq], end = n.first[seq + 1], size = (int64_t)NI * blockDim.x;
    float *states = n.states + (int64_t)blockIdx.x * n.longest * size + threadIdx.x;
    float *mine = sums + threadIdx.x / 32 * (2 * n.dim + 2);
    float s[NI] = {}, ds[NI] = {};

    for (int64_t row = first; row < end; row++) {
        const token t = token_of(n, row, h, col);
        const float d = t.b * error_of<NI>(s, t, part, n.dim);

#pragma unroll
        for (int r = 0; r < NI; r++) {
            states[(row - first) * size + r * blockDim.x] = s[r];
            s[r] = fmaf(at_or_zero(t.k, part + SHARE * r, n.dim), d, t.g * s[r]);
        }
    }
    for (int64_t row = end - 1; row >= first; row--) {
        const token t = token_of(n, row, h, col);
        const int64_t v_at = (int64_t)h * n.dim_v + col;
        const float dy = col < n.dim_v ? n.d_o[row * n.inner + v_at] : 0.0f;
        float dd = 0.0f, dg = 0.0f;

#pragma unroll
        for (int r = 0; r < NI; r++)
            s[r] = states[(row - first) * size + r * blockDim.x];
        const float error = error_of<NI>(s, t, part, n.dim), d = t.b * error;
#pragma unroll
        for (int r = 0; r < NI; r++) {
            const float k = at_or_zero(t.k, part + SHARE * r, n.dim);
            float dq = fmaf(k, d, t.g * s[r]) * dy;

            ds[r] = fmaf(at_or_zero(t.q, part + SHARE * r, n.dim), dy, ds[r]);
            dd = fmaf(ds[r], k, dd);
            dq += __shfl_xor_sync(0xffffffffu, dq, SHARE);
            dq += __shfl_xor_sync(0xffffffffu, dq, 2 * SHARE);
            if (lane < SHARE && part + SHARE * r < n.dim)
                mine[part + SHARE * r] = dq;
        }
        dd = column_sum(dd);
        const float dv = t.b * dd;
#pragma unroll
        for (int r = 0; r < NI; r++) {
            float dk = fmaf(ds[r], d, t.g * s[r] * -dv);

            ds[r] = fmaf(at_or_zero(t.k, part + SHARE * r, n.dim), -dv, ds[r]);
            dg = fmaf(ds[r], s[r], dg);
            ds[r] *= t.g;
            dk += __shfl_xor_sync(0xffffffffu, dk, SHARE);
            dk += __shfl_xor_sync(0xffffffffu, dk, 2 * SHARE);
            if (lane < SHARE && part + SHARE * r < n.dim)
                mine[n.dim + part + SHARE * r] = dk;
        }
        dg = warp_sum(dg);
        const float db = warp_sum(part == 0 ? error * dd : 0.0f);
        if (lane == 0) {
            mine[2 * n.dim] = dg;
            mine[2 * n.dim + 1] = db;
        }
        if (part == 0 && col < n.dim_v)
            n.dmixed[row * n.channels + 2 * n.keys + v_at] = dv;
        __syncthreads();
        put_sums(n, sums, row, h, t);
        __syncthreads();
    }
}

/* Gradients of value heads that share a key head are added; then through the unit length. A warp has a key head of a
 * row. */
static __global__ void __launch_bounds__(THREADS) unit_heads_back(const __grid_constant__ nets n)
{
    enum { EACH = DEEP_MAX / 32 };
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, row = i / (2 * n.n_k);
    const int both = (int)(i % (2 * n.n_k)), head = both % n.n_k, lane = threadIdx.x % 32;
    const bool key = both >= n.n_k;
    float dy[EACH] = {}, sum = 0.0f, along = 0.0f;

    if (row >= n.rows)
        return;
    const float *x = n.mixed + row * n.channels + (int64_t)both * n.dim;
    for (int h = 0; h < n.n_v; h++) {
        const float *each = (key ? n.dk : n.dq) + (row * n.n_v + h) * n.dim;

        if ((n.grouped ? h / (n.n_v / n.n_k) : h % n.n_k) != head)
            continue;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            dy[e] += at_or_zero(each, lane + 32 * e, n.dim);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const float v = at_or_zero(x, lane + 32 * e, n.dim);

        sum = fmaf(v, v, sum);
        along = fmaf(v, dy[e], along);
    }
    sum = warp_sum(sum) + n.eps;
    along = warp_sum(along) / sum;
    const float f = (key ? 1.0f : 1.0f / sqrtf((float)n.dim)) / sqrtf(sum);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (lane + 32 * e < n.dim)
            n.dmixed[row * n.channels + (int64_t)both * n.dim + lane + 32 * e] = f * (dy[e] - along * x[lane + 32 * e]);
}

static __global__ void __launch_bounds__(THREADS) convolve_back(const __grid_constant__ nets n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / n.channels;
    const int c = (int)(i % n.channels);
    float sum = 0.0f;

    if (row >= n.rows)
        return;
    const int first = n.first[n.of[row]], end = n.first[n.of[row] + 1];
    for (int t = n.taps - 1; t >= 0; t--) {
        const int64_t r = row + n.taps - 1 - t;

        if (r < end)
            sum = fmaf(n.dmixed[r * n.channels + c] * silu_slope(conv_at(n, r, first, c)), n.conv[t * n.channels + c],
                       sum);
    }
    n.dqkv[i] = sum;
}

static int ni_of(int dim)
{
    return (dim <= 64 ? 64 : dim <= 128 ? 128 : (int)DEEP_MAX) / SHARE;
}

void cuda_grad_gdn_back(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                        const struct gdn_grads *d)
{
    const struct arch_gdn_plan *pl = &p->g->plan.gdn;
    const int64_t mark = p->stack.used, threads = ceil_div((int64_t)pl->dim_v * SHARE, 32) * 32;
    int64_t longest = 0;

    for (int s = 0; s < p->b->n_seq; s++) {
        const int64_t n = p->first[s + 1] - p->first[s];

        longest = n > longest ? n : longest;
    }
    const int64_t each = longest * ni_of(pl->dim) * threads, units = (int64_t)p->b->n_seq * pl->n_v;
    const int64_t space = cgrad_of(p)->most / 64 < SPACE ? cgrad_of(p)->most / 64 : (int64_t)SPACE;
    const int64_t some = each >= space ? 1 : space / each < units ? space / each : units;
    struct stack *s = &p->stack;
    float *d_o = grad_take(s, p->n * pl->n_v * pl->dim_v), *dq = grad_take(s, p->n * pl->n_v * pl->dim);
    float *dk = grad_take(s, p->n * pl->n_v * pl->dim);
    float *dmixed = grad_take(s, p->n * (2 * (int64_t)pl->n_k * pl->dim + (int64_t)pl->n_v * pl->dim_v));
    /* what is counted for some rows holds for them in any sequences */
    float *states = grad_take(s, s->base == NULL ? (each > space ? each : space) : some * each);

    s->used = mark;
    if (s->base == NULL)
        return;
    struct cuda *c = cgrad_of(p)->c;
    struct nets n = nets_of(p, w, a);
    n.dgated = dgated;
    n.d_o = d_o;
    n.dz = d->z;
    n.dq = dq;
    n.dk = dk;
    n.dmixed = dmixed;
    n.dqkv = d->qkv;
    n.dalpha = d->alpha;
    n.dbeta = d->beta;
    n.states = states;
    const size_t smem = (size_t)(threads / 32 * (2 * n.dim + 2)) * sizeof(float);
    void (*const kernel)(nets) = n.dim <= 64    ? scan_back<64 / SHARE>
                                 : n.dim <= 128 ? scan_back<128 / SHARE>
                                                : scan_back<DEEP_MAX / SHARE>;
    TRY(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem));
    LAUNCH(c, gate_heads_back, grid_of(p->n * n.n_v, WARPS), THREADS, 0, n);
    for (int64_t at = 0; at < units; at += some) {
        n.unit = (int)at;
        LAUNCH(c, kernel, grid_of(units - at < some ? units - at : some, 1), (unsigned)threads, smem, n);
    }
    LAUNCH(c, unit_heads_back, grid_of(p->n * 2 * n.n_k, WARPS), THREADS, 0, n);
    LAUNCH(c, convolve_back, grid_of(p->n * n.channels, THREADS), THREADS, 0, n);
    if (w->ba >= 0)
        LAUNCH(c, split_ba, grid_of(p->n * n.n_v, THREADS), THREADS, 0, a->ba, d->beta, d->alpha, p->n * n.n_v, n.n_v,
               n.n_k, false);
}
