/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r2_16_up.cuh - first products of 2 to 16 tokens: gate and up of their experts, activated (moe_r2_16.cu).
 * room: kernels */
#ifndef KERNELS_MOE_MOE_R2_16_UP_CUH
#define KERNELS_MOE_MOE_R2_16_UP_CUH
#include "kernels/moe/moe_r2_16.cuh"

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
    enum { MANY = EIGHT ? SHARED_SCALE : 1 };
    const int units = a.sh_ff / UNIT, groups = (units + MANY - 1) / MANY, warps = blockDim.x / 32;
    const int blocks = EIGHT ? a.keepers : gridDim.x - a.keepers, warp = warps - 1 - threadIdx.x / 32;
    const int number = EIGHT ? blockIdx.x : blockIdx.x - a.keepers;

#pragma unroll 1
    for (int i = warp * blocks + number; i < a.rows * groups; i += blocks * warps) {
        const int row = i / groups;

        round_gates<EIGHT>(a.sh_rounded + row * x_row_bytes(a.sh_ff), a.sh_gate + row * a.sh_stride,
                           a.sh_up + row * a.sh_stride, units, (i - row * groups) * MANY);
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
static __device__ __forceinline__ void choose_block(const up_args &a, choice_space &s, int *chosen, int begin, int end)
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
static __device__ __forceinline__ void group_barrier(int group, int warps)
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
    __shared__ int own[R2_16_MAX * CHOICE_USED];
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
        choose_block(a, *(choice_space *)r.all, own, from, min(from + each, all));
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
                group_barrier(mine, group);
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
    group_barrier(mine, group);
#pragma unroll 1
    for (int i = begin + warp % group; i < end; i += group) {
        const up_task t = find_up(a, i, chosen, first);

        finish_up<EIGHT>(a, t, parts + (i - begin) * floats);
    }
    if (!EIGHT || a.hid != NULL)
        return;
    group_barrier(mine, group);
#pragma unroll 1
    for (int i = begin + warp % group; i < end; i += group)
        round_eight(a, find_up(a, i, chosen, first), parts + (i - begin) / SHARE * (SHARE * floats), floats);
}
#endif
