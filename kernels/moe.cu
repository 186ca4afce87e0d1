/* SPDX-License-Identifier: Apache-2.0 */
/* moe.cu - mixture of experts. */
#include "kernels/choose.cuh"
#include "kernels/few.cuh"
#include "kernels/fused.cuh"
#include "kernels/tile.cuh"
#include "kernels/wide_rows.cuh"

enum { SHARE = 4, GRID_Y = 65535 }; /* pairs of a chunk, in other formats */
enum { WIDE_PAIRS = 8 };                 /* of each expert, on average, from which wide.cuh pays */
static_assert((int)WIDE_COLUMNS == (int)TILE_COLUMNS, "chunks serve both");

/* Where the lists are. */
struct expert_list {
    int          *list, *n_chunk;
    expert_chunk *chunk;
};

/* The matrix of an expert; -1: it is not here. */
static __device__ __forceinline__ int matrix_of(const int *slot, int expert)
{
    return slot == NULL ? expert : slot[expert];
}

/* f(pair, matrix of its expert) for all that have one, by a block; ids are read ahead. */
template <class F>
static __device__ __forceinline__ void each_pair(const int *id, const int *slot, int pairs, F f)
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

/* Lists the pairs by their expert's matrix, by a block; count: of each expert, room for 2 n_expert. The order of experts
 * and of pairs within one decides only who shares reads. */
static __device__ __forceinline__ void list_by_expert(const int *id, const int *slot, int pairs, int n_expert, int share,
                                                      int *count, const expert_list &to)
{
    __shared__ int chunks, used;
    int *first = count + n_expert;

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

/* One block; far: room for counts, where they are many. */
__global__ void __launch_bounds__(1024) list_pairs(const int *id, const int *slot, int pairs, int n_expert, int share,
                                                   int *far, expert_list to)
{
    enum { NEAR = 1024 };
    __shared__ int near[2 * NEAR];

    list_by_expert(id, slot, pairs, n_expert, share, n_expert <= NEAR ? near : far, to);
}

template <int TYPE>
__global__ void __launch_bounds__(256) expert_plain(const __grid_constant__ expert_args a)
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
#define P(name) case QUANT_##name: LAUNCH(c, expert_plain<QUANT_##name>, grid, 256, 0, *a); break;
    P(f32) P(f16) P(bf16) P(f64) P(i8) P(i16) P(i32) P(i64) P(iq6_k)
#undef P
    default: break;
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
    uint8_t      *xq, *hq;
    float        *gate, *hid, *out;
    int          *far;
    expert_list   to;
    int           share, most; /* pairs of a chunk; most chunks */
    bool          wide;        /* rounded rows are those of wide.cuh */
    size_t        bytes;
};

/* All products, or none: the chunks are as wide for all. */
static bool on_tiles(const struct op_moe &a)
{
    return cuda_is_common(a.up.type) && cuda_is_common(a.down.type) && (a.gate.data == NULL || cuda_is_common(a.gate.type));
}

