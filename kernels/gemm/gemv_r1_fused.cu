/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_r1_fused.cu - GEMV for one token, fused: gate or activation function, quantisation, product and residual in one
 * kernel. An RMS norm runs in a kernel before it. */
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemv_r1_mma.cuh"

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
template <int MODE, bool ROUND, class ARGS>
static __device__ __forceinline__ void make_input(const ARGS &f, int k, bool eight, const float *x,
                                                  const float first[8], uint8_t *xq, float *xs, float *tmp)
{
    const int t = threadIdx.x, threads = MODE == IN_NORM ? THREADS : blockDim.x, pairs = (k + 63) / 64;
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
#pragma unroll 1
        for (int i = (t + threads) * 8; i < k; i += threads * 8) {
            load8(more, x, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum = __fmaf_rn(more[j], more[j], sum);
        }
        factor = norm_factor(block_sum(sum, tmp), k, f.eps);
    }
#pragma unroll 1
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
            quantise_values(xq, pairs, v, p / 8, p % 8, ~0u, eight, p < pairs * 8);
    }
    __syncthreads();
}

/* How a launch is cut: how many strips of a job a block has (of type f32: a row a warp; beside others: one strip). Its
 * warps are `sets`, each of which has all blocks of a strip: `set` and `first`, the first block, of each warp, then
 * every `step`. A warp takes `each` strips between barriers, a set's are `sets` apart: a turn. handed: blocks have
 * turns of a single job, two each, then as they come, by this counter: where there are many, even shares end when the
 * slowest multiprocessor does. */
struct cut {
    int type; /* of jobs that are neither floats nor beside others */
    int blocks, strips, segments, sets, step, each;
    int lane_bits;              /* of the threads that share a row's sum */
    int x_bytes, floats, dx_at; /* of shared memory, before the values; floats 0: nobody wants them; where dx is */
    uint8_t set[MOST_THREADS / 32], first[MOST_THREADS / 32];
    int *handed;
};

/* Rows of a block. */
static __host__ __device__ inline int job_rows(int type, int main, int strips)
{
    return type == QUANT_f32 ? WARPS : type == main ? strips * STRIP : STRIP;
}

/* What a block computes. */
struct where {
    int type, r0, here, job;
    uint32_t row_bytes;
    const uint8_t *w;
};

static __device__ __forceinline__ where find_rows(const fused_args &f, const cut &c)
{
    const int b = c.handed != NULL ? 0 : blockIdx.x;
    where at;
    int j = 0;

    while (j + 1 < f.a.n && b >= f.a.job[j + 1].block)
        j++;
    const mv_job &job = f.a.job[j];
    int rows = job_rows(job.type, c.type, c.strips);
    at.job = j;
    at.type = job.type;
    at.row_bytes = (uint32_t)job.row_bytes;
    at.r0 = (b - job.block) * rows;
    at.here = max(min(job.n_rows - at.r0, rows), 0);
    at.w = job.w + at.r0 * job.row_bytes;
    return at;
}

/* What the residual stream has in row r; fetched before the products, it is there when they are. Not before the inputs:
 * the launch that writes it may be some launches back and not have ended, as each lets the next one begin before it
 * waits. */
static __device__ __forceinline__ float residual(const fused_args &f, const where &at, int r)
{
    return at.job == 0 && f.res != NULL && r < at.here ? f.res[at.r0 + r] : 0.0f;
}

static __device__ __forceinline__ void put_result(const fused_args &f, const where &at, int r, float v, float res)
{
    int row = at.r0 + r;

    f.a.job[at.job].y[row] = v;
    if (at.job == 0 && f.res != NULL)
        f.res[row] = __fmaf_rn(f.scale, v, res);
}

/* Shared memory of a product. */
struct space {
    uint8_t *xq;
    float *xs, *values, *tmp;
};

/* The norm's weights that a thread has before the inputs are there; what fills the last pair up stays zero. */
static __device__ __forceinline__ void load_first(const float *norm, int k, float w[8])
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        w[j] = 0.0f;
    if ((int)threadIdx.x * 8 < k)
        load8(w, norm, (int)threadIdx.x * 8);
}

