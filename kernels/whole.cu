/* SPDX-License-Identifier: Apache-2.0 */
/* whole.cu - products with several and many rows of activations of 8 bits, on tensor cores.
 *
 * Of formats whose sums stay whole numbers through a group of 128 elements (product.cuh: is_whole()). A tensor core
 * multiplies 16 rows of weights with 8 columns, a unit at a time; the sums, times the units' scales, are added up as
 * whole numbers, and floats follow once a group: five operations a result, where other formats have twenty. Minima are
 * multiplied as halves, with sums of 8 activations, 16 of them a group, exactly: bits v of a minimum are, as they lie there,
 * the half v 2^-24.
 *
 * A block is 128 rows times 64 columns; weights come to shared memory as they are stored, a few groups ahead. A warp has
 * 32 rows times 32 columns. */
#include "kernels/frag.cuh"
#include "kernels/tile.cuh"
#include "kernels/whole_rows.cuh"

enum {
    WARPS_R = 4, WARPS_C = 2, THREADS = WARPS_R * WARPS_C * 32, ROWS = 32 * WARPS_R, COLUMNS = WHOLE_COLUMNS, MT = 2, NT = 4,
    QUARTERS = 4, /* of 16 bytes: a row's weights of a group */
    W_AT = WHOLE_GROUP, HEAD_AT = W_AT + ROWS * QUARTERS * 16, STAGE = HEAD_AT + ROWS * 16, STAGES = 3,
    TOTALS_AT = STAGES * STAGE, NUMBERS_AT = TOTALS_AT + ROWS * COLUMNS * 4, SMEM = NUMBERS_AT + COLUMNS * 4,
};
static_assert(ROWS == (int)TILE_ROWS && COLUMNS == (int)TILE_COLUMNS && STAGE % 16 == 0, "blocks");

/* Where chunk i of row r lies: 8 rows meet in no bank. */
static __device__ __forceinline__ int chunk_at(int r, int i)
{
    return W_AT + r * (QUARTERS * 16) + (i ^ (r >> 1 & 3)) * 16;
}

static __device__ __forceinline__ void mma_bytes(int d[4], const uint32_t a[4], uint2 b)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
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
    const uint32_t tile = (uint32_t)groups * (WHOLE_GROUP / 16);

#pragma unroll
    for (int i = 0; i < source::EACH; i++) {
        const int col = tid / 8 + i * (THREADS / 8), n = number[col] / a.div;

        f.q[i] = n / COLUMNS * tile + (uint32_t)(whole_unit(n % COLUMNS, tid % 8 / 2) / 16 + tid % 2);
    }
    const int n = number[tid % COLUMNS] / a.div;
    f.sums = n / COLUMNS * tile + (uint32_t)(WHOLE_SUMS / 16 + tid / COLUMNS * COLUMNS + n % COLUMNS);
    f.dx = (n / COLUMNS * tile + WHOLE_SCALES / 16) * 4 + n % COLUMNS;
}

/* Row r of a block. */
static __device__ __forceinline__ const uint8_t *row_at(const tile_args &a, const mv_job &job, int64_t expert, int r)
{
    return job.w + expert * a.expert_bytes + (int64_t)min(r, job.n_rows - 1) * job.row_bytes;
}

static __device__ __forceinline__ void fetch_group(uint8_t *stage, const uint8_t *const row[3], const uint8_t *x,
                                                   const source &f, int group)
{
    const int tid = threadIdx.x, block = group / 2 * frag<QUANT_q4_k>::BLOCK;

    x += (int64_t)group * WHOLE_GROUP;
#pragma unroll
    for (int i = 0; i < 2; i++)
        copy16(stage + chunk_at(tid / 4 + i * (THREADS / 4), tid % 4), row[i] + block + 16 + group % 2 * 64 + tid % 4 * 16);
#pragma unroll
    for (int i = 0; i < source::EACH; i++)
        copy16(stage + whole_unit(tid / 8 + i * (THREADS / 8), tid % 8 / 2) + tid % 2 * 16, x + (uint64_t)f.q[i] * 16);
    if (tid < ROWS) {
        copy16(stage + HEAD_AT + tid * 16, row[2] + block);
        copy16(stage + WHOLE_SUMS + tid * 16, x + (uint64_t)f.sums * 16);
    }
    if (tid < COLUMNS)
        copy4(stage + WHOLE_SCALES + tid * 4, x + (uint64_t)f.dx * 4);
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

/* I of a group, of the first `some` 8 columns. */
typedef int   whole_sums[MT][NT][4];
typedef float float_sums[MT][NT][4];
static __device__ __forceinline__ void add_units(whole_sums &I, const uint8_t *stage, int group, int some)
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3, t0 = first_column();
    uint32_t scale[MT][2];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const uint32_t *head = (const uint32_t *)(stage + HEAD_AT + own_row(i / 2, i % 2) * 16);

        scale[i / 2][i % 2] = k_bytes(head[1], head[3], group);
    }
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        uint32_t w[MT][4];

