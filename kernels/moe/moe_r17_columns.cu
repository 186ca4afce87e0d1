/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17_columns.cu - products with experts for 17 and more tokens, while an expert has few uses (int8 mma.sync).
 *
 * A chunk is an expert and up to 4, 8 or 16 of its uses, the columns. A task is some strips of 16 rows of its matrix,
 * with all their segments; a warp multiplies a segment of a strip with all columns (gemm/gemm_r2_16_warp.cuh), so that
 * its weights are read and unpacked once for them. Blocks have equal shares of all tasks, in order: one keeps the
 * columns as long as the chunk is the same. Sums of segments are added in order (gemm/sums.cuh). */
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/gemm_r2_16_warp.cuh"
#include "kernels/moe/moe_r17_columns.cuh"

enum { SOME = 2, MANY = 4 /* times GROUP columns */, UNIT = 2 * STRIP, KEPT = 64 /* chunks of a block */ };

/* Warps of a block: those with many columns share them, as a multiprocessor has room for them once. */
template <int NT> struct block_of {
    enum { WARPS = NT > SOME ? 16 : 8, PER_SM = 16 / WARPS };
};

/* A width as a type. */
template <int WIDTH> struct width_of {
    static constexpr int N = WIDTH;
};

/* f(width_of<N>()) for n columns, of at most NT times GROUP; of EIGHT bits they are always 8. */
template <int NT, bool EIGHT, class F> static __device__ __forceinline__ void with_width(int n, F f)
{
    if constexpr (EIGHT) {
        f(width_of<SOME>());
    } else {
        if (n <= GROUP)
            f(width_of<1>());
        else if (NT == SOME || n <= SOME * GROUP)
            f(width_of<SOME>());
        else
            f(width_of<NT>());
    }
}

/* Sums of a segment of a strip, whose rows g and g + 8 lie at r0 and r8, with N times GROUP columns; ask() brings what
 * comes there next. x: the columns' segment, of which `units` units exist. */
template <int TYPE, int N, bool EIGHT, int NT, class ASK>
static __device__ __forceinline__ void segment_columns(float S[1][N][2], const uint8_t *r0, const uint8_t *r8,
                                                       int units, const uint8_t *x, const columns<NT> &all,
                                                       float *scales, const near_tables *tab, ASK ask)
{
    typedef frag<TYPE> F;
    const int c = threadIdx.x % 4;
    strip<TYPE> s[1] = {};
    columns<N> col;

#pragma unroll
    for (int j = 0; j < N; j++) {
        col.bytes[j] = all.bytes[j];
        col.sums[j] = all.sums[j];
    }
#pragma unroll 1
    for (int b = 0; b < 2; b++) {
        if (units > b * 8) {
            F::template load<true>(s[0].r0, r0 + b * F::BLOCK, units - b * 8, c);
            F::template load<true>(s[0].r8, r8 + b * F::BLOCK, units - b * 8, c);
        }
        if (b == 1) {
            proxy_fence(); /* what was just asked of the stage has come */
            __syncwarp();
            ask();
        }
        if constexpr (EIGHT)
            block_eight<TYPE, 1>(S, s, x + b * (4 * X_PAIR), col, units - b * 8, scales, tab);
        else
            block_times<TYPE, N, 1>(S, s, x + b * (4 * X_PAIR), col, units - b * 8, scales, tab);
    }
}

/* Where sum r of group j lies among those of a segment: column and row. */
template <bool EIGHT> static __device__ __forceinline__ int column_of(int j, int r)
{
    const int c = threadIdx.x % 4;

    return EIGHT ? 2 * c + r : j * GROUP + c;
}
template <bool EIGHT> static __device__ __forceinline__ int row_of(int j, int r)
{
    return (int)(threadIdx.x & 31) / 4 + (EIGHT ? j : r) * 8;
}

template <int N, bool EIGHT> static __device__ __forceinline__ void put_sums(float *to, const float S[1][N][2])
{
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            to[column_of<EIGHT>(j, r) * PITCH + row_of<EIGHT>(j, r)] = S[0][j][r];
}

/* A result: its strip's segments, added; part: floats of a segment. */
static __device__ __forceinline__ float sum_segments(const float *parts, int strip, int segments, int part, int at)
{
    float v = 0.0f;

    parts += strip * segments * part + at;
#pragma unroll 1
    for (int q = 0; q < segments; q++, parts += part)
        v = __fadd_rn(v, *parts);
    return v;
}

