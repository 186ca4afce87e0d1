/* SPDX-License-Identifier: Apache-2.0 */
/* fused.cu - one row: norm, gate or activation, rounding, products and the residual in one launch; a mixture of experts in
 * two. In one file, so that they share the code of the products. */
#include <math_constants.h>

#include "kernels/fused.cuh"
#include "kernels/row.cuh"

bool cuda_is_common(int type)
{
    switch (type) {
#define X(name) case QUANT_##name:
        CUDA_COMMON(X)
#undef X
        return true;
    default: return false;
    }
}

enum { THREADS = 256, WARPS = THREADS / 32 };

/* 8 elements from i on; x is a multiple of 16 bytes. */
static __device__ __forceinline__ void load8(float v[8], const float *x, int i)
{
    float4 a = *(const float4 *)(x + i), b = *(const float4 *)(x + i + 4);

    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

static __device__ __forceinline__ void store8(float *x, const float v[8])
{
    *(float4 *)x = make_float4(v[0], v[1], v[2], v[3]);
    *(float4 *)(x + 4) = make_float4(v[4], v[5], v[6], v[7]);
}

/* The activations rounded and, where xs is not NULL, as floats. Threads take 8 elements each; w: the norm's weights of
 * the first ones. The order of the norm's sum is norm_block's. */
template <int MODE>
static __device__ __forceinline__ void make_input(const fused_args &f, float w[8], uint8_t *xq, float *xs, float *tmp)
{
    const int k = f.a.k, t = threadIdx.x, pairs = (k + 63) / 64;
    float v[8] = {}, factor = 1.0f;

    if (t * 8 < k)
        load8(v, f.x, t * 8);
    if (MODE == IN_NORM) {
        float sum = 0.0f, more[8];

#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = __fmaf_rn(v[j], v[j], sum);
        for (int i = (t + THREADS) * 8; i < k; i += THREADS * 8) {
            load8(more, f.x, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum = __fmaf_rn(more[j], more[j], sum);
        }
        factor = norm_factor(block_sum(sum, tmp), k, f.eps);
    }
    for (int p = t; p < pairs * 8; p += THREADS) {
        const int i = p * 8;

        if (p != t) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = 0.0f;
            if (i < k)
                load8(v, f.x, i);
            if (MODE == IN_NORM && i < k)
                load8(w, f.w, i);
        }
        if (MODE == IN_NORM) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = __fmul_rn(__fmul_rn(v[j], factor), w[j]);
        } else if (f.mode != IN_PLAIN && i < k) {
            load8(w, f.z, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = f.mode == IN_GLU ? __fmul_rn(silu(v[j]), w[j]) : __fmul_rn(v[j], sigmoid(w[j]));
        }
        if (xs != NULL && i < k)
            store8(xs + i, v);
        if (blockIdx.x == 0 && f.floats != NULL && i < k)
            store8(f.floats + i, v);
        quantise_values(xq, pairs, v, p / 8, p % 8, 0xfu << (t & 28));
    }
    __syncthreads();
}

static __device__ __forceinline__ void move_past(const fused_args &f)
{
    int c = blockIdx.x * THREADS + threadIdx.x;

    if (c >= f.channels)
        return;
    float *past = f.past + f.seq->slot * f.past_floats + c;
    for (int j = 0; j + 2 < f.taps; j++)
        past[(int64_t)j * f.channels] = past[(int64_t)(j + 1) * f.channels];
    past[(int64_t)(f.taps - 2) * f.channels] = f.newest[f.seq->row * f.newest_stride + c];
}

/* How a launch is cut: rows of a block are `sets` times 16 (one for each warp of type f32), of `segments`. */
struct cut {
    int blocks, sets, segments;
    int x_bytes, floats; /* of shared memory, before the sums of segments; floats 0: nobody wants them */
};

/* Rows that a block computes at once. */
struct where {
    int            type, r0, here, job;
    uint32_t       row_bytes;
    const uint8_t *w;
};

static __device__ __forceinline__ where find_rows(const fused_args &f, const cut &c, int b)
{
    where at;
    int j = 0;

    while (j + 1 < f.a.n && b >= f.a.job[j + 1].block)
        j++;
    const mv_job &job = f.a.job[j];
    int rows = job.type == QUANT_f32 ? WARPS : c.sets * STRIP;
    at.job = j;
    at.type = job.type;
    at.row_bytes = (uint32_t)job.row_bytes;
    at.r0 = (b - job.block) * rows;
    at.here = min(job.n_rows - at.r0, rows);
    at.w = job.w + at.r0 * job.row_bytes;
    for (int i = (int)threadIdx.x * 128; i < at.here * (int)at.row_bytes; i += THREADS * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at.w + i));
    return at;
}

