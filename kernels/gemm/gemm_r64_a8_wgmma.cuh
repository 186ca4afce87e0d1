/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a8_wgmma.cuh - GEMM for 64 and more tokens with 8-bit activations, on the wgmma units of sm_90.
 * room: kernels
 *
 * Only for formats whose integer sums stay exact in a float over a group of 128 elements or half of it (gemm/sums.cuh:
 * a8_sums()). A weight times its unit's scale is below 2^11 and so a half; 8-bit activations are halves, too, and
 * tensor cores add up a group exactly. Two to eight float operations are left for 128 elements, where
 * gemm_r64_a16_wgmma.cuh has twelve. Minima are multiplied the same way with sums of 8 activations, 16 of them a group.
 * The bits v of a weight, taken as a half, are v 2^-24; products keep that factor, and d and dmin are 2^24 times as
 * large.
 *
 * A block has two consumer warpgroups, with 64 rows of weights x 128 columns each, and one producer warp group, which
 * copies packed weights and activations to shared memory. Consumers convert weights to halves in registers while the
 * products with the minima run. */
#ifndef KERNELS_GEMM_GEMM_R64_A8_WGMMA_CUH
#define KERNELS_GEMM_GEMM_R64_A8_WGMMA_CUH
#include "kernels/gemm/acts_a8_wgmma.cuh"
#include "kernels/gemm/gemm_r64_a16_wgmma.cuh"
#include "kernels/quant/all.cuh"

enum { R64_A8_COPIES = 5 }; /* threads that copy columns which lie side by side */

template <int TYPE> struct r64_a8 {
    enum {
        COMPUTE = 2 * 128,
        ROWS = GROUP_ROWS,
        COLUMNS = R64_A8_COLUMNS,
        STAGES = 3,
        THREADS = COMPUTE + 128,
        /* a stage is a group: columns, rows of weights */
        W_AT = (R64_A8_GROUP + 1023) / 1024 * 1024,
        STAGE = W_AT + group<TYPE>::SIZE,
        TOTALS_AT = STAGES * STAGE,
        BOOK_AT = TOTALS_AT + ROWS * COLUMNS * 4,
        NUMBERS_AT = BOOK_AT + group<TYPE>::BOOK,
        BARS_AT = NUMBERS_AT + 2 * COLUMNS * 4,
        SMEM = BARS_AT + 2 * STAGES * 8,
    };
    static_assert(STAGE % 1024 == 0 && SMEM <= 227 << 10, "places in shared memory");
};

/* A tile's rows. */
static __device__ __forceinline__ block_rows r64_a8_block(const tile_args &a, const r64_tile &t, bool paired)
{
    const int64_t at = t.in.expert * a.expert_bytes + t.r0 * t.job->row_bytes;

    return { { t.job->w + at, (paired ? a.job[1].w : t.job->w) + at },
             (uint32_t)t.job->row_bytes,
             t.job->n_rows - 1 - t.r0,
             paired };
}

/* ---- the group that fetches ---- */

/* Columns that lie anywhere: what a thread copies of each group, from where in 16 bytes (dx: 4) from x. */
struct r64_a8_source {
    uint32_t q[R64_A8_COLUMNS / 16], sums, dx;
    int n; /* of q */
};
static __device__ __forceinline__ void find_r64_a8(r64_a8_source &f, const tile_args &a, const r64_tile &t, int groups)
{
    const int tid = threadIdx.x % 128;
    const uint32_t tile = (uint32_t)groups * (R64_A8_GROUP / 16);

    f.n = (t.in.cols + 15) / 16;
#pragma unroll
    for (int i = 0; i < R64_A8_COLUMNS / 16; i++) {
        const int col = tid / 8 + i * 16, number = column_number(a, t.in, col) / a.div, c = number % R64_A8_COLUMNS;

        f.q[i] = number / R64_A8_COLUMNS * tile + (uint32_t)(c * 8 + (tid % 8 ^ col % 8 ^ c % 8));
    }
    const int number = column_number(a, t.in, tid) / a.div, c = number % R64_A8_COLUMNS;
    f.sums = number / R64_A8_COLUMNS * tile + (R64_A8_SUMS / 16 + c);
    f.dx = (number / R64_A8_COLUMNS * tile + R64_A8_SCALES / 16) * 4 + r64_a8_scale(c);
}
static __device__ __forceinline__ void gather_r64_a8(uint8_t *stage, const tile_args &a, const r64_a8_source &f,
                                                     int group)
{
    const int tid = threadIdx.x % 128;
    const uint8_t *x = a.x + (int64_t)group * R64_A8_GROUP;

#pragma unroll
    for (int i = 0; i < R64_A8_COLUMNS / 16; i++)
        if (i < f.n) {
            const uint8_t *from = x + (uint64_t)f.q[i] * 16;
            uint8_t *to = stage + tid * 16 + i * 16 * 128;

            copy16(to, from);
            copy16(to + R64_A8_COLUMNS * 128, from + R64_A8_COLUMNS * 128);
        }
    if (tid >= f.n * 16)
        return;
    copy16(stage + R64_A8_SUMS + tid * 16, x + (uint64_t)f.sums * 16);
    copy16(stage + R64_A8_SUMS + (R64_A8_COLUMNS + tid) * 16, x + (uint64_t)f.sums * 16 + R64_A8_COLUMNS * 16);
    copy4(stage + R64_A8_SCALES + r64_a8_scale(tid) * 4, x + (uint64_t)f.dx * 4);
}