template <int MODE, bool EIGHT> static __device__ __forceinline__ void make_inputs(const fused_args &f, const space &s)
{
    wait_for_inputs();
    if (MODE == IN_PLAIN)
        make_input<MODE, true>(f, f.a.k, EIGHT, f.x, NULL, s.xq, s.xs, s.tmp);
}

/* How far the warps of a block are, all together: the first strip since the last barrier; from there on strips of a
 * set, and from the warp's first on blocks. */
struct turn {
    int s0, block, strip;
};

/* Where the first turn of a block begins. */
static __device__ __forceinline__ int first_turn(const cut &c)
{
    return c.handed != NULL ? (int)blockIdx.x * c.each * c.sets : 0;
}

/* Strips of a warp; MODE: IN_READY, IN_ROUNDED, or IN_PLAIN for all others. One loop, whose first turn only reads
 * ahead: what a short launch waits for is mostly instructions that come for the first time, of which each costs some 15
 * ns. */
template <int TYPE, int MODE, bool EIGHT>
static __device__ __forceinline__ void strips_times(const fused_args &f, const cut &c, const where &at, const space &s)
{
    enum { AHEAD = MODE == IN_READY }; /* a strip is read while the one before is multiplied */
    const int warp = threadIdx.x / 32, first = c.first[warp], set = c.set[warp], units = f.a.k / 32;
    const int strips = (at.here + STRIP - 1) / STRIP, blocks = 2 * c.segments, row = threadIdx.x >> c.lane_bits;
    const int part = threadIdx.x & ((1 << c.lane_bits) - 1), many = c.each * c.sets;
    const bool takes = MODE == IN_READY && c.handed != NULL && threadIdx.x == 0;
    __shared__ int given;
    strip<TYPE> now, then;
    strip_x<TYPE> x;
    turn t = { first_turn(c), 0, 0 };
    float res = 0.0f;
    int loaded = -1, taken = 0; /* the block that x is of; number of the turn after the next */
    int after = t.s0 + (c.handed != NULL ? c.blocks * many : many);

#pragma unroll 1
    for (bool begun = false;; begun = true) {
        turn n = t;
        if (begun && (++n.strip == c.each || n.s0 + n.strip * c.sets >= strips)) {
            n.strip = 0;
            n.block += c.step;
            if (n.block >= blocks) {
                n.block = 0;
                n.s0 = after;
            }
        }
        const int mine = n.s0 + n.strip * c.sets + set, block = n.block + first;
        const bool there = set < c.sets && block < blocks && mine < strips;
        const uint8_t *w = at.w + (uint64_t)(unsigned)(mine * STRIP) * at.row_bytes;
        if (AHEAD && there)
            load_strip<TYPE>(then, w, at.row_bytes, at.here - mine * STRIP, block, units - block * 8);
        if (begun && set < c.sets && t.block + first < blocks && t.s0 + t.strip * c.sets + set < strips) {
            const int b = t.block + first;

            if (b != loaded)
                load_x<TYPE>(x, s.xq + b * (4 * X_PAIR), units - b * 8, EIGHT);
            strip_times<TYPE>(now, x, units - b * 8, EIGHT, f.a.tab,
                              s.values + ((t.strip * c.sets + set) * c.segments + b / 2) * V_SEGMENT + b % 2 * 8);
            loaded = b;
        }
        if (!AHEAD && there)
            load_strip<TYPE>(now, w, at.row_bytes, at.here - mine * STRIP, block, units - block * 8);
        if (!begun)
            make_inputs<MODE, EIGHT>(f, s);
        if (AHEAD)
            now = then;
        if (begun && n.s0 != t.s0) {
            if (takes)
                given = taken;
            __syncthreads();
            if ((int)(threadIdx.x & ~31u) >> c.lane_bits < many * STRIP) { /* a warp's threads go together */
                const float sum = row_sum(s.values + row / STRIP * c.segments * V_SEGMENT + row % STRIP * V_PITCH,
                                          (const float *)(s.xq + c.dx_at), part, c.segments, has_groups(TYPE, EIGHT));

                if (part == 0 && t.s0 * STRIP + row < at.here && row < many * STRIP)
                    put_result(f, at, t.s0 * STRIP + row, sum, res);
            }
            if (n.s0 >= strips)
                return;
            after = c.handed != NULL ? (2 * c.blocks + given) * many : n.s0 + many;
            __syncthreads();
        }
        if (takes && (!begun || n.s0 != t.s0))
            taken = atomicAdd(c.handed, 1);
        if (!begun || n.s0 != t.s0)
            res = part == 0 ? residual(f, at, n.s0 * STRIP + row) : 0.0f;
        t = n;
    }
}

