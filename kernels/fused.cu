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

enum { THREADS = 256, WARPS = THREADS / 32, MOST_THREADS = 512 }; /* a norm's block has THREADS */

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

/* The activations from x on: as floats where xs is not NULL, and, ROUND, rounded. Threads take 8 elements each; w: the
 * norm's weights of the first ones. The order of the norm's sum is norm_block's. */
template <int MODE, bool ROUND>
static __device__ __forceinline__ void make_input(const fused_args &f, const float *x, const float first[8],
                                                  uint8_t *xq, float *xs, float *tmp)
{
    const int k = f.a.k, t = threadIdx.x, threads = MODE == IN_NORM ? THREADS : blockDim.x, pairs = (k + 63) / 64;
    float v[8] = {}, w[8], factor = 1.0f;

    if (t * 8 < k)
        load8(v, x, t * 8);
    if (MODE == IN_NORM) {
        float sum = 0.0f, more[8];

#pragma unroll
        for (int j = 0; j < 8; j++) {
            w[j] = first[j];
            sum = __fmaf_rn(v[j], v[j], sum);
        }
        for (int i = (t + threads) * 8; i < k; i += threads * 8) {
            load8(more, x, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum = __fmaf_rn(more[j], more[j], sum);
        }
        factor = norm_factor(block_sum(sum, tmp), k, f.eps);
    }
    for (int p = t; (p & ~31) < pairs * 8; p += threads) { /* a warp's threads go together */
        const int i = p * 8;

        if (p != t) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = 0.0f;
            if (i < k)
                load8(v, x, i);
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
        if (x == f.x && blockIdx.x == 0 && f.floats != NULL && i < k)
            store8(f.floats + i, v);
        if (ROUND)
            quantise_values(xq, pairs, v, p / 8, p % 8, ~0u, p < pairs * 8);
    }
    __syncthreads();
}

/* How a launch is cut: a block has so many strips of a job (of type f32: a row a warp). Its warps are `sets`, each of
 * which has all blocks of a strip: `set` and `first`, the first block, of each warp, then every `step`. A warp takes
 * `each` strips between barriers, a set's are `sets` apart. */
struct cut {
    int     blocks, strips, segments, sets, step, each;
    int     lane_bits;              /* of the threads that share a row's sum */
    int     x_bytes, floats, dx_at; /* of shared memory, before the values; floats 0: nobody wants them; where dx is */
    int     rounder;                /* the block that keeps the rounded row; blocks: one of its own */
    uint8_t set[MOST_THREADS / 32], first[MOST_THREADS / 32];
};

/* Rows that a block computes. */
struct where {
    int            type, r0, here, job;
    uint32_t       row_bytes;
    const uint8_t *w;
};

static __device__ __forceinline__ where find_rows(const fused_args &f, const cut &c)
{
    const int b = blockIdx.x;
    where at;
    int j = 0;

    while (j + 1 < f.a.n && b >= f.a.job[j + 1].block)
        j++;
    const mv_job &job = f.a.job[j];
    int rows = job.type == QUANT_f32 ? WARPS : c.strips * STRIP;
    at.job = j;
    at.type = job.type;
    at.row_bytes = (uint32_t)job.row_bytes;
    at.r0 = (b - job.block) * rows;
    at.here = max(min(job.n_rows - at.r0, rows), 0);
    at.w = job.w + at.r0 * job.row_bytes;
    if (job.type != QUANT_f32)
        prefetch(at.w, min(at.here, 4 * STRIP) * (int)at.row_bytes, threadIdx.x, blockDim.x);
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

/* Shared memory of a product. */
struct space {
    uint8_t *xq;
    float   *xs, *values, *tmp;
};

/* The norm's weights that a thread has before the inputs are there; what fills the last pair up stays zero. */
static __device__ __forceinline__ void load_first(const fused_args &f, float w[8])
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        w[j] = 0.0f;
    if ((int)threadIdx.x * 8 < f.a.k)
        load8(w, f.w, (int)threadIdx.x * 8);
}

static __device__ __forceinline__ void keep_rounded(const fused_args &f, const cut &c, const uint8_t *xq)
{
    if ((int)blockIdx.x == c.rounder && f.rounded != NULL)
        for (int i = threadIdx.x; i < c.x_bytes / 16; i += THREADS)
            ((uint4 *)f.rounded)[i] = ((const uint4 *)xq)[i];
}

template <int MODE>
static __device__ __forceinline__ void inputs(const fused_args &f, const cut &c, const space &s)
{
    float w[8];

    if (MODE == IN_NORM)
        load_first(f, w);
    wait_for_inputs();
    if (MODE != IN_ROUNDED)
        make_input<MODE, true>(f, f.x, w, s.xq, s.xs, s.tmp);
    if (MODE == IN_NORM)
        keep_rounded(f, c, s.xq);
}

/* How far the warps of a block are, all together: the first strip since the last barrier; from there on strips of a
 * set, and from the warp's first on blocks. */
struct turn {
    int s0, block, strip;
};

/* Strips of a warp; MODE: IN_NORM, IN_ROUNDED, or IN_PLAIN for all others. One loop, whose first turn only reads ahead:
 * what a short launch waits for is mostly instructions that come for the first time, of which each costs some 15 ns. */
template <int TYPE, int MODE>
static __device__ __forceinline__ void strips_times(const fused_args &f, const cut &c, const where &at, const space &s)
{
    enum { AHEAD = MODE == IN_NORM }; /* a strip is read while the one before is multiplied */
    const int warp = threadIdx.x / 32, first = c.first[warp], set = c.set[warp], units = f.a.k / 32;
    const int strips = (at.here + STRIP - 1) / STRIP, blocks = 2 * c.segments, row = threadIdx.x >> c.lane_bits;
    const int part = threadIdx.x & ((1 << c.lane_bits) - 1);
    strip<TYPE> now, then;
    strip_x<TYPE> x;
    turn t = { 0, 0, 0 };
    float res = 0.0f;

#pragma unroll 1
    for (bool begun = false;; begun = true) {
        turn n = t;
        if (begun && (++n.strip == c.each || n.s0 + n.strip * c.sets >= strips)) {
            n.strip = 0;
            n.block += c.step;
            if (n.block >= blocks) {
                n.block = 0;
                n.s0 += c.each * c.sets;
            }
        }
        const int mine = n.s0 + n.strip * c.sets + set, block = n.block + first;
        const bool there = set < c.sets && block < blocks && mine < strips;
        const uint8_t *w = at.w + mine * STRIP * (int)at.row_bytes;
        if (AHEAD && there)
            load_strip<TYPE>(then, w, at.row_bytes, at.here - mine * STRIP, block, units - block * 8);
        if (begun && set < c.sets && t.block + first < blocks && t.s0 + t.strip * c.sets + set < strips) {
            const int b = t.block + first;

            if (t.strip == 0)
                load_x<TYPE>(x, s.xq + b * (4 * X_PAIR), units - b * 8);
            strip_times<TYPE>(now, x, units - b * 8, f.a.tab,
                              s.values + ((t.strip * c.sets + set) * c.segments + b / 2) * V_SEGMENT + b % 2 * 8);
        }
        if (!AHEAD && there)
            load_strip<TYPE>(now, w, at.row_bytes, at.here - mine * STRIP, block, units - block * 8);
        if (!begun)
            inputs<MODE>(f, c, s);
        if (AHEAD)
            now = then;
        if (begun && n.s0 != t.s0) {
            __syncthreads();
            if ((int)(threadIdx.x & ~31u) >> c.lane_bits < c.each * c.sets * STRIP) { /* a warp's threads go together */
                const float sum = row_sum(s.values + row / STRIP * c.segments * V_SEGMENT + row % STRIP * V_PITCH,
                                          (const float *)(s.xq + c.dx_at), part, c.segments);

                if (part == 0 && t.s0 * STRIP + row < at.here && row < c.each * c.sets * STRIP)
                    put(f, at, t.s0 * STRIP + row, sum, res);
            }
            if (n.s0 >= strips)
                return;
            __syncthreads();
        }
        if (!begun || n.s0 != t.s0)
            res = part == 0 ? residual(f, at, n.s0 * STRIP + row) : 0.0f;
        t = n;
    }
}

enum { PIECE = 16, PIECES = 4 }; /* elements of a lane that are read before the inputs are there */

/* A row of floats for each warp, in the order of plain_times. A first pass, of a norm's weights in place of the inputs,
 * only brings the instructions: such launches are short and begin early. */
template <int MODE>
static __device__ __forceinline__ void floats_times(const fused_args &f, const cut &c, const where &at, const space &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, pieces = min(f.a.k / (PIECE * 32), (int)PIECES);
    const float *row = (const float *)(at.w + warp * at.row_bytes) + lane, *x = s.xs + lane;
    float w[PIECES][PIECE], first[8];

#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (warp < at.here && p < pieces)
#pragma unroll
            for (int j = 0; j < PIECE; j++)
                w[p][j] = row[(p * PIECE + j) * 32];
    if (MODE == IN_NORM)
        load_first(f, first);
#pragma unroll 1
    for (int pass = MODE != IN_NORM; pass < 2; pass++) {
        float sum = 0.0f, res = 0.0f;

        if (pass == 1)
            wait_for_inputs();
        make_input<MODE, false>(f, pass == 1 ? f.x : f.w, first, NULL, s.xs, s.tmp);
        if (warp >= at.here)
            continue;
        if (pass == 1)
            res = residual(f, at, warp);
#pragma unroll
        for (int p = 0; p < PIECES; p++)
            if (p < pieces)
#pragma unroll
                for (int j = 0; j < PIECE; j++)
                    sum = __fmaf_rn(w[p][j], x[(p * PIECE + j) * 32], sum);
#pragma unroll 8
        for (int i = pieces * PIECE * 32; i < f.a.k; i += 32)
            sum = __fmaf_rn(row[i], x[i], sum);
        sum = fold32(sum);
        if (lane == 0 && pass == 1)
            put(f, at, warp, sum, res);
    }
}

/* Only the rounded row: where the first rows are floats, whose blocks do not round. */
static __device__ __forceinline__ void round_row(const fused_args &f, const cut &c, const space &s)
{
    float first[8];

    load_first(f, first);
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            wait_for_inputs();
        make_input<IN_NORM, true>(f, pass == 1 ? f.x : f.w, first, s.xq, NULL, s.tmp);
    }
    keep_rounded(f, c, s.xq);
}

