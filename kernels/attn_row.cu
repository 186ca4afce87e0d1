/* SPDX-License-Identifier: Apache-2.0 */
/* attn_row.cu - few rows through attention, from the products to the rounded activations of the next: heads picked
 * apart, normalised, turned, rotated, the new key and value stored, pages, their merge, gate, rounding. Every sum has
 * the order of the separate launches (elem.cu, hadamard.cuh, attn.cuh, matvec.cuh).
 *
 * A block has one page and some query heads of a KV head. Its keys and values come by bulk copies, which may begin
 * before the launch before has ended, as only the newest position is of this step; that one goes through `fresh`.
 * Warps 0 .. 7 prepare a query each, the next two the new key and value. Then a warp takes every sixteenth 8 keys, and
 * half a block of 32 dimensions of all values. Few loops are unrolled: instructions that come for the first time take
 * longer than those that come again. */
#include "kernels/attn.cuh"
#include "kernels/fused.cuh"

enum { WARPS = PAGE_WARPS, KEY_WARP = HEADS, VALUE_WARP, PREPARE };
enum { DIM = 256 /* of a head, at most */, EACH = DIM / 32 };

struct row_args : page_chunks {
    attn_args   a;
    fused_heads f;
};

/* Shared memory after the slots and n_kb * 1024 bytes of queries. */
struct space {
    union {
        uint8_t operand[OP_KV_PAGE * 64]; /* weights */
        float   head[PREPARE][DIM];       /* before; after, the output */
    };
    uint8_t fresh[2][DIM * 4];
    float2  turn[DIM / 2]; /* sine, cosine */
    float   top[WARPS][HEADS], sum[SUMS][HEADS], factor[HEADS];
};

/* ---- a head ---- */

/* Of a head's numbers, lane l has l, l + 32, ...: norm (weights w), turn, rotation. x: room. */
static __device__ __forceinline__ void prepare(float v[EACH], float *x, const fused_heads &f, const float2 *turn,
                                               const float *w, bool norm, int dim)
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

/* put_query() of attn.cuh from registers. */
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
    to += (at / 16 * 32 + g * 4 + at % 16 / 4) * 16 + at % 4 / 2 * 8 + at % 2 * 2;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (j < n_kb) {
            const float x = __fmul_rn(v[j], f);
            const __half hi = __float2half_rn(x);

            *(__half *)(to + j * 1024) = hi;
            *(__half *)(to + j * 1024 + 4) = __float2half_rn(__fsub_rn(x, __half2float(hi)));
        }
    return __fmul_rn(scale, exact_power2(e));
}

/* ---- a page ---- */

/* n bytes, a multiple of 2, by the block. */
static __device__ __forceinline__ void put_fresh(uint8_t *to, const uint8_t *from, int n)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < n / 2; i += WARPS * 32)
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
}

/* A block's page. Chunks 0 .. chunks - 1 are its keys, as many more its values. */
struct page_of {
    const row_args &t;
    uint64_t       *full;
    uint8_t        *slots, *q, *keys, *values;
    space          &s;
    int             h, head, heads; /* KV head; first query head, how many */
    int             most, chunks;   /* positions */
    bool            newest;         /* the last of them is of this step */

    __device__ __forceinline__ int bytes(int i) const
    {
        return (int)(i >= chunks ? t.a.v_bytes : t.a.k_bytes);
    }
    __device__ __forceinline__ int slot_of(int i) const
    {
        return i < t.slots ? i : i % t.slots;
    }
    __device__ __forceinline__ void ask(int i) const
    {
        const int to = slot_of(i), j = (i >= chunks ? i - chunks : i) * t.keys, n = min(most - newest - j, t.keys);

        if (n > 0)
            bulk_copy(slots + to * t.slot_bytes, (i >= chunks ? values : keys) + j * bytes(i),
                      (unsigned)(n * bytes(i) + 15) / 16 * 16, &full[to]);
        else
            bar_arrive(&full[to]);
    }
    /* Chunk i is there, with the newest position if that is in it. */
    __device__ __forceinline__ const uint8_t *come(int i) const
    {
        const int to = slot_of(i);
        uint8_t *at = slots + to * t.slot_bytes;

        bar_wait(&full[to], i < t.slots ? 0 : i / t.slots & 1);
        if (newest && (i == chunks - 1 || i == 2 * chunks - 1)) {
            put_fresh(at + ((most - 1) & (t.keys - 1)) * bytes(i), s.fresh[i >= chunks], bytes(i));
            __syncthreads();
        }
        return at;
    }
    /* Chunk i: its room is for another. */
    __device__ __forceinline__ void used(int i) const
    {
        if (i + t.slots >= 2 * chunks)
            return;
        __syncthreads();
        if (threadIdx.x == 0)
            ask(i + t.slots);
    }
};