static struct space cut(const struct node *v, unsigned char *at)
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

    s.share = !on_tiles(a) ? (int)SHARE : n <= FEW_ROWS ? (int)FEW_COLUMNS : (int)TILE_COLUMNS;
    s.most = (int)(pairs < pairs / s.share + n_expert ? pairs : pairs / s.share + n_expert);
    s.wide = s.share == WIDE_COLUMNS && pairs >= WIDE_PAIRS * n_expert;
    s.xq = (uint8_t *)take(s.wide ? wide_bytes(a.up.ne[0], n) : (size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.hq = (uint8_t *)take(s.wide ? wide_bytes(ff, (int64_t)s.most * WIDE_COLUMNS) : (size_t)(x_row_bytes(ff) * pairs));
    s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    s.out = (float *)take((size_t)(pairs * a.down.ne[1]) * sizeof(float));
    s.far = (int *)take(2 * (size_t)n_expert * sizeof(int));
    s.to.list = (int *)take((size_t)pairs * sizeof(int));
    s.to.n_chunk = (int *)take(sizeof(int));
    s.to.chunk = (expert_chunk *)take((size_t)(s.most + 1) * sizeof(expert_chunk));
    s.bytes = used;
    return s;
}

size_t cuda_moe_ws(const struct node *v)
{
    return cut(v, NULL).bytes;
}

static void product(struct cuda *c, const struct space *s, const struct node *v, struct tensor w, struct tensor x,
                    const uint8_t *xq, int div, float *y, int64_t y_stride)
{
    bool plain = is_plain(w.type), single = v->t[1].ne[1] == 1;
    expert_args a = { (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), 0, (int)w.ne[1], (int)w.ne[0],
                      w.type, plain ? (const uint8_t *)x.data : xq,
                      plain ? x.stride * (int64_t)sizeof(float) : x_row_bytes(w.ne[0]), div, y, y_stride,
                      single ? NULL : s->to.list, v->moe.expert, v->moe.slot, s->to.n_chunk, s->to.chunk, c->tab, 0, 0 };

    a.expert_bytes = w.pitch * a.row_bytes;
    for (a.base = 0; a.base < s->most; a.base += GRID_Y) {
        a.most = s->most - a.base < GRID_Y ? s->most - a.base : GRID_Y;
        if (plain)
            plain_product(c, &a);
        else if (cuda_is_common(w.type))
            cuda_expert_common(c, &a, single ? 1 : SHARE);
        else
            cuda_expert_rare(c, &a);
    }
}

static void mix(struct cuda *c, struct tensor y, struct tensor weight, const float *out, int64_t stride)
{
    LAUNCH(c, mix_experts, dim3((unsigned)y.ne[1], (unsigned)ceil_div(y.ne[0], 256)), 256, 0, (float *)y.data,
           y.stride, (const float *)weight.data, weight.stride, out, stride, (int)weight.ne[0], (int)y.ne[0]);
}

void cuda_moe_sum(struct cuda *c, const struct node *v)
{
    mix(c, v->t[0], v->t[2], (const float *)v->t[1].data, v->t[1].stride);
}

static struct mv_job matrix(struct tensor w, float *y, int64_t y_stride)
{
    return (struct mv_job){ (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), y, y_stride, (int)w.ne[1],
                            w.type, 0 };
}

static void tiles(struct cuda *c, const struct space *s, struct tile_args *a)
{
    if (s->wide)
        cuda_wide(c, a, s->most);
    else
        cuda_tile(c, a, s->most);
}

/* Gate, up, activation and rounding at once, then down. */
static void moe_tiles(struct cuda *c, const struct space *s, const struct node *v, float *out, int64_t out_stride)
{
    const struct op_moe &m = v->moe;
    const auto round = s->wide ? cuda_round_wide : cuda_quantise;
    struct tile_args a = {};

    round(c, s->xq, v->t[1]);
    a.k = (int)m.up.ne[0];
    a.x = s->xq;
    a.x_bytes = x_row_bytes(a.k);
    a.div = m.n_used;
    a.gather = true;
    a.list = s->to.list;
    a.chunk = s->to.chunk;
    a.n_chunk = s->to.n_chunk;
    a.tab = c->tab;
    a.expert_bytes = m.up.pitch * quant_row_bytes(m.up.type, m.up.ne[0]);
    if (m.gate.data == NULL || (m.gate.type == m.up.type && m.gate.pitch == m.up.pitch)) {
        if (m.gate.data != NULL)
            a.job[a.n++] = matrix(m.gate, NULL, 0);
        a.job[a.n++] = matrix(m.up, NULL, 0);
        a.out = TILE_ACT_ROUNDED;
        a.act = m.act;
        a.rounded = s->hq;
        tiles(c, s, &a);
        a.gather = false;
    } else {
        int64_t pairs = v->t[1].ne[1] * m.n_used, ff = m.up.ne[1];
        struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s->hid };

        a.n = 1;
        a.job[0] = matrix(m.up, s->hid, ff);
        tiles(c, s, &a);
        a.job[0] = matrix(m.gate, s->gate, ff);
        a.expert_bytes = m.gate.pitch * quant_row_bytes(m.gate.type, m.gate.ne[0]);
        tiles(c, s, &a);
        LAUNCH(c, activate, (unsigned)ceil_div(pairs * ff, 256), 256, 0, s->hid, s->gate, pairs * ff, (int)m.act,
               m.expert, m.slot, (int)ff);
        round(c, s->hq, hid);
    }
    a.n = 1;
    a.job[0] = matrix(m.down, out, out_stride);
    a.out = TILE_FLOATS;
    a.expert_bytes = m.down.pitch * quant_row_bytes(m.down.type, m.down.ne[0]);
    a.k = (int)m.down.ne[0];
    a.x = s->hq;
    a.x_bytes = x_row_bytes(a.k);
    a.div = 1;
    tiles(c, s, &a);
}

