/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a16_wgmma.cuh - GEMM for 64 and more tokens with 16-bit activations, on the wgmma units of sm_90.
 * room: kernels
 *
 * The sums of gemm/sums.cuh are integers that one or two floats hold exactly, so tensor cores that multiply halves and
 * add floats compute them exactly. A weight is a half: for unsigned formats byte v, taken as a half, is v 2^-24, and
 * its scale is 2^24 times as large. An activation q = 256 h + l is the halves 256 h and l, whose products go into one
 * sum. Only the scales are left as float operations: two or three, where int8 mma needs four or five.
 *
 * A block has two consumer warpgroups, with 64 or 128 rows of weights each, and one producer warpgroup. The producer
 * unpacks weights to bytes and copies activations to shared memory, as many pairs of units ahead as fit. It reads rows
 * that begin anywhere from copies in shared memory: small loads of lanes, each from a row of its own, are slow. A
 * consumer warp converts 16 or 32 rows of weights to halves in registers; wgmma reads activations from shared memory.
 * What a unit's float operations need of a column is read once for 32 rows. One group's float operations overlap the
 * other's products. Blocks are persistent: the next tile's weights are loaded while results are written. */
#ifndef KERNELS_GEMM_GEMM_R64_A16_WGMMA_CUH
#define KERNELS_GEMM_GEMM_R64_A16_WGMMA_CUH
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/gemm/acts_a16_wgmma.cuh"

/* Two sums need twice the registers: a warp then takes 16 rows of weights at once, not twice 16. */
static __host__ __device__ constexpr int r64_a16_subs(int type)
{
#define X(name) type == QUANT_##name ? 2:
    return GEMM_SMALL(X) 1;
#undef X
}
/* Fills in base, columns and job[].block, for blocks of at most `rows` rows and `columns` columns; returns how many
 * blocks stay. */
unsigned cuda_r64_grid(const struct cuda *c, struct tile_args *a, int64_t n, int rows, int columns);
void cuda_r64_a16_k(struct cuda *c, const struct tile_args *a, unsigned blocks);
void cuda_r64_a16_i(struct cuda *c, const struct tile_args *a, unsigned blocks);
void cuda_r64_a16_rare(struct cuda *c, const struct tile_args *a, unsigned blocks);

/* How sums of a unit become one whole number. */
enum r64_a16_sums {
    SUMS_ONE,    /* 32 elements of q, with weights of at most 15 */
    SUMS_PLANES, /* of 256 h and of l, then added */
    SUMS_HALVES, /* of 16 elements, which have scales of their own */
};

template <int TYPE> struct r64_a16 {
    enum {
        SUBS = r64_a16_subs(TYPE),
        ROWS = 128 * SUBS,
        COLUMNS = R64_A16_COLUMNS,
        STORED = TYPE == QUANT_q6_k || TYPE == QUANT_q8_0 || TYPE == QUANT_iq3_s, /* rows are copied as they are */
        STAGES = STORED && SUBS == 2 ? 3 : 4,
        THREADS = 3 * 128,
        HALF = wq<TYPE>::HALF,
        MIN = wq<TYPE>::MIN,
        DU = 1 + HALF + MIN, /* floats of a row and unit */
        SUMS = HALF        ? SUMS_HALVES
               : SUBS == 2 ? SUMS_ONE
                           : SUMS_PLANES,
        W_BYTES = ROWS * 32,
        D_BYTES = ROWS * DU * 4,
        /* a stage is a pair of units, everything of the first before the second; columns as in
         * gemm/acts_a16_wgmma.cuh */
        W_AT = R64_A16_PAIR,
        D_AT = W_AT + 2 * W_BYTES,
        STAGE = D_AT + 2 * D_BYTES,
        PITCH = ROWS + 4,
        TOTALS_AT = STAGES * STAGE,
        /* copies: of each row 256 elements, as far after a multiple of 16 bytes as in memory */
        BLOCK = sizeof(typename wq<TYPE>::block) * (256 / wq<TYPE>::ELEMS),
        ROW = (BLOCK + 30) / 16 * 16 | 16,
        ROWS_AT = TOTALS_AT + COLUMNS * PITCH * 4,
        BOOK_AT = ROWS_AT + STORED * ROWS * ROW,
        NUMBERS_AT = BOOK_AT + book<TYPE>::BYTES,
        BARS_AT = NUMBERS_AT + 2 * COLUMNS * 4,
        SMEM = BARS_AT + 2 * STAGES * 8,
    };
    static_assert(STAGE % 1024 == 0 && SMEM <= 227 << 10 && !(HALF && MIN), "places in shared memory");

    /* Words c and c + 4 of row g and of row g + 8 are 16 bytes of 512; turned, so that rows meet in no bank. */
    static __device__ __forceinline__ int lane_slot(int g, int c)
    {
        return (g * 4 + (c ^ g >> 1)) * 16;
    }
};

