/* SPDX-License-Identifier: Apache-2.0 */
/* wide.cuh - products of stored rows with very many rows of activations, on sm_90.   room: kernels (base quant ops)
 *
 * The sums of product.cuh are whole numbers that a float holds, or two such, so matrix units that multiply halves and
 * add floats compute them exactly. A weight is a half: of a format without signs byte v is, as it lies there, the half
 * v 2^-24, and its scale is 2^24 times as large. An activation q = 256 h + l is the halves 256 h and l, whose products
 * go into one sum. What remains in floats are the scales: three operations or two where bytes need five or four.
 *
 * A block is two groups of four warps that compute, 64 rows of weights each, and one that fetches: it unpacks weights to
 * bytes and copies columns to shared memory, as many pairs of units ahead as have room. A warp makes halves of 16 rows
 * of weights in registers; wgmma reads columns where they lie. A group's floats run while the other's products do.
 * Blocks stay and take one tile of results after the other: the next one's weights come while results are written. */
#ifndef KERNELS_WIDE_CUH
#define KERNELS_WIDE_CUH
#include "kernels/tile.cuh"
#include "kernels/wgmma.cuh"

/* How sums of a unit become one whole number. */
enum wide_sums {
    SUMS_ONE,    /* 32 elements of q, with weights of at most 15 */
    SUMS_PLANES, /* of 256 h and of l, then added */
    SUMS_HALVES, /* of 16 elements, which have scales of their own */
};

template <int TYPE> struct wide {
    enum {
        ROWS = TILE_ROWS, COLUMNS = WIDE_COLUMNS, STAGES = 3, GROUPS = 2, THREADS = (GROUPS + 1) * 128,
        HALF = wq<TYPE>::HALF, MIN = wq<TYPE>::MIN, DU = 1 + HALF + MIN, /* floats of a row and unit */
        SUMS = HALF ? SUMS_HALVES : TYPE == QUANT_q4_k || TYPE == QUANT_iq3_s ? SUMS_ONE : SUMS_PLANES,
        X_BYTES = COLUMNS * WIDE_UNIT, W_BYTES = ROWS * 32, D_BYTES = ROWS * DU * 4, S_BYTES = COLUMNS * 8,
        /* a stage is a pair of units, everything of the first before the second */
        W_AT = 2 * X_BYTES, D_AT = W_AT + 2 * W_BYTES, S_AT = D_AT + 2 * D_BYTES, STAGE = S_AT + 2 * S_BYTES,
        PITCH = ROWS + 4, TOTALS_AT = STAGES * STAGE, BOOK_AT = TOTALS_AT + COLUMNS * PITCH * 4,
        BARS_AT = BOOK_AT + book<TYPE>::BYTES, SMEM = BARS_AT + 2 * STAGES * 8,
    };
    static_assert(STAGE % 1024 == 0 && !(HALF && MIN), "places in shared memory");

    /* Words c and c + 4 of row g and of row g + 8 are 16 bytes of 512; turned, so that rows meet in no bank. */
    static __device__ __forceinline__ int lane_slot(int g, int c)
    {
        return (g * 4 + (c ^ g >> 1)) * 16;
    }
};

/* The next stage, and how often all have been used. */
struct wide_turn {
    int stage, phase;
    template <class W> __device__ __forceinline__ void next(void)
    {
        phase ^= stage == W::STAGES - 1;
        stage = stage == W::STAGES - 1 ? 0 : stage + 1;
    }
};

/* Rows of weights and columns of a block. */
struct wide_tile {
    const mv_job *job;
    span          in;
    int           r0;
};
static __device__ __forceinline__ int wide_tiles(const tile_args &a)
{
    return a.base * (a.list == NULL ? (a.nx + WIDE_COLUMNS - 1) / WIDE_COLUMNS : *a.n_chunk);
}
static __device__ __forceinline__ void find_tile(wide_tile &t, const tile_args &a, int i, bool paired)
{
    int block = i % a.base, j = 0;

    (void)find_span(a, i / a.base, WIDE_COLUMNS, t.in);
    t.in.cols = min(t.in.cols, (int)WIDE_COLUMNS);
    if (!paired)
        while (j + 1 < a.n && block >= a.job[j + 1].block)
            j++;
    t.job = &a.job[j];
    t.r0 = (block - t.job->block) * (paired ? TILE_ROWS / 2 : TILE_ROWS);
}
static __device__ __forceinline__ int column_number(const tile_args &a, const span &in, int t)
{
    t = in.first + min(t, in.cols - 1);
    return a.list == NULL ? t : a.list[t];
}

