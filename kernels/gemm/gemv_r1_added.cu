/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_r1_added.cu - GEMV for one token, fused, with what adapters add to its results (gemv_r1_fused.cu is without).
 *
 * The first blocks make a x in the order of sums of adapt/adapt.cu, the others multiply meanwhile, and wait for it when
 * they have their own sums: all blocks of a launch begin before the next launch's, and the first ones begin first. */
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/gemm/gemv_r1_fused.cuh"

enum { PARTS = 4 /* of a sum, as adapt/adapt.cu has them */ };

static __device__ __forceinline__ op_pair pair_of(const added_args &a, int job)
{
    const int which = a.list[0].which;

    return a.job[job].pair != NULL && which >= 0 ? a.job[job].pair[which] : op_pair{};
}

static __device__ __forceinline__ void give_rank(const added_args &a, int job, int rank, const float part[PARTS],
                                                 float scale)
{
    float total = part[0];

#pragma unroll
    for (int q = 1; q < PARTS; q++)
        total = __fadd_rn(total, part[q]);
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(a.job[job].h + rank), "f"(__fmul_rn(total, scale))
                 : "memory");
}

/* The ranks of a job that block `number` has, SHARE warps each. */
template <int SHARE> static __device__ __forceinline__ void make_ranks(const added_args &a, int number)
{
    enum { OWN = PARTS / SHARE /* parts of a warp */, QUADS = added_width(SHARE) / 4 / PARTS / 32 };
    __shared__ float part[MOST_THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, rank = number % a.each * a.ranks + warp / SHARE;
    int job = 0;

    for (int i = number / a.each;; job++)
        if (a.job[job].pair != NULL && i-- == 0)
            break;
    const op_pair p = pair_of(a, job);
    const bool own = p.a != NULL && rank < p.rank;
    const float4 *row = (const float4 *)(p.a + (a.job[job].mat * p.rank + rank) * a.n_in);
    const int all = a.n_in / 4, each = (all + PARTS - 1) / PARTS;
    float4 w[OWN][QUADS];
    float sum[OWN];

#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const int of = warp % SHARE * OWN + k, first = of * each + lane, end = min((of + 1) * each, all);

#pragma unroll
        for (int i = 0; i < QUADS; i++)
            w[k][i] = own && first + 32 * i < end ? row[first + 32 * i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    only_wait_for_inputs();
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const int of = warp % SHARE * OWN + k, first = of * each + lane, end = min((of + 1) * each, all);

        sum[k] = 0.0f;
#pragma unroll
        for (int i = 0; i < QUADS; i++)
            if (first + 32 * i < end) {
                const float4 x = ((const float4 *)a.x)[first + 32 * i];

                sum[k] = __fmaf_rn(w[k][i].x, x.x, sum[k]);
                sum[k] = __fmaf_rn(w[k][i].y, x.y, sum[k]);
                sum[k] = __fmaf_rn(w[k][i].z, x.z, sum[k]);
                sum[k] = __fmaf_rn(w[k][i].w, x.w, sum[k]);
            }
    }
#pragma unroll
    for (int k = 0; k < OWN; k++)
        sum[k] = warp_sum(sum[k]);
    const float scale = __fmul_rn(a.list[0].scale, p.scale);
    if constexpr (SHARE == 1) {
        if (own && lane == 0)
            give_rank(a, job, rank, sum, scale);
        return;
    }
    if (lane == 0)
        part[warp] = sum[0];
    __syncthreads();
    if (own && lane == 0 && warp % SHARE == 0)
        give_rank(a, job, rank, part + warp, scale);
}

/* By whole warps; own: the lane has this result. */
static __device__ __forceinline__ float plus_added(const added_args &a, const where &at, int r, float v, bool own)
{
    const added_job &job = a.job[at.job];
    const op_pair p = pair_of(a, at.job);
    float b[ADDED_RANKS], h = 0.0f;

    if (p.a == NULL)
        return v;
    const float *from = p.b + job.mat * p.rank * job.n_out + job.first + at.r0 + r;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < ADDED_RANKS; j++)
        b[j] = own && j < p.rank ? from[j * job.n_out] : 0.0f;
    if (lane < p.rank)
        do
            asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(h) : "l"(job.h + lane) : "memory");
        while (__float_as_uint(h) == ADDED_EMPTY);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < ADDED_RANKS; j++) {
        const float its = __shfl_sync(~0u, h, j);

        if (j < p.rank)
            v = __fmaf_rn(its, b[j], v);
    }
    return v;
}

