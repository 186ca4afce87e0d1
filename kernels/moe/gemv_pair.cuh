/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_pair.cuh - one (expert, token) pair by a warp: staged rows of weights times one row of activations.
 * room: kernels
 *
 * As the GEMV for one token (gemm/gemv_r1_mma.cuh), but weights are staged in shared memory (gemm/weights_smem.cuh) and
 * activations lie in shared memory, so that few registers are used. */
#ifndef KERNELS_MOE_GEMV_PAIR_CUH
#define KERNELS_MOE_GEMV_PAIR_CUH
#include "kernels/common/tma.cuh"
#include "kernels/gemm/gemv_r1_mma.cuh"
#include "kernels/gemm/weights_smem.cuh"

enum { MOST_RAW = 48 /* bytes that a lane has of a row's block, for two blocks to go side by side */ };
enum { V_BYTES = (V_SEGMENT * (int)sizeof(float) + BOX_ALIGN - 1) / BOX_ALIGN * BOX_ALIGN };

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

/* What a lane finds once: its word of a block of activations and the sum of q of its unit, its place among values (all
 * in shared memory), its column, its unit of a group. The compiler is kept from finding it again each time. */
template <int TYPE> struct lane_own {
    uint32_t x, all, v, c;
    own_unit<TYPE> unit;
};

template <int TYPE, bool EIGHT>
static __device__ __forceinline__ lane_own<TYPE> find_own(const uint8_t *x, const float *v)
{
    typedef frag<TYPE> F;
    enum { GROUPED = EIGHT && is_grouped(TYPE), TWO = a8_sums(TYPE) == 2 };
    const uint32_t lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    const uint32_t mine = GROUPED     ? g % 4
                          : F::HALVES ? g / 4
                                      : g / 2,
                   unit = GROUPED ? g : mine, plane = GROUPED ? 1 : g % 2;
    const uint32_t out = F::HALVES ? c / 2 : c, half = F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8;
    const uint32_t all = GROUPED ? c * X_PAIR : out / 2 * X_PAIR + out % 2 * 8;
    lane_own<TYPE> o = { shared_at(x) + unit / 2 * X_PAIR + unit % 2 * X_UNIT + plane * 4 + half,
                         shared_at(x) + X_SUMS + all, shared_at(v) + (g * V_PITCH + (GROUPED && TWO ? 2 * c : out)) * 4,
                         c, find_own_unit<TYPE>(mine) };

    asm volatile("" : "+r"(o.x), "+r"(o.all), "+r"(o.v), "+r"(o.c));
    return o;
}

/* A lane's columns of a block of activations, and sums of q. */
template <int TYPE> struct lane_x {
    uint32_t x[strip_x<TYPE>::GROUPS][2];
    float all[strip_x<TYPE>::GROUPS];
};

/* Of a block whose activations begin so far behind the first ones, and of which `units` units exist. */
template <int TYPE>
static __device__ __forceinline__ void load_lane_x(lane_x<TYPE> &a, const lane_own<TYPE> &o, uint32_t x, int units)
{
    typedef frag<TYPE> F;
    enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int g = (threadIdx.x & 31) / 4, c = (int)o.c, mine = F::HALVES ? g / 4 : g / 2;
    const bool right = !F::HALVES || g / 2 % 2 == c / 2;

#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const int unit = j * GROUP;
        const bool in = right && (WHOLE_BLOCKS || unit + mine < units);
        const uint32_t at = o.x + x + unit / 2 * X_PAIR;

        a.x[j][0] = in ? shared_u32(at) : 0u;
        a.x[j][1] = in ? shared_u32(at + (F::APART ? 8 : 16)) : 0u;
        a.all[j] = F::MIN ? __uint_as_float(shared_u32(o.all + x + unit / 2 * X_PAIR)) : 0.0f;
    }
}

/* Values V of the units of a block, of which `units` exist, from their sums; v: where it begins, from the first block.
 * As strip_times(). EIGHT: of formats whose units do not meet in whole numbers (gemm/gemv_r1_mma.cuh: is_grouped()). */
