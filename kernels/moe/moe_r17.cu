/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17.cu - mixture of experts for 17 and more tokens: sorts (expert, token) pairs by expert, then grouped GEMM. */
#include "kernels/adapt/adapt.cuh"
#include "kernels/gemm/acts_a8_wgmma.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/acts_a16_wgmma.cuh"

enum { SHARE = 4, GRID_Y = 65535 }; /* pairs of a chunk, in other formats */
static_assert((int)R64_A16_COLUMNS == (int)TILE_COLUMNS, "chunks serve both");

/* Where the lists are. */
struct expert_list {
    int *list, *n_chunk;
    expert_chunk *chunk;
};

/* The matrix of an expert; -1: it is not here. */
static __device__ __forceinline__ int matrix_of(const int *slot, int expert)
{
    return slot == NULL ? expert : slot[expert];
}

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
    for (int e = threadIdx.x; e < n_expert; e += blockDim.x) {
        int n = count[e], at = n > 0 ? atomicAdd(&chunks, (n + share - 1) / share) : 0;

        first[e] = n > 0 ? atomicAdd(&used, n) : 0;
        for (int i = 0; i < n; i += share)
            to.chunk[at++] = (expert_chunk){ e, first[e] + i, n - i < share ? n - i : share };
    }
    __syncthreads();
    each_pair(id, slot, pairs, [=](int p, int e) { to.list[atomicAdd(first + e, 1)] = p; });
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
    uint8_t *xq, *hq;
    float *gate, *hid, *out;
    int *far;
    expert_list to;
    int share, most; /* pairs of a chunk; most chunks */
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
    return gemm_pick(&p, GEMM_EXPERTS_R64_A8_WGMMA);
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
    const size_t other = for_wgmma ? r64_a16_bytes(k, places) : (size_t)(x_row_bytes(k) * n);

    return a8 > other ? a8 : other;
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
    s.most = (int)(pairs < pairs / s.share + n_expert ? pairs : pairs / s.share + n_expert);
    s.for_wgmma = s.share == R64_A16_COLUMNS && pairs >= GEMM_R64_PAIRS * n_expert && all_of(a, GEMM_FORMATS_A16);
    s.xq = (uint8_t *)take(rounded_bytes(s.for_wgmma, a.up.ne[0], n, n));
    s.hq = (uint8_t *)take(rounded_bytes(s.for_wgmma, ff, pairs, (int64_t)s.most * R64_A16_COLUMNS));
    s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.out = (float *)take((size_t)(pairs * a.down.ne[1]) * sizeof(float));
    s.far = (int *)take(2 * (size_t)n_expert * sizeof(int));
    s.to.list = (int *)take((size_t)pairs * sizeof(int));
    s.to.n_chunk = (int *)take(sizeof(int));
    s.to.chunk = (expert_chunk *)take((size_t)(s.most + 1) * sizeof(expert_chunk));
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

    return v->t[1].ne[1] <= GEMM_SLICED_ROWS && r2_16 > r17 ? r2_16 : r17;
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

static struct mv_job job_of(struct tensor w, float *y, int64_t y_stride)
{
    return (struct mv_job){
        (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), y, y_stride, (int)w.ne[1], w.type, 0
    };
}