/* The next stage, and how often all have been used. */
struct r64_turn {
    int stage, phase;
    template <class W> __device__ __forceinline__ void next(void)
    {
        phase ^= stage == W::STAGES - 1;
        stage = stage == W::STAGES - 1 ? 0 : stage + 1;
    }
};

/* Rows of weights and columns of a block; x0: the first column where columns lie one after the other. */
struct r64_tile {
    const mv_job *job;
    span in;
    int r0, x0;
};
static __device__ __forceinline__ int r64_tiles(const tile_args &a)
{
    return a.base * (a.list == NULL ? (a.nx + a.columns - 1) / a.columns : *a.n_chunk);
}
template <class W> static __device__ __forceinline__ void find_tile(r64_tile &t, const tile_args &a, int i, bool paired)
{
    int block = i % a.base, j = 0;

    (void)find_span(a, i / a.base, a.columns, t.in);
    t.in.cols = min(t.in.cols, a.columns);
    t.x0 = a.list == NULL ? t.in.first : i / a.base * R64_A16_COLUMNS;
    if (!paired)
        while (j + 1 < a.n && block >= a.job[j + 1].block)
            j++;
    t.job = &a.job[j];
    t.r0 = (block - t.job->block) * (paired ? W::ROWS / 2 : (int)W::ROWS);
}
static __device__ __forceinline__ int column_number(const tile_args &a, const span &in, int t)
{
    t = in.first + min(t, in.cols - 1);
    return a.list == NULL ? t : a.list[t];
}

/* ---- the group that fetches ---- */

