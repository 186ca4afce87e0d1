/* SPDX-License-Identifier: Apache-2.0 */
/* few_moe.cu - a mixture of experts for 2 to 16 rows of activations.
 *
 * Few experts are used by two rows, so a warp multiplies with the matrix of one expert and one row of activations (a
 * pair), as one row's products do (row.cuh), and rows that share an expert share its reads in the second-level cache.
 * Warps do not wait for each other within their products: a warp takes two strips of 16 rows side by side, all of
 * their blocks, and adds the segments of these 32 rows itself, a lane a row. For first products the strips are of gate
 * and up, for second ones neighbours. The sums are those of product.cuh, the experts' those of mix_experts. */
#include "kernels/bulk.cuh"
#include "kernels/choose.cuh"
#include "kernels/few.cuh"
#include "kernels/row.cuh"

enum { UP_WARPS = 8, DOWN_WARPS = 9, BLOCKS = 2 /* a multiprocessor */, BLOCK_SMEM = 110 << 10, OTHER_SMEM = 4 << 10 };
enum { MOST_STRIPS = 16, UNIT = 2 * STRIP, V_BYTES = V_SEGMENT * (int)sizeof(float) };

static __device__ __forceinline__ uint32_t shared_u32(uint32_t at)
{
    uint32_t v;

    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

static __device__ __forceinline__ void put_shared(uint32_t at, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

/* A segment of a strip in shared memory. It comes in pieces of 16 bytes, which where rows do not begin at such may be
 * one more; rows are so far apart that four, 32 bytes each, meet in no bank. */
template <int TYPE> struct stage_of {
    enum {
        BYTES = 2 * frag<TYPE>::BLOCK, LOOSE = TYPE == QUANT_q8_0 || frag<TYPE>::BLOCK % 16 != 0,
        PIECES = (BYTES + (LOOSE ? 15 : 0) + 15) / 16, PITCH = (PIECES * 16 + 31) / 64 * 64 + 32, SIZE = STRIP * PITCH,
    };
};

/* Where a lane finds its pieces from the segment's first on, and where they go. */
template <int TYPE> struct lane_pieces {
    enum { N = (STRIP * stage_of<TYPE>::PIECES + 31) / 32 };
    uint32_t from[N], to[N];
};

template <int TYPE>
static __device__ __forceinline__ void find_pieces(lane_pieces<TYPE> &p, int row_bytes)
{
    typedef stage_of<TYPE> S;

#pragma unroll
    for (int i = 0; i < lane_pieces<TYPE>::N; i++) {
        const int at = i * 32 + threadIdx.x % 32, row = at / S::PIECES, piece = at % S::PIECES;

        p.from[i] = row * row_bytes + piece * 16;
        p.to[i] = row * S::PITCH + piece * 16;
        if (!S::LOOSE)
            asm volatile("" : "+r"(p.from[i]));
    }
}

/* By a warp, which has to wait for its group of copies. Of the last segment of a row there may be less. */
template <int TYPE>
static __device__ __forceinline__ void fetch_stage(uint8_t *to, const uint8_t *w, int row_bytes, int segment,
                                                   const lane_pieces<TYPE> &p)
{
    typedef stage_of<TYPE> S;
    const int lane = threadIdx.x & 31, first = segment * S::BYTES;

    w += S::LOOSE ? 0 : first;
    if (S::LOOSE || first + S::BYTES > row_bytes) {
#pragma unroll 2
        for (int at = lane; at < STRIP * S::PIECES; at += 32) {
            const int row = at / S::PIECES, piece = at % S::PIECES * 16;
            const int from = row * row_bytes + (S::LOOSE ? first : 0), off = (from & ~15) - row * row_bytes + piece;

            if (off + (S::LOOSE ? 0 : first) < row_bytes)
                copy16(to + row * S::PITCH + piece, w + row * row_bytes + off);
        }
    } else {
#pragma unroll
        for (int i = 0; i < lane_pieces<TYPE>::N; i++)
            if (STRIP * S::PIECES % 32 == 0 || i * 32 + lane < STRIP * S::PIECES)
                copy16(to + p.to[i], w + p.from[i]);
    }
    copy_end();
}

/* What a lane finds once: its word of a block of activations and the sum of q of its unit, its place among values (all
 * in shared memory), its column. The compiler is kept from finding it again each time. */
struct lane_own {
    uint32_t x, all, v, c;
};

template <int TYPE>
static __device__ __forceinline__ lane_own find_own(const uint8_t *x, const float *v)
{
    typedef frag<TYPE> F;
    const uint32_t lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, mine = F::HALVES ? g / 4 : g / 2;
    const uint32_t out = F::HALVES ? c / 2 : c, half = F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8;
    lane_own o = { shared_at(x) + mine / 2 * X_PAIR + mine % 2 * X_UNIT + g % 2 * 4 + half,
                   shared_at(x) + X_SUMS + out / 2 * X_PAIR + out % 2 * 8, shared_at(v) + (g * V_PITCH + out) * 4, c };

    asm volatile("" : "+r"(o.x), "+r"(o.all), "+r"(o.v), "+r"(o.c));
    return o;
}

/* Values V of the units of a block, of which so many exist; x, v: where it begins, from the first block. As
 * strip_times(). */
template <int TYPE>
static __device__ __forceinline__ void block_values(const strip<TYPE> &s, const lane_own &o, uint32_t x, uint32_t v,
                                                    int units, const near_tables *tab)
{
    typedef frag<TYPE> F;
    enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int g = (threadIdx.x & 31) / 4, c = (int)o.c, mine = F::HALVES ? g / 4 : g / 2, out = F::HALVES ? c / 2 : c;
    const bool right = !F::HALVES || g / 2 % 2 == c / 2;
    uint32_t xs[GROUPS][2];
    float all[GROUPS];
    int sum[GROUPS][4];

    if (WHOLE_BLOCKS && units <= 0) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            put_shared(o.v + v + (i / 2 * 8 * V_PITCH + i % 2 * 4) * 4, 0.0f);
        return;
    }
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const int unit = j * GROUP;
        const bool in = right && (WHOLE_BLOCKS || unit + mine < units);
        const uint32_t at = o.x + x + unit / 2 * X_PAIR;

        xs[j][0] = in ? shared_u32(at) : 0u;
        xs[j][1] = in ? shared_u32(at + (F::APART ? 8 : 16)) : 0u;
        all[j] = F::MIN ? __uint_as_float(shared_u32(o.all + x + unit / 2 * X_PAIR)) : 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[j][i] = WHOLE;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++)
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            uint32_t w0[2], w8[2];

            F::words(s.r0, j * GROUP + i, c, w0, tab);
            F::words(s.r8, j * GROUP + i, c, w8, tab);
            mma_row<F::SIGNED>(sum[j], w0, w8, mine == i ? xs[j][0] : 0u, mine == i ? xs[j][1] : 0u);
        }
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const bool there = WHOLE_BLOCKS || j * GROUP + out < units;

