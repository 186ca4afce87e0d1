/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma.cuh - GEMM for 17 and more tokens, 16- or 8-bit activations (int8 mma.sync). Any GPU, any format.
 * room: kernels
 *
 * A block computes BM rows of weights x BN tokens ("columns" below). Weights are unpacked to bytes in shared memory, KP
 * pairs of units at a time. A warp owns 16 MT rows x 8 NT columns. An mma multiplies the two byte planes of 8 columns
 * (its 16 rows) with 8 rows of weights (its 8 columns), which gives the exact sums of a unit. The float operations that
 * follow are those of gemm/sums.cuh, in its order. Lane 4 g + c gets column g of 8 and rows 2 c, 2 c + 1 of 8.
 *
 * In shared memory, 16 rows of a unit of weights are 512 bytes: 16 for each lane, words c and c + 4 of row g and of row
 * g + 8. The lanes' 16-byte slots are swizzled by g and by the pair, so that neither writes nor reads have bank
 * conflicts. */
#ifndef KERNELS_GEMM_GEMM_R17_MMA_CUH
#define KERNELS_GEMM_GEMM_R17_MMA_CUH
#include "kernels/common/tma.cuh"
#include "kernels/common/math.cuh"
#include "kernels/moe/moe_r17.cuh"

enum tile_out { TILE_FLOATS, TILE_ACT_ROUNDED, TILE_ACT /* floats; gemm/gemm_r64_a8_wgmma.cuh */ };

/* Dense: jobs of one format, columns are rows of x. Experts: column i of a chunk is pair list[first + i]. With
 * TILE_ACT_* job 0 is gate and job 1 is up, and act(gate) up comes out; of one job, act(up). */
struct tile_args {
    struct mv_job job[JOBS];
    int n, k, nx;
    const uint8_t *x;
    int64_t x_bytes;
    const struct tables *tab;
    enum tile_out out;
    int act;
    uint8_t *rounded; /* [pair] rows of n_rows */
    const int *list;  /* NULL: dense */
    const int *n_chunk;
    const struct expert_chunk *chunk;
    int64_t expert_bytes;
    int div, base;
    int columns; /* of a block, for gemm/gemm_r64_a16_wgmma.cuh */
    bool gather; /* for it: columns are rows of x; else chunk i is the i-th R64_A16_COLUMNS rows */
};

/* gemm/gemm_r17_a8_mma.cu, for formats and rows that it is for; chunks of TILE_COLUMNS at most. */
void cuda_r17_a8(struct cuda *c, struct tile_args *a, int64_t chunks);

/* d: sums of h with two rows of weights, sums of l with them. */
enum { TILE_COLUMNS = 64, TILE_ROWS = 128 };             /* of a block; a chunk of pairs has no more columns */
int64_t cuda_tile_blocks(struct tile_args *a, int rows); /* fills in job[].block; rows: of a block */
/* chunks: how many at most. Fills in job[].block and base. */
void cuda_tile(struct cuda *c, struct tile_args *a, int64_t chunks);
void cuda_tile_k(struct cuda *c, const struct tile_args *a, dim3 grid);
void cuda_tile_i(struct cuda *c, const struct tile_args *a, dim3 grid);
void cuda_tile_rare(struct cuda *c, const struct tile_args *a, dim3 grid);

static __device__ __forceinline__ void mma_unit(int d[4], const uint4 &x, uint32_t w0, uint32_t w1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(w0), "r"(w1), "r"(SUM_START));
}

static __device__ __forceinline__ void mma_half(int d[4], uint32_t h, uint32_t l, uint32_t w)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(h), "r"(l), "r"(w), "r"(SUM_START));
}

/* N floats, 2, 4 or 8, at an address aligned to 2 (N = 2) or 4 floats. */
template <int N> static __device__ __forceinline__ void load_floats(float *to, const float *from)
{
#pragma unroll
    for (int i = 0; i < N; i += N < 4 ? 2 : 4) {
        if (N < 4) {
            float2 v = *(const float2 *)(from + i);

            to[i] = v.x;
            to[i + 1] = v.y;
        } else {
            float4 v = *(const float4 *)(from + i);

            to[i] = v.x;
            to[i + 1] = v.y;
            to[i + 2] = v.z;
            to[i + 3] = v.w;
        }
    }
}