template <int TYPE> static __device__ __forceinline__ void put_r64_a16(uint8_t *stage, const unit u[2], int r, int n)
{
    typedef r64_a16<TYPE> W;
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

/* Columns that lie anywhere: what a thread copies of each pair, from where in 16 bytes (scales: 8) from x. */
struct r64_a16_source {
    uint32_t q[R64_A16_COLUMNS / 16], s;
    int n; /* of q */
};
static __device__ __forceinline__ void find_r64_a16(r64_a16_source &f, const tile_args &a, const r64_tile &t, int pairs)
{
    const int tid = threadIdx.x % 128;
    const uint32_t tile = (uint32_t)pairs * (R64_A16_PAIR / 16);

    f.n = (t.in.cols + 15) / 16;
#pragma unroll
    for (int i = 0; i < R64_A16_COLUMNS / 16; i++) {
        const int col = tid / 8 + i * 16, number = column_number(a, t.in, col) / a.div, c = number % R64_A16_COLUMNS;

        f.q[i] = number / R64_A16_COLUMNS * tile + (uint32_t)(c * 8 + (tid % 8 ^ col % 8 ^ c % 8));
    }
    const int number = column_number(a, t.in, tid % R64_A16_COLUMNS) / a.div;
    f.s = number / R64_A16_COLUMNS * tile * 2 + number % R64_A16_COLUMNS;
}
static __device__ __forceinline__ void gather_r64_a16(uint8_t *stage, const tile_args &a, const r64_a16_source &f,
                                                      int pair)
{
    const int tid = threadIdx.x % 128;
    uint8_t *to = stage + tid * 16;

#pragma unroll
    for (int i = 0; i < R64_A16_COLUMNS / 16; i++)
        if (i < f.n) {
            const uint8_t *from = a.x + (uint64_t)f.q[i] * 16 + pair * R64_A16_PAIR;

            copy16(to + i * 16 * R64_A16_UNIT, from);
            copy16(to + R64_A16_COLUMNS * R64_A16_UNIT + i * 16 * R64_A16_UNIT, from + R64_A16_COLUMNS * R64_A16_UNIT);
        }
    if (tid < f.n * 16) {
        const uint8_t *from = a.x + (uint64_t)f.s * 8 + pair * R64_A16_PAIR + R64_A16_SCALES;

        copy8(stage + R64_A16_SCALES + tid * 8, from);
        copy8(stage + R64_A16_SCALES + (R64_A16_COLUMNS + tid) * 8, from + R64_A16_COLUMNS * 8);
    }
}

/* n columns one after the other, from column c on: both units, then the scales of either, by four threads. */
static __device__ __forceinline__ void copy_r64_a16(uint8_t *stage, const uint8_t *from, int n, int c, uint64_t *full)
{
    const int tid = threadIdx.x % 128, each = tid < 2 ? R64_A16_UNIT : 8;
    const int at = tid < 2 ? tid * R64_A16_COLUMNS * R64_A16_UNIT : R64_A16_SCALES + (tid - 2) * R64_A16_COLUMNS * 8;

    if (tid < 4)
        bulk_copy(stage + at, from + at + c * each, (unsigned)(n * each), full);
}

/* Row r of a block, with two matrices half of them of either. */
template <class W>
static __device__ __forceinline__ const uint8_t *stored_row(const tile_args &a, const r64_tile &t, int r, bool paired)
{
    const int half = W::ROWS / 2, row = min(t.r0 + (paired ? r % half : r), t.job->n_rows - 1);

    return (paired && r >= half ? a.job[1].w : t.job->w) + t.in.expert * a.expert_bytes + row * t.job->row_bytes;
}

static __device__ __forceinline__ void fetchers_meet(void)
{
    asm volatile("bar.sync 2, 128;" ::: "memory");
}

/* Block `block` of 256 elements of each row is on its way; 8 threads share a row. */
template <class W>
static __device__ __forceinline__ void copy_stored(uint8_t *to, const tile_args &a, const r64_tile &t, int block,
                                                   bool paired)
{
    const int tid = threadIdx.x % 128, n = min((int)W::BLOCK, (int)t.job->row_bytes - block * (int)W::BLOCK);

    for (int r = tid / 8; r < W::ROWS; r += 16) {
        const uint8_t *row = stored_row<W>(a, t, r, paired) + block * (int)W::BLOCK;
        const uint8_t *from = (const uint8_t *)((uintptr_t)row & ~(uintptr_t)15);

#pragma unroll
        for (int i = tid % 8 * 16; i < W::ROW; i += 128)
            if (from + i < row + n)
                copy16(to + r * W::ROW + i, from + i);
    }
    copy_end();
}

template <int TYPE> static __device__ __forceinline__ void r64_a16_fetch(const tile_args &a, uint8_t *smem, bool paired)
{
    typedef r64_a16<TYPE> W;
    enum { EACH = W::SUBS }; /* rows of a thread */
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const struct tables *tab =
        near_book((uint32_t *)(smem + W::BOOK_AT), a.tab, book<TYPE>::AT, book<TYPE>::BYTES, threadIdx.x % 128, 128);
    const int tid = threadIdx.x % 128, units = a.k / 32, pairs = x_pairs(a.k), tiles = r64_tiles(a);
    r64_turn now = { 0, 0 };
    r64_tile t;
    int i = blockIdx.x;

    fetchers_meet(); /* the code book */
    if (W::STORED) {
        if (i >= tiles)
            return;
        find_tile<W>(t, a, i, paired);
        copy_stored<W>(smem + W::ROWS_AT, a, t, 0, paired);
    }
    for (; i < tiles; i += W::STORED ? 0 : gridDim.x) {
        typename wq<TYPE>::raw raw[EACH];
        const uint8_t *row[EACH], *x = a.x;
        r64_a16_source from;

        if (!W::STORED)
            find_tile<W>(t, a, i, paired);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            row[e] = stored_row<W>(a, t, e * 128 + tid, paired);
#pragma unroll
        for (int e = 0; e < EACH && !W::STORED; e++)
            wq<TYPE>::load(raw[e], row[e], 0);
        if (a.gather)
            find_r64_a16(from, a, t, pairs);
        else
            x += (int64_t)(t.x0 / R64_A16_COLUMNS) * pairs * R64_A16_PAIR;
        for (int p = 0; p < pairs; p++) {
            uint8_t *stage = smem + now.stage * W::STAGE;
            const int n = wq<TYPE>::ELEMS == 256 ? 2 : units - 2 * p;

            bar_wait(&empty[now.stage], now.phase ^ 1);
            if (a.gather) {
                gather_r64_a16(stage, a, from, p);
                copy_arrive(&full[now.stage]);
            } else {
                copy_r64_a16(stage, x + (int64_t)p * R64_A16_PAIR, r64_read(t.in.cols), t.x0 % R64_A16_COLUMNS,
                             &full[now.stage]);
            }
            if (W::STORED && p % 4 == 0) {
                copy_wait<0>();
                fetchers_meet();
            }
#pragma unroll
            for (int e = 0; e < EACH && W::STORED; e++)
                wq<TYPE>::load(raw[e],
                               smem + W::ROWS_AT + (e * 128 + tid) * W::ROW +
                                   ((uintptr_t)(row[e] + p / 4 * W::BLOCK) & 15),
                               p % 4);
            if (W::STORED && p + 1 == pairs && (i += gridDim.x) < tiles)
                find_tile<W>(t, a, i, paired);
            if (W::STORED && (p % 4 == 3 || p + 1 == pairs) && i < tiles) {
                fetchers_meet(); /* copies have been read */
                copy_stored<W>(smem + W::ROWS_AT, a, t, (p + 1) % pairs / 4, paired);
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                unit u[2];

                wq<TYPE>::unpack(raw[e], p, u, n, tab);
                put_r64_a16<TYPE>(stage, u, e * 128 + tid, n);
                if (!W::STORED && p + 1 < pairs)
                    wq<TYPE>::load(raw[e], row[e], p + 1);
            }
            bar_arrive(&full[now.stage]);
            now.next<W>();
        }
    }
}

/* ---- the groups that compute ---- */

/* A stage has come; what was written there may be read by wgmma. */
static __device__ __forceinline__ void r64_wait(uint64_t *full, const r64_turn &now)
{
    bar_wait(&full[now.stage], now.phase);
    proxy_fence();
}

/* A lane's part of a unit of a group's rows of weights, for each 64: words; halves of 16 elements, the even ones before
 * the odd ones; scales of rows g and g + 8. */
template <int TYPE> struct r64_a16_part {
    uint4 words[r64_a16<TYPE>::SUBS];
    uint32_t w[r64_a16<TYPE>::SUBS][2][4];
    float d[r64_a16<TYPE>::SUBS][2][2];
};
template <int TYPE>
static __device__ __forceinline__ void load_words(r64_a16_part<TYPE> &to, const uint8_t *stage, int u)
{
    typedef r64_a16<TYPE> W;
    const int lane = threadIdx.x & 31, r16 = threadIdx.x / 128 * 4 * W::SUBS + threadIdx.x / 32 % 4;

#pragma unroll
    for (int s = 0; s < W::SUBS; s++)
        to.words[s] =
            *(const uint4 *)(stage + W::W_AT + u * W::W_BYTES + (r16 + s * 4) * 512 + W::lane_slot(lane / 4, lane % 4));
}
template <int TYPE>
static __device__ __forceinline__ void load_scales(r64_a16_part<TYPE> &to, const uint8_t *stage, int u)
{
    typedef r64_a16<TYPE> W;
    const int r = threadIdx.x / 128 * 64 * W::SUBS + threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;

#pragma unroll
    for (int i = 0; i < 2 * W::SUBS; i++) {
        const float *d = (const float *)(stage + W::D_AT + u * W::D_BYTES) + (r + i / 2 * 64 + i % 2 * 8) * W::DU;
        const float2 v = W::DU == 1 ? make_float2(d[0], 0.0f) : *(const float2 *)d;

        to.d[i / 2][i % 2][0] = v.x;
        to.d[i / 2][i % 2][1] = v.y;
    }
}
template <int TYPE> static __device__ __forceinline__ void make_halves(r64_a16_part<TYPE> &to)
{
#pragma unroll
    for (int s = 0; s < r64_a16<TYPE>::SUBS; s++) {
        const uint4 &v = to.words[s];
        const uint32_t w[2][2] = { { v.x, v.z }, { v.y, v.w } };

#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t *t = to.w[s][i / 2] + i % 2;
            const uint32_t b = w[i / 2][i % 2];

            if (r64_a16<TYPE>::MIN) {
                t[0] = b & 0x00ff00ffu;
                t[2] = b >> 8 & 0x00ff00ffu;
            } else { /* 1,024 and the byte above -128, less 1,152 */
                const uint32_t y = b ^ 0x80808080u, most = 0x64646464u, zero = 0x64806480u;
                const uint32_t even = __byte_perm(y, most, 0x4240), odd = __byte_perm(y, most, 0x4341);
                const __half2 e = __hsub2(*(const __half2 *)&even, *(const __half2 *)&zero);
                const __half2 o = __hsub2(*(const __half2 *)&odd, *(const __half2 *)&zero);

                t[0] = *(const uint32_t *)&e;
                t[2] = *(const uint32_t *)&o;
            }
        }
    }
}

