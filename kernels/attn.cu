/* SPDX-License-Identifier: Apache-2.0 */
/* attn.cu - the KV cache; attention of few rows.
 *
 * A block of threads takes one page of keys for some rows of a sequence and some query heads of one KV head; a second
 * launch merges the pages. Stored keys and values come by bulk copies in chunks of positions, all of them asked for
 * at the start as far as there is room; a warp takes every 16th 8 keys, then 16 dimensions of all values.
 * Many rows: attn_rows.cu. The arithmetic of both is that of attn.cuh. */
#include "kernels/attn.cuh"
#include "kernels/fused.cuh"

enum { SPLIT_ROWS = 32 };

struct page_args : page_chunks {
    attn_args a;
};

/* Shared memory: barriers, slots, queries, weights, then floats: largest scores [PAGE_WARPS][Q], sums [SUMS][Q],
 * factors [Q]. */
static int page_smem(int tiles, int n_kb)
{
    return SLOTS_AT + tiles * n_kb * 1024 + (tiles + 1) / 2 * 16384 + tiles * QUERY_TILE * (PAGE_WARPS + SUMS + 1) * 4;
}

/* What `heads` query heads of n rows give, a row of a.heads by dim_v, through gates and rounded. */
static __device__ __forceinline__ void round_heads(const attn_args &a, const float *out, int row, int n, int head,
                                                   int heads)
{
    const int dim = a.kv.dim_v, lane = threadIdx.x & 31;
    int i = 0, k = 0, d = threadIdx.x & ~31; /* row, head, first dimension of the unit */

#pragma unroll 1
    for (;; d += PAGE_WARPS * 32) {
        for (; d >= dim; d -= dim)
            if (++k == heads) {
                k = 0;
                i++;
            }
        if (i >= n)
            return;
        const float y = opened(a, out[(i * a.heads + k) * dim + d + lane], row + i, head + k, d + lane);

        round_unit(a.rounded + (row + i) * a.rounded_stride, a.kv.n_head * a.group * dim / 32, y,
                   ((head + k) * dim + d) / 32, unit_top(y), false);
    }
}

/* grid: tile of rows, KV head * part * slab, sequence * page */
template <int T>
__global__ void __launch_bounds__(PAGE_WARPS * 32, 1) attend_pages(const __grid_constant__ page_args t)
{
    enum { MT = (T + 1) / 2, Q = T * QUERY_TILE };
    extern __shared__ __align__(128) uint8_t shared[];
    const attn_args &a = t.a;
    const struct op_kv &kv = a.kv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    const int b = blockIdx.z % a.pages, seq = blockIdx.z / a.pages, slab = blockIdx.y % a.slabs;
    const int h = blockIdx.y / a.slabs / a.parts, g0 = blockIdx.y / a.slabs % a.parts * HEADS;
    const op_seq &s = a.r.seq[seq];
    const int rows = Q / a.heads, first = blockIdx.x * rows, here = min(rows, s.n - first);
    const int heads = min(a.group - g0, a.heads), *pos = a.r.pos + s.row + first;

    if (here <= 0 || b * OP_KV_PAGE > pos[here - 1])
        return;
    const int most = min(pos[here - 1] + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE), chunks = (most + t.keys - 1) / t.keys;
    const int64_t head = (int64_t)h * a.group + g0;
    uint64_t *full = (uint64_t *)shared;
    uint8_t *slots = shared + SLOTS_AT, *q = slots + t.slots * t.slot_bytes, *p = q + T * a.n_kb * 1024;
    float *tops = (float *)(p + MT * 16384), *sums = tops + PAGE_WARPS * Q, *factor = sums + SUMS * Q;

    auto ask = [&](int i) {
        const bool values = i >= chunks;
        const int64_t bytes = values ? a.v_bytes : a.k_bytes;
        const int j = (values ? i - chunks : i) * t.keys, n = min(most - j, t.keys);
        const uint8_t *page = kv.pages + (size_t)a.pg.page[(int64_t)seq * a.pg.stride + b] * kv.page_bytes;

        bulk_copy(slots + i % t.slots * t.slot_bytes,
                  page + (values ? a.v_at : 0) + ((int64_t)h * OP_KV_PAGE + j) * bytes,
                  (unsigned)(n * bytes + 15) / 16 * 16, &full[i % t.slots]);
    };
    auto used = [&](int i) { /* chunk i: its room is for another */
        if (i + t.slots >= 2 * chunks)
            return;
        __syncthreads();
        if (threadIdx.x == 0)
            ask(i + t.slots);
    };
    const int old = a.r.pos[s.row] - b * OP_KV_PAGE; /* so many positions were there before this step */
    auto ask_first = [&](bool before) {
        if (threadIdx.x == 0)
#pragma unroll 1
            for (int i = 0; i < min(t.slots, 2 * chunks); i++)
                if ((((i >= chunks ? i - chunks : i) + 1) * t.keys <= old) == before)
                    ask(i);
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < t.slots; i++)
            bar_init(&full[i], 1);
        bar_init_done();
    }
    ask_first(true);
    wait_for_inputs();
    ask_first(false);
    for (int i = warp; i < Q; i += PAGE_WARPS) {
        int r = i / a.heads, e = i % a.heads;
        const float *from = r < here && e < heads ? a.q + (s.row + first + r) * a.qs + (head + e) * kv.dim_k : NULL;
        float f =
            put_query(q + i / QUERY_TILE * a.n_kb * 1024, from, i % QUERY_TILE, kv.dim_k, a.n_kb, kv.type_k, a.scale);

        if (lane == 0)
            factor[i] = f;
    }
    __syncthreads();

    float score[T][2][2]; /* of keys 128 i + 8 warp + 2 c, + 1 */
