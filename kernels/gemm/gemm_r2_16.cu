/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16.cu - GEMM for 2 to 16 tokens (int8 mma.sync): tasks in turns. Compiled for each GPU: on sm_90a TMA copies
 * go to all blocks of a cluster.
 *
 * A warp takes a strip of 16 rows of weights and a segment of two blocks of units (gemm_r2_16_warp.cuh). Weights come
 * through staged TMA copies (weights_smem.cuh), or straight from memory for larger formats and for rows that no tensor
 * map can describe. The warps of a block have a few strips, all segments of each; segments are added in order. If all
 * tiles fit on the GPU at once, gemm_r2_16_resident.cu runs instead; for large matrices gemm_r2_16_large.cu. Rows of
 * float weights take a warp each, two columns at a time. Small matrices of another format in the same launch get blocks
 * of their own. */
#include "kernels/gemm/gemm_r2_16_task.cuh"

enum { ITEMS = 2 * WARPS /* strips times segments of a task */ };
/* Of small matrices: rows of a warp at once, fewest rows and columns of a block, its memory at most. */
enum { BESIDE_AT_ONCE = 2, BESIDE_ROWS = 8, BESIDE_COLS = 8, BESIDE_SMEM = 84 << 10 };
enum { BESIDE_FLOATS = 2 * BESIDE_AT_ONCE * BUF_PITCH, BESIDE_BUF = WARPS * BESIDE_FLOATS * sizeof(float) };
enum { MOST_STAGE = 6 << 10, OTHER_SMEM = 24 << 10 };

/* Task number i of a launch. */
template <int NT> static __device__ __forceinline__ task find_task(const r2_16_args &f, int i)
{
    task t = {};

    while (t.job + 1 < f.n && i >= f.job[t.job + 1].first)
        t.job++;
    const r2_16_job &job = f.job[t.job];
    const bool floats = job.type == QUANT_f32;
    const int spans = floats ? (f.nx + FLOATS - 1) / FLOATS : f.spans, group = (i - job.first) / spans;
    t.span = i - job.first - group * spans;
    t.first = t.span * (floats ? (int)FLOATS : NT * GROUP);
    t.cols = min(f.nx - t.first, floats ? (int)FLOATS : NT * GROUP);
    t.r0 = floats ? group * WARPS : (group * f.strips + min(group, job.longer)) * STRIP;
    t.strips = floats ? 0 : min((job.n_rows - t.r0 + STRIP - 1) / STRIP, f.strips + (group < job.longer));
    return t;
}

/* A task's rows of weights, before it begins. */
static __device__ __forceinline__ void fetch_task(const r2_16_args &f, const task &t)
{
    const r2_16_job &job = f.job[t.job];
    const int rows = min(job.n_rows - t.r0, job.type == QUANT_f32 ? (int)WARPS : t.strips * STRIP);

    prefetch(job.w + (int64_t)t.r0 * job.row_bytes, rows * job.row_bytes, threadIdx.x, WARPS * 32);
}

/* A strip's segment; r0: the strip's first row. */
struct item {
    int job, r0, segment, units; /* segment: of the turn; units: from it on */
};

/* Whether a segment goes through shared memory. */
static __device__ __forceinline__ bool staged(const r2_16_args &f, const item &of)
{
    return f.staged && f.job[of.job].boxed;
}

static __device__ __forceinline__ item find_item(const r2_16_args &f, const task &t, int i, int round, int segments)
{
    const int strip = i / segments, segment = i - strip * segments;

    return { t.job, t.r0 + strip * STRIP, segment, f.k / 32 - (round + segment) * 16 };
}

