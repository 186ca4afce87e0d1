/* SPDX-License-Identifier: Apache-2.0 */
/* row.cuh - products of stored rows with one row of activations, on tensor cores.  room: kernels (base quant ops)
 *
 * What counts are the instructions that a warp executes one after the other. It takes 16 rows of weights and 8 pairs of
 * units (a segment): the rows are the first operand, read straight into the registers where it has to be (frag.cuh).
 * The second has 8 columns: the planes h and l of 4 units, everything else zero, so that the products of 4 units meet in
 * one set of sums and lane 4 g + c gets h and l of unit c for rows g and g + 8. (Of formats with two scales a unit: of
 * 2 units, and of its halves.) The floats that follow are those of product.cuh, in its order: a lane a row adds up the
 * segment, the segments of a row meet in shared memory. */
#ifndef KERNELS_ROW_CUH
#define KERNELS_ROW_CUH
#include "kernels/frag.cuh"
#include "kernels/product.cuh"

enum { STRIP = 16, SEG_PAIRS = 8, V_PITCH = 20, STRIP_FLOATS = STRIP * V_PITCH };

static __host__ __device__ inline int row_segments(int64_t k)
{
    return (x_pairs(k) + SEG_PAIRS - 1) / SEG_PAIRS;
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

/* A segment of activations: x at its first pair, dx its scales, so many units of 16. */
struct segment {
    const uint8_t *x;
    const float   *dx;
    int            units;
};

static __device__ __forceinline__ struct segment segment_of(const uint8_t *x, int seg, int k)
{
    return { x + seg * (SEG_PAIRS * X_PAIR), x_scales(x, x_pairs(k)) + seg * 16, k / 32 - seg * 16 };
}

/* Rows w ... (so many of 16, at least 1; w: the segment's first block of the first) times a segment: lanes 0 ... 15 get a
 * row's sum each. v: STRIP_FLOATS of the warp's own in shared memory. The sums of all groups go side by side: one
 * alone would wait for each of its products. */
template <int TYPE>
static __device__ __forceinline__ float strip_times(const uint8_t *w, uint32_t row_bytes, int rows, const struct segment &s,
                                                    const struct tables *tab, float *v)
{
    typedef frag<TYPE> F;
    enum {
        GROUP = F::HALVES ? 2 : 4, GROUPS = 8 / GROUP, /* units whose sums meet; of a block */
        AT_ONCE = sizeof(typename F::raw) <= 64 && !F::HALVES ? 2 : 1,
    };
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    const uint8_t *row0 = w + min(g, rows - 1) * row_bytes, *row8 = w + min(g + 8, rows - 1) * row_bytes;
    const int mine = F::HALVES ? g / 4 : g / 2; /* the unit of a group that is the lane's column */
    const int out = F::HALVES ? c / 2 : c;      /* and that it gets sums of */
    const uint8_t *col = s.x + mine / 2 * X_PAIR + mine % 2 * X_UNIT + g % 2 * 4 +
                         (F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
    const float *all = (const float *)(s.x + X_SUMS + out / 2 * X_PAIR + out % 2 * 8);
    float *to = v + g * V_PITCH + out;

#pragma unroll
    for (int b0 = 0; b0 < 2; b0 += AT_ONCE) {
        typename F::raw r0[AT_ONCE], r8[AT_ONCE];
        uint32_t x[AT_ONCE * GROUPS][2];
        int sum[AT_ONCE * GROUPS][4];

#pragma unroll
        for (int b = 0; b < AT_ONCE; b++)
            if (8 * (b0 + b) < s.units) {
                F::load(r0[b], row0 + (b0 + b) * F::BLOCK, s.units - 8 * (b0 + b), c);
                F::load(r8[b], row8 + (b0 + b) * F::BLOCK, s.units - 8 * (b0 + b), c);
            } else {
                r0[b] = r8[b] = typename F::raw();
            }
#pragma unroll
        for (int j = 0; j < AT_ONCE * GROUPS; j++) {
            const int unit = 8 * b0 + j * GROUP;
            const bool in = unit + mine < s.units && (!F::HALVES || g / 2 % 2 == c / 2);

            x[j][0] = in ? *(const uint32_t *)(col + unit / 2 * X_PAIR) : 0u;
            x[j][1] = in ? *(const uint32_t *)(col + unit / 2 * X_PAIR + (F::APART ? 8 : 16)) : 0u;
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[j][i] = WHOLE;
        }
#pragma unroll
        for (int i = 0; i < GROUP; i++)
#pragma unroll
            for (int j = 0; j < AT_ONCE * GROUPS; j++) {
                uint32_t w0[2], w8[2];

                F::words(r0[j / GROUPS], j % GROUPS * GROUP + i, c, w0, tab);
                F::words(r8[j / GROUPS], j % GROUPS * GROUP + i, c, w8, tab);
                mma_row<F::SIGNED>(sum[j], w0, w8, mine == i ? x[j][0] : 0u, mine == i ? x[j][1] : 0u);
            }
#pragma unroll
        for (int j = 0; j < AT_ONCE * GROUPS; j++) {
            const int unit = 8 * b0 + j * GROUP;
            const bool there = unit + out < s.units;
            const float s_all = F::MIN && there ? all[unit / 2 * (X_PAIR / 4)] : 0.0f;

#pragma unroll
            for (int h = 0; h < 2; h++) {
                float i = whole(sum[j][2 * h], sum[j][2 * h + 1]), d, m, value;

                F::scale(h == 0 ? r0[j / GROUPS] : r8[j / GROUPS], j % GROUPS, c, d, m);
                value = __fmul_rn(d, i);
                if (F::MIN)
                    value = __fmaf_rn(-m, s_all, value);
                if (F::HALVES)
                    value = __fmaf_rn(d, i, __shfl_xor_sync(0xffffffffu, value, 1)); /* c odd: the first half, then its own */
                if (!F::HALVES || c % 2 == 1)
                    to[h * 8 * V_PITCH + unit] = there ? value : 0.0f;
            }
        }
    }
    __syncwarp();
    float S = 0.0f;
    const float4 *dx = (const float4 *)s.dx, *at = (const float4 *)(v + lane % STRIP * V_PITCH);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 a = at[i], d = dx[i];

        S = __fmaf_rn(d.w, a.w, __fmaf_rn(d.z, a.z, __fmaf_rn(d.y, a.y, __fmaf_rn(d.x, a.x, S))));
    }
    __syncwarp();
    return S;
}

template <int TYPE>
static __device__ __noinline__ float strip_call(const uint8_t *w, uint32_t row_bytes, int rows, struct segment s,
                                                const struct tables *tab, float *v)
{
    return strip_times<TYPE>(w, row_bytes, rows, s, tab, v);
}

/* Rows of any common format, from their beginning; MAIN: the one that most rows of the launch have. */
template <int MAIN>
static __device__ __forceinline__ float strip_of(int type, const uint8_t *w, int64_t row_bytes, int rows, int seg,
                                                 const struct segment &s, const struct tables *tab, float *v)
{
    if (type == MAIN)
        return strip_times<MAIN>(w + seg * (2 * frag<MAIN>::BLOCK), (uint32_t)row_bytes, rows, s, tab, v);
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        return QUANT_##name == MAIN ? 0.0f \
                                    : strip_call<QUANT_##name>(w + seg * (2 * frag<QUANT_##name>::BLOCK), \
                                                               (uint32_t)row_bytes, rows, s, tab, v);
        CUDA_COMMON(X)
#undef X
    default: return 0.0f;
    }
}
#endif