/* What a block will read of b, asked for before the inputs are there. */
static __device__ __forceinline__ void ask_added(const added_args &a, const where &at)
{
    enum { LINE = 32 /* floats */ };
    const op_pair p = pair_of(a, at.job);
    const int lines = (at.here + LINE - 1) / LINE + 1;

    if (p.a == NULL || at.here <= 0)
        return;
    const added_job &job = a.job[at.job];
    const float *from = p.b + job.mat * p.rank * job.n_out + job.first + at.r0;
#pragma unroll 1
    for (int i = threadIdx.x; i < p.rank * lines; i += blockDim.x)
        asm volatile(
            "prefetch.global.L2 [%0];" ::"l"(from + i / lines * job.n_out + min(i % lines * LINE, at.here - 1)));
}

/* As fused_matvec(). */
template <int MODE, bool EIGHT, int TYPE, bool ONCE>
__global__ void __launch_bounds__(MODE == IN_READY ? THREADS : MOST_THREADS, 2)
    added_matvec(const __grid_constant__ fused_args f, const __grid_constant__ cut c,
                 const __grid_constant__ added_args a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    const int block = (int)blockIdx.x - a.makers;

    let_next_begin();
    if (block < 0) {
        make_ranks<added_share(MODE)>(a, blockIdx.x);
        return;
    }
    if (MODE == IN_ROUNDED && block >= c.blocks) {
        wait_for_inputs();
        move_past(f.past, (block - c.blocks) * blockDim.x + threadIdx.x,
                  ((int)gridDim.x - a.makers - c.blocks) * blockDim.x);
        return;
    }
    const where at = find_rows(f, c, block);
    const space s = { (uint8_t *)f.a.x, NULL, (float *)(shared + c.x_bytes), NULL };

    ask_added(a, at);
    if (MODE == IN_READY && TYPE != BESIDE && at.type != TYPE)
        strips_once<BESIDE, MODE, EIGHT>(f, c, at, s, a);
    else if constexpr (ONCE)
        strips_once<TYPE, MODE, EIGHT>(f, c, at, s, a);
    else
        strips_times<TYPE, MODE, EIGHT>(f, c, at, s, a);
}

/* ---- host ---- */

template <int MODE, bool EIGHT, int TYPE> static auto kernel_for(bool once)
{
    return once ? added_matvec<MODE, EIGHT, TYPE, true> : added_matvec<MODE, EIGHT, TYPE, false>;
}

template <int TYPE> static auto kernel_of(int mode, bool eight, bool once)
{
    return mode == IN_READY
               ? (eight ? kernel_for<IN_READY, true, TYPE>(once) : kernel_for<IN_READY, false, TYPE>(once))
               : (eight ? kernel_for<IN_ROUNDED, true, TYPE>(once) : kernel_for<IN_ROUNDED, false, TYPE>(once));
}

void cuda_launch_added(struct cuda *c, const struct fused_args *f, const struct cut &a, const struct added_args &add,
                       int type, bool once, dim3 grid, int threads, size_t smem)
{
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        launch_early(c, "added_matvec", kernel_of<QUANT_##name>(f->mode, f->a.eight, once), grid, (unsigned)threads, \
                     smem, *f, a, add); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        cuda_fail(c, cudaErrorInvalidValue, "added_matvec");
        break;
    }
}