/* Block 0 or 1 of a segment, `at` among all; one that does not exist is not looked at. */
template <int TYPE>
static __device__ __forceinline__ void load_item(strip<TYPE> &s, const r2_16_args &f, const item &of, int at, int block,
                                                 const uint8_t *stage)
{
    typedef frag<TYPE> F;
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x % 4;
    const r2_16_job &job = f.job[of.job];
    const uint8_t *r0 = boxed_row<TYPE>(stage, g, at), *r8 = r0 + 8 * stage_of<TYPE>::BOX;

    if (!staged(f, of)) {
        const uint8_t *w = job.w + (int64_t)of.r0 * job.row_bytes + at * (2 * F::BLOCK);

        r0 = w + min(g, job.n_rows - of.r0 - 1) * job.row_bytes;
        r8 = w + min(g + 8, job.n_rows - of.r0 - 1) * job.row_bytes;
    }
    if (of.units > block * 8) {
        F::template load<true>(s.r0, r0 + block * F::BLOCK, of.units - block * 8, c);
        F::template load<true>(s.r8, r8 + block * F::BLOCK, of.units - block * 8, c);
    }
}

/* The columns of a task's turn: there, whoever asked for them. */
static __device__ __forceinline__ void bring_columns(const r2_16_args &f, const task &t, int round, near &at)
{
    if (at.span != t.span || at.round != round) {
        if (threadIdx.x / 32 == 0)
            fetch_columns(f, t, round, at);
        at.span = t.span;
        at.round = round;
        at.phase ^= 1;
    }
    move_past_once(f, at);
    bar_wait(at.bar, at.phase);
}

/* What a warp's stage has when a task begins: nothing, or the warp's first item of it. */
struct ahead {
    item next;
    bool there;
};

/* A warp's items of a turn; the next one, or the first of the task `then`, comes to the stage while one's second block
 * is multiplied. The loop's first turn only asks for it: each instruction comes for the first time once. */
template <int TYPE, int NT, bool EIGHT>
static __device__ __forceinline__ void items_times(float (*to)[NT * GROUP * PITCH], const r2_16_args &f, const task &t,
                                                   const task &then, int round, int segments, float *scales, near &at,
                                                   ahead &a, bool &waited, const near_tables *tab)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, items = t.strips * segments;
    uint8_t *stage = at.stage + threadIdx.x / 32 * stage_of<TYPE>::SIZE;
    const bool go_on = row_segments(f.k) <= TURN && (int)(threadIdx.x / 32) < then.strips * segments;
    strip<TYPE> s[1] = {};
    columns<NT> col;

#pragma unroll 1
    for (int i = (int)(threadIdx.x / 32) - WARPS; i < items; i += WARPS) {
        const bool begun = i >= 0;
        const bool more = i + WARPS < items, fetch = begun ? more || go_on : more && !a.there;
        const item of = a.next;
        float S[1][NT][2] = {};

        if (begun && staged(f, of)) {
            bar_wait(at.full, at.turn);
            at.turn ^= 1;
        }
#pragma unroll 1
        for (int b = begun ? 0 : 1; b < 2; b++) {
            if (begun)
                load_item<TYPE>(s[0], f, of, round + of.segment, b, stage);
            if (b == 1 && fetch) {
                a.next = find_item(f, more ? t : then, more ? i + WARPS : (int)(threadIdx.x / 32), round, segments);
                proxy_fence(); /* what was just asked of the stage has come; else the next box can be there first */
                __syncwarp();
                if (staged(f, a.next) && one_of_warp())
                    bring_box<TYPE>(shared_at(stage), f.box + a.next.job, 0, a.next.r0, round + a.next.segment,
                                    shared_at(at.full));
                __syncwarp();
            }
            const uint8_t *x = at.x + of.segment * (8 * X_PAIR) + b * (4 * X_PAIR);
            if constexpr (EIGHT) {
                if (begun)
                    block_eight<TYPE, 1>(S, s, x, col, of.units - b * 8, scales, tab);
            } else if (begun) {
                block_times<TYPE, NT, 1>(S, s, x, col, of.units - b * 8, scales, tab);
            }
        }
        a.there = begun && fetch && !more;
        if (!begun) {
            wait_once(f, waited);
            find_columns<TYPE, NT, EIGHT>(col, t.cols, f.pitch);
            bring_columns(f, t, round, at);
            continue;
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                to[i][(EIGHT ? 2 * c + r : n * GROUP + c) * PITCH + g + (EIGHT ? n : r) * 8] = S[0][n][r];
    }
}