/* Shared memory of a block at most, beside what such a kernel always takes. */
static inline size_t columns_smem(struct cuda *c, int columns)
{
    enum { OTHER = 3584 };
    const size_t scales = (columns > SOME * GROUP ? 16 : 8) * STRIP * 20 * sizeof(float);

    return (size_t)cuda_attn_smem(c) - scales - OTHER;
}
/* The same where a multiprocessor is to have two blocks. */
static inline size_t half_smem(struct cuda *c, int columns)
{
    const size_t all = (size_t)cuda_attn_smem(c);

    return all / 2 - (all - columns_smem(c, columns));
}

struct columns_args {
    CUtensorMap box[2]; /* of t.job, where rows come so */
    struct tile_args t;
    int segments, strips, tasks; /* of a row; of a task, those of gate and up together; of a chunk */
    int columns, pitch;          /* of a chunk at most; bytes of one */
    int buffers;                 /* for sums of a task: with two, warps do not wait for others' results */
    bool early;                  /* the chunks are there before the launch before this one has ended */
};

/* The chunk's columns, and which uses they are, by a warp. */
static __device__ __forceinline__ void fetch_uses(const columns_args &a, const expert_chunk &c, uint8_t *x, int *number,
                                                  uint64_t *bar)
{
    const int lane = threadIdx.x & 31, use = lane < c.n ? a.t.list[c.first + lane] : 0;
    const unsigned bytes = (unsigned)(x_pairs(a.t.k) * X_PAIR);

    if (lane < c.n)
        number[lane] = use;
    __syncwarp();
    if (lane == 0)
        bar_expect(bar, (unsigned)c.n * bytes);
    __syncwarp();
    if (lane < c.n)
        bulk_go(x + column_at(lane, a.pitch), a.t.x + (int64_t)(use / a.t.div) * a.t.x_bytes, bytes, bar);
    __syncwarp();
}

/* Outputs of a task, number `within` of the chunk's, from its sums. */
template <int WARPS>
static __device__ __forceinline__ void finish_task(const columns_args &a, const float *parts, int part, int within,
                                                   const int *number, int n)
{
    const tile_args &t = a.t;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n_rows = t.job[0].n_rows;

    if (t.out == TILE_FLOATS) {
#pragma unroll 1
        for (int i = threadIdx.x; i < n * a.strips * STRIP; i += WARPS * 32) {
            const int column = i / (a.strips * STRIP), row = i - column * (a.strips * STRIP);

            t.job[0].y[number[column] * t.job[0].y_stride + within * a.strips * STRIP + row] =
                sum_segments(parts, row / STRIP, a.segments, part, column * PITCH + row % STRIP);
        }
        return;
    }
    const bool gated = t.n > 1;
    const int sides = 1 + gated, each = a.strips / (2 * sides);
#pragma unroll 1
    for (int i = warp; i < n * each; i += WARPS) {
        const int column = i / each, own = i - column * each, unit = within * each + own;
        const int strip = own * 2 * sides + lane / STRIP, at = column * PITCH + lane % STRIP;
        const float v = sum_segments(parts, strip, a.segments, part, at);
        const float y = activated(t.act, v, gated ? sum_segments(parts, strip + 2, a.segments, part, at) : 1.0f);

        if (t.out == TILE_ACT_ROUNDED)
            round_unit(t.rounded + number[column] * x_row_bytes(n_rows), n_rows / UNIT, y, unit, unit_top(y), false);
        else
            t.job[0].y[number[column] * t.job[0].y_stride + unit * UNIT + lane] = y;
    }
}

/* What a warp multiplies: strip and segment of a task, and the chunk's expert. */
struct item {
    int chunk, within, at; /* chunk and task of it; which of the task's segments */
};

