/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r2_16.cu - mixture of experts for 2 to 16 tokens.
 *
 * With 2 to 16 tokens most experts get one token, so each warp computes one (expert, token) pair (gemv_pair.cuh).
 * Tokens that share an expert share its weights through L2. A task of the gate and up products is 32 rows of each,
 * whose segments four warps share; its block picks the experts of its token itself, and blocks of their own store the
 * choices. In the down product a warp has one expert, and a block all experts of a token, which it adds up. Sums are
 * those of gemm/sums.cuh, those over experts as mix_experts has them. With 8-bit activations a scale spans more
 * elements than a task has: if a group does not hold all of them, a kernel in between quantises. In common shapes
 * (EVEN) a warp has one whole segment of each strip, which keeps its loop short: the kernel is bound by
 * instructions. */
#include "kernels/adapt/adapt.cuh"
#include "kernels/moe/pick_experts_block.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/moe/gemv_pair.cuh"

enum { UP_WARPS = 8, DOWN_WARPS = 9, BLOCKS = 2 /* a multiprocessor */, BLOCK_SMEM = 110 << 10, OTHER_SMEM = 4 << 10 };
enum { UP_COPIES = 4 /* of what a format looks up */ };
enum { MOST_STRIPS = 16, MOST_TASKS = 8, UNIT = 2 * STRIP, SHARE = 4 /* units that have a scale of 8 bits */ };

static __device__ __forceinline__ float activated(int how, float in, float up)
{
    const float pos = fmaxf(in, 0.0f);

    return __fmul_rn(how == OP_SILU ? silu(in) : __fmul_rn(pos, pos), up);
}

/* The matrix of an expert; -1: it is not here. */
static __device__ __forceinline__ int matrix_of(const int *slot, int expert)
{
    return slot == NULL ? expert : slot[expert];
}

/* Barriers of a warp's stages, and of a row, of which there are as many as warps or fewer; make_room() comes before
 * their use. */
static __device__ __forceinline__ void make_bars(uint64_t full[2], uint64_t *row)
{
    if (threadIdx.x % 32 == 0) {
        bar_init(full, 1);
        bar_init(full + 1, 1);
        bar_init(row, 1);
        bar_init_done();
    }
}

/* ---- first products ---- */

struct up_args {
    CUtensorMap box[2];        /* of m, where rows come so */
    struct expert_matrix m[2]; /* gate and up, or twice up */
    const int *expert, *slot;
    const uint8_t *x;
    uint8_t *rounded; /* act(gate) up, or act(up), of a pair */
    float *hid;       /* the same where it is rounded to 8 bits, with its neighbours, by another launch; or NULL */
    int pairs, n_used, k, ff, how;
    bool gated;
    int ways, each; /* set by the launch: warps that share a strip's segments; tasks of a group */
    int keepers;    /* the first blocks: what rows have chosen, if choice.logits, and round_shared() of 8 bits */
    /* the shared expert's first products, [row]; NULL: it has none; rounded */
    const float *sh_gate, *sh_up;
    uint8_t *sh_rounded;
    int64_t sh_stride;
    int sh_ff, rows;
    const struct tables *tab;
    struct choice_args choice;
};

/* act(gate) up of the shared expert, rounded, those units a warp that share a scale: of the last warps of blocks;
 * EIGHT: of the keepers, as others would come late to their first weights. */
template <bool EIGHT> static __device__ __forceinline__ void round_shared(const up_args &a)
{
    enum { MANY = EIGHT ? SHARE : 1 };
    const int units = a.sh_ff / UNIT, groups = (units + MANY - 1) / MANY, warps = blockDim.x / 32;
    const int blocks = EIGHT ? a.keepers : gridDim.x - a.keepers, warp = warps - 1 - threadIdx.x / 32;
    const int number = EIGHT ? blockIdx.x : blockIdx.x - a.keepers;

#pragma unroll 1
    for (int i = warp * blocks + number; i < a.rows * groups; i += blocks * warps) {
        const int row = i / groups, unit = (i - row * groups) * MANY;
        const int64_t at = row * a.sh_stride + unit * UNIT + threadIdx.x % 32;
        float v[MANY];
        uint32_t top = 0;

#pragma unroll
        for (int j = 0; j < MANY; j++) {
            v[j] = unit + j < units ? activated(OP_SILU, a.sh_gate[at + j * UNIT], a.sh_up[at + j * UNIT]) : 0.0f;
            top = max(top, unit_top(v[j]));
        }
#pragma unroll
        for (int j = 0; j < MANY; j++)
            if (unit + j < units)
                round_unit(a.sh_rounded + row * x_row_bytes(a.sh_ff), units, v[j], unit + j, top, EIGHT);
    }
}

/* A task is 32 rows of a pair. A warp of it has some segments of a strip of gate and of up, or of two strips of up. */
struct up_task {
    int pair, unit, row, matrix;
};

