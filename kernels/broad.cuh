/* SPDX-License-Identifier: Apache-2.0 */
/* broad.cuh - products with very many rows of activations of 8 bits, on sm_90.       room: kernels (base quant ops)
 *
 * Of formats whose sums stay whole numbers through a group of 128 elements (product.cuh: is_whole()). A weight times its
 * unit's scale is below 2^11, a half; so are 8 bits of activations, and matrix units add up a group exactly. What is left
 * in floats are four operations for 128 elements, where wide.cuh has twelve. Minima are multiplied in the same way with
 * sums of 8 activations, 16 of them a group. Bits v of a weight are, as they lie there, the half v 2^-24; products keep
 * that factor, and d and dmin are 2^24 times as large.
 *
 * A block is two groups of four warps that compute, 64 rows of weights each with 128 columns, and one that has everything
 * copied: weights come to shared memory as they are stored. Who computes makes halves of weights in registers while the
 * minima's products run. */
#ifndef KERNELS_BROAD_CUH
#define KERNELS_BROAD_CUH
#include "kernels/broad_rows.cuh"
#include "kernels/frag.cuh"
#include "kernels/wide.cuh"

struct broad {
    enum {
        COMPUTE = 2 * 128, ROWS = 128, COLUMNS = BROAD_COLUMNS, STAGES = 3, THREADS = COMPUTE + 128, CHUNKS = 4,
        /* a stage is a group: columns, of each row of weights CHUNKS of 16 bytes, its head */
        W_AT = (BROAD_GROUP + 1023) / 1024 * 1024, HEAD_AT = W_AT + ROWS * CHUNKS * 16, STAGE = HEAD_AT + ROWS * 16,
        TOTALS_AT = STAGES * STAGE, NUMBERS_AT = TOTALS_AT + ROWS * COLUMNS * 4, BARS_AT = NUMBERS_AT + 2 * COLUMNS * 4,
        SMEM = BARS_AT + 2 * STAGES * 8,
        COPIES = 5, /* of columns that lie side by side */
    };
    static_assert(STAGE % 1024 == 0, "places in shared memory");

    /* Where chunk i of row r lies: 8 rows meet in no bank. */
    static __device__ __forceinline__ int chunk_at(int r, int i)
    {
        return W_AT + r * (CHUNKS * 16) + (i ^ (r >> 1 & 3)) * 16;
    }
};

/* ---- the group that fetches ---- */

/* Columns that lie anywhere: what a thread copies of each group, from where in 16 bytes (dx: 4) from x. */
struct broad_source {
    uint32_t q[BROAD_COLUMNS / 16], sums, dx;
    int      n; /* of q */
};
static __device__ __forceinline__ void find_broad(broad_source &f, const tile_args &a, const wide_tile &t, int groups)
{
    const int tid = threadIdx.x % 128;
    const uint32_t tile = (uint32_t)groups * (BROAD_GROUP / 16);

    f.n = (t.in.cols + 15) / 16;
#pragma unroll
    for (int i = 0; i < BROAD_COLUMNS / 16; i++) {
        const int col = tid / 8 + i * 16, number = column_number(a, t.in, col) / a.div, c = number % BROAD_COLUMNS;

        f.q[i] = number / BROAD_COLUMNS * tile + (uint32_t)(c * 8 + (tid % 8 ^ col % 8 ^ c % 8));
    }
    const int number = column_number(a, t.in, tid) / a.div, c = number % BROAD_COLUMNS;
    f.sums = number / BROAD_COLUMNS * tile + (BROAD_SUMS / 16 + c);
    f.dx = (number / BROAD_COLUMNS * tile + BROAD_SCALES / 16) * 4 + broad_scale(c);
}
static __device__ __forceinline__ void gather_broad(uint8_t *stage, const tile_args &a, const broad_source &f, int group)
{
    const int tid = threadIdx.x % 128;
    const uint8_t *x = a.x + (int64_t)group * BROAD_GROUP;

#pragma unroll
    for (int i = 0; i < BROAD_COLUMNS / 16; i++)
        if (i < f.n) {
            const uint8_t *from = x + (uint64_t)f.q[i] * 16;
            uint8_t *to = stage + tid * 16 + i * 16 * 128;

            copy16(to, from);
            copy16(to + BROAD_COLUMNS * 128, from + BROAD_COLUMNS * 128);
        }
    if (tid >= f.n * 16)
        return;
    copy16(stage + BROAD_SUMS + tid * 16, x + (uint64_t)f.sums * 16);
    copy16(stage + BROAD_SUMS + (BROAD_COLUMNS + tid) * 16, x + (uint64_t)f.sums * 16 + BROAD_COLUMNS * 16);
    copy4(stage + BROAD_SCALES + broad_scale(tid) * 4, x + (uint64_t)f.dx * 4);
}