/* Code books of a format, in bytes of struct tables. */
template <int TYPE> struct book {
    enum { AT = 0, BYTES = TYPE == QUANT_iq3_s ? sizeof(((struct tables *)0)->iq3s) : 0 };
};

template <int TYPE, int WR, int WT, int MT, int NT> struct tile {
    enum {
        BM = WR * MT * 16,
        BN = WT * NT * 8,
        THREADS = WR * WT * 32,
        KP = THREADS / BM,
        HALF = wq<TYPE>::HALF,
        MIN = wq<TYPE>::MIN,
        DU = (1 + HALF) * (1 + MIN), /* floats of a row and unit */
        W_BYTES = KP * 2 * BM * 32,
        D_BYTES = KP * 2 * BM * DU * 4,
        X_BYTES = KP * 2 * BN * X_UNIT,
        S_BYTES = KP * 2 * BN * 8,
        H_BYTES = HALF && MIN ? KP * BN * 8 : 0,
        D_AT = W_BYTES,
        X_AT = D_AT + D_BYTES,
        S_AT = X_AT + X_BYTES,
        H_AT = S_AT + S_BYTES,
        STAGE = H_AT + H_BYTES,
        TOTALS = BM * BN * 4,
        HEAD = BN * 4 + book<TYPE>::BYTES, /* numbers of the columns, code book */
        OUT = BN * (BM + 4) * 4,           /* activations before they are rounded */
        SMEM = HEAD + TOTALS + (2 * STAGE > OUT ? 2 * STAGE : OUT),
    };

    static __device__ __forceinline__ int lane_slot(int g, int c, int pair)
    {
        return (g * 4 + (c ^ (g >> 1) ^ (pair << 1 & 3))) * 16;
    }

    static __device__ __forceinline__ void put_weights(uint8_t *stage, const unit u[2], int r, int j, int n)
    {
        int g = r % 8, hi = r % 16 / 8;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint8_t *at = stage + ((j * 2 + i) * (BM / 16) + r / 16) * 512 + hi * 8;
            float *d = (float *)(stage + D_AT) + ((j * 2 + i) * BM + r) * DU, f[4];

#pragma unroll
            for (int c = 0; c < 4; c++)
                *(int2 *)(at + lane_slot(g, c, j)) = i < n ? make_int2(u[i].w[c], u[i].w[c + 4]) : make_int2(0, 0);
#pragma unroll
            for (int h = 0; h < 1 + HALF; h++) {
                f[h * (1 + MIN)] = i < n ? u[i].d[h] : 0.0f;
                if (MIN)
                    f[h * 2 + 1] = i < n ? u[i].m[h] : 0.0f;
            }
            if (DU == 1)
                *d = f[0];
            else if (DU == 2)
                *(float2 *)d = make_float2(f[0], f[1]);
            else
                *(float4 *)d = make_float4(f[0], f[1], f[2], f[3]);
        }
    }

    /* What a thread copies of each pair of the columns (KP 1): from where, in 8 bytes from x, or NONE; to where. */
    enum { QS = BN * 8 / THREADS, SS = BN * 2 / THREADS };
    static constexpr uint32_t NONE = 0xffffffffu;
    struct source {
        uint32_t q[QS], s[SS];
        int q_to, s_to;
    };
    static __device__ __forceinline__ void find_source(source &f, const int *number, int cols, int div, int64_t x_bytes)
    {
        const int t0 = (int)threadIdx.x / 8, ch = threadIdx.x % 8, u0 = (int)threadIdx.x / 2;

#pragma unroll
        for (int i = 0; i < QS; i++) {
            int t = t0 + i * (THREADS / 8);

            f.q[i] = t < cols ? (uint32_t)(number[t] / div * (x_bytes / 8) + ch * 2) : NONE;
        }
#pragma unroll
        for (int i = 0; i < SS; i++) {
            int t = u0 + i * (THREADS / 2);

            f.s[i] = t < cols ? (uint32_t)(number[t] / div * (x_bytes / 8) + X_SUMS / 8 + threadIdx.x % 2) : NONE;
        }
        f.q_to = X_AT + (ch / 4 * BN + (t0 ^ ch / 4)) * X_UNIT + ch % 4 * 16;
        f.s_to = S_AT + ((int)threadIdx.x % 2 * BN + u0) * 8;
    }

    /* x: where the pair begins in the first row. */
    static __device__ __forceinline__ void fetch_columns(uint8_t *stage, const uint8_t *x, const source &f)
    {
        static_assert(KP == 1 && QS * THREADS == BN * 8 && SS * THREADS == BN * 2 && THREADS % 16 == 0, "shares");
#pragma unroll
        for (int i = 0; i < QS; i++)
            if (f.q[i] != NONE)
                copy16(stage + f.q_to + i * (THREADS / 8) * X_UNIT, x + (uint64_t)f.q[i] * 8);
#pragma unroll
        for (int i = 0; i < SS; i++)
            if (f.s[i] != NONE)
                copy8(stage + f.s_to + i * (THREADS / 2) * 8, x + (uint64_t)f.s[i] * 8);
        copy_end();
    }

    /* A lane's part of unit u (of pair j) of the 16 MT rows from 16 r16 on. */
    struct rows {
        uint4 w[MT];
        float d[2 * MT][2 * DU];
    };
    static __device__ __forceinline__ uint4 load_words(const uint8_t *stage, int r16, int u, int j)
    {
        const int lane = threadIdx.x & 31;

        return *(const uint4 *)(stage + (u * (BM / 16) + r16) * 512 + lane_slot(lane / 4, lane % 4, j));
    }
    static __device__ __forceinline__ void load_scales(float d[2 * DU], const uint8_t *stage, int r8, int u)
    {
        load_floats<2 * DU>(d, (const float *)(stage + D_AT) + (u * BM + r8 * 8 + 2 * (threadIdx.x & 3)) * DU);
    }
    static __device__ __forceinline__ void load_rows(rows &r, const uint8_t *stage, int r16, int u, int j)
    {
#pragma unroll
        for (int m = 0; m < MT; m++)
            r.w[m] = load_words(stage, r16 + m, u, j);
#pragma unroll
        for (int m = 0; m < 2 * MT; m++)
            load_scales(r.d[m], stage, 2 * r16 + m, u);
    }

    /* Exact sums of a unit, of 8 rows with 8 columns; x: the lane's 16 bytes of its column; m: which 8 rows. */
    struct sums {
        int q[1 + HALF][4];
    };
    static __device__ __forceinline__ void sum_unit(sums &s, const uint4 &w, int m, const uint4 &x)
    {
        uint32_t w0 = m % 2 == 0 ? w.x : w.z, w1 = m % 2 == 0 ? w.y : w.w;

        if (HALF) {
            mma_half(s.q[0], x.x, x.y, w0);
            mma_half(s.q[HALF], x.z, x.w, w1);
        } else {
            mma_unit(s.q[0], x, w0, w1);
        }
    }

    /* S += dx V; sx: the column's sum of q and dx, second: the sum of its second half. */
    static __device__ __forceinline__ void add_unit(float S[2], const sums &s, const float d[2 * DU], float2 sx,
                                                    float second)
    {
        float first = HALF && MIN ? __fsub_rn(sx.x, second) : sx.x;

#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float *dm = d + e * DU;
            float v = __fmul_rn(dm[0], join_planes(s.q[0][e], s.q[0][e + 2]));

            if (MIN)
                v = __fmaf_rn(-dm[1], first, v);
            if (HALF)
                v = __fmaf_rn(dm[HALF * (1 + MIN)], join_planes(s.q[HALF][e], s.q[HALF][e + 2]), v);
            if (HALF && MIN)
                v = __fmaf_rn(-dm[DU - 1], second, v);
            S[e] = __fmaf_rn(sx.y, v, S[e]);
        }
    }

    /* The lane's part of a unit of 8 columns from t0 on. */
    struct column {
        uint4 q;
        float2 s;
    };
    static __device__ __forceinline__ void load_column(column &x, const uint8_t *stage, int t0, int u)
    {
        const int lane = threadIdx.x & 31;

        x.q = *(const uint4 *)(stage + X_AT + (u * BN + ((t0 + lane / 4) ^ (u & 1))) * X_UNIT + lane % 4 * 16);
        x.s = ((const float2 *)(stage + S_AT))[u * BN + t0 + lane / 4];
    }

    /* Pair j. AHEAD sums are under way while the floats of one are computed, and what is used next is fetched. */
    enum { AHEAD = 3, M8 = 2 * MT };
    static __device__ __forceinline__ void multiply(float S[2 * MT][NT][2], const uint8_t *stage, int j)
    {
        static_assert(!(HALF && MIN) && M8 >= AHEAD, "order of fetching");
        const int warp = threadIdx.x / 32, t0 = warp % WT * NT * 8, r16 = warp / WT * MT;
        uint4 w[2][MT];
        float d[M8][2 * DU];
        column x[2];
        sums s[AHEAD + 1];

        load_column(x[0], stage, t0, 2 * j);
#pragma unroll
        for (int m = 0; m < MT; m++)
            w[0][m] = load_words(stage, r16 + m, 2 * j, j);
#pragma unroll
        for (int m = 0; m < M8; m++)
            load_scales(d[m], stage, 2 * r16 + m, 2 * j);
#pragma unroll
        for (int m = 0; m < AHEAD; m++)
            sum_unit(s[m], w[0][m / 2], m, x[0].q);
#pragma unroll
        for (int at = 0; at < 2 * NT * M8; at++) {
            const int k = at / M8, m = at % M8, next = at + AHEAD, nk = next / M8;

            if (m == 0 && k + 1 < 2 * NT)
                load_column(x[(k + 1) % 2], stage, t0 + (k + 1) % NT * 8, 2 * j + (k + 1) / NT);
            if (m == 0 && k == NT - 1)
#pragma unroll
                for (int q = 0; q < MT; q++)
                    w[1][q] = load_words(stage, r16 + q, 2 * j + 1, j);
            if (nk < 2 * NT)
                sum_unit(s[next % (AHEAD + 1)], w[nk / NT][next % M8 / 2], next % M8, x[nk % 2].q);
            add_unit(S[m][k % NT], s[at % (AHEAD + 1)], d[m], x[k % 2].s, 0.0f);
            if (k == NT - 1)
                load_scales(d[m], stage, 2 * r16 + m, 2 * j + 1);
        }
    }

    /* Likewise the first some groups of 8 columns. */
    static __device__ __forceinline__ void multiply_some(float S[2 * MT][NT][2], const uint8_t *stage, int j, int some)
    {
        const int warp = threadIdx.x / 32, t0 = warp % WT * NT * 8, r16 = warp / WT * MT;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            column x[2];
            rows r;

            load_column(x[0], stage, t0, 2 * j + i);
            load_rows(r, stage, r16, 2 * j + i, j);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                sums s[M8];

                if (n >= some)
                    break;
#pragma unroll
                for (int m = 0; m < M8; m++)
                    sum_unit(s[m], r.w[m / 2], m, x[n % 2].q);
                if (n + 1 < NT)
                    load_column(x[(n + 1) % 2], stage, t0 + n * 8 + 8, 2 * j + i);
#pragma unroll
                for (int m = 0; m < M8; m++)
                    add_unit(S[m][n], s[m], r.d[m], x[n % 2].s, 0.0f);
            }
        }
    }

    /* Sums of 8 pairs into those of all. */
    static __device__ __forceinline__ void add_up(float S[2 * MT][NT][2], float4 *total)
    {
#pragma unroll
        for (int m = 0; m < 2 * MT; m += 2)
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float4 *at = total + (m / 2 * NT + n) * THREADS, t = *at;

                *at = make_float4(__fadd_rn(t.x, S[m][n][0]), __fadd_rn(t.y, S[m][n][1]),
                                  __fadd_rn(t.z, S[m + 1][n][0]), __fadd_rn(t.w, S[m + 1][n][1]));
                S[m][n][0] = S[m][n][1] = S[m + 1][n][0] = S[m + 1][n][1] = 0.0f;
            }
    }
};

