/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16_resident.cu - GEMM for 2 to 16 tokens where all tiles are resident at once (one wave). Compiled for each
 * GPU (needs sm_90a).
 *
 * A warp multiplies one segment of one strip, or of two strips that share the activations they read. There are no turns
 * and no second TMA box, which saves a third of a task's instructions. A block has sets of strips with all their
 * segments; sums are stored where the weights were, and added in order. Rows of float weights, and small matrices of
 * another format, have blocks of their own. */
#include <algorithm>
#include "kernels/gemm/gemm_r2_16_task.cuh"

enum { RESIDENT_WARPS = 16, RESIDENT_SMEM = 4 << 10 /* beside what is counted */ };

/* M: strips of a warp. */
template <int TYPE, int M> struct resident_of {
    enum {
        STAGE = M * STRIP * stage_of<TYPE>::BOX,
        SCALES = M * STRIP * scales_of<TYPE>::APART * (int)sizeof(float),
        BYTES = STAGE + SCALES, /* of a warp */
    };
};

/* Multiplies a block's strips from t.r0 on. REHEARSE: before the columns arrive the block runs its products once on
 * whatever memory holds, which fetches the code; for blocks whose code no other block has fetched. */
template <int NT, int TYPE, int M, bool EIGHT, bool REHEARSE>
static __device__ __forceinline__ void resident_times(const r2_16_args &f, const task &t, near &at,
                                                      const near_tables *tab)
{
    typedef frag<TYPE> F;
    typedef resident_of<TYPE, M> O;
    enum { ROWS = M * STRIP, COLS = NT * GROUP };
    const r2_16_job &job = f.job[t.job];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4, warps = blockDim.x / 32;
    const int segments = row_segments(f.k), sets = warps / segments, segment = warp % segments;
    const int row = t.r0 + warp / segments * ROWS;
    uint8_t *stage = at.stage + warp * O::STAGE;
    float *scales = (float *)(at.stage + warps * O::STAGE + warp * O::SCALES);
    const uint8_t *box = boxed_row<TYPE>(stage, g, segment);
    bool waited = false;
    float S[M][NT][2] = {};
    columns<NT> col;

    if (row < job.n_rows && one_of_warp())
        bring_box<TYPE, ROWS>(shared_at(stage), f.box + t.job, 0, row, segment, shared_at(at.full));
    __syncwarp();
    if (row < job.n_rows && REHEARSE)
        bar_wait(at.full, 0);
    const int column = threadIdx.x / ROWS % COLS,
              result = t.r0 + threadIdx.x / (ROWS * COLS) * ROWS + threadIdx.x % ROWS;
    const bool there = column < t.cols && result < job.n_rows && (int)threadIdx.x < sets * ROWS * COLS;
    float res = 0.0f;
    find_columns<TYPE, NT, EIGHT>(col, REHEARSE ? 1 : t.cols, f.pitch);
#pragma unroll 1
    for (int pass = REHEARSE ? 0 : 1; pass < 2; pass++) {
        if (pass == 1) {
            wait_once(f, waited);
            if (warp == 0)
                fetch_columns(f, t, 0, at);
            move_past_once(f, at);
            res = there ? residual(f, job, t.first + column, result) : 0.0f;
            if (REHEARSE)
                find_columns<TYPE, NT, EIGHT>(col, t.cols, f.pitch);
            bar_wait(at.bar, 0);
        }
        if (row >= job.n_rows)
            continue;
        if (pass == 1 && !REHEARSE)
            bar_wait(at.full, 0);
        const uint8_t *from = box, *xb = pass == 1 ? at.x + segment * (8 * X_PAIR) : stage;
#pragma unroll
        for (int i = 0; i < M * NT * 2; i++)
            (&S[0][0][0])[i] = 0.0f;
#pragma unroll 1
        for (int units = f.k / 32 - segment * 16, end = max(units - 16, 0); units > end; units -= 8) {
            strip<TYPE> s[M];

#pragma unroll
            for (int m = 0; m < M; m++) {
                F::template load<true>(s[m].r0, from + m * STRIP * stage_of<TYPE>::BOX, units, c);
                F::template load<true>(s[m].r8, from + (m * STRIP + 8) * stage_of<TYPE>::BOX, units, c);
            }
            if constexpr (EIGHT)
                block_eight<TYPE, M>(S, s, xb, col, units, scales, tab);
            else
                block_times<TYPE, NT, M>(S, s, xb, col, units, scales, tab);
            from += F::BLOCK;
            xb += 4 * X_PAIR;
        }
    }
    __syncwarp(); /* all have read the stage */
    float *to = (float *)stage;
#pragma unroll
    for (int i = 0; i < M * NT * 2; i++) {
        const int m = i / 2 / NT, n = i / 2 % NT, r = i % 2;

        to[(m * COLS + (EIGHT ? 2 * c + r : n * GROUP + c)) * PITCH + g + (EIGHT ? n : r) * 8] = S[m][n][r];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < sets * ROWS * COLS; i += blockDim.x) {
        const int set = i / (ROWS * COLS), own = i / ROWS % COLS, r = i % ROWS, at_row = t.r0 + set * ROWS + r;
        const float *from =
            (const float *)(at.stage + set * segments * O::STAGE) + (r / STRIP * COLS + own) * PITCH + r % STRIP;
        float v = 0.0f;

        if (own >= t.cols || at_row >= job.n_rows)
            continue;
#pragma unroll 1
        for (int q = 0; q < segments; q++, from += O::STAGE / (int)sizeof(float))
            v = __fadd_rn(v, *from);
        put_result(f, job, t.first + own, at_row, v,
                   i == (int)threadIdx.x ? res : residual(f, job, t.first + own, at_row));
    }
}