/* Where a block has one turn, and a warp one block of each strip: no more jumps than it takes, as instructions come
 * late after them. IN_ROUNDED: one strip. */
template <int TYPE, int MODE, bool EIGHT>
static __device__ __forceinline__ void strips_once(const fused_args &f, const cut &c, const where &at, const space &s)
{
    const int warp = threadIdx.x / 32, block = c.first[warp], set = c.set[warp], strips = (at.here + STRIP - 1) / STRIP;
    const int row = threadIdx.x >> c.lane_bits, part = threadIdx.x & ((1 << c.lane_bits) - 1);
    const int units = f.a.k / 32 - block * 8, step = c.sets * STRIP;
    const bool own = set < c.sets;
    const uint8_t *w = at.w + set * STRIP * (int)at.row_bytes;
    strip<TYPE> now, then;
    strip_x<TYPE> x;

    load_strip<TYPE>(now, w, at.row_bytes, at.here - set * STRIP, block, own && set < strips ? units : 0);
    if (MODE == IN_READY && own && set + c.sets < strips)
        load_strip<TYPE>(then, w += step * (int)at.row_bytes, at.row_bytes, at.here - (set + c.sets) * STRIP, block,
                         units);
    if (!has_frag(TYPE))
        prefetch(at.w, at.here * (int)at.row_bytes, threadIdx.x, blockDim.x);
    make_inputs<MODE, EIGHT>(f, s);
    const float res = part == 0 ? residual(f, at, row) : 0.0f;
    load_x<TYPE>(x, s.xq + block * (4 * X_PAIR), units, EIGHT);
#pragma unroll 1
    for (int i = set; i < strips && own; i += c.sets) { /* of a block that is not there, zeros */
        strip_times<TYPE>(now, x, units, EIGHT, f.a.tab,
                          s.values + (i * c.segments + block / 2) * V_SEGMENT + block % 2 * 8);
        if (MODE != IN_READY)
            break;
        now = then;
        if (i + 2 * c.sets < strips)
            load_strip<TYPE>(then, w += step * (int)at.row_bytes, at.row_bytes, at.here - (i + 2 * c.sets) * STRIP,
                             block, units);
    }
    __syncthreads();
    if ((int)(threadIdx.x & ~31u) >> c.lane_bits >= strips * STRIP) /* a warp's threads go together */
        return;
    const float sum = row_sum(s.values + row / STRIP * c.segments * V_SEGMENT + row % STRIP * V_PITCH,
                              (const float *)(s.xq + c.dx_at), part, c.segments, has_groups(TYPE, EIGHT));
    if (part == 0 && row < at.here)
        put_result(f, at, row, sum, res);
}

enum { PIECE = 16, PIECES = 4 }; /* elements of a lane that are read before the inputs are there */

/* A row of floats for each warp, in the order of plain_times. A first pass, of a norm's weights in place of the inputs,
 * only brings the instructions: such launches are short and begin early. */
template <int MODE>
static __device__ __forceinline__ void floats_times(const fused_args &f, const cut &c, const where &at, const space &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, pieces = min(f.a.k / (PIECE * 32), (int)PIECES);
    const float *row = (const float *)(at.w + warp * at.row_bytes) + lane;
    const float *x = (MODE == IN_READY ? f.floats : s.xs) + lane;
    float w[PIECES][PIECE], first[8];

#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (warp < at.here && p < pieces)
#pragma unroll
            for (int j = 0; j < PIECE; j++)
                w[p][j] = row[(p * PIECE + j) * 32];
    if (MODE == IN_NORM)
        load_first(f.w, f.a.k, first);
#pragma unroll 1
    for (int pass = MODE != IN_NORM; pass < 2; pass++) {
        float sum = 0.0f, res = 0.0f;

        if (pass == 1)
            wait_for_inputs();
        if (MODE != IN_READY)
            make_input<MODE, false>(f, f.a.k, false, pass == 1 ? f.x : f.w, first, NULL, s.xs, s.tmp);
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
            put_result(f, at, warp, sum, res);
    }
}