/* Queries as operands, the newest key and value as they are stored. What was written before this step is asked for
 * before the launch before has ended. */
static __device__ __forceinline__ void prepare_heads(const page_of &b)
{
    const fused_heads &f = b.t.f;
    const struct op_kv &kv = b.t.a.kv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const bool value = warp == VALUE_WARP, there = warp < HEADS ? warp < b.heads : b.newest && warp < PREPARE;
    const int dim = value ? kv.dim_v : kv.dim_k;
    const float *norm = value ? NULL : warp == KEY_WARP ? f.k_norm : f.q_norm;
    const float *from = value              ? f.v + b.h * dim
                        : warp == KEY_WARP ? f.k + b.h * dim
                                           : f.qg + (b.head + warp) * (f.gated ? 2 : 1) * dim;
    float *x = b.s.head[min(warp, PREPARE - 1)], w[EACH], v[EACH];

#pragma unroll 1
    for (int i = threadIdx.x; i < (int)f.rope.n_rot / 2; i += WARPS * 32)
        sincosf(__fmul_rn((float)b.t.a.r.pos[0], f.rope.freq[i]), &b.s.turn[i].x, &b.s.turn[i].y);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        w[j] = norm != NULL && 32 * j < dim ? norm[lane + 32 * j] : 0.0f;
    __syncthreads();
    wait_for_inputs();
    if (warp >= HEADS && !there)
        return;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = there && 32 * j < dim ? from[lane + 32 * j] : 0.0f;
    if (!value)
        prepare(v, x, f, b.s.turn, w, norm != NULL, dim);
    if (warp < HEADS) {
        const float factor = put_values(b.q, v, warp, b.t.a.n_kb, kv.type_k, b.t.a.scale);

        if (lane == 0)
            b.s.factor[warp] = factor;
        return;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < EACH; j++)
        x[lane + 32 * j] = v[j];
    __syncwarp();
    store32(b.s.fresh[value], value ? kv.type_v : kv.type_k, x, lane / 4, lane % 4, dim, lane / 4 * 32 < dim);
}

/* Of keys 128 i + 8 warp + 2 c, + 1. */
static __device__ __forceinline__ void find_scores(float score[2][2], const page_of &b)
{
    const row_args &t = b.t;
    const int warp = threadIdx.x / 32;

#pragma unroll 1
    for (int i = 0; i < b.chunks; i++) {
        const int tile0 = i * t.keys / 8, local = (warp - tile0) & (WARPS - 1), tile = tile0 + local;
        const uint8_t *keys = b.come(i) + local * 8 * b.bytes(0);

        if (local < t.keys / 8 && tile * 8 < b.most) {
            float now[1][2] = {};

            switch (t.a.kv.type_k) {
            case QUANT_f32: page_scores<QUANT_f32, 1>(now, t.a, b.q, keys); break;
            case QUANT_f16: page_scores<QUANT_f16, 1>(now, t.a, b.q, keys); break;
            case QUANT_q8_0: page_scores<QUANT_q8_0, 1>(now, t.a, b.q, keys); break;
            default: page_scores<QUANT_q4_0, 1>(now, t.a, b.q, keys); break;
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (e / 2 == tile / WARPS)
                    score[e / 2][e % 2] = now[0][e % 2];
        }
        b.used(i);
    }
}

/* Scores become weights, and their sums; returns the largest score. */
static __device__ __forceinline__ float find_weights(float score[2][2], const page_of &b)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    const float factor = b.s.factor[g];
    float top = -CUDART_INF_F;

#pragma unroll
    for (int e = 0; e < 4; e++)
        if (e / 2 * 128 + warp * 8 + 2 * c + e % 2 < b.most)
            top = fmaxf(top, __fmul_rn(score[e / 2][e % 2], factor));
    top = quad_max(top);
    if (c == 0)
        b.s.top[warp][g] = top;
    __syncthreads();
    float m = b.s.top[0][g], sum = 0.0f;
#pragma unroll
    for (int i = 1; i < WARPS; i++)
        m = fmaxf(m, b.s.top[i][g]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t hi, lo, *to = (uint32_t *)(b.s.operand + (i * 8 + warp / 2) * 1024 + lane * 16) + warp % 2 * 2;

        weigh(score[i], factor, m, i * 128 + warp * 8 + 2 * c, b.most, &hi, &lo);
        sum = __fadd_rn(__fadd_rn(sum, score[i][0]), score[i][1]);
        to[0] = hi;
        to[128] = lo;
    }
    sum = quad_sum(sum);
    if (c == 0)
        b.s.sum[warp][g] = sum;
    __syncthreads();
    return m;
}

