/* SPDX-License-Identifier: Apache-2.0 */
/* few.cu - products of stored rows with 2 to 16 rows of activations, on tensor cores.
 *
 * A warp takes 16 rows of weights, the first operand, straight from memory (frag.cuh), and a segment of two blocks of
 * units. The second operand has the planes h and l of four columns side by side, so that lane 4 g + c gets the exact sums
 * of rows g and g + 8 with column c of them, and does their floats in the order of product.cuh. The warps of a block
 * have a few strips of 16 rows, all segments of each, and the segments' sums are added in order. Columns come to shared
 * memory by bulk copies: read where they are, each unit would wait for its own. A lane finds the scales of a few units,
 * and all lanes that need them read them from shared memory. */
#include "kernels/bulk.cuh"
#include "kernels/few.cuh"
#include "kernels/row.cuh"

enum { WARPS = 8, GROUP = 4 /* columns */, PITCH = 24 /* of a column's sums, for the banks' sake */ };
enum { TURN = 8 /* segments of columns in shared memory */, ITEMS = 2 * WARPS /* strips times segments of a task */ };
enum { FLOATS = 2 /* columns of a task of type f32 */ };

/* Where a lane finds its part of the columns: the bytes of four of them, and the sums of one. */
template <int NT> struct columns {
    uint32_t bytes[NT], sums[NT];
};

/* What a unit has two of: scale and minimum, or scales of its halves; of 8 units, rows apart for the banks' sake. */
template <int TYPE> struct scales_of {
    enum { EACH = frag<TYPE>::HALVES || frag<TYPE>::MIN ? 2 : 1, APART = 8 * EACH + 4 };
};

/* Sums that begin at WHOLE. */
template <bool SIGNED>
static __device__ __forceinline__ void mma_few(int d[4], const uint32_t g0[2], const uint32_t g8[2], uint32_t b0, uint32_t b1)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1), "r"(WHOLE));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(g0[0]), "r"(g8[0]), "r"(g0[1]), "r"(g8[1]), "r"(b0), "r"(b1), "r"(WHOLE));
}

/* The scales of a block, for the warp. */
template <int TYPE>
static __device__ __forceinline__ void put_scales(float *scales, const strip<TYPE> &s)
{
    typedef frag<TYPE> F;
    enum { EACH = scales_of<TYPE>::EACH, APART = scales_of<TYPE>::APART, AT_ONCE = F::HALVES ? 2 : 4 };
    const int lane = threadIdx.x & 31, c = lane % 4;
    float *to = scales + lane / 4 * APART + (F::HALVES ? c : EACH * c);

    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8 / AT_ONCE; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float d, m, *at = to + r * 8 * APART + j * AT_ONCE * EACH;

            F::scale(r == 0 ? s.r0 : s.r8, j, c, d, m);
            if (F::MIN)
                *(float2 *)at = make_float2(d, -m);
            else
                *at = d;
        }
    __syncwarp();
}

/* Sums of 16 rows and NT times four columns over the units of a block, of which so many exist. */
template <int TYPE, int NT>
static __device__ __forceinline__ void block_times(float S[NT][2], const strip<TYPE> &s, const uint8_t *x,
                                                   const columns<NT> &col, int units, float *scales,
                                                   const near_tables *tab)
{
    typedef frag<TYPE> F;
    enum { EACH = scales_of<TYPE>::EACH, APART = scales_of<TYPE>::APART, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int lane = threadIdx.x & 31, c = lane % 4;
    const float *own = scales + lane / 4 * APART;
    float d[2][4], sums[NT][4]; /* of units: 4 floats of scales; sum of q, dx, of two */

    if (units <= 0)
        return;
    put_scales<TYPE>(scales, s);
#pragma unroll
    for (int u = 0; u < 8; u++) {
        const uint8_t *at = x + u / 2 * X_PAIR;
        const int i = u * EACH % 4;
        uint32_t w0[2], w8[2];

        if (!WHOLE_BLOCKS && u >= units) /* only where it may be: units go side by side */
            break;
        F::words(s.r0, u, c, w0, tab);
        F::words(s.r8, u, c, w8, tab);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (i == 0)
                *(float4 *)d[r] = *(const float4 *)(own + r * 8 * APART + u * EACH);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t b0 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n]);
            const uint32_t b1 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n] + (F::APART ? 8 : 16));
            int h[4], g[4];

            if (u % 2 == 0)
                *(float4 *)sums[n] = *(const float4 *)(at + X_SUMS + col.sums[n]);
            if (F::HALVES) {
                mma_few<F::SIGNED>(h, w0, w8, c < 2 ? b0 : 0u, c < 2 ? b1 : 0u);
                mma_few<F::SIGNED>(g, w0, w8, c < 2 ? 0u : b0, c < 2 ? 0u : b1);
            } else {
                mma_few<F::SIGNED>(h, w0, w8, b0, b1);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float v = __fmul_rn(d[r][i], whole(h[2 * r], h[2 * r + 1]));

                if (F::MIN)
                    v = __fmaf_rn(d[r][i + EACH - 1], sums[n][u % 2 * 2], v);
                if (F::HALVES)
                    v = __fmaf_rn(d[r][i + EACH - 1], whole(g[2 * r], g[2 * r + 1]), v);
                S[n][r] = __fmaf_rn(sums[n][u % 2 * 2 + 1], v, S[n][r]);
            }
        }
    }
}

