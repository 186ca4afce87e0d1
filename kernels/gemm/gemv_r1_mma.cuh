/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_r1_mma.cuh - GEMV for one token on tensor cores (int8 mma.sync).   room: kernels
 *
 * What bounds it is the number of instructions that a warp executes in sequence. A warp takes 16 rows of weights and 8
 * units (a block). The weights are the A operand, loaded straight into registers where they are used
 * (quant/regs.cuh), before the activations are ready. The B operand has 8 columns: the byte planes h and l of 4
 * units, the rest zero. The products of 4 units thus meet in one set of sums, and lane 4 g + c gets h and l of unit c
 * for rows g and g + 8. (Formats with two scales a unit: 2 units and their halves.) The float operations are those of
 * gemm/sums.cuh, in its order: a row's unit values go to shared memory, where one thread adds a segment of two blocks,
 * and the segments of a row are added in order. */
#ifndef KERNELS_GEMM_GEMV_R1_MMA_CUH
#define KERNELS_GEMM_GEMV_R1_MMA_CUH
#include "kernels/quant/all.cuh"
#include "kernels/gemm/sums.cuh"

/* Of values in shared memory: V_PITCH floats from row to row, V_SEGMENT from segment to segment (of all rows), to keep
 * banks apart. */
enum { STRIP = 16, V_PITCH = 20, V_SEGMENT = STRIP * V_PITCH + 8 };

static __host__ __device__ inline int row_segments(int64_t k)
{
    return (int)(((unsigned)k + 511) / 512);
}

template <bool SIGNED>
static __device__ __forceinline__ void mma_row(int d[4], const uint32_t g0[2], const uint32_t g8[2], uint32_t b0,
                                               uint32_t b1)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1));
}

/* Formats without frag<> (quant/regs.cuh): a lane unpacks units 2 c and 2 c + 1 whole (quant/unit.cuh: one()).
 * Four products make a unit, in which each of four lanes has two words of its own; columns keep them apart. */
static __host__ __device__ constexpr bool has_frag(int type)
{
    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_COMMON(X)
#undef X
        return true;
    default:
        return false;
    }
}

/* What a lane has of a block of 16 rows. */
template <int TYPE, bool = has_frag(TYPE)> struct strip {
    typename frag<TYPE>::raw r0, r8;
};
template <int TYPE> struct strip<TYPE, false> {
    const uint8_t *r0, *r8;
    int unit, n; /* its first unit of the row; of two how many there are */
};

/* Rows w ... (at least 1 of 16), of which `units` from the block on exist; none: zeros, but with ANY, which is
 * as of frag<TYPE>, there are some. */
template <int TYPE, bool ANY = false>
static __device__ __forceinline__ void load_strip(strip<TYPE> &s, const uint8_t *w, uint32_t row_bytes, int rows,
                                                  int block, int units)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;

    if constexpr (!has_frag(TYPE)) {
        s = { w + max(min(g, rows - 1), 0) * row_bytes, w + max(min(g + 8, rows - 1), 0) * row_bytes, block * 8 + 2 * c,
              min(units - 2 * c, 2) };
    } else if (ANY || units > 0) {
        const uint8_t *at = w + block * frag<TYPE>::BLOCK;

        frag<TYPE>::template load<ANY>(s.r0, at + min(g, rows - 1) * row_bytes, units, c);
        frag<TYPE>::template load<ANY>(s.r8, at + min(g + 8, rows - 1) * row_bytes, units, c);
    } else {
        s.r0 = s.r8 = typename frag<TYPE>::raw();
    }
}

/* What a lane has of a block of activations. */
template <int TYPE, bool = has_frag(TYPE)> struct strip_x {
    enum { GROUP = frag<TYPE>::HALVES ? 2 : 4, GROUPS = 8 / GROUP }; /* units whose sums meet */
    uint32_t x[GROUPS][2];
    float all[GROUPS];
    int sum[2]; /* of groups_times(): of units 2 c and 2 c + 1, and x[0] of unit g */
};
template <int TYPE> struct strip_x<TYPE, false> {
    uint32_t w[2]
              [8]; /* of unit 2 c and the next: of the plane that is the lane's column, unless another lane's unit is */
    float all[2];
};
template <int TYPE> static __device__ __forceinline__ void load_any(strip_x<TYPE> &a, const uint8_t *xb, int units)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;

