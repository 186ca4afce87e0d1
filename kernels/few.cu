/* SPDX-License-Identifier: Apache-2.0 */
/* few.cu - products of stored rows with 2 to 16 rows of activations, on tensor cores.
 *
 * A warp takes 16 rows of weights, the first operand, straight from memory (frag.cuh), and a segment of two blocks of
 * units. The second operand has the planes h and l of four columns side by side, so that lane 4 g + c gets the exact sums
 * of rows g and g + 8 with column c of them, and does their floats in the order of product.cuh. The warps of a block
 * share 16 rows: each has a segment, and the segments' sums are added in order. Columns come to shared memory by bulk
 * copies: read where they are, each unit would wait for its own. */
#include "kernels/bulk.cuh"
#include "kernels/few.cuh"
#include "kernels/row.cuh"

enum { WARPS = 8, GROUP = FEW_COLUMNS, PITCH = 24 /* of a column's sums, for the banks' sake */, UNIT_STRIPS = 4 };
enum { MOST_K = WARPS * 512 }; /* of columns in shared memory: all segments of a turn */

/* Where a lane finds its part of the columns: the bytes of four of them, and the sums of one. */
template <int NT> struct columns {
    uint32_t bytes[NT], sums[NT];
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

/* Sums of 16 rows and NT times four columns over the units of a block, of which so many exist. */
template <int TYPE, int NT>
static __device__ __forceinline__ void block_times(float S[NT][2], const strip<TYPE> &s, const uint8_t *x,
                                                   const columns<NT> &col, int units, const struct tables *tab)
{
    typedef frag<TYPE> F;
    enum { EACH = F::HALVES ? 2 : 4, SCALES = 8 / EACH, WHOLE_BLOCKS = TYPE != QUANT_q8_0 };
    const int lane = threadIdx.x & 31, c = lane % 4;
    float d[2][SCALES], m[2][SCALES];

    if (units <= 0)
        return;
#pragma unroll
    for (int j = 0; j < SCALES; j++) {
        F::scale(s.r0, j, c, d[0][j], m[0][j]);
        F::scale(s.r8, j, c, d[1][j], m[1][j]);
    }
#pragma unroll
    for (int u = 0; u < 8; u++) {
        const uint8_t *at = x + u / 2 * X_PAIR;
        uint32_t w0[2], w8[2];
        float du[2][2], mu[2];

        if (!WHOLE_BLOCKS && u >= units) /* only where it may be: units go side by side */
            break;
        F::words(s.r0, u, c, w0, tab);
        F::words(s.r8, u, c, w8, tab);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int from = (lane & 28) + u % EACH * (4 / EACH);

            du[r][0] = __shfl_sync(~0u, d[r][u / EACH], from);
            if (F::HALVES)
                du[r][1] = __shfl_sync(~0u, d[r][u / EACH], from + 1);
            if (F::MIN)
                mu[r] = __shfl_sync(~0u, m[r][u / EACH], from);
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t b0 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n]);
            const uint32_t b1 = *(const uint32_t *)(at + u % 2 * X_UNIT + col.bytes[n] + (F::APART ? 8 : 16));
            const float2 sums = *(const float2 *)(at + X_SUMS + u % 2 * 8 + col.sums[n]); /* sum of q, dx */
            int i[4], j[4];

            if (F::HALVES) {
                mma_few<F::SIGNED>(i, w0, w8, c < 2 ? b0 : 0u, c < 2 ? b1 : 0u);
                mma_few<F::SIGNED>(j, w0, w8, c < 2 ? 0u : b0, c < 2 ? 0u : b1);
            } else {
                mma_few<F::SIGNED>(i, w0, w8, b0, b1);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float v = __fmul_rn(du[r][0], whole(i[2 * r], i[2 * r + 1]));

                if (F::MIN)
                    v = __fmaf_rn(-mu[r], sums.x, v);
                if (F::HALVES)
                    v = __fmaf_rn(du[r][1], whole(j[2 * r], j[2 * r + 1]), v);
                S[n][r] = __fmaf_rn(sums.y, v, S[n][r]);
            }
        }
    }
}

/* What a block does at a time: groups of rows times a span of columns. */
struct task {
    int     part, job, r0, strips; /* first row; sets of 16 rows */
    int     first, cols;           /* columns; with a list: places in it */
    int64_t expert;
};

static __device__ __forceinline__ void wait_once(bool &waited)
{
    if (!waited)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    waited = true;
}

