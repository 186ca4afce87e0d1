/* SPDX-License-Identifier: Apache-2.0 */
/* attn_fused_r1_16.cu - decode attention for 1 to 16 tokens, fused: from the q/k/v projections to the quantised input
 * of the output projection in one kernel (q/k norm, RoPE, KV store, attention, gate, quantisation). Each sum has the
 * order of the separate kernels (elem/elem.cu, common/hadamard.cuh, attn/sums.cuh, gemm/pick.cuh).
 *
 * A block handles some query heads of one KV head and every n-th KV page, where n is the number of blocks of that head.
 * TMA copies of the old pages start before the previous kernel ends (programmatic dependent launch): only the newest
 * position is of this step, and it goes through `fresh`. If a token has few pages, its blocks form a cluster that
 * merges the partial results through distributed shared memory. Warps 0 to 7 prepare one query each, the next two the
 * new key and value. The other warps meanwhile run once through the later code on dummy data, each a part of it, to
 * warm the instruction cache. */
#include "kernels/attn/page.cuh"
#include "kernels/device/fused.cuh"

enum { WARPS = PAGE_WARPS, KEY_WARP = HEADS, VALUE_WARP, PREPARE, TURN_WARP = PREPARE };
enum { DIM = 256 /* of a head, at most */, EACH = DIM / 32 };
enum { ROW_SMEM = 188 << 10 /* of a block: others that merge pages find room beside it */ };
enum { TOGETHER = 8 /* pages of a cluster, at most */, UNIT = 32, UNITS = HEADS * DIM / UNIT };

struct row_args : page_chunks {
    attn_args a;
    fused_heads f;
    bool together; /* pages of a row are a cluster, a block each, which merges them */
};

/* Shared memory after the slots and n_kb * 1024 bytes of queries. */
struct space {
    uint8_t page[SCORE_BYTES]; /* scores, then weights */
    float head[PREPARE][DIM];  /* in the end, the output */
    float2 turn[DIM / 2];      /* sine, cosine */
    uint8_t fresh[2][DIM * 4];
    float top[WARPS][HEADS], sum[SUMS][HEADS], factor[HEADS];
    /* what blocks of a cluster give: of each page the largest score and sum of weights, and outputs that are merged
     * here */
    float2 page_sum[TOGETHER][HEADS];
    float part[(UNITS + (TOGETHER - 1) * SHARED) * UNIT];
    uint32_t tops[UNITS]; /* of these, to be rounded to 8 bits */
};

/* ---- a head ---- */

/* Sines and cosines. */
static __device__ __forceinline__ void find_turn(float2 *turn, const fused_heads &f, int pos)
{
#pragma unroll 1
    for (int i = threadIdx.x & 31; i < (int)f.rope.n_rot / 2; i += 32)
        sincosf(__fmul_rn((float)pos, f.rope.freq[i]), &turn[i].x, &turn[i].y);
}

/* Of a head's numbers, lane l has l, l + 32, ...: norm (weights w), turn, rotation. x: room. wait: for sines, with the
 * whole block. */
static __device__ __forceinline__ void prepare_head(float v[EACH], float *x, const fused_heads &f, const float2 *turn,
                                                    const float *w, bool norm, int dim, bool wait)
{
    const int lane = threadIdx.x & 31, half = (int)f.rope.n_rot / 2;

    if (norm) {
        float sum = 0.0f;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            sum = __fmaf_rn(v[j], v[j], sum);
        const float factor = norm_factor(warp_sum(sum), dim, f.eps);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            v[j] = __fmul_rn(__fmul_rn(v[j], factor), w[j]);
    }
    if (half > 0) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            x[lane + 32 * j] = v[j];
        __syncwarp();
        if (wait)
            __syncthreads();
#pragma unroll 1
        for (int i = lane; i < half; i += 32) {
            float *p = x + (f.rope.pairs ? 2 * i : i), *q = p + (f.rope.pairs ? 1 : half), a = *p, b = *q;
            const float2 t = turn[i];

            *p = __fsub_rn(__fmul_rn(a, t.y), __fmul_rn(b, t.x));
            *q = __fadd_rn(__fmul_rn(a, t.x), __fmul_rn(b, t.y));
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < EACH; j++)
            v[j] = x[lane + 32 * j];
    }
    if (f.hadamard == 0)
        return;