/* Rows of floats, one a warp, which come to shared memory behind their columns before these do. */
static __device__ __forceinline__ void resident_floats(const r2_16_args &f, const task &t, near &at, uint64_t *there)
{
    const r2_16_job &job = f.job[t.job];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = t.r0 + warp;
    uint8_t *rows = at.x + FLOATS * f.k * (int)sizeof(float);
    const float *w = (const float *)(rows + warp * job.row_bytes) + lane, *x = (const float *)at.x + lane;
    bool waited = false;
    float sum[FLOATS] = {};

    if (threadIdx.x == 0)
        bulk_copy(rows, job.w + (int64_t)t.r0 * job.row_bytes,
                  (unsigned)(min(job.n_rows - t.r0, (int)WARPS) * job.row_bytes), there);
    wait_once(f, waited);
    if (warp == 0)
        fetch_floats(f, t, at);
    move_past_once(f, at);
    if (warp >= WARPS || row >= job.n_rows)
        return;
    bar_wait(there, 0);
    bar_wait(at.bar, 0);
#pragma unroll 8
    for (int i = 0; i < f.k; i += 32)
#pragma unroll
        for (int q = 0; q < FLOATS; q++)
            sum[q] = __fmaf_rn(w[i], x[min(q, t.cols - 1) * f.k + i], sum[q]);
#pragma unroll
    for (int q = 0; q < FLOATS; q++) {
        sum[q] = fold32(sum[q]);
        if (lane == q && q < t.cols)
            put_result(f, job, t.first + q, row, sum[q], residual(f, job, t.first + q, row));
    }
}

template <int NT, int TYPE, int M, bool EIGHT = false>
__global__ void __launch_bounds__(RESIDENT_WARPS * 32, 1) r2_16_resident(const __grid_constant__ r2_16_args f)
{
    enum { COLS = NT * GROUP };
    extern __shared__ __align__(BOX_ALIGN) uint8_t x[];
    __shared__ uint64_t bar, full[RESIDENT_WARPS];
    __shared__ near_tables tables;
    const int block = find_block(f);
    near at = { x, x + columns_bytes(NT, f.pitch), &bar, full + threadIdx.x / 32, 0, 0, 0, 0, false };
    task t = {};

    let_next_begin();
    while (t.job + 1 < f.n + f.n_beside && block >= f.job[t.job + 1].first)
        t.job++;
    const r2_16_job &job = f.job[t.job];
    const bool floats = job.type == QUANT_f32;
    const int spans = floats ? (f.nx + FLOATS - 1) / FLOATS : f.spans, group = (block - job.first) / spans;
    const int cols = floats ? (int)FLOATS : (int)COLS, sets = blockDim.x / 32 / row_segments(f.k);
    t.span = block - job.first - group * spans;
    t.first = t.span * cols;
    t.cols = min(f.nx - t.first, cols);
    t.r0 = group * (floats ? (int)WARPS : sets * STRIP * (job.type == TYPE ? M : 1));
    begin_block<TYPE>(f, at, tables);
    if (job.type == TYPE)
        resident_times<NT, TYPE, M, EIGHT, false>(f, t, at, &tables);
    else if (floats)
        resident_floats(f, t, at, full);
    else if constexpr (TYPE != BESIDE)
        resident_times<NT, BESIDE, 1, EIGHT, true>(f, t, at, &tables);
}

