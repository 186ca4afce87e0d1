/* SPDX-License-Identifier: Apache-2.0 */
/* attn_r17_wgmma.cuh - prefill attention on the wgmma units of sm_90.   room: kernels
 *
 * A block has 64 queries, the query heads of a KV head times neighbouring tokens, and walks over the pages that
 * attn_r17.cu has unpacked. Two warpgroups have 32 queries each for scores: 64 rows, high and low halves, times 64 keys
 * at a time, so that one block of dimensions is added up while the next is multiplied. A warp has all scores of a page
 * of its 8 queries, and so their largest and their sum. Weights go to shared memory; for values a warpgroup has all 64
 * queries and half of the dimensions. One thread of a ninth warp copies pages into a ring. Two blocks with neighbouring
 * tokens are a cluster: each copies half of what both read. The arithmetic is that of attn/sums.cuh; wgmma adds up as
 * mma does. */
#ifndef KERNELS_ATTN_ATTN_R17_WGMMA_CUH
#define KERNELS_ATTN_ATTN_R17_WGMMA_CUH
#include "kernels/attn/attn_r17.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/device/fused.cuh"
#include <limits.h>

enum {
    WIDE = 64,                            /* queries of a block */
    WIDE_WARPS = 8,                       /* that compute */
    WIDE_THREADS = WIDE_WARPS * 32 + 128, /* a warpgroup that copies */
    QUARTER = 64,                         /* keys at a time */
    W_PLANE = 2 * WIDE * 16,              /* bytes: weights of 16 positions, [8 positions][query][8] */
    W_BYTES = OP_KV_PAGE / 16 * 2 * W_PLANE,
    BARS = 2 * RING /* then: weights may be written, are there */
};
static_assert((BARS + 2) * 8 <= QUERIES_AT, "room of barriers");

/* Shared memory: barriers, queries, weights, slots, then floats: of each query the largest score, the sum of weights,
 * what scores are multiplied with. */
static int wide_smem(int n_kb)
{
    return QUERIES_AT + WIDE / QUERY_TILE * n_kb * 1024 + W_BYTES + 3 * WIDE * 4;
}

/* Where blocks walk: all pages that a row of this block, or of the other one of its cluster, sees. */
struct wide_walk {
    int first, end;
};

/* A slot has 16 positions of values, and of a block of keys half a page, or the page where that is as large. */
template <bool LOW_V> static __host__ __device__ constexpr int key_slots(void)
{
    return LOW_V ? 1 : 2;
}
enum { VALUE_SLOTS = OP_KV_PAGE / 16 };

struct wide_ring {
    uint64_t *full, *empty;
    uint8_t *slot;
    int slots, slot_bytes;
    bool paired;
    turn at;

    /* By one thread. */
    __device__ __forceinline__ void fill(const uint8_t *from, int bytes)
    {
        uint8_t *to = slot + at.at * slot_bytes;
        uint64_t *bar = &full[at.at];

        bar_wait(&empty[at.at], at.phase ^ 1);
        bar_expect(bar, (unsigned)bytes);
        if (paired) {
            const int half = bytes / 2, mine = (int)(blockIdx.x & 1) * half;

            bulk_go_both(to + mine, from + mine, (unsigned)half, bar);
        } else {
            bulk_go(to, from, (unsigned)bytes, bar);
        }
        at.next(slots);
    }

    /* The others, by all lanes of a warp. */
    __device__ __forceinline__ const uint8_t *take(void) const
    {
        bar_wait(&full[at.at], at.phase);
        return slot + at.at * slot_bytes;
    }

    __device__ __forceinline__ void give(int i) const
    {
        __syncwarp();
        if (!RACECHECKED && threadIdx.x % 32 != 0)
            return;
        if (paired) {
            cluster_arrive(cluster_at(&empty[i], 0));
            cluster_arrive(cluster_at(&empty[i], 1));
        } else {
            bar_arrive(&empty[i]);
        }
    }

    __device__ __forceinline__ void next(void)
    {
        at.next(slots);
    }
};

/* By one thread: keys of a page, then values of the page before. */
template <bool LOW_V>
static __device__ __forceinline__ void fill_ring(wide_ring &in, const attn_args &a, const spread &w, int pages,
                                                 const uint8_t *page, int64_t values_at)
{
    enum { HALVES = 2 / key_slots<LOW_V>() };
    const int k_bytes = HALVES * w.k_step, v_bytes = w.v_halves * w.v_step;
    const int64_t page_bytes = a.kv.n_head * w.head_bytes;

#pragma unroll 1
    for (int b = 0; b <= pages; b++, page += page_bytes) {
#pragma unroll 1
        for (int i = 0; i < a.n_kb * key_slots<LOW_V>() && b < pages; i++)
            in.fill(page + i * k_bytes, k_bytes);
#pragma unroll 1
        for (int i = 0; i < VALUE_SLOTS && b > 0; i++)
            in.fill(page - page_bytes + values_at + i * v_bytes, v_bytes);
    }
}