#pragma unroll
    for (int e = 0; e < 2; e++) {
        const uint8_t *unit = xb + c * X_PAIR + e * X_UNIT + g % 2 * 4;
        const bool in = 2 * c + e < units;

#pragma unroll
        for (int i = 0; i < 8; i++)
            a.w[e][i] = in && g / 2 == c ? *(const uint32_t *)(unit + i % 4 * 16 + i / 4 * 8) : 0u;
        a.all[e] = in && wq<TYPE>::MIN ? *(const float *)(xb + c * X_PAIR + X_SUMS + e * 8) : 0.0f;
    }
}

/* Whether units' sums meet in whole numbers before they are floats. */
static __host__ __device__ constexpr bool is_grouped(int type)
{
    return a8_sums(type) == 1 || a8_sums(type) == 2;
}

/* xb: the block's first pair. */
template <int TYPE>
static __device__ __forceinline__ void load_x(strip_x<TYPE> &a, const uint8_t *xb, int units, bool eight)
{
    if constexpr (!has_frag(TYPE)) {
        load_any<TYPE>(a, xb, units);
    } else {
        typedef frag<TYPE> F;
        enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS };
        const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
        if (is_grouped(TYPE) && eight) {
            const uint8_t *own = xb + g / 2 * X_PAIR + g % 2 * X_UNIT + 4 + c % 2 * 32 + c / 2 * 8;
            const float *all = (const float *)(xb + X_SUMS + c * X_PAIR);
            const bool in = units >= 8;

            static_assert(!is_grouped(TYPE) || !F::APART, "words side by side");
            a.x[0][0] = in ? *(const uint32_t *)own : 0u;
            a.x[0][1] = in ? *(const uint32_t *)(own + 16) : 0u;
            a.sum[0] = F::MIN && in ? __float2int_rn(all[0]) : 0;
            a.sum[1] = F::MIN && in ? __float2int_rn(all[2]) : 0;
            return;
        }
        const int mine = F::HALVES ? g / 4 : g / 2; /* the unit of a group that is the lane's column */
        const int out = F::HALVES ? c / 2 : c;      /* and that it gets sums of */
        const uint8_t *col =
            xb + mine / 2 * X_PAIR + mine % 2 * X_UNIT + g % 2 * 4 + (F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
        const float *all = (const float *)(xb + X_SUMS + out / 2 * X_PAIR + out % 2 * 8);

#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const int unit = j * GROUP;
            const bool in = unit + mine < units && (!F::HALVES || g / 2 % 2 == c / 2);

            a.x[j][0] = in ? *(const uint32_t *)(col + unit / 2 * X_PAIR) : 0u;
            a.x[j][1] = in ? *(const uint32_t *)(col + unit / 2 * X_PAIR + (F::APART ? 8 : 16)) : 0u;
            a.all[j] = F::MIN && unit + out < units ? all[unit / 2 * (X_PAIR / 4)] : 0.0f;
        }
    }
}

/* Values of a row's group from the sums of a lane's two units; all: sums of q of either. The second one where there are
 * four. */
struct group_values {
    float first, second;
};
template <int TYPE>
static __device__ __forceinline__ group_values group_of(const typename frag<TYPE>::raw &r, int c, int i0, int i1,
                                                        const int all[2])
{
    const int2 own = frag<TYPE>::scaled_sums(r, c, i0, i1, all);
    const int give = a8_sums(TYPE) == 2 || c % 2 == 0 ? own.y : own.x;
    const int other = __shfl_xor_sync(0xffffffffu, give, 1);
    const float2 by = frag<TYPE>::factors(r);

    if (a8_sums(TYPE) == 2)
        return { __fmul_rn(by.x, (float)own.x), c % 2 == 0 ? 0.0f : __fmul_rn(by.y, (float)(own.y + other)) };
    return { c % 2 == 0 ? __fmul_rn(by.x, (float)(own.x + other)) : __fmul_rn(by.y, (float)(own.y + other)), 0.0f };
}

/* Of formats that stay whole numbers, activations of 8 bits: of the second operand's columns each is a unit's l. A lane
 * has the sums of units 2 c and 2 c + 1; with its neighbour's it makes a group. With one sum a group there are two
 * values: even lanes give what scales, odd ones what minima give. With two there are four, as others have. */
