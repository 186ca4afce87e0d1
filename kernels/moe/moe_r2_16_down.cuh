/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r2_16_down.cuh - second products of 2 to 16 tokens, summed over the experts (moe_r2_16.cu).
 * room: kernels */
#ifndef KERNELS_MOE_MOE_R2_16_DOWN_CUH
#define KERNELS_MOE_MOE_R2_16_DOWN_CUH
#include "kernels/moe/moe_r2_16.cuh"

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

/* grid: groups of strips of the matrices, row of activations. A warp has an expert. As up_pairs. EVEN: only one, of
 * whose strips each is a whole segment, and all experts' rows are of one length. */
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
#endif