/* The columns of a block: which, how many, whose matrix; false: none. */
struct span {
    int first, cols;
    int64_t expert;
};
static __device__ __forceinline__ bool find_span(const tile_args &a, int chunk, int most, span &s)
{
    s.first = chunk * most;
    s.cols = a.nx - s.first;
    s.expert = 0;
    if (a.list == NULL)
        return true;
    if (chunk >= *a.n_chunk)
        return false;
    const expert_chunk c = a.chunk[chunk];
    s.first = c.first;
    s.cols = c.n;
    s.expert = c.expert;
    return true;
}

/* A code book in shared memory; threads from `first` on copy it, of `step`. */
static __device__ __forceinline__ const struct tables *near_book(uint32_t *to, const struct tables *tab, int at,
                                                                 int bytes, int first, int step)
{
    for (int i = first; i < bytes / 4; i += step)
        to[i] = ((const uint32_t *)((const uint8_t *)tab + at))[i];
    return bytes > 0 ? (const struct tables *)((const uint8_t *)to - at) : tab;
}

/* Row r of a block that begins at r0. Gate and up take turns, 16 rows each. */
static __device__ __forceinline__ const uint8_t *weight_row(const tile_args &a, const mv_job *job, bool paired,
                                                            int64_t expert, int r0, int r)
{
    int which = paired ? r / 16 % 2 : 0;

    r = r0 + (paired ? r / 32 * 16 + r % 16 : r);
    r = r < job->n_rows ? r : job->n_rows - 1;
    return (which ? a.job[1].w : job->w) + expert * a.expert_bytes + (int64_t)r * job->row_bytes;
}