template <int TYPE, class TABLES>
static __device__ __forceinline__ void groups_times(const strip<TYPE> &s, const strip_x<TYPE> &a, const TABLES *tab,
                                                    float *v)
{
    typedef frag<TYPE> F;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    int sum[2][4] = {};

#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const bool mine = g == j * 4 + i;
            uint32_t w0[2], w8[2];

            F::words(s.r0, j * 4 + i, c, w0, tab);
            F::words(s.r8, j * 4 + i, c, w8, tab);
            mma_row<F::SIGNED>(sum[j], w0, w8, mine ? a.x[0][0] : 0u, mine ? a.x[0][1] : 0u);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int *q = sum[0] + 2 * h, *q4 = sum[1] + 2 * h;
        const group_values own =
            group_of<TYPE>(h == 0 ? s.r0 : s.r8, c, c < 2 ? q[0] : q4[0], c < 2 ? q[1] : q4[1], a.sum);
        float *to = v + (g + h * 8) * V_PITCH;

        if (a8_sums(TYPE) == 2)
            *(float2 *)(to + 2 * c) = make_float2(own.first, own.second);
        else
            to[c] = own.first;
    }
}

/* Which unit of a group is a lane's own: 1, the others 0. Multiplied with: choices share a pipe with logic, which is
 * busier. */
template <int TYPE> struct own_unit {
    uint32_t is[strip_x<TYPE>::GROUP];
};
template <int TYPE> static __device__ __forceinline__ own_unit<TYPE> find_own_unit(int mine)
{
    own_unit<TYPE> o;

#pragma unroll
    for (int i = 0; i < strip_x<TYPE>::GROUP; i++) {
        o.is[i] = mine == i;
        asm volatile("" : "+r"(o.is[i]));
    }
    return o;
}

/* sum[j]: of group j's units, from WHOLE on; x: the columns of a lane. All groups go side by side: one alone would wait
 * for each of its products. */
template <int TYPE, class TABLES>
static __device__ __forceinline__ void group_sums(int sum[strip_x<TYPE>::GROUPS][4], const strip<TYPE> &s,
                                                  const uint32_t x[strip_x<TYPE>::GROUPS][2], const own_unit<TYPE> &own,
                                                  int c, const TABLES *tab)
{
    typedef frag<TYPE> F;
    enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS };

#pragma unroll
    for (int j = 0; j < GROUPS; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[j][i] = SUM_START;
#pragma unroll
    for (int i = 0; i < GROUP; i++)
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            uint32_t w0[2], w8[2];

            F::words(s.r0, j * GROUP + i, c, w0, tab);
            F::words(s.r8, j * GROUP + i, c, w8, tab);
            mma_row<F::SIGNED>(sum[j], w0, w8, x[j][0] * own.is[i], x[j][1] * own.is[i]);
        }
}

/* As strip_times(), of formats without frag<>. */
template <int TYPE>
static __device__ __forceinline__ void any_times(const strip<TYPE> &s, const strip_x<TYPE> &a, const struct tables *tab,
                                                 float *v)
{
    enum { HALF = wq<TYPE>::HALF, MIN = wq<TYPE>::MIN };
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    const uint32_t ones[2] = { 0x01010101u, 0x01010101u };

#pragma unroll 1
    for (int e = 0; e < 2; e++) {
        int sum[3][4]; /* of the unit, or of its halves; of q of the second one */
        unit u[2] = {};

        if (e < s.n) {
            wq<TYPE>::one(s.r0, s.unit + e, u[0], tab);
            wq<TYPE>::one(s.r8, s.unit + e, u[1], tab);
        }
#pragma unroll
        for (int i = 0; i < 12; i++)
            sum[i / 4][i % 4] = SUM_START;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t g0[2] = { (uint32_t)u[0].w[2 * i], (uint32_t)u[0].w[2 * i + 1] };
            const uint32_t g8[2] = { (uint32_t)u[1].w[2 * i], (uint32_t)u[1].w[2 * i + 1] };
            const uint32_t x0 = e == 0 ? a.w[0][2 * i] : a.w[1][2 * i],
                           x1 = e == 0 ? a.w[0][2 * i + 1] : a.w[1][2 * i + 1];

            mma_row<true>(sum[HALF && i >= 2], g0, g8, x0, x1);
            if (HALF && MIN && i >= 2)
                mma_row<true>(sum[2], ones, ones, x0, x1);
        }
        const float all = a.all[e > 0], second = HALF && MIN ? join_planes(sum[2][0], sum[2][1]) : 0.0f;
#pragma unroll
        for (int h = 0; h < 2; h++) { /* gemm/sums.cuh: unit_value() */
            float value = __fmul_rn(u[h].d[0], join_planes(sum[0][2 * h], sum[0][2 * h + 1]));

            if (MIN)
                value = __fmaf_rn(-u[h].m[0], HALF ? __fsub_rn(all, second) : all, value);
            if (HALF)
                value = __fmaf_rn(u[h].d[1], join_planes(sum[1][2 * h], sum[1][2 * h + 1]), value);
            if (HALF && MIN)
                value = __fmaf_rn(-u[h].m[1], second, value);
            v[(g + h * 8) * V_PITCH + 2 * c + e] = e < s.n ? value : 0.0f;
        }
    }
}