/* What the residual stream has in row r; fetched before the products, it is there when they are. */
static __device__ __forceinline__ float residual(const fused_args &f, const where &at, int r)
{
    return at.job == 0 && f.res != NULL && r < at.here ? f.res[at.r0 + r] : 0.0f;
}

static __device__ __forceinline__ void put(const fused_args &f, const where &at, int r, float v, float res)
{
    int row = at.r0 + r;

    f.a.job[at.job].y[row] = v;
    if (at.job == 0 && f.res != NULL)
        f.res[row] = __fmaf_rn(f.scale, v, res);
}

/* MODE: IN_NORM, IN_ROUNDED, or IN_PLAIN for all others. */
template <int MAIN, int MODE>
__global__ void __launch_bounds__(THREADS, 2) fused_matvec(const __grid_constant__ fused_args f,
                                                           const __grid_constant__ cut c)
{
    extern __shared__ __align__(16) uint8_t shared[]; /* rounded, floats, sums of segments */
    __shared__ __align__(16) float v[WARPS][STRIP_FLOATS];
    __shared__ float tmp[WARPS];
    const int k = f.a.k, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int set = c.segments < WARPS ? warp / c.segments : 0, first = c.segments < WARPS ? warp % c.segments : warp;
    float *xs = (float *)(shared + c.x_bytes), *part = xs + (c.floats ? k : 0);
    const uint8_t *xq = MODE == IN_ROUNDED ? f.a.x : shared;
    float w[8] = {}; /* what fills the last pair up stays zero */
    where at = find_rows(f, c, blockIdx.x);

    if (MODE == IN_NORM && (int)threadIdx.x * 8 < k)
        load8(w, f.w, (int)threadIdx.x * 8);
    wait_for_inputs();
    if (MODE != IN_ROUNDED)
        make_input<MODE>(f, w, shared, c.floats ? xs : NULL, tmp);
    if (MODE == IN_NORM && blockIdx.x == 0 && f.rounded != NULL)
        for (int i = threadIdx.x; i < c.x_bytes / 16; i += THREADS)
            ((uint4 *)f.rounded)[i] = ((const uint4 *)xq)[i];
    if (MODE == IN_ROUNDED && f.channels > 0)
        move_past(f);
    for (int b = blockIdx.x; b < c.blocks; b += gridDim.x) {
        if (b != (int)blockIdx.x)
            at = find_rows(f, c, b);
        if (at.type == QUANT_f32) {
            const float *const x[1] = { xs };
            float sum[1], res = residual(f, at, warp);

            if (warp < at.here) {
                plain_times<QUANT_f32, 1>(sum, at.w + warp * at.row_bytes, k, x, 1);
                if (lane == 0)
                    put(f, at, warp, sum[0], res);
            }
            continue;
        }
        const int rows = min(at.here - set * STRIP, (int)STRIP);
        const float res = residual(f, at, threadIdx.x);
        if (set < c.sets && rows > 0)
            for (int seg = first; seg < c.segments; seg += WARPS) {
                float sum = strip_of<MAIN>(at.type, at.w + set * STRIP * at.row_bytes, at.row_bytes, rows, seg,
                                           segment_of(xq, seg, k), f.a.tab, v[warp]);
                if (lane < STRIP)
                    part[(set * c.segments + seg) * STRIP + lane] = sum;
            }
        __syncthreads();
        if ((int)threadIdx.x < at.here) {
            const float *p = part + (int)threadIdx.x / STRIP * c.segments * STRIP + threadIdx.x % STRIP;
            float sum = 0.0f;

#pragma unroll 4
            for (int i = 0; i < c.segments; i++)
                sum = __fadd_rn(sum, p[i * STRIP]);
            put(f, at, threadIdx.x, sum, res);
        }
        __syncthreads();
    }
}

/* Gives each job its blocks; how many in all. */
static int cut_jobs(struct mv_args *a, int sets)
{
    int blocks = 0;

    for (int i = 0; i < a->n; i++) {
        a->job[i].block = blocks;
        blocks += (int)ceil_div(a->job[i].n_rows, a->job[i].type == QUANT_f32 ? WARPS : STRIP * sets);
    }
    return blocks;
}

