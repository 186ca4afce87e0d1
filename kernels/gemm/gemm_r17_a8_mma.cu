/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_a8_mma.cu - GEMM for 17 and more tokens with 8-bit activations (int8 mma.sync).
 *
 * Only for formats whose integer sums stay exact in a float over 128, 64 or 32 elements (gemm/sums.cuh: a8_sums()).
 * An mma multiplies 16 rows of weights with 8 columns, one unit at a time. The sums are scaled and added as integers,
 * so only two float operations are left for each result and sum, and two more for minima. Minima are multiplied as
 * halves with sums of 8 activations, 16 of them a group, exactly: the bits v of a minimum, taken as a half, are v
 * 2^-24.
 *
 * A block computes 128 rows x 64 columns; packed weights are copied to shared memory a few groups ahead
 * (quant/group.cuh). A warp has 32 rows x 32 columns. */
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/acts_a8_mma.cuh"
#include "kernels/quant/all.cuh"

enum {
    WARPS_R = 4,
    WARPS_C = 2,
    THREADS = WARPS_R * WARPS_C * 32,
    ROWS = 32 * WARPS_R,
    COLUMNS = R17_A8_COLUMNS,
    MT = 2,
    NT = 4,
};
/* Blocks of a multiprocessor: where shared memory has room for one, it may have all registers (hence the Makefile
 * compiles this file for each architecture as its own). */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ != 900
enum { PER_SM = 1 };
#else
enum { PER_SM = 2 };
#endif
static_assert(ROWS == (int)TILE_ROWS && ROWS == (int)GROUP_ROWS && COLUMNS == (int)TILE_COLUMNS, "blocks");

/* In shared memory; the smallest GPUs give a block 99 KiB. */
template <int TYPE> struct r17_a8_room {
    enum {
        STAGE = R17_A8_GROUP + group<TYPE>::SIZE,
        TOTALS = ROWS * COLUMNS * 4,
        REST = TOTALS + group<TYPE>::BOOK + COLUMNS * 4,
        STAGES = 3 * STAGE + REST <= 99 << 10 ? 3 : 2,
        TOTALS_AT = STAGES * STAGE,
        BOOK_AT = TOTALS_AT + TOTALS,
        NUMBERS_AT = BOOK_AT + group<TYPE>::BOOK,
        SMEM = NUMBERS_AT + COLUMNS * 4,
    };
    static_assert(STAGE % 16 == 0 && SMEM <= 99 << 10, "places");
};

template <bool SIGNED> static __device__ __forceinline__ void mma_bytes(int d[4], const uint32_t a[4], uint2 b)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
}

/* 16 elements. */
static __device__ __forceinline__ void mma_half_bytes(int d[4], const uint32_t a[2], uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(0));
}