template <int TYPE, bool EIGHT>
static __device__ __forceinline__ void put_values(const strip<TYPE> &s, const int sum[strip_x<TYPE>::GROUPS][4],
                                                  const lane_x<TYPE> &a, const lane_own<TYPE> &o, uint32_t v, int units)
{
    typedef frag<TYPE> F;
    enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int c = (int)o.c, out = F::HALVES ? c / 2 : c;
    float scales[2][GROUPS], mins[2][GROUPS];

    if (!EIGHT || a8_sums(TYPE) != 4) {
        all_scales<TYPE>(s.r0, c, scales[0], mins[0]);
        all_scales<TYPE>(s.r8, c, scales[1], mins[1]);
    }
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const bool there = WHOLE_BLOCKS || j * GROUP + out < units;

#pragma unroll
        for (int h = 0; h < 2; h++) {
            float i = join_planes(sum[j][2 * h], sum[j][2 * h + 1]), value;

            if constexpr (EIGHT && a8_sums(TYPE) == 4) {
                const typename F::raw &r = h == 0 ? s.r0 : s.r8;
                float d, m;

                F::numbers(r, j, c, d, m);
                i = __fmul_rn(d, i);
                value = __fmul_rn(F::factors(r).x, __fadd_rn(i, __shfl_xor_sync(0xffffffffu, i, 1)));
                if (c % 2 == 1)
                    put_shared(o.v + v + (h * 8 * V_PITCH + j * GROUP) * 4, value);
                continue;
            }
            value = __fmul_rn(scales[h][j], i);
            if (F::MIN)
                value = __fmaf_rn(-mins[h][j], a.all[j], value);
            if (F::HALVES)
                value = __fmaf_rn(scales[h][j], i,
                                  __shfl_xor_sync(0xffffffffu, value, 1)); /* odd c: the first half, then this */
            if (!F::HALVES || c % 2 == 1)
                put_shared(o.v + v + (h * 8 * V_PITCH + j * GROUP) * 4, there ? value : 0.0f);
        }
    }
}

/* Values of N blocks side by side, one after the other in a stage, the last of which has `units` units. */
template <int TYPE, bool EIGHT, int N, class TABLES>
static __device__ __forceinline__ void blocks_values(const uint8_t *r0, const uint8_t *r8, const lane_own<TYPE> &o,
                                                     uint32_t x, uint32_t v, int units, const TABLES *tab)
{
    strip<TYPE> s[N];
    lane_x<TYPE> a[N];
    int sum[N][strip_x<TYPE>::GROUPS][4];

#pragma unroll
    for (int b = 0; b < N; b++) {
        frag<TYPE>::template load<true>(s[b].r0, r0 + b * frag<TYPE>::BLOCK, units, (int)o.c);
        frag<TYPE>::template load<true>(s[b].r8, r8 + b * frag<TYPE>::BLOCK, units, (int)o.c);
        load_lane_x<TYPE>(a[b], o, x + b * (4 * X_PAIR), units);
    }
#pragma unroll
    for (int b = 0; b < N; b++)
        group_sums<TYPE>(sum[b], s[b], a[b].x, o.unit, (int)o.c, tab);
#pragma unroll
    for (int b = 0; b < N; b++)
        put_values<TYPE, EIGHT>(s[b], sum[b], a[b], o, v + b * 8 * 4, units);
}

/* The same with 8 bits, of formats whose units meet in whole numbers: groups_times(), whose columns these are. Lanes
 * whose unit is one of the other four have it in a column that nobody looks at. */
template <int TYPE, int N, class TABLES>
static __device__ __forceinline__ void blocks_groups(const uint8_t *r0, const uint8_t *r8, const lane_own<TYPE> &o,
                                                     uint32_t x, uint32_t v, const TABLES *tab)
{
    typedef frag<TYPE> F;
    const int c = (int)o.c;
    strip<TYPE> s[N];
    uint32_t own[N][2];
    int all[N][2], sum[N][2][4] = {};

#pragma unroll
    for (int b = 0; b < N; b++) {
        const uint32_t at = x + b * (4 * X_PAIR);

        F::template load<true>(s[b].r0, r0 + b * F::BLOCK, 8, c);
        F::template load<true>(s[b].r8, r8 + b * F::BLOCK, 8, c);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            own[b][i] = shared_u32(o.x + at + i * 16);
            all[b][i] = F::MIN ? __float2int_rn(__uint_as_float(shared_u32(o.all + at + i * 8))) : 0;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int b = 0; b < N; b++) {
            const uint32_t x0 = own[b][0] * o.unit.is[i], x1 = own[b][1] * o.unit.is[i];

#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t w0[2], w8[2];

                F::words(s[b].r0, j * 4 + i, c, w0, tab);
                F::words(s[b].r8, j * 4 + i, c, w8, tab);
                mma_row<F::SIGNED>(sum[b][j], w0, w8, x0, x1);
            }
        }
