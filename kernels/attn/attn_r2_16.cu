/* SPDX-License-Identifier: Apache-2.0 */
/* attn_r2_16.cu - writes the KV cache; attention for few tokens, split over KV pages.
 *
 * A block takes one page for some tokens of a sequence and some query heads of one KV head (attn/page.cuh). A second
 * kernel merges the pages. Used where attn_fused_r1_16.cu does not fit; more tokens: attn_r17.cu. */
#include "kernels/attn/page.cuh"
#include "kernels/device/fused.cuh"

enum { SPLIT_ROWS = GEMM_ATTN_ROWS };

struct page_args : page_chunks {
    attn_args a;
};

/* Shared memory: barriers, slots, queries, scores or weights, then floats: largest scores [PAGE_WARPS][Q], sums
 * [SUMS][Q], factors [Q]. */
static int page_smem(int tiles, int n_kb)
{
    return SLOTS_AT + tiles * (n_kb * 1024 + SCORE_BYTES + QUERY_TILE * (PAGE_WARPS + SUMS + 1) * 4);
}

/* What `heads` query heads of n rows give, a row of a.heads by dim_v, through gates and rounded: by a warp the units
 * that share a scale. */
static __device__ __forceinline__ void round_heads(const attn_args &a, const float *out, int row, int n, int head,
                                                   int heads)
{
    const int dim = a.kv.dim_v, lane = threadIdx.x & 31, share = a.eight ? (int)SHARED : 1;
    int i = 0, k = 0, d = (threadIdx.x & ~31) * share; /* row, head, first dimension of the units */

#pragma unroll 1
    for (;; d += PAGE_WARPS * 32 * share) {
        for (; d >= dim; d -= dim)
            if (++k == heads) {
                k = 0;
                i++;
            }
        if (i >= n)
            return;
        float y[SHARED];
        uint32_t top = 0;

#pragma unroll
        for (int j = 0; j < SHARED; j++) {
            const int at = d + j * 32 + lane;

            y[j] = j < share ? opened(a, out[(i * a.heads + k) * dim + at], row + i, head + k, at) : 0.0f;
            top = max(top, unit_top(y[j]));
        }
#pragma unroll
        for (int j = 0; j < SHARED; j++)
            if (j < share) {
                round_unit(a.rounded + (row + i) * a.rounded_stride, a.kv.n_head * a.group * dim / 32, y[j],
                           ((head + k) * dim + d) / 32 + j, top, a.eight);
                if (a.both)
                    a.y[(row + i) * a.ys + (head + k) * dim + d + j * 32 + lane] = y[j];
            }
    }
}

/* Queries as operands: of n rows from `row` on, heads from `head` on. */
template <int T>
static __device__ __forceinline__ void put_queries(const page_args &t, uint8_t *q, float *factor, int64_t row, int n,
                                                   int64_t head, int heads)
{
    const attn_args &a = t.a;

    for (int i = threadIdx.x / 32; i < T * QUERY_TILE; i += PAGE_WARPS) {
        const int r = i / a.heads, e = i % a.heads;
        const float *from = r < n && e < heads ? a.q + (row + r) * a.qs + (head + e) * a.kv.dim_k : NULL;
        const float f = put_query(q + i / QUERY_TILE * a.n_kb * 1024, from, i % QUERY_TILE, a.kv.dim_k, a.n_kb,
                                  a.kv.type_k, a.scale, true);

        if ((threadIdx.x & 31) == 0)
            factor[i] = f;
    }
}

/* Scores of keys outside of the window of their row, of the page from position `page` on. */
template <int T>
static __device__ __forceinline__ void hide_scores(float *scores, const attn_args &a, const int *pos, int rows,
                                                   int page)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < T * QUERY_TILE * OP_KV_PAGE; i += PAGE_WARPS * 32) {
        const int at = i / OP_KV_PAGE, key = i % OP_KV_PAGE;

        if (page + key >= a.kv.always && page + key < pos[min(at / a.heads, rows - 1)] - a.kv.window)
            scores[at * SCORE_PITCH + key] = -CUDART_INF_F;
    }
    __syncthreads();
}

