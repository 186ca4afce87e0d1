/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16_large.cu - GEMM for 2 to 16 tokens and large matrices: no split-K, warps never synchronise. Compiled for
 * each GPU (needs sm_90a).
 *
 * A warp multiplies one strip of 16 rows, or two if registers allow it; two strips share what is read of the
 * activations, which can take longer than reading the weights. It walks over all segments of a strip and adds them
 * itself. One block on each multiprocessor keeps its activations in shared memory, beside the stages of weights. */
#include "kernels/gemm/gemm_r2_16_task.cuh"

enum {
    LARGE_WARPS = 16,
    LARGE_LEAST = 8 /* warps of a block */,
    LARGE_TURNS = 2,
    LARGE_SMEM = 3 << 10 /* beside what is counted */
};
template <int TYPE> struct large_of {
    enum {
        STRIPS = MOST_STRIPS<TYPE>,
        STAGES = 2 / STRIPS,
        ROWS = STRIPS * STRIP,
        STAGE = ROWS * stage_of<TYPE>::BOX,
        SCALES = ROWS * scales_of<TYPE>::APART * (int)sizeof(float),
        BYTES = STAGES * STAGE + SCALES, /* of a warp */
    };
};

template <int NT, int TYPE, bool EIGHT = false>
__global__ void __launch_bounds__(LARGE_WARPS * 32, 1) r2_16_large(const __grid_constant__ r2_16_args f)
{
    typedef frag<TYPE> F;
    typedef large_of<TYPE> M;
    extern __shared__ __align__(BOX_ALIGN) uint8_t x[];
    __shared__ uint64_t bar, full[LARGE_WARPS][M::STAGES];
    __shared__ near_tables tables;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4, warps = blockDim.x / 32;
    const int span = blockIdx.x % f.spans, blocks = gridDim.x / f.spans, first = span * NT * GROUP;
    const int segments = row_segments(f.k), step = blocks * warps * M::ROWS;
    const int row_first = (warp * blocks + (int)blockIdx.x / f.spans) * M::ROWS;
    const task t = { 0, 0, 0, span, first, min(f.nx - first, NT * GROUP) };
    const r2_16_job &job = f.job[0];
    uint8_t *stages = x + columns_bytes(NT, f.pitch) + warp * (M::STAGES * M::STAGE);
    float *scales = (float *)(x + columns_bytes(NT, f.pitch) + warps * (M::STAGES * M::STAGE) + warp * M::SCALES);
    const near at = { x, stages, &bar, full[warp], 0, span, 0, 0, true };
    int next_row = row_first, next = 0; /* which segment is asked for */
    columns<NT> col;
    const auto ask = [&](int stage) {
        if (next_row < job.n_rows && one_of_warp())
            bring_box<TYPE, M::ROWS>(shared_at(stages + stage * M::STAGE), f.box, 0, next_row, next,
                                     shared_at(at.full + stage));
        __syncwarp();
        if (++next == segments) {
            next = 0;
            next_row += step;
        }
    };

    let_next_begin();
    bring_tables<TYPE>(tables, f.tab);
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < M::STAGES; i++)
            bar_init(at.full + i, 1);
        if (threadIdx.x == 0)
            bar_init(&bar, 1);
        bar_init_done();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < M::STAGES; i++)
        ask(i);
    only_wait_for_inputs();
    if (warp == 0)
        fetch_columns(f, t, 0, at);
    find_columns<TYPE, NT, EIGHT>(col, t.cols, f.pitch);
    bar_wait(&bar, 0);