static void launch_tiles(struct cuda *c, const struct space *s, struct tile_args *a)
{
    const int kernel = kernel_for(s, a->job[0].type);

    cuda_used(c, kernel);
    switch (kernel) {
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
    return kernel_for(s, m.up.type) == GEMM_EXPERTS_R64_A8_WGMMA ? TILE_ACT : TILE_FLOATS;
}

static void one_product(struct cuda *c, const struct space *s, struct tile_args *a, struct tensor w, float *y,
                        int64_t stride)
{
    a->n = 1;
    a->job[0] = job_of(w, y, stride);
    a->out = TILE_FLOATS;
    a->expert_bytes = w.pitch * quant_row_bytes(w.type, w.ne[0]);
    launch_tiles(c, s, a);
}

/* Gate, up, activation and rounding, at once where they can be; then down. */
static void moe_tiles(struct cuda *c, const struct space *s, const struct node *v, float *out, int64_t out_stride)
{
    const struct op_moe &m = v->moe;
    const int64_t pairs = v->t[1].ne[1] * m.n_used, ff = m.up.ne[1];
    const bool gated = m.gate.data != NULL;
    const enum tile_out first = first_products(c, s, m, adapted(v));
    struct tile_args a = {};

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
            a.job[a.n++] = job_of(m.gate, s->hid, ff);
        a.job[a.n++] = job_of(m.up, s->hid, ff);
        a.expert_bytes = m.up.pitch * quant_row_bytes(m.up.type, m.up.ne[0]);
        a.out = first;
        a.act = m.act;
        a.rounded = s->hq;
        launch_tiles(c, s, &a);
    } else {
        one_product(c, s, &a, m.up, s->hid, ff);
        if (gated && kernel_for(s, m.gate.type) != kernel_for(s, m.up.type))
            round_for(c, s, s->xq, m.gate.type, v->t[1], NULL, NULL);
        if (gated)
            one_product(c, s, &a, m.gate, s->gate, ff);
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
    one_product(c, s, &a, m.down, out, out_stride);
    cuda_adapt_down(c, v, out, out_stride, s->hid);
}

/* Rows from, from + 1 .. of a mixture. */
static struct node some_rows(const struct node *v, int64_t from, int64_t n)
{
    struct node some = *v;

    for (int i = 0; i < 2; i++) {
        const int64_t each = i == 0 && v->op == DEV_OP_moe_pairs ? v->moe.n_used : 1;

        some.t[i].data = (float *)v->t[i].data + from * each * v->t[i].stride;
        some.t[i].ne[1] = n * each;
    }
    if (adapted(v))
        some.p[3] = (const struct adapt_term *)v->p[3] + from * v->i[0];
    some.moe.expert += from * v->moe.n_used;
    some.moe.weight.data = (float *)v->moe.weight.data + from * v->moe.weight.stride;
    some.moe.weight.ne[1] = n;
    return some;
}

static bool moe_in_slices(struct cuda *c, const struct node *v)
{
    const int64_t rows = v->t[1].ne[1], slices = cuda_slices(rows);

    for (int64_t s = 0; s < slices; s++) {
        const int64_t from = rows * s / slices;
        const struct node some = some_rows(v, from, rows * (s + 1) / slices - from);

        if (!cuda_is_moe_r2_16(&some))
            return false;
        cuda_moe_r2_16(c, &some);
    }
    return slices > 0;
}

void cuda_moe(struct cuda *c, const struct node *v)
{
    if (cuda_may(c, GEMM_EXPERTS_R2_16) && (moe_in_slices(c, v) || cuda_is_moe_r2_16(v))) {
        if (cuda_slices(v->t[1].ne[1]) == 0)
            cuda_moe_r2_16(c, v);
        cuda_used(c, GEMM_EXPERTS_R2_16);
        return;
    }
    const struct op_moe &a = v->moe;
    const struct tensor &y = v->t[0], &x = v->t[1];
    struct space s = cut_space(v, c->ws);
    int64_t pairs = x.ne[1] * a.n_used, ff = a.up.ne[1];
    struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid, false, 0, 0 };
    bool gated = a.gate.data != NULL, sum = v->op == DEV_OP_moe;

    s.product.eight = c->eight;
    s.product.sm = c->sm;
    s.product.only = c->only;
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
        LAUNCH(c, list_pairs, 1, 1024, 0, a.expert, a.slot, (int)pairs, (int)a.up.ne[2], s.share, s.far, s.to);
    else
        s.most = a.n_used;
    if (on_tiles(a, x.ne[1])) {
        moe_tiles(c, &s, v, out, out_stride);
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