/* p = a block's 32 dimensions of 64 keys, times the warpgroup's queries, is on its way. */
static __device__ __forceinline__ void ask_scores(float *p, const uint32_t q[2][4], uint64_t keys)
{
    wgmma_begin();
    wgmma<QUARTER>(p, q[0], keys, false);
    wgmma<QUARTER>(p, q[1], keys + 2 * CORES / 16, true);
    wgmma_end();
}

/* s, of a quarter, += it; d: scales of a lane's keys. */
template <bool SCALED> static __device__ __forceinline__ void add_scores(float *s, const float *p, const float *d)
{
#pragma unroll
    for (int i = 0; i < QUARTER / 8; i++) {
        const float2 f = SCALED ? *(const float2 *)(d + i * 8) : make_float2(1.0f, 1.0f);

        s[2 * i] = __fmaf_rn(f.x, __fadd_rn(p[4 * i], p[4 * i + 2]), s[2 * i]);
        s[2 * i + 1] = __fmaf_rn(f.y, __fadd_rn(p[4 * i + 1], p[4 * i + 3]), s[2 * i + 1]);
    }
}

/* Adds a block to the scores of a page: of query g of the warp's, keys 8 i + 2 c + e. from: the lane's part of the
 * queries. meanwhile() is called when the first products are on their way. */
template <bool SCALED, int SLOTS, class F>
static __device__ __forceinline__ void score_block(float s[OP_KV_PAGE / 4], wide_ring &in, const uint4 *from,
                                                   F meanwhile)
{
    enum { S = QUARTER / 4, HALF = SCALES + HALF_PAGE * DIM_BLOCK * 2, NEXT = QUARTER / 8 * CORE / 16 };
    const uint4 q0 = from[0], q1 = from[32];
    const uint32_t two[2][4] = { { q0.x, q0.y, q0.z, q0.w }, { q1.x, q1.y, q1.z, q1.w } };
    const int lane = threadIdx.x % 4 * 2, first = in.at.at;
    const uint8_t *step = in.take();
    float p[2][QUARTER / 2];

    in.next();
    ask_scores(p[0], two, wgmma_plain(step + SCALES, CORES));
    ask_scores(p[1], two, wgmma_plain(step + SCALES, CORES) + NEXT);
    meanwhile();
    wgmma_wait<QUARTER / 2, 1>(p[0]);
    add_scores<SCALED>(s, p[0], (const float *)step + lane);
    const int second = in.at.at;
    const uint8_t *further = SLOTS == 2 ? in.take() : step + HALF;
    ask_scores(p[0], two, wgmma_plain(further + SCALES, CORES));
    wgmma_wait<QUARTER / 2, 1>(p[1]);
    add_scores<SCALED>(s + S, p[1], (const float *)step + QUARTER + lane);
    if (SLOTS == 2)
        in.give(first);
    ask_scores(p[1], two, wgmma_plain(further + SCALES, CORES) + NEXT);
    wgmma_wait<QUARTER / 2, 1>(p[0]);
    add_scores<SCALED>(s + 2 * S, p[0], (const float *)further + lane);
    wgmma_wait<QUARTER / 2>(p[1]);
    add_scores<SCALED>(s + 3 * S, p[1], (const float *)further + QUARTER + lane);
    in.give(SLOTS == 2 ? second : first);
    if (SLOTS == 2)
        in.next();
}

/* Scores of a page. */
template <bool SCALED, int SLOTS, class F>
static __device__ __forceinline__ void wide_scores(float s[OP_KV_PAGE / 4], wide_ring &in, const uint4 *from, int n_kb,
                                                   F meanwhile)
{
#pragma unroll
    for (int i = 0; i < OP_KV_PAGE / 4; i++)
        s[i] = 0.0f;
    score_block<SCALED, SLOTS>(s, in, from, meanwhile);
#pragma unroll 1
    for (int i = 1; i < n_kb; i++)
        score_block<SCALED, SLOTS>(s, in, from + i * 64, [] {});
}