#pragma unroll 1
    for (int row = row_first, turn = 0; row < job.n_rows; row += step) {
        float sums[M::STRIPS][NT][2] = {};

#pragma unroll 1
        for (int q = 0; q < segments; q++, turn++) {
            const int stage = turn % M::STAGES;
            const uint8_t *from = boxed_row<TYPE>(stages + stage * M::STAGE, g, q), *xb = x + q * (8 * X_PAIR);
            float S[M::STRIPS][NT][2] = {};

            bar_wait(at.full + stage, turn / M::STAGES % 2);
#pragma unroll 1
            for (int units = f.k / 32 - q * 16, end = max(units - 16, 0); units > end; units -= 8) {
                strip<TYPE> s[M::STRIPS];

#pragma unroll
                for (int m = 0; m < M::STRIPS; m++) {
                    F::template load<true>(s[m].r0, from + m * STRIP * stage_of<TYPE>::BOX, units, c);
                    F::template load<true>(s[m].r8, from + (m * STRIP + 8) * stage_of<TYPE>::BOX, units, c);
                }
                if (units - 8 <= end) {
                    proxy_fence(); /* what was just asked of the stage has come */
                    __syncwarp();
                    ask(stage);
                }
                if constexpr (EIGHT)
                    block_eight<TYPE, M::STRIPS>(S, s, xb, col, units, scales, &tables);
                else
                    block_times<TYPE, NT, M::STRIPS>(S, s, xb, col, units, scales, &tables);
                from += F::BLOCK;
                xb += 4 * X_PAIR;
            }
#pragma unroll
            for (int i = 0; i < M::STRIPS * NT * 2; i++)
                (&sums[0][0][0])[i] = __fadd_rn((&sums[0][0][0])[i], (&S[0][0][0])[i]);
        }
        int lane = threadIdx.x % 32;
        asm volatile(""
                     : "+r"(lane)); /* places of results are found now: else they would take registers all the time */
#pragma unroll
        for (int i = 0; i < M::STRIPS * NT * 2; i++) {
            const int n = i / 2 % NT, r = i % 2, column = EIGHT ? lane % 4 * 2 + r : n * GROUP + lane % 4;
            const int own = row + i / 2 / NT * STRIP + lane / 4 + (EIGHT ? n : r) * 8;

            if (column < t.cols && own < job.n_rows)
                job.y[(first + column) * job.y_stride + own] = (&sums[0][0][0])[i];
        }
    }
}

/* Launches one large matrix, if every warp gets two strips and shared memory holds enough warps. A product with a
 * residual or with other matrices in the launch is left to gemm_r2_16. */
template <int NT, int TYPE> static bool launch_r2_16_large(struct cuda *c, struct r2_16_args *f)
{
    typedef large_of<TYPE> M;
    const struct r2_16_job &j = f->job[0];
    const int columns = columns_bytes(NT, f->pitch), room = (cuda_attn_smem(c) - LARGE_SMEM - columns) / M::BYTES;
    const int warps = room < LARGE_WARPS ? room : (int)LARGE_WARPS, blocks = c->sms / f->spans;

    if (f->n != 1 || f->n_beside > 0 || j.type != TYPE || j.res != NULL || f->past.channels > 0 ||
        row_segments(f->k) > TURN || j.row_bytes % 16 != 0 || (uintptr_t)j.w % 16 != 0 || warps < LARGE_LEAST ||
        j.n_rows < LARGE_TURNS * M::ROWS * warps * blocks)
        return false;
    f->paired = false;
    make_box<TYPE, M::ROWS>(c, f->box, j.w, j.row_bytes, (int64_t)j.n_rows * j.row_bytes, j.n_rows);
    launch_early(c, "few_many", f->eight ? r2_16_large<2, TYPE, true> : r2_16_large<NT, TYPE>,
                 dim3((unsigned)(blocks * f->spans)), (unsigned)warps * 32, (size_t)(columns + warps * M::BYTES), *f);
    return true;
}

bool cuda_r2_16_large(struct cuda *c, struct r2_16_args *f, int nt, int type)
{
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        return nt == 1 ? launch_r2_16_large<1, QUANT_##name>(c, f) : launch_r2_16_large<2, QUANT_##name>(c, f);
        GEMM_COMMON(X)
#undef X
    default:
        return false;
    }
}