/* chosen: experts of the pairs from the first row of the block on. */
static __device__ __forceinline__ up_task find_up(const up_args &a, int i, const int *chosen, int first)
{
    const int units = a.ff / UNIT, pair = i / units;

    return { pair, i - pair * units, pair / a.n_used, matrix_of(a.slot, chosen[pair - first * a.n_used]) };
}

/* The sums of a task over its segments: 32 numbers of each segment and side. EIGHT: the results replace the first ones
 * if the group rounds them. */
template <bool EIGHT> static __device__ __forceinline__ void finish_up(const up_args &a, const up_task &t, float *own)
{
    const int lane = threadIdx.x & 31, sides = 1 + a.gated, segments = row_segments(a.k);
    const float *parts = own;
    float v = 0.0f, up = a.gated ? 0.0f : 1.0f;

    parts += a.gated ? lane / STRIP * UNIT + lane % STRIP : lane;
#pragma unroll 1
    for (int i = 0; i < segments; i++, parts += sides * UNIT) {
        v = __fadd_rn(v, parts[0]);
        up = a.gated ? __fadd_rn(up, parts[STRIP]) : up;
    }
    const float y =
        t.matrix >= 0 ? activated(a.how, v, up) : 0.0f; /* it is computed elsewhere, and rounded all the same */

    if (!EIGHT) {
        round_unit(a.rounded + t.pair * x_row_bytes(a.ff), a.ff / UNIT, y, t.unit, unit_top(y), false);
    } else if (a.hid != NULL) {
        a.hid[(int64_t)t.pair * a.ff + t.unit * UNIT + lane] = y;
    } else {
        __syncwarp();
        own[lane] = y;
    }
}

/* One of SHARE tasks, the first of which has its results there, the next ones `floats` floats further each. */
static __device__ __forceinline__ void round_eight(const up_args &a, const up_task &t, const float *first, int floats)
{
    const int lane = threadIdx.x & 31;
    uint32_t top = 0;

#pragma unroll
    for (int j = 0; j < SHARE; j++)
        top = max(top, size_of(first[j * floats + lane]));
    round_unit(a.rounded + t.pair * x_row_bytes(a.ff), a.ff / UNIT, first[t.unit % SHARE * floats + lane], t.unit,
               __reduce_max_sync(0xffffffffu, top), true);
}

/* The next task, if it is of the same pair. */
static __device__ __forceinline__ bool same_pair(const up_args &a, up_task &t)
{
    return ++t.unit < a.ff / UNIT;
}

/* The choices of a block's rows, in shared memory. */
static __device__ __forceinline__ void choose(const up_args &a, choice_space &s, int *chosen, int begin, int end)
{
    const int tasks = a.n_used * (a.ff / UNIT), first = begin / tasks;

#pragma unroll 1
    for (int row = first; row * tasks < end; row++) {
        choose_row(s, a.choice, row, chosen + (row - first) * a.n_used, false);
        proxy_fence(); /* stages come there */
        __syncthreads();
    }
}

/* Stores the rows' choices of experts: one block for every few rows. What else it did would end last. */
static __device__ __forceinline__ void keep_choices(const up_args &a, choice_space &s, int *chosen)
{
#pragma unroll 1
    for (int row = blockIdx.x; row < a.rows; row += a.keepers) {
        choose_row(s, a.choice, row, chosen, true);
        __syncthreads();
    }
}

/* Floats of a task's sums. */
static __host__ __device__ inline int task_floats(int k, int sides)
{
    return row_segments(k) * sides * UNIT;
}

/* The warps of a group, by a barrier of its own. */
static __device__ __forceinline__ void meet(int group, int warps)
{
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(1 + group), "r"(warps * 32) : "memory");
}

/* Warps do not wait for each other before all tasks of their group have been multiplied, unless another row begins. One
 * loop, whose first turn only asks for weights: each instruction comes for the first time once. EVEN: way is the
 * segment, and a group's tasks are of one row. */