static __device__ __forceinline__ int sharers(int k)
{
    return 1 << min(row_lane_bits(row_segments(k)), 3);
}

/* Task number i of a launch; false: there are no more. */
template <int NT>
static __device__ __forceinline__ bool find_task(const few_args &f, int i, bool &waited, task &t)
{
    t.part = i >= f.part[0].groups * f.part[0].spans;
    if (t.part == 1 && f.n == 1)
        return false;
    i -= t.part == 1 ? f.part[0].groups * f.part[0].spans : 0;
    const few_part &p = f.part[t.part];
    const int many = p.inverse == 0 ? i : (int)__umulhi((uint32_t)i, p.inverse), one = i - many * (p.list != NULL ? p.groups : p.spans);
    const int span = p.list != NULL ? many : one, group = p.list != NULL ? one : many;
    if (p.list != NULL) {
        wait_once(waited);
        if (span >= p.most)
            return false;
        const int n = *p.n_chunk;
        const expert_chunk c = p.chunk[span];
        if (span >= n)
            return false;
        t.first = c.first;
        t.cols = c.n;
        t.expert = c.expert;
    } else {
        t.first = span * NT * GROUP;
        t.cols = min(p.nx - t.first, NT * GROUP);
        t.expert = 0;
    }
    t.job = 0;
    if (p.act) {
        t.strips = 2 * p.n;
        t.r0 = group * 32;
        return true;
    }
    while (t.job + 1 < p.n && group >= p.job[t.job + 1].first)
        t.job++;
    t.strips = WARPS / sharers(p.k);
    t.r0 = (group - p.job[t.job].first) * (p.job[t.job].type == QUANT_f32 ? WARPS : t.strips * STRIP);
    return true;
}

static __device__ __forceinline__ int column(const few_part &p, const task &t, int i)
{
    const int at = t.first + min(i, t.cols - 1);

    return p.list != NULL ? p.list[at] : at;
}

/* Where column i lies: four of them, pitches 16 bytes more than a multiple of 128, meet in no bank. */
enum { ASIDE = 32 };
static __device__ __forceinline__ uint32_t column_at(int i, int pitch)
{
    return (uint32_t)(i * pitch + (i & 2) / 2 * ASIDE);
}

/* Segments of a task's columns from `first` on, as many as are multiplied at a time, by a warp, to x; number: which
 * columns they are. */
static __device__ __forceinline__ void fetch_columns(const few_part &p, const task &t, int first, uint8_t *x, int pitch,
                                                     int *number, uint64_t *bar)
{
    const int lane = threadIdx.x & 31, pairs = x_pairs(p.k);
    const unsigned bytes = (unsigned)min(pairs - first * 8, sharers(p.k) * 8) * X_PAIR;

    if (lane == 0)
        bar_expect(bar, bytes * t.cols);
    __syncwarp();
    if (lane >= t.cols)
        return;
    number[lane] = column(p, t, lane);
    bulk_go(x + column_at(lane, pitch), p.x + number[lane] / p.div * x_row_bytes(p.k) + first * 8 * X_PAIR, bytes, bar);
}

/* A task's rows of weights, before it begins. */
template <int NT>
static __device__ __forceinline__ void fetch_task(const few_args &f, int i, bool &waited)
{
    task t;

    if (!find_task<NT>(f, i, waited, t))
        return;
    const few_part &p = f.part[t.part];
#pragma unroll 1
    for (int j = 0; j < (p.act ? p.n : 1); j++) {
        const few_job &job = p.job[p.act ? j : t.job];

        prefetch(job.w + t.expert * job.expert_bytes + (int64_t)t.r0 * job.row_bytes,
                 min(job.n_rows - t.r0, p.act ? 32 : t.strips * STRIP) * job.row_bytes, threadIdx.x, WARPS * 32);
    }
}

/* Columns in shared memory, and how far they are. */
struct near {
    uint8_t  *x;
    int       pitch, phase, *number;
    uint64_t *bar;
};

/* What a warp has of a task: a segment of so many strips, `step` rows apart, whose sums are `out` rows of sums apart. */
struct share_of {
    const uint8_t *w;
    int            strips, step, out, row_bytes, left; /* left: rows from w on */
    int            segment, place, units; /* place: of the segment among those of x */
};