/* A result of a task: row of a column; !there: not one. */
struct place {
    int strip, at, column, row;
    bool there;
};

template <int NT> static __device__ __forceinline__ place find_place(const r2_16_args &f, const task &t, int i)
{
    const int strip = i / (NT * GROUP * STRIP), column = i / STRIP % (NT * GROUP), row = i % STRIP;
    const int r = t.r0 + strip * STRIP + row;

    return { strip, column * PITCH + row, t.first + column, r,
             strip < t.strips && column < t.cols && r < f.job[t.job].n_rows };
}

/* Sums of a task's strips over the segments of a turn, when all warps have them; the last turn's are results. Strips of
 * several turns are so few that a thread has one sum of them. What a result is added to is read ahead. */
template <int NT>
static __device__ __forceinline__ void add_segments(const r2_16_args &f, const task &t,
                                                    float (*sums)[NT * GROUP * PITCH], int segments, bool last,
                                                    float &total)
{
    enum { THREADS = WARPS * 32 };
    const r2_16_job &job = f.job[t.job];
    const int n = t.strips * NT * GROUP * STRIP;
    place next = {};
    float then = 0.0f;

#pragma unroll 1
    for (int i = (int)threadIdx.x - THREADS; i < n; i += THREADS) {
        const place p = next;
        const float res = then;

        if (i + THREADS < n) {
            next = find_place<NT>(f, t, i + THREADS);
            then = last && next.there ? residual(f, job, next.column, next.row) : 0.0f;
        }
        if (i < 0) {
            __syncthreads();
            continue;
        }
        const bool own = i == (int)threadIdx.x;
        float v = own ? total : 0.0f;
#pragma unroll 1
        for (int q = 0; q < segments; q++)
            v = __fadd_rn(v, sums[p.strip * segments + q][p.at]);
        if (own)
            total = v;
        if (last && p.there)
            put_result(f, job, p.column, p.row, v, res);
    }
}

/* Task t by the block; `then` follows, if it has strips. */
template <int TYPE, int NT, bool EIGHT>
static __device__ __forceinline__ void strips_times(const r2_16_args &f, const task &t, const task &then, near &at,
                                                    ahead &a, bool &waited, const near_tables *tab)
{
    __shared__ float sums[ITEMS][NT * GROUP * PITCH];
    __shared__ __align__(16) float scales[WARPS][STRIP * scales_of<TYPE>::APART];
    const int segments = row_segments(f.k);
    float total = 0.0f;

#pragma unroll 1
    for (int round = 0; round < segments; round += TURN) {
        const int here = min(segments - round, (int)TURN);

        items_times<TYPE, NT, EIGHT>(sums, f, t, then, round, here, scales[threadIdx.x / 32], at, a, waited, tab);
        add_segments<NT>(f, t, sums, here, round + TURN >= segments, total);
        __syncthreads();
    }
}

enum { AHEAD = 16 };

/* N of a lane's elements, every 32nd, from number i of n on. */
static __device__ __forceinline__ void load_floats(float v[AHEAD], const float *from, int i, int n)
{
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        v[j] = i + j < n ? from[(i + j) * 32] : 0.0f;
}