/* Scores that weights are made of, times `factor`; n: positions that the query sees. Returns the largest. */
static __device__ __forceinline__ float wide_top(float s[OP_KV_PAGE / 4], float factor, int n, const struct op_kv &kv,
                                                 int page)
{
    const int c = threadIdx.x % 4;
    float top = -CUDART_INF_F;

    if (kv.window > 0) /* keys outside of it */
#pragma unroll
        for (int i = 0; i < OP_KV_PAGE / 4; i++) {
            const int key = i / 2 * 8 + 2 * c + i % 2;

            if (page + key >= kv.always && key < n - 1 - kv.window)
                s[i] = -CUDART_INF_F;
        }
#pragma unroll
    for (int i = 0; i < OP_KV_PAGE / 4; i++)
        s[i] = __fmul_rn(s[i], factor);
    if (n < OP_KV_PAGE) /* and those after it, whose weights become 0 */
#pragma unroll
        for (int i = 0; i < OP_KV_PAGE / 4; i++)
            if (i / 2 * 8 + 2 * c + i % 2 >= n)
                s[i] = -CUDART_INF_F;
#pragma unroll
    for (int i = 0; i < OP_KV_PAGE / 4; i++)
        top = fmaxf(top, s[i]);
    return fmaxf(quad_max(top), LEAST_SCORE);
}

/* Scores of 16 positions, and of those half a page on, become weights, packed; adds to their sum l. */
static __device__ __forceinline__ void weigh_part(float s[OP_KV_PAGE / 4], int j, float m, float *l)
{
    float sum[2] = { 0.0f, 0.0f };

#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float *w = s + (half * SUMS + 2 * j + e) * 2;
            uint32_t hi, lo;

            w[0] = power2(__fsub_rn(w[0], m));
            w[1] = power2(__fsub_rn(w[1], m));
            sum[e] = __fadd_rn(__fadd_rn(sum[e], w[0]), w[1]);
            planes_of(__fmul_rn(w[0], 1024.0f), __fmul_rn(w[1], 1024.0f), &hi, &lo);
            w[0] = __uint_as_float(hi);
            w[1] = __uint_as_float(lo);
        }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float all = quad_sum(sum[e]);

        *l = j + e == 0 ? all : __fadd_rn(*l, all);
    }
}

/* These to shared memory, at `to` for the warp's queries. */
static __device__ __forceinline__ void put_weights(const float s[OP_KV_PAGE / 4], uint32_t to)
{
    const int lane = threadIdx.x & 31;

    to += lane / 16 * W_PLANE + lane / 8 % 2 * (W_PLANE / 2) + lane % 8 * 16;
#pragma unroll
    for (int j = 0; j < SUMS; j++) {
        const float *w = s + 4 * j;

        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to + j * 2 * W_PLANE),
                     "r"(__float_as_uint(w[0])), "r"(__float_as_uint(w[2])), "r"(__float_as_uint(w[1])),
                     "r"(__float_as_uint(w[3]))
                     : "memory");
    }
}

/* The weighted sum of a slot's values, of all queries, is on its way. */
template <int NV, bool LOW_V>
static __device__ __forceinline__ void ask_values(float o[NV / 2], uint64_t weights, uint64_t values)
{
    wgmma_begin();
    wgmma_both<NV>(o, weights, values, true);
    wgmma_both<NV>(o, weights + W_PLANE / 16, values, true);
    if (LOW_V)
        wgmma_both<NV>(o, weights, values + 2 * CORES / 16, true);
    wgmma_end();
}

/* o = the weighted sum of a page's values; mine: where the warpgroup's dimensions begin in a slot. Meanwhile the scores
 * s of another page become weights, if WEIGHTS: top() makes of them what is exponentiated. Returns their sum. */