#pragma unroll 1
    for (int bit = 1; bit < 32; bit *= 2) {
        const float sign = lane & bit ? -1.0f : 1.0f;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            v[j] = __fmaf_rn(v[j], sign, __shfl_xor_sync(0xffffffffu, v[j], bit));
    }
#pragma unroll
    for (int bit = 1; bit < EACH; bit *= 2)
        if (32 * bit < f.hadamard) {
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if ((j & bit) == 0) {
                    const float a = v[j], b = v[j + bit];

                    v[j] = __fadd_rn(a, b);
                    v[j + bit] = __fsub_rn(a, b);
                }
        }
    const float s = __fdiv_rn(1.0f, __fsqrt_rn((float)f.hadamard));
#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = __fmul_rn(v[j], s);
}

/* put_query() of attn/sums.cuh from registers, planes apart. */
static __device__ __forceinline__ float put_values(uint8_t *to, const float v[EACH], int g, int n_kb, int type,
                                                   float scale)
{
    const int lane = threadIdx.x & 31, at = slot(type, lane);
    float top = 0.0f;

#pragma unroll
    for (int j = 0; j < EACH; j++)
        top = fmaxf(top, fabsf(v[j]));
    const int e = exponent_of(__uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(top)))) - 4;
    const float f = exact_power2(-e);
    to += (at / 16 * 32 + g * 4 + at % 16 / 4) * 16 + at % 4 / 2 * 4 + at % 2 * 2;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (j < n_kb) {
            const float x = __fmul_rn(v[j], f);
            const __half hi = __float2half_rn(x);

            *(__half *)(to + j * 1024) = hi;
            *(__half *)(to + j * 1024 + 8) = __float2half_rn(__fsub_rn(x, __half2float(hi)));
        }
    return __fmul_rn(scale, exact_power2(e));
}

/* What a block has. */
struct block_of {
    const row_args &t;
    uint8_t *q;
    space &s;
    int row, h, head, heads; /* KV head; first query head, how many */
    bool newest;             /* its last page has the position of this step */
};

/* Which numbers a warp prepares: of a query, the key, the value. */
struct source {
    const float *from, *norm;
    int dim;
    bool there, value;
};

static __device__ __forceinline__ source source_of(const block_of &b, int warp)
{
    const fused_heads &f = b.t.f;
    const struct op_kv &kv = b.t.a.kv;
    source s;

    s.value = warp == VALUE_WARP;
    s.there = warp < HEADS ? warp < b.heads : b.newest;
    s.dim = s.value ? kv.dim_v : kv.dim_k;
    s.norm = s.value ? NULL : warp == KEY_WARP ? f.k_norm : f.q_norm;
    s.from = s.value            ? f.v + b.row * f.v_stride + b.h * s.dim
             : warp == KEY_WARP ? f.k + b.row * f.k_stride + b.h * s.dim
                                : f.qg + b.row * f.qg_stride + (b.head + warp) * (f.gated ? 2 : 1) * s.dim;
    return s;
}

/* Queries as operands, the newest key and value as they are stored, by the first warps. !real: one of the others, with
 * other numbers, which go nowhere. */
