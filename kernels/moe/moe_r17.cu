/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17.cu - mixture of experts for 17 and more tokens: sorts (expert, token) pairs by expert, then grouped GEMM. */
#include <algorithm>

#include "kernels/adapt/adapt.cuh"
#include "kernels/gemm/acts_a8_wgmma.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/acts_a16_wgmma.cuh"
#include "kernels/moe/moe_r17_columns.cuh"
#include "kernels/moe/pick_experts_block.cuh"

enum { SHARE = 4, GRID_Y = 65535 }; /* pairs of a chunk, in other formats */
static_assert((int)R64_A16_COLUMNS == (int)TILE_COLUMNS, "chunks serve both");

/* Where the lists are. */
struct expert_list {
    int *list, *n_chunk;
    expert_chunk *chunk;
};

/* f(pair, matrix of its expert) for all that have one, by a block; ids are read ahead. */
template <class F> static __device__ __forceinline__ void each_pair(const int *id, const int *slot, int pairs, F f)
{
    enum { AHEAD = 8 };
    const int step = blockDim.x;

    for (int p0 = threadIdx.x; p0 < pairs; p0 += AHEAD * step) {
        int m[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            m[i] = p0 + i * step < pairs ? matrix_of(slot, id[p0 + i * step]) : -1;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (m[i] >= 0)
                f(p0 + i * step, m[i]);
    }
}

/* Gives the n uses of matrix e their place in the list, and equal chunks. */
static __device__ __forceinline__ void cut_uses(const expert_list &to, int e, int n, int share, int *first, int *chunks,
                                                int *used)
{
    const int parts = (n + share - 1) / share;

    if (n == 0)
        return;
    int at = atomicAdd(chunks, parts), from = atomicAdd(used, n);
    first[e] = from;
    for (int i = 0; i < parts; i++) {
        const int here = n / parts + (i < n % parts);

        to.chunk[at++] = (expert_chunk){ e, from, here };
        from += here;
    }
}

/* Lists the pairs by their expert's matrix, by one block; far: room for counts, where they are many. The order of
 * experts and of pairs within one decides only who shares reads. */
__global__ void __launch_bounds__(1024)
    list_pairs(const int *id, const int *slot, int pairs, int n_expert, int share, int *far, expert_list to)
{
    enum { NEAR = 1024 };
    __shared__ int near[2 * NEAR], chunks, used;
    int *count = n_expert <= NEAR ? near : far, *first = count + n_expert;

    for (int e = threadIdx.x; e < n_expert; e += blockDim.x)
        count[e] = 0;
    if (threadIdx.x == 0)
        chunks = used = 0;
    __syncthreads();
    each_pair(id, slot, pairs, [=](int, int e) { atomicAdd(count + e, 1); });
    __syncthreads();
    for (int e = threadIdx.x; e < n_expert; e += blockDim.x)
        cut_uses(to, e, count[e], share, first, &chunks, &used);
    __syncthreads();
    each_pair(id, slot, pairs, [=](int p, int e) { to.list[atomicAdd(first + e, 1)] = p; });
    if (threadIdx.x == 0)
        *to.n_chunk = chunks;
}

/* A row's choice, by a warp, in the order of operations of moe/router.cu; chosen: the experts, which are kept, too. A
 * lane has EACH of them, side by side. */
template <int EACH> static __device__ __forceinline__ void choose_warp(const choice_args &a, int row, int *chosen)
{
    const struct op_route &r = a.r;
    const int lane = threadIdx.x & 31;
    const float *logits = a.logits + row * a.ls;
    uint32_t key[EACH];
    float top = -CUDART_INF_F, divisor = 0.0f;

#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int e = lane * EACH + j;
        const float v = e < r.n_expert ? logits[e] : -CUDART_INF_F, score = r.sigmoid ? sigmoid(v) : v;

        top = fmaxf(top, v);
        key[j] = e < r.n_expert ? key_of(score + (r.bias == NULL ? 0.0f : r.bias[e])) : 0;
    }
    pick_best<EACH>(key, r.n_used, chosen);
    if (!r.sigmoid) {
        top = warp_max(top);
#pragma unroll 1
        for (int e = lane; e < r.n_expert; e += 32)
            divisor += expf(logits[e] - top);
        divisor = warp_sum(divisor);
    }
    keep_choice<false>(a, row, lane, chosen, logits, top, divisor);
}