template <int NV, bool LOW_V, bool WEIGHTS, class F>
static __device__ __forceinline__ float wide_values(float o[NV / 2], wide_ring &in, const uint8_t *weights, int mine,
                                                    float s[OP_KV_PAGE / 4], F top)
{
    enum { AHEAD = LOW_V ? 2 : 4 /* slots under way */ };
    const uint64_t w = wgmma_plain(weights, W_PLANE / 2);
    turn out = in.at;
    float m = 0.0f, l = 0.0f;
    auto ask = [&](int j) {
        ask_values<NV, LOW_V>(o, w + j * (2 * W_PLANE / 16), wgmma_plain(in.take() + mine, CORES));
        in.next();
    };

#pragma unroll
    for (int i = 0; i < NV / 2; i++)
        o[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        ask(j);
    if (WEIGHTS)
        m = top();
#pragma unroll
    for (int j = 0; j < VALUE_SLOTS; j++) {
        if (WEIGHTS && j % 2 == 0)
            weigh_part(s, j / 2, m, &l);
        if (j + AHEAD <= VALUE_SLOTS)
            wgmma_left<AHEAD - 1>();
        else
            wgmma_wait<NV / 2>(o);
        in.give(out.at);
        out.next(in.slots);
        if (j + AHEAD < VALUE_SLOTS)
            ask(j + AHEAD);
    }
    return l;
}

/* grid: tile of rows, KV head * part * slab, sequence. NV: dimensions of values that a warpgroup has; SCALED: blocks of
 * keys have scales; LOW_V: values have two planes. */
template <int NV, bool SCALED, bool LOW_V>
__global__ void __launch_bounds__(WIDE_THREADS, 1) attend_wide(const __grid_constant__ rows_args t, bool paired)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) uint8_t shared[];
    const attn_args &a = t.a;
    const spread &w = t.w;
    const struct op_kv &kv = a.kv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;

    only_wait_for_inputs();
    const int slab = blockIdx.y % a.slabs, h = blockIdx.y / a.slabs / a.parts,
              g0 = blockIdx.y / a.slabs % a.parts * HEADS;
    const op_seq &s = a.r.seq[blockIdx.z];
    const int rows = WIDE / a.heads, tile = (int)(gridDim.x - 1 - blockIdx.x), first = tile * rows;
    const int last = min((paired ? tile | 1 : tile) * rows + rows, s.n) - 1; /* of the rows of the cluster */

    if (last < (paired ? tile & ~1 : tile) * rows)
        return;
    const int *pos = a.r.pos + s.row, pages = pos[last] / OP_KV_PAGE + 1;
    if (pages <= w.first)
        return;
    const wide_walk walk = { w.first, min(pages, w.first + w.pages) };
    const int heads = min(a.group - g0, a.heads);
    const int64_t head = (int64_t)h * a.group + g0;
    uint8_t *q = shared + QUERIES_AT, *weights = q + WIDE / QUERY_TILE * a.n_kb * 1024;
    wide_ring in;

    in.full = (uint64_t *)shared;
    in.empty = in.full + RING;
    in.slot = weights + W_BYTES;
    in.slots = t.slots;
    in.slot_bytes = t.slot_bytes;
    in.paired = paired;
    in.at = turn{ 0, 0 };
    uint64_t *may_write = in.full + BARS, *there = may_write + 1;
    float *tops = (float *)(in.slot + t.slots * t.slot_bytes), *sums = tops + WIDE, *factors = sums + WIDE;

    if (threadIdx.x == 0) {
        for (int i = 0; i < t.slots; i++) {
            bar_init(&in.full[i], 1);
            bar_init(&in.empty[i], (paired ? 2 : 1) * WIDE_WARPS * WARP_DONE);
        }
        bar_init(may_write, WIDE_WARPS * WARP_DONE);
        bar_init(there, WIDE_WARPS * WARP_DONE);
        bar_init_done();
    }
    for (int i = warp; i < WIDE; i += WIDE_THREADS / 32) {
        const int r = i / a.heads, e = i % a.heads;
        const float *from =
            first + r < s.n && e < heads ? a.q + (s.row + first + r) * a.qs + (head + e) * kv.dim_k : NULL;
        const float f = put_query(q + i / QUERY_TILE * a.n_kb * 1024, from, i % QUERY_TILE, kv.dim_k, a.n_kb, kv.type_k,
                                  a.scale, false);

        if (lane == 0)
            factors[i] = f;
    }
    __syncthreads();
    if (paired) { /* both blocks have barriers */
        cluster_given();
        cluster_wait();
    }
    if (warp >= WIDE_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == WIDE_WARPS * 32)
            fill_ring<LOW_V>(in, a, w, walk.end - walk.first, w.to + blockIdx.z * w.seq_bytes + h * w.head_bytes,
                             w.values_at + (int64_t)slab * 16 * w.v_halves * w.v_step);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int group = warp / 4, mine = warp % 4 * 16; /* queries of the warp for values */
        const int seen = pos[min(first + (warp * QUERY_TILE + g) / a.heads, s.n - 1)] + 1;
        const float factor = factors[warp * QUERY_TILE + g];
        float total[NV / 2], tm[2], tl[2];
        int n[2], page_phase = 0;

        auto dim = [&](int i) { /* of o[i] */
                                const int x = i / 4;

                                return slab * SLAB + (group * (NV / DIM_BLOCK) + x / 4) * DIM_BLOCK +
                                       value_dim(kv.type_v, x % 4, 2 * c + i % 2);
        };
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int at = mine + e * 8 + g, r = min(first + at / a.heads, s.n - 1), k = min(at % a.heads, heads - 1);
            const float *from = w.sums + ((s.row + r) * kv.n_head * a.group + head + k) * 2;

            n[e] = pos[r] + 1;
            tm[e] = -CUDART_INF_F;
            tl[e] = 0.0f;