static __device__ __forceinline__ void sum_values(float o[1][2][4], const page_of &b, int vb, int half)
{
    const row_args &t = b.t;

#pragma unroll 1
    for (int i = 0; i < b.chunks; i++) {
        const uint8_t *from = b.come(b.chunks + i);
        const int n = min(b.most - i * t.keys, t.keys);
        const uint8_t *p = b.s.operand + i * t.keys / 16 * 1024;

        if (vb * DIM_BLOCK < t.a.kv.dim_v)
            switch (t.a.kv.type_v) {
            case QUANT_f32: page_values<QUANT_f32, 1>(o, t.a, p, from, n, vb, half); break;
            case QUANT_f16: page_values<QUANT_f16, 1>(o, t.a, p, from, n, vb, half); break;
            case QUANT_q8_0: page_values<QUANT_q8_0, 1>(o, t.a, p, from, n, vb, half); break;
            default: page_values<QUANT_q4_0, 1>(o, t.a, p, from, n, vb, half); break;
            }
        b.used(b.chunks + i);
    }
}

/* What the page gives, or where it is the only one the rounded row. */
static __device__ __forceinline__ void give(const page_of &b, const float o[2][4], float m, int vb, int half)
{
    const attn_args &a = b.t.a;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, dim = a.kv.dim_v;
    const float l = fold(&b.s.sum[0][g], HEADS);
    float *out = b.s.head[0], v[8], *to = out + g * dim;

    if (a.pages > 1)
        to = a.part + ((int64_t)(b.head + g) * a.pages + blockIdx.y) * a.part_floats;
    if (g < b.heads && vb * DIM_BLOCK < dim) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[vb * DIM_BLOCK + value_dim(a.kv.type_v, 2 * half + e / 2, 2 * c + e % 2)] = o[e / 2][e % 2];
        if (threadIdx.x < 32 && c == 0 && a.pages > 1) {
            to[a.part_floats - 2] = m;
            to[a.part_floats - 1] = l;
        }
    }
    if (a.pages > 1)
        return;
    if (threadIdx.x < 32 && c == 0)
        b.s.factor[g] = __fmul_rn(l, __fmul_rn(1024.0f, value_scale(a.kv.type_v)));
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < b.heads * dim; i += WARPS * 32)
        out[i] = opened(a, __fdiv_rn(out[i], b.s.factor[i / dim]), 0, b.head + i / dim, i % dim);
    __syncthreads();
    if ((int)threadIdx.x < b.heads * dim / 8) {
        const int i = b.head * dim / 8 + threadIdx.x;

#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = out[threadIdx.x * 8 + j];
        quantise_values(a.rounded, a.kv.n_head * a.group * dim / 64, v, i / 8, i % 8, sharers(a.eight), a.eight);
    }
}