static __device__ __forceinline__ void mma_halves(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* What a thread copies of each group: parts of columns, from where in 16 bytes (dx: 4) from x. */
struct source {
    enum { EACH = COLUMNS * 8 / THREADS };
    uint32_t q[EACH], sums, dx;
};
static __device__ __forceinline__ void find_source(source &f, const tile_args &a, const int *number, int groups)
{
    const int tid = threadIdx.x;
    const uint32_t tile = (uint32_t)groups * (R17_A8_GROUP / 16);

#pragma unroll
    for (int i = 0; i < source::EACH; i++) {
        const int col = tid / 8 + i * (THREADS / 8), n = number[col] / a.div;

        f.q[i] = n / COLUMNS * tile + (uint32_t)(r17_a8_unit(n % COLUMNS, tid % 8 / 2) / 16 + tid % 2);
    }
    const int n = number[tid % COLUMNS] / a.div;
    f.sums = n / COLUMNS * tile + (uint32_t)(R17_A8_SUMS / 16 + tid / COLUMNS * COLUMNS + n % COLUMNS);
    f.dx = (n / COLUMNS * tile + R17_A8_SCALES / 16) * 4 + n % COLUMNS;
}

template <int TYPE>
static __device__ __forceinline__ void fetch_group(uint8_t *stage,
                                                   const typename group<TYPE>::template source<THREADS> &w,
                                                   const uint8_t *x, const source &f, int group)
{
    const int tid = threadIdx.x;

    x += (int64_t)group * R17_A8_GROUP;
    w.copy(stage + R17_A8_GROUP, group, tid);
#pragma unroll
    for (int i = 0; i < source::EACH; i++)
        copy16(stage + r17_a8_unit(tid / 8 + i * (THREADS / 8), tid % 8 / 2) + tid % 2 * 16, x + (uint64_t)f.q[i] * 16);
    if (tid < 2 * COLUMNS)
        copy16(stage + R17_A8_SUMS + tid * 16, x + (uint64_t)f.sums * 16);
    if (tid < COLUMNS)
        copy4(stage + R17_A8_SCALES + tid * 4, x + (uint64_t)f.dx * 4);
}

/* A lane's rows are g and g + 8 of each 16 of its warp's, its columns 2 c and 2 c + 1 of each 8. */
static __device__ __forceinline__ int own_row(int m, int h)
{
    return threadIdx.x / 32 / WARPS_C * 32 + m * 16 + h * 8 + (threadIdx.x & 31) / 4;
}
static __device__ __forceinline__ int first_column(void)
{
    return threadIdx.x / 32 % WARPS_C * (NT * 8);
}

/* Of the rows of a lane: what group<> (quant/group.cuh) wants to know, their scales. */
struct lane_rows {
    uint32_t odd[MT][2], skew[MT][2], scale[MT][2];
};

/* I += scale i of a unit, or I = that, of the first `some` 8 columns. A unit of two scales is multiplied in halves. */
typedef int int_sums[MT][NT][4];
typedef float float_sums[MT][NT][4];
template <int TYPE>
static __device__ __forceinline__ void add_unit(int_sums &I, const uint32_t a[MT][4], const uint8_t *stage,
                                                const lane_rows &rows, int unit, int some, bool first)
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3, t0 = first_column();
    int s[MT][2][2];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const uint32_t scale = rows.scale[i / 2][i % 2];

        s[i / 2][i % 2][0] = a8_sums(TYPE) == 4 ? (int)(int8_t)scale : (int)(scale >> unit * 8 & 255u);
        s[i / 2][i % 2][1] = (int)(int8_t)(scale >> 8);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const uint2 b = *(const uint2 *)(stage + r17_a8_unit(t0 + n * 8 + g, unit) + c * 8);

        if (n >= some)
            break;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            int d[4], d2[4];

            if (a8_sums(TYPE) == 4) {
                mma_half_bytes(d, a[m], b.x);
                mma_half_bytes(d2, a[m] + 2, b.y);
            } else {
                mma_bytes<group<TYPE>::SIGNED>(d, a[m], b);
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                I[m][n][e] = (first ? 0 : I[m][n][e]) + s[m][e / 2][0] * d[e] +
                             (a8_sums(TYPE) == 4 ? s[m][e / 2][1] * d2[e] : 0);
        }
    }
}

/* S += dx (d I). */
template <int TYPE>
static __device__ __forceinline__ void add_ints(float_sums &S, const int_sums &I, const uint8_t *stage,
                                                const lane_rows &rows, int some)
{
    const int c = threadIdx.x & 3, t0 = first_column();
    float d[MT][2];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
        d[i / 2][i % 2] = group<TYPE>::d(stage + R17_A8_GROUP, own_row(i / 2, i % 2), rows.skew[i / 2][i % 2]);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float2 dx = *(const float2 *)(stage + R17_A8_SCALES + (t0 + n * 8 + 2 * c) * 4);

        if (n >= some)
            break;
#pragma unroll
        for (int i = 0; i < 4 * MT; i++)
            S[i / 4][n][i % 4] =
                __fmaf_rn(i % 2 == 0 ? dx.x : dx.y, __fmul_rn(d[i / 4][i % 4 / 2], (float)I[i / 4][n][i % 4]),
                          S[i / 4][n][i % 4]);
    }
}

/* S -= dx (dmin M). */
template <int TYPE>
static __device__ __forceinline__ void add_minima(float_sums &S, const uint8_t *stage, int number, int some)
{
    typedef group<TYPE> G;
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3, t0 = first_column();
    const uint32_t own = (uint32_t)(c / 2) * 0x0101u;
    float dmin[MT][2];
    uint32_t a[MT][4];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const uint32_t min = G::mins(stage + R17_A8_GROUP, own_row(i / 2, i % 2), number);

        dmin[i / 2][i % 2] = __fmul_rn(G::dmin(stage + R17_A8_GROUP, own_row(i / 2, i % 2)), -16777216.0f);
        a[i / 2][i % 2] = __byte_perm(min, 0, 0x4040u | own);
        a[i / 2][2 + i % 2] = __byte_perm(min, 0, 0x4242u | own);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int t = t0 + n * 8;
        const float2 dx = *(const float2 *)(stage + R17_A8_SCALES + (t + 2 * c) * 4);
        const uint32_t b0 = *(const uint32_t *)(stage + R17_A8_SUMS + (t + g) * 16 + c * 4);
        const uint32_t b1 = *(const uint32_t *)(stage + R17_A8_SUMS + (COLUMNS + t + g) * 16 + c * 4);

        if (n >= some)
            break;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float M[4];

            mma_halves(M, a[m], b0, b1);
#pragma unroll
            for (int e = 0; e < 4; e++)
                S[m][n][e] = __fmaf_rn(e % 2 == 0 ? dx.x : dx.y, __fmul_rn(dmin[m][e / 2], M[e]), S[m][n][e]);
        }
    }
}