/* Rows of floats, one a warp, in the order of plain_times. */
static __device__ __forceinline__ void floats_times(const r2_16_args &f, const task &t, near &at, bool &waited)
{
    const r2_16_job &job = f.job[t.job];
    const int row = t.r0 + (int)threadIdx.x / 32, lane = threadIdx.x & 31, n = f.k / 32;
    const float *w = (const float *)(job.w + (int64_t)min(row, job.n_rows - 1) * job.row_bytes) + lane;
    const float *x = (const float *)at.x + lane;
    float then[AHEAD], sum[FLOATS] = {};

    load_floats(then, w, 0, n);
    wait_once(f, waited);
    if (threadIdx.x / 32 == 0)
        fetch_floats(f, t, at);
    at.phase ^= 1;
    at.span = -1;
    bar_wait(at.bar, at.phase);
#pragma unroll 1
    for (int i = 0; i < n; i += AHEAD) {
        float now[AHEAD];

#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            now[j] = then[j];
        load_floats(then, w, i + AHEAD, n);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int q = 0; q < FLOATS; q++)
                if (i + j < n)
                    sum[q] = __fmaf_rn(now[j], x[min(q, t.cols - 1) * f.k + (i + j) * 32], sum[q]);
    }
#pragma unroll
    for (int q = 0; q < FLOATS; q++) {
        sum[q] = fold32(sum[q]);
        if (lane == q && q < t.cols && row < job.n_rows)
            put_result(f, job, t.first + q, row, sum[q], residual(f, job, t.first + q, row));
    }
    __syncthreads(); /* the columns may go */
}

/* Block i of those beside; bar: two barriers of the block's own. Everything is brought: pieces of their odd sizes, read
 * where they are, are requests of their own. A first pass, of columns that are not there, only brings the
 * instructions. */
template <bool EIGHT>
static __device__ __forceinline__ void beside_times(const r2_16_args &f, int i, uint8_t *space, uint64_t *bar)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, each = warp_rows(f.k, BESIDE_AT_ONCE);
    const int x_bytes = (int)x_row_bytes(f.k), spans = (f.nx + BESIDE_COLS - 1) / BESIDE_COLS;
    int j = f.n;

    while (j + 1 < f.n + f.n_beside && i >= f.job[j + 1].first)
        j++;
    const r2_16_job &job = f.job[j];
    const int group = (i - job.first) / spans, r0 = group * f.beside_rows, rows = min(job.n_rows - r0, f.beside_rows);
    const int first = (i - job.first - group * spans) * BESIDE_COLS, cols = min(f.nx - first, (int)BESIDE_COLS);
    uint8_t *w = space + BESIDE_BUF, *x = w + f.beside_rows * job.row_bytes;
    if (threadIdx.x == 0) {
        bar_init(bar, 1);
        bar_init(bar + 1, 1);
        bar_init_done();
        bulk_copy(w, job.w + (int64_t)r0 * job.row_bytes, (unsigned)(rows * job.row_bytes), bar);
    }
    __syncthreads();
    bar_wait(bar, 0);
#pragma unroll 1
    for (int pass = 0, at = warp; pass < 2 || at<(rows + each - 1) / each * cols; at += pass++> 0 ? (int)WARPS : 0) {
        const int column = at % cols;
        const uint8_t *own = x + column * x_bytes;

        if (pass == 1) {
            __syncthreads(); /* all warps come here: nobody reads any more where the columns go */
            only_wait_for_inputs();
            if (warp == 0) {
                if (lane == 0)
                    bar_expect(bar + 1, (unsigned)(cols * x_bytes));
                __syncwarp();
                if (lane < cols)
                    bulk_go(x + lane * x_bytes, f.x + (int64_t)(first + lane) * x_bytes, (unsigned)x_bytes, bar + 1);
            }
            bar_wait(bar + 1, 0);
        }
        rows_times<BESIDE, 1, BESIDE_AT_ONCE>(w, job.row_bytes, at / cols * each, rows, f.k, &own, 1, EIGHT, f.tab,
                                              (float *)space + warp * BESIDE_FLOATS, [&](int row, int, float v) {
                                                  if (pass > 0)
                                                      put_result(f, job, first + column, r0 + row, v,
                                                                 residual(f, job, first + column, r0 + row));
                                              });
    }
}