/* A block of a strip is read while the one before is multiplied. */
template <int TYPE, int NT>
static __device__ __forceinline__ void share_times(float *sums, const share_of &s, const task &t, const near &at,
                                                   const struct tables *tab)
{
    typedef frag<TYPE> F;
    enum { OUT = NT * GROUP * PITCH };
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    strip<TYPE> now, then;
    columns<NT> col;
    float S[NT][2];

    load_strip<TYPE>(now, s.w, (uint32_t)s.row_bytes, s.left, 2 * s.segment, s.units);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        col.bytes[n] = column_at(min(n * GROUP + g / 2, t.cols - 1), at.pitch) + g % 2 * 4 +
                       (F::APART ? c * 16 : c % 2 * 32 + c / 2 * 8);
        col.sums[n] = column_at(min(n * GROUP + c, t.cols - 1), at.pitch);
        S[n][0] = S[n][1] = 0.0f;
    }
    bar_wait(at.bar, at.phase);
#pragma unroll 1
    for (int i = 0; i < 2 * s.strips; i++) {
        const int j = i + 1, b = i % 2;

        if (j < 2 * s.strips)
            load_strip<TYPE>(then, s.w + j / 2 * s.step * s.row_bytes, (uint32_t)s.row_bytes, s.left - j / 2 * s.step,
                             2 * s.segment + j % 2, s.units - j % 2 * 8);
        block_times<TYPE, NT>(S, now, at.x + (s.place * 2 + b) * (4 * X_PAIR), col, s.units - b * 8, tab);
        now = then;
        if (b == 0)
            continue;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                sums[i / 2 * s.out * OUT + (n * GROUP + c) * PITCH + g + r * 8] = S[n][r];
                S[n][r] = 0.0f;
            }
    }
}

/* A result, and the addition to the residual stream. */
static __device__ __forceinline__ void put(const few_args &f, const task &t, int column, int row, float v)
{
    const few_job &job = f.part[t.part].job[t.job];

    job.y[column * job.y_stride + row] = v;
    if (job.res != NULL) {
        float *res = job.res + column * f.res_stride + row;

        *res = __fmaf_rn(f.scale, v, *res);
    }
}

/* Rows of floats, one a warp, in the order of plain_times. */
static __device__ __forceinline__ void floats_times(const few_args &f, const task &t)
{
    const few_part &p = f.part[t.part];
    const few_job &job = p.job[t.job];
    const int row = t.r0 + (int)threadIdx.x / 32, lane = threadIdx.x & 31;

    if (row >= job.n_rows)
        return;
#pragma unroll 1
    for (int i = 0; i < t.cols; i += GROUP) {
        const float *x[GROUP];
        float sum[GROUP];

#pragma unroll
        for (int j = 0; j < GROUP; j++)
            x[j] = p.floats + (t.first + min(i + j, t.cols - 1)) * p.floats_stride;
        plain_times<QUANT_f32, GROUP>(sum, job.w + (int64_t)row * job.row_bytes, p.k, x, GROUP);
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            if (lane == j && i + j < t.cols)
                put(f, t, t.first + i + j, row, sum[j]);
    }
}

/* act(gate) up of 32 rows, a column a warp, rounded. */
static __device__ __forceinline__ void activate(const few_part &p, const task &t, const float *total, int pitch,
                                                const int *number)
{
    const int lane = threadIdx.x & 31, ff = p.job[0].n_rows;
    const float *in = total + lane / 16 * p.n * pitch + lane % 16;

    for (int i = threadIdx.x / 32; i < t.cols; i += WARPS) {
        const float gate = in[i * PITCH], up = p.n > 1 ? in[pitch + i * PITCH] : 1.0f, pos = fmaxf(gate, 0.0f);
        const float v = __fmul_rn(p.how == OP_SILU ? silu(gate) : __fmul_rn(pos, pos), up);

        round_unit(p.rounded + number[i] * x_row_bytes(ff), ff / 32, v, t.r0 / 32);
    }
}

/* Sums of a task's strips, from segments round ... round + share - 1 of each; the last ones are results. */
template <int NT>
static __device__ __forceinline__ void add_segments(const few_args &f, const task &t, float (*sums)[NT * GROUP * PITCH],
                                                    float (*total)[NT * GROUP * PITCH], const int *number, int round,
                                                    int share)
{
    enum { COLUMNS = NT * GROUP };
    const few_part &p = f.part[t.part];
    const int segments = row_segments(p.k);

#pragma unroll 1
    for (int o = threadIdx.x; o < t.strips * COLUMNS * STRIP; o += WARPS * 32) {
        const int mine = o / (COLUMNS * STRIP), col = o / STRIP % COLUMNS, row = o % STRIP, at = col * PITCH + row;
        const int r = t.r0 + mine * STRIP + row;
        float *all = &total[p.act ? mine : 0][p.act ? at : o], v = round == 0 ? 0.0f : *all;

        for (int q = 0; q < share && round + q < segments; q++)
            v = __fadd_rn(v, sums[mine * share + q][at]);
        if (p.act || round + share < segments)
            *all = v;
        else if (col < t.cols && r < p.job[t.job].n_rows)
            put(f, t, number[col], r, v);
    }
}