template <int TYPE>
static __device__ __forceinline__ void add_group(float_sums &S, int_sums &I, const uint8_t *stage, lane_rows &rows,
                                                 int number, int some, const void *book)
{
    typedef group<TYPE> G;
    enum { UNITS = 4 / a8_sums(TYPE) };
    const uint8_t *at = stage + R17_A8_GROUP;
    const int c = threadIdx.x & 3;
    uint32_t w[MT][4][2];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        rows.skew[i / 2][i % 2] = G::skew_of(rows.odd[i / 2][i % 2], number);
        if constexpr (a8_sums(TYPE) < 4)
            rows.scale[i / 2][i % 2] = G::scales(at, own_row(i / 2, i % 2), rows.skew[i / 2][i % 2], number);
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
        uint32_t a[MT][4];

#pragma unroll
        for (int i = 0; i < 4 * MT; i++) { /* rows g, g + 8; words c, then c + 4 */
            const int r = own_row(i / 4, i % 2);
            const uint32_t skew = rows.skew[i / 4][i % 2];

            if constexpr (a8_sums(TYPE) == 4) {
                a[i / 4][i % 4] = G::unit_bytes(at, r, skew, u, i % 4 / 2, c);
                rows.scale[i / 4][i % 2] = G::unit_scales(at, r, skew, u);
            } else {
                if (u % 2 == 0)
                    G::bytes(w[i / 4][i % 4], at, r, skew, number, u / 2, i % 4 / 2, c, book);
                a[i / 4][i % 4] = w[i / 4][i % 4][u % 2];
            }
        }
        add_unit<TYPE>(I, a, stage, rows, u, some, u % UNITS == 0);
        if (u % UNITS == UNITS - 1)
            add_ints<TYPE>(S, I, stage, rows, some);
    }
    if constexpr (G::MIN)
        add_minima<TYPE>(S, stage, number, some);
}

/* Sums of 4 groups into those of all, a thread's own. */
static __device__ __forceinline__ void add_up(float_sums &S, float4 *total, bool first)
{
#pragma unroll
    for (int i = 0; i < MT * NT; i++) {
        float *s = S[i / NT][i % NT];
        const float4 t = first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : total[i * THREADS];

        total[i * THREADS] =
            make_float4(__fadd_rn(t.x, s[0]), __fadd_rn(t.y, s[1]), __fadd_rn(t.z, s[2]), __fadd_rn(t.w, s[3]));
        s[0] = s[1] = s[2] = s[3] = 0.0f;
    }
}

static __device__ __forceinline__ void store_sums(const mv_job &job, const float4 *total, const int *number, int cols,
                                                  int r0)
{
    const int t0 = first_column() + (threadIdx.x & 3) * 2;

#pragma unroll
    for (int i = 0; i < MT * NT; i++) {
        const float4 v = total[i * THREADS];
        const int r = r0 + own_row(i / NT, 0), t = t0 + i % NT * 8;

#pragma unroll
        for (int e = 0; e < 2; e++) {
            float *y = job.y + (t + e < cols ? number[t + e] * job.y_stride : 0);

            if (t + e < cols && r < job.n_rows)
                y[r] = e == 0 ? v.x : v.y;
            if (t + e < cols && r + 8 < job.n_rows)
                y[r + 8] = e == 0 ? v.z : v.w;
        }
    }
}