/* act(gate) up of a block, rounded or not. */
template <class T, int MT, int NT>
static __device__ __forceinline__ void store_act(const tile_args &a, bool paired, const float4 *total,
                                                 const int *number, int cols, int r0, int warp_r, int warp_t,
                                                 float *hid)
{
    enum { PITCH = T::BM + 4 };
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, n_rows = a.job[0].n_rows;
    const int here = paired ? T::BM / 2 : T::BM;

    __syncthreads();
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float4 v4 = total[(m * NT + n) * T::THREADS], up4 = total[((paired ? m | 1 : m) * NT + n) * T::THREADS];
            const float v[4] = { v4.x, v4.y, v4.z, v4.w }, up[4] = { up4.x, up4.y, up4.z, up4.w };

            if (paired && m % 2 == 1)
                continue;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int t = warp_t * NT * 8 + n * 8 + g, tile = warp_r * MT + m;
                int r = (paired ? tile / 2 : tile) * 16 + e / 2 * 8 + 2 * c + e % 2;
                float pos = fmaxf(v[e], 0.0f), y = a.act == OP_SILU ? silu(v[e]) : __fmul_rn(pos, pos);

                hid[t * PITCH + r] = r0 + r >= n_rows ? 0.0f : __fmul_rn(y, paired ? up[e] : 1.0f);
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < T::BN * here / 8; i += T::THREADS) {
        int part = i % 8, t = i / 8 % T::BN, r = i / 8 / T::BN * 64 + part * 8;
        const float *from = hid + t * PITCH + r;
        float v[8];

        if (t >= cols || r0 + r / 64 * 64 >= n_rows)
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = from[j];
        if (a.out == TILE_ACT_ROUNDED)
            quantise_values(a.rounded + number[t] * x_row_bytes(n_rows), x_pairs(n_rows), v, (r0 + r) / 64, part,
                            sharers(false), false);
        else
            for (int j = 0; j < 8 && r0 + r + j < n_rows; j++)
                a.job[0].y[(int64_t)number[t] * a.job[0].y_stride + r0 + r + j] = from[j];
    }
}