#pragma unroll
        for (int i = 0; i < 4 * MT; i++) /* rows g, g + 8; words c, then c + 4 */
            w[i / 4][i % 4] =
                *(const uint32_t *)(stage + chunk_at(own_row(i / 4, i % 2), pair * 2 + i % 4 / 2) + c * 4);
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int u = pair * 2 + odd;
            uint32_t a[MT][4];
            int s[MT][2];

#pragma unroll
            for (int i = 0; i < 4 * MT; i++)
                a[i / 4][i % 4] = w[i / 4][i % 4] >> odd * 4 & 0x0f0f0f0fu;
#pragma unroll
            for (int i = 0; i < 2 * MT; i++)
                s[i / 2][i % 2] = (int)(scale[i / 2][i % 2] >> u * 8 & 255u);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint2 b = *(const uint2 *)(stage + whole_unit(t0 + n * 8 + g, u) + c * 8);

                if (n >= some)
                    break;
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    int d[4];

                    mma_bytes(d, a[m], b);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        I[m][n][e] = (u > 0 ? I[m][n][e] : 0) + s[m][e / 2] * d[e];
                }
            }
        }
    }
}

/* S += dx (d I), then S -= dx (dmin M). */
static __device__ __forceinline__ void add_group(float_sums &S, const whole_sums &I, const uint8_t *stage, int group, int some)
{
    const int g = (threadIdx.x & 31) / 4, c = threadIdx.x & 3, t0 = first_column();
    float d[MT][2], dmin[MT][2];
    uint32_t a[MT][4];

#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const uint4 head = *(const uint4 *)(stage + HEAD_AT + own_row(i / 2, i % 2) * 16);
        const uint32_t min = k_bytes(head.z, head.w >> 4, group), own = (uint32_t)(c / 2) * 0x0101u;

        d[i / 2][i % 2] = half_of(head.x & 0xffffu);
        dmin[i / 2][i % 2] = __fmul_rn(half_of(head.x >> 16), -16777216.0f);
        a[i / 2][i % 2] = __byte_perm(min, 0, 0x4040u | own);
        a[i / 2][2 + i % 2] = __byte_perm(min, 0, 0x4242u | own);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int t = t0 + n * 8;
        const float2 dx = *(const float2 *)(stage + WHOLE_SCALES + (t + 2 * c) * 4);
        const uint32_t b0 = *(const uint32_t *)(stage + WHOLE_SUMS + (t + g) * 16 + c * 4);
        const uint32_t b1 = *(const uint32_t *)(stage + WHOLE_SUMS + (COLUMNS + t + g) * 16 + c * 4);

        if (n >= some)
            break;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float M[4];

            mma_halves(M, a[m], b0, b1);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = e % 2 == 0 ? dx.x : dx.y;

                S[m][n][e] = __fmaf_rn(x, __fmul_rn(d[m][e / 2], (float)I[m][n][e]), S[m][n][e]);
                S[m][n][e] = __fmaf_rn(x, __fmul_rn(dmin[m][e / 2], M[e]), S[m][n][e]);
            }
        }
    }
}

