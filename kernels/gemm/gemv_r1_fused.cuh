/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_r1_fused.cuh - GEMV for one token, fused: what gemv_r1_fused.cu and gemv_r1_added.cu share.   room: kernels */
#ifndef KERNELS_GEMM_GEMV_R1_FUSED_CUH
#define KERNELS_GEMM_GEMV_R1_FUSED_CUH
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
 * every `step`. A warp takes `each` strips between barriers, a set's are `sets` apart: a turn. */
struct cut {
    int type; /* of jobs that are neither floats nor beside others */
    int blocks, strips, segments, sets, step, each;
    int lane_bits;              /* of the threads that share a row's sum */
    int x_bytes, floats, dx_at; /* of shared memory, before the values; floats 0: nobody wants them; where dx is */
    uint8_t set[MOST_THREADS / 32], first[MOST_THREADS / 32];
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

static __device__ __forceinline__ where find_rows(const fused_args &f, const cut &c, int block)
{
    where at;
    int j = 0;

    while (j + 1 < f.a.n && block >= f.a.job[j + 1].block)
        j++;
    const mv_job &job = f.a.job[j];
    int rows = job_rows(job.type, c.type, c.strips);
    at.job = j;
    at.type = job.type;
    at.row_bytes = (uint32_t)job.row_bytes;
    at.r0 = (block - job.block) * rows;
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

/* No adapters; gemv_r1_added.cu has those that add to results. */
struct no_added {
};
static __device__ __forceinline__ float plus_added(const no_added &, const where &, int, float v, bool)
{
    return v;
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

/* Strips of a warp; MODE: IN_READY, IN_ROUNDED, or IN_PLAIN for all others. One loop, whose first turn only reads
 * ahead: what a short launch waits for is mostly instructions that come for the first time, of which each costs some 15
 * ns. */
template <int TYPE, int MODE, bool EIGHT, class ADD>
static __device__ __forceinline__ void strips_times(const fused_args &f, const cut &c, const where &at, const space &s,
                                                    const ADD &add)
{
    enum { AHEAD = MODE == IN_READY }; /* a strip is read while the one before is multiplied */
    const int warp = threadIdx.x / 32, first = c.first[warp], set = c.set[warp], units = f.a.k / 32;
    const int strips = (at.here + STRIP - 1) / STRIP, blocks = 2 * c.segments, row = threadIdx.x >> c.lane_bits;
    const int part = threadIdx.x & ((1 << c.lane_bits) - 1), many = c.each * c.sets;
    strip<TYPE> now, then;
    strip_x<TYPE> x;
    turn t = { 0, 0, 0 };
    float res = 0.0f;
    int loaded = -1; /* the block that x is of */

#pragma unroll 1
    for (bool begun = false;; begun = true) {
        turn n = t;
        if (begun && (++n.strip == c.each || n.s0 + n.strip * c.sets >= strips)) {
            n.strip = 0;
            n.block += c.step;
            if (n.block >= blocks) {
                n.block = 0;
                n.s0 += many;
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
            __syncthreads();
            if ((int)(threadIdx.x & ~31u) >> c.lane_bits < many * STRIP) { /* a warp's threads go together */
                const float sum = row_sum(s.values + row / STRIP * c.segments * V_SEGMENT + row % STRIP * V_PITCH,
                                          (const float *)(s.xq + c.dx_at), part, c.segments, has_groups(TYPE, EIGHT));
                const bool own = part == 0 && t.s0 * STRIP + row < at.here && row < many * STRIP;
                const float all = plus_added(add, at, t.s0 * STRIP + row, sum, own);

                if (own)
                    put_result(f, at, t.s0 * STRIP + row, all, res);
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

/* Where a block has one turn, and a warp one block of each strip: no more jumps than it takes, as instructions come
 * late after them. IN_ROUNDED: one strip. */
template <int TYPE, int MODE, bool EIGHT, class ADD>
static __device__ __forceinline__ void strips_once(const fused_args &f, const cut &c, const where &at, const space &s,
                                                   const ADD &add)
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
    const float all = plus_added(add, at, row, sum, part == 0 && row < at.here);
    if (part == 0 && row < at.here)
        put_result(f, at, row, all, res);
}

/* What adapters add to the jobs of a launch, each of one term of at most ADDED_RANKS ranks. The first blocks, `each`
 * for each job that has pairs, make a x, scaled, `ranks` a block, while the others multiply; h has ADDED_EMPTY, which
 * no sum is, where a number is not there yet. */
enum { ADDED_RANKS = 16 };
static constexpr uint32_t ADDED_EMPTY = 0xffffffffu;
struct added_job {
    const op_pair *pair; /* [adapters]; NULL: nothing is added */
    int64_t n_out, mat;
    float *h; /* [ADDED_RANKS] */
    int first;
};
struct added_args {
    struct added_job job[JOBS];
    const struct adapt_term *list;
    const float *x;
    int n_in, each, ranks, makers; /* makers: of all jobs */
};
/* Warps that share a rank, and how wide the inputs are at most: a warp reads its part of a before the inputs are there.
 */
static __host__ __device__ constexpr int added_share(int mode)
{
    return mode == IN_READY ? 1 : 4;
}
static __host__ __device__ constexpr int added_width(int share)
{
    return share == 1 ? 2048 : 4096;
}
/* Jobs of one format and those beside it; mode IN_READY or IN_ROUNDED. */
void cuda_launch_added(struct cuda *c, const struct fused_args *f, const struct cut &a, const struct added_args &add,
                       int type, bool once, dim3 grid, int threads, size_t smem);
#endif