#pragma unroll
        for (int h = 0; h < 2; h++) {
            float i = whole(sum[j][2 * h], sum[j][2 * h + 1]), d, m, value;

            F::scale(h == 0 ? s.r0 : s.r8, j, c, d, m);
            value = __fmul_rn(d, i);
            if (F::MIN)
                value = __fmaf_rn(-m, all[j], value);
            if (F::HALVES)
                value = __fmaf_rn(d, i, __shfl_xor_sync(0xffffffffu, value, 1)); /* odd c: the first half, then this */
            if (!F::HALVES || c % 2 == 1)
                put_shared(o.v + v + (h * 8 * V_PITCH + j * GROUP) * 4, there ? value : 0.0f);
        }
    }
}

static __host__ __device__ inline int row_bytes_in(int k)
{
    return x_pairs(k) * X_PAIR + (x_pairs(k) + 7) / 8 * 64; /* scales, too */
}

/* A rounded row, which some warps share, and a warp's values and two stages. */
struct room {
    uint8_t  *x, *stage;
    float    *v;
    uint64_t *bar;
    int       phase;
};

template <int TYPE>
static __host__ __device__ inline int warp_bytes(void)
{
    return V_BYTES + 2 * stage_of<TYPE>::SIZE;
}

/* Rooms of warps of which `sharers` have a row together. */
template <int TYPE>
static __device__ __forceinline__ room make_room(uint8_t *shared, uint64_t *bar, int k, int sharers)
{
    const int warp = threadIdx.x / 32, rows = blockDim.x / 32 / sharers;
    uint8_t *own = shared + rows * row_bytes_in(k) + warp * warp_bytes<TYPE>();
    const room r = { shared + warp / sharers * row_bytes_in(k), own + V_BYTES, (float *)own, bar + warp / sharers, 0 };

    if (threadIdx.x % (sharers * 32) == 0) {
        bar_init(r.bar, 1);
        bar_init_done();
    }
    __syncthreads();
    return r;
}