#pragma unroll
    for (int e = 0; e < T * 4; e++)
        score[e / 4][e / 2 % 2][e % 2] = 0.0f;
    for (int i = 0; i < chunks; i++) {
        const int tile0 = i * t.keys / 8, local = (warp - tile0) & (PAGE_WARPS - 1), tile = tile0 + local;

        bar_wait(&full[i % t.slots], i / t.slots & 1);
        if (local < t.keys / 8 && tile * 8 < most) {
            const uint8_t *keys = slots + i % t.slots * t.slot_bytes + local * 8 * (int)a.k_bytes;
            float now[T][2];

#pragma unroll
            for (int e = 0; e < T * 2; e++)
                now[e / 2][e % 2] = 0.0f;
            switch (kv.type_k) {
            case QUANT_f32: page_scores<QUANT_f32, T>(now, a, q, keys); break;
            case QUANT_f16: page_scores<QUANT_f16, T>(now, a, q, keys); break;
            case QUANT_q8_0: page_scores<QUANT_q8_0, T>(now, a, q, keys); break;
            default: page_scores<QUANT_q4_0, T>(now, a, q, keys); break;
            }
#pragma unroll
            for (int e = 0; e < T * 2; e++) {
                score[e / 2][0][e % 2] = tile < PAGE_WARPS ? now[e / 2][e % 2] : score[e / 2][0][e % 2];
                score[e / 2][1][e % 2] = tile < PAGE_WARPS ? score[e / 2][1][e % 2] : now[e / 2][e % 2];
            }
        }
        used(i);
    }

    float m[T];
#pragma unroll
    for (int e = 0; e < T; e++) {
        const int n = pos[min((e * QUERY_TILE + g) / a.heads, here - 1)] + 1 - b * OP_KV_PAGE;
        float top = -CUDART_INF_F;

#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i / 2 * 128 + warp * 8 + 2 * c + i % 2 < n)
                top = fmaxf(top, __fmul_rn(score[e][i / 2][i % 2], factor[e * QUERY_TILE + g]));
        top = quad_max(top);
        if (c == 0)
            tops[warp * Q + e * QUERY_TILE + g] = top;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < T; e++) {
        const int at = e * QUERY_TILE + g, n = pos[min(at / a.heads, here - 1)] + 1 - b * OP_KV_PAGE;
        float sum = 0.0f;

        m[e] = tops[at];
#pragma unroll
        for (int i = 1; i < PAGE_WARPS; i++)
            m[e] = fmaxf(m[e], tops[i * Q + at]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t hi, lo, *to = (uint32_t *)(p + ((e / 2 * 16 + i * 8 + warp / 2) * 2) * 512 + lane * 16) +
                                   warp % 2 * 2 + e % 2;

            weigh(score[e][i], factor[at], m[e], i * 128 + warp * 8 + 2 * c, n, &hi, &lo);
            sum = __fadd_rn(__fadd_rn(sum, score[e][i][0]), score[e][i][1]);
            to[0] = hi;
            to[128] = lo;
        }
        sum = quad_sum(sum);
        if (c == 0)
            sums[warp * Q + at] = sum;
    }
    __syncthreads();

    const int vb = slab * (SLAB / DIM_BLOCK) + warp / 2, half = warp % 2;
    float o[MT][2][4];