#pragma unroll
    for (int b = 0; b < N; b++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int *q = sum[b][0] + 2 * h, *q4 = sum[b][1] + 2 * h;
            const group_values to =
                group_of<TYPE>(h == 0 ? s[b].r0 : s[b].r8, c, c < 2 ? q[0] : q4[0], c < 2 ? q[1] : q4[1], all[b]);
            const uint32_t at = o.v + v + (h * 8 * V_PITCH + b * 8) * 4;

            put_shared(at, to.first);
            if (a8_sums(TYPE) == 2)
                put_shared(at + 4, to.second);
        }
}

static __host__ __device__ inline int row_bytes_in(int k)
{
    return x_pairs(k) * X_PAIR + (x_pairs(k) + 7) / 8 * 64; /* scales, too */
}

/* Bytes for `rows` rounded rows that warps share, before what belongs to single warps. */
static __host__ __device__ inline int rows_room(int rows, int k)
{
    return (rows * row_bytes_in(k) + BOX_ALIGN - 1) / BOX_ALIGN * BOX_ALIGN;
}

/* A rounded row, which some warps share, and a warp's values and two stages; where those of all warps begin. */
struct room {
    uint8_t *x, *stage, *all;
    float *v;
    uint64_t *bar;
    int phase;
};

template <int TYPE> static __host__ __device__ inline int warp_bytes(void)
{
    return V_BYTES + 2 * stage_of<TYPE>::SIZE;
}

/* Rooms of warps of which `sharers` have a row together, by the block, which has made `bar`. */
template <int TYPE> static __device__ __forceinline__ room make_room(uint8_t *shared, uint64_t *bar, int k, int sharers)
{
    const int warp = threadIdx.x / 32, rows = blockDim.x / 32 / sharers;
    uint8_t *all = shared + rows_room(rows, k), *own = all + warp * warp_bytes<TYPE>();
    const room r = {
        shared + warp / sharers * row_bytes_in(k), own + V_BYTES, all, (float *)own, bar + warp / sharers, 0
    };

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

/* Sums of the 16 rows of a strip over a segment, which is in a stage: lanes l and 16 + l get that of row l. scales: how
 * far behind the activations theirs are. Where both blocks are there and small they go side by side: one would wait for
 * its products, and two share what it takes to find them. FULL: both are there. */
template <int TYPE, bool EIGHT, bool FULL, class TABLES>
static __device__ __forceinline__ float segment_times(const uint8_t *stage, const lane_rows &l, int segment,
                                                      const lane_own<TYPE> &o, int k, int scales, const room &r,
                                                      const TABLES *tab)
{
    enum { GROUPED = EIGHT && is_grouped(TYPE), BOTH = sizeof(typename frag<TYPE>::raw) <= MOST_RAW };
    const int lane = threadIdx.x & 31, g = lane / 4, units = FULL ? 16 : k / 32 - segment * 16;
    const uint8_t *r0 = stage + l.r0 + before_segment<TYPE>(l, g, segment);
    const uint8_t *r8 = stage + l.r8 + before_segment<TYPE>(l, g + 8, segment);

    if constexpr (GROUPED && BOTH) {
        if (units >= 16) {
            blocks_groups<TYPE, 2>(r0, r8, o, segment * (8 * X_PAIR), 0, tab);
        } else {
            blocks_groups<TYPE, 1>(r0, r8, o, segment * (8 * X_PAIR), 0, tab);
            no_values(r.v + 8);
        }
    } else if (BOTH && units >= 16)
        blocks_values<TYPE, EIGHT, 2>(r0, r8, o, segment * (8 * X_PAIR), 0, 8, tab);
    else
#pragma unroll 1
        for (int b = 0; b < 2; b++) {
            const uint8_t *b0 = r0 + b * frag<TYPE>::BLOCK, *b8 = r8 + b * frag<TYPE>::BLOCK;

            if (TYPE != QUANT_q8_0 && units - b * 8 <= 0) {
                no_values(r.v + b * 8);
            } else if constexpr (GROUPED) {
                blocks_groups<TYPE, 1>(b0, b8, o, segment * (8 * X_PAIR) + b * (4 * X_PAIR), b * 8 * 4, tab);
            } else {
                blocks_values<TYPE, EIGHT, 1>(b0, b8, o, segment * (8 * X_PAIR) + b * (4 * X_PAIR), b * 8 * 4,
                                              units - b * 8, tab);
            }
        }
    __syncwarp();
    const float sum = segment_sum(r.v + lane % STRIP * V_PITCH, (const float *)(r.x + scales) + segment * 16,
                                  has_groups(TYPE, EIGHT));
    __syncwarp();
    return sum;
}

/* How far behind a row's activations their scales are: found once. */
static __device__ __forceinline__ int find_scales(int k)
{
    int at = x_pairs(k) * X_PAIR;

    asm volatile("" : "+r"(at));
    return at;
}
#endif