/* By one warp. */
static __device__ __forceinline__ void fetch_row(const room &r, const uint8_t *x, int k)
{
    if (threadIdx.x % 32 == 0)
        bulk_copy(r.x, x, (unsigned)row_bytes_in(k), r.bar);
    __syncwarp();
}

static __device__ __forceinline__ void row_there(room &r)
{
    bar_wait(r.bar, r.phase);
    r.phase ^= 1;
}

/* Sums of the 16 rows of a strip over a segment, which is in a stage: lanes l and 16 + l get that of row l. */
template <int TYPE>
static __device__ __forceinline__ float segment_times(const uint8_t *stage, int row_bytes, int segment,
                                                      const lane_own &o, int k, const room &r, const near_tables *tab)
{
    typedef stage_of<TYPE> S;
    const int lane = threadIdx.x & 31, g = lane / 4, units = k / 32 - segment * 16, from = segment * S::BYTES;
    const uint8_t *r0 = stage + g * S::PITCH + (S::LOOSE ? (g * row_bytes + from) & 15 : 0);
    const uint8_t *r8 = stage + (g + 8) * S::PITCH + (S::LOOSE ? ((g + 8) * row_bytes + from) & 15 : 0);

#pragma unroll 1
    for (int b = 0; b < 2; b++) {
        strip<TYPE> s;

        frag<TYPE>::template load<true>(s.r0, r0 + b * frag<TYPE>::BLOCK, units - b * 8, (int)o.c);
        frag<TYPE>::template load<true>(s.r8, r8 + b * frag<TYPE>::BLOCK, units - b * 8, (int)o.c);
        block_values<TYPE>(s, o, segment * (8 * X_PAIR) + b * (4 * X_PAIR), b * 8 * 4, units - b * 8, tab);
    }
    __syncwarp();
    const float sum = segment_sum(r.v + lane % STRIP * V_PITCH, x_scales(r.x, x_pairs(k)) + segment * 16, false);
    __syncwarp();
    return sum;
}

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

/* ---- first products ---- */

struct up_args {
    struct expert_matrix m[2]; /* gate and up, or twice up */
    const int           *expert, *slot;
    const uint8_t       *x;
    uint8_t             *rounded; /* act(gate) up, or act(up), of a pair */
    int                  pairs, n_used, k, ff, how;
    bool                 gated;
    int                  ways, each; /* set by the launch: warps that have segments of a strip; tasks of a block */
    /* the shared expert's first products, [row]; NULL: it has none; rounded */
    const float         *sh_gate, *sh_up;
    uint8_t             *sh_rounded;
    int64_t              sh_stride;
    int                  sh_ff, rows;
    const struct tables *tab;
};