/* Only the rounded row: where all rows are floats, whose blocks do not round. */
template <bool EIGHT> static __device__ __forceinline__ void round_row(const fused_args &f, const space &s)
{
    float first[8];

    load_first(f.w, f.a.k, first);
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            wait_for_inputs();
        make_input<IN_NORM, true>(f, f.a.k, EIGHT, pass == 1 ? f.x : f.w, first, pass == 1 ? f.rounded : s.xq, NULL,
                                  s.tmp);
    }
}

/* TYPE: the format of jobs that are not floats; f32: there are none. EIGHT: a.eight; code for both would be in the way.
 * ONCE: strips_once() will do. Blocks beyond those of rows: one that rounds a norm's row, or some that move the
 * past. */
template <int MODE, bool EIGHT, int TYPE, bool ONCE = false>
__global__ void __launch_bounds__(MODE == IN_NORM || MODE == IN_READY ? THREADS : MOST_THREADS,
                                  MODE == IN_PLAIN ? 1 : 2)
    fused_matvec(const __grid_constant__ fused_args f, const __grid_constant__ cut c)
{
    extern __shared__ __align__(16) uint8_t shared[]; /* rounded, floats, values */
    __shared__ float tmp[WARPS];

    let_next_begin();
    const where at = find_rows(f, c);
    const space s = { MODE == IN_ROUNDED || MODE == IN_READY ? (uint8_t *)f.a.x : shared,
                      c.floats ? (float *)(shared + c.x_bytes) : NULL,
                      (float *)(shared + c.x_bytes) + (c.floats ? f.a.k : 0), tmp };

    if (MODE == IN_NORM && (int)blockIdx.x == c.blocks) {
        round_row<EIGHT>(f, s);
        return;
    }
    if (MODE == IN_ROUNDED && (int)blockIdx.x >= c.blocks) {
        wait_for_inputs();
        move_past(f.past, (blockIdx.x - c.blocks) * blockDim.x + threadIdx.x, (gridDim.x - c.blocks) * blockDim.x);
        return;
    }
    if constexpr (TYPE == QUANT_f32) {
        floats_times<MODE>(f, c, at, s);
    } else if (MODE != IN_ROUNDED && at.type == QUANT_f32) {
        floats_times<MODE>(f, c, at, s);
    } else if (MODE == IN_READY && TYPE != BESIDE && at.type != TYPE) {
        strips_once<BESIDE, MODE, EIGHT>(f, c, at, s);
    } else if constexpr (ONCE) {
        strips_once<TYPE, MODE, EIGHT>(f, c, at, s);
    } else {
        prefetch(at.w + (uint64_t)(unsigned)(first_turn(c) * STRIP) * at.row_bytes,
                 min(at.here - first_turn(c) * STRIP, 4 * STRIP) * (int)at.row_bytes, threadIdx.x, blockDim.x);
        strips_times<TYPE, MODE, EIGHT>(f, c, at, s);
    }
}

