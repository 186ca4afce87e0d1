/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_r1_fused.cu - GEMV for one token, fused: gate or activation function, quantisation, product and residual in one
 * kernel. An RMS norm runs in a kernel before it. */
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/gemm/gemv_r1_fused.cuh"
#include "kernels/moe/gemv_pair.cuh"

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
    const where at = find_rows(f, c, blockIdx.x);
    const no_added none;
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
        strips_once<BESIDE, MODE, EIGHT>(f, c, at, s, none);
    } else if constexpr (ONCE) {
        strips_once<TYPE, MODE, EIGHT>(f, c, at, s, none);
    } else {
        prefetch(at.w, min(at.here, 4 * STRIP) * (int)at.row_bytes, threadIdx.x, blockDim.x);
        strips_times<TYPE, MODE, EIGHT>(f, c, at, s, none);
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
    int *handed; /* a norm's row sets it to 0: r1_large() */
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
    (f->a.eight ? launch_matvec<MODE, true> : launch_matvec<MODE, false>)(c, f, a, type, grid, threads, smem);
}

enum { TURNS_LEAST = 8, MOST_STAGES = 8, LARGE_SMEM = 4 << 10 /* beside what is counted */ };

/* One large matrix, such as the output head. It is bound by how many bytes are under way, so bulk copies fill a ring of
 * n_stages in shared memory for each warp, at most a row's segments. Warps wait for no other. handed counts strips that
 * were given to whoever asked, after two of each warp: even shares would end when the slowest multiprocessor does. */
template <int TYPE, bool EIGHT>
__global__ void __launch_bounds__(WARPS * 32, 1)
    r1_large(const __grid_constant__ CUtensorMap box, const __grid_constant__ mv_args a, int n_stages, int *handed)
{
    typedef stage_of<TYPE> S;
    extern __shared__ __align__(BOX_ALIGN) uint8_t large[]; /* the activations; of each warp values and stages */
    __shared__ uint64_t bar, full[WARPS][MOST_STAGES];
    __shared__ near_tables tables;
    const mv_job &job = a.job[0];
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, all = (int)(gridDim.x * blockDim.x / 32);
    const int segments = row_segments(a.k), strips = (job.n_rows + STRIP - 1) / STRIP, scales = find_scales(a.k);
    uint8_t *own = large + rows_room(1, a.k) + warp * (V_BYTES + n_stages * S::SIZE);
    room r = { large, own + V_BYTES, NULL, (float *)own, &bar, 0 };
    const lane_own<TYPE> o = find_own<TYPE, EIGHT>(r.x, r.v);
    const lane_rows rows = find_lane_rows<TYPE>((int)job.row_bytes);
    const uint32_t stages = found_at(r.stage), bars = found_at(full[warp]);
    const auto ask = [&](int stage, int strip, int segment) {
        if (strip < strips)
            bring_stage<TYPE>(stages + stage * S::SIZE, rows.how, &box, job.w, 0, rows.row_bytes, 0, strip * STRIP,
                              segment, bars + stage * 8);
    };
    int strip = warp * (int)gridDim.x + (int)blockIdx.x, after = strip + all, stage = 0, phase = 0;
    let_next_begin();
    bring_tables<TYPE>(tables, a.tab);
    if (lane < n_stages)
        bar_init(full[warp] + lane, 1);
    if (threadIdx.x == 0)
        bar_init(&bar, 1);
    bar_init_done();
    __syncthreads();
    for (int i = 0; i < n_stages; i++)
        ask(i, strip, i);
    only_wait_for_inputs();
    if (warp == 0)
        fetch_row(r, a.x, a.k);
    row_there(r);
    while (strip < strips) {
        const int taken = lane == 0 ? atomicAdd(handed, 1) : 0, row = strip * STRIP + lane;
        float sum = 0.0f;
#pragma unroll 1
        for (int q = 0, ahead = n_stages; q < segments; q++, ahead++) {
            bar_wait(bars + stage * 8, phase);
            sum = __fadd_rn(
                sum, segment_times<TYPE, EIGHT, false>(r.stage + stage * S::SIZE, rows, q, o, a.k, scales, r, &tables));
            proxy_fence(); /* what was just read is written over by a copy */
            __syncwarp();
            ask(stage, ahead < segments ? strip : after, ahead < segments ? ahead : ahead - segments);
            stage = stage + 1 < n_stages ? stage + 1 : 0;
            phase ^= stage == 0;
        }
        if (lane < STRIP && row < job.n_rows)
            job.y[row] = sum;
        strip = after;
        after = 2 * all + __shfl_sync(0xffffffffu, taken, 0);
    }
}

