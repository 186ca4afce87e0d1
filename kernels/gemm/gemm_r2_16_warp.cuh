/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r2_16_warp.cuh - a warp's part of a GEMM for 2 to 16 tokens: a block of weights times several columns.
 * room: kernels
 *
 * 16 rows of weights are the A operand of an mma. The B operand has the byte planes h and l of four columns side by
 * side. Lane 4 g + c gets the exact sums of rows g and g + 8 with column c, and does their float operations in the
 * order of gemm/sums.cuh. With 8-bit activations there is no plane h: B has eight columns, and a lane two of them. Each
 * lane decodes the scales of a few units; the others read them from shared memory. */
#ifndef KERNELS_GEMM_GEMM_R2_16_WARP_CUH
#define KERNELS_GEMM_GEMM_R2_16_WARP_CUH
#include "kernels/gemm/weights_smem.cuh"

enum { GROUP = 4 /* columns */, PITCH = 24 /* of a column's sums, for the banks' sake */ };

/* Strips that a warp has registers for at once. */
template <int TYPE> constexpr int MOST_STRIPS = sizeof(typename frag<TYPE>::raw) <= 48 ? 2 : 1;

/* Where a lane finds its part of the columns: the bytes of four of them, and the sums of one. Of 8 bits (NT 2): the
 * bytes of eight, and the sums of two. */
template <int NT> struct columns {
    uint32_t bytes[NT], sums[NT];
};

/* What a unit has two of: scale and minimum, or scales of its halves; of 8 units, rows apart for the banks' sake. */
template <int TYPE> struct scales_of {
    enum { EACH = frag<TYPE>::HALVES || frag<TYPE>::MIN ? 2 : 1, APART = 8 * EACH + 4 };
};

/* Sums that begin at `start`. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_r2_16(int d[4], const uint32_t g0[2], const uint32_t g8[2], uint32_t b0,
                                                 uint32_t b1, int start)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1), "r"(start));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1), "r"(start));
}

/* Sums of a unit or, of formats with two scales, of its halves. */
template <class F>
static __device__ __forceinline__ void unit_sums(int first[4], int second[4], const uint32_t w0[2],
                                                 const uint32_t w8[2], uint32_t b0, uint32_t b1, int c, int start)
{
    if (F::HALVES) {
        mma_r2_16<F::SIGNED>(first, w0, w8, c < 2 ? b0 : 0u, c < 2 ? b1 : 0u, start);
        mma_r2_16<F::SIGNED>(second, w0, w8, c < 2 ? 0u : b0, c < 2 ? 0u : b1, start);
    } else {
        mma_r2_16<F::SIGNED>(first, w0, w8, b0, b1, start);
    }
}

/* The scales of a block of M strips, for the warp; EIGHT: of formats that stay whole, the numbers, as whole ones, and
 * those of minima, which are not negative. */
template <int TYPE, bool EIGHT, int M>
static __device__ __forceinline__ void put_scales(float *scales, const strip<TYPE> s[M])
{
    typedef frag<TYPE> F;
    enum { EACH = scales_of<TYPE>::EACH, APART = scales_of<TYPE>::APART, AT_ONCE = F::HALVES ? 2 : 4 };
    const int lane = threadIdx.x & 31, c = lane % 4;
    float *to = scales + lane / 4 * APART + (F::HALVES ? c : EACH * c);

    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        const typename F::raw &row = r % 2 == 0 ? s[r / 2].r0 : s[r / 2].r8;
        float d[8 / AT_ONCE], m[8 / AT_ONCE];

        if constexpr (!EIGHT || !has_a8_sums(TYPE))
            all_scales<TYPE>(row, c, d, m);
#pragma unroll
        for (int j = 0; j < 8 / AT_ONCE; j++) {
            float *at = to + r * 8 * APART + j * AT_ONCE * EACH;

            if constexpr (EIGHT && has_a8_sums(TYPE)) {
                uint32_t n, least = 0;

                F::integers(row, j, c, n, least);
                d[j] = __uint_as_float(n);
                m[j] = -small_float(least);
            }
            if (F::MIN)
                *(float2 *)at = make_float2(d[j], -m[j]);
            else
                *at = d[j];
        }
    }
    __syncwarp();
}