/* Sums of 4 groups into those of all, a thread's own. */
static __device__ __forceinline__ void add_up(float_sums &S, float4 *total, bool first)
{
#pragma unroll
    for (int i = 0; i < MT * NT; i++) {
        float *s = S[i / NT][i % NT];
        const float4 t = first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : total[i * THREADS];

        total[i * THREADS] = make_float4(__fadd_rn(t.x, s[0]), __fadd_rn(t.y, s[1]), __fadd_rn(t.z, s[2]), __fadd_rn(t.w, s[3]));
        s[0] = s[1] = s[2] = s[3] = 0.0f;
    }
}

static __device__ __forceinline__ void store(const mv_job &job, const float4 *total, const int *number, int cols, int r0)
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
__global__ void __launch_bounds__(THREADS, 2) whole_rows_times(const __grid_constant__ tile_args a)
{
    extern __shared__ __align__(128) uint8_t smem[];
    float4 *total = (float4 *)(smem + TOTALS_AT) + threadIdx.x;
    int *number = (int *)(smem + NUMBERS_AT), j = 0;
    const int tid = threadIdx.x, groups = whole_groups(a.k);
    span in;

    if (!find_span(a, (int)blockIdx.y + a.base, COLUMNS, in))
        return;
    while (j + 1 < a.n && (int)blockIdx.x >= a.job[j + 1].block)
        j++;
    const mv_job &job = a.job[j];
    const int r0 = ((int)blockIdx.x - job.block) * ROWS, cols = min(in.cols, (int)COLUMNS);
    const int some = (cols + 7) / 8 - first_column() / 8;
    const uint8_t *const row[3] = { row_at(a, job, in.expert, r0 + tid / 4), row_at(a, job, in.expert, r0 + tid / 4 + THREADS / 4),
                                    row_at(a, job, in.expert, r0 + tid % ROWS) };

    for (int i = tid; i < COLUMNS; i += THREADS) {
        const int t = in.first + (i < cols ? i : 0);

        number[i] = a.list != NULL ? a.list[t] : t;
    }
    __syncthreads();
    source from;
    float_sums S = {};
    whole_sums I = {};

    find_source(from, a, number, groups);
#pragma unroll
    for (int g = 0; g + 1 < STAGES; g++) {
        if (g < groups)
            fetch_group(smem + g * STAGE, row, a.x, from, g);
        copy_end();
    }
    for (int g = 0, at = 0; g < groups; g++, at = at + 1 == STAGES ? 0 : at + 1) {
        const uint8_t *stage = smem + at * STAGE;
        const int next = g + STAGES - 1;

        copy_wait<STAGES - 2>();
        __syncthreads();
        if (next < groups)
            fetch_group(smem + (at == 0 ? STAGES - 1 : at - 1) * STAGE, row, a.x, from, next);
        copy_end();
        add_units(I, stage, g % 2, some);
        add_group(S, I, stage, g % 2, some);
        if (g % 4 == 3 || g + 1 == groups)
            add_up(S, total, g < 4);
    }
    store(job, total, number, cols, r0);
}

void cuda_whole(struct cuda *c, struct tile_args *a, int64_t chunks)
{
    enum { GRID_Y = 65535 };
    const int64_t blocks = cuda_tile_blocks(a, ROWS);

    cuda_fail(c, cudaFuncSetAttribute(whole_rows_times, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM), "whole");
    for (int64_t at = 0; at < chunks; at += GRID_Y) {
        a->base = (int)at;
        LAUNCH(c, whole_rows_times, dim3((unsigned)blocks, (unsigned)(chunks - at < GRID_Y ? chunks - at : (int64_t)GRID_Y)),
               THREADS, SMEM, *a);
    }
}

__global__ void __launch_bounds__(256) round_whole(uint8_t *out, const float *x, int64_t stride, int k)
{
    const int i = blockIdx.y * 256 + threadIdx.x;
    const float *from = x + blockIdx.x * stride + i * 8;
    float v[8];

#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = i * 8 < k ? from[j] : 0.0f;
    whole_values(out, whole_groups(k), blockIdx.x, v, i / 16, i % 16, i * 8 < k);
}

void cuda_round_whole(struct cuda *c, uint8_t *out, struct tensor x)
{
    const int k = (int)x.ne[0];

    LAUNCH(c, round_whole, dim3((unsigned)x.ne[1], (unsigned)ceil_div(k, 64 * 32)), 256, 0, out, (const float *)x.data, x.stride, k);
}