/* What a block does at a time: rows of a job times a span of columns. */
struct task {
    int job, r0, strips, span, first, cols; /* first row; sets of 16 rows; columns */
};

/* Task number i of a launch. */
template <int NT>
static __device__ __forceinline__ task find_task(const few_args &f, int i)
{
    task t = {};

    while (t.job + 1 < f.n && i >= f.job[t.job + 1].first)
        t.job++;
    const few_job &job = f.job[t.job];
    const bool floats = job.type == QUANT_f32;
    const int spans = floats ? (f.nx + FLOATS - 1) / FLOATS : f.spans, group = (i - job.first) / spans;
    t.span = i - job.first - group * spans;
    t.first = t.span * (floats ? (int)FLOATS : NT * GROUP);
    t.cols = min(f.nx - t.first, floats ? (int)FLOATS : NT * GROUP);
    t.r0 = group * (floats ? (int)WARPS : f.strips * STRIP);
    t.strips = min(f.strips, (job.n_rows - t.r0 + STRIP - 1) / STRIP);
    return t;
}

/* A task's rows of weights, before it begins. */
static __device__ __forceinline__ void fetch_task(const few_args &f, const task &t)
{
    const few_job &job = f.job[t.job];
    const int rows = min(job.n_rows - t.r0, job.type == QUANT_f32 ? (int)WARPS : t.strips * STRIP);

    prefetch(job.w + (int64_t)t.r0 * job.row_bytes, rows * job.row_bytes, threadIdx.x, WARPS * 32);
}

static __device__ __forceinline__ void wait_once(bool &waited)
{
    if (!waited)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    waited = true;
}

/* Where column i lies: four of them, pitches 16 bytes more than a multiple of 128, meet in no bank. */
enum { ASIDE = 32 };
static __device__ __forceinline__ uint32_t column_at(int i, int pitch)
{
    return (uint32_t)(i * pitch + (i & 2) / 2 * ASIDE);
}

/* Columns in shared memory: which span of them, so many segments from `round` on, or -1. */
struct near {
    uint8_t  *x;
    uint64_t *bar;
    int       phase, span, round;
};

/* By a warp. */
static __device__ __forceinline__ void fetch_columns(const few_args &f, const task &t, int round, const near &at)
{
    const int lane = threadIdx.x & 31;
    const unsigned bytes = (unsigned)min(x_pairs(f.k) - round * 8, TURN * 8) * X_PAIR;

    if (lane == 0)
        bar_expect(at.bar, bytes * t.cols);
    __syncwarp();
    if (lane < t.cols)
        bulk_go(at.x + column_at(lane, f.pitch), f.x + (t.first + lane) * x_row_bytes(f.k) + round * 8 * X_PAIR, bytes,
                at.bar);
    __syncwarp();
}

/* A strip's segment, as a lane sees it: its rows from the segment's first block on. */
struct item {
    const uint8_t *r0, *r8;
    int            segment, units; /* of the turn; from the segment on */
};