template <int K, int V> static __device__ __forceinline__ void prepare_heads(const block_of &b, bool real)
{
    const fused_heads &f = b.t.f;
    const struct op_kv &kv = b.t.a.kv;
    const int lane = threadIdx.x & 31, warp = real ? threadIdx.x / 32 : 0;
    const source s = source_of(b, warp);
    float *nowhere = (float *)b.s.page, *x = real ? b.s.head[warp] : nowhere, w[EACH], v[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        w[j] = s.norm != NULL && 32 * j < s.dim ? s.norm[lane + 32 * j] : 0.0f;
    if (real)
        wait_for_inputs();
    if (warp >= HEADS && !s.there)
        return;
    const float *from = real ? s.from : (const float *)kv.pages;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = s.there && 32 * j < s.dim ? from[lane + 32 * j] : 0.0f;
    if (!s.value)
        prepare_head(v, x, f, b.s.turn, w, s.norm != NULL, s.dim, real);
    if (warp < HEADS) {
        const float factor =
            put_values(real ? b.q : b.s.page, v, warp, b.t.a.n_kb, known_type<K>(kv.type_k), b.t.a.scale);

        if (real && lane == 0)
            b.s.factor[warp] = factor;
        if (real)
            return;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < EACH; j++)
        x[lane + 32 * j] = v[j];
    __syncwarp();
    store32(real ? b.s.fresh[s.value] : (uint8_t *)(nowhere + DIM),
            s.value ? known_type<V>(kv.type_v) : known_type<K>(kv.type_k), x, lane / 4, lane % 4, s.dim,
            lane / 4 * 32 < s.dim);
}

/* ---- pages ---- */

/* What a page gives, to `out`, a row of `pitch` floats for each query head; l: the sum of a query's weights, m: the
 * largest score. */
template <int V>
static __device__ __forceinline__ void store_outputs(float *out, int64_t pitch, const block_of &b, const float o[4],
                                                     int vb, int half)
{
    const attn_args &a = b.t.a;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;
    const int d =
        vb * DIM_BLOCK + value_dim(known_type<V>(a.kv.type_v), 2 * half, g); /* of the second tile the one after it */

    if (vb * DIM_BLOCK < a.kv.dim_v)
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (2 * c + i < b.heads)
                *(float2 *)(out + (2 * c + i) * pitch + d) = make_float2(o[i], o[2 + i]);
}

/* Where the row's gates of query head k are. */
static __device__ __forceinline__ const float *gates_of(const block_of &b, int k)
{
    return b.t.a.open + b.row * b.t.a.open_stride + (b.head + k) * b.t.a.open_pitch;
}

/* The only page's output, gated and rounded. !real: by a warp, of other numbers, to `out`. */
static __device__ __forceinline__ void round_output(const block_of &b, float *out, bool real)
{
    const attn_args &a = b.t.a;
    const int dim = a.kv.dim_v, t = real ? threadIdx.x : threadIdx.x & 31, k = 8 * t / dim;
    const float *open = real ? gates_of(b, k) + (8 * t - k * dim) : (const float *)a.kv.pages;
    const int i = (real ? b.head * dim / 8 : 0) + t;
    float v[8], gate[8];

    if (t >= b.heads * dim / 8)
        return;
#pragma unroll
    for (int j = 0; j < 8; j++)
        gate[j] = a.open != NULL ? open[j] : 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        v[j] = __fdiv_rn(out[8 * t + j], b.s.factor[k]);
        v[j] = a.open != NULL ? __fmul_rn(v[j], sigmoid(gate[j])) : v[j];
        if (a.both && real)
            a.y[b.row * a.ys + i * 8 + j] = v[j];
    }
    quantise_values(real ? a.rounded + b.row * a.rounded_stride : (uint8_t *)out,
                    real ? a.kv.n_head * a.group * dim / 64 : 4, v, i / 8, i % 8, sharers(a.eight), a.eight);
}

/* Gates come to the first-level cache, by 64 threads; i is the calling one's number. */
static __device__ __forceinline__ void bring_gates(const block_of &b, int i)
{
    const attn_args &a = b.t.a;
    const int dim = a.kv.dim_v, k = 32 * i / dim;

    if (a.open != NULL && k < b.heads)
        asm volatile(
            "{\n.reg .f32 nobody;\nld.global.ca.f32 nobody, [%0];\n}" ::"l"(gates_of(b, k) + (32 * i - k * dim)));
}