template <int TYPE, bool EIGHT, bool EVEN>
__global__ void __launch_bounds__(UP_WARPS * 32, BLOCKS) up_pairs(const __grid_constant__ up_args a)
{
    extern __shared__ __align__(BOX_ALIGN) uint8_t shared[];
    __shared__ uint64_t bar[UP_WARPS], full[UP_WARPS][2];
    __shared__ copied_tables<UP_COPIES> tables;
    __shared__ int own[FEW_ROWS * CHOICE_USED];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, sides = 1 + a.gated, group = sides * a.ways;
    const int mine = warp / group, side = warp % group / a.ways, way = warp % a.ways, at_once = blockDim.x / 32 / group;
    const int segments = row_segments(a.k), floats = task_floats(a.k, sides), row_bytes = (int)a.m[0].row_bytes;
    const int all = a.pairs * (a.ff / UNIT), each = at_once * a.each, from = ((int)blockIdx.x - a.keepers) * each;
    const int begin = from + mine * a.each, end = min(begin + a.each, all);
    const int first = a.choice.logits != NULL ? from / (a.n_used * (a.ff / UNIT)) : 0;
    const int *chosen = a.choice.logits != NULL ? own : a.expert;
    if (threadIdx.x < 2 && rows_come(stage_of<TYPE>::BYTES, row_bytes) == ROWS_BOXED)
        map_near(&a.box[threadIdx.x]); /* weights are asked for when the choice has been made */
    bring_tables<TYPE>(tables, a.tab);
    make_bars(full[warp], &bar[warp]);
    room r = make_room<TYPE>(shared, bar, a.k, group);
    float *parts =
        (float *)(shared + rows_room(at_once, a.k) + blockDim.x / 32 * warp_bytes<TYPE>()) + mine * a.each * floats;
    const lane_own<TYPE> o = find_own<TYPE, EIGHT>(r.x, r.v);
    const lane_rows rows = find_lane_rows<TYPE>(row_bytes);
    const int scales = find_scales(a.k);
    const uint32_t stages = found_at(r.stage), bars = found_at(full[warp]);
    up_task next = {};
    [[maybe_unused]] int have = -1;
    [[maybe_unused]] unsigned n = 0;
    float *to = parts + side * 2 * STRIP + lane;
    const auto ask = [&](int m, int segment,
                         unsigned stage) { /* for a strip's segment of the task `next` */
                                           bring_stage<TYPE>(stages + stage * stage_of<TYPE>::SIZE, rows.how, &a.box[m],
                                                             a.m[m].w, a.m[m].expert_bytes, row_bytes,
                                                             max(next.matrix, 0),
                                                             next.unit * UNIT + (side + (a.gated ? 0 : m)) * STRIP,
                                                             segment, bars + stage * 8);
    };

    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (from < 0) {
        if (a.choice.logits != NULL)
            keep_choices(a, *(choice_space *)r.all, own);
        let_next_begin(); /* it may read the choice */
        if (EIGHT && a.sh_gate != NULL)
            round_shared<EIGHT>(a);
        return;
    }
    let_next_begin();
    if (EVEN && begin < end && way + side == 0) /* the row does not depend on the choice */
        fetch_row(r, a.x + begin / (a.n_used * (a.ff / UNIT)) * x_row_bytes(a.k), a.k);
    if (a.choice.logits != NULL)
        choose(a, *(choice_space *)r.all, own, from, min(from + each, all));
    if constexpr (EVEN) {
        const int turns = 2 * (end - begin);

        if (turns > 0) {
            next = find_up(a, begin, chosen, first);
            ask(0, way, 0);
            ask(1, way, 1);
        }
        if (!EIGHT && a.sh_gate != NULL)
            round_shared<EIGHT>(a);
        if (turns > 0)
            row_there(r);
        to += way * sides * 2 * STRIP;
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
            const int m = i % 2;

            bar_wait(bars + m * 8, i / 2 % 2);
            const float v = segment_times<TYPE, EIGHT, true>(r.stage + m * stage_of<TYPE>::SIZE, rows, way, o, a.k,
                                                             scales, r, &tables);
            if (lane < STRIP)
                to[m * STRIP] = v;
            to += m * floats;
            if (i + 2 >= turns)
                continue;
            if (m == 0 && !same_pair(a, next))
                next = find_up(a, begin + i / 2 + 1, chosen, first);
            ask(m, way, m);
        }
    } else {
        /* of the stage that is asked for: task, strip, segment */
#pragma unroll 1
        for (int i = begin - 1, m = 1, q = segments; n == 0 || i < end; n++) {
            const int now = q, of = m, its = next.row;

            q += a.ways;
            if (q >= segments) {
                q = way;
                m ^= 1;
            }
            const bool last = m == 0 && q == way;
            if (last && ++i < end && (n == 0 || !same_pair(a, next)))
                next = find_up(a, i, chosen, first);
            if (i < end)
                ask(m, q, n % 2);
            const int row = n == 0 ? next.row : its;
            const bool other = row != have && begin < end;
            if (other) {
                have = row;
                meet(mine, group);
                if (way + side == 0)
                    fetch_row(r, a.x + row * x_row_bytes(a.k), a.k);
            }
            if (!EIGHT && n == 0 && a.sh_gate != NULL)
                round_shared<EIGHT>(a);
            if (other)
                row_there(r);
            if (n == 0)
                continue;
            bar_wait(bars + (n + 1) % 2 * 8, (int)((n - 1) / 2 % 2));
            const float v = segment_times<TYPE, EIGHT, false>(r.stage + (n + 1) % 2 * stage_of<TYPE>::SIZE, rows, now,
                                                              o, a.k, scales, r, &tables);
            if (lane < STRIP)
                to[(now * sides * 2 + of) * STRIP] = v;
            to += last ? floats : 0;
        }
    }
    meet(mine, group);