#pragma unroll
    for (int e = 0; e < MT * 8; e++)
        o[e / 8][e / 4 % 2][e % 4] = 0.0f;
    for (int i = 0; i < chunks; i++) {
        const int at = chunks + i, n = min(most - i * t.keys, t.keys);
        const uint8_t *values = slots + at % t.slots * t.slot_bytes, *w = p + i * t.keys / 16 * 1024;

        bar_wait(&full[at % t.slots], at / t.slots & 1);
        if (vb * DIM_BLOCK < kv.dim_v)
            switch (kv.type_v) {
            case QUANT_f32: page_values<QUANT_f32, T>(o, a, w, values, n, vb, half); break;
            case QUANT_f16: page_values<QUANT_f16, T>(o, a, w, values, n, vb, half); break;
            case QUANT_q8_0: page_values<QUANT_q8_0, T>(o, a, w, values, n, vb, half); break;
            default: page_values<QUANT_q4_0, T>(o, a, w, values, n, vb, half); break;
            }
        used(at);
    }
    float *out = T == 1 && a.rounded != NULL && a.pages == 1 ? (float *)p : NULL; /* [query][dim_v], to be rounded */
    if (out != NULL)
        __syncthreads();
#pragma unroll
    for (int e = 0; e < T; e++) {
        const int at = e * QUERY_TILE + g, r = at / a.heads, k = at % a.heads;
        const int64_t row = s.row + first + r;

        if (r >= here || k >= heads || pos[r] < b * OP_KV_PAGE)
            continue;
        float l = fold(sums + at, Q), all = __fmul_rn(l, __fmul_rn(1024.0f, value_scale(kv.type_v)));
        float *part = a.part + ((row * kv.n_head * a.group + head + k) * a.pages + b) * a.part_floats;
        float *to = out != NULL    ? out + at * kv.dim_v
                    : a.pages == 1 ? a.y + row * a.ys + (head + k) * kv.dim_v
                                   : part;

        if (a.pages > 1 && warp == 0 && c == 0 && slab == 0) {
            part[a.part_floats - 2] = m[e];
            part[a.part_floats - 1] = l;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int d = vb * DIM_BLOCK + value_dim(kv.type_v, 2 * half + i / 2, 2 * c + i % 2);
            float v = o[e / 2][i / 2][e % 2 * 2 + i % 2];

            if (d < kv.dim_v)
                to[d] = a.pages == 1 ? __fdiv_rn(v, all) : v;
        }
    }
    if (out != NULL) {
        __syncthreads();
        round_heads(a, out, (int)s.row + first, here, (int)head, heads);
    }
}

/* grid: row, query head, dimensions: as many as share a scale when they are rounded, a warp 32 of them. 32 pages at a
 * time: a lane has a page's factors, and a dimension's sums. */
__global__ void __launch_bounds__(128) merge_pages(const __grid_constant__ attn_args a)
{
    enum { EACH = 32 };
    __shared__ uint32_t tops[4];
    const int row = blockIdx.x, n = a.r.pos[row] / OP_KV_PAGE + 1, heads = a.kv.n_head * a.group;
    const int lane = threadIdx.x & 31, d = blockIdx.z * blockDim.x + threadIdx.x;
    const float *part = a.part + ((int64_t)row * heads + blockIdx.y) * a.pages * a.part_floats;
    float before = -CUDART_INF_F, l = 0.0f, o = 0.0f;

    wait_for_inputs();
    for (int b0 = 0; b0 < n; b0 += EACH) {
        const float *end = part + (int64_t)(b0 + lane + 1) * a.part_floats;
        const bool there = b0 + lane < n;
        float m = there ? end[-2] : -CUDART_INF_F, sum = there ? end[-1] : 0.0f, top = m, v[EACH], keep, take;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            v[j] = b0 + j < n && d < a.kv.dim_v ? part[(int64_t)(b0 + j) * a.part_floats + d] : 0.0f;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            float other = __shfl_up_sync(0xffffffffu, top, step);

            top = lane >= step ? fmaxf(top, other) : top;
        }
        float left = __shfl_up_sync(0xffffffffu, top, 1);
        merge(lane > 0 ? fmaxf(left, before) : before, m, &keep, &take);
        sum = __fmul_rn(sum, take);
        before = fmaxf(before, __shfl_sync(0xffffffffu, top, 31));
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float k = __shfl_sync(0xffffffffu, keep, j), t = __shfl_sync(0xffffffffu, take, j);
            const float w = __shfl_sync(0xffffffffu, sum, j);

            if (b0 + j < n) {
                l = __fmaf_rn(l, k, w);
                o = __fmaf_rn(o, k, __fmul_rn(v[j], t));
            }
        }
    }
    o = __fdiv_rn(o, __fmul_rn(l, __fmul_rn(1024.0f, value_scale(a.kv.type_v))));
    if (a.rounded != NULL) {
        const float y = opened(a, o, row, blockIdx.y, d);
        uint32_t top = unit_top(y);

        if (a.eight) {
            tops[threadIdx.x / 32] = top;
            __syncthreads();
            top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
        }
        round_unit(a.rounded + row * a.rounded_stride, heads * a.kv.dim_v / 32, y,
                   (int)(blockIdx.y * a.kv.dim_v + d) / 32, top, a.eight);
    } else if (d < a.kv.dim_v)
        a.y[row * a.ys + (int64_t)blockIdx.y * a.kv.dim_v + d] = o;
}