/* ---- the group that fetches ---- */

template <int TYPE>
static __device__ __forceinline__ void put_wide(uint8_t *stage, const unit u[2], int r, int n)
{
    typedef wide<TYPE> W;
    const int g = r % 8, hi = r % 16 / 8;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint8_t *at = stage + W::W_AT + i * W::W_BYTES + r / 16 * 512 + hi * 8;
        float *d = (float *)(stage + W::D_AT + i * W::D_BYTES) + r * W::DU;
        float first = i < n ? __fmul_rn(u[i].d[0], W::MIN ? 16777216.0f : 1.0f) : 0.0f;
        float second = i < n ? (W::HALF ? u[i].d[1] : W::MIN ? u[i].m[0] : 0.0f) : 0.0f;

#pragma unroll
        for (int c = 0; c < 4; c++)
            *(int2 *)(at + W::lane_slot(g, c)) = i < n ? make_int2(u[i].w[c], u[i].w[c + 4]) : make_int2(0, 0);
        if (W::DU == 1)
            *d = first;
        else
            *(float2 *)d = make_float2(first, second);
    }
}

/* What a thread copies of each pair of the columns: from where, in 16 bytes from x. */
struct wide_source {
    uint32_t q[WIDE_COLUMNS / 16], s;
    int      n; /* of q */
};
template <int TYPE>
static __device__ __forceinline__ void fetch_wide(uint8_t *stage, const uint8_t *x, const wide_source &f, int pair)
{
    typedef wide<TYPE> W;
    const int tid = threadIdx.x % 128, part = tid % 8, t = tid / 8;
    uint8_t *to = stage + t * WIDE_UNIT + (part ^ t % 8) * 16;

#pragma unroll
    for (int i = 0; i < WIDE_COLUMNS / 16; i++)
        if (i < f.n) {
            const uint8_t *from = x + (uint64_t)f.q[i] * 16 + pair * 2 * WIDE_UNIT;

            copy16(to + i * 16 * WIDE_UNIT, from);
            copy16(to + W::X_BYTES + i * 16 * WIDE_UNIT, from + WIDE_UNIT);
        }
    if (tid < f.n * 16) {
        const uint8_t *from = x + (uint64_t)f.s * 16 + pair * 16;

        copy8(stage + W::S_AT + tid * 8, from);
        copy8(stage + W::S_AT + W::S_BYTES + tid * 8, from + 8);
    }
    copy_end();
}

/* What this thread wrote may be read by wgmma. */
static __device__ __forceinline__ void wide_ready(uint64_t *full)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    bar_arrive(full);
}