#pragma unroll 1
    for (int i = begin + warp % group; i < end; i += group) {
        const up_task t = find_up(a, i, chosen, first);

        finish_up<EIGHT>(a, t, parts + (i - begin) * floats);
    }
    if (!EIGHT || a.hid != NULL)
        return;
    meet(mine, group);
#pragma unroll 1
    for (int i = begin + warp % group; i < end; i += group)
        round_eight(a, find_up(a, i, chosen, first), parts + (i - begin) / SHARE * (SHARE * floats), floats);
}

/* ---- second products ---- */

struct down_args {
    CUtensorMap box[2];        /* of m, where rows come so */
    struct expert_matrix m[2]; /* of the routed experts; of the shared one, w NULL: it is not one of these */
    const int *expert, *slot;
    const uint8_t *x, *sh_x;        /* rounded, of a pair; of a row */
    int n_used, k, sh_k, n, strips; /* strips: of a block */
    bool alike;                     /* pairs of a row have the same x, its own */
    float *out;                     /* a pair's; or NULL: */
    int64_t os;
    const float *weight, *shared, *open; /* shared: its output; open NULL: it counts fully */
    float *y, *res;
    int64_t ws, ss, ps, ys, rs;
    float scale;
    struct hand_over hand; /* f NULL: no pair is the host's */
    const struct tables *tab;
};

/* What the sums of experts are multiplied with, and what the residual stream has where a thread adds first; read before
 * the products, they are there when they are. */
static __device__ __forceinline__ float before_mix(const down_args &a, float *weights)
{
    const int many = a.strips * STRIP, row = blockIdx.y, at = blockIdx.x * many + threadIdx.x;

    for (int e = threadIdx.x; e <= a.n_used; e += blockDim.x)
        weights[e] = e < a.n_used ? a.weight[row * a.ws + e] : a.open != NULL ? sigmoid(a.open[row * a.ps]) : 1.0f;
    return a.res != NULL && (int)threadIdx.x < many && at < a.n ? a.res[row * a.rs + at] : 0.0f;
}

/* The sums of the host's pairs, by a whole block. The first block waits for those of any row: the next hand-over does
 * not begin before this has ended. */
static __device__ __forceinline__ void bring_pairs(const down_args &a, float *sums)
{
    const int many = a.strips * STRIP, pair0 = blockIdx.y * a.n_used;
    const bool looks = blockIdx.x + blockIdx.y == 0;

    if (looks ? a.hand.turn->given != a.hand.turn->now : !hand_any(a.expert + pair0, a.n_used, a.slot))
        return;
    if (threadIdx.x == 0)
        hand_await(a.hand, looks);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < a.n_used * many; i += blockDim.x) {
        const int pair = pair0 + i / many, at = blockIdx.x * many + i % many;

        if (at < a.n && matrix_of(a.slot, a.expert[pair]) < 0)
            sums[i] = __ldcv(a.hand.out + (int64_t)pair * a.n + at);
    }
}

/* Of a block's rows of a row's pairs: by rank, the shared expert, the residual. */
static __device__ __forceinline__ void mix_pairs(const down_args &a, const float *sums, const float *weights, float res)
{
    const int many = a.strips * STRIP, row = blockIdx.y;

#pragma unroll 1
    for (int i = threadIdx.x, at; i < many && (at = blockIdx.x * many + i) < a.n; i += blockDim.x) {
        float sum = 0.0f;

#pragma unroll 4
        for (int e = 0; e < a.n_used; e++)
            sum = __fmaf_rn(weights[e], sums[e * many + i], sum);
        if (a.m[1].w != NULL || a.shared != NULL)
            sum = __fmaf_rn(weights[a.n_used], a.m[1].w != NULL ? sums[a.n_used * many + i] : a.shared[row * a.ss + at],
                            sum);
        a.y[row * a.ys + at] = sum;
        if (a.res != NULL)
            a.res[row * a.rs + at] = __fmaf_rn(a.scale, sum, i == (int)threadIdx.x ? res : a.res[row * a.rs + at]);
    }
}

/* An expert's second product, of a block's strips. */
struct down_task {
    int pair, matrix, k, row_bytes, kind; /* kind: 0 routed, 1 shared */
    const uint8_t *x;
};

static __device__ __forceinline__ down_task find_down(const down_args &a, int e)
{
    const int row = blockIdx.y, pair = row * a.n_used + e;
    const bool routed = e < a.n_used;
    const expert_matrix &m = a.m[!routed];
    /* the choice was there before the launch before this one let it begin */
    const int matrix = routed && a.expert != NULL ? matrix_of(a.slot, __ldcg(a.expert + pair)) : 0;
    const int k = routed ? a.k : a.sh_k;

    return { pair,    matrix,
             k,       (int)m.row_bytes,
             !routed, (routed ? a.x : a.sh_x) + (routed && !a.alike ? pair : row) * x_row_bytes(k) };
}