/* n columns one after the other, from column c on, by COPIES threads: either half, either half of the sums, scales. */
static __device__ __forceinline__ void copy_broad(uint8_t *stage, const uint8_t *from, int n, int c, uint64_t *full)
{
    const int tid = threadIdx.x % 128, each = tid < 2 ? 128 : tid < 4 ? 16 : 4;
    const int at = tid < 2   ? tid * BROAD_COLUMNS * 128
                   : tid < 4 ? BROAD_SUMS + (tid - 2) * BROAD_COLUMNS * 16
                             : (int)BROAD_SCALES;

    if (tid < broad::COPIES)
        bulk_copy(stage + at, from + at + c * each, (unsigned)(n * each), full);
}

static __device__ __forceinline__ void broad_fetch(const tile_args &a, uint8_t *smem, bool paired)
{
    typedef broad W;
    enum { EACH = W::ROWS / 32, HALF = W::ROWS / 2 }; /* rows of which a thread has a chunk */
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const int tid = threadIdx.x % 128, groups = whole_groups(a.k), tiles = wide_tiles(a);
    wide_turn now = { 0, 0 };

    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const uint8_t *x = a.x;
        broad_source from;
        wide_tile t;

        find_tile<W>(t, a, i, paired);
        auto row = [&](int q) {
            const int r = t.r0 + (paired ? q % HALF : q);

            return (paired && q >= HALF ? a.job[1].w : t.job->w) + t.in.expert * a.expert_bytes +
                   (int64_t)min(r, t.job->n_rows - 1) * t.job->row_bytes;
        };
        const uint8_t *part[EACH], *head = row(tid);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            part[e] = row(e * 32 + tid / 4) + 16 + tid % 4 * 16;
        if (a.list != NULL)
            find_broad(from, a, t, groups);
        else
            x += (int64_t)(t.in.first / BROAD_COLUMNS) * groups * BROAD_GROUP;
        for (int g = 0; g < groups; g++) {
            uint8_t *stage = smem + now.stage * W::STAGE;
            const int block = g / 2 * frag<QUANT_q4_k>::BLOCK;

            bar_wait(&empty[now.stage], now.phase ^ 1);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                copy16(stage + W::chunk_at(e * 32 + tid / 4, tid % 4), part[e] + block + g % 2 * 64);
            copy16(stage + W::HEAD_AT + tid * 16, head + block);
            if (a.list != NULL)
                gather_broad(stage, a, from, g);
            else
                copy_broad(stage, x + (int64_t)g * BROAD_GROUP, (t.in.cols + 15) / 16 * 16, t.in.first % BROAD_COLUMNS,
                           &full[now.stage]);
            copy_arrive(&full[now.stage]);
            now.next<W>();
        }
    }
}

/* ---- the groups that compute ---- */

/* A lane's rows: h 0 and 1 are g and g + 8 of its warp's 16. */
static __device__ __forceinline__ int own_row(int h)
{
    return threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4 + h * 8;
}
static __device__ __forceinline__ const uint4 *own_head(const uint8_t *stage, int h)
{
    return (const uint4 *)(stage + broad::HEAD_AT + own_row(h) * 16);
}

/* Two halves of n, byte u of v, times 2^-4 for odd u. */
static __device__ __forceinline__ __half2 scale_halves(uint32_t v, int u)
{
    const uint32_t n = __byte_perm(v, 0x64646464u, 0x4040u | u * 0x0101u); /* 1,024 + n */
    const __half2 one = u % 2 == 0 ? __float2half2_rn(1.0f) : __float2half2_rn(0.0625f);

    return __hfma2(*(const __half2 *)&n, one, u % 2 == 0 ? __float2half2_rn(-1024.0f) : __float2half2_rn(-64.0f));
}