/* TYPE: the one format of the jobs that have blocks of their own; f32: there are none but floats. A kernel has a single
 * format because its code beyond the first 64 KiB is fetched late, at 10 cycles an instruction. EIGHT: columns are
 * rounded to 8 bits, and NT is 2. */
template <int NT, int TYPE, bool EIGHT = false>
__global__ void __launch_bounds__(WARPS * 32, 2) r2_16_times(const __grid_constant__ r2_16_args f)
{
    extern __shared__ __align__(BOX_ALIGN) uint8_t x[];
    __shared__ uint64_t bar, full[WARPS];
    __shared__ near_tables tables;
    const int block = find_block(f);
    near at = { x, x + columns_bytes(NT, f.pitch), &bar, full + threadIdx.x / 32, 1, -1, 0, 0, false };
    ahead a = {};
    bool waited = false;

    let_next_begin();
    if constexpr (TYPE != QUANT_f32 && TYPE != BESIDE)
        if (block < 0) { /* the first ones: they take longest */
            beside_times<EIGHT>(f, blockIdx.x, x, full);
            return;
        }
    begin_block<TYPE>(f, at, tables);
    task next = {};
#pragma unroll 1
    for (int i = block - f.blocks; i < f.tasks; i += f.blocks) {
        const task t = next;

        next.strips = 0;
        if (i + f.blocks < f.tasks) {
            next = find_task<NT>(f, i + f.blocks);
            fetch_task(f, next);
        }
        if (i < 0)
            continue;
        if (f.job[t.job].type == QUANT_f32)
            floats_times(f, t, at, waited);
        else if constexpr (TYPE != QUANT_f32)
            strips_times<TYPE, NT, EIGHT>(f, t, next, at, a, waited, &tables);
    }
    wait_once(f, waited);
    move_past_once(f, at);
}

/* Gives each job its tasks; how many there are. Where there are more than `room`, tasks take a strip more if their
 * warps have the time anyway: those fewer may be ones that would not find room in the turn. */
static int cut_jobs(struct r2_16_args *f, int strips, int room)
{
    const int segments = row_segments(f->k) < TURN ? row_segments(f->k) : (int)TURN;
    const bool more = ceil_div((strips + 1) * segments, WARPS) == ceil_div(strips * segments, WARPS);
    int tasks = 0;

    f->strips = strips;
    for (int i = 0; i < f->n; i++)
        tasks += (int)(f->job[i].type == QUANT_f32 ? ceil_div(f->job[i].n_rows, WARPS) * ceil_div(f->nx, FLOATS)
                                                   : ceil_div(ceil_div(f->job[i].n_rows, STRIP), strips) * f->spans);
    int over = more && tasks > room ? (int)ceil_div(tasks - room, f->spans) : 0;
    tasks = 0;
    for (int i = 0; i < f->n; i++) {
        struct r2_16_job *j = &f->job[i];
        const int64_t all = ceil_div(j->n_rows, STRIP), least = ceil_div(all, strips + 1);
        int64_t groups = ceil_div(all, strips);

        j->first = tasks;
        j->longer = 0;
        if (j->type == QUANT_f32) {
            tasks += (int)(ceil_div(j->n_rows, WARPS) * ceil_div(f->nx, FLOATS));
            continue;
        }
        const int64_t fewer = groups - least < over ? groups - least : over;
        groups -= fewer;
        over -= (int)fewer;
        j->longer = all > groups * strips ? (int)(all - groups * strips) : 0;
        tasks += (int)groups * f->spans;
    }
    return tasks;
}

/* Shared memory of a block of those beside: a warp's sums, rows of weights, columns. */
static int beside_bytes(const r2_16_args &f, int rows, int row_bytes)
{
    return BESIDE_BUF + rows * row_bytes + min(f.nx, (int)BESIDE_COLS) * (int)x_row_bytes(f.k);
}