/* First products of the shared expert, [row]; gate NULL: there is none; rounded. */
struct shared_gates {
    const float *gate, *up;
    uint8_t *rounded;
    int64_t stride;
    int ff;
};

/* The choices of up to FEW_ROWS rows, and their pairs listed as list_pairs() has them, by the first block; the next
 * ones activate a row of the shared expert each. */
template <int EACH, bool EIGHT>
__global__ void __launch_bounds__(1024)
    choose_pairs(const __grid_constant__ choice_args a, int rows, int share, expert_list to, shared_gates s)
{
    enum { MANY = EIGHT ? SHARED_SCALE : 1 };
    __shared__ int chosen[FEW_ROWS * CHOICE_USED], count[CHOICE_EXPERTS], first[CHOICE_EXPERTS], chunks, used;
    const int pairs = rows * a.r.n_used;

    wait_for_inputs();
    if (blockIdx.x > 0) {
        const int row = (int)blockIdx.x - 1;

        for (int unit = (int)threadIdx.x / 32 * MANY; unit < s.ff / 32; unit += 32 * MANY)
            round_gates<EIGHT>(s.rounded + row * x_row_bytes(s.ff), s.gate + row * s.stride, s.up + row * s.stride,
                               s.ff / 32, unit);
        return;
    }
    for (int row = threadIdx.x / 32; row < rows; row += 32)
        choose_warp<EACH>(a, row, chosen + row * a.r.n_used);
    if (threadIdx.x < CHOICE_EXPERTS)
        count[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        chunks = used = 0;
    __syncthreads();
    for (int p = threadIdx.x; p < pairs; p += 1024)
        atomicAdd(count + chosen[p], 1);
    __syncthreads();
    if ((int)threadIdx.x < a.r.n_expert)
        cut_uses(to, threadIdx.x, count[threadIdx.x], share, first, &chunks, &used);
    __syncthreads();
    for (int p = threadIdx.x; p < pairs; p += 1024)
        to.list[atomicAdd(first + chosen[p], 1)] = p;
    if (threadIdx.x == 0)
        *to.n_chunk = chunks;
}

template <int TYPE> __global__ void __launch_bounds__(256) expert_plain(const __grid_constant__ expert_args a)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32;
    const float *x[SHARE];
    float sum[SHARE];
    expert_chunk c;

    if (row >= a.n_rows || !chunk_of(a, a.base + (int)blockIdx.y, c))
        return;
    for (int t = 0; t < SHARE; t++) {
        int i = c.first + (t < c.n ? t : 0);

        x[t] = (const float *)(a.x + (a.list == NULL ? i : a.list[i]) / a.div * a.x_bytes);
    }
    plain_times<TYPE, SHARE>(sum, a.w + c.expert * a.expert_bytes + row * a.row_bytes, a.k, x, c.n);
#pragma unroll
    for (int t = 0; t < SHARE; t++)
        if (t < c.n && (threadIdx.x & 31) == t)
            a.y[(a.list == NULL ? c.first + t : a.list[c.first + t]) * a.y_stride + row] = sum[t];
}