/* Task t, number i, by the block; fetch: its first columns are not there. */
template <int NT, int TYPE>
static __device__ __forceinline__ void strips_times(const few_args &f, const task &t, int i, near &at, bool fetch)
{
    bool waited = true;
    enum { OUT = NT * GROUP * PITCH };
    __shared__ float sums[(NT == 1 ? UNIT_STRIPS : 1) * WARPS][OUT], total[UNIT_STRIPS][OUT];
    const few_part &p = f.part[t.part];
    const int warp = threadIdx.x / 32, share = sharers(p.k), sets = WARPS / share, segments = row_segments(p.k);
    const int of = p.act ? p.n : 1, apart = max(sets, of); /* strips take turns with the matrices */

#pragma unroll 1
    for (int round = 0; round < segments; round += share) {
        const int segment = round + warp % share;

        if (fetch || round > 0) {
            if (warp == 0)
                fetch_columns(p, t, round, at.x, at.pitch, at.number, at.bar);
            __syncwarp(); /* products go by whole warps */
            at.phase ^= 1;
        }
        if (round == 0)
            fetch_task<NT>(f, i + gridDim.x, waited);
#pragma unroll 1
        for (int mine = warp / share; mine < apart; mine += sets) {
            const few_job &job = p.job[p.act ? mine % p.n : t.job];
            const int r0 = t.r0 + (p.act ? mine / p.n : mine) * STRIP;
            const share_of s = { job.w + t.expert * job.expert_bytes + (int64_t)r0 * job.row_bytes,
                                 p.act ? (t.strips - mine + apart - 1) / apart : 1, apart / of * STRIP, apart * share,
                                 job.row_bytes, job.n_rows - r0, segment, warp % share, p.k / 32 - segment * 16 };

            if (mine < t.strips && segment < segments && r0 < job.n_rows)
                share_times<TYPE, NT>(sums[mine * share + warp % share], s, t, at, f.tab);
        }
        __syncthreads();
        add_segments<NT>(f, t, sums, total, at.number, round, share);
        __syncthreads();
    }
    if (p.act) {
        activate(p, t, total[0], OUT, at.number);
        __syncthreads();
    }
}

/* TYPE: the format of its jobs that are not floats; f32: there are none. One: of a kernel's code what lies beyond the
 * first 64 KiB comes late, 10 cycles an instruction. */
template <int NT, int TYPE>
__global__ void __launch_bounds__(WARPS * 32, 2) few_rows(const __grid_constant__ few_args f)
{
    extern __shared__ __align__(16) uint8_t x[];
    __shared__ int number[NT * GROUP];
    __shared__ uint64_t bar;
    near at = { x, f.pitch, 1, number, &bar };
    bool waited = false;
    int kept = -1; /* the part of which the block's columns are there: those of all its tasks */
    task t;

    let_next_begin();
    if (threadIdx.x == 0) {
        bar_init(&bar, 1);
        bar_init_done();
    }
    __syncthreads();
    fetch_task<NT>(f, blockIdx.x, waited);
#pragma unroll 1
    for (int i = blockIdx.x; find_task<NT>(f, i, waited, t); i += gridDim.x) {
        const few_part &p = f.part[t.part];

        wait_once(waited);
        if (p.job[t.job].type == QUANT_f32) {
            floats_times(f, t);
        } else if constexpr (TYPE != QUANT_f32) {
            strips_times<NT, TYPE>(f, t, i, at, kept != t.part);
            kept = p.list == NULL && gridDim.x % p.spans == 0 && row_segments(p.k) <= WARPS ? t.part : -1;
        }
    }
    move_past(f.past, blockIdx.x * WARPS * 32 + threadIdx.x, gridDim.x * WARPS * 32);
}

static size_t column_bytes(int pitch, int columns)
{
    return (size_t)columns * pitch;
}