template <int TYPE>
static __device__ __forceinline__ void wide_fetch(const tile_args &a, uint8_t *smem, uint64_t *full, uint64_t *empty,
                                                  bool paired)
{
    typedef wide<TYPE> W;
    const struct tables *tab =
        near_book((uint32_t *)(smem + W::BOOK_AT), a.tab, book<TYPE>::AT, book<TYPE>::BYTES, threadIdx.x % 128, 128);
    const int tid = threadIdx.x % 128, units = a.k / 32, pairs = x_pairs(a.k), tiles = wide_tiles(a);
    wide_turn now = { 0, 0 };
    int before = -1; /* the stage that is under way */

    asm volatile("bar.sync 2, 128;" ::: "memory"); /* the code book */
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        typename wq<TYPE>::raw raw;
        wide_source from;
        wide_tile t;

        find_tile(t, a, i, paired);
        const int r = min(t.r0 + (paired ? tid % 64 : tid), t.job->n_rows - 1);
        const uint8_t *row = (paired && tid >= 64 ? a.job[1].w : t.job->w) + t.in.expert * a.expert_bytes +
                             (int64_t)r * t.job->row_bytes;
        const uint32_t x_step = (uint32_t)(a.x_bytes / 16);
#pragma unroll
        for (int q = 0; q < WIDE_COLUMNS / 16; q++)
            from.q[q] = (uint32_t)(column_number(a, t.in, tid / 8 + q * 16) / a.div) * x_step + tid % 8;
        from.s = (uint32_t)(column_number(a, t.in, tid) / a.div) * x_step + (uint32_t)pairs * (2 * WIDE_UNIT / 16);
        from.n = (t.in.cols + 31) / 32 * 2;
        wq<TYPE>::load(raw, row, 0);
        for (int p = 0; p < pairs; p++) {
            uint8_t *stage = smem + now.stage * W::STAGE;
            const int n = wq<TYPE>::ELEMS == 256 ? 2 : units - 2 * p;
            unit u[2];

            bar_wait(&empty[now.stage], now.phase ^ 1);
            fetch_wide<TYPE>(stage, a.x, from, p);
            wq<TYPE>::unpack(raw, p, u, n, tab);
            put_wide<TYPE>(stage, u, tid, n);
            if (p + 1 < pairs)
                wq<TYPE>::load(raw, row, p + 1);
            if (before >= 0) {
                copy_wait<1>();
                wide_ready(&full[before]);
            }
            before = now.stage;
            now.next<W>();
        }
    }
    if (before >= 0) {
        copy_wait<0>();
        wide_ready(&full[before]);
    }
}

/* ---- the groups that compute ---- */

/* A lane's part of a unit of 64 rows of weights: halves of 16 elements, the even ones before the odd ones; scales. */
struct wide_rows {
    uint32_t w[2][4];
    float    d[2][2]; /* of rows g and g + 8 */
};
template <int TYPE>
static __device__ __forceinline__ void load_wide(wide_rows &to, const uint8_t *stage, int u)
{
    typedef wide<TYPE> W;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint4 v = *(const uint4 *)(stage + W::W_AT + u * W::W_BYTES + warp * 512 + W::lane_slot(lane / 4, lane % 4));
    const uint32_t w[2][2] = { { v.x, v.z }, { v.y, v.w } };

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t b = w[i / 2][i % 2];

        if (W::MIN) {
            to.w[i / 2][i % 2] = b & 0x00ff00ffu;
            to.w[i / 2][2 + i % 2] = b >> 8 & 0x00ff00ffu;
        } else { /* 1,024 and the byte above -128, less 1,152 */
            const uint32_t y = b ^ 0x80808080u, most = 0x64646464u, zero = 0x64806480u;
            const uint32_t even = __byte_perm(y, most, 0x4240), odd = __byte_perm(y, most, 0x4341);
            const __half2 e = __hsub2(*(const __half2 *)&even, *(const __half2 *)&zero);
            const __half2 o = __hsub2(*(const __half2 *)&odd, *(const __half2 *)&zero);

            to.w[i / 2][i % 2] = *(const uint32_t *)&e;
            to.w[i / 2][2 + i % 2] = *(const uint32_t *)&o;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float *d = (const float *)(stage + W::D_AT + u * W::D_BYTES) + (warp * 16 + lane / 4 + i * 8) * W::DU;

        if (W::DU == 1) {
            to.d[i][0] = d[0];
            to.d[i][1] = 0.0f;
        } else {
            to.d[i][0] = ((const float2 *)d)->x;
            to.d[i][1] = ((const float2 *)d)->y;
        }
    }
}

/* Sums of a unit with N columns; second: those of the second part, if there is one. */
template <int TYPE, int N>
static __device__ __forceinline__ void wide_products(float *first, float *second, const wide_rows &r, const uint8_t *columns)
{
    typedef wide<TYPE> W;
    const uint64_t b = wgmma_columns(columns);
    float *other = W::SUMS == SUMS_ONE ? first : second;

    wgmma_begin();
    if (W::SUMS == SUMS_HALVES) {
        wgmma<N>(first, r.w[0], b, false);
        wgmma<N>(first, r.w[0], b + 4, true);
        wgmma<N>(other, r.w[1], b + 2, false);
        wgmma<N>(other, r.w[1], b + 6, true);
    } else {
        wgmma<N>(first, r.w[0], b, false);
        wgmma<N>(first, r.w[1], b + 2, true);
        wgmma<N>(other, r.w[0], b + 4, W::SUMS == SUMS_ONE);
        wgmma<N>(other, r.w[1], b + 6, true);
    }
    wgmma_end();
}