/* Values V of 16 rows' units; v: the first one's of the block. */
template <int TYPE, class TABLES>
static __device__ __forceinline__ void strip_times(const strip<TYPE> &s, const strip_x<TYPE> &a, int units, bool eight,
                                                   const TABLES *tab, float *v)
{
    if constexpr (!has_frag(TYPE)) {
        any_times<TYPE>(s, a, tab, v);
    } else {
        typedef frag<TYPE> F;
        enum { GROUP = strip_x<TYPE>::GROUP, GROUPS = strip_x<TYPE>::GROUPS };
        if constexpr (is_grouped(TYPE))
            if (eight) {
                groups_times<TYPE>(s, a, tab, v);
                return;
            }
        const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
        const int mine = F::HALVES ? g / 4 : g / 2, out = F::HALVES ? c / 2 : c;
        float *to = v + g * V_PITCH + out;
        int sum[GROUPS][4];

        group_sums<TYPE>(sum, s, a.x, find_own_unit<TYPE>(mine), c, tab);
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const bool there = j * GROUP + out < units;

#pragma unroll
            for (int h = 0; h < 2; h++) {
                float i = join_planes(sum[j][2 * h], sum[j][2 * h + 1]), d, m, value;

                if constexpr (a8_sums(TYPE) == 4)
                    if (eight) { /* either half's scale i, then their sum, are exact */
                        const typename F::raw &r = h == 0 ? s.r0 : s.r8;

                        F::numbers(r, j, c, d, m);
                        i = __fmul_rn(d, i);
                        value = __fmul_rn(F::factors(r).x, __fadd_rn(i, __shfl_xor_sync(0xffffffffu, i, 1)));
                        if (c % 2 == 1)
                            to[h * 8 * V_PITCH + j * GROUP] = there ? value : 0.0f;
                        continue;
                    }
                F::scale(h == 0 ? s.r0 : s.r8, j, c, d, m);
                value = __fmul_rn(d, i);
                if (F::MIN)
                    value = __fmaf_rn(-m, a.all[j], value);
                if (F::HALVES)
                    value =
                        __fmaf_rn(d, i, __shfl_xor_sync(0xffffffffu, value, 1)); /* odd c: the first half, then this */
                if (!F::HALVES || c % 2 == 1)
                    to[h * 8 * V_PITCH + j * GROUP] = there ? value : 0.0f;
            }
        }
    }
}

/* Whether there are two values a group. */
static __host__ __device__ constexpr bool has_groups(int type, bool eight)
{
    return eight && a8_sums(type) == 1;
}

/* Values of a block that is not there. */
static __device__ __forceinline__ void no_values(float *v)
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int i = 0; i < 4; i++)
        v[(lane / 4 + i / 2 * 8) * V_PITCH + lane % 4 + i % 2 * 4] = 0.0f;
}

/* A segment of a row: v its values, dx its scales; groups: there are two values a group. */
static __device__ __forceinline__ float segment_sum(const float *v, const float *dx, bool groups)
{
    float S = 0.0f;

    if (groups) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 a = *(const float2 *)(v + i / 2 * 8 + i % 2 * 2);

            S = __fmaf_rn(dx[4 * i], a.y, __fmaf_rn(dx[4 * i], a.x, S));
        }
        return S;
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 a = ((const float4 *)v)[i], d = ((const float4 *)dx)[i];

        S = __fmaf_rn(d.w, a.w, __fmaf_rn(d.z, a.z, __fmaf_rn(d.y, a.y, __fmaf_rn(d.x, a.x, S))));
    }
    return S;
}

/* Threads that share a row, a segment each, are a power of two: which. */
static __host__ __device__ inline int row_lane_bits(int segments)
{
    return (segments > 1) + (segments > 2) + (segments > 4) + (segments > 8);
}

/* A row's sum, from its threads, all of a warp together; v: its first value, segment: the thread's. */
static __device__ __forceinline__ float row_sum(const float *v, const float *dx, int segment, int segments, bool groups)
{
    const int first = (threadIdx.x & 31) - segment;
    float S = segment < segments ? segment_sum(v + segment * V_SEGMENT, dx + segment * 16, groups) : 0.0f, sum = 0.0f;

#pragma unroll 4
    for (int i = 0; i < segments; i++)
        sum = __fadd_rn(sum, __shfl_sync(0xffffffffu, S, first + i));
    return sum;
}

#endif