/* Units of outputs that a block of a cluster merges; those that share a scale stay together. */
static __device__ __forceinline__ int units_each(const block_of &b, int pages)
{
    const int many = b.t.a.eight ? SHARED : 1, n = b.heads * b.t.a.kv.dim_v / (UNIT * many);

    return (n + pages - 1) / pages * many;
}

/* As store_outputs(), to the blocks that merge it. !real: a warp alone, to where the page was. */
template <int V>
static __device__ __forceinline__ void give_units(const block_of &b, const float o[4], float m, int page, int pages,
                                                  int vb, int half, bool real)
{
    const attn_args &a = b.t.a;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, each = units_each(b, pages);
    const int d = vb * DIM_BLOCK + value_dim(known_type<V>(a.kv.type_v), 2 * half, g);
    const float *nowhere = (const float *)b.s.page;

    if (vb * DIM_BLOCK < a.kv.dim_v)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = (2 * c + i) * a.kv.dim_v + d, unit = at / UNIT, block = unit / each;
            const float *to = b.s.part + (page * each + unit - block * each) * UNIT + at % UNIT;

            if (2 * c + i < b.heads)
                cluster_store(cluster_at(real ? to : nowhere, real ? block : blockIdx.y), make_float2(o[i], o[2 + i]));
        }
    if (g < b.heads && (!real || threadIdx.x < 32)) {
        const float2 sum = make_float2(m, fold_sums(&b.s.sum[0][g], HEADS));
        const float *to = &b.s.page_sum[page][g].x;

#pragma unroll 1
        for (int block = c; block < (real ? pages : 4); block += 4)
            cluster_store(cluster_at(real ? to : nowhere, real ? block : blockIdx.y), sum);
    }
}

/* The block's units of all pages, merged (as merge_pages), gated and rounded. !real: a warp alone, of other numbers. */
template <int V> static __device__ __forceinline__ void merge_units(const block_of &b, int pages, bool real)
{
    const attn_args &a = b.t.a;
    const int lane = threadIdx.x & 31, warp = real ? threadIdx.x / 32 : 0, dim = a.kv.dim_v;
    const int each = real ? units_each(b, pages) : 1, units = b.heads * dim / UNIT,
              first = real ? blockIdx.y * each : 0;

#pragma unroll 1
    for (int i = warp; i - warp < each; i += WARPS) {
        const bool there = i < each && first + i < units;
        const int own = there ? i : 0, unit = first + own, k = unit * UNIT / dim, at = unit * UNIT + lane - k * dim;
        const float gate = !there || a.open == NULL ? 0.0f : real ? gates_of(b, k)[at] : b.s.part[lane];
        float m = -CUDART_INF_F, l = 0.0f, o = 0.0f;

#pragma unroll 1
        for (int j = 0; j < (real ? pages : 1); j++) {
            const float2 sum = b.s.page_sum[j][k];
            float keep, take;

            merge(m, sum.x, &keep, &take);
            m = fmaxf(m, sum.x);
            l = __fmaf_rn(l, keep, __fmul_rn(sum.y, take));
            o = __fmaf_rn(o, keep, __fmul_rn(b.s.part[(j * each + own) * UNIT + lane], take));
        }
        o = __fdiv_rn(o, __fmul_rn(l, __fmul_rn(1024.0f, value_scale(known_type<V>(a.kv.type_v)))));
        if (a.open != NULL)
            o = __fmul_rn(o, sigmoid(gate));
        if (a.both && there && real)
            a.y[b.row * a.ys + b.head * dim + unit * UNIT + lane] = o;
        uint32_t top = unit_top(o);
        if (a.eight) {
            const uint32_t *tops = b.s.tops + own / SHARED * SHARED;

            if (lane == 0 && there && real)
                b.s.tops[i] = top;
            if (real)
                __syncthreads();
            top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
        }
        if (there)
            round_unit(real ? a.rounded + b.row * a.rounded_stride : b.s.page,
                       real ? a.kv.n_head * a.group * dim / UNIT : 2, o, real ? b.head * dim / UNIT + unit : 0, top,
                       a.eight);
    }
}