/* Sums of a unit with N columns: of each 64 rows, and of the second part, if there is one, behind those. */
template <int TYPE, int N>
static __device__ __forceinline__ void r64_a16_products(float *sum, r64_a16_part<TYPE> &r, const uint8_t *columns)
{
    enum { SUBS = r64_a16<TYPE>::SUBS, SUMS = r64_a16<TYPE>::SUMS };
    const uint64_t b = wgmma_columns(columns);

#pragma unroll
    for (int i = 0; i < SUBS * 8; i++) /* all are there before the first product */
        asm volatile("" : "+r"(r.w[i / 8][i / 4 % 2][i % 4])::"memory");
    wgmma_begin();
#pragma unroll
    for (int s = 0; s < SUBS; s++) {
        float *first = sum + s * (N / 2), *second = SUMS == SUMS_ONE ? first : first + SUBS * (N / 2);

        if (SUMS == SUMS_HALVES) {
            wgmma<N>(first, r.w[s][0], b, false);
            wgmma<N>(first, r.w[s][0], b + 4, true);
            wgmma<N>(second, r.w[s][1], b + 2, false);
            wgmma<N>(second, r.w[s][1], b + 6, true);
        } else {
            wgmma<N>(first, r.w[s][0], b, false);
            wgmma<N>(first, r.w[s][1], b + 2, true);
            wgmma<N>(second, r.w[s][0], b + 4, SUMS == SUMS_ONE);
            wgmma<N>(second, r.w[s][1], b + 6, true);
        }
    }
    wgmma_end();
}