/* grid: tile of rows, KV head * part * slab, sequence * page */
template <int T>
__global__ void __launch_bounds__(PAGE_WARPS * 32, T == 1 ? 2 : 1) attend_pages(const __grid_constant__ page_args t)
{
    enum { Q = T * QUERY_TILE, FIRST_SPARE = ASK_WARP - 3 };
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
    const int most = min(pos[here - 1] + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE);
    const int64_t head = (int64_t)h * a.group + g0;
    uint8_t *slots = shared + SLOTS_AT, *q = slots + t.slots * t.slot_bytes, *p = q + T * a.n_kb * 1024;
    float *floats = (float *)(p + T * SCORE_BYTES);
    const page_sums sums = { floats, floats + PAGE_WARPS * Q, floats + (PAGE_WARPS + SUMS) * Q };
    page_ring in = { t,
                     a,
                     a.pg.page + (int64_t)seq * a.pg.stride,
                     (uint64_t *)shared,
                     slots,
                     h,
                     b,
                     1,
                     b + 1,
                     pos[here - 1] + 1,
                     0,
                     0,
                     0,
                     0 };

    const int old = a.r.pos[s.row] - b * OP_KV_PAGE; /* positions of this page from before this step */
    auto ask_first = [&](bool before) {
#pragma unroll 1
        for (int i = 0; i < min(t.slots, t.key_chunks + t.value_chunks); i++)
            if (((i >= t.key_chunks ? (i - t.key_chunks + 1) * t.values : (i + 1) * t.keys) <= old) == before)
                in.ask_chunk(i, i);
    };
    if (threadIdx.x == ASK_WARP * 32) {
        in.open();
        ask_first(true);
    }
    const int vb = slab * (SLAB / DIM_BLOCK) + warp / 2, half = warp % 2;
    float m[T], o[T][4];
    int n[T];
#pragma unroll
    for (int e = 0; e < T; e++)
        n[e] = pos[min((e * QUERY_TILE + g) / a.heads, here - 1)] + 1 - b * OP_KV_PAGE;
        /* 8 queries leave warps over: those go through a part each before, with whatever numbers, for its instructions
         */
#pragma unroll 1
    for (int pass = GO_AHEAD && T == 1 && warp >= FIRST_SPARE && warp < ASK_WARP ? 0 : 1; pass < 2; pass++) {
        const bool real = T > 1 || pass == 1;
        const int part = warp - FIRST_SPARE;
        const int seen = real ? most : UNIT_KEYS;

        if (real) {
            wait_for_inputs();
            if (threadIdx.x == ASK_WARP * 32) {
                ask_first(false);
                in.asked(min(t.slots, t.key_chunks + t.value_chunks));
            }
            put_queries<T>(t, q, sums.factor, s.row + first, here, head, heads);
            __syncthreads();
        }
        if (real || part == 0)
            find_scores<T>(p, in, q, seen, NULL, real);
        if (real && kv.window > 0)
            hide_scores<T>((float *)p, a, pos, here, b * OP_KV_PAGE);
        if (real || part == 1)
            find_weights<T>(m, p, sums, n, real);
        if (real || part == 2)
            sum_values<T>(o, in, p, seen, vb, half, NULL, real);
    }
    float *out = T == 1 && a.rounded != NULL && a.pages == 1 ? (float *)p : NULL; /* [query][dim_v], to be rounded */
    if (out != NULL)
        __syncthreads();
    if (a.pages > 1 && warp == 0 && c == 0 && slab == 0)
#pragma unroll
        for (int e = 0; e < T; e++) {
            const int at = e * QUERY_TILE + g, r = at / a.heads, k = at % a.heads;
            const int64_t all = (s.row + first + r) * kv.n_head * a.group + head + k;
            float *part = a.part + (all * a.pages + b) * a.part_floats;

            if (r < here && k < heads && n[e] > 0)
                *(float2 *)(part + a.part_floats - 2) = make_float2(m[e], fold_sums(sums.sum + at, Q));
        }
#pragma unroll
    for (int e = 0; e < 2 * T; e++) {
        const int at = e / 2 * QUERY_TILE + 2 * c + e % 2, r = at / a.heads, k = at % a.heads;
        const int64_t row = s.row + first + r;

        if (r >= here || k >= heads || pos[r] < b * OP_KV_PAGE)
            continue;
        const float all = __fmul_rn(fold_sums(sums.sum + at, Q), __fmul_rn(1024.0f, value_scale(kv.type_v)));
        float *to = out != NULL    ? out + at * kv.dim_v
                    : a.pages == 1 ? a.y + row * a.ys + (head + k) * kv.dim_v
                                   : a.part + ((row * kv.n_head * a.group + head + k) * a.pages + b) * a.part_floats;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int d = vb * DIM_BLOCK + value_dim(kv.type_v, 2 * half + i, g);
            const float v = o[e / 2][2 * i + e % 2];

            if (d < kv.dim_v)
                to[d] = a.pages == 1 ? __fdiv_rn(v, all) : v;
        }
    }
    if (out != NULL) {
        __syncthreads();
        round_heads(a, out, (int)s.row + first, here, (int)head, heads);
    }
}