template <class T, int MT, int NT>
static __device__ __forceinline__ void store_floats(const mv_job *job, const float4 *total, const int *number, int cols,
                                                    int r0, int warp_r, int warp_t)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
        int t = warp_t * NT * 8 + n * 8 + g;
        float *y = job->y + (int64_t)number[t] * job->y_stride;

        if (t >= cols)
            continue;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            int r = r0 + (warp_r * MT + m) * 16 + 2 * c;
            float4 v = total[(m * NT + n) * T::THREADS];

            if (r < job->n_rows)
                y[r] = v.x;
            if (r + 1 < job->n_rows)
                y[r + 1] = v.y;
            if (r + 8 < job->n_rows)
                y[r + 8] = v.z;
            if (r + 9 < job->n_rows)
                y[r + 9] = v.w;
        }
    }
}

template <int TYPE, int WR, int WT, int MT, int NT, int PER_SM>
static __global__ void __launch_bounds__(WR *WT * 32, PER_SM) tile_rows(const __grid_constant__ tile_args a)
{
    typedef tile<TYPE, WR, WT, MT, NT> T;
    extern __shared__ __align__(128) uint8_t smem[];
    int *number = (int *)smem;
    float4 *total = (float4 *)(smem + T::HEAD) + threadIdx.x; /* a thread's own, THREADS apart */
    uint8_t *stages = smem + T::HEAD + T::TOTALS;
    const int tid = threadIdx.x, units = a.k / 32, pairs = x_pairs(a.k);
    span in;
    int j = 0;

    if (!find_span(a, (int)blockIdx.y + a.base, T::BN, in))
        return;
    if (a.out == TILE_FLOATS)
        while (j + 1 < a.n && (int)blockIdx.x >= a.job[j + 1].block)
            j++;
    const mv_job *job = &a.job[j];
    const bool paired = a.out != TILE_FLOATS && a.n > 1;
    const int r0 = ((int)blockIdx.x - job->block) * (paired ? T::BM / 2 : T::BM);
    const struct tables *tab =
        near_book((uint32_t *)(smem + T::BN * 4), a.tab, book<TYPE>::AT, book<TYPE>::BYTES, threadIdx.x, blockDim.x);

    for (int i = tid; i < T::BN; i += T::THREADS) {
        int t = in.first + (i < in.cols ? i : 0);

        number[i] = a.list != NULL ? a.list[t] : t;
    }
    __syncthreads();

    /* neighbours in a warp: pairs first, for whole lines; then rows so that no bank is met twice */
    const int wj = tid % T::KP, wr_ = tid / T::KP;
    const int wr = T::KP == 2 ? (wr_ & ~12) | (wr_ & 4) << 1 | (wr_ & 8) >> 1 : wr_;
    const uint8_t *row = weight_row(a, job, paired, in.expert, r0, wr);
    const int warp = tid / 32, some = (in.cols + 7) / 8 - warp % WT * NT;
    const uint8_t *x = a.x;
    typename wq<TYPE>::raw raw;
    typename T::source from;
    float S[2 * MT][NT][2];

#pragma unroll
    for (int m = 0; m < 2 * MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
            S[m][n][0] = S[m][n][1] = 0.0f;
#pragma unroll
    for (int i = 0; i < MT * NT; i++)
        total[i * T::THREADS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (wj < pairs)
        wq<TYPE>::load(raw, row, wj);
    T::find_source(from, number, in.cols, a.div, a.x_bytes);
    T::fetch_columns(stages, x, from);
    for (int p0 = 0, s = 0; p0 < pairs; p0 += T::KP, s ^= 1) {
        uint8_t *stage = stages + s * T::STAGE;

        if (p0 + wj < pairs) {
            int n = wq<TYPE>::ELEMS == 256 ? 2 : units - 2 * (p0 + wj);
            unit u[2];

            wq<TYPE>::unpack(raw, p0 + wj, u, n, tab);
            T::put_weights(stage, u, wr, wj, n);
        }
        copy_wait<0>();
        __syncthreads();
        if (p0 + T::KP < pairs) {
            if (p0 + T::KP + wj < pairs)
                wq<TYPE>::load(raw, row, p0 + T::KP + wj);
            x += X_PAIR;
            T::fetch_columns(stages + (s ^ 1) * T::STAGE, x, from);
        }
#pragma unroll
        for (int q = 0; q < T::KP; q++)
            if (p0 + q < pairs) {
                if (some >= NT)
                    T::multiply(S, stage, q);
                else
                    T::multiply_some(S, stage, q, some);
            }
        if (((p0 + T::KP) & 7) == 0 || p0 + T::KP >= pairs)
            T::add_up(S, total);
    }
    if (a.out == TILE_FLOATS)
        store_floats<T, MT, NT>(job, total, number, in.cols, r0, warp / WT, warp % WT);
    else
        store_act<T, MT, NT>(a, paired, total, number, in.cols, r0, warp / WT, warp % WT, (float *)stages);
}

template <int TYPE> static void launch_tile(struct cuda *c, const tile_args *a, dim3 grid)
{
    /* these spill registers with 3 blocks of a multiprocessor, or gain nothing from the third */
    enum { TWO = wq<TYPE>::HALF || TYPE == QUANT_q5_k || TYPE == QUANT_iq3_s };
    enum { WR = 4, WT = 1, MT = TILE_ROWS / 16 / WR, NT = TILE_COLUMNS / 8 / WT };
    typedef tile<TYPE, WR, WT, MT, NT> T;
    auto kernel = tile_rows < TYPE, WR, WT, MT, NT, TWO ? 2 : 3 > ;

    cuda_fail(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SMEM), "tile");
    LAUNCH(c, kernel, grid, T::THREADS, T::SMEM, *a);
}
#endif