/* A page of which `most` positions are there; newest: the last is of this step. !real: a warp of those that prepare
 * nothing brings the instructions of its part. */
template <int K, int V>
static __device__ __forceinline__ void attend_page(const block_of &b, page_ring &in, int page, int most, bool newest,
                                                   bool real)
{
    const attn_args &a = b.t.a;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, part = real || !GO_AHEAD ? -1 : warp - PREPARE - 2;
    const int vb = real ? warp / 2 : 0, half = warp % 2, n[1] = { most };
    const page_sums sums = { &b.s.top[0][0], &b.s.sum[0][0], b.s.factor };
    float o[1][4] = {}, m[1] = {};

    if (real || part == 0)
        find_scores<1, K>(b.s.page, in, b.q, most, newest ? b.s.fresh[0] : NULL, real);
    if (real || part == 3)
        find_weights<1>(m, b.s.page, sums, n, real);
    if (real || part == 1)
        sum_values<1, V>(o, in, b.s.page, most, vb, half, newest ? b.s.fresh[1] : NULL, real);
    if (!real && part != 2)
        return;
    if (b.t.together) {
        if (real)
            cluster_wait();
        give_units<V>(b, o[0], m[0], page, in.end, vb, half, real);
        if (real) {
            cluster_given();
            cluster_wait();
        }
        merge_units<V>(b, in.end, real);
        return;
    }
    const bool alone = a.pages == 1;
    const int64_t all = (int64_t)b.row * a.kv.n_head * a.group + b.head;
    float *out = real && !alone ? a.part + (all * a.pages + page) * a.part_floats
                 : real         ? b.s.head[0]
                                : (float *)b.s.page;
    const int64_t pitch = real && !alone ? a.pages * a.part_floats : a.kv.dim_v;
    const int g = lane / 4;

    store_outputs<V>(out, pitch, b, o[0], vb, half);
    if (real && warp == 0 && lane % 4 == 0 && g < b.heads) {
        const float l = fold_sums(&b.s.sum[0][g], HEADS);

        if (!alone)
            *(float2 *)(out + g * pitch + a.part_floats - 2) = make_float2(m[0], l);
        else
            b.s.factor[g] = __fmul_rn(l, __fmul_rn(1024.0f, value_scale(known_type<V>(a.kv.type_v))));
    }
    if (real && alone)
        __syncthreads();
    if (alone)
        round_output(b, out, real);
    else if (real)
        in.give(in.t.whole ? in.t.value_chunks : 0);
}

/* Of every sequence one row. grid: KV head, first page, row * part of its query heads */
template <int K, int V> /* types of keys and values, or ANY_TYPE */
__global__ void __launch_bounds__(WARPS * 32, 2) attend_row(const __grid_constant__ row_args t)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const attn_args &a = t.a;
    const int row = blockIdx.z / a.parts, h = blockIdx.x, g0 = (blockIdx.z - row * a.parts) * HEADS;
    const int pos = a.r.pos[row], pages = pos / OP_KV_PAGE + 1, step = gridDim.y, warp = threadIdx.x / 32;
    uint8_t *slots = shared + SLOTS_AT, *q = slots + t.slots * t.slot_bytes;

    if ((int)blockIdx.y >= pages)
        return;
    const int *table = a.pg.page + a.r.of[row] * a.pg.stride;
    const block_of b = { t,
                         q,
                         *(space *)(q + a.n_kb * 1024),
                         row,
                         h,
                         h * a.group + g0,
                         min(a.group - g0, (int)HEADS),
                         (pages - 1 - (int)blockIdx.y) % step == 0 };
    page_ring in = { t, a, table, (uint64_t *)shared, slots, h, (int)blockIdx.y, step, pages, pos, 0, 0, 0, 0 };

    if (t.together)
        cluster_here();
    let_next_begin();
    if (threadIdx.x == ASK_WARP * 32) {
        in.open();
        in.ask(t.slots);
    }
    if (warp == TURN_WARP && t.f.rope.n_rot > 1)
        find_turn(b.s.turn, t.f, pos);
    if (warp < PREPARE || (GO_AHEAD && warp == PREPARE + 1))
        prepare_heads<K, V>(b, warp < PREPARE);