/* act(gate) up of the shared expert, rounded: a unit a warp. */
static __device__ __forceinline__ void round_shared(const up_args &a)
{
    const int units = a.sh_ff / UNIT, warps = blockDim.x / 32;

#pragma unroll 1
    for (int i = blockIdx.x * warps + threadIdx.x / 32; i < a.rows * units; i += gridDim.x * warps) {
        const int row = i / units, unit = i % units;
        const int64_t at = row * a.sh_stride + unit * UNIT + threadIdx.x % 32;

        const float v = activated(OP_SILU, a.sh_gate[at], a.sh_up[at]);

        round_unit(a.sh_rounded + row * x_row_bytes(a.sh_ff), units, v, unit, unit_top(v), false);
    }
}

/* A task is 32 rows of a pair. A warp of it has some segments of a strip of gate and of up, or of two strips of up. */
struct up_task {
    int            pair, unit, matrix;
    const uint8_t *w[2];
};

static __device__ __forceinline__ up_task find_up(const up_args &a, int i, int side)
{
    const int units = a.ff / UNIT, pair = i / units, unit = i - pair * units;
    const int matrix = matrix_of(a.slot, a.expert[pair]);
    const int r0 = unit * UNIT + side * STRIP, r1 = a.gated ? r0 : r0 + STRIP, its = max(matrix, 0);

    return { pair, unit, matrix,
             { a.m[0].w + its * a.m[0].expert_bytes + r0 * a.m[0].row_bytes,
               a.m[1].w + its * a.m[1].expert_bytes + r1 * a.m[1].row_bytes } };
}

/* The sums of a task over its segments: 32 numbers of each segment and side. */
static __device__ __forceinline__ void finish_up(const up_args &a, const up_task &t, const float *parts)
{
    const int lane = threadIdx.x & 31, sides = 1 + a.gated, segments = row_segments(a.k);
    float v = 0.0f, up = a.gated ? 0.0f : 1.0f;

    parts += a.gated ? lane / STRIP * UNIT + lane % STRIP : lane;
#pragma unroll 4
    for (int i = 0; i < segments; i++, parts += sides * UNIT) {
        v = __fadd_rn(v, parts[0]);
        up = a.gated ? __fadd_rn(up, parts[STRIP]) : up;
    }
    const float y = activated(a.how, v, up);

    round_unit(a.rounded + t.pair * x_row_bytes(a.ff), a.ff / UNIT, y, t.unit, unit_top(y), false);
}

template <int TYPE>
__global__ void __launch_bounds__(UP_WARPS * 32, BLOCKS) up_pairs(const __grid_constant__ up_args a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ uint64_t bar[UP_WARPS];
    __shared__ near_tables tables;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, sides = 1 + a.gated, group = sides * a.ways;
    const int mine = warp / group, side = warp % group / a.ways, way = warp % a.ways, at_once = blockDim.x / 32 / group;
    const int segments = row_segments(a.k), end = min((blockIdx.x + 1) * a.each, a.pairs * (a.ff / UNIT));
    const int row_bytes = (int)a.m[0].row_bytes;
    bring_tables<TYPE>(tables, a.tab);
    room r = make_room<TYPE>(shared, bar, a.k, group);
    float *parts = (float *)(shared + at_once * row_bytes_in(a.k) + blockDim.x / 32 * warp_bytes<TYPE>()) +
                   mine * 2 * segments * sides * UNIT;
    const lane_own o = find_own<TYPE>(r.x, r.v);
    lane_pieces<TYPE> pieces;
    int have = -1, turn = 0, n = 0; /* n: stages so far */

    find_pieces<TYPE>(pieces, row_bytes);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    let_next_begin(); /* it may read the choice */
#pragma unroll 1
    for (int i = blockIdx.x * a.each + mine; i < end; i += at_once, turn++) {
        const up_task t = find_up(a, i, side), next = find_up(a, min(i + at_once, end - 1), side);
        float *to = parts + turn % 2 * segments * sides * UNIT;

        if (turn == 0)
            fetch_stage<TYPE>(r.stage, t.w[0], row_bytes, way, pieces);
        if (t.pair / a.n_used != have) {
            have = t.pair / a.n_used;
            if (way + side == 0)
                fetch_row(r, a.x + have * x_row_bytes(a.k), a.k);
            row_there(r);
        }
#pragma unroll 1
        for (int m = 0, q = way; m < 2; n++) {
            const bool last = q + a.ways >= segments;
            const int now = q, of = m;

            m += last;
            q = last ? way : q + a.ways;
            fetch_stage<TYPE>(r.stage + (n + 1) % 2 * stage_of<TYPE>::SIZE,
                              m == 0 ? t.w[0] : m == 1 ? t.w[1] : next.w[0], row_bytes, q, pieces);
            copy_wait<1>();
            __syncwarp();
            const float v =
                segment_times<TYPE>(r.stage + n % 2 * stage_of<TYPE>::SIZE, row_bytes, now, o, a.k, r, &tables);
            if (lane < STRIP)
                to[((now * sides + side) * 2 + of) * STRIP + lane] = v;
        }
        asm volatile("barrier.sync.aligned %0, %1;" ::"r"(1 + mine), "r"(group * 32) : "memory");
        if (warp % group == turn % group && t.matrix >= 0)
            finish_up(a, t, to);
    }
    copy_wait<0>();
    if (a.sh_gate != NULL)
        round_shared(a);
}