/* grid: KV head, page, part of its query heads */
__global__ void __launch_bounds__(WARPS * 32, 2) attend_row(const __grid_constant__ row_args t)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const attn_args &a = t.a;
    const int h = blockIdx.x, g0 = blockIdx.z * HEADS, first = blockIdx.y * OP_KV_PAGE;
    const int most = min(a.r.pos[0] + 1 - first, (int)OP_KV_PAGE), vb = threadIdx.x / 64, half = threadIdx.x / 32 % 2;
    uint8_t *slots = shared + SLOTS_AT, *q = slots + t.slots * t.slot_bytes;

    if (most <= 0)
        return;
    uint8_t *page = a.kv.pages + (size_t)a.pg.page[blockIdx.y] * a.kv.page_bytes;
    const page_of b = { t,
                        (uint64_t *)shared,
                        slots,
                        q,
                        page + h * OP_KV_PAGE * a.k_bytes,
                        page + a.v_at + h * OP_KV_PAGE * a.v_bytes,
                        *(space *)(q + a.n_kb * 1024),
                        h,
                        h * a.group + g0,
                        min(a.group - g0, (int)HEADS),
                        most,
                        (most + t.keys - 1) >> (31 - __clz(t.keys)), /* powers of two */
                        a.r.pos[0] < first + OP_KV_PAGE };
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < t.slots; i++)
            bar_init(&b.full[i], 1);
        bar_init_done();
#pragma unroll 1
        for (int i = 0; i < min(t.slots, 2 * b.chunks); i++)
            b.ask(i);
    }
    prepare_heads(b);
    __syncthreads();
    if (b.newest && g0 == 0) {
        put_fresh(b.keys + (most - 1) * a.k_bytes, b.s.fresh[0], (int)a.k_bytes);
        put_fresh(b.values + (most - 1) * a.v_bytes, b.s.fresh[1], (int)a.v_bytes);
    }
    float score[2][2] = {}, o[1][2][4] = {};
    find_scores(score, b);
    const float m = find_weights(score, b);
    sum_values(o, b, vb, half);
    __syncthreads();
    give(b, o[0], m, vb, half);
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

#pragma unroll 1
    for (int j = lane; !value && j < (int)f.rope.n_rot / 2; j += 32)
        sincosf(__fmul_rn((float)pos, f.rope.freq[j]), &turn[j].x, &turn[j].y);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        w[j] = norm != NULL && 32 * j < dim ? norm[lane + 32 * j] : 0.0f;
    __syncwarp();
    wait_for_inputs();
#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = 32 * j < dim ? from[lane + 32 * j] : 0.0f;
    if (!value)
        prepare(v, x, f, turn, w, norm != NULL, dim);
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
    return v->r.n <= FEW_ROWS ? cuda_matmul_ws(v->t[0].ne[0], v->r.n) : 0;
}

bool cuda_attn_row_fits(const struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;

    return v->r.n <= FEW_ROWS && v->r.all && kv.dim_k % 32 == 0 && kv.dim_k <= DIM && kv.dim_v <= DIM &&
           kv.dim_v % (c->eight ? 128 : 32) == 0 && v->t[0].ne[0] % 64 == 0;
}

static void attend_one(struct cuda *c, row_args t)
{
    const int smem = cuda_attn_smem(c), other = SLOTS_AT + t.a.n_kb * 1024 + (int)sizeof(space);

    if (t.a.kv.n_head * t.a.parts * t.a.pages <= c->sms || !cuda_plan_chunks(&t, &t.a, SHARE_SMEM - other) || t.slots < 4)
        (void)cuda_plan_chunks(&t, &t.a, smem - other);
    launch_early(c, "attend_row", attend_row, dim3((unsigned)t.a.kv.n_head, (unsigned)t.a.pages, (unsigned)t.a.parts),
                 WARPS * 32, (size_t)(other + t.slots * t.slot_bytes), t);
    if (t.a.pages > 1)
        cuda_merge_pages(c, &t.a);
}

const uint8_t *cuda_attn_row(struct cuda *c, const fused_heads *f, const struct node *v)
{
    row_args t = {};

    t.f = *f;
    t.a = cuda_attn_args(c, v);
    t.a.rounded = c->ws + cuda_ws(v) - cuda_attn_row_ws(v);
    t.a.rounded_stride = (int)x_row_bytes(v->t[0].ne[0]);
    t.a.eight = c->eight;
    t.a.open = f->gated ? f->qg + t.a.kv.dim_k : NULL;
    t.a.open_pitch = 2 * t.a.kv.dim_k;
    t.a.open_stride = f->qg_stride;
    if (v->r.n == 1) {
        attend_one(c, t);
        return t.a.rounded;
    }
    launch_early(c, "split_heads", split_heads,
                 dim3((unsigned)(t.a.kv.n_head * (t.a.group + 2)), (unsigned)v->r.n), 32, 0, t);
    cuda_attend_few(c, &t.a);
    return t.a.rounded;
}