/* The first operand of a group: words c and c + 4 of either half make four units, of two halves each. */
typedef uint32_t broad_rows[4][2][4];
static __device__ __forceinline__ void make_rows(broad_rows &to, const uint8_t *stage, int group)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 head = *own_head(stage, h);
        const uint32_t scale = k_bytes(head.y, head.w, group);

#pragma unroll
        for (int i = 0; i < broad::CHUNKS; i++) {
            const uint32_t v = *(const uint32_t *)(stage + broad::chunk_at(own_row(h), i) + threadIdx.x % 4 * 4);

#pragma unroll
            for (int u = 0; u < 2; u++) {
                const uint32_t mask = u == 0 ? 0x000f000fu : 0x00f000f0u, even = v & mask, odd = v >> 8 & mask;
                const __half2 by = scale_halves(scale, i / 2 * 2 + u);
                const __half2 e = __hmul2(*(const __half2 *)&even, by), o = __hmul2(*(const __half2 *)&odd, by);

                to[i / 2 * 2 + u][i % 2][h] = *(const uint32_t *)&e;
                to[i / 2 * 2 + u][i % 2][2 + h] = *(const uint32_t *)&o;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) /* all are there before what follows */
        asm volatile("" : "+r"(to[i / 8][i / 4 % 2][i % 4])::"memory");
}

/* Sums of scale i of a group. */
template <int N>
static __device__ __forceinline__ void broad_products(float *sum, const broad_rows &rows, const uint8_t *stage)
{
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 8; i++)
        wgmma<N>(sum, rows[i / 2][i % 2], wgmma_columns(stage + i / 4 * BROAD_COLUMNS * 128) + i % 4 * 2, i > 0);
    wgmma_end();
    wgmma_wait<N / 2>(sum);
}

/* Sums of min s of a group are on their way. */
template <int N>
static __device__ __forceinline__ void ask_minima(float *sum, const uint8_t *stage, int group)
{
    const uint32_t own = (uint32_t)(threadIdx.x % 4 / 2) * 0x0101u;
    uint32_t a[4];

#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 head = *own_head(stage, h);
        const uint32_t min = k_bytes(head.z, head.w >> 4, group);

        a[h] = __byte_perm(min, 0, 0x4040u | own);
        a[2 + h] = __byte_perm(min, 0, 0x4242u | own);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+r"(a[i])::"memory");
    wgmma_begin();
    wgmma<N>(sum, a, wgmma_plain(stage + BROAD_SUMS, BROAD_COLUMNS * 16), false);
    wgmma_end();
}

/* S += dx (d sum); minima: S -= dx (dmin sum). */
template <int N>
static __device__ __forceinline__ void broad_floats(float *S, const float *sum, const uint8_t *stage, bool minima)
{
    const float4 *dx = (const float4 *)(stage + BROAD_SCALES) + (threadIdx.x & 3);
    float d[2];

#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t x = own_head(stage, h)->x;

        d[h] = __fmul_rn(half_of(minima ? x >> 16 : x & 0xffffu), minima ? -16777216.0f : 16777216.0f);
    }
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        const float4 v = dx[n * 4];
        const float x[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
        for (int e = 0; e < 8; e++)
            S[n * 8 + e] = __fmaf_rn(x[e / 4 * 2 + e % 2], __fmul_rn(d[e / 2 % 2], sum[n * 8 + e]), S[n * 8 + e]);
    }
}

static __device__ __forceinline__ float activated(int act, float v)
{
    const float pos = fmaxf(v, 0.0f);

    return act == OP_SILU ? silu(v) : __fmul_rn(pos, pos);
}

/* act(gate) up, or act(up). The first group has the gate, the second up, for the same rows: either ends half of the columns,
 * and gives the other half away. */