/* grid: groups of strips of the matrices, row of activations. A warp has an expert. As up_pairs. EVEN: only one, of whose
 * strips each is a whole segment, and all experts' rows are of one length. */
template <int TYPE, bool EIGHT, bool EVEN>
__global__ void __launch_bounds__(DOWN_WARPS * 32, BLOCKS) down_pairs(const __grid_constant__ down_args a)
{
    typedef stage_of<TYPE> S;
    extern __shared__ __align__(BOX_ALIGN) uint8_t shared[];
    __shared__ uint64_t bar[DOWN_WARPS], full[DOWN_WARPS][2];
    __shared__ near_tables tables;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int most = max(a.k, a.sh_k), r0 = blockIdx.x * a.strips * STRIP, strips = min(a.strips, (a.n - r0) / STRIP);
    const int experts = a.n_used + (a.m[1].w != NULL);
    bring_tables<TYPE>(tables, a.tab);
    make_bars(full[warp], &bar[warp]);
    room r = make_room<TYPE>(shared, bar, most, 1);
    float *sums = (float *)(shared + rows_room(warps, most) + warps * warp_bytes<TYPE>());
    float *weights = sums + (a.n_used + 1) * a.strips * STRIP, res = 0.0f, v = 0.0f;
    const lane_own<TYPE> o = find_own<TYPE, EIGHT>(r.x, r.v);
    const uint32_t stages = found_at(r.stage), bars = found_at(full[warp]);
    lane_rows rows = {};
    int scales = 0;
    [[maybe_unused]] unsigned n = 0;
    down_task next = {};
    const auto ask = [&](int strip, int segment, unsigned stage) {
        bring_stage<TYPE>(stages + stage * S::SIZE, rows_come(S::BYTES, next.row_bytes), &a.box[next.kind],
                          a.m[next.kind].w, a.m[next.kind].expert_bytes, next.row_bytes, max(next.matrix, 0),
                          r0 + strip * STRIP, segment, bars + stage * 8);
    };
    const auto keep = [&](const down_task &t, int expert, int strip) {
        if (a.out == NULL && lane < STRIP)
            sums[(expert * a.strips + strip) * STRIP + lane] = v;
        else if (lane < STRIP && (t.matrix >= 0 || a.alike)) /* first products: all pairs are activated and rounded */
            a.out[t.pair * a.os + r0 + strip * STRIP + lane] = t.matrix >= 0 ? v : 0.0f;
    };

    let_next_begin();
    if constexpr (EVEN) {
        next = find_down(a, warp);
        ask(0, 0, 0);
        asm volatile("griddepcontrol.wait;" ::: "memory");
        res = a.out == NULL ? before_mix(a, weights) : 0.0f;
        fetch_row(r, next.x, next.k);
        if (strips > 1)
            ask(1, 0, 1);
        rows = find_lane_rows<TYPE>(next.row_bytes);
        scales = find_scales(next.k);
        row_there(r);
#pragma unroll 1
        for (int i = 0; i < strips; i++) {
            bar_wait(bars + i % 2 * 8, i / 2 % 2);
            v = __fadd_rn(0.0f, segment_times<TYPE, EIGHT, true>(r.stage + i % 2 * S::SIZE, rows, 0, o, next.k, scales,
                                                                 r, &tables));
            keep(next, warp, i);
            if (i + 2 < strips)
                ask(i + 2, 0, i % 2);
        }
    } else {
        /* of the stage that is asked for: expert, strip, segment */
#pragma unroll 1
        for (int e = warp - warps, i = strips, q = 0; e < experts; n++) {
            const down_task t = next;
            const int now = q, of = i, expert = e;

            q++;
            if (q >= row_segments(t.k)) {
                q = 0;
                i++;
            }
            const bool last = q == 0;
            if (i >= strips) {
                q = i = 0;
                e += warps;
                if (e < experts)
                    next = find_down(a, e);
            }
            if (e < experts)
                ask(i, q, n % 2);
            if (n == 0) {
                asm volatile("griddepcontrol.wait;" ::: "memory");
                res = a.out == NULL ? before_mix(a, weights) : 0.0f;
            }
            if (n == 0 ? e < experts : n > 1 && of == 0 && now == 0)
                fetch_row(r, n == 0 ? next.x : t.x, n == 0 ? next.k : t.k);
            if (n == 0)
                continue;
            if (of == 0 && now == 0) {
                rows = find_lane_rows<TYPE>(t.row_bytes);
                scales = find_scales(t.k);
                row_there(r);
            }
            bar_wait(bars + (n + 1) % 2 * 8, (int)((n - 1) / 2 % 2));
            v = __fadd_rn(v, segment_times<TYPE, EIGHT, false>(r.stage + (n + 1) % 2 * S::SIZE, rows, now, o, t.k,
                                                               scales, r, &tables));
            if (!last)
                continue;
            keep(t, expert, of);
            v = 0.0f;
        }
    }
    if (a.out != NULL)
        return;
    if (a.hand.f != NULL)
        bring_pairs(a, sums);
    __syncthreads();
    mix_pairs(a, sums, weights, res);
}