/* S += dx V for N columns; sx: their sums of q and dx. */
template <int TYPE, int N>
static __device__ __forceinline__ void wide_floats(float *S, const float *first, const float *second, const wide_rows &r,
                                                   const uint8_t *sx)
{
    typedef wide<TYPE> W;

#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const float4 s = *(const float4 *)(sx + n * 64 + (threadIdx.x & 3) * 16);

#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = n * 4 + e;
            const float *d = r.d[e / 2];
            float v = __fmul_rn(d[0], W::SUMS == SUMS_PLANES ? __fadd_rn(first[i], second[i]) : first[i]);

            if (W::MIN)
                v = __fmaf_rn(-d[1], e % 2 == 0 ? s.x : s.z, v);
            if (W::HALF)
                v = __fmaf_rn(d[1], second[i], v);
            S[i] = __fmaf_rn(e % 2 == 0 ? s.y : s.w, v, S[i]);
        }
    }
}

/* Sums of 8 pairs, added to those before unless these are the first, are S or, if there are more, remembered. */
template <int N>
static __device__ __forceinline__ void wide_add_up(float *S, float4 *total, bool before, bool more)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float4 t = before ? total[n * 256] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);

        t.x = S[4 * n] = __fadd_rn(t.x, S[4 * n]);
        t.y = S[4 * n + 1] = __fadd_rn(t.y, S[4 * n + 1]);
        t.z = S[4 * n + 2] = __fadd_rn(t.z, S[4 * n + 2]);
        t.w = S[4 * n + 3] = __fadd_rn(t.w, S[4 * n + 3]);
        if (more) {
            total[n * 256] = t;
            S[4 * n] = S[4 * n + 1] = S[4 * n + 2] = S[4 * n + 3] = 0.0f;
        }
    }
}

template <int N>
static __device__ __forceinline__ void wide_store(const tile_args &a, const wide_tile &t, const float *S)
{
    const int lane = threadIdx.x & 31, r = t.r0 + threadIdx.x / 32 * 16 + lane / 4;

#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const int col = i / 2 * 8 + lane % 4 * 2 + i % 2;

        if (col >= t.in.cols)
            continue;
        float *y = t.job->y + (int64_t)column_number(a, t.in, col) * t.job->y_stride;
        if (r < t.job->n_rows)
            y[r] = S[i / 2 * 4 + i % 2];
        if (r + 8 < t.job->n_rows)
            y[r + 8] = S[i / 2 * 4 + i % 2 + 2];
    }
}

/* act(gate) up, or act(up), rounded; hid: the block's results, columns PITCH apart. */
template <int TYPE, int N>
static __device__ __forceinline__ void wide_act(const tile_args &a, const wide_tile &t, const float *S, float *hid,
                                                bool paired)
{
    enum { PITCH = wide<TYPE>::PITCH };
    const int lane = threadIdx.x & 31, row = threadIdx.x / 32 * 16 + lane / 4, n_rows = t.job->n_rows;
    const int here = paired ? TILE_ROWS / 2 : TILE_ROWS;

    asm volatile("bar.sync 1, 256;" ::: "memory"); /* totals have been read */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        hid[(i / 4 * 8 + lane % 4 * 2 + i % 2) * PITCH + row + i / 2 % 2 * 8] = S[i];
    asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int i = threadIdx.x; i < N * here / 8; i += 256) {
        const int part = i % 8, col = i / 8 % N, r = i / 8 / N * 64 + part * 8;
        const float *gate = hid + col * PITCH + r;
        float v[8];

        if (col >= t.in.cols || t.r0 + r / 64 * 64 >= n_rows)
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float pos = fmaxf(gate[j], 0.0f), y = a.act == OP_SILU ? silu(gate[j]) : __fmul_rn(pos, pos);

            v[j] = t.r0 + r + j >= n_rows ? 0.0f : __fmul_rn(y, paired ? gate[TILE_ROWS / 2 + j] : 1.0f);
        }
        wide_values(a.rounded + column_number(a, t.in, col) * wide_row_bytes(n_rows), x_pairs(n_rows), v,
                    (t.r0 + r) / 64, part, 0xfu << (lane & 28));
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