static void plain_product(struct cuda *c, const expert_args *a)
{
    dim3 grid((unsigned)ceil_div(a->n_rows, 8), (unsigned)a->most);

    switch (a->type) {
#define X(name) \
    case QUANT_##name: \
        LAUNCH(c, expert_plain<QUANT_##name>, grid, 256, 0, *a); \
        break;
        GEMM_FLOAT(X)
#undef X
    default:
        break;
    }
}

__global__ void activate(float *hid, const float *gate, int64_t n, int act, const int *id, const int *slot, int ff)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i >= n)
        return;
    if (slot != NULL && slot[id[i / ff]] < 0) { /* computed elsewhere */
        hid[i] = 0.0f;
        return;
    }
    float in = gate != NULL ? gate[i] : hid[i], up = gate != NULL ? hid[i] : 1.0f, pos = fmaxf(in, 0.0f);

    hid[i] = act == OP_SILU ? __fmul_rn(silu(in), up) : __fmul_rn(__fmul_rn(pos, pos), up);
}

void cuda_activate(struct cuda *c, const struct node *moe, float *hid, float *gate)
{
    const struct op_moe &m = moe->moe;
    const struct tensor &x = moe->t[1];
    const int64_t ff = m.up.ne[1], pairs = x.ne[1] * m.n_used;
    const struct adapt_experts added = {
        { gate, hid, NULL }, ff, ff, x.ne[0], x.stride, (const float *)x.data, m.n_used
    };

    if (adapted(moe))
        cuda_adapt_experts(c, moe, &added);
    LAUNCH(c, activate, (unsigned)ceil_div(pairs * ff, 256), 256, 0, hid, gate, pairs * ff, (int)m.act, m.expert,
           m.slot, (int)ff);
}

void cuda_adapt_down(struct cuda *c, const struct node *moe, float *out, int64_t stride, const float *hid)
{
    const int64_t ff = moe->moe.up.ne[1];
    const struct adapt_experts added = { { NULL, NULL, out }, stride, moe->moe.down.ne[1], ff, ff, hid, 1 };

    if (adapted(moe))
        cuda_adapt_experts(c, moe, &added);
}

__global__ void mix_experts(float *y, int64_t ys, const float *weight, int64_t ws, const float *out, int64_t os,
                            int n_used, int n)
{
    int i = blockIdx.y * 256 + threadIdx.x;
    float sum = 0.0f;

    if (i >= n)
        return;
    for (int k = 0; k < n_used; k++)
        sum = __fmaf_rn(weight[blockIdx.x * ws + k], out[((int64_t)blockIdx.x * n_used + k) * os + i], sum);
    y[blockIdx.x * ys + i] = sum;
}

/* Working memory, cut up. */
struct space {
    uint8_t *xq, *hq, *shared; /* shared: of the shared expert, no longer than those of x */
    float *gate, *hid, *out;
    int *far;
    expert_list to;
    int share, most; /* pairs of a chunk; most chunks */
    int columns;     /* share, where chunks are those of moe_r17_columns.cu; or 0 */
    bool for_wgmma;  /* rounded rows are those of gemm/gemm_r64_a16_wgmma.cuh, or of gemm/gemm_r64_a8_wgmma.cuh */
    size_t bytes;
    int types[3]; /* of all matrices */
    struct gemm_product product;
};

/* The kernel of a matrix of this type in a step of more than R2_16_MAX rows. */
static int kernel_for(const struct space *s, int type)
{
    struct gemm_product p = s->product;

    p.type = type;
    p.types = s->types;
    return gemm_pick(&p, s->columns > 0 ? GEMM_EXPERTS_R17_COLUMNS : GEMM_EXPERTS_R64_A8_WGMMA);
}

/* All products, or none: the chunks are as wide for all. */
static bool all_of(const struct op_moe &a, enum gemm_formats f)
{
    return gemm_formats_have(f, a.up.type) && gemm_formats_have(f, a.down.type) &&
           (a.gate.data == NULL || gemm_formats_have(f, a.gate.type));
}

static bool on_tiles(const struct op_moe &a, int64_t rows)
{
    return rows > R2_16_MAX && all_of(a, GEMM_FORMATS_TILED);
}