/* NT: chunks have at most NT times GROUP columns; of EIGHT bits, 8. */
template <int TYPE, int NT, bool EIGHT>
__global__ void __launch_bounds__(block_of<NT>::WARPS * 32, block_of<NT>::PER_SM)
    expert_columns(const __grid_constant__ columns_args a)
{
    enum { WARPS = block_of<NT>::WARPS };
    extern __shared__ __align__(BOX_ALIGN) uint8_t shared[];
    __shared__ uint64_t bar, full[WARPS];
    __shared__ near_tables tables;
    __shared__ __align__(16) float scales[WARPS][STRIP * scales_of<TYPE>::APART];
    __shared__ expert_chunk kept[KEPT];
    __shared__ int number[NT * GROUP];
    const tile_args &t = a.t;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4;
    const int items = a.strips * a.segments, row_bytes = (int)t.job[0].row_bytes, part = a.columns * PITCH;
    const bool gated = t.out != TILE_FLOATS && t.n > 1, direct = t.out == TILE_FLOATS && a.segments == 1;
    uint8_t *stage = shared + columns_bytes(a.columns / GROUP, a.pitch) + warp * stage_of<TYPE>::SIZE;
    float *parts = (float *)(shared + columns_bytes(a.columns / GROUP, a.pitch) + WARPS * stage_of<TYPE>::SIZE);
    const lane_rows rows = find_lane_rows<TYPE>(row_bytes);
    const uint32_t stages = found_at(stage), bars = found_at(full + warp);

    if (threadIdx.x < 2 && rows.how == ROWS_BOXED)
        map_near(&a.box[threadIdx.x]);
    bring_tables<TYPE>(tables, t.tab);
    if (lane == 0) {
        bar_init(full + warp, 1);
        if (warp == 0)
            bar_init(&bar, 1);
        bar_init_done();
    }
    if (!a.early)
        only_wait_for_inputs();
    let_next_begin();
    const int64_t all = (int64_t)*t.n_chunk * a.tasks;
    const int begin = (int)(all * blockIdx.x / gridDim.x), end = (int)(all * (blockIdx.x + 1) / gridDim.x);
    const int first = begin / a.tasks;
    if (begin >= end)
        return;
    for (int i = threadIdx.x; i <= (end - 1) / a.tasks - first; i += WARPS * 32)
        kept[i] = t.chunk[first + i];
    __syncthreads();

    item next = { 0, begin - first * a.tasks, warp };
    int left = end - begin; /* tasks from that of the next item on */
    const auto ask = [&] {  /* for the next item, if there is one */
                           if (left <= 0 || next.at >= items)
                               return;
                           const int number = next.at / a.segments, segment = next.at - number * a.segments;
                           const int side = gated ? number / 2 % 2 : 0;
                           const int row = gated ? (next.within * (a.strips / 2) + number / 4 * 2 + number % 2) * STRIP
                                                 : (next.within * a.strips + number) * STRIP;

                           bring_stage<TYPE>(stages, rows.how, &a.box[side], t.job[side].w, t.expert_bytes, row_bytes,
                                             kept[next.chunk].expert, row, segment, bars);
                           next.at += WARPS;
                           if (next.at < items)
                               return;
                           next.at = warp;
                           left--;
                           if (++next.within == a.tasks) {
                               next.within = 0;
                               next.chunk++;
                           }
    };
    ask();
    if (a.early)
        only_wait_for_inputs();
    columns<NT> col;
    int have = -1, phase = 0, turn = 0, which = 0, n = 0;
#pragma unroll 1
    for (int task = begin, chunk = 0, within = begin - first * a.tasks; task < end; task++, within++) {
        if (within == a.tasks) {
            within = 0;
            chunk++;
        }
        if (chunk != have) {
            if (have >= 0)
                __syncthreads(); /* nobody reads the columns any more */
            have = chunk;
            n = kept[chunk].n;
            if (warp == 0)
                fetch_uses(a, kept[chunk], shared, number, &bar);
            find_columns<TYPE, NT, EIGHT>(col, n, a.pitch);
            bar_wait(&bar, phase);
            phase ^= 1;
        }
#pragma unroll 1
        for (int i = warp; i < items; i += WARPS) {
            const int strip = i / a.segments, segment = i - strip * a.segments, units = t.k / 32 - segment * 16;
            const uint8_t *r0 = stage + rows.r0 + before_segment<TYPE>(rows, g, segment);
            const uint8_t *r8 = stage + rows.r8 + before_segment<TYPE>(rows, g + 8, segment);
            float *to = parts + (which * items + i) * part;
            float *y = t.job[0].y + (within * a.strips + strip) * STRIP;

            bar_wait(bars, turn);
            turn ^= 1;
            with_width<NT, EIGHT>(n, [&](auto width) {
                constexpr int N = decltype(width)::N;
                float S[1][N][2] = {};

                segment_columns<TYPE, N, EIGHT>(S, r0, r8, units, shared + segment * (8 * X_PAIR), col, scales[warp],
                                                &tables, ask);
                if (!direct) {
                    put_sums<N, EIGHT>(to, S);
                    return;
                }
#pragma unroll
                for (int j = 0; j < 2 * N; j++) {
                    const int column = column_of<EIGHT>(j / 2, j % 2);

                    if (column < n)
                        y[number[column] * t.job[0].y_stride + row_of<EIGHT>(j / 2, j % 2)] =
                            __fadd_rn(0.0f, S[0][j / 2][j % 2]);
                }
            });
        }
        if (direct)
            continue;
        __syncthreads();
        finish_task<WARPS>(a, parts + which * items * part, part, within, number, n);
        if (a.buffers == 2)
            which ^= 1;
        else
            __syncthreads();
    }
}

/* ---- host ---- */

/* Matrices of a format with code of its own, of which strips begin at multiples of 16 bytes and none is cut short. */
static bool in_strips(struct tensor w)
{
    return cuda_is_common(w.type) && w.ne[1] % UNIT == 0 && w.ne[0] <= MOE_COLUMNS_K && (uintptr_t)w.data % 16 == 0 &&
           w.pitch * quant_row_bytes(w.type, w.ne[0]) % 16 == 0;
}