template <int MODE>
__global__ void __launch_bounds__(MODE == IN_NORM ? THREADS : MOST_THREADS, MODE == IN_PLAIN ? 1 : 2)
    fused_matvec(const __grid_constant__ fused_args f, const __grid_constant__ cut c)
{
    extern __shared__ __align__(16) uint8_t shared[]; /* rounded, floats, values */
    __shared__ float tmp[WARPS];

    let_next_begin();
    const where at = find_rows(f, c);
    const space s = { MODE == IN_ROUNDED ? (uint8_t *)f.a.x : shared, c.floats ? (float *)(shared + c.x_bytes) : NULL,
                      (float *)(shared + c.x_bytes) + (c.floats ? f.a.k : 0), tmp };

    if (MODE == IN_NORM && (int)blockIdx.x == c.blocks) {
        round_row(f, c, s);
        return;
    }
    switch (at.type) {
#define X(name) \
    case QUANT_##name: strips_times<QUANT_##name, MODE>(f, c, at, s); break;
        CUDA_COMMON(X)
#undef X
    default:
        if (MODE != IN_ROUNDED)
            floats_times<MODE>(f, c, at, s);
        break;
    }
    if (MODE == IN_ROUNDED)
        move_past(f.past, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

/* Gives each job its blocks; how many in all. */
static int cut_jobs(struct mv_args *a, int strips)
{
    int blocks = 0;

    for (int i = 0; i < a->n; i++) {
        a->job[i].block = blocks;
        blocks += (int)ceil_div(a->job[i].n_rows, a->job[i].type == QUANT_f32 ? WARPS : STRIP * strips);
    }
    return blocks;
}

static void cut_warps(struct cut *a, int warps)
{
    const int blocks = 2 * a->segments;

    a->sets = warps > blocks ? warps / blocks : 1;
    a->step = warps > blocks ? blocks : warps;
    for (int i = 0; i < warps; i++) {
        a->set[i] = (uint8_t)(i < a->sets * blocks ? i / blocks : a->sets); /* there are no more blocks: none */
        a->first[i] = (uint8_t)(i % blocks);
    }
    a->lane_bits = row_lane_bits(a->segments);
    a->each = warps * 32 / (STRIP << a->lane_bits) / a->sets;
}

void cuda_fused_matvec(struct cuda *c, struct fused_args *f)
{
    const bool norm = f->mode == IN_NORM;
    struct cut a = {};
    int threads = norm ? THREADS : MOST_THREADS, rows = 0;

    for (int i = 0; i < f->a.n; i++) {
        a.floats |= f->a.job[i].type == QUANT_f32;
        rows = f->a.job[i].type != QUANT_f32 && f->a.job[i].n_rows > rows ? f->a.job[i].n_rows : rows;
    }
    /* one turn: as many strips a block as it takes for all blocks to be there at once */
    a.strips = 1;
    a.segments = row_segments(f->a.k);
    a.blocks = cut_jobs(&f->a, a.strips);
    while (a.blocks > c->sms * (norm ? 2 : 1) && a.strips * STRIP < rows)
        a.blocks = cut_jobs(&f->a, ++a.strips);
    if (a.strips * a.segments * 64 <= THREADS || a.floats)
        threads = THREADS;
    cut_warps(&a, threads / 32);
    a.dx_at = x_pairs(f->a.k) * X_PAIR;
    if (f->mode != IN_ROUNDED)
        a.x_bytes = (int)x_row_bytes(f->a.k);
    const size_t smem = a.x_bytes + (a.floats ? f->a.k * sizeof(float) : 0) +
                        (size_t)a.each * a.sets * a.segments * V_SEGMENT * sizeof(float);
    a.rounder = f->rounded != NULL && f->a.job[0].type == QUANT_f32 ? a.blocks : 0;
    const int past = (int)ceil_div(f->past.channels, threads);
    const dim3 blocks((unsigned)(past > a.blocks ? past : a.blocks + (a.rounder > 0)));
    if (norm)
        launch_early(c, "fused_matvec", fused_matvec<IN_NORM>, blocks, (unsigned)threads, smem, *f, a);
    else if (f->mode == IN_ROUNDED)
        launch_early(c, "fused_matvec", fused_matvec<IN_ROUNDED>, blocks, (unsigned)threads, smem, *f, a);
    else
        launch_early(c, "fused_matvec", fused_matvec<IN_PLAIN>, blocks, (unsigned)threads, smem, *f, a);
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

enum { EXPERTS = 512, UP_WARPS = 8 };

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

/* One block; the choice and the order of operations of route.cu. Weights only where they are asked for; !real: of
 * zeros. */
static __device__ __forceinline__ void choose(const fused_up &f, int *expert, bool weights, bool real)
{
    __shared__ float prob[EXPERTS], divisor;
    __shared__ uint32_t key[EXPERTS];
    const int n = f.r.n_expert, warp = threadIdx.x / 32, lane = threadIdx.x & 31;

    for (int i = threadIdx.x; i < n; i += UP_WARPS * 32) {
        float p = real ? f.logits[i] : 0.0f;

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

/* Values of a strip of a matrix and, unless NULL, of another one of its format, whose values follow. */
template <int TYPE>
static __device__ __forceinline__ void up_times(const uint8_t *one, const uint8_t *other, uint32_t row_bytes, int rows,
                                                const fused_up &f, float *values)
{
    const int segments = row_segments(f.k);

#pragma unroll 1
    for (int b = threadIdx.x / 32; b < 2 * segments; b += UP_WARPS) {
        const int units = f.k / 32 - b * 8;
        float *to = values + b / 2 * V_SEGMENT + b % 2 * 8;
        strip<TYPE> s;
        strip_x<TYPE> x;

        load_x<TYPE>(x, f.x + b * (4 * X_PAIR), units);
#pragma unroll 1
        for (int i = 0; i < 1 + (other != NULL); i++) {
            load_strip<TYPE>(s, i == 0 ? one : other, row_bytes, rows, b, units);
            strip_times<TYPE>(s, x, units, f.tab, to + i * segments * V_SEGMENT);
        }
    }
}

/* grid: strips of ff; the shared expert, after it the chosen ones, before them, with a hand-over, what gives rows to
 * the host. */
__global__ void __launch_bounds__(UP_WARPS * 32, 3) fused_up_rows(const __grid_constant__ fused_up f)
{
    extern __shared__ __align__(16) float values[]; /* of up, of gate */
    __shared__ int expert[FUSED_USED];
    const int segments = row_segments(f.k), bits = row_lane_bits(segments), r0 = (int)blockIdx.x * STRIP;
    const bool shared = f.sh.up.w != NULL && blockIdx.y == 0;
    const int use = (int)blockIdx.y - (f.sh.up.w != NULL) - (f.slot != NULL);
    const expert_up &m = shared ? f.sh : f.routed;
    const int rows = min(m.ff - r0, (int)STRIP);
    const bool gated = m.gate.w != NULL;
    float *gates = values + segments * V_SEGMENT;
    int matrix = 0;

    if (shared) {
        prefetch(m.up.w + r0 * m.up.row_bytes, rows * (int)m.up.row_bytes, threadIdx.x, UP_WARPS * 32);
        if (gated)
            prefetch(m.gate.w + r0 * m.gate.row_bytes, rows * (int)m.gate.row_bytes, threadIdx.x, UP_WARPS * 32);
        wait_for_inputs();
    } else {
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) { /* the first only brings the instructions */
            if (pass == 1)
                wait_for_inputs();
            choose(f, expert, pass == 1 && blockIdx.x == 0 && use == 0, pass == 1);
        }
        if (use < 0) {
            if (blockIdx.x == 0)
                hand_give(f.hand, f.floats, f.k, f.k, 1, expert, f.r.n_used, UP_WARPS * 32);
            return;
        }
        matrix = f.slot == NULL ? expert[use] : f.slot[expert[use]];
        if (matrix < 0)
            return;
        /* the launch after this one reads them */
        const int at = (int)blockIdx.x * f.down_share;
        prefetch(f.down.w + matrix * f.down.expert_bytes + at, min(f.down_share, (int)f.down.expert_bytes - at),
                 threadIdx.x, UP_WARPS * 32);
    }
    if (rows <= 0)
        return;
    const uint8_t *up_w = m.up.w + matrix * m.up.expert_bytes + r0 * m.up.row_bytes;
    const uint8_t *gate_w = gated ? m.gate.w + matrix * m.gate.expert_bytes + r0 * m.gate.row_bytes : NULL;
    const bool alike = gated && m.gate.type == m.up.type;
    prefetch(up_w, rows * (int)m.up.row_bytes, threadIdx.x, UP_WARPS * 32);
    if (gated)
        prefetch(gate_w, rows * (int)m.gate.row_bytes, threadIdx.x, UP_WARPS * 32);
#pragma unroll 1
    for (int i = 0; i < 1 + (gated && !alike); i++) {
        const expert_matrix &one = i == 0 ? m.up : m.gate;

        switch (one.type) {
#define X(name) \
    case QUANT_##name: \
        up_times<QUANT_##name>(i == 0 ? up_w : gate_w, alike ? gate_w : NULL, (uint32_t)one.row_bytes, rows, f, \
                               i == 0 ? values : gates); \
        break;
            CUDA_COMMON(X)
#undef X
        default: break;
        }
    }
    __syncthreads();
    const int row = threadIdx.x >> bits, part = threadIdx.x & ((1 << bits) - 1);
    if ((int)(threadIdx.x & ~31u) >> bits >= STRIP) /* a warp's threads go together */
        return;
    const float *dx = x_scales(f.x, x_pairs(f.k));
    const int at = min(row, STRIP - 1) * V_PITCH;
    float up = row_sum(values + at, dx, part, segments), in = gated ? row_sum(gates + at, dx, part, segments) : up;
    up = gated ? up : 1.0f;
    float pos = fmaxf(in, 0.0f);
    if (part == 0 && row < rows)
        m.hid[(int64_t)(shared ? 0 : use) * m.ff + r0 + row] =
            m.act == OP_SILU ? __fmul_rn(silu(in), up) : __fmul_rn(__fmul_rn(pos, pos), up);
}

void cuda_fused_up(struct cuda *c, struct fused_up *f)
{
    const bool shared = f->sh.up.w != NULL;
    int most = shared && f->sh.ff > f->routed.ff ? f->sh.ff : f->routed.ff;
    dim3 grid((unsigned)ceil_div(most, STRIP), (unsigned)(f->r.n_used + (f->slot != NULL) + shared));

    f->down_share = (int)round_up((size_t)ceil_div(f->down.expert_bytes, grid.x), 128);
    launch_early(c, "fused_up", fused_up_rows, grid, UP_WARPS * 32,
                 2 * (size_t)row_segments(f->k) * V_SEGMENT * sizeof(float), *f);
}

/* Shared memory for a row of k: rounded, and values of a strip. */
static __host__ __device__ inline int row_space(int k)
{
    return (int)x_row_bytes(k) + row_segments(k) * V_SEGMENT * (int)sizeof(float);
}

/* A warp's blocks of an expert's row, which it rounds itself: from its first one on every second. */
template <int TYPE>
static __device__ __forceinline__ void down_times(const uint8_t *w, uint32_t row_bytes, int rows, const float *hid,
                                                  int k, int first, uint8_t *xq, const struct tables *tab,
                                                  float *values)
{
    const int lane = threadIdx.x & 31;

    for (int b = first; b < 2 * row_segments(k); b += 2) {
        const int units = k / 32 - b * 8, i = b * 256 + lane * 8;
        float x[8] = {};
        strip<TYPE> s;
        strip_x<TYPE> sx;

        load_strip<TYPE>(s, w, row_bytes, rows, b, units);
        if (i < k) {
            const float4 *from = (const float4 *)(hid + i);

            *(float4 *)x = from[0];
            *(float4 *)(x + 4) = from[1];
        }
        quantise_values(xq, x_pairs(k), x, i / 64, lane % 8, ~0u, i / 64 < x_pairs(k));
        __syncwarp();
        load_x<TYPE>(sx, xq + b * (4 * X_PAIR), units);
        strip_times<TYPE>(s, sx, units, tab, values + b / 2 * V_SEGMENT + b % 2 * 8);
    }
}

/* 16 rows a block; two warps an expert, the last ones the shared expert. */
__global__ void __launch_bounds__(64 * (FUSED_USED + 1), 1) fused_down_rows(const __grid_constant__ fused_down f)
{
    extern __shared__ __align__(16) uint8_t shared[]; /* a row's space for each expert */
    __shared__ float sums[FUSED_USED + 1][STRIP];
    const int e = threadIdx.x / 64, r0 = (int)blockIdx.x * STRIP, rows = min(f.n - r0, (int)STRIP);
    const bool routed = e < f.n_used;
    const int k = routed ? f.ff : f.sh_ff, pitch = row_space(f.ff);
    const expert_matrix &m = routed ? f.routed : f.sh;
    uint8_t *xq = shared + e * pitch;

    if (!routed)
        prefetch(m.w + r0 * m.row_bytes, rows * (int)m.row_bytes, threadIdx.x & 63, 64);
    wait_for_inputs();
    const int matrix = !routed ? 0 : f.slot == NULL ? f.expert[e] : f.slot[f.expert[e]];
    const bool away = matrix < 0;
    if (!away) {
        const uint8_t *w = m.w + matrix * m.expert_bytes + r0 * m.row_bytes;
        const float *hid = routed ? f.hid + e * f.ff : f.sh_hid;

        switch (m.type) {
#define X(name) \
    case QUANT_##name: \
        down_times<QUANT_##name>(w, (uint32_t)m.row_bytes, rows, hid, k, threadIdx.x / 32 % 2, xq, f.tab, \
                                 (float *)(xq + x_row_bytes(k))); \
        break;
            CUDA_COMMON(X)
#undef X
        default: break;
        }
    }
    float weight[FUSED_USED], open = 0.0f, res = 0.0f; /* read before they are needed */
    if ((int)threadIdx.x < rows) {
#pragma unroll
        for (int i = 0; i < FUSED_USED; i++)
            weight[i] = i < f.n_used ? f.weight[i] : 0.0f;
        open = f.sh_open != NULL ? *f.sh_open : 0.0f;
        res = f.res != NULL ? f.res[r0 + threadIdx.x] : 0.0f;
    }
    const bool any = __syncthreads_or(away);
    if (f.slot != NULL) { /* the first block waits in any case: the next hand-over must not begin before */
        if (threadIdx.x == 0 && (any || blockIdx.x == 0))
            hand_await(f.hand, blockIdx.x == 0);
        __syncthreads();
    }
    if (threadIdx.x < blockDim.x / 64 * STRIP) {
        const int of = threadIdx.x / STRIP, row = threadIdx.x % STRIP, its = of < f.n_used ? f.ff : f.sh_ff;
        const bool far = f.slot != NULL && of < f.n_used && f.slot[f.expert[of]] < 0;
        const uint8_t *own = shared + of * pitch;
        const float *dx = x_scales(own, x_pairs(its)), *v = (const float *)(own + x_row_bytes(its)) + row * V_PITCH;
        float sum = 0.0f;

        for (int i = 0; !far && i < row_segments(its); i++)
            sum = __fadd_rn(sum, segment_sum(v + i * V_SEGMENT, dx + i * 16));
        if (far && row < rows)
            sum = __ldcv(f.hand.out + (int64_t)of * f.n + r0 + row);
        sums[of][row] = sum;
    }
    __syncthreads();
    if ((int)threadIdx.x < rows) {
        float sum = 0.0f;

#pragma unroll
        for (int i = 0; i < FUSED_USED; i++)
            if (i < f.n_used)
                sum = __fmaf_rn(weight[i], sums[i][threadIdx.x], sum);
        if (f.sh.w != NULL)
            sum = __fmaf_rn(f.sh_open != NULL ? sigmoid(open) : 1.0f, sums[f.n_used][threadIdx.x], sum);
        f.y[r0 + threadIdx.x] = sum;
        if (f.res != NULL)
            f.res[r0 + threadIdx.x] = __fmaf_rn(f.scale, sum, res);
    }
}

size_t cuda_fused_down_smem(int n_used, int64_t ff, int64_t sh_ff)
{
    return (size_t)n_used * row_space((int)ff) + (sh_ff > 0 ? row_space((int)sh_ff) : 0);
}

void cuda_fused_down(struct cuda *c, const struct fused_down *f)
{
    launch_early(c, "fused_down", fused_down_rows, dim3((unsigned)ceil_div(f->n, STRIP)),
                 64u * (f->n_used + (f->sh.w != NULL)),
                 cuda_fused_down_smem(f->n_used, f->ff, f->sh.w != NULL ? f->sh_ff : 0), *f);
}