/* ---- second products ---- */

struct down_args {
    struct expert_matrix m, sh; /* sh.w NULL: the shared expert is not one of these */
    const int           *expert, *slot;
    const uint8_t       *x, *sh_x; /* rounded, of a pair; of a row */
    int                  n_used, k, sh_k, n, strips; /* strips: of a block */
    bool                 alike;    /* pairs of a row have the same x, its own */
    float               *out;      /* a pair's; or NULL: */
    int64_t              os;
    const float         *weight, *shared, *open; /* shared: its output; open NULL: it counts fully */
    float               *y, *res;
    int64_t              ws, ss, ps, ys, rs;
    float                scale;
    struct hand_over     hand; /* f NULL: no pair is the host's */
    const struct tables *tab;
};

/* What the sums of experts are multiplied with, and what the residual stream has where a thread adds first; read before
 * the products, they are there when they are. */
static __device__ __forceinline__ float before_mix(const down_args &a, float *weights)
{
    const int many = a.strips * STRIP, row = blockIdx.y, at = blockIdx.x * many + threadIdx.x;

    for (int e = threadIdx.x; e <= a.n_used; e += blockDim.x)
        weights[e] = e < a.n_used     ? a.weight[row * a.ws + e]
                     : a.open != NULL ? sigmoid(a.open[row * a.ps])
                                      : 1.0f;
    return a.res != NULL && (int)threadIdx.x < many && at < a.n ? a.res[row * a.rs + at] : 0.0f;
}

/* The sums of the host's pairs, by a whole block. The first block waits for those of any row: the next hand-over does not
 * begin before this has ended. */
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
        if (a.sh.w != NULL || a.shared != NULL)
            sum = __fmaf_rn(weights[a.n_used],
                            a.sh.w != NULL ? sums[a.n_used * many + i] : a.shared[row * a.ss + at], sum);
        a.y[row * a.ys + at] = sum;
        if (a.res != NULL)
            a.res[row * a.rs + at] =
                __fmaf_rn(a.scale, sum, i == (int)threadIdx.x ? res : a.res[row * a.rs + at]);
    }
}