/* ---- few rows ---- */

static bool gates_alike(const struct op_moe &m)
{
    return m.gate.data == NULL || m.gate.type == m.up.type;
}

/* First and second products of the routed experts: pairs' rounded hidden rows, their outputs. */
static void few_parts(const struct space *s, const struct op_moe &m, float *out, int64_t out_stride, struct few_part *up,
                      struct few_part *down)
{
    const int64_t ff = m.up.ne[1];

    up->n = 1 + (m.gate.data != NULL);
    up->job[0] = few_job_of(m.gate.data != NULL ? m.gate : m.up, NULL, 0);
    up->job[1] = few_job_of(m.up, NULL, 0);
    up->k = (int)m.up.ne[0];
    up->x = s->xq;
    up->list = down->list = s->to.list;
    up->chunk = down->chunk = s->to.chunk;
    up->n_chunk = down->n_chunk = s->to.n_chunk;
    up->most = down->most = s->most;
    up->div = m.n_used;
    up->act = true;
    up->how = m.act;
    up->rounded = s->hq;
    down->n = 1;
    down->job[0] = few_job_of(m.down, out, out_stride);
    down->k = (int)ff;
    down->x = s->hq;
}

static void moe_few(struct cuda *c, const struct space *s, const struct node *v, float *out, int64_t out_stride)
{
    const struct op_moe &m = v->moe;
    const int64_t pairs = v->t[1].ne[1] * m.n_used, ff = m.up.ne[1];
    struct few_args up = {}, down = {};

    cuda_quantise(c, s->xq, v->t[1]);
    up.n = down.n = 1;
    few_parts(s, m, out, out_stride, up.part, down.part);
    if (!gates_alike(m)) {
        struct few_part *u = up.part;

        u->act = false;
        u->job[0] = few_job_of(m.gate, s->gate, ff);
        u->job[1] = few_job_of(m.up, s->hid, ff);
    }
    cuda_few(c, &up);
    if (!up.part[0].act) {
        const struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s->hid };

        LAUNCH(c, activate, (unsigned)ceil_div(pairs * ff, 256), 256, 0, s->hid, s->gate, pairs * ff, (int)m.act,
               m.expert, m.slot, (int)ff);
        cuda_quantise(c, s->hq, hid);
    }
    cuda_few(c, &down);
}

enum { CHOICE_EXPERTS = 512, CHOICE_USED = 10 };

struct choice_args {
    const float    *logits;
    int64_t         ls, ws;
    struct op_route r;
    int            *expert;
    float          *weight;
    int             rows;
    expert_list     to;
};