template <int TYPE>
static __device__ __forceinline__ item find_item(const few_args &f, const task &t, int i, int round, int segments)
{
    const few_job &job = f.job[t.job];
    const int strip = i / segments, segment = i - strip * segments, g = (threadIdx.x & 31) / 4;
    const int r0 = t.r0 + strip * STRIP, last = job.n_rows - r0 - 1;
    const uint8_t *w = job.w + (int64_t)r0 * job.row_bytes + (round + segment) * (2 * frag<TYPE>::BLOCK);

    return { w + min(g, last) * job.row_bytes, w + min(g + 8, last) * job.row_bytes, segment,
             f.k / 32 - (round + segment) * 16 };
}

/* Block 0 or 1 of a segment; one that does not exist is not looked at. */
template <int TYPE>
static __device__ __forceinline__ void load_item(strip<TYPE> &s, const item &of, int block)
{
    const int units = of.units - block * 8, c = threadIdx.x % 4;

    if (units <= 0)
        return;
    frag<TYPE>::template load<true>(s.r0, of.r0 + block * frag<TYPE>::BLOCK, units, c);
    frag<TYPE>::template load<true>(s.r8, of.r8 + block * frag<TYPE>::BLOCK, units, c);
}

/* A warp's items of a turn; a block of a strip is read while the one before is multiplied. */
template <int TYPE, int NT>
static __device__ __forceinline__ void items_times(float (*to)[NT * GROUP * PITCH], const few_args &f, const task &t,
                                                   int round, int segments, float *scales, near &at, bool &waited,
                                                   const near_tables *tab)
{
    typedef frag<TYPE> F;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, items = t.strips * segments;
    int i = threadIdx.x / 32;
    item of = find_item<TYPE>(f, t, min(i, items - 1), round, segments);
    strip<TYPE> now = {}, then = {};
    columns<NT> col;

    load_item<TYPE>(now, of, 0);
    wait_once(waited);
    if (at.span != t.span || at.round != round) {
        if (threadIdx.x / 32 == 0)
            fetch_columns(f, t, round, at);
        at.span = t.span;
        at.round = round;
        at.phase ^= 1;
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        col.bytes[n] = column_at(min(n * GROUP + g / 2, t.cols - 1), f.pitch) + g % 2 * 4 +
                       (F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
        col.sums[n] = column_at(min(n * GROUP + c, t.cols - 1), f.pitch);
    }
    bar_wait(at.bar, at.phase);
#pragma unroll 1
    for (; i < items; i += WARPS) {
        const item next = find_item<TYPE>(f, t, min(i + WARPS, items - 1), round, segments);
        const uint8_t *x = at.x + of.segment * (8 * X_PAIR);
        float S[NT][2] = {};

        load_item<TYPE>(then, of, 1);
        block_times<TYPE, NT>(S, now, x, col, of.units, scales, tab);
        load_item<TYPE>(now, next, 0);
        block_times<TYPE, NT>(S, then, x + 4 * X_PAIR, col, of.units - 8, scales, tab);
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                to[i][(n * GROUP + c) * PITCH + g + r * 8] = S[n][r];
        of = next;
    }
}

/* What the residual stream has; read before the products, it is there when they are. */
static __device__ __forceinline__ float residual(const few_args &f, const few_job &job, int column, int row)
{
    return job.res != NULL ? job.res[column * f.res_stride + row] : 0.0f;
}

static __device__ __forceinline__ void put(const few_args &f, const few_job &job, int column, int row, float v,
                                           float res)
{
    job.y[column * job.y_stride + row] = v;
    if (job.res != NULL)
        job.res[column * f.res_stride + row] = __fmaf_rn(f.scale, v, res);
}

/* A result of a task: row of a column; !there: not one. */
struct place {
    int  strip, at, column, row;
    bool there;
};

template <int NT>
static __device__ __forceinline__ place find_place(const few_args &f, const task &t, int i)
{
    const int strip = i / (NT * GROUP * STRIP), column = i / STRIP % (NT * GROUP), row = i % STRIP;
    const int r = t.r0 + strip * STRIP + row;

    return { strip, column * PITCH + row, t.first + column, r,
             strip < t.strips && column < t.cols && r < f.job[t.job].n_rows };
}

/* Sums of a task's strips over the segments of a turn; the last turn's are results. Strips of several turns are so few
 * that a thread has one sum of them. */
template <int NT>
static __device__ __forceinline__ void add_segments(const few_args &f, const task &t, float (*sums)[NT * GROUP * PITCH],
                                                    int segments, bool last, float first, float &total)
{
    const few_job &job = f.job[t.job];

#pragma unroll 1
    for (int i = threadIdx.x; i < t.strips * NT * GROUP * STRIP; i += WARPS * 32) {
        const bool own = i == (int)threadIdx.x;
        const place p = find_place<NT>(f, t, i);
        float v = own ? total : 0.0f;

        for (int q = 0; q < segments; q++)
            v = __fadd_rn(v, sums[p.strip * segments + q][p.at]);
        if (own)
            total = v;
        if (last && p.there)
            put(f, job, p.column, p.row, v, own ? first : residual(f, job, p.column, p.row));
    }
}

/* Task t by the block. */
template <int TYPE, int NT>
static __device__ __forceinline__ void strips_times(const few_args &f, const task &t, near &at, bool &waited,
                                                    const near_tables *tab)
{
    __shared__ float sums[ITEMS][NT * GROUP * PITCH];
    __shared__ __align__(16) float scales[WARPS][STRIP * scales_of<TYPE>::APART];
    const int segments = row_segments(f.k);
    float res = 0.0f, total = 0.0f;

#pragma unroll 1
    for (int round = 0; round < segments; round += TURN) {
        const int here = min(segments - round, (int)TURN);

        items_times<TYPE, NT>(sums, f, t, round, here, scales[threadIdx.x / 32], at, waited, tab);
        if (round + TURN >= segments) {
            const place p = find_place<NT>(f, t, threadIdx.x);

            res = p.there ? residual(f, f.job[t.job], p.column, p.row) : 0.0f;
        }
        __syncthreads();
        add_segments<NT>(f, t, sums, here, round + TURN >= segments, res, total);
        __syncthreads();
    }
}

/* Rows of floats, one a warp, in the order of plain_times. */
static __device__ __forceinline__ void floats_times(const few_args &f, const task &t, bool &waited)
{
    enum { AHEAD = 32 };
    const few_job &job = f.job[t.job];
    const int row = t.r0 + (int)threadIdx.x / 32, lane = threadIdx.x & 31, n = f.k / 32;
    const float *w = (const float *)(job.w + (int64_t)min(row, job.n_rows - 1) * job.row_bytes) + lane;
    float now[AHEAD], sum[FLOATS] = {};

#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        now[j] = j < n ? w[j * 32] : 0.0f;
    wait_once(waited);
#pragma unroll 1
    for (int i = 0; i < n; i += AHEAD) {
        float x[FLOATS][AHEAD];

#pragma unroll
        for (int q = 0; q < FLOATS; q++)
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                x[q][j] = i + j >= n ? 0.0f
                                     : f.floats[(t.first + min(q, t.cols - 1)) * f.floats_stride + (i + j) * 32 + lane];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
#pragma unroll
            for (int q = 0; q < FLOATS; q++)
                if (i + j < n)
                    sum[q] = __fmaf_rn(now[j], x[q][j], sum[q]);
            now[j] = i + AHEAD + j < n ? w[(i + AHEAD + j) * 32] : 0.0f;
        }
    }
#pragma unroll
    for (int q = 0; q < FLOATS; q++) {
        sum[q] = fold32(sum[q]);
        if (lane == q && q < t.cols && row < job.n_rows)
            put(f, job, t.first + q, row, sum[q], residual(f, job, t.first + q, row));
    }
}