/* grid: so many strips of the matrices, row of activations. A warp has an expert. */
template <int TYPE>
__global__ void __launch_bounds__(DOWN_WARPS * 32, BLOCKS) down_pairs(const __grid_constant__ down_args a)
{
    typedef stage_of<TYPE> S;
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ uint64_t bar[DOWN_WARPS];
    __shared__ near_tables tables;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32, row = blockIdx.y;
    const int most = max(a.k, a.sh_k), r0 = blockIdx.x * a.strips * STRIP, strips = min(a.strips, (a.n - r0) / STRIP);
    bring_tables<TYPE>(tables, a.tab);
    room r = make_room<TYPE>(shared, bar, most, 1);
    float *sums = (float *)(shared + warps * (row_bytes_in(most) + warp_bytes<TYPE>()));
    float *weights = sums + (a.n_used + 1) * a.strips * STRIP, res = 0.0f;
    const lane_own o = find_own<TYPE>(r.x, r.v);

    let_next_begin();
#pragma unroll 1
    for (int e = warp; e < a.n_used + (a.sh.w != NULL); e += warps) {
        const bool routed = e < a.n_used;
        const int pair = row * a.n_used + e, k = routed ? a.k : a.sh_k, segments = row_segments(k);
        const expert_matrix &m = routed ? a.m : a.sh;
        /* the choice was there before the launch before this one let it begin */
        const int matrix = routed && a.expert != NULL ? matrix_of(a.slot, __ldcg(a.expert + pair)) : 0;
        const int row_bytes = (int)m.row_bytes;
        const uint8_t *w = m.w + max(matrix, 0) * m.expert_bytes + r0 * m.row_bytes;
        lane_pieces<TYPE> pieces;
        float v = 0.0f;

        find_pieces<TYPE>(pieces, row_bytes);
        prefetch(w, strips * STRIP * row_bytes, lane, 32);
        fetch_stage<TYPE>(r.stage, w, row_bytes, 0, pieces);
        if (e == warp) {
            asm volatile("griddepcontrol.wait;" ::: "memory");
            res = a.out == NULL ? before_mix(a, weights) : 0.0f;
        }
        fetch_row(r, (routed ? a.x : a.sh_x) + (routed && !a.alike ? pair : row) * x_row_bytes(k), k);
        row_there(r);
#pragma unroll 1
        for (int n = 0, i = 0, q = 0; i < strips; n++) {
            const bool last = q + 1 == segments;
            const int now = q, of = i;

            i += last;
            q = last ? 0 : q + 1;
            fetch_stage<TYPE>(r.stage + (n + 1) % 2 * S::SIZE, w + min(i, strips - 1) * STRIP * row_bytes, row_bytes,
                              q, pieces);
            copy_wait<1>();
            __syncwarp();
            v = __fadd_rn(v, segment_times<TYPE>(r.stage + n % 2 * S::SIZE, row_bytes, now, o, k, r, &tables));
            if (!last)
                continue;
            if (a.out == NULL && lane < STRIP)
                sums[(e * a.strips + of) * STRIP + lane] = v;
            else if (lane < STRIP && matrix >= 0)
                a.out[pair * a.os + r0 + of * STRIP + lane] = v;
            v = 0.0f;
        }
        copy_wait<0>();
    }
    if (a.out != NULL)
        return;
    if (a.hand.f != NULL)
        bring_pairs(a, sums);
    __syncthreads();
    mix_pairs(a, sums, weights, res);
}

/* ---- the choice ---- */

enum { CHOICE_EXPERTS = 512, CHOICE_USED = 10 };

struct choice_args {
    const float    *logits;
    int64_t         ls, ws;
    struct op_route r;
    int            *expert;
    float          *weight;
    int             rows;
};