/* Gives each job its blocks; how many in all. */
static int cut_jobs(struct mv_args *a, int type, int strips)
{
    int blocks = 0;

    for (int i = 0; i < a->n; i++) {
        a->job[i].block = blocks;
        blocks += (int)ceil_div(a->job[i].n_rows, job_rows(a->job[i].type, type, strips));
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

/* Activations of several rows. */
struct input_args {
    enum input mode;
    int k;
    const float *x, *z, *w;
    float eps;
    float *floats;
    uint8_t *rounded;
    int64_t x_stride, z_stride, floats_stride;
    int *handed; /* a norm's row sets it to 0: struct cut */
};

/* grid: 1, rows. A norm's first pass, of its weights, only brings the instructions. */
template <int MODE, bool EIGHT>
__global__ void __launch_bounds__(THREADS) round_rows(const __grid_constant__ input_args a)
{
    extern __shared__ __align__(16) uint8_t nowhere[];
    __shared__ float tmp[WARPS];
    const int row = blockIdx.y;
    input_args own = a;
    float first[8];

    own.x += row * a.x_stride;
    own.z += row * a.z_stride;
    own.floats += a.floats != NULL ? row * a.floats_stride : 0;
    let_next_begin();
    if (MODE == IN_NORM)
        load_first(a.w, a.k, first);
#pragma unroll 1
    for (int pass = MODE != IN_NORM; pass < 2; pass++) {
        if (pass == 1)
            wait_for_inputs();
        if (MODE == IN_NORM && pass == 1 && threadIdx.x == 0)
            *a.handed = 0;
        make_input<MODE, true>(own, a.k, EIGHT, pass == 1 ? own.x : a.w, first,
                               pass == 1 ? a.rounded + row * x_row_bytes(a.k) : nowhere, NULL, tmp);
    }
}

void cuda_fused_round(struct cuda *c, const struct fused_args *f)
{
    const input_args in = { f->mode,          f->a.k,    f->x,       f->z,        f->w,
                            f->eps,           f->floats, f->rounded, f->x_stride, f->z_stride,
                            f->floats_stride, c->handed };
    const bool norm = f->mode == IN_NORM;
    const auto kernel = f->a.eight ? (norm ? round_rows<IN_NORM, true> : round_rows<IN_PLAIN, true>)
                                   : (norm ? round_rows<IN_NORM, false> : round_rows<IN_PLAIN, false>);

    launch_early(c, "round_rows", kernel, dim3(1, (unsigned)f->a.nx), THREADS, norm ? x_row_bytes(f->a.k) : 0, in);
}

static void several_rows(struct cuda *c, const struct fused_args *f)
{
    struct r2_16_args r2_16 = {};
    struct mv_args a = f->a;

    if (f->mode != IN_ROUNDED) {
        cuda_fused_round(c, f);
        a.x = f->rounded;
        r2_16.held = f->a.nx;
    }
    r2_16.floats = f->mode == IN_PLAIN ? f->x : f->floats;
    r2_16.floats_stride = f->mode == IN_PLAIN ? f->x_stride : f->floats_stride;
    r2_16.res_stride = f->res_stride;
    r2_16.scale = f->scale;
    r2_16.past = f->past;
    cuda_r2_16_matvec(c, &r2_16, &a, f->res);
}

template <int MODE, bool EIGHT>
static void launch_matvec(struct cuda *c, const struct fused_args *f, const cut &a, int type, dim3 grid, int threads,
                          size_t smem)
{
    [[maybe_unused]] const bool once = a.step == 2 * a.segments && a.strips <= (MODE == IN_READY ? a.each * a.sets : 1);

    switch (type) {
    case QUANT_f32:
        if constexpr (MODE == IN_NORM || MODE == IN_PLAIN)
            launch_early(c, "fused_matvec", fused_matvec<MODE, EIGHT, QUANT_f32>, grid, (unsigned)threads, smem, *f, a);
        break;
#define X(name) \
    case QUANT_##name: \
        if constexpr (MODE != IN_NORM) \
            launch_early(c, "fused_matvec", \
                         once ? fused_matvec<MODE, EIGHT, QUANT_##name, MODE != IN_PLAIN> \
                              : fused_matvec<MODE, EIGHT, QUANT_##name>, \
                         grid, (unsigned)threads, smem, *f, a); \
        break;
        GEMM_COMMON(X)
        GEMM_ONE_ROW(X)
#undef X
    default:
        break;
    }
}

template <int MODE>
static void launch_either(struct cuda *c, const struct fused_args *f, const cut &a, int type, dim3 grid, int threads,
                          size_t smem)
{
    if (f->a.eight)
        launch_matvec<MODE, true>(c, f, a, type, grid, threads, smem);
    else
        launch_matvec<MODE, false>(c, f, a, type, grid, threads, smem);
}

enum { TURNS_LEAST = 8 };

/* Jobs of one format, those beside it, and floats; begun: not the first launch after a norm's. */
static void one_format(struct cuda *c, struct fused_args *f, int type, bool begun)
{
    const bool norm = f->mode == IN_NORM || f->mode == IN_READY, ready = f->mode == IN_ROUNDED || f->mode == IN_READY;
    struct cut a = {};
    int threads = norm ? THREADS : MOST_THREADS, rows = 0;

    for (int i = 0; i < f->a.n; i++) {
        a.floats |= f->a.job[i].type == QUANT_f32;
        rows = f->a.job[i].type == type && f->a.job[i].n_rows > rows ? f->a.job[i].n_rows : rows;
    }
    /* one turn: as many strips a block as it takes for all blocks to be there at once */
    a.type = type;
    a.strips = 1;
    a.segments = row_segments(f->a.k);
    a.blocks = cut_jobs(&f->a, type, a.strips);
    while (a.blocks > c->sms * (norm ? 2 : 1) && a.strips * STRIP < rows)
        a.blocks = cut_jobs(&f->a, type, ++a.strips);
    if (a.strips * a.segments * 64 <= THREADS || a.floats)
        threads = THREADS;
    cut_warps(&a, threads / 32);
    a.dx_at = x_pairs(f->a.k) * X_PAIR;
    a.floats &= !ready;
    if (f->mode == IN_READY && f->a.n == 1 && !begun && a.strips >= TURNS_LEAST * a.each * a.sets) {
        a.handed = c->handed;
        a.strips = (int)ceil_div(rows, STRIP);
    }
    if (!ready)
        a.x_bytes = (int)x_row_bytes(f->a.k);
    const size_t smem = a.x_bytes + (a.floats ? f->a.k * sizeof(float) : 0) +
                        (size_t)a.each * a.sets * a.segments * V_SEGMENT * sizeof(float);
    const dim3 blocks((unsigned)(a.blocks + (f->mode == IN_NORM) + ceil_div(f->past.channels, threads)));
    if (f->mode == IN_NORM)
        launch_either<IN_NORM>(c, f, a, type, blocks, threads, smem);
    else if (f->mode == IN_READY)
        launch_either<IN_READY>(c, f, a, type, blocks, threads, smem);
    else if (f->mode == IN_ROUNDED)
        launch_either<IN_ROUNDED>(c, f, a, type, blocks, threads, smem);
    else
        launch_either<IN_PLAIN>(c, f, a, type, blocks, threads, smem);
}

/* Threads that share a row's sum are at most 16, a segment each; only rows that come rounded are longer. */
enum { MOST_SEGMENTS = GEMM_FUSED_LONGEST / 512 };

/* A launch for each format: of a kernel's code what lies beyond the first 64 KiB comes late, 10 cycles an
 * instruction. */
void cuda_fused_matvec(struct cuda *c, struct fused_args *f)
{
    struct mv_args left = f->a;

    if (f->a.nx > 1 || row_segments(f->a.k) > MOST_SEGMENTS) {
        several_rows(c, f);
        return;
    }
    cuda_used(c, GEMM_R1_FUSED);
    bool stored = false;
    for (int i = 0; i < left.n; i++)
        stored |= left.job[i].type != QUANT_f32;
    if (f->mode == IN_NORM && stored) {
        cuda_fused_round(c, f);
        f->a.x = f->rounded;
        f->mode = IN_READY;
    }
    for (bool begun = false; left.n > 0; begun = true) {
        /* beside others a warp has one block of a strip */
        const bool along =
            f->mode == IN_READY && f->res == NULL && 2 * row_segments(left.k) <= WARPS && beside_fits(&left);
        int type = QUANT_f32, n = 0;

        for (int i = 0; i < left.n && (type == QUANT_f32 || (along && type == BESIDE)); i++)
            type = left.job[i].type != QUANT_f32 ? left.job[i].type : type;
        f->a.n = 0;
        for (int i = 0; i < left.n && along && type != BESIDE; i++) /* first: their blocks take longest */
            if (left.job[i].type == BESIDE)
                f->a.job[f->a.n++] = left.job[i];
        for (int i = 0; i < left.n; i++)
            if (left.job[i].type == type || left.job[i].type == QUANT_f32)
                f->a.job[f->a.n++] = left.job[i];
            else if (!along || left.job[i].type != BESIDE)
                left.job[n++] = left.job[i];
        left.n = n;
        f->res = begun ? NULL : f->res;
        one_format(c, f, type, begun);
    }
}