#pragma unroll 1
    for (int page = warp < PREPARE ? (int)blockIdx.y : -1; page < pages; page += step) {
        const bool real = page >= 0;

        if (real && page == (int)blockIdx.y) {
            if (t.f.rope.n_rot > 1 && warp >= HEADS &&
                !(warp == KEY_WARP && b.newest)) /* others waited for sines here */
                __syncthreads();
            __syncthreads();
        }
        attend_page<K, V>(b, in, page, real ? min(pos + 1 - page * OP_KV_PAGE, (int)OP_KV_PAGE) : UNIT_KEYS,
                          real && page == pages - 1, real);
        if (!real) {
            wait_for_inputs();
            if ((a.pages == 1 || t.together) && warp < PREPARE + 2)
                bring_gates(b, threadIdx.x - PREPARE * 32);
            page = (int)blockIdx.y - step;
        }
    }
    if (b.newest && g0 == 0) {
        uint8_t *page = a.kv.pages + (size_t)table[pages - 1] * a.kv.page_bytes;
        const int at = h * OP_KV_PAGE + pos % OP_KV_PAGE;

        put_fresh(page + at * a.k_bytes, b.s.fresh[0], (int)a.k_bytes);
        put_fresh(page + a.v_at + at * a.v_bytes, b.s.fresh[1], (int)a.v_bytes);
    }
}

/* ---- several rows ---- */

/* A query, key or value: queries stay floats, the others are stored. grid: those heads, row */
__global__ void __launch_bounds__(32) split_heads(const __grid_constant__ row_args t)
{
    __shared__ float x[DIM];
    __shared__ float2 turn[DIM / 2];
    const fused_heads &f = t.f;
    const struct op_kv &kv = t.a.kv;
    const int n_q = kv.n_head * t.a.group, i = blockIdx.x, row = blockIdx.y, lane = threadIdx.x;
    const bool query = i < n_q, value = i >= n_q + kv.n_head;
    const int h = query ? i : value ? i - n_q - kv.n_head : i - n_q, dim = value ? kv.dim_v : kv.dim_k;
    const int pos = t.a.r.pos[row], at = h * OP_KV_PAGE + pos % OP_KV_PAGE;
    const float *norm = value ? NULL : query ? f.q_norm : f.k_norm;
    const float *from = query   ? f.qg + row * f.qg_stride + h * (f.gated ? 2 : 1) * dim
                        : value ? f.v + row * f.v_stride + h * dim
                                : f.k + row * f.k_stride + h * dim;
    uint8_t *page = kv.pages + (size_t)t.a.pg.page[t.a.r.of[row] * t.a.pg.stride + pos / OP_KV_PAGE] * kv.page_bytes;
    float w[EACH], v[EACH];

    if (!value)
        find_turn(turn, f, pos);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        w[j] = norm != NULL && 32 * j < dim ? norm[lane + 32 * j] : 0.0f;
    __syncwarp();
    wait_for_inputs();
#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = 32 * j < dim ? from[lane + 32 * j] : 0.0f;
    if (!value)
        prepare_head(v, x, f, turn, w, norm != NULL, dim, false);
    float *to = query ? (float *)t.a.q + row * t.a.qs + h * dim : x;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (32 * j < dim)
            to[lane + 32 * j] = v[j];
    __syncwarp();
    if (!query)
        store32(page + (value ? t.a.v_at + at * t.a.v_bytes : at * t.a.k_bytes), value ? kv.type_v : kv.type_k, x,
                lane / 4, lane % 4, dim, lane / 4 * 32 < dim);
}