/* Whether blocks of the jobs beside, of `rows` rows each, find room. */
static bool beside_fits_in(struct cuda *c, const struct r2_16_args *f, int rows, int row_bytes)
{
    const int most = cuda_attn_smem(c) - OTHER_SMEM;

    return beside_bytes(*f, rows, row_bytes) <= (most < BESIDE_SMEM ? most : BESIDE_SMEM);
}

/* Gives those beside blocks, no more than there is room for if more rows a block do; how many there are. */
static int cut_beside(struct cuda *c, struct r2_16_args *f, int room)
{
    const int each = warp_rows(f->k, BESIDE_AT_ONCE);

    if (f->n_beside == 0)
        return 0;
    for (f->beside_rows = BESIDE_ROWS;; f->beside_rows += each) {
        int blocks = 0;

        for (int i = f->n; i < f->n + f->n_beside; i++) {
            f->job[i].first = blocks;
            blocks += (int)(ceil_div(f->job[i].n_rows, f->beside_rows) * ceil_div(f->nx, BESIDE_COLS));
        }
        if (blocks <= room || !beside_fits_in(c, f, f->beside_rows + each, f->job[f->n].row_bytes))
            return blocks;
    }
}

/* Shared memory that a task of type f32, or a block beside such tasks, takes. */
static size_t other_bytes(const struct r2_16_args *f)
{
    const size_t floats = f->floats != NULL ? (size_t)FLOATS * (size_t)f->k * sizeof(float) : 0;
    const size_t beside = f->n_beside > 0 ? (size_t)beside_bytes(*f, f->beside_rows, f->job[f->n].row_bytes) : 0;

    return floats > beside ? floats : beside;
}

/* Of larger formats, or where a block has no more, there is no room for stages. */
template <int NT, int TYPE> static void launch_of(struct cuda *c, struct r2_16_args *f, dim3 grid)
{
    const size_t columns = (size_t)columns_bytes(NT, f->pitch), stages = WARPS * (size_t)stage_of<TYPE>::SIZE;

    f->staged = stages <= WARPS * MOST_STAGE && columns + stages + OTHER_SMEM <= (size_t)cuda_attn_smem(c);
    for (int i = 0; f->staged && i < f->n; i++) {
        struct r2_16_job &j = f->job[i];

        j.boxed = j.type == TYPE && j.row_bytes % 16 == 0 && (uintptr_t)j.w % 16 == 0;
        if (j.boxed)
            make_box<TYPE>(c, &f->box[i], j.w, j.row_bytes, (int64_t)j.n_rows * j.row_bytes, j.n_rows);
    }
    const size_t all = columns + (f->staged ? stages : 0), other = other_bytes(f);
    launch_clusters(c, "few_rows", f->eight ? r2_16_times<2, TYPE, true> : r2_16_times<NT, TYPE>,
                    dim3(f->paired ? 2 : 1), grid, WARPS * 32, all > other ? all : other, *f);
}