/* A row's choice, by a warp, in the order of operations of route.cu; a lane has EACH experts. */
template <int EACH>
static __device__ __forceinline__ void choose_row(const choice_args &a, int row, int *expert)
{
    const struct op_route &r = a.r;
    const int lane = threadIdx.x & 31, n = r.n_expert;
    const float *logits = a.logits + row * a.ls;
    float v[EACH], top = -CUDART_INF_F, divisor = 0.0f, sum = 0.0f, p = 0.0f;
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = lane + 32 * j < n ? logits[lane + 32 * j] : -CUDART_INF_F;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int e = lane + 32 * j;
        const float score = r.sigmoid ? sigmoid(v[j]) : v[j];

        top = fmaxf(top, v[j]);
        key[j] = e < n ? key_of(score + (r.bias == NULL ? 0.0f : r.bias[e])) : 0;
    }
    pick_best<EACH>(key, r.n_used, expert);
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
    if (!r.sigmoid) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (lane + 32 * j < n)
                divisor += expf(v[j] - top);
        divisor = warp_sum(divisor);
    }
    __syncwarp();
    if (lane < r.n_used) {
        const float own = logits[expert[lane]];

        p = r.sigmoid ? sigmoid(own) : __fdiv_rn(expf(own - top), divisor);
    }
    for (int k = 0; k < r.n_used; k++)
        sum += __shfl_sync(0xffffffffu, p, k);
    p = r.normalise ? __fdiv_rn(p, fmaxf(sum, 0x1p-14f)) : p;
    if (lane < r.n_used) {
        a.weight[row * a.ws + lane] = __fmul_rn(p, r.scale);
        a.expert[row * r.n_used + lane] = expert[lane];
    }
}

/* One block, a warp a row: who computes what. */
__global__ void __launch_bounds__(FEW_ROWS * 32) choose_rows(const __grid_constant__ choice_args a)
{
    __shared__ int expert[FEW_ROWS * CHOICE_USED], count[2 * CHOICE_EXPERTS];
    const int row = threadIdx.x / 32;

    wait_for_inputs();
    if (row < a.rows) {
        if (a.r.n_expert <= CHOICE_EXPERTS / 2)
            choose_row<CHOICE_EXPERTS / 64>(a, row, expert + row * a.r.n_used);
        else
            choose_row<CHOICE_EXPERTS / 32>(a, row, expert + row * a.r.n_used);
    }
    __syncthreads();
    list_by_expert(expert, NULL, a.rows * a.r.n_used, a.r.n_expert, FEW_COLUMNS, count, a.to);
}

struct mix_args {
    const float *out, *weight, *sh, *open; /* sh NULL: no shared expert; open NULL: it counts fully */
    float       *y, *res;
    int64_t      os, ws, ss, ps, ys, rs;   /* strides: a pair's, the others a row's */
    float        scale;
    int          n_used, n;
};

/* grid: elements, rows. Experts by rank, the shared one, the residual. */
__global__ void __launch_bounds__(128) mix_few(const __grid_constant__ mix_args a)
{
    const int i = blockIdx.x * 128 + threadIdx.x, row = blockIdx.y;
    float sum = 0.0f, v[CHOICE_USED];

    wait_for_inputs();
    if (i >= a.n)
        return;
    const float sh = a.sh != NULL ? a.sh[row * a.ss + i] : 0.0f, open = a.open != NULL ? a.open[row * a.ps] : 0.0f;
    const float res = a.res != NULL ? a.res[row * a.rs + i] : 0.0f;
#pragma unroll
    for (int k = 0; k < CHOICE_USED; k++)
        v[k] = k < a.n_used ? a.out[(int64_t)(row * a.n_used + k) * a.os + i] : 0.0f;
#pragma unroll
    for (int k = 0; k < CHOICE_USED; k++)
        if (k < a.n_used)
            sum = __fmaf_rn(a.weight[row * a.ws + k], v[k], sum);
    if (a.sh != NULL)
        sum = __fmaf_rn(a.open != NULL ? sigmoid(open) : 1.0f, sh, sum);
    a.y[row * a.ys + i] = sum;
    if (a.res != NULL)
        a.res[row * a.rs + i] = __fmaf_rn(a.scale, sum, res);
}

bool cuda_few_moe_fits(const struct node *route, const struct node *moe)
{
    const struct op_route &r = route->route;

    return moe->op == DEV_OP_moe && r.n_expert <= CHOICE_EXPERTS && r.n_used <= CHOICE_USED && r.n_group <= 1 &&
           on_tiles(moe->moe) && gates_alike(moe->moe);
}