/* grid: rows of all jobs, columns. */
template <int TYPE>
static __global__ void __launch_bounds__(THREADS, PER_SM) r17_a8_times(const __grid_constant__ tile_args a)
{
    typedef group<TYPE> G;
    typedef r17_a8_room<TYPE> R;
    extern __shared__ __align__(128) uint8_t smem[];
    float4 *total = (float4 *)(smem + R::TOTALS_AT) + threadIdx.x;
    int *number = (int *)(smem + R::NUMBERS_AT), j = 0;
    const void *book = smem + R::BOOK_AT;
    const int tid = threadIdx.x, groups = a8_groups(a.k);
    span in;

    if (!find_span(a, (int)blockIdx.y + a.base, COLUMNS, in))
        return;
    while (j + 1 < a.n && (int)blockIdx.x >= a.job[j + 1].block)
        j++;
    const mv_job &job = a.job[j];
    const int r0 = ((int)blockIdx.x - job.block) * ROWS, cols = min(in.cols, (int)COLUMNS);
    const int some = (cols + 7) / 8 - first_column() / 8;
    const uint8_t *w = job.w + in.expert * a.expert_bytes + r0 * job.row_bytes;
    const block_rows rows = { { w, w }, (uint32_t)job.row_bytes, job.n_rows - 1 - r0, false };
    typename G::template source<THREADS> weights;

    for (int i = tid; i < COLUMNS; i += THREADS) {
        const int t = in.first + (i < cols ? i : 0);

        number[i] = a.list != NULL ? a.list[t] : t;
    }
    if (G::BOOK > 0)
        bring_tables<TYPE>(*(copied_tables<4> *)(smem + R::BOOK_AT), a.tab);
    __syncthreads();
    source from;
    float_sums S = {};
    int_sums I = {};
    lane_rows own;

    weights.find(rows, tid);
    find_source(from, a, number, groups);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
        own.odd[i / 2][i % 2] = G::odd(rows.row(own_row(i / 2, i % 2)));
#pragma unroll
    for (int g = 0; g + 1 < R::STAGES; g++) {
        if (g < groups)
            fetch_group<TYPE>(smem + g * R::STAGE, weights, a.x, from, g);
        copy_end();
    }
    for (int g = 0, at = 0; g < groups; g++, at = at + 1 == R::STAGES ? 0 : at + 1) {
        const int next = g + R::STAGES - 1;

        copy_wait<R::STAGES - 2>();
        __syncthreads();
        if (next < groups)
            fetch_group<TYPE>(smem + (at == 0 ? R::STAGES - 1 : at - 1) * R::STAGE, weights, a.x, from, next);
        copy_end();
        add_group<TYPE>(S, I, smem + at * R::STAGE, own, g, some, book);
        if (g % 4 == 3 || g + 1 == groups)
            add_up(S, total, g < 4);
    }
    store_sums(job, total, number, cols, r0);
}

template <int TYPE> static void launch_r17_a8(struct cuda *c, struct tile_args *a, int64_t chunks)
{
    enum { GRID_Y = 65535 };
    const int64_t blocks = cuda_tile_blocks(a, ROWS);

    cuda_fail(
        c,
        cudaFuncSetAttribute(r17_a8_times<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, r17_a8_room<TYPE>::SMEM),
        "whole");
    for (int64_t at = 0; at < chunks; at += GRID_Y) {
        a->base = (int)at;
        LAUNCH(c, r17_a8_times<TYPE>,
               dim3((unsigned)blocks, (unsigned)(chunks - at < GRID_Y ? chunks - at : (int64_t)GRID_Y)), THREADS,
               r17_a8_room<TYPE>::SMEM, *a);
    }
}

void cuda_r17_a8(struct cuda *c, struct tile_args *a, int64_t chunks)
{
    switch (a->job[0].type) {
#define X(name, sums) \
    case QUANT_##name: \
        launch_r17_a8<QUANT_##name>(c, a, chunks); \
        break;
        GEMM_A8(X)
#undef X
    default:
        break;
    }
}

__global__ void __launch_bounds__(256) round_r17_a8(uint8_t *out, const float *x, int64_t stride, int k)
{
    const int i = blockIdx.y * 256 + threadIdx.x;
    const float *from = x + blockIdx.x * stride + i * 8;
    float v[8];

#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = i * 8 < k ? from[j] : 0.0f;
    r17_a8_values(out, a8_groups(k), blockIdx.x, v, i / 16, i % 16, i * 8 < k);
}

void cuda_round_r17_a8(struct cuda *c, uint8_t *out, struct tensor x)
{
    const int k = (int)x.ne[0];

    LAUNCH(c, round_r17_a8, dim3((unsigned)x.ne[1], (unsigned)ceil_div(k, 64 * 32)), 256, 0, out, (const float *)x.data,
           x.stride, k);
}