/* A row's choice, by a warp, in the order of operations of route.cu; a lane has EACH experts. */
template <int EACH>
static __device__ __forceinline__ void choose_row(const choice_args &a, int row, int *expert)
{
    const struct op_route &r = a.r;
    const int lane = threadIdx.x & 31, n = r.n_expert;
    const float *logits = a.logits + row * a.ls;
    float v[EACH], top = -CUDART_INF_F, divisor = 0.0f, sum = 0.0f, p = 0.0f;
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = lane + 32 * j < n ? logits[lane + 32 * j] : -CUDART_INF_F;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int e = lane + 32 * j;
        const float score = r.sigmoid ? sigmoid(v[j]) : v[j];

        top = fmaxf(top, v[j]);
        key[j] = e < n ? key_of(score + (r.bias == NULL ? 0.0f : r.bias[e])) : 0;
    }
    pick_best<EACH>(key, r.n_used, expert);
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
    if (!r.sigmoid) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (lane + 32 * j < n)
                divisor += expf(v[j] - top);
        divisor = warp_sum(divisor);
    }
    __syncwarp();
    if (lane < r.n_used) {
        const float own = logits[expert[lane]];

        p = r.sigmoid ? sigmoid(own) : __fdiv_rn(expf(own - top), divisor);
    }
    for (int k = 0; k < r.n_used; k++)
        sum += __shfl_sync(0xffffffffu, p, k);
    p = r.normalise ? __fdiv_rn(p, fmaxf(sum, 0x1p-14f)) : p;
    if (lane < r.n_used) {
        a.weight[row * a.ws + lane] = __fmul_rn(p, r.scale);
        a.expert[row * r.n_used + lane] = expert[lane];
    }
}

/* grid: rows; a warp */
__global__ void __launch_bounds__(32) choose_rows(const __grid_constant__ choice_args a)
{
    __shared__ int expert[CHOICE_USED];

    wait_for_inputs();
    if (a.r.n_expert <= CHOICE_EXPERTS / 2)
        choose_row<CHOICE_EXPERTS / 64>(a, blockIdx.x, expert);
    else
        choose_row<CHOICE_EXPERTS / 32>(a, blockIdx.x, expert);
}

/* ---- host ---- */

/* Working memory, cut up; shared: the shared expert's rounded rows, no longer than those of x; gate and hid where the
 * formats of both differ. */
struct space {
    uint8_t *xq, *hq, *shared;
    float   *gate, *hid;
    size_t   bytes;
};