/* Sums of M strips of 16 rows and NT times four columns over the units of a block, of which `units` exist. */
template <int TYPE, int NT, int M>
static __device__ __forceinline__ void block_times(float S[M][NT][2], const strip<TYPE> s[M], const uint8_t *x,
                                                   const columns<NT> &col, int units, float *scales,
                                                   const near_tables *tab)
{
    typedef frag<TYPE> F;
    enum { EACH = scales_of<TYPE>::EACH, APART = scales_of<TYPE>::APART, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int lane = threadIdx.x & 31, c = lane % 4;
    const float *own = scales + lane / 4 * APART;
    float d[2 * M][4], sums[NT][4]; /* of units: 4 floats of scales; sum of q, dx, of two */

    if (units <= 0)
        return;
    put_scales<TYPE, false, M>(scales, s);
#pragma unroll
    for (int u = 0; u < 8; u++) {
        const uint8_t *at = x + u / 2 * X_PAIR;
        const int i = u * EACH % 4;
        uint32_t w0[M][2], w8[M][2];

        if (!WHOLE_BLOCKS && u >= units) /* only where it may be: units go side by side */
            break;
#pragma unroll
        for (int m = 0; m < M; m++) {
            F::words(s[m].r0, u, c, w0[m], tab);
            F::words(s[m].r8, u, c, w8[m], tab);
        }
#pragma unroll
        for (int r = 0; r < 2 * M; r++)
            if (i == 0)
                *(float4 *)d[r] = *(const float4 *)(own + r * 8 * APART + u * EACH);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t b0 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n]);
            const uint32_t b1 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n] + (F::APART ? 8 : 16));

            if (u % 2 == 0)
                *(float4 *)sums[n] = *(const float4 *)(at + X_SUMS + col.sums[n]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                int h[4], g[4];

                unit_sums<F>(h, g, w0[m], w8[m], b0, b1, c, SUM_START);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float *by = &d[2 * m + r][i];
                    float v = __fmul_rn(by[0], join_planes(h[2 * r], h[2 * r + 1]));

                    if (F::MIN)
                        v = __fmaf_rn(by[EACH - 1], sums[n][u % 2 * 2], v);
                    if (F::HALVES)
                        v = __fmaf_rn(by[EACH - 1], join_planes(g[2 * r], g[2 * r + 1]), v);
                    S[m][n][r] = __fmaf_rn(sums[n][u % 2 * 2 + 1], v, S[m][n][r]);
                }
            }
        }
    }
}

/* The whole number of a sum that began at WHOLE. */
static __device__ __forceinline__ float one_sum(int sum)
{
    return __fsub_rn(__int_as_float(sum), 12582912.0f);
}

/* The same with 8 bits: strips and eight columns, of which a lane has rows g and g + 8, columns 2 c and 2 c + 1. Of
 * formats that stay whole a sum is one multiplication and addition of whole numbers; of odd units it is apart where
 * they have more bits. */