static int stage_bytes(int type)
{
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        return stage_of<QUANT_##name>::SIZE;
        GEMM_COMMON(X)
#undef X
    default:
        return 0;
    }
}

/* The largest divisor of n up to most. */
static int divisor(int n, int most)
{
    while (n % most != 0)
        most--;
    return most;
}

/* How the work of t is cut; shared memory of a block. */
static size_t cut_tasks(columns_args *a, const struct tile_args *t, int columns, int buffers, bool eight)
{
    const int sides = t->out != TILE_FLOATS ? t->n : 1, warps = columns > SOME * GROUP ? 16 : 8;
    const int each = t->out != TILE_FLOATS ? 2 * sides : 1; /* strips that go together */
    const int all = t->job[0].n_rows / STRIP * sides / each;

    a->t = *t;
    a->segments = row_segments(t->k);
    a->columns = eight ? SOME * GROUP : columns;
    a->buffers = buffers;
    a->pitch = column_pitch(x_pairs(t->k));
    const int least = each * a->segments;
    a->strips = each * divisor(all, least < warps ? warps / least < all ? warps / least : all : 1);
    a->tasks = all * each / a->strips;
    const bool direct = t->out == TILE_FLOATS && a->segments == 1;
    return (size_t)columns_bytes(a->columns / GROUP, a->pitch) + (size_t)(warps * stage_bytes(t->job[0].type)) +
           (direct ? 0 : buffers * (size_t)(a->strips * a->segments * a->columns * PITCH) * sizeof(float));
}

static bool has_room(struct cuda *c, struct tensor w, int columns, enum tile_out out, int n)
{
    struct tile_args t = {};
    columns_args a;

    t.job[0].n_rows = (int)w.ne[1];
    t.job[0].type = w.type;
    t.k = (int)w.ne[0];
    t.out = out;
    t.n = n;
    return cut_tasks(&a, &t, columns, 1, c->eight) <= columns_smem(c, columns);
}

int cuda_moe_columns(struct cuda *c, const struct op_moe *m, int64_t pairs)
{
    const int sides = 1 + (m->gate.data != NULL);
    int columns = !c->eight && pairs > GROUP * m->up.ne[2] ? MANY * GROUP : SOME * GROUP;

    if (!in_strips(m->up) || !in_strips(m->down) || (m->gate.data != NULL && !in_strips(m->gate)))
        return 0;
    while (columns > 0 &&
           !(has_room(c, m->up, columns, TILE_ACT, sides) && has_room(c, m->up, columns, TILE_FLOATS, 1) &&
             has_room(c, m->down, columns, TILE_FLOATS, 1) &&
             (m->gate.data == NULL || has_room(c, m->gate, columns, TILE_FLOATS, 1))))
        columns = columns > (c->eight ? SOME : 1) * GROUP ? columns / 2 : 0;
    return columns;
}

template <int TYPE, int NT, bool EIGHT> static void launch_of(struct cuda *c, columns_args *a, size_t smem, int blocks)
{
    for (int i = 0; i < a->t.n; i++)
        if (rows_come(stage_of<TYPE>::BYTES, a->t.job[i].row_bytes) == ROWS_BOXED)
            make_box<TYPE>(c, &a->box[i], a->t.job[i].w, a->t.job[i].row_bytes, a->t.expert_bytes, a->t.job[i].n_rows);
    launch_early(c, "expert_columns", expert_columns<TYPE, NT, EIGHT>, dim3((unsigned)blocks), block_of<NT>::WARPS * 32,
                 smem, *a);
}

void cuda_expert_columns(struct cuda *c, const struct tile_args *t, int columns, int64_t chunks, bool early)
{
    columns_args a = {};
    const size_t most = columns_smem(c, columns), half = half_smem(c, columns);
    const bool twice = columns <= SOME * GROUP && cut_tasks(&a, t, columns, 1, c->eight) <= half;
    size_t smem = cut_tasks(&a, t, columns, 2, c->eight);
    if (smem > (twice ? half : most))
        smem = cut_tasks(&a, t, columns, 1, c->eight);
    const int64_t least = ceil_div(chunks, KEPT - 2), turn = (twice ? 2 : 1) * c->sms;
    const int blocks = (int)(turn > least ? turn : least);

    a.early = early;
    switch (t->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        if (c->eight) \
            launch_of<QUANT_##name, SOME, true>(c, &a, smem, blocks); \
        else if (columns > SOME * GROUP) \
            launch_of<QUANT_##name, MANY, false>(c, &a, smem, blocks); \
        else \
            launch_of<QUANT_##name, SOME, false>(c, &a, smem, blocks); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
}