template <int TYPE> static bool launch_r1_large(struct cuda *c, const mv_args &a)
{
    typedef stage_of<TYPE> S;
    const mv_job &j = a.job[0];
    const int how = rows_come(S::BYTES, j.row_bytes), most = min(row_segments(a.k), (int)MOST_STAGES);
    const int row = rows_room(1, a.k), smem = cuda_attn_smem(c) - LARGE_SMEM - row;
    const int warps = smem < WARPS * (V_BYTES + 2 * (int)S::SIZE) ? WARPS / 2 : (int)WARPS;
    const int stages = min((smem / warps - V_BYTES) / (int)S::SIZE, most);
    CUtensorMap box = {};
    if (how == ROWS_WHOLE || (how == ROWS_LOOSE && j.n_rows % STRIP != 0) || (uintptr_t)j.w % 16 != 0 || stages < 2)
        return false; /* not such a shape */
    if (how == ROWS_BOXED)
        make_box<TYPE>(c, &box, j.w, j.row_bytes, (int64_t)j.n_rows * j.row_bytes, j.n_rows);
    launch_early(c, "r1_large", a.eight ? r1_large<TYPE, true> : r1_large<TYPE, false>, dim3((unsigned)c->sms),
                 (unsigned)warps * 32, (size_t)(row + warps * (V_BYTES + stages * S::SIZE)), box, a, stages, c->handed);
    return true;
}

static bool matvec_large(struct cuda *c, const struct mv_args &a)
{
#define X(name) (a.job[0].type == QUANT_##name && launch_r1_large<QUANT_##name>(c, a)) ||
    return GEMM_COMMON(X) false;
#undef X
}

/* What adapters add to the jobs of this launch, with blocks of `threads` threads; false: nothing. */
static bool find_added(struct cuda *c, struct added_args *a, const struct fused_args *f, const struct fused_added *from,
                       int threads)
{
    const int share = added_share(f->mode);

    *a = {};
    a->ranks = threads / (32 * share);
    a->each = (int)ceil_div(ADDED_RANKS, a->ranks);
    for (int i = 0; i < f->a.n; i++)
        for (int k = 0; from != NULL && k < from->n; k++) {
            const struct node *v = from->v[k];
            const struct adapt_part part = cuda_adapt_part(v, 0);

            if (v->t[0].data != (void *)f->a.job[i].y)
                continue;
            a->job[i] = { part.pair, part.n_out, part.mat, c->added + (size_t)c->n_added++ * ADDED_RANKS, part.first };
            a->list = (const struct adapt_term *)v->p[3];
            a->x = (const float *)v->t[1].data;
            a->n_in = (int)v->t[1].ne[0];
            a->makers += a->each;
        }
    return a->makers > 0;
}

bool cuda_adds_here(const struct cuda *c, const struct node *v, enum input mode, int type)
{
    return v->op == DEV_OP_adapt && v->i[0] == 1 && v->i[2] <= ADDED_RANKS && v->t[0].ne[1] == 1 && v->p[1] == NULL &&
           v->t[1].ne[0] <= added_width(added_share(mode)) && v->t[1].ne[0] % 32 == 0 &&
           (uintptr_t)v->t[1].data % 16 == 0 && cuda_is_common(type) && c->n_added + JOBS <= MOST_ADDED;
}