/* grid: rows. Where others have to know before the first products begin. */
__global__ void __launch_bounds__(UP_WARPS * 32) choose_rows(const __grid_constant__ choice_args a)
{
    __shared__ choice_space s;
    __shared__ int chosen[CHOICE_USED];

    wait_for_inputs();
    choose_row(s, a, blockIdx.x, chosen, true);
}

/* ---- host ---- */

/* Working memory, cut up; shared: the shared expert's rounded rows, no longer than those of x; gate where the formats
 * of both differ or adapters
 * come between, hid then or where it is rounded by another launch; out of a sum with adapters. */
struct space {
    uint8_t *xq, *hq, *shared;
    float *gate, *hid, *out;
    size_t bytes;
};

static bool gates_alike(const struct op_moe &m)
{
    return m.gate.data == NULL || m.gate.type == m.up.type;
}

/* First products go to memory before they are activated. */
static bool first_apart(const struct node *v)
{
    return !gates_alike(v->moe) || adapted(v);
}

static struct space cut(const struct node *v, uint8_t *at)
{
    const struct op_moe &a = v->moe;
    const int64_t n = v->t[1].ne[1], pairs = n * a.n_used, ff = a.up.ne[1];
    struct space s = {};
    auto take = [&](size_t bytes) {
        uint8_t *p = at + s.bytes;

        s.bytes += round_up(bytes, 256);
        return p;
    };