/* n columns one after the other, from column c on, by R64_A8_COPIES threads: either half, either half of the sums,
 * scales. */
static __device__ __forceinline__ void copy_r64_a8(uint8_t *stage, const uint8_t *from, int n, int c, uint64_t *full)
{
    const int tid = threadIdx.x % 128, each = tid < 2 ? 128 : tid < 4 ? 16 : 4;
    const int at = tid < 2   ? tid * R64_A8_COLUMNS * 128
                   : tid < 4 ? R64_A8_SUMS + (tid - 2) * R64_A8_COLUMNS * 16
                             : (int)R64_A8_SCALES;

    if (tid < R64_A8_COPIES)
        bulk_copy(stage + at, from + at + c * each, (unsigned)(n * each), full);
}

template <int TYPE> static __device__ __forceinline__ void r64_a8_fetch(const tile_args &a, uint8_t *smem, bool paired)
{
    typedef r64_a8<TYPE> W;
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const int tid = threadIdx.x % 128, groups = a8_groups(a.k), tiles = r64_tiles(a);
    r64_turn now = { 0, 0 };

    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        typename group<TYPE>::template source<128> weights;
        const uint8_t *x = a.x;
        r64_a8_source from;
        r64_tile t;

        find_tile<W>(t, a, i, paired);
        weights.find(r64_a8_block(a, t, paired), tid);
        if (a.list != NULL)
            find_r64_a8(from, a, t, groups);
        else
            x += (int64_t)(t.in.first / R64_A8_COLUMNS) * groups * R64_A8_GROUP;
        for (int g = 0; g < groups; g++) {
            uint8_t *stage = smem + now.stage * W::STAGE;

            bar_wait(&empty[now.stage], now.phase ^ 1);
            weights.copy(stage + W::W_AT, g, tid);
            if (a.list != NULL)
                gather_r64_a8(stage, a, from, g);
            else
                copy_r64_a8(stage, x + (int64_t)g * R64_A8_GROUP, r64_read(t.in.cols), t.in.first % R64_A8_COLUMNS,
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

/* Of a lane's rows what group<> (quant/group.cuh) wants to know, and the first operand of a group, or of two units; at:
 * the stage's rows of weights. */
struct r64_a8_rows {
    uint32_t odd[2], skew[2], highs[2][2];
    group_halves w;
};
template <int TYPE>
static __device__ __forceinline__ void make_rows(r64_a8_rows &to, const uint8_t *at, int group_no, int unit,
                                                 const void *book)
{
    typedef group<TYPE> G;
    const int c = threadIdx.x % 4;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        to.skew[h] = G::skew_of(to.odd[h], group_no);
        if constexpr (a8_sums(TYPE) == 4) {
            if (unit == 0)
                for (int half = 0; half < 2; half++)
                    to.highs[h][half] = G::high(at, own_row(h), to.skew[h], half, c);
            G::unit_halves(to.w + unit % 2 * 2, h, at, own_row(h), to.skew[h], unit, c, to.highs[h]);
        } else {
            G::halves(to.w, h, at, own_row(h), to.skew[h], group_no, c, book);
        }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) /* all are there before what follows */
        if (a8_sums(TYPE) < 4 || i / 16 == unit % 2)
            asm volatile("" : "+r"(to.w[i / 8][i / 4 % 2][i % 4])::"memory");
}

/* Sums of scale i of n units are on their way. */
template <int TYPE, int N>
static __device__ __forceinline__ void ask_products(float *sum, const r64_a8_rows &rows, const uint8_t *stage,
                                                    int first, int n)
{
    enum { PARTS = a8_sums(TYPE) == 4 ? 2 : 1 };

    wgmma_begin();
#pragma unroll
    for (int i = 2 * first; i < 2 * (first + n); i++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            wgmma<N>(sum, rows.w[PARTS == 2 ? i / 2 % 2 * 2 + part : i / 2][i % 2],
                     wgmma_columns(stage + i / 4 * R64_A8_COLUMNS * 128) + i % 4 * 2, i > 2 * first || part > 0);
    wgmma_end();
}

/* Sums of min s of a group are on their way. */
template <int TYPE, int N>
static __device__ __forceinline__ void ask_minima(float *sum, const uint8_t *stage, int group_no)
{
    const uint32_t own = (uint32_t)(threadIdx.x % 4 / 2) * 0x0101u;
    uint32_t a[4];

#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t min = group<TYPE>::mins(stage + r64_a8<TYPE>::W_AT, own_row(h), group_no);

        a[h] = __byte_perm(min, 0, 0x4040u | own);
        a[2 + h] = __byte_perm(min, 0, 0x4242u | own);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+r"(a[i])::"memory");
    wgmma_begin();
    wgmma<N>(sum, a, wgmma_plain(stage + R64_A8_SUMS, R64_A8_COLUMNS * 16), false);
    wgmma_end();
}

/* S += dx (d sum), where d has the factor that products keep. */
template <int N>
static __device__ __forceinline__ void r64_a8_floats(float *S, const float *sum, const uint8_t *stage, const float d[2])
{
    const float4 *dx = (const float4 *)(stage + R64_A8_SCALES) + (threadIdx.x & 3);

#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        const float4 v = dx[n * 4];
        const float x[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
        for (int e = 0; e < 8; e++)
            S[n * 8 + e] = __fmaf_rn(x[e / 4 * 2 + e % 2], __fmul_rn(d[e / 2 % 2], sum[n * 8 + e]), S[n * 8 + e]);
    }
}

static __device__ __forceinline__ float activate_gate(int act, float v)
{
    const float pos = fmaxf(v, 0.0f);

    return act == OP_SILU ? silu(v) : __fmul_rn(pos, pos);
}

/* act(gate) up, or act(up). The first group has the gate, the second up, for the same rows: either ends half of the
 * columns, and gives the other half away. */
template <int N>
static __device__ __forceinline__ void r64_a8_act(const tile_args &a, const r64_tile &t, const int *number,
                                                  const float *S, float4 *total, bool paired)
{
    const int mine = threadIdx.x / 128, lane = threadIdx.x & 31;
    const int r = t.r0 + threadIdx.x / 32 % (paired ? 4 : 8) * 16 + lane / 4;
    const float4 *theirs = total + (mine == 0 ? 128 : -128);

    if (paired)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            if (n / (N / 16) != mine)
                total[n * 256] = make_float4(S[4 * n], S[4 * n + 1], S[4 * n + 2], S[4 * n + 3]);
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* numbers are there too */
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        if (paired && n / (N / 16) != mine)
            continue;
        const float4 o = paired ? theirs[n * 256] : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        const float other[4] = { o.x, o.y, o.z, o.w };

#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int col = n * 8 + lane % 4 * 2 + e % 2, row = r + e / 2 * 8;
            const float own = S[4 * n + e], gate = mine == 0 || !paired ? own : other[e];

            if (col < t.in.cols && row < t.job->n_rows)
                a.job[0].y[number[col] * a.job[0].y_stride + row] =
                    __fmul_rn(activate_gate(a.act, gate), mine == 0 || !paired ? other[e] : own);
        }
    }
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* totals have been read */
}

/* One tile of N columns at most. */
template <int TYPE, int N>
static __device__ __forceinline__ void r64_a8_run(const tile_args &a, const r64_tile &t, int *number, uint8_t *smem,
                                                  r64_turn &now, bool paired)
{
    typedef r64_a8<TYPE> W;
    typedef group<TYPE> G;
    enum { UNITS = 4 / a8_sums(TYPE) };
    const block_rows block = r64_a8_block(a, t, paired);
    const void *book = smem + W::BOOK_AT;
    const int groups = a8_groups(a.k);
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    float4 *total = (float4 *)(smem + W::TOTALS_AT) + threadIdx.x;
    float S[N / 2], sum[N / 2];
    r64_a8_rows rows;

    if (threadIdx.x < N)
        number[threadIdx.x] = column_number(a, t.in, threadIdx.x);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        S[i] = sum[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++)
        rows.odd[h] = G::odd(block.row(own_row(h)));
    r64_wait(full, now);
    make_rows<TYPE>(rows, smem + now.stage * W::STAGE + W::W_AT, 0, 0, book);
    for (int g = 0; g < groups; g++) {
        const uint8_t *stage = smem + now.stage * W::STAGE;
        uint64_t *used = &empty[now.stage];
        float d[2];
        auto find_d = [&] { /* as late as can be: registers */
#pragma unroll
                            for (int h = 0; h < 2; h++)
                                d[h] = __fmul_rn(G::d(stage + W::W_AT, own_row(h), rows.skew[h]), 16777216.0f);
        };

        now.next<W>();
#pragma unroll
        for (int u = 0; u < 4; u += UNITS) {
            ask_products<TYPE, N>(sum, rows, stage, u, UNITS);
            if (UNITS == 1 && u == 0) /* before the next group's skew */
                find_d();
            if (UNITS == 1 && u < 3)
                make_rows<TYPE>(rows, stage + W::W_AT, g, u + 1, book);
            if (UNITS == 1 && u == 3 && g + 1 < groups) {
                r64_wait(full, now);
                make_rows<TYPE>(rows, smem + now.stage * W::STAGE + W::W_AT, g + 1, 0, book);
            }
            wgmma_wait<N / 2>(sum);
            if (UNITS > 1)
                find_d();
            r64_a8_floats<N>(S, sum, stage, d);
        }
        if constexpr (G::MIN)
            ask_minima<TYPE, N>(sum, stage, g);
        if (UNITS > 1 && g + 1 < groups) {
            r64_wait(full, now);
            make_rows<TYPE>(rows, smem + now.stage * W::STAGE + W::W_AT, g + 1, 0, book);
        }
        if constexpr (G::MIN) {
            wgmma_wait<N / 2>(sum);
#pragma unroll
            for (int h = 0; h < 2; h++)
                d[h] = __fmul_rn(G::dmin(stage + W::W_AT, own_row(h)), -16777216.0f);
            r64_a8_floats<N>(S, sum, stage, d);
        }
        warp_done(used);
        if (g % 4 == 3 || g + 1 == groups)
            r64_add_up<1, N>(S, total, g >= 4, g + 1 < groups);
    }
    if (a.out == TILE_FLOATS)
        r64_store<1, N>(t, number, S);
    else
        r64_a8_act<N>(a, t, number, S, total, paired);
}

template <int TYPE>
static __global__ void __launch_bounds__(r64_a8<TYPE>::THREADS, 1) r64_a8_times(const __grid_constant__ tile_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef r64_a8<TYPE> W;
    extern __shared__ __align__(1024) uint8_t smem[];
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const bool paired = a.out != TILE_FLOATS && a.n > 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < W::STAGES; i++) {
            bar_init(&full[i], a.list != NULL ? 128 : R64_A8_COPIES + 128);
            bar_init(&empty[i], W::COMPUTE / 32 * WARP_DONE);
        }
        bar_init_done();
    }
    if (group<TYPE>::BOOK > 0)
        bring_tables<TYPE>(*(copied_tables<4> *)(smem + W::BOOK_AT), a.tab);
    __syncthreads();
    if (threadIdx.x >= W::COMPUTE) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        r64_a8_fetch<TYPE>(a, smem, paired);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int tiles = r64_tiles(a);
    r64_turn now = { 0, 0 };

    /* numbers of columns: a table is written again when all have left the tile after its own */
    for (int i = blockIdx.x, at = 0; i < tiles; i += gridDim.x, at ^= 1) {
        int *number = (int *)(smem + W::NUMBERS_AT) + at * W::COLUMNS;
        r64_tile t;

        find_tile<W>(t, a, i, paired);
        switch ((t.in.cols + 15) / 16) {
        case 1:
            r64_a8_run<TYPE, 16>(a, t, number, smem, now, paired);
            break;
        case 2:
            r64_a8_run<TYPE, 32>(a, t, number, smem, now, paired);
            break;
        case 3:
            r64_a8_run<TYPE, 48>(a, t, number, smem, now, paired);
            break;
        case 4:
            r64_a8_run<TYPE, 64>(a, t, number, smem, now, paired);
            break;
        case 5:
            r64_a8_run<TYPE, 80>(a, t, number, smem, now, paired);
            break;
        case 6:
            r64_a8_run<TYPE, 96>(a, t, number, smem, now, paired);
            break;
        case 7:
            r64_a8_run<TYPE, 112>(a, t, number, smem, now, paired);
            break;
        default:
            r64_a8_run<TYPE, 128>(a, t, number, smem, now, paired);
            break;
        }
    }
#endif
}

template <int TYPE> static void launch_r64_a8(struct cuda *c, const tile_args *a, unsigned blocks)
{
    typedef r64_a8<TYPE> W;

    cuda_fail(c, cudaFuncSetAttribute(r64_a8_times<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, W::SMEM),
              "broad");
    LAUNCH(c, r64_a8_times<TYPE>, blocks, W::THREADS, W::SMEM, *a);
}
#endif
