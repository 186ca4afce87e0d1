/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16_task.cuh - shared by the kernels of gemm_r2_16*.cu: tasks, activations, results.
 * room: kernels
 *
 * Activations are copied to shared memory with TMA; reading them from global memory would stall once per 32
 * elements. */
#ifndef KERNELS_GEMM_GEMM_R2_16_TASK_CUH
#define KERNELS_GEMM_GEMM_R2_16_TASK_CUH
#include "kernels/common/tma.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/gemm/gemm_r2_16_warp.cuh"

enum { WARPS = 8, TURN = 8 /* segments of columns in shared memory */, FLOATS = 2 /* columns of a task of type f32 */ };

/* What a block does at a time: rows of a job times a span of columns. */
struct task {
    int job, r0, strips, span, first, cols; /* first row; sets of 16 rows; columns */
};

/* Both blocks of a pair are there, too: their barriers can be told of bytes. */
static __device__ __forceinline__ void wait_once(const r2_16_args &f, bool &waited)
{
    if (!waited && f.paired)
        cluster_wait();
    if (!waited)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    waited = true;
}

/* Columns in shared memory: which span of them, how many segments from `round` on, or -1; and stages of warps, with the
 * phase that is waited for. */
struct near {
    uint8_t *x, *stage;
    uint64_t *bar, *full; /* full: of the warp's stage */
    int phase, span, round, turn;
    bool moved;
};

/* A block's barriers and tables; the block that shares its columns may be told of them from here on. */
template <int TYPE>
static __device__ __forceinline__ void begin_block(const r2_16_args &f, const near &at, near_tables &tables)
{
    bring_tables<TYPE>(tables, f.tab);
    if (threadIdx.x % 32 == 0) {
        bar_init(at.full, 1);
        if (threadIdx.x == 0)
            bar_init(at.bar, 1);
        bar_init_done();
    }
    __syncthreads();
    if (f.paired)
        cluster_given();
}

/* Which of the blocks with tasks this is: of four with two spans both of a pair have the same. */
static __device__ __forceinline__ int find_block(const r2_16_args &f)
{
    const int own = (int)blockIdx.x - f.beside;

    return f.paired && f.spans == 2 ? (own & ~3) | (own & 1) << 1 | (own >> 1 & 1) : own;
}

/* By a warp, quarters of columns. All blocks want the same at the same time: each begins elsewhere. Of a pair each
 * block brings every other quarter to both; bytes may come before they are expected. */
static __device__ __forceinline__ void fetch_columns(const r2_16_args &f, const task &t, int round, const near &at)
{
    const int lane = threadIdx.x & 31, piece = (lane + blockIdx.x) & 31, column = piece % 8;
    const int pairs = min(x_pairs(f.k) - round * 8, TURN * 8), quarter = (pairs + 3) / 4, first = piece / 8 * quarter;
    const int n = min(pairs - first, quarter);

    if (lane == 0)
        bar_expect(at.bar, (unsigned)(pairs * t.cols * X_PAIR));
    __syncwarp();
    if (column < t.cols && n > 0) {
        uint8_t *to = at.x + column_at(column, f.pitch) + first * X_PAIR;
        const uint8_t *from = f.x + (t.first + column) * x_row_bytes(f.k) + (round * 8 + first) * X_PAIR;

        if (!f.paired)
            bulk_go(to, from, (unsigned)n * X_PAIR, at.bar);
        else if (piece / 8 % 2 == (int)blockIdx.x % 2)
            bulk_go_both(to, from, (unsigned)n * X_PAIR, at.bar);
    }
    __syncwarp();
}

/* The memory of a convolution, once a launch: by a block that waits for columns anyway, or at its end. */
static __device__ __forceinline__ void move_past_once(const r2_16_args &f, near &at)
{
    if (!at.moved)
        move_past(f.past, ((int)blockIdx.x - f.beside) * (int)blockDim.x + threadIdx.x, f.blocks * (int)blockDim.x);
    at.moved = true;
}

/* What the residual stream has; read before the products, it is there when they are. */
static __device__ __forceinline__ float residual(const r2_16_args &f, const r2_16_job &job, int column, int row)
{
    return job.res != NULL ? job.res[column * f.res_stride + row] : 0.0f;
}

static __device__ __forceinline__ void put_result(const r2_16_args &f, const r2_16_job &job, int column, int row,
                                                  float v, float res)
{
    job.y[column * job.y_stride + row] = v;
    if (job.res != NULL)
        job.res[column * f.res_stride + row] = __fmaf_rn(f.scale, v, res);
}

/* Columns of floats where the others lie, eighths of them by a warp. */
static __device__ __forceinline__ void fetch_floats(const r2_16_args &f, const task &t, const near &at)
{
    const int lane = threadIdx.x & 31, piece = (lane + blockIdx.x) & 15, column = piece % FLOATS;
    const int eighth = (f.k / 32 + 7) / 8 * 32, first = piece / FLOATS * eighth, n = min(f.k - first, eighth);

    if (lane == 0)
        bar_expect(at.bar, (unsigned)(f.k * t.cols * (int)sizeof(float)));
    __syncwarp();
    if (lane < 8 * FLOATS && column < t.cols && n > 0)
        bulk_go(at.x + (column * f.k + first) * sizeof(float), f.floats + (t.first + column) * f.floats_stride + first,
                (unsigned)n * sizeof(float), at.bar);
    __syncwarp();
}

/* Whether blocks fetch columns once, two neighbours the same ones. */
static inline bool in_pairs(const struct r2_16_args *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->job[i].type == QUANT_f32)
            return false;
    return row_segments(f->k) <= TURN && f->beside % 2 == 0 &&
           (f->spans == 1 ? f->blocks % 2 == 0 : f->spans == 2 && f->blocks % 4 == 0 && f->tasks == f->blocks);
}
#endif