/* n rows, rounded in any way; gemm/gemm_r64_a16_wgmma.cuh: as many as `places`. */
static size_t rounded_bytes(bool for_wgmma, int64_t k, int64_t n, int64_t places)
{
    const size_t a8 = for_wgmma ? r64_a8_bytes(k, n) : r17_a8_bytes(k, n);
    const size_t plain = (size_t)(x_row_bytes(k) * n), a16 = for_wgmma ? r64_a16_bytes(k, places) : 0;

    return std::max({ a8, plain, a16 });
}

static int most_chunks(int64_t pairs, int64_t n_expert, int share)
{
    return (int)(pairs < pairs / share + n_expert ? pairs : pairs / share + n_expert);
}

static struct space cut_space(const struct node *v, unsigned char *at)
{
    const struct op_moe &a = v->moe;
    int64_t n = v->t[1].ne[1], pairs = n * a.n_used, ff = a.up.ne[1], n_expert = a.up.ne[2];
    struct space s = {};
    size_t used = 0;
    auto take = [&](size_t bytes) {
        unsigned char *p = at + used;

        used += round_up(bytes, 256);
        return (void *)p;
    };

    s.share = on_tiles(a, n) ? (int)TILE_COLUMNS : (int)SHARE;
    s.most = most_chunks(pairs, n_expert, s.share);
    s.for_wgmma = s.share == R64_A16_COLUMNS && pairs >= GEMM_R64_PAIRS * n_expert && all_of(a, GEMM_FORMATS_A16);
    s.xq = (uint8_t *)take(rounded_bytes(s.for_wgmma, a.up.ne[0], n, n));
    s.hq = (uint8_t *)take(rounded_bytes(s.for_wgmma, ff, pairs, (int64_t)s.most * R64_A16_COLUMNS));
    if (n <= FEW_ROWS)
        s.shared = (uint8_t *)take((size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.out = (float *)take((size_t)(pairs * a.down.ne[1]) * sizeof(float));
    s.far = (int *)take(2 * (size_t)n_expert * sizeof(int));
    s.to.list = (int *)take((size_t)pairs * sizeof(int));
    s.to.n_chunk = (int *)take(sizeof(int));
    s.to.chunk =
        (expert_chunk *)take((size_t)(most_chunks(pairs, n_expert, MOE_COLUMNS_LEAST) + 1) * sizeof(expert_chunk));
    s.bytes = used;
    s.types[s.product.n_types++] = a.up.type;
    s.types[s.product.n_types++] = a.down.type;
    if (a.gate.data != NULL)
        s.types[s.product.n_types++] = a.gate.type;
    s.product.of = GEMM_OF_EXPERTS;
    s.product.rows = n;
    s.product.pairs = pairs;
    s.product.n_expert = n_expert;
    return s;
}

size_t cuda_moe_ws(const struct node *v)
{
    const size_t r2_16 = cuda_moe_r2_16_ws(v), r17 = cut_space(v, NULL).bytes;

    return v->t[1].ne[1] <= R2_16_MAX && r2_16 > r17 ? r2_16 : r17;
}

static void expert_product(struct cuda *c, const struct space *s, const struct node *v, struct tensor w,
                           struct tensor x, const uint8_t *xq, int div, float *y, int64_t y_stride)
{
    bool plain = is_plain(w.type), single = v->t[1].ne[1] == 1;
    expert_args a = { (const uint8_t *)w.data,
                      quant_row_bytes(w.type, w.ne[0]),
                      0,
                      (int)w.ne[1],
                      (int)w.ne[0],
                      w.type,
                      plain ? (const uint8_t *)x.data : xq,
                      plain ? x.stride * (int64_t)sizeof(float) : x_row_bytes(w.ne[0]),
                      div,
                      y,
                      y_stride,
                      single ? NULL : s->to.list,
                      v->moe.expert,
                      v->moe.slot,
                      s->to.n_chunk,
                      s->to.chunk,
                      c->tab,
                      0,
                      0,
                      c->eight };

    a.expert_bytes = w.pitch * a.row_bytes;
    for (a.base = 0; a.base < s->most; a.base += GRID_Y) {
        a.most = s->most - a.base < GRID_Y ? s->most - a.base : GRID_Y;
        cuda_used(c, plain ? GEMM_EXPERTS_FLOAT : GEMM_EXPERTS_STORED);
        if (plain)
            plain_product(c, &a);
        else if (cuda_is_common(w.type))
            cuda_expert_common(c, &a, single ? 1 : SHARE);
        else
            cuda_expert_rare(c, &a);
    }
}

void cuda_mix(struct cuda *c, struct tensor y, struct tensor weight, const float *out, int64_t stride)
{
    LAUNCH(c, mix_experts, dim3((unsigned)y.ne[1], (unsigned)ceil_div(y.ne[0], 256)), 256, 0, (float *)y.data, y.stride,
           (const float *)weight.data, weight.stride, out, stride, (int)weight.ne[0], (int)y.ne[0]);
}

void cuda_moe_sum(struct cuda *c, const struct node *v)
{
    cuda_mix(c, v->t[0], v->t[2], (const float *)v->t[1].data, v->t[1].stride);
}

/* second: chunks were made before the launch before. */
static void launch_tiles(struct cuda *c, const struct space *s, struct tile_args *a, bool second)
{
    const int kernel = kernel_for(s, a->job[0].type);

    cuda_used(c, kernel);
    switch (kernel) {
    case GEMM_EXPERTS_R17_COLUMNS:
    case GEMM_EXPERTS_R17_COLUMNS_A16:
        cuda_expert_columns(c, a, s->columns, s->most, second);
        break;
    case GEMM_EXPERTS_R64_A8_WGMMA:
        cuda_r64_a8(c, a, s->most);
        break;
    case GEMM_EXPERTS_R64_A16_WGMMA:
        cuda_r64_a16(c, a, s->most);
        break;
    case GEMM_EXPERTS_R17_A8_MMA:
        cuda_r17_a8(c, a, s->most);
        break;
    default:
        cuda_tile(c, a, s->most);
        break;
    }
}

/* Rounds x for products with matrices of this type; id, slot: rows of pairs, some of which may not be there. */
static void round_for(struct cuda *c, const struct space *s, uint8_t *to, int type, struct tensor x, const int *id,
                      const int *slot)
{
    switch (kernel_for(s, type)) {
    case GEMM_EXPERTS_R64_A8_WGMMA:
        cuda_round_r64_a8(c, to, x, id, slot);
        break;
    case GEMM_EXPERTS_R64_A16_WGMMA:
        cuda_round_r64_a16(c, to, x);
        break;
    case GEMM_EXPERTS_R17_A8_MMA:
        cuda_round_r17_a8(c, to, x);
        break;
    default:
        cuda_quantise(c, to, x);
        break;
    }
}

/* What first products give: those of gate and up together can be activated, and rounded where a tile has all that share
 * a scale, which are more of 8 bits. */
static enum tile_out first_products(const struct cuda *c, const struct space *s, const struct op_moe &m, bool adapters)
{
    if (adapters || (m.gate.data != NULL && (m.gate.type != m.up.type || m.gate.pitch != m.up.pitch)))
        return TILE_FLOATS;
    if (!c->eight)
        return TILE_ACT_ROUNDED;
    return s->columns > 0 || kernel_for(s, m.up.type) == GEMM_EXPERTS_R64_A8_WGMMA ? TILE_ACT : TILE_FLOATS;
}

static void one_product(struct cuda *c, const struct space *s, struct tile_args *a, struct tensor w, float *y,
                        int64_t stride, bool second)
{
    a->n = 1;
    a->job[0] = mv_job_of(w, y, stride);
    a->out = TILE_FLOATS;
    a->expert_bytes = w.pitch * quant_row_bytes(w.type, w.ne[0]);
    launch_tiles(c, s, a, second);
}

/* Gate, up, activation and rounding, at once where they can be; then down. rounded: the rows of x are. */
static void moe_tiles(struct cuda *c, const struct space *s, const struct node *v, float *out, int64_t out_stride,
                      bool rounded)
{
    const struct op_moe &m = v->moe;
    const int64_t pairs = v->t[1].ne[1] * m.n_used, ff = m.up.ne[1];
    const bool gated = m.gate.data != NULL;
    const enum tile_out first = first_products(c, s, m, adapted(v));
    struct tile_args a = {};

    if (!rounded)
        round_for(c, s, s->xq, m.up.type, v->t[1], NULL, NULL);
    a.k = (int)m.up.ne[0];
    a.x = s->xq;
    a.x_bytes = x_row_bytes(a.k);
    a.div = m.n_used;
    a.gather = true;
    a.list = s->to.list;
    a.chunk = s->to.chunk;
    a.n_chunk = s->to.n_chunk;
    a.tab = c->tab;
    if (first != TILE_FLOATS) {
        if (gated)
            a.job[a.n++] = mv_job_of(m.gate, s->hid, ff);
        a.job[a.n++] = mv_job_of(m.up, s->hid, ff);
        a.expert_bytes = m.up.pitch * quant_row_bytes(m.up.type, m.up.ne[0]);
        a.out = first;
        a.act = m.act;
        a.rounded = s->hq;
        launch_tiles(c, s, &a, false);
    } else {
        one_product(c, s, &a, m.up, s->hid, ff, false);
        if (gated && kernel_for(s, m.gate.type) != kernel_for(s, m.up.type))
            round_for(c, s, s->xq, m.gate.type, v->t[1], NULL, NULL);
        if (gated)
            one_product(c, s, &a, m.gate, s->gate, ff, false);
        cuda_activate(c, v, s->hid, gated ? s->gate : NULL);
    }
    a.gather = first != TILE_ACT_ROUNDED;
    if (a.gather)
        round_for(c, s, s->hq, m.down.type, (struct tensor){ QUANT_f32, { ff, pairs, 1 }, ff, 0, s->hid, false },
                  m.expert, m.slot);
    a.k = (int)m.down.ne[0];
    a.x = s->hq;
    a.x_bytes = x_row_bytes(a.k);
    a.div = 1;
    one_product(c, s, &a, m.down, out, out_stride, true);
    cuda_adapt_down(c, v, out, out_stride, s->hid);
}

/* Whether chunks of few columns are for these matrices. */
static void choose_columns(struct cuda *c, struct space *s, const struct op_moe &m)
{
    s->columns = on_tiles(m, s->product.rows) ? cuda_moe_columns(c, &m, s->product.pairs) : 0;
    for (int i = 0; i < s->product.n_types && s->columns > 0; i++)
        if (kernel_for(s, s->types[i]) > GEMM_EXPERTS_R17_COLUMNS_A16)
            s->columns = 0;
    if (s->columns == 0)
        return;
    s->share = s->columns;
    s->most = most_chunks(s->product.pairs, s->product.n_expert, s->share);
}

static struct space open_space(struct cuda *c, const struct node *v)
{
    struct space s = cut_space(v, c->ws);

    s.product.eight = c->eight;
    s.product.sm = c->sm;
    s.product.only = c->only;
    choose_columns(c, &s, v->moe);
    return s;
}

static void sort_pairs(struct cuda *c, const struct space *s, const struct op_moe &a)
{
    LAUNCH(c, list_pairs, 1, 1024, 0, a.expert, a.slot, (int)s->product.pairs, (int)a.up.ne[2], s->share, s->far,
           s->to);
}

bool cuda_is_moe_columns(struct cuda *c, const struct node *v)
{
    return open_space(c, v).columns > 0;
}

void cuda_moe_columns_fused(struct cuda *c, const struct moe_r2_16 *m)
{
    const struct node *v = m->moe;
    const struct space s = open_space(c, v);
    const choice_args choice = choice_of(m->route);
    const bool few = choice.r.n_expert <= CHOICE_EXPERTS / 2;
    const auto choose =
        c->eight ? (few ? choose_pairs<CHOICE_EXPERTS / 64, true> : choose_pairs<CHOICE_EXPERTS / 32, true>)
                 : (few ? choose_pairs<CHOICE_EXPERTS / 64, false> : choose_pairs<CHOICE_EXPERTS / 32, false>);
    const int rows = (int)v->t[1].ne[1];
    shared_gates shared = {};

    if (m->sh_down != NULL)
        shared = { (const float *)m->sh_gate->t[0].data, (const float *)m->sh_up->t[0].data, s.shared,
                   m->sh_up->t[0].stride, (int)m->sh_up->t[0].ne[0] };
    launch_early(c, "choose_pairs", choose, dim3(1 + (m->sh_down != NULL ? (unsigned)rows : 0)), 1024, 0, choice, rows,
                 s.share, s.to, shared);
    if (m->sh_down != NULL)
        cuda_moe_shared(c, m, s.shared);
    moe_tiles(c, &s, v, s.out, v->moe.down.ne[1], true);
    cuda_moe_mix(c, m, s.out);
}

void cuda_moe(struct cuda *c, const struct node *v)
{
    if (cuda_may(c, GEMM_EXPERTS_R2_16) && cuda_is_moe_r2_16(v)) {
        cuda_moe_r2_16(c, v);
        cuda_used(c, GEMM_EXPERTS_R2_16);
        return;
    }
    const struct op_moe &a = v->moe;
    const struct tensor &y = v->t[0], &x = v->t[1];
    struct space s = open_space(c, v);
    int64_t pairs = x.ne[1] * a.n_used, ff = a.up.ne[1];
    struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid, false, 0, 0 };
    bool gated = a.gate.data != NULL, sum = v->op == DEV_OP_moe;

    int on_a8 = 0;
    s.for_wgmma = false;
    for (int i = 0; i < s.product.n_types; i++) {
        const int kernel = kernel_for(&s, s.types[i]);

        on_a8 += kernel == GEMM_EXPERTS_R64_A8_WGMMA;
        s.for_wgmma |= kernel == GEMM_EXPERTS_R64_A8_WGMMA || kernel == GEMM_EXPERTS_R64_A16_WGMMA;
    }
    if (on_a8 == s.product.n_types)
        s.share = R64_A8_COLUMNS;
    float *out = sum ? s.out : (float *)y.data;
    int64_t out_stride = sum ? y.ne[0] : y.stride;

    if (x.ne[1] > 1)
        sort_pairs(c, &s, a);
    else
        s.most = a.n_used;
    if (on_tiles(a, x.ne[1])) {
        moe_tiles(c, &s, v, out, out_stride, false);
    } else {
        if (!is_plain(a.up.type) || (gated && !is_plain(a.gate.type)))
            cuda_quantise(c, s.xq, x);
        if (gated)
            expert_product(c, &s, v, a.gate, x, s.xq, a.n_used, s.gate, ff);
        expert_product(c, &s, v, a.up, x, s.xq, a.n_used, s.hid, ff);
        cuda_activate(c, v, s.hid, gated ? s.gate : NULL);
        if (!is_plain(a.down.type))
            cuda_quantise(c, s.hq, hid);
        expert_product(c, &s, v, a.down, hid, s.hq, 1, out, out_stride);
        cuda_adapt_down(c, v, out, out_stride, s.hid);
    }
    if (sum)
        cuda_mix(c, y, a.weight, out, out_stride);
}