/* ---- merging pages ---- */

enum { MERGE = 288 /* threads, and pages at a time: 73,728 positions in one */, MERGE_DIMS = 32 };

struct merge_space {
    float v[MERGE * MERGE_DIMS];
    float4 f[MERGE]; /* what to keep of the pages before, to take of this one; its sum of weights, taken */
    uint8_t nowhere[SHARED][256];
    float top[MERGE / 32];
    alignas(16) uint32_t tops[SHARED]; /* one read, which takes nothing of `top` along */
};

/* Pages 0 .. n - 1 of `part`: `dims` dimensions from `first` on, and factors, of which a thread has a page's; before:
 * the largest score of pages before them. Returns it with theirs. */
static __device__ __forceinline__ float bring_pages(merge_space &s, const float *part, int n, int floats, int first,
                                                    int dims, int end, float before)
{
    const int t = threadIdx.x, lane = t & 31, warp = t / 32, pieces = dims / 4, piece = t % pieces * 4;
    float2 last = make_float2(-CUDART_INF_F, 0.0f);
    float top, keep, take;

    if (t < n)
        last = __ldcg((const float2 *)(part + (t + 1) * floats - 2));
    if (first + piece < end)
#pragma unroll 3
        for (int j = t / pieces; j < n; j += MERGE / pieces)
            copy16(&s.v[j * dims + piece], part + j * floats + first + piece);
    copy_end();
    top = last.x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, top, step);

        top = lane >= step ? fmaxf(top, other) : top;
    }
    if (lane == 31)
        s.top[warp] = top;
    const float left = __shfl_up_sync(0xffffffffu, top, 1);
    __syncthreads();
    float mine = lane > 0 ? fmaxf(left, before) : before;
#pragma unroll
    for (int i = 0; i < MERGE / 32; i++) {
        const float other = s.top[i];

        mine = i < warp ? fmaxf(mine, other) : mine;
        before = fmaxf(before, other);
    }
    merge(mine, last.x, &keep, &take);
    s.f[t] = make_float4(keep, take, __fmul_rn(last.y, take), 0.0f);
    copy_wait<0>();
    __syncthreads();
    return before;
}

/* grid: row, query head, dimensions: 32, or as many as share a scale when they are rounded to 8 bits. A first pass over
 * one page of something else only brings the instructions, while the pages are computed. */