#pragma unroll
            for (int i = 0; i < NV / 2; i++)
                if (i / 2 % 2 == e)
                    total[i] = 0.0f;
            if (w.first == 0)
                continue;
            tm[e] = from[0];
            tl[e] = from[1];
#pragma unroll
            for (int i = 0; i < NV / 2; i++)
                if (i / 2 % 2 == e && dim(i) < kv.dim_v)
                    total[i] = a.y[(s.row + r) * a.ys + (head + k) * kv.dim_v + dim(i)];
        }
        enum { SLOTS = key_slots<LOW_V>() };
        const uint4 *own = (const uint4 *)(q + warp * a.n_kb * 1024) + lane;
        const int dims = NV == 128 ? group * w.v_step : group * (NV / 8 * CORE);
        float o[NV / 2], m[2], l[2];
        int due = INT_MAX; /* the page whose sums these are, to be added */
        auto add_page = [&] {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const bool sees = n[e] > due;
                float keep, take;

                merge(tm[e], m[e], &keep, &take);
                tl[e] = sees ? __fmaf_rn(tl[e], keep, __fmul_rn(l[e], take)) : tl[e];
                tm[e] = sees ? fmaxf(tm[e], m[e]) : tm[e];
#pragma unroll
                for (int i = 0; i < NV / 2; i++)
                    if (i / 2 % 2 == e)
                        total[i] = sees ? __fmaf_rn(total[i], keep, __fmul_rn(o[i], take)) : total[i];
            }
        };
        auto weights_come = [&] {
            bar_wait(there, page_phase);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                m[e] = tops[mine + e * 8 + g];
                l[e] = sums[mine + e * 8 + g];
            }
        };

#pragma unroll
        for (int i = 0; i < NV / 2; i++)
            o[i] = 0.0f;
        m[0] = m[1] = l[0] = l[1] = 0.0f;
        float score[OP_KV_PAGE / 4], top, sum = 0.0f;
        int page = walk.first * OP_KV_PAGE;
        auto find_top = [&] { return top = wide_top(score, factor, seen - page, kv, page); };
        auto give_weights = [&] {
            put_weights(score, shared_at(weights) + warp * CORE);
            if (c == 0) {
                tops[warp * QUERY_TILE + g] = top;
                sums[warp * QUERY_TILE + g] = sum;
            }
            proxy_fence();
            warp_done(there);
        };

        /* scores of a page; its weights while values of the page before are multiplied; what these gave is added while
         * the next scores are on their way */
        wide_scores<SCALED, SLOTS>(score, in, own, a.n_kb, [] {});
        find_top();
#pragma unroll
        for (int i = 0; i < SUMS / 2; i++)
            weigh_part(score, i, top, &sum);
        give_weights();
#pragma unroll 1
        for (int left = walk.end - walk.first - 1; left > 0; left--, page_phase ^= 1) {
            page += OP_KV_PAGE;
            wide_scores<SCALED, SLOTS>(score, in, own, a.n_kb, [] {});
            weights_come();
            sum = wide_values<NV, LOW_V, true>(o, in, weights, dims, score, find_top);
            due = page - OP_KV_PAGE;
            warp_done(may_write);
            add_page();
            bar_wait(may_write, page_phase);
            give_weights();
        }
        weights_come();
        (void)wide_values<NV, LOW_V, false>(o, in, weights, dims, NULL, [] { return 0.0f; });
        due = page;
        add_page();
        const bool whole = pages <= w.first + w.pages;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int at = mine + e * 8 + g, r = first + at / a.heads, k = at % a.heads;

            if (r >= s.n || k >= heads)
                continue;
            float *y = a.y + (s.row + r) * a.ys + (head + k) * kv.dim_v;
            float *to = w.sums + ((s.row + r) * kv.n_head * a.group + head + k) * 2;
            const float all = __fmul_rn(tl[e], __fmul_rn(1024.0f, value_scale(kv.type_v)));

            if (!whole && group == 0 && c == 0 && slab == 0) {
                to[0] = tm[e];
                to[1] = tl[e];
            }
#pragma unroll
            for (int i = 0; i < NV / 2; i++)
                if (i / 2 % 2 == e && dim(i) < kv.dim_v)
                    y[dim(i)] = whole ? __fdiv_rn(total[i], all) : total[i];
        }
    }
    if (paired) { /* the other block may still give to this one */
        cluster_given();
        cluster_wait();
    }
#endif
}
#endif