/* TYPE: the format of its jobs that are not floats; f32: there are none. One: of a kernel's code what lies beyond the
 * first 64 KiB comes late, 10 cycles an instruction. */
template <int NT, int TYPE>
__global__ void __launch_bounds__(WARPS * 32, 2) few_rows(const __grid_constant__ few_args f)
{
    extern __shared__ __align__(16) uint8_t x[];
    __shared__ uint64_t bar;
    __shared__ near_tables tables;
    near at = { x, &bar, 1, -1, 0 };
    bool waited = false;

    let_next_begin();
    bring_tables<TYPE>(tables, f.tab);
    if (threadIdx.x == 0) {
        bar_init(&bar, 1);
        bar_init_done();
    }
    __syncthreads();
    if ((int)blockIdx.x < f.tasks)
        fetch_task(f, find_task<NT>(f, blockIdx.x));
#pragma unroll 1
    for (int i = blockIdx.x; i < f.tasks; i += gridDim.x) {
        const task t = find_task<NT>(f, i);

        if (i + (int)gridDim.x < f.tasks)
            fetch_task(f, find_task<NT>(f, i + gridDim.x));
        if (f.job[t.job].type == QUANT_f32)
            floats_times(f, t, waited);
        else if constexpr (TYPE != QUANT_f32)
            strips_times<TYPE, NT>(f, t, at, waited, &tables);
    }
    wait_once(waited);
    move_past(f.past, blockIdx.x * WARPS * 32 + threadIdx.x, gridDim.x * WARPS * 32);
}