template <int NT> static void launch_r2_16(struct cuda *c, struct r2_16_args *f, int type, dim3 grid)
{
    switch (type) {
    case QUANT_f32:
        launch_early(c, "few_rows", r2_16_times<NT, QUANT_f32>, grid, WARPS * 32, other_bytes(f), *f);
        break;
#define X(name) \
    case QUANT_##name: \
        launch_of<NT, QUANT_##name>(c, f, grid); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
}

/* Launches jobs of one format, with small ones in other formats and floats beside them: by gemm_r2_16_large or
 * gemm_r2_16_resident if they take these shapes, else by this kernel. If the blocks that run together cannot hold all
 * strips, a block takes up to twice as many; if they have more room than that, it takes half of the columns. */
static void one_format(struct cuda *c, struct r2_16_args *f, int type)
{
    const int turn = 2 * c->sms, segments = row_segments(f->k) < TURN ? row_segments(f->k) : (int)TURN;
    int nt = type != QUANT_f32 && (f->nx > GROUP || f->eight) ? 2 : 1;

    f->tab = c->tab;
    f->pitch = column_pitch(x_pairs(f->k) < TURN * 8 ? x_pairs(f->k) : (int)TURN * 8);
    f->spans = (int)ceil_div(f->nx, GROUP);
    if (nt == 2 && (f->eight || f->n_beside > 0 || cut_jobs(f, WARPS / segments, turn) > turn))
        f->spans = (int)ceil_div(f->nx, 2 * GROUP);
    else
        nt = 1;
    if (cuda_may(c, GEMM_R2_16_LARGE) && cuda_r2_16_large(c, f, nt, type)) {
        cuda_used(c, GEMM_R2_16_LARGE);
        return;
    }
    if (cuda_may(c, GEMM_R2_16_RESIDENT) && cuda_r2_16_resident(c, f, nt, type)) {
        cuda_used(c, GEMM_R2_16_RESIDENT);
        return;
    }
    cuda_used(c, GEMM_R2_16);
    const int most = row_segments(f->k) <= TURN ? ITEMS / segments : WARPS / segments;
    for (int strips = WARPS / segments;; strips++) {
        const int small = cut_beside(c, f, turn);

        f->tasks = cut_jobs(f, strips, turn - f->held - small);
        f->beside = cut_beside(c, f, turn - (f->tasks + small <= turn - f->held ? f->held : 0) - f->tasks);
        if (f->tasks + f->beside <= turn || strips >= most)
            break;
    }
    f->blocks = f->tasks < turn - f->beside ? f->tasks : turn - f->beside;
    if (f->blocks < f->tasks && f->blocks > f->spans) /* a block keeps its columns */
        f->blocks -= f->blocks % f->spans;
    f->paired = c->sm_90 && type != QUANT_f32 && in_pairs(f);
    const dim3 grid((unsigned)(f->blocks + f->beside));
    if (nt == 1)
        launch_r2_16<1>(c, f, type, grid);
    else
        launch_r2_16<2>(c, f, type, grid);
}

/* Whether what is of the format BESIDE can be brought. */
static bool r2_16_beside(struct cuda *c, struct r2_16_args *f, const struct r2_16_job *job, int n)
{
    for (int i = 0; i < n; i++)
        if (job[i].type == BESIDE && (job[i].row_bytes % 16 != 0 || (uintptr_t)job[i].w % 16 != 0 ||
                                      !beside_fits_in(c, f, BESIDE_ROWS, job[i].row_bytes)))
            return false;
    return true;
}

void cuda_r2_16_matvec(struct cuda *c, struct r2_16_args *f, const struct mv_args *a, float *res)
{
    struct r2_16_job left[JOBS];
    int n = a->n;

    for (int i = 0; i < n; i++) {
        const struct mv_job &j = a->job[i];

        left[i] =
            (struct r2_16_job){ j.w, j.y, i == 0 ? res : NULL, j.y_stride, false, (int)j.row_bytes, j.n_rows, j.type,
                                0,   0 };
    }
    f->k = a->k;
    f->nx = a->nx;
    f->x = a->x;
    f->eight = a->eight;
    const bool along = beside_fits(a) && r2_16_beside(c, f, left, n);
    while (n > 0) {
        int type = QUANT_f32, more = 0, beside = 0;
        struct r2_16_job small[JOBS];

        for (int i = 0; i < n && (type == QUANT_f32 || (along && type == BESIDE)); i++)
            type = left[i].type != QUANT_f32 ? left[i].type : type;
        f->n = 0;
        for (int i = 0; i < n; i++)
            (left[i].type == type || left[i].type == QUANT_f32 ? f->job[f->n++]
             : along && left[i].type == BESIDE                 ? small[beside++]
                                                               : left[more++]) = left[i];
        memcpy(f->job + f->n, small, (size_t)beside * sizeof *small);
        f->n_beside = beside;
        n = more;
        one_format(c, f, type);
        f->past.channels = 0; /* it moves once */
        f->held = 0;
    }
}