__global__ void __launch_bounds__(MERGE) merge_pages(const __grid_constant__ attn_args a)
{
    __shared__ merge_space s;
    const int row = blockIdx.x, head = blockIdx.y, heads = a.kv.n_head * a.group, t = threadIdx.x;
    const int dims = a.rounded != NULL && a.eight ? SHARED * MERGE_DIMS : (int)MERGE_DIMS;
    const int most = MERGE * MERGE_DIMS / dims, first = blockIdx.z * dims, d = first + t, floats = (int)a.part_floats;

    let_next_begin();
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
        const bool real = pass == 1;
        const float *other = (const float *)a.kv.pages, *part = other, *gate = other;
        float before = -CUDART_INF_F, l = 0.0f, o = 0.0f, open = 0.0f;
        int left = 1;

        if (real) {
            part = a.part + ((int64_t)row * heads + head) * a.pages * floats;
            gate = a.open + row * a.open_stride + head * a.open_pitch;
            left = min(a.r.pos[row] / OP_KV_PAGE + 1, a.pages); /* rows of others are not asked for */
            wait_for_inputs();
        }
        if (a.open != NULL && t < dims)
            open = __ldcg(gate + d);
#pragma unroll 1
        for (; left > 0; left -= most, part += most * floats) {
            const int n = min(left, most);

            before = bring_pages(s, part, n, floats, first, dims, a.kv.dim_v, before);
            if (t < dims)
#pragma unroll 8
                for (int j = 0; j < n; j++) {
                    const float4 f = s.f[j];

                    l = __fmaf_rn(l, f.x, f.z);
                    o = __fmaf_rn(o, f.x, __fmul_rn(s.v[j * dims + t], f.y));
                }
            if (left > most || !real) /* others may still read what the next pages go to */
                __syncthreads();
        }
        o = __fdiv_rn(o, __fmul_rn(l, __fmul_rn(1024.0f, value_scale(a.kv.type_v))));
        if (a.open != NULL)
            o = __fmul_rn(o, sigmoid(open));
        if ((a.rounded == NULL || a.both) && real && t < dims && d < a.kv.dim_v)
            a.y[row * a.ys + (int64_t)head * a.kv.dim_v + d] = o;
        if (a.rounded == NULL)
            continue;
        uint32_t top = unit_top(o);
        if (a.eight) {
            if (t < dims)
                s.tops[t / 32] = top;
            __syncthreads();
            top = max(max(s.tops[0], s.tops[1]), max(s.tops[2], s.tops[3]));
        }
        if (t < dims)
            round_unit(real ? a.rounded + row * a.rounded_stride : s.nowhere[t / 32],
                       real ? heads * a.kv.dim_v / 32 : 2, o, real ? (head * a.kv.dim_v + d) / 32 : 0, top, a.eight);
    }
}

void cuda_merge_pages(struct cuda *c, const attn_args *a)
{
    const int dims = a->rounded != NULL && a->eight ? SHARED * MERGE_DIMS : (int)MERGE_DIMS;

    launch_early(c, "merge_pages", merge_pages,
                 dim3((unsigned)a->r.n, (unsigned)(a->kv.n_head * a->group), (unsigned)ceil_div(a->kv.dim_v, dims)),
                 MERGE, 0, *a);
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
    return (size_t)(v->r.n * heads * v->pg.stride * part_floats(&v->kv)) * sizeof(float) + cuda_attn_row_ws(v);
}

/* Chunks of n positions. wide: where keys and values differ in size, chunks of the smaller kind have more positions, so
 * that both kinds have about as many bytes. */
static page_chunks chunks_of(const attn_args *a, int n, bool wide, int room)
{
    const int64_t k = a->k_bytes, v = a->v_bytes;
    page_chunks t = {};

    t.keys = t.values = n;
    while (wide && k < v && t.keys < OP_KV_PAGE && 4 * t.keys * k <= 3 * n * v)
        t.keys *= 2;
    while (wide && v < k && t.values < OP_KV_PAGE && 4 * t.values * v <= 3 * n * k)
        t.values *= 2;
    t.slot_bytes = (int)round_up((size_t)(t.keys * k > t.values * v ? t.keys * k : t.values * v), 128);
    t.slots = room / t.slot_bytes < SLOTS ? room / t.slot_bytes : (int)SLOTS;
    t.key_chunks = OP_KV_PAGE / t.keys;
    t.value_chunks = OP_KV_PAGE / t.values;
    t.whole = t.slots >= t.key_chunks && t.slots >= t.value_chunks;
    return t;
}