/* Gives each job its tasks; how many there are. */
static int cut_jobs(struct few_args *f, int strips)
{
    int tasks = 0;

    f->strips = strips;
    for (int i = 0; i < f->n; i++) {
        const bool floats = f->job[i].type == QUANT_f32;

        f->job[i].first = tasks;
        tasks += (int)(ceil_div(f->job[i].n_rows, floats ? (int)WARPS : strips * STRIP) *
                       (floats ? ceil_div(f->nx, FLOATS) : f->spans));
    }
    return tasks;
}

template <int NT>
static void launch_few(struct cuda *c, const struct few_args *f, int type, dim3 grid)
{
    const size_t smem = (size_t)NT * GROUP * f->pitch;

    switch (type) {
    case QUANT_f32: launch_early(c, "few_rows", few_rows<NT, QUANT_f32>, grid, WARPS * 32, smem, *f); break;
#define X(name) \
    case QUANT_##name: launch_early(c, "few_rows", few_rows<NT, QUANT_##name>, grid, WARPS * 32, smem, *f); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

/* Jobs of one format, and floats. Where all that a turn of blocks can hold is not enough, a block takes twice as many
 * strips. */
static void one_format(struct cuda *c, struct few_args *f, int type)
{
    const int turn = 2 * c->sms, segments = row_segments(f->k) < TURN ? row_segments(f->k) : (int)TURN;
    const int nt = type != QUANT_f32 && f->nx > GROUP ? 2 : 1;

    f->tab = c->tab;
    f->pitch = (int)round_up((size_t)(x_pairs(f->k) < TURN * 8 ? x_pairs(f->k) : TURN * 8) * X_PAIR + ASIDE, 128) + 16;
    f->spans = (int)ceil_div(f->nx, nt * GROUP);
    f->tasks = cut_jobs(f, WARPS / segments);
    if (f->tasks > turn && row_segments(f->k) <= TURN)
        f->tasks = cut_jobs(f, ITEMS / segments);
    const dim3 grid((unsigned)(f->tasks < turn ? f->tasks : turn));
    if (nt == 1)
        launch_few<1>(c, f, type, grid);
    else
        launch_few<2>(c, f, type, grid);
}

void cuda_few_matvec(struct cuda *c, struct few_args *f, const struct mv_args *a, float *res)
{
    struct few_job left[JOBS];
    int n = a->n;

    for (int i = 0; i < n; i++) {
        const struct mv_job &j = a->job[i];

        left[i] = (struct few_job){ j.w, j.y, i == 0 ? res : NULL, j.y_stride, (int)j.row_bytes, j.n_rows, j.type, 0 };
    }
    f->k = a->k;
    f->nx = a->nx;
    f->x = a->x;
    while (n > 0) {
        int type = QUANT_f32, more = 0;

        for (int i = 0; i < n && type == QUANT_f32; i++)
            type = left[i].type;
        f->n = 0;
        for (int i = 0; i < n; i++)
            (left[i].type == type || left[i].type == QUANT_f32 ? f->job[f->n++] : left[more++]) = left[i];
        n = more;
        one_format(c, f, type);
        f->past.channels = 0; /* it moves once */
    }
}