static bool gates_alike(const struct op_moe &m)
{
    return m.gate.data == NULL || m.gate.type == m.up.type;
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
    if (!gates_alike(a)) {
        s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
        s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    }
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

/* What a block can have beside what its kernel always takes. */
static size_t most_smem(struct cuda *c)
{
    return (size_t)cuda_attn_smem(c) - OTHER_SMEM;
}

template <int TYPE>
static void launch_up_of(struct cuda *c, struct up_args *a)
{
    const int sides = 1 + a->gated, segments = row_segments(a->k), tasks = a->pairs * (a->ff / UNIT);
    const size_t sums = 2 * (size_t)(segments * sides * UNIT) * sizeof(float);
    const auto bytes_of = [&](int ways) {
        return row_bytes_in(a->k) + sums + (size_t)sides * ways * warp_bytes<TYPE>();
    };

    while (a->ways > 1 && bytes_of(a->ways) > most_smem(c))
        a->ways /= 2;
    const int group = sides * a->ways;
    const size_t bytes = bytes_of(a->ways), share = BLOCK_SMEM < most_smem(c) ? (size_t)BLOCK_SMEM : most_smem(c);
    int at_once = UP_WARPS / group;

    while (at_once > 1 && at_once * bytes > share)
        at_once--;
    a->each = (int)round_up((size_t)ceil_div(tasks, (at_once * bytes > share ? 1 : BLOCKS) * c->sms), (size_t)at_once);
    launch_early(c, "up_pairs", up_pairs<TYPE>, dim3((unsigned)ceil_div(tasks, a->each)),
                 (unsigned)(at_once * group * 32), at_once * bytes, *a);
}

static void launch_up(struct cuda *c, struct up_args *a)
{
    const int segments = row_segments(a->k);

    a->ways = segments < 2 ? 1 : segments < 4 ? 2 : 4;
    a->tab = c->tab;
    switch (a->m[0].type) {
#define X(name) \
    case QUANT_##name: launch_up_of<QUANT_##name>(c, a); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

template <int TYPE>
static void launch_down_of(struct cuda *c, struct down_args *a, int rows)
{
    const int experts = a->n_used + (a->sh.w != NULL), k = a->sh_k > a->k ? a->sh_k : a->k, all = a->n / STRIP;
    const size_t bytes = (size_t)row_bytes_in(k) + warp_bytes<TYPE>();
    size_t warps = (size_t)(experts < DOWN_WARPS ? experts : DOWN_WARPS), sums = 0;

    a->strips = 1;
    while (a->strips < MOST_STRIPS && rows * ceil_div(all, a->strips) > BLOCKS * c->sms)
        a->strips++;
    if (a->out == NULL)
        sums = (size_t)(a->n_used + 1) * (size_t)(a->strips * STRIP + 1) * sizeof(float);
    while (warps > 1 && warps * bytes + sums > most_smem(c))
        warps--;
    launch_early(c, "down_pairs", down_pairs<TYPE>, dim3((unsigned)ceil_div(all, a->strips), (unsigned)rows),
                 (unsigned)warps * 32, warps * bytes + sums, *a);
}

static void launch_down(struct cuda *c, struct down_args *a, int rows)
{
    a->tab = c->tab;
    switch (a->m.type) {
#define X(name) \
    case QUANT_##name: launch_down_of<QUANT_##name>(c, a, rows); break;
        CUDA_COMMON(X)
#undef X
    default: break;
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

    d.m = matrix(w);
    d.expert = m.expert;
    d.slot = m.slot;
    d.n_used = m.n_used;
    d.k = (int)w.ne[0];
    d.n = (int)w.ne[1];
    d.x = x;
    return d;
}

/* First products of the routed experts, formats that differ. */
static void up_unlike(struct cuda *c, const struct space &s, const struct op_moe &m, int rows)
{
    const int64_t ff = m.up.ne[1], pairs = (int64_t)rows * m.n_used;
    const struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid };

    for (int i = 0; i < 2; i++) {
        struct down_args d = down_of(m, i == 0 ? m.gate : m.up, s.xq);

        d.alike = true;
        d.out = i == 0 ? s.gate : s.hid;
        d.os = ff;
        launch_down(c, &d, rows);
    }
    cuda_activate(c, s.hid, s.gate, pairs, m);
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
    if (gates_alike(m)) {
        struct up_args up = up_of(m, s, rows);

        launch_up(c, &up);
    } else {
        up_unlike(c, s, m, rows);
    }
    struct down_args down = down_of(m, m.down, s.hq);
    if (v->op == DEV_OP_moe) {
        sum_of(&down, y, m.weight);
    } else {
        down.out = (float *)y.data;
        down.os = y.stride;
    }
    launch_down(c, &down, rows);
}

bool cuda_few_moe_fits(const struct node *route, const struct node *moe)
{
    const struct op_route &r = route->route;

    return r.n_expert <= CHOICE_EXPERTS && r.n_used <= CHOICE_USED && r.n_group <= 1 &&
           cuda_moe_is_few(moe) && gates_alike(moe->moe);
}

/* The shared expert goes along where its format is that of the others. */
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
            d.sh = matrix(w);
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
    const choice_args choice = { (const float *)logits.data, logits.stride, weight.stride, m->route->route,
                                 (int *)m->route->out, (float *)weight.data, rows };

    struct up_args up = up_of(v->moe, s, rows);

    launch_early(c, "choose_rows", choose_rows, dim3((unsigned)rows), 32, 0, choice);
    if (m->out != NULL)
        cuda_hand_out(c, m->out);
    if (m->sh_down != NULL) {
        up.sh_gate = (const float *)m->sh_gate->t[0].data;
        up.sh_up = (const float *)m->sh_up->t[0].data;
        up.sh_stride = m->sh_up->t[0].stride;
        up.sh_rounded = s.shared;
        up.sh_ff = (int)m->sh_up->t[0].ne[0];
        up.rows = rows;
    }
    launch_up(c, &up);
    second_products(c, m, s, rows);
}