/* S += dx V for N columns; sx: their sums of q and dx. */
template <int TYPE, int N>
static __device__ __forceinline__ void r64_a16_floats(float *S, const float *sum, const r64_a16_part<TYPE> &r,
                                                      const uint8_t *sx)
{
    typedef r64_a16<TYPE> W;
    enum { SUBS = W::SUBS };

#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const float4 x = *(const float4 *)(sx + n * 64 + (threadIdx.x & 3) * 16);

#pragma unroll
        for (int e = 0; e < 4 * SUBS; e++) {
            const int i = e / 4 * (N / 2) + n * 4 + e % 4;
            const float *d = r.d[e / 4][e / 2 % 2], first = sum[i],
                        second = sum[W::SUMS == SUMS_ONE ? i : i + SUBS * (N / 2)];
            float v = __fmul_rn(d[0], W::SUMS == SUMS_PLANES ? __fadd_rn(first, second) : first);

            if (W::MIN)
                v = __fmaf_rn(-d[1], e % 2 == 0 ? x.x : x.z, v);
            if (W::HALF)
                v = __fmaf_rn(d[1], second, v);
            S[i] = __fmaf_rn(e % 2 == 0 ? x.y : x.w, v, S[i]);
        }
    }
}

/* Sums of 8 pairs, added to those before unless these are the first, are S or, if there are more, remembered. */
template <int SUBS, int N>
static __device__ __forceinline__ void r64_add_up(float *S, float4 *total, bool before, bool more)
{
#pragma unroll
    for (int n = 0; n < SUBS * N / 8; n++) {
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

template <int SUBS, int N>
static __device__ __forceinline__ void r64_store(const r64_tile &t, const int *number, const float *S)
{
    const int lane = threadIdx.x & 31;
    const int r = t.r0 + threadIdx.x / 128 * 64 * SUBS + threadIdx.x / 32 % 4 * 16 + lane / 4;

    asm volatile("bar.sync 1, 256;" ::: "memory"); /* numbers are there */
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const int col = i / 2 * 8 + lane % 4 * 2 + i % 2;

        if (col >= t.in.cols)
            continue;
        float *y = t.job->y + number[col] * t.job->y_stride;
#pragma unroll
        for (int e = 0; e < 2 * SUBS; e++)
            if (r + e / 2 * 64 + e % 2 * 8 < t.job->n_rows)
                y[r + e / 2 * 64 + e % 2 * 8] = S[e / 2 * (N / 2) + i / 2 * 4 + i % 2 + e % 2 * 2];
    }
}

/* act(gate) up, or act(up), rounded: column i of the block is row x0 + i; hid: results, columns PITCH apart. */
template <int TYPE, int N>
static __device__ __forceinline__ void r64_a16_act(const tile_args &a, const r64_tile &t, const float *S, float *hid,
                                                   bool paired)
{
    enum { PITCH = r64_a16<TYPE>::PITCH, SUBS = r64_a16<TYPE>::SUBS, ROWS = r64_a16<TYPE>::ROWS };
    const int lane = threadIdx.x & 31, n_rows = t.job->n_rows, here = paired ? ROWS / 2 : (int)ROWS;
    const int row = threadIdx.x / 128 * 64 * SUBS + threadIdx.x / 32 % 4 * 16 + lane / 4;

    asm volatile("bar.sync 1, 256;" ::: "memory"); /* totals have been read */
#pragma unroll
    for (int i = 0; i < SUBS * N / 2; i++) {
        const int j = i % (N / 2);

        hid[(j / 4 * 8 + lane % 4 * 2 + j % 2) * PITCH + row + i / (N / 2) * 64 + j / 2 % 2 * 8] = S[i];
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int i = threadIdx.x; i < N * here / 8; i += 256) {
        const int part = i % 8, col = i / 8 % N, r = i / 8 / N * 64 + part * 8;
        const float *from = hid + col * PITCH + r;
        float v[8];

        if (t.r0 + r / 64 * 64 >= n_rows)
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float pos = fmaxf(from[j], 0.0f), y = a.act == OP_SILU ? silu(from[j]) : __fmul_rn(pos, pos);

            v[j] = col >= t.in.cols || t.r0 + r + j >= n_rows ? 0.0f : __fmul_rn(y, paired ? from[ROWS / 2 + j] : 1.0f);
        }
        r64_a16_values(a.rounded, x_pairs(n_rows), t.x0 + col, v, (t.r0 + r) / 64, part, false);
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

/* One tile of N columns at most. */
template <int TYPE, int N>
static __device__ __forceinline__ void r64_a16_run(const tile_args &a, const r64_tile &t, int *number, uint8_t *smem,
                                                   r64_turn &now, bool paired)
{
    typedef r64_a16<TYPE> W;
    enum { SUBS = W::SUBS };
    const int pairs = x_pairs(a.k);
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    float4 *total = (float4 *)(smem + W::TOTALS_AT) + threadIdx.x;
    float S[SUBS * N / 2], sum[2 * N / 2];
    r64_a16_part<TYPE> rows;

    if (threadIdx.x < N)
        number[threadIdx.x] = column_number(a, t.in, threadIdx.x);
#pragma unroll
    for (int i = 0; i < SUBS * N / 2; i++)
        S[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = 0.0f;
    r64_wait(full, now);
    load_words<TYPE>(rows, smem + now.stage * W::STAGE, 0);
    for (int p = 0; p < pairs; p++) {
        const uint8_t *stage = smem + now.stage * W::STAGE;
        uint64_t *used = &empty[now.stage];

        now.next<W>();
#pragma unroll
        for (int u = 0; u < 2; u++) {
            make_halves<TYPE>(rows);
            r64_a16_products<TYPE, N>(sum, rows, stage + u * R64_A16_COLUMNS * R64_A16_UNIT);
            load_scales<TYPE>(rows, stage, u);
            if (u == 0) {
                load_words<TYPE>(rows, stage, 1);
            } else if (p + 1 < pairs) {
                r64_wait(full, now);
                load_words<TYPE>(rows, smem + now.stage * W::STAGE, 0);
            }
            wgmma_wait<N>(sum);
            r64_a16_floats<TYPE, N>(S, sum, rows, stage + R64_A16_SCALES + u * R64_A16_COLUMNS * 8);
        }
        warp_done(used);
        if (p % 8 == 7 || p + 1 == pairs)
            r64_add_up<SUBS, N>(S, total, p >= 8, p + 1 < pairs);
    }
    if (a.out == TILE_FLOATS)
        r64_store<SUBS, N>(t, number, S);
    else
        r64_a16_act<TYPE, N>(a, t, S, (float *)(smem + W::TOTALS_AT), paired);
}

template <int TYPE>
static __global__ void __launch_bounds__(r64_a16<TYPE>::THREADS, 1) r64_a16_times(const __grid_constant__ tile_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef r64_a16<TYPE> W;
    extern __shared__ __align__(1024) uint8_t smem[];
    uint64_t *full = (uint64_t *)(smem + W::BARS_AT), *empty = full + W::STAGES;
    const bool paired = a.out != TILE_FLOATS && a.n > 1;

    if (threadIdx.x == 0) {
        for (int i = 0; i < W::STAGES; i++) {
            bar_init(&full[i], a.gather ? 2 * 128 : 4 + 128);
            bar_init(&empty[i], 8 * WARP_DONE);
        }
        bar_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= 2 * 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        r64_a16_fetch<TYPE>(a, smem, paired);
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
        if (t.in.cols > 48)
            r64_a16_run<TYPE, 64>(a, t, number, smem, now, paired);
        else if (t.in.cols > 32)
            r64_a16_run<TYPE, 48>(a, t, number, smem, now, paired);
        else if (t.in.cols > 16)
            r64_a16_run<TYPE, 32>(a, t, number, smem, now, paired);
        else
            r64_a16_run<TYPE, 16>(a, t, number, smem, now, paired);
    }
#endif
}

template <int TYPE> static void launch_r64_a16(struct cuda *c, const tile_args *a, unsigned blocks)
{
    typedef r64_a16<TYPE> W;

    cuda_fail(c, cudaFuncSetAttribute(r64_a16_times<TYPE>, cudaFuncAttributeMaxDynamicSharedMemorySize, W::SMEM),
              "wide");
    LAUNCH(c, r64_a16_times<TYPE>, blocks, W::THREADS, W::SMEM, *a);
}
#endif