template <int TYPE, int M>
static __device__ __forceinline__ void block_eight(float S[M][2][2], const strip<TYPE> s[M], const uint8_t *x,
                                                   const columns<2> &col, int units, float *scales,
                                                   const near_tables *tab)
{
    typedef frag<TYPE> F;
    enum { EACH = scales_of<TYPE>::EACH, APART = scales_of<TYPE>::APART, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    enum { SUMS = a8_sums(TYPE), UNITS = SUMS > 0 ? 4 / SUMS : 1, ODD = F::ODD, APARTS = ODD > 0 ? 2 : 1 };
    static_assert(SUMS > 0 || (!F::MIN && !F::HALVES), "one scale");
    const int lane = threadIdx.x & 31, c = lane % 4;
    const float *own = scales + lane / 4 * APART;
    float d[2 * M][4], sums[2][4], mins[2 * M][2] = {}; /* of units: 4 floats of scales; sum of q, dx, of two */
    int I[2 * M][2][APARTS] = {};
    float2 by[2 * M] = {};

    if (units <= 0)
        return;
    if constexpr (SUMS > 0)
#pragma unroll
        for (int r = 0; r < 2 * M; r++)
            by[r] = F::factors(r % 2 == 0 ? s[r / 2].r0 : s[r / 2].r8);
    put_scales<TYPE, true, M>(scales, s);
#pragma unroll
    for (int u = 0; u < 8; u++) {
        const uint8_t *at = x + u / 2 * X_PAIR, *q = at + u % 2 * X_UNIT + col.bytes[0];
        const int i = u * EACH % 4;

        if (!WHOLE_BLOCKS && u >= units) /* only where it may be: units go side by side */
            break;
        const uint32_t b0 = *(const uint32_t *)q, b1 = *(const uint32_t *)(q + (F::APART ? 8 : 16));
#pragma unroll
        for (int m = 0; m < M; m++) {
            uint32_t w0[2], w8[2];
            int first[4], second[4];

            F::words(s[m].r0, u, c, w0, tab);
            F::words(s[m].r8, u, c, w8, tab);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (i == 0)
                    *(float4 *)d[2 * m + r] = *(const float4 *)(own + (2 * m + r) * 8 * APART + u * EACH);
                if (m == 0 && u % 2 == 0)
                    *(float4 *)sums[r] = *(const float4 *)(at + X_SUMS + col.sums[r]);
            }
            unit_sums<F>(first, second, w0, w8, b0, b1, c, SUMS > 0 ? 0 : (int)SUM_START);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int r = 2 * m + j / 2, e = j % 2;
                const float dx = sums[e][u % 2 * 2 + 1];
                float &own_sum = S[m][j / 2][e];

                if constexpr (SUMS > 0) {
                    int &all = I[r][e][u % APARTS];

                    all = __float_as_int(d[r][i]) * first[j] + (u % UNITS >= APARTS ? all : 0);
                    if (F::HALVES)
                        all += __float_as_int(d[r][i + EACH - 1]) * second[j];
                    if (F::MIN)
                        mins[r][e] = __fmaf_rn(d[r][i + EACH - 1], sums[e][u % 2 * 2], u % 4 > 0 ? mins[r][e] : 0.0f);
                    if (u % UNITS == UNITS - 1)
                        own_sum = __fmaf_rn(dx, __fmul_rn(by[r].x, (float)(ODD > 0 ? I[r][e][0] + (all >> ODD) : all)),
                                            own_sum);
                    if (F::MIN && u % 4 == 3)
                        own_sum = __fmaf_rn(dx, __fmul_rn(by[r].y, mins[r][e]), own_sum);
                } else {
                    own_sum = __fmaf_rn(dx, __fmul_rn(d[r][i], one_sum(first[j])), own_sum);
                }
            }
        }
    }
}

/* Where column i lies: four of them, pitches 16 bytes more than a multiple of 128, meet in no bank. */
enum { ASIDE = 32 };
static __device__ __forceinline__ uint32_t column_at(int i, int pitch)
{
    return (uint32_t)(i * pitch + (i & 2) / 2 * ASIDE);
}

/* Bytes between columns of `pairs` pairs of units. */
static inline int column_pitch(int pairs)
{
    return (int)round_up((size_t)pairs * X_PAIR + ASIDE, 128) + 16;
}

/* Of nt groups; stages lie behind them. */
static __host__ __device__ inline int columns_bytes(int nt, int pitch)
{
    return (nt * GROUP * pitch + BOX_ALIGN - 1) / BOX_ALIGN * BOX_ALIGN;
}

/* A lane's part of `cols` columns. */
template <int TYPE, int NT, bool EIGHT>
static __device__ __forceinline__ void find_columns(columns<NT> &col, int cols, int pitch)
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x % 4;

    if (EIGHT) {
        col.bytes[0] = column_at(min(g, cols - 1), pitch) + 4 + (frag<TYPE>::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
#pragma unroll
        for (int e = 0; e < NT; e++)
            col.sums[e] = column_at(min(2 * c + e, cols - 1), pitch);
    } else {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            col.bytes[n] = column_at(min(n * GROUP + g / 2, cols - 1), pitch) + g % 2 * 4 +
                           (frag<TYPE>::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
            col.sums[n] = column_at(min(n * GROUP + c, cols - 1), pitch);
        }
    }
}
#endif