bool cuda_plan_chunks(page_chunks *t, const attn_args *a, int room)
{
    enum { MANY = 6 }; /* chunks under way, where not all keys of a page are */
    int best = 0;

    for (int n = 64; n >= UNIT_KEYS; n /= 2)
        for (int wide = 1; wide >= 0; wide--) {
            const page_chunks p = chunks_of(a, n, wide, room);
            const int worth = p.slots <= 0 ? 0 : 1 + (p.slots >= MANY) + 2 * p.whole;

            if (worth > best) {
                best = worth;
                *t = p;
            }
        }
    return best > 0;
}

template <int T> static void launch_pages(struct cuda *c, const page_args &t)
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

void cuda_attend_r2_16(struct cuda *c, const attn_args *a)
{
    page_args t = {};
    const int smem = cuda_attn_smem(c);
    int tiles = tiles_of(c, *a);

    t.a = *a;
    while (tiles > 1 && (!cuda_plan_chunks(&t, a, smem - page_smem(tiles, a->n_kb)) || t.slots < 2))
        tiles /= 2;
    if (tiles == 1 &&
        (!cuda_plan_chunks(&t, a, (smem < SHARE_SMEM ? smem : (int)SHARE_SMEM) - page_smem(1, a->n_kb)) || !t.whole))
        (void)cuda_plan_chunks(&t, a, smem - page_smem(1, a->n_kb));
    switch (tiles) {
    case 1:
        launch_pages<1>(c, t);
        break;
    case 2:
        launch_pages<2>(c, t);
        break;
    case 4:
        launch_pages<4>(c, t);
        break;
    default:
        launch_pages<8>(c, t);
        break;
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
        cuda_attend_r2_16(c, &a);
}

/* ---- storing ---- */

struct store_args {
    const float *k, *v;
    int64_t ks, vs, k_bytes, v_bytes, v_at;
    struct op_kv kv;
    struct rows r;
    struct pages pg;
    int k32, v32; /* pieces of a head */
    int64_t total;
};

/* Four lanes a block of 32 elements. */
__global__ void __launch_bounds__(128) store_kv(const __grid_constant__ store_args a)
{
    const int64_t all = ((int64_t)blockIdx.x * 128 + threadIdx.x) / 4, at = all < a.total ? all : a.total - 1;
    const int c = threadIdx.x % 4, each = a.kv.n_head * (a.k32 + a.v32);
    const int row = (int)(at / each), i = (int)(at % each), pos = a.r.pos[row];
    const bool value = i >= a.kv.n_head * a.k32;
    const int j = value ? i - a.kv.n_head * a.k32 : i, per = value ? a.v32 : a.k32, h = j / per;
    const int64_t slot = (int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE, dim = value ? a.kv.dim_v : a.kv.dim_k;
    uint8_t *page =
        a.kv.pages + (size_t)a.pg.page[(int64_t)a.r.of[row] * a.pg.stride + pos / OP_KV_PAGE] * a.kv.page_bytes;

    store32(page + (value ? a.v_at + slot * a.v_bytes : slot * a.k_bytes), value ? a.kv.type_v : a.kv.type_k,
            (value ? a.v + row * a.vs : a.k + row * a.ks) + h * dim, j % per, c, (int)dim, all < a.total);
}

void cuda_kv_store(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    store_args a = { (const float *)v->t[0].data,
                     (const float *)v->t[1].data,
                     v->t[0].stride,
                     v->t[1].stride,
                     quant_row_bytes(kv.type_k, kv.dim_k),
                     quant_row_bytes(kv.type_v, kv.dim_v),
                     0,
                     kv,
                     v->r,
                     v->pg,
                     (kv.dim_k + 31) / 32,
                     (kv.dim_v + 31) / 32,
                     0 };

    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.total = (int64_t)v->r.n * kv.n_head * (a.k32 + a.v32);
    LAUNCH(c, store_kv, (unsigned)ceil_div(4 * a.total, 128), 128, 0, a);
}