    s.xq = take((size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.hq = take((size_t)(x_row_bytes(ff) * pairs));
    s.shared = take((size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    if (first_apart(v))
        s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
    if (adapted(v) && v->op == DEV_OP_moe)
        s.out = (float *)take((size_t)(pairs * a.down.ne[1]) * sizeof(float));
    return s;
}

/* Matrices of a format with code of its own, of which strips begin at multiples of 16 bytes and none is cut short. */
static bool in_strips(struct tensor w)
{
    return cuda_is_common(w.type) && w.ne[1] % UNIT == 0 && w.ne[0] <= FEW_MOE_K && (uintptr_t)w.data % 16 == 0 &&
           w.pitch * quant_row_bytes(w.type, w.ne[0]) % 16 == 0;
}

bool cuda_moe_is_few(const struct node *v)
{
    const struct op_moe &a = v->moe;

    return v->t[1].ne[1] > 1 && v->t[1].ne[1] <= FEW_ROWS && in_strips(a.up) && in_strips(a.down) &&
           (a.gate.data == NULL || in_strips(a.gate));
}

size_t cuda_few_moe_ws(const struct node *v)
{
    return cut(v, NULL).bytes;
}

static struct expert_matrix matrix(struct tensor w)
{
    const int64_t bytes = quant_row_bytes(w.type, w.ne[0]);

    return { (const uint8_t *)w.data, bytes, w.pitch * bytes, w.type };
}

/* Nothing where rows do not come so. */
template <int TYPE> static void box_of(struct cuda *c, CUtensorMap *box, const struct expert_matrix &m, int rows)
{
    if (m.w != NULL && rows_come(stage_of<TYPE>::BYTES, m.row_bytes) == ROWS_BOXED)
        make_box<TYPE>(c, box, m.w, m.row_bytes, m.expert_bytes, rows);
}

/* What a block can have beside what its kernel always takes. */
static size_t most_smem(struct cuda *c)
{
    return (size_t)cuda_attn_smem(c) - OTHER_SMEM;
}

template <int TYPE> static void launch_up_of(struct cuda *c, struct up_args *a)
{
    const int sides = 1 + a->gated, tasks = a->pairs * (a->ff / UNIT);
    const size_t tables = TYPE == QUANT_iq3_s ? sizeof(copied_tables<UP_COPIES>) : 0;
    const size_t most = most_smem(c) - tables, two = BLOCK_SMEM - tables; /* so that there are two */
    const size_t sums = (size_t)task_floats(a->k, sides) * sizeof(float);
    int at_once = 1;
    const auto bytes = [&](int each) { /* of a block with `each` tasks of a group */
                                       const int warps = at_once * sides * a->ways;

                                       return (size_t)(rows_room(at_once, a->k) + warps * warp_bytes<TYPE>()) +
                                              (size_t)(at_once * each) * sums;
    };

    while (a->ways > 1 && bytes(1) > most)
        a->ways /= 2;
    const int group = sides * a->ways;
    const size_t share = bytes(1) > two || most < two ? most : two;
    at_once = UP_WARPS / group;
    while (at_once > 1 && bytes(1) > share)
        at_once--;
    a->each = (int)ceil_div(tasks, (share > two ? 1 : BLOCKS) * c->sms * at_once);
    while (a->each > 1 && (a->each > MOST_TASKS || bytes(a->each) > share))
        a->each--;
    for (int i = 0; i < 2; i++)
        box_of<TYPE>(c, &a->box[i], a->m[i], a->ff);
    if (a->each % SHARE == 0 && a->ff / UNIT % SHARE == 0)
        a->hid = NULL;
    const int blocks = (int)ceil_div(tasks, a->each * at_once), left = (share > two ? 1 : BLOCKS) * c->sms - blocks;
    if (a->choice.logits != NULL ||
        (c->eight && a->sh_gate != NULL)) /* all are there at once, if there is room for one */
        a->keepers = left < 1 ? 1 : left < a->rows ? left : a->rows;
    const bool even = a->k == a->ways * 512 && a->n_used * (a->ff / UNIT) % (a->each * at_once) == 0;
    launch_early(c, "up_pairs",
                 even ? (c->eight ? up_pairs<TYPE, true, true> : up_pairs<TYPE, false, true>)
                      : (c->eight ? up_pairs<TYPE, true, false> : up_pairs<TYPE, false, false>),
                 dim3((unsigned)(a->keepers + blocks)), (unsigned)(at_once * group * 32), bytes(a->each), *a);
}

/* Rows of pairs, rounded to 8 bits, without waiting for the launch before to have left. */
static void round_pairs(struct cuda *c, const struct up_args *a)
{
    struct fused_args f = {};

    f.a.k = a->ff;
    f.a.nx = a->pairs;
    f.a.eight = true;
    f.mode = IN_PLAIN;
    f.x = a->hid;
    f.x_stride = a->ff;
    f.rounded = a->rounded;
    cuda_fused_round(c, &f);
}

static void launch_up(struct cuda *c, struct up_args *a)
{
    const int segments = row_segments(a->k);

    a->ways = segments < 2 ? 1 : segments < 4 ? 2 : 4;
    a->tab = c->tab;
    switch (a->m[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_up_of<QUANT_##name>(c, a); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
    if (c->eight && a->hid != NULL)
        round_pairs(c, a);
}

template <int TYPE> static void launch_down_of(struct cuda *c, struct down_args *a, int rows)
{
    const int experts = a->n_used + (a->m[1].w != NULL), k = a->sh_k > a->k ? a->sh_k : a->k, all = a->n / STRIP;
    const auto bytes = [&](int warps) { return (size_t)(rows_room(warps, k) + warps * warp_bytes<TYPE>()); };
    int warps = experts < DOWN_WARPS ? experts : (int)DOWN_WARPS;
    size_t sums = 0;

    a->strips = 1;
    while (a->strips < MOST_STRIPS && rows * ceil_div(all, a->strips) > BLOCKS * c->sms)
        a->strips++;
    if (a->out == NULL)
        sums = (size_t)(a->n_used + 1) * (size_t)(a->strips * STRIP + 1) * sizeof(float);
    while (warps > 1 && bytes(warps) + sums > most_smem(c))
        warps--;
    for (int i = 0; i < 2; i++)
        box_of<TYPE>(c, &a->box[i], a->m[i], a->n);
    const bool even = a->k == 512 && (a->m[1].w == NULL || a->sh_k == 512) && warps == experts;
    launch_early(c, "down_pairs",
                 even ? (c->eight ? down_pairs<TYPE, true, true> : down_pairs<TYPE, false, true>)
                      : (c->eight ? down_pairs<TYPE, true, false> : down_pairs<TYPE, false, false>),
                 dim3((unsigned)ceil_div(all, a->strips), (unsigned)rows), (unsigned)warps * 32, bytes(warps) + sums,
                 *a);
}

static void launch_down(struct cuda *c, struct down_args *a, int rows)
{
    a->tab = c->tab;
    switch (a->m[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_down_of<QUANT_##name>(c, a, rows); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
}

static struct up_args up_of(const struct op_moe &m, const struct space &s, int rows)
{
    struct up_args a = {};

    a.m[0] = matrix(m.gate.data != NULL ? m.gate : m.up);
    a.m[1] = matrix(m.up);
    a.expert = m.expert;
    a.slot = m.slot;
    a.x = s.xq;
    a.rounded = s.hq;
    a.hid = s.hid;
    a.rows = rows;
    a.pairs = rows * m.n_used;
    a.n_used = m.n_used;
    a.k = (int)m.up.ne[0];
    a.ff = (int)m.up.ne[1];
    a.how = m.act;
    a.gated = m.gate.data != NULL;
    return a;
}

static struct down_args down_of(const struct op_moe &m, struct tensor w, const uint8_t *x)
{
    struct down_args d = {};

    d.m[0] = matrix(w);
    d.expert = m.expert;
    d.slot = m.slot;
    d.n_used = m.n_used;
    d.k = (int)w.ne[0];
    d.n = (int)w.ne[1];
    d.x = x;
    return d;
}

/* First products of the routed experts, where formats differ or adapters come between. */
static void up_apart(struct cuda *c, const struct space &s, const struct node *v, int rows)
{
    const struct op_moe &m = v->moe;
    const int64_t ff = m.up.ne[1], pairs = (int64_t)rows * m.n_used;
    const struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid, false, 0, 0 };

    for (int i = m.gate.data == NULL; i < 2; i++) {
        struct down_args d = down_of(m, i == 0 ? m.gate : m.up, s.xq);

        d.alike = true;
        d.out = i == 0 ? s.gate : s.hid;
        d.os = ff;
        launch_down(c, &d, rows);
    }
    cuda_activate(c, v, s.hid, m.gate.data != NULL ? s.gate : NULL);
    cuda_quantise(c, s.hq, hid);
}

static void sum_of(struct down_args *d, struct tensor y, struct tensor weight)
{
    d->y = (float *)y.data;
    d->ys = y.stride;
    d->weight = (const float *)weight.data;
    d->ws = weight.stride;
}

void cuda_moe_few(struct cuda *c, const struct node *v)
{
    const struct op_moe &m = v->moe;
    const struct tensor &y = v->t[0], &x = v->t[1];
    const struct space s = cut(v, c->ws);
    const int rows = (int)x.ne[1];

    cuda_quantise(c, s.xq, x);
    if (!first_apart(v)) {
        struct up_args up = up_of(m, s, rows);

        launch_up(c, &up);
    } else {
        up_apart(c, s, v, rows);
    }
    struct down_args down = down_of(m, m.down, s.hq);
    const bool sum = v->op == DEV_OP_moe;
    if (sum && !adapted(v)) {
        sum_of(&down, y, m.weight);
    } else {
        down.out = sum ? s.out : (float *)y.data;
        down.os = sum ? y.ne[0] : y.stride;
    }
    launch_down(c, &down, rows);
    if (!adapted(v))
        return;
    cuda_adapt_down(c, v, down.out, down.os, s.hid);
    if (sum)
        cuda_mix(c, y, m.weight, s.out, y.ne[0]);
}

/* The shared expert is computed in the same launch if its format is that of the others. */
static void second_products(struct cuda *c, const struct few_moe *m, const struct space &s, int rows)
{
    const struct op_moe &a = m->moe->moe;
    struct down_args d = down_of(a, a.down, s.hq);

    sum_of(&d, (m->sum != NULL ? m->sum : m->moe)->t[0], m->route->t[0]);
    if (m->out != NULL)
        d.hand = cuda_hand_over(c);
    if (m->sh_down != NULL) {
        const struct tensor w = m->sh_down->t[1], out = m->sh_down->t[0];

        if (w.type == a.down.type) {
            d.m[1] = matrix(w);
            d.sh_k = (int)w.ne[0];
            d.sh_x = s.shared;
        } else {
            struct op_moe alone = {};

            alone.n_used = 1;
            struct down_args own = down_of(alone, w, s.shared);
            own.out = (float *)out.data;
            own.os = out.stride;
            launch_down(c, &own, rows);
            d.shared = own.out;
            d.ss = out.stride;
        }
    }
    if (m->open != NULL) {
        d.open = (const float *)m->open->t[0].data;
        d.ps = m->open->t[0].stride;
    }
    if (m->add != NULL) {
        d.res = (float *)m->add->t[0].data;
        d.rs = m->add->t[0].stride;
        d.scale = m->add->f[0];
    }
    launch_down(c, &d, rows);
}

void cuda_few_moe(struct cuda *c, const struct few_moe *m)
{
    const struct node *v = m->moe;
    const struct tensor &logits = m->route->t[1], &weight = m->route->t[0];
    const int rows = (int)v->t[1].ne[1];
    const struct space s = cut(v, c->ws);
    const choice_args choice = { (const float *)logits.data, logits.stride,       weight.stride, m->route->route,
                                 (int *)m->route->out,       (float *)weight.data };
    struct up_args up = up_of(v->moe, s, rows);

    if (m->out != NULL) { /* the host begins before the device's own products */
        launch_early(c, "choose_rows", choose_rows, dim3((unsigned)rows), UP_WARPS * 32, 0, choice);
        cuda_hand_out(c, m->out);
    } else {
        up.choice = choice;
    }
    if (m->sh_down != NULL) {
        up.sh_gate = (const float *)m->sh_gate->t[0].data;
        up.sh_up = (const float *)m->sh_up->t[0].data;
        up.sh_stride = m->sh_up->t[0].stride;
        up.sh_rounded = s.shared;
        up.sh_ff = (int)m->sh_up->t[0].ne[0];
    }
    launch_up(c, &up);
    second_products(c, m, s, rows);
}