void cuda_few_moe(struct cuda *c, const struct few_moe *m)
{
    const struct node *v = m->moe;
    const struct tensor &y = v->t[0], &logits = m->route->t[1], &weight = m->route->t[0];
    const int rows = (int)v->t[1].ne[1], at = m->sh_down != NULL;
    const struct space s = cut(v, c->ws);
    const choice_args choice = { (const float *)logits.data, logits.stride, weight.stride, m->route->route,
                                 (int *)m->route->out, (float *)weight.data, rows, s.to };
    struct few_args up = {}, down = {};
    mix_args mix = { s.out, (const float *)weight.data, NULL, NULL, (float *)y.data, NULL, y.ne[0], weight.stride, 0, 0,
                     y.stride, 0, 0.0f, v->moe.n_used, (int)y.ne[0] };

    launch_early(c, "choose_rows", choose_rows, dim3(1), FEW_ROWS * 32, 0, choice);
    up.n = down.n = 1 + at;
    few_parts(&s, v->moe, s.out, y.ne[0], up.part + at, down.part + at);
    if (at) {
        const struct tensor &hid = m->sh_glu->t[0], &out = m->sh_down->t[0];
        struct few_part *u = up.part, *d = down.part;

        u->n = 2;
        u->job[0] = few_job_of(m->sh_gate->t[1], NULL, 0);
        u->job[1] = few_job_of(m->sh_up->t[1], NULL, 0);
        u->k = up.part[1].k;
        u->nx = d->nx = rows;
        u->x = s.xq;
        u->act = true;
        u->how = OP_SILU;
        u->rounded = (uint8_t *)hid.data;
        d->n = 1;
        d->job[0] = few_job_of(m->sh_down->t[1], (float *)out.data, out.stride);
        d->k = (int)hid.ne[0];
        d->x = u->rounded;
        mix.sh = (const float *)out.data;
        mix.ss = out.stride;
    }
    cuda_few(c, &up);
    cuda_few(c, &down);
    if (m->open != NULL) {
        mix.open = (const float *)m->open->t[0].data;
        mix.ps = m->open->t[0].stride;
    }
    if (m->add != NULL) {
        mix.res = (float *)m->add->t[0].data;
        mix.rs = m->add->t[0].stride;
        mix.scale = m->add->f[0];
    }
    launch_early(c, "mix_few", mix_few, dim3((unsigned)ceil_div(y.ne[0], 128), (unsigned)rows), 128, 0, mix);
}

void cuda_moe(struct cuda *c, const struct node *v)
{
    const struct op_moe &a = v->moe;
    const struct tensor &y = v->t[0], &x = v->t[1];
    struct space s = cut(v, c->ws);
    int64_t pairs = x.ne[1] * a.n_used, ff = a.up.ne[1];
    struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid };
    bool gated = a.gate.data != NULL, sum = v->op == DEV_OP_moe;

    s.wide = s.wide && c->wide;
    float *out = sum ? s.out : (float *)y.data;
    int64_t out_stride = sum ? y.ne[0] : y.stride;

    if (x.ne[1] > 1)
        LAUNCH(c, list_pairs, 1, 1024, 0, a.expert, a.slot, (int)pairs, (int)a.up.ne[2], s.share, s.far, s.to);
    else
        s.most = a.n_used;
    if (x.ne[1] > FEW_ROWS && on_tiles(a)) {
        moe_tiles(c, &s, v, out, out_stride);
    } else if (x.ne[1] > 1 && on_tiles(a)) {
        moe_few(c, &s, v, out, out_stride);
    } else {
        if (!is_plain(a.up.type) || (gated && !is_plain(a.gate.type)))
            cuda_quantise(c, s.xq, x);
        if (gated)
            product(c, &s, v, a.gate, x, s.xq, a.n_used, s.gate, ff);
        product(c, &s, v, a.up, x, s.xq, a.n_used, s.hid, ff);
        LAUNCH(c, activate, (unsigned)ceil_div(pairs * ff, 256), 256, 0, s.hid, gated ? s.gate : NULL, pairs * ff,
               (int)a.act, a.expert, a.slot, (int)ff);
        if (!is_plain(a.down.type))
            cuda_quantise(c, s.hq, hid);
        product(c, &s, v, a.down, hid, s.hq, 1, out, out_stride);
    }
    if (sum)
        mix(c, y, a.weight, out, out_stride);
}