/* One tile of N columns at most. */
template <int TYPE, int N>
static __device__ __forceinline__ void wide_run(const tile_args &a, const wide_tile &t, uint8_t *smem, uint64_t *full,
                                                uint64_t *empty, wide_turn &now, bool paired)
{
    typedef wide<TYPE> W;
    enum { PARTS = W::SUMS == SUMS_ONE ? 1 : 2, M = N / PARTS }; /* columns at once */
    const int pairs = x_pairs(a.k);
    float4 *total = (float4 *)(smem + W::TOTALS_AT) + threadIdx.x;
    float S[N / 2], sum[PARTS][M / 2];
    wide_rows rows[2];

#pragma unroll
    for (int i = 0; i < N / 2; i++)
        S[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i / (M / 2)][i % (M / 2)] = 0.0f;
    bar_wait(&full[now.stage], now.phase);
    load_wide<TYPE>(rows[0], smem + now.stage * W::STAGE, 0);
    for (int p = 0; p < pairs; p++) {
        const uint8_t *stage = smem + now.stage * W::STAGE;
        uint64_t *used = &empty[now.stage];

        now.next<W>();
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int q = 0; q < PARTS; q++) {
                wide_products<TYPE, M>(sum[0], sum[PARTS - 1], rows[u],
                                       stage + u * W::X_BYTES + q * M * WIDE_UNIT);
                if (q == PARTS - 1 && u == 0)
                    load_wide<TYPE>(rows[1], stage, 1);
                if (q == PARTS - 1 && u == 1 && p + 1 < pairs) {
                    bar_wait(&full[now.stage], now.phase);
                    load_wide<TYPE>(rows[0], smem + now.stage * W::STAGE, 0);
                }
                wgmma_wait(sum[0]);
                if (PARTS == 2)
                    wgmma_wait(sum[PARTS - 1]);
                wide_floats<TYPE, M>(S + q * (M / 2), sum[0], sum[PARTS - 1], rows[u],
                                     stage + W::S_AT + u * W::S_BYTES + q * M * 8);
            }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bar_arrive(used);
        if (p % 8 == 7 || p + 1 == pairs)
            wide_add_up<N>(S, total, p >= 8, p + 1 < pairs);
    }
    if (a.out == TILE_FLOATS)
        wide_store<N>(a, t, S);
    else
        wide_act<TYPE, N>(a, t, S, (float *)(smem + W::TOTALS_AT), paired);
}

template <int TYPE>
static __global__ void __launch_bounds__(wide<TYPE>::THREADS, 1) wide_rows_times(const __grid_constant__ tile_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef wide<TYPE> W;
    extern __shared__ __align__(1024) uint8_t smem[];
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const bool paired = a.out != TILE_FLOATS && a.n > 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < W::STAGES; i++) {
            bar_init(&full[i], 128);
            bar_init(&empty[i], 4 * W::GROUPS);
        }
        bar_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= W::GROUPS * 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
        wide_fetch<TYPE>(a, smem, full, empty, paired);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int tiles = wide_tiles(a);
    wide_turn now = { 0, 0 };

    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        wide_tile t;

        find_tile(t, a, i, paired);
        if (t.in.cols > 96)
            wide_run<TYPE, 128>(a, t, smem, full, empty, now, paired);
        else if (t.in.cols > 64)
            wide_run<TYPE, 96>(a, t, smem, full, empty, now, paired);
        else if (t.in.cols > 32)
            wide_run<TYPE, 64>(a, t, smem, full, empty, now, paired);
        else
            wide_run<TYPE, 32>(a, t, smem, full, empty, now, paired);
    }
#endif
}

template <int TYPE>
static void launch_wide(struct cuda *c, const tile_args *a, unsigned blocks)
{
    typedef wide<TYPE> W;

    cuda_fail(c, cudaFuncSetAttribute(wide_rows_times<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, W::SMEM), "wide");
    LAUNCH(c, wide_rows_times<TYPE>, blocks, W::THREADS, W::SMEM, *a);
}
#endif