template <int N>
static __device__ __forceinline__ void broad_act(const tile_args &a, const wide_tile &t, const int *number, const float *S,
                                                 float4 *total, bool paired)
{
    const int mine = threadIdx.x / 128, lane = threadIdx.x & 31;
    const int r = t.r0 + threadIdx.x / 32 % (paired ? 4 : 8) * 16 + lane / 4;
    const float4 *theirs = total + (mine == 0 ? 128 : -128);

    if (paired)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            if (n / (N / 16) != mine)
                total[n * broad::COMPUTE] = make_float4(S[4 * n], S[4 * n + 1], S[4 * n + 2], S[4 * n + 3]);
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* numbers are there too */
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        if (paired && n / (N / 16) != mine)
            continue;
        const float4 o = paired ? theirs[n * broad::COMPUTE] : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        const float other[4] = { o.x, o.y, o.z, o.w };

#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int col = n * 8 + lane % 4 * 2 + e % 2, row = r + e / 2 * 8;
            const float own = S[4 * n + e], gate = mine == 0 || !paired ? own : other[e];

            if (col < t.in.cols && row < t.job->n_rows)
                a.job[0].y[number[col] * a.job[0].y_stride + row] =
                    __fmul_rn(activated(a.act, gate), mine == 0 || !paired ? other[e] : own);
        }
    }
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* totals have been read */
}

/* One tile of N columns at most. */
template <int N>
static __device__ __forceinline__ void broad_run(const tile_args &a, const wide_tile &t, int *number, uint8_t *smem,
                                                 wide_turn &now, bool paired)
{
    typedef broad W;
    const int groups = whole_groups(a.k);
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    float4 *total = (float4 *)(smem + W::TOTALS_AT) + threadIdx.x;
    float S[N / 2], sum[N / 2];
    broad_rows rows;

    if (threadIdx.x < N)
        number[threadIdx.x] = column_number(a, t.in, threadIdx.x);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        S[i] = sum[i] = 0.0f;
    wide_wait(full, now);
    make_rows(rows, smem + now.stage * W::STAGE, 0);
    for (int g = 0; g < groups; g++) {
        const uint8_t *stage = smem + now.stage * W::STAGE;
        uint64_t *used = &empty[now.stage];

        now.next<W>();
        broad_products<N>(sum, rows, stage);
        broad_floats<N>(S, sum, stage, false);
        ask_minima<N>(sum, stage, g % 2);
        if (g + 1 < groups) {
            wide_wait(full, now);
            make_rows(rows, smem + now.stage * W::STAGE, (g + 1) % 2);
        }
        wgmma_wait<N / 2>(sum);
        broad_floats<N>(S, sum, stage, true);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bar_arrive(used);
        if (g % 4 == 3 || g + 1 == groups)
            wide_add_up<1, N>(S, total, g >= 4, g + 1 < groups);
    }
    if (a.out == TILE_FLOATS)
        wide_store<1, N>(t, number, S);
    else
        broad_act<N>(a, t, number, S, total, paired);
}

static __global__ void __launch_bounds__(broad::THREADS, 1) broad_times(const __grid_constant__ tile_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef broad W;
    extern __shared__ __align__(1024) uint8_t smem[];
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const bool paired = a.out != TILE_FLOATS && a.n > 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < W::STAGES; i++) {
            bar_init(&full[i], a.list != NULL ? 128 : W::COPIES + 128);
            bar_init(&empty[i], W::COMPUTE / 32);
        }
        bar_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= W::COMPUTE) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        broad_fetch(a, smem, paired);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int tiles = wide_tiles(a);
    wide_turn now = { 0, 0 };

    /* numbers of columns: a table is written again when all have left the tile after its own */
    for (int i = blockIdx.x, at = 0; i < tiles; i += gridDim.x, at ^= 1) {
        int *number = (int *)(smem + W::NUMBERS_AT) + at * W::COLUMNS;
        wide_tile t;

        find_tile<W>(t, a, i, paired);
        switch ((t.in.cols + 15) / 16) {
        case 1: broad_run<16>(a, t, number, smem, now, paired); break;
        case 2: broad_run<32>(a, t, number, smem, now, paired); break;
        case 3: broad_run<48>(a, t, number, smem, now, paired); break;
        case 4: broad_run<64>(a, t, number, smem, now, paired); break;
        case 5: broad_run<80>(a, t, number, smem, now, paired); break;
        case 6: broad_run<96>(a, t, number, smem, now, paired); break;
        case 7: broad_run<112>(a, t, number, smem, now, paired); break;
        default: broad_run<128>(a, t, number, smem, now, paired); break;
        }
    }
#endif
}
#endif