/* Blocks of a job, with `sets` sets of M strips each; for a format other than TYPE, of one strip each. */
template <int TYPE, int M> static int resident_blocks(const struct r2_16_args *f, const struct r2_16_job &j, int sets)
{
    return (int)(j.type == QUANT_f32 ? ceil_div(j.n_rows, WARPS) * ceil_div(f->nx, FLOATS)
                                     : ceil_div(j.n_rows, sets * STRIP * (j.type == TYPE ? M : 1)) * f->spans);
}

/* A launch with M strips a warp, if all of it finds room; a block has as many sets as leave a multiprocessor few
 * warps. */
template <int NT, int TYPE, int M> static bool launch_strips(struct cuda *c, struct r2_16_args *f)
{
    const int segments = row_segments(f->k), jobs = f->n + f->n_beside, smem = cuda_attn_smem(c) - RESIDENT_SMEM;
    const int bytes = resident_of<TYPE, M>::BYTES, beside = f->n_beside > 0 ? (int)resident_of<BESIDE, 1>::BYTES : 0;
    const bool floats = std::any_of(f->job, f->job + jobs, [](const r2_16_job &j) { return j.type == QUANT_f32; });
    const int of_floats = floats ? (FLOATS + WARPS) * f->k * (int)sizeof(float) : 0;
    const auto smem_of = [&](int warps) {
        return std::max(columns_bytes(NT, f->pitch) + warps * std::max(bytes, beside), of_floats);
    };
    const auto blocks_of = [&](int sets) {
        int n = 0;

        for (int i = 0; i < jobs; i++)
            n += resident_blocks<TYPE, M>(f, f->job[i], sets);
        return n;
    };
    int best = 0, least = 0;

    for (int sets = (int)ceil_div(WARPS, segments); sets * segments <= RESIDENT_WARPS; sets++) {
        const int warps = sets * segments, all = smem_of(warps), busy = (int)ceil_div(blocks_of(sets), c->sms) * warps;
        const int room = 2 * warps <= RESIDENT_WARPS && 2 * all + RESIDENT_SMEM <= smem ? 2 * c->sms : c->sms;

        if (all <= smem && blocks_of(sets) <= room && (best == 0 || busy < least)) {
            best = sets;
            least = busy;
        }
    }
    if (best == 0)
        return false;
    std::rotate(f->job, f->job + f->n, f->job + jobs); /* who rehearses begins first */
    f->blocks = f->beside = 0;
    for (int i = 0; i < jobs; i++) {
        struct r2_16_job &j = f->job[i];
        const int64_t all = (int64_t)j.n_rows * j.row_bytes;

        j.first = f->blocks;
        f->blocks += resident_blocks<TYPE, M>(f, j, best);
        if (j.type == TYPE)
            make_box<TYPE, M * STRIP>(c, &f->box[i], j.w, j.row_bytes, all, j.n_rows);
        else if (j.type == BESIDE)
            make_box<BESIDE>(c, &f->box[i], j.w, j.row_bytes, all, j.n_rows);
    }
    if (!floats) /* blocks beyond have no rows, but bring columns */
        f->blocks = (int)round_up((size_t)f->blocks, 2 * (size_t)f->spans);
    f->tasks = f->blocks;
    f->paired = c->sm_90 && !floats && in_pairs(f);
    launch_clusters(c, "few_once", f->eight ? r2_16_resident<2, TYPE, M, true> : r2_16_resident<NT, TYPE, M>,
                    dim3(f->paired ? 2 : 1), dim3((unsigned)f->blocks), (unsigned)(best * segments) * 32,
                    (size_t)smem_of(best * segments), *f);
    return true;
}

template <int NT, int TYPE> static bool launch_r2_16_resident(struct cuda *c, struct r2_16_args *f)
{
    if (row_segments(f->k) > TURN)
        return false;
    for (int i = 0; i < f->n + f->n_beside; i++)
        if (f->job[i].row_bytes % 16 != 0 || (uintptr_t)f->job[i].w % 16 != 0)
            return false;
    return launch_strips<NT, TYPE, 1>(c, f) ||
           (MOST_STRIPS<TYPE> > 1 && launch_strips<NT, TYPE, MOST_STRIPS<TYPE>>(c, f));
}

bool cuda_r2_16_resident(struct cuda *c, struct r2_16_args *f, int nt, int type)
{
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        return nt == 1 ? launch_r2_16_resident<1, QUANT_##name>(c, f) : launch_r2_16_resident<2, QUANT_##name>(c, f);
        GEMM_COMMON(X)
#undef X
    default:
        return false;
    }
}