/* Tasks of a part whose launch has NT times four columns a span; at most. */
static int64_t cut_part(struct few_part *p, int nt)
{
    const int rows = WARPS / (1 << (row_lane_bits(row_segments(p->k)) < 3 ? row_lane_bits(row_segments(p->k)) : 3)) * STRIP;

    p->div = p->div > 0 ? p->div : 1;
    p->groups = 0;
    for (int i = 0; i < (p->act ? 1 : p->n); i++) {
        p->job[i].first = p->groups;
        p->groups += (int)ceil_div(p->job[i].n_rows, p->act ? 32 : p->job[i].type == QUANT_f32 ? WARPS : rows);
    }
    p->spans = p->list != NULL ? p->most : (int)ceil_div(p->nx, nt * GROUP);
    const uint64_t in_turn = (uint64_t)(p->list != NULL ? p->groups : p->spans);
    p->inverse = in_turn == 1 ? 0 : (uint32_t)((1ull << 32) / in_turn + 1);
    return (int64_t)p->groups * p->spans;
}

template <int NT>
static void launch_few(struct cuda *c, const struct few_args *f, int type, dim3 grid)
{
    const size_t smem = column_bytes(f->pitch, NT * GROUP);

    switch (type) {
    case QUANT_f32: launch_early(c, "few_rows", few_rows<NT, QUANT_f32>, grid, WARPS * 32, smem, *f); break;
#define X(name) \
    case QUANT_##name: launch_early(c, "few_rows", few_rows<NT, QUANT_##name>, grid, WARPS * 32, smem, *f); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

/* What is there at once; type: of all jobs that are not floats. */
static void launch_parts(struct cuda *c, struct few_args *f, int type)
{
    int columns = 1;
    int64_t tasks = 0, k = 0;

    for (int i = 0; i < f->n; i++) {
        columns = f->n == 1 && f->part[i].list == NULL && !f->part[i].act ? f->part[i].nx : columns;
        k = f->part[i].k > k ? f->part[i].k : k;
    }
    f->pitch = (int)round_up((size_t)(k > MOST_K ? x_pairs(MOST_K) : x_pairs(k)) * X_PAIR + ASIDE, 128) + 16;
    const int nt = type != QUANT_f32 && columns > GROUP ? 2 : 1;
    for (int i = 0; i < f->n; i++)
        tasks += cut_part(&f->part[i], nt);
    const dim3 grid((unsigned)(tasks < 2 * c->sms ? tasks : 2 * c->sms));

    f->tab = c->tab;
    if (nt == 1)
        launch_few<1>(c, f, type, grid);
    else
        launch_few<2>(c, f, type, grid);
}

/* Takes out the jobs of one format, and floats; which format. */
static int jobs_of_one(struct few_part *out, struct few_part *p)
{
    int type = QUANT_f32, left = 0;

    for (int i = 0; i < p->n && type == QUANT_f32; i++)
        type = p->job[i].type;
    *out = *p;
    out->n = 0;
    for (int i = 0; i < p->n; i++)
        (p->job[i].type == type || p->job[i].type == QUANT_f32 ? out->job[out->n++] : p->job[left++]) = p->job[i];
    p->n = left;
    return type;
}

void cuda_few(struct cuda *c, struct few_args *f)
{
    bool alike = f->n == 2;

    for (int i = 0; i < f->n; i++)
        for (int j = 0; j < f->part[i].n; j++)
            alike = alike && f->part[i].job[j].type == f->part[0].job[0].type;
    if (alike) {
        launch_parts(c, f, f->part[0].job[0].type);
        return;
    }
    for (int i = 0; i < f->n; i++)
        for (struct few_part left = f->part[i]; left.n > 0;) {
            struct few_args a = *f;
            const int type = jobs_of_one(&a.part[0], &left);

            a.n = 1;
            launch_parts(c, &a, type);
        }
}

void cuda_few_matvec(struct cuda *c, struct few_args *f, const struct mv_args *a, float *res)
{
    struct few_part *p = f->part;

    f->n = 1;
    for (p->n = 0; p->n < a->n; p->n++) {
        const struct mv_job &j = a->job[p->n];

        p->job[p->n] = (struct few_job){ j.w, 0, j.y, p->n == 0 ? res : NULL, j.y_stride, (int)j.row_bytes, j.n_rows,
                                         j.type, 0 };
    }
    p->k = a->k;
    p->nx = a->nx;
    p->x = a->x;
    cuda_few(c, f);
}