/* ---- host ---- */

size_t cuda_attn_row_ws(const struct node *v)
{
    return v->r.n <= GEMM_ATTN_ROWS ? cuda_matmul_ws(v->t[0].ne[0], v->r.n) : 0;
}

bool cuda_attn_row_fits(const struct cuda *c, const struct node *v)
{
    const struct gemm_attn a = { v->t[0].ne[0] / v->kv.dim_v, v->kv.dim_k, v->kv.dim_v, c->eight };

    return v->r.n <= GEMM_ATTN_ROWS && v->r.all && v->kv.window == 0 && gemm_fuses_attn(&a);
}

/* A row of every sequence. As many blocks as multiprocessors, or fewer; where each would have two pages, twice as many:
 * two share a multiprocessor. Copies of a block's next page go on while it works. */
static void attend_one(struct cuda *c, row_args t)
{
    const int smem = cuda_attn_smem(c), others = t.a.kv.n_head * t.a.parts * t.a.r.n;
    const int share = others * t.a.pages > 2 * c->sms && smem > 2 * SHARE_SMEM - 4096 ? 2 : 1;
    const int each = share * c->sms > others ? share * c->sms / others : 1;
    const int other = SLOTS_AT + t.a.n_kb * 1024 + (int)sizeof(space);

    (void)cuda_plan_chunks(&t, &t.a, min(smem, share == 2 ? (int)SHARE_SMEM : (int)ROW_SMEM) - other);
    if (t.a.pages <= each) /* a page a block: there is no next one that needs room */
        t.slots = min(t.slots, t.key_chunks + t.value_chunks);
    const bool usual = t.a.kv.type_k == QUANT_q8_0 && t.a.kv.type_v == QUANT_q4_0;

    t.together = t.a.pages > 1 && t.a.pages <= TOGETHER && t.a.pages <= each;
    launch_clusters(
        c, "attend_row", usual ? attend_row<QUANT_q8_0, QUANT_q4_0> : attend_row<ANY_TYPE, ANY_TYPE>,
        dim3(1, t.together ? (unsigned)t.a.pages : 1),
        dim3((unsigned)t.a.kv.n_head, (unsigned)(t.a.pages < each ? t.a.pages : each), (unsigned)(t.a.parts * t.a.r.n)),
        WARPS * 32, (size_t)(other + t.slots * t.slot_bytes), t);
    if (t.a.pages > 1 && !t.together)
        cuda_merge_pages(c, &t.a);
}

const uint8_t *cuda_attn_row(struct cuda *c, const fused_heads *f, const struct node *v, bool both)
{
    row_args t = {};

    t.f = *f;
    t.a = cuda_attn_args(c, v);
    t.a.rounded = c->ws + cuda_ws(v) - cuda_attn_row_ws(v);
    t.a.rounded_stride = (int)x_row_bytes(v->t[0].ne[0]);
    t.a.eight = c->eight;
    t.a.both = both;
    t.a.open = f->gated ? f->qg + t.a.kv.dim_k : NULL;
    t.a.open_pitch = 2 * t.a.kv.dim_k;
    t.a.open_stride = f->qg_stride;
    if (v->r.max_n == 1) {
        attend_one(c, t);
        return t.a.rounded;
    }
    launch_early(c, "split_heads", split_heads, dim3((unsigned)(t.a.kv.n_head * (t.a.group + 2)), (unsigned)v->r.n), 32,
                 0, t);
    cuda_attend_r2_16(c, &t.a);
    return t.a.rounded;
}