void cuda_merge_pages(struct cuda *c, const attn_args *a)
{
    const unsigned threads = a->rounded != NULL && a->eight ? 128 : 32;

    launch_early(c, "merge_pages", merge_pages,
                 dim3((unsigned)a->r.n, (unsigned)(a->kv.n_head * a->group), (unsigned)ceil_div(a->kv.dim_v, threads)),
                 threads, 0, *a);
}

static int64_t part_floats(const struct op_kv *kv)
{
    return (kv->dim_v + 3) / 4 * 4 + 4;
}

size_t cuda_attn_ws(const struct node *v)
{
    int64_t heads = v->t[1].ne[0] / v->kv.dim_k;

    if (v->r.n > SPLIT_ROWS)
        return cuda_attn_rows_ws(v);
    return (size_t)(v->r.n * heads * v->pg.stride * part_floats(&v->kv)) * sizeof(float) +
           cuda_attn_row_ws(v);
}

bool cuda_plan_chunks(page_chunks *t, const attn_args *a, int room)
{
    const int64_t row = a->k_bytes > a->v_bytes ? a->k_bytes : a->v_bytes;

    for (t->keys = 64; t->keys >= 16; t->keys /= 2) {
        t->slot_bytes = (int)round_up((size_t)(t->keys * row), 128);
        t->slots = room / t->slot_bytes < SLOTS ? room / t->slot_bytes : (int)SLOTS;
        if (t->slots >= 2 || (t->keys == 16 && t->slots > 0))
            return true;
    }
    return false;
}