void cuda_added_begin(struct cuda *c)
{
    c->n_added = 0;
    cuda_fail(c, cudaMemsetAsync(c->added, 0xff, MOST_ADDED * ADDED_RANKS * sizeof *c->added, c->stream), "added");
    c->sent = true; /* the next launch waits for it */
}

void cuda_added_open(struct cuda *c)
{
    static_assert(ADDED_EMPTY == 0xffffffffu, "bytes of 0xff");
    cuda_fail(c, cudaMalloc((void **)&c->added, MOST_ADDED * ADDED_RANKS * sizeof *c->added), "added");
}

/* Jobs of one format, those beside it, and floats; begun: not the first launch after a norm's. */
static void one_format(struct cuda *c, struct fused_args *f, int type, bool begun, const struct fused_added *from)
{
    const bool norm = f->mode == IN_NORM || f->mode == IN_READY, ready = f->mode == IN_ROUNDED || f->mode == IN_READY;
    struct cut a = {};
    struct added_args add;
    int threads = norm ? THREADS : MOST_THREADS, rows = 0;
    const bool added = find_added(c, &add, f, from, threads);

    for (int i = 0; i < f->a.n; i++) {
        a.floats |= f->a.job[i].type == QUANT_f32;
        rows = f->a.job[i].type == type && f->a.job[i].n_rows > rows ? f->a.job[i].n_rows : rows;
    }
    /* one turn: as many strips a block as it takes for all blocks to be there at once */
    a.type = type;
    a.strips = 1;
    a.segments = row_segments(f->a.k);
    a.blocks = cut_jobs(&f->a, type, a.strips);
    while (a.blocks > c->sms * (norm ? 2 : 1) - add.makers && a.strips * STRIP < rows)
        a.blocks = cut_jobs(&f->a, type, ++a.strips);
    if (!added && (a.strips * a.segments * 64 <= THREADS || a.floats))
        threads = THREADS;
    cut_warps(&a, threads / 32);
    a.dx_at = x_pairs(f->a.k) * X_PAIR;
    a.floats &= !ready;
    if (f->mode == IN_READY && !added && f->a.n == 1 && !begun && a.strips >= TURNS_LEAST * a.each * a.sets &&
        f->res == NULL && matvec_large(c, f->a))
        return;
    if (!ready)
        a.x_bytes = (int)x_row_bytes(f->a.k);
    const size_t smem = a.x_bytes + (a.floats ? f->a.k * sizeof(float) : 0) +
                        (size_t)a.each * a.sets * a.segments * V_SEGMENT * sizeof(float);
    const dim3 blocks((unsigned)(add.makers + a.blocks + (f->mode == IN_NORM) + ceil_div(f->past.channels, threads)));
    if (added) {
        const bool once = a.step == 2 * a.segments && a.strips <= (f->mode == IN_READY ? a.each * a.sets : 1);

        cuda_launch_added(c, f, a, add, type, once, blocks, threads, smem);
        return;
    }
    const auto launch = f->mode == IN_NORM      ? launch_either<IN_NORM>
                        : f->mode == IN_READY   ? launch_either<IN_READY>
                        : f->mode == IN_ROUNDED ? launch_either<IN_ROUNDED>
                                                : launch_either<IN_PLAIN>;
    launch(c, f, a, type, blocks, threads, smem);
}

/* Threads that share a row's sum are at most 16, a segment each; only rows that come rounded are longer. */
enum { MOST_SEGMENTS = GEMM_FUSED_LONGEST / 512 };

/* A launch for each format: of a kernel's code what lies beyond the first 64 KiB comes late, 10 cycles an
 * instruction. */
void cuda_fused_matvec(struct cuda *c, struct fused_args *f, const struct fused_added *added)
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
        one_format(c, f, type, begun, added);
    }
}