static int main_type(const struct mv_args *a)
{
    int type = QUANT_q4_k, most = 0;

    for (int i = 0; i < a->n; i++)
        if (a->job[i].type != QUANT_f32 && a->job[i].n_rows > most) {
            most = a->job[i].n_rows;
            type = a->job[i].type;
        }
    return type;
}

template <int MODE>
static void launch_mode(struct cuda *c, const struct fused_args *f, const struct cut &a)
{
    const int most = c->sms * 2;
    size_t smem = a.x_bytes + (a.floats ? f->a.k * sizeof(float) : 0) +
                  (size_t)a.sets * a.segments * STRIP * sizeof(float);
    int grid = a.blocks < most ? a.blocks : most;

    if (f->channels > grid * THREADS)
        grid = (int)ceil_div(f->channels, THREADS);
    switch (main_type(&f->a)) {
#define X(name) \
    case QUANT_##name: \
        launch_early(c, "fused_matvec", fused_matvec<QUANT_##name, MODE>, dim3((unsigned)grid), THREADS, smem, *f, a); \
        break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

void cuda_fused_matvec(struct cuda *c, struct fused_args *f)
{
    struct cut a = { 0, 1, row_segments(f->a.k), 0, 0 };

    if (a.segments < WARPS)
        a.sets = WARPS / a.segments;
    a.blocks = cut_jobs(&f->a, a.sets);
    while (a.sets > 1 && a.blocks < c->sms)
        a.blocks = cut_jobs(&f->a, --a.sets);
    if (f->mode != IN_ROUNDED)
        a.x_bytes = (int)x_row_bytes(f->a.k);
    for (int i = 0; i < f->a.n; i++)
        a.floats |= f->a.job[i].type == QUANT_f32;
    switch (f->mode) {
    case IN_NORM: launch_mode<IN_NORM>(c, f, a); break;
    case IN_ROUNDED: launch_mode<IN_ROUNDED>(c, f, a); break;
    default: launch_mode<IN_PLAIN>(c, f, a); break;
    }
}

/* ---- a mixture of experts ---- */

/* Floats in an order of whole numbers; 0 for what may not be chosen. */
static __device__ __forceinline__ uint32_t key_of(float s)
{
    uint32_t u = __float_as_uint(s);

    if (!(s > -CUDART_INF_F))
        return 0;
    u = s == 0.0f ? 0 : u; /* both zeros are alike */
    return u >> 31 ? ~u : u | 0x80000000u;
}

enum { EXPERTS = 512, UP_WARPS = 8, UP_SEGMENTS = (FUSED_K + 511) / 512 };

/* The largest keys, the lower number where two are alike; a lane has EACH of them. */
template <int EACH>
static __device__ __forceinline__ void pick(const uint32_t *keys, int n, int n_used, int *expert)
{
    const int lane = threadIdx.x & 31;
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        key[j] = lane + 32 * j < n ? keys[lane + 32 * j] : 0;
    for (int k = 0; k < n_used; k++) {
        uint32_t best = 0;
        int at = 0;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (key[j] > best) {
                best = key[j];
                at = lane + 32 * j;
            }
        uint32_t most = __reduce_max_sync(0xffffffffu, best);
        int e = most > 0 ? (int)__reduce_min_sync(0xffffffffu, best == most ? (unsigned)at : ~0u) : k;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            key[j] = lane + 32 * j == e ? 0 : key[j];
        if (lane == 0)
            expert[k] = e;
    }
}

/* One warp: probabilities that are not divided yet, and what by. */
static __device__ __forceinline__ void soften(float *prob, int n, float *divisor)
{
    const int lane = threadIdx.x & 31;
    float top = -CUDART_INF_F, sum = 0.0f;

    for (int i = lane; i < n; i += 32)
        top = fmaxf(top, prob[i]);
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
    for (int i = lane; i < n; i += 32) {
        float p = expf(prob[i] - top);

        sum += p;
        prob[i] = p;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        *divisor = sum;
}

/* One block; the choice and the order of operations of route.cu. Weights only where they are asked for. */
static __device__ __forceinline__ void choose(const fused_up &f, int *expert, bool weights)
{
    __shared__ float prob[EXPERTS], divisor;
    __shared__ uint32_t key[EXPERTS];
    const int n = f.r.n_expert, warp = threadIdx.x / 32, lane = threadIdx.x & 31;

    for (int i = threadIdx.x; i < n; i += UP_WARPS * 32) {
        float p = f.logits[i];

        p = f.r.sigmoid ? sigmoid(p) : p;
        prob[i] = p;
        key[i] = key_of(p + (f.r.bias == NULL ? 0.0f : f.r.bias[i]));
    }
    __syncthreads();
    if (warp == 0) {
        if (n <= EXPERTS / 2)
            pick<EXPERTS / 64>(key, n, f.r.n_used, expert);
        else
            pick<EXPERTS / 32>(key, n, f.r.n_used, expert);
    } else if (warp == 1 && weights && !f.r.sigmoid) {
        soften(prob, n, &divisor);
    }
    __syncthreads();
    if (weights && warp == 0) {
        float p = lane < f.r.n_used ? prob[expert[lane]] : 0.0f, sum = 0.0f;

        p = f.r.sigmoid ? p : __fdiv_rn(p, divisor);
        for (int k = 0; k < f.r.n_used; k++)
            sum += __shfl_sync(0xffffffffu, p, k);
        p = f.r.normalise ? __fdiv_rn(p, fmaxf(sum, 0x1p-14f)) : p;
        if (lane < f.r.n_used) {
            f.weight[lane] = __fmul_rn(p, f.r.scale);
            f.expert[lane] = expert[lane];
        }
    }
}

static __device__ __forceinline__ void prefetch(const uint8_t *w, int64_t bytes, int n_threads)
{
    for (int64_t i = (int64_t)threadIdx.x * 128; i < bytes; i += n_threads * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + i));
}

/* grid: strips of ff; chosen experts, after them the shared one, before them, with a hand-over, what gives rows to the
 * host. A warp takes segments of the strip's gate and up. */
template <int MAIN>
__global__ void __launch_bounds__(UP_WARPS * 32, 2) fused_up_rows(const __grid_constant__ fused_up f)
{
    __shared__ __align__(16) float v[UP_WARPS][STRIP_FLOATS];
    __shared__ float part[2][UP_SEGMENTS][STRIP];
    __shared__ int expert[FUSED_USED];
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, r0 = (int)blockIdx.x * STRIP;
    const int use = (int)blockIdx.y - (f.slot != NULL), segments = row_segments(f.k);
    const bool shared = use == f.r.n_used;
    const expert_up &m = shared ? f.sh : f.routed;
    const int rows = min(m.ff - r0, (int)STRIP);
    const bool gated = m.gate.w != NULL;
    int matrix = 0;

    if (shared) {
        prefetch(m.up.w + r0 * m.up.row_bytes, rows * m.up.row_bytes, UP_WARPS * 32);
        if (gated)
            prefetch(m.gate.w + r0 * m.gate.row_bytes, rows * m.gate.row_bytes, UP_WARPS * 32);
        wait_for_inputs();
    } else {
        wait_for_inputs();
        choose(f, expert, blockIdx.x == 0 && blockIdx.y == 0);
        if (use < 0) {
            if (blockIdx.x == 0)
                hand_give(f.hand, f.floats, f.k, f.k, 1, expert, f.r.n_used, UP_WARPS * 32);
            return;
        }
        matrix = f.slot == NULL ? expert[use] : f.slot[expert[use]];
        if (matrix < 0)
            return;
        /* the launch after this one reads them */
        int64_t share = (f.down.expert_bytes / gridDim.x + 128) & ~127, at = blockIdx.x * share;
        prefetch(f.down.w + matrix * f.down.expert_bytes + at, min(share, f.down.expert_bytes - at), UP_WARPS * 32);
    }
    if (rows <= 0)
        return;
    for (int i = warp; i < segments * (1 + gated); i += UP_WARPS) {
        const expert_matrix &w = i < segments ? m.up : m.gate;
        const int seg = i < segments ? i : i - segments;
        float sum = strip_of<MAIN>(w.type, w.w + matrix * w.expert_bytes + r0 * w.row_bytes, w.row_bytes, rows, seg,
                                   segment_of(f.x, seg, f.k), f.tab, v[warp]);

        if (lane < STRIP)
            part[i >= segments][seg][lane] = sum;
    }
    __syncthreads();
    if ((int)threadIdx.x >= rows)
        return;
    float up = 0.0f, in = 0.0f;
    for (int i = 0; i < segments; i++)
        up = __fadd_rn(up, part[0][i][threadIdx.x]);
    for (int i = 0; gated && i < segments; i++)
        in = __fadd_rn(in, part[1][i][threadIdx.x]);
    in = gated ? in : up;
    up = gated ? up : 1.0f;
    float pos = fmaxf(in, 0.0f);
    m.hid[(int64_t)(shared ? 0 : use) * m.ff + r0 + threadIdx.x] =
        m.act == OP_SILU ? __fmul_rn(silu(in), up) : __fmul_rn(__fmul_rn(pos, pos), up);
}

void cuda_fused_up(struct cuda *c, const struct fused_up *f)
{
    const bool shared = f->sh.up.w != NULL;
    int most = shared && f->sh.ff > f->routed.ff ? f->sh.ff : f->routed.ff;
    dim3 grid((unsigned)ceil_div(most, STRIP), (unsigned)(f->r.n_used + (f->slot != NULL) + shared));

    switch (f->routed.up.type) {
#define X(name) \
    case QUANT_##name: launch_early(c, "fused_up", fused_up_rows<QUANT_##name>, grid, UP_WARPS * 32, 0, *f); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

/* 16 rows a block; a warp an expert, the last one the shared expert. */
template <int MAIN>
__global__ void __launch_bounds__(32 * (FUSED_USED + 1), 1) fused_down_rows(const __grid_constant__ fused_down f)
{
    extern __shared__ __align__(16) uint8_t shared[]; /* rounded, a row for each expert */
    __shared__ __align__(16) float v[FUSED_USED + 1][STRIP_FLOATS];
    __shared__ float sums[FUSED_USED + 1][STRIP];
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, r0 = (int)blockIdx.x * STRIP;
    const int rows = min(f.n - r0, (int)STRIP), here = lane < rows;
    const bool routed = warp < f.n_used;
    const int k = routed ? f.ff : f.sh_ff;
    const expert_matrix &m = routed ? f.routed : f.sh;
    uint8_t *xq = shared + warp * x_row_bytes(f.ff > f.sh_ff ? f.ff : f.sh_ff);

    if (!routed)
        prefetch_rows(m.w + r0 * m.row_bytes, rows * m.row_bytes);
    wait_for_inputs();
    const int matrix = !routed ? 0 : f.slot == NULL ? f.expert[warp] : f.slot[f.expert[warp]];
    const bool away = matrix < 0;
    if (!away) {
        const uint8_t *w = m.w + matrix * m.expert_bytes + r0 * m.row_bytes;
        const float *hid = routed ? f.hid + warp * f.ff : f.sh_hid;
        float sum = 0.0f;

        for (int i = lane; i < x_pairs(k) * 8; i += 32) {
            float x[8] = {};

            if (i * 8 < k) {
                const float4 *from = (const float4 *)(hid + i * 8);

                *(float4 *)x = from[0];
                *(float4 *)(x + 4) = from[1];
            }
            quantise_values(xq, x_pairs(k), x, i / 8, i % 8, 0xfu << (lane & 28));
        }
        __syncwarp();
        for (int i = 0; i < row_segments(k); i++)
            sum = __fadd_rn(sum, strip_of<MAIN>(m.type, w, m.row_bytes, rows, i, segment_of(xq, i, k), f.tab, v[warp]));
        if (here)
            sums[warp][lane] = sum;
    }
    if (f.slot != NULL) { /* the first block waits in any case: the next hand-over must not begin before */
        bool any = __syncthreads_or(away);

        if (threadIdx.x == 0 && (any || blockIdx.x == 0))
            hand_await(f.hand, blockIdx.x == 0);
        __syncthreads();
        if (away && here)
            sums[warp][lane] = __ldcv(f.hand.out + (int64_t)warp * f.n + r0 + lane);
    }
    __syncthreads();
    if ((int)threadIdx.x < rows) {
        float sum = 0.0f;

        for (int e = 0; e < f.n_used; e++)
            sum = __fmaf_rn(f.weight[e], sums[e][threadIdx.x], sum);
        if (f.sh.w != NULL)
            sum = __fmaf_rn(f.sh_open != NULL ? sigmoid(*f.sh_open) : 1.0f, sums[f.n_used][threadIdx.x], sum);
        f.y[r0 + threadIdx.x] = sum;
        if (f.res != NULL)
            f.res[r0 + threadIdx.x] = __fmaf_rn(f.scale, sum, f.res[r0 + threadIdx.x]);
    }
}

void cuda_fused_down(struct cuda *c, const struct fused_down *f)
{
    int warps = f->n_used + (f->sh.w != NULL);
    dim3 grid((unsigned)ceil_div(f->n, STRIP));
    size_t smem = (size_t)warps * x_row_bytes(f->ff > f->sh_ff ? f->ff : f->sh_ff);

    switch (f->routed.type) {
#define X(name) \
    case QUANT_##name: \
        launch_early(c, "fused_down", fused_down_rows<QUANT_##name>, grid, (unsigned)(32 * warps), smem, *f); \
        break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}