template <int T>
static void launch_pages(struct cuda *c, const page_args &t)
{
    const attn_args &a = t.a;
    int rows = T * QUERY_TILE / a.heads;
    size_t smem = (size_t)(page_smem(T, a.n_kb) + t.slots * t.slot_bytes);
    dim3 grid((unsigned)ceil_div(a.r.max_n < a.r.n ? a.r.max_n : a.r.n, rows),
              (unsigned)(a.kv.n_head * a.parts * a.slabs), (unsigned)(a.r.n_seq * a.pages));

    cuda_fail(c, cudaFuncSetAttribute(attend_pages<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
              "attend_pages");
    launch_early(c, "attend_pages", attend_pages<T>, grid, PAGE_WARPS * 32, smem, t);
}

int cuda_attn_smem(struct cuda *c)
{
    int n = 0;

    TRY(c, cudaDeviceGetAttribute(&n, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->id));
    return n;
}

/* How many times 8 queries a block takes: more read pages less often, fewer keep more SMs busy. */
static int tiles_of(struct cuda *c, const attn_args &a)
{
    const int rows = a.r.max_n < a.r.n ? a.r.max_n : a.r.n;
    const int64_t others = (int64_t)a.kv.n_head * a.parts * a.slabs * a.r.n_seq * a.pages;
    int tiles = 1;

    while (tiles < 8 && tiles * QUERY_TILE < rows * a.heads && a.pages > 1 &&
           ceil_div(rows * a.heads, tiles * QUERY_TILE) * others > 2 * c->sms)
        tiles *= 2;
    return tiles;
}

void cuda_attend_few(struct cuda *c, const attn_args *a)
{
    page_args t = {};
    const int smem = cuda_attn_smem(c);
    int tiles = tiles_of(c, *a);

    t.a = *a;
    while (tiles > 1 && !cuda_plan_chunks(&t, a, smem - page_smem(tiles, a->n_kb)))
        tiles /= 2;
    if (tiles == 1 && (!cuda_plan_chunks(&t, a, SHARE_SMEM - page_smem(1, a->n_kb)) || t.slots < 4))
        (void)cuda_plan_chunks(&t, a, smem - page_smem(1, a->n_kb));
    switch (tiles) {
    case 1: launch_pages<1>(c, t); break;
    case 2: launch_pages<2>(c, t); break;
    case 4: launch_pages<4>(c, t); break;
    default: launch_pages<8>(c, t); break;
    }
    if (a->pages > 1)
        cuda_merge_pages(c, a);
}

attn_args cuda_attn_args(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    attn_args a = {};

    a.y = (float *)v->t[0].data;
    a.q = (const float *)v->t[1].data;
    a.ys = v->t[0].stride;
    a.qs = v->t[1].stride;
    a.kv = kv;
    a.k_bytes = quant_row_bytes(kv.type_k, kv.dim_k);
    a.v_bytes = quant_row_bytes(kv.type_v, kv.dim_v);
    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.scale = v->f[0] * 1.44269504088896340736f;
    a.group = (int)(v->t[1].ne[0] / kv.dim_k) / kv.n_head;
    a.parts = (a.group + HEADS - 1) / HEADS;
    for (a.heads = 1; a.heads < a.group && a.heads < HEADS;)
        a.heads *= 2;
    a.n_kb = (int)ceil_div(kv.dim_k, DIM_BLOCK);
    a.slabs = (int)ceil_div(kv.dim_v, SLAB);
    a.r = v->r;
    a.pg = v->pg;
    a.part = (float *)c->ws;
    a.part_floats = part_floats(&kv);
    a.pages = v->pg.stride;
    return a;
}

void cuda_attn(struct cuda *c, const struct node *v)
{
    const attn_args a = cuda_attn_args(c, v);

    if (v->r.n > SPLIT_ROWS)
        cuda_attn_rows(c, &a);
    else
        cuda_attend_few(c, &a);
}

/* ---- storing ---- */

struct store_args {
    const float *k, *v;
    int64_t      ks, vs, k_bytes, v_bytes, v_at;
    struct op_kv kv;
    struct rows  r;
    struct pages pg;
    int          k32, v32; /* pieces of a head */
    int64_t      total;
};

/* Four lanes a block of 32 elements. */
__global__ void __launch_bounds__(128) store(const __grid_constant__ store_args a)
{
    const int64_t all = ((int64_t)blockIdx.x * 128 + threadIdx.x) / 4, at = all < a.total ? all : a.total - 1;
    const int c = threadIdx.x % 4, each = a.kv.n_head * (a.k32 + a.v32);
    const int row = (int)(at / each), i = (int)(at % each), pos = a.r.pos[row];
    const bool value = i >= a.kv.n_head * a.k32;
    const int j = value ? i - a.kv.n_head * a.k32 : i, per = value ? a.v32 : a.k32, h = j / per;
    const int64_t slot = (int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE, dim = value ? a.kv.dim_v : a.kv.dim_k;
    uint8_t *page = a.kv.pages + (size_t)a.pg.page[(int64_t)a.r.of[row] * a.pg.stride + pos / OP_KV_PAGE] *
                                     a.kv.page_bytes;

    store32(page + (value ? a.v_at + slot * a.v_bytes : slot * a.k_bytes), value ? a.kv.type_v : a.kv.type_k,
            (value ? a.v + row * a.vs : a.k + row * a.ks) + h * dim, j % per, c, (int)dim, all < a.total);
}

void cuda_kv_store(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    store_args a = { (const float *)v->t[0].data, (const float *)v->t[1].data, v->t[0].stride, v->t[1].stride,
                     quant_row_bytes(kv.type_k, kv.dim_k), quant_row_bytes(kv.type_v, kv.dim_v), 0, kv, v->r, v->pg,
                     (kv.dim_k + 31) / 32, (kv.dim_v + 31) / 32, 0 };

    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.total = (int64_t)v->r.n * kv.n_head * (a.k32 + a.v32);
    LAUNCH(c, store, (unsigned)ceil_div(4 * a.total, 128), 128, 0, a);
}
