/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r2_16.cu - mixture of experts for 2 to 16 tokens.
 *
 * With 2 to 16 tokens most experts get one token, so each warp computes one (expert, token) pair (gemv_pair.cuh).
 * Tokens that share an expert share its weights through L2. A task of the gate and up products is 32 rows of each,
 * whose segments four warps share; its block picks the experts of its token itself, and blocks of their own store the
 * choices. In the down product a warp has one expert, and a block all experts of a token, which it adds up. Sums are
 * those of gemm/sums.cuh, those over experts as mix_experts has them. With 8-bit activations a scale spans more
 * elements than a task has: if a group does not hold all of them, a kernel in between quantises. In common shapes
 * (EVEN) a warp has one whole segment of each strip, which keeps its loop short: the kernel is bound by
 * instructions. */
#include "kernels/moe/moe_r2_16_up.cuh"
#include "kernels/moe/moe_r2_16_down.cuh"

/* grid: rows. Where others have to know before the first products begin. */
__global__ void __launch_bounds__(UP_WARPS * 32) choose_rows(const __grid_constant__ choice_args a)
{
    __shared__ choice_space s;
    __shared__ int chosen[CHOICE_USED];

    wait_for_inputs();
    choose_row(s, a, blockIdx.x, chosen, true);
}

/* What pairs give, in a row's sum, with the shared expert and the residual: mix_pairs() of outputs in memory. */
struct mix_args {
    const float *out, *weight, *shared, *open; /* shared NULL: there is none; open NULL: it counts fully */
    float *y, *res;                            /* res NULL: none */
    int64_t os, ws, ss, ps, ys, rs;
    float scale;
    int n_used, n;
};

/* grid: 256 outputs, row. */
__global__ void __launch_bounds__(256) mix_rows(const __grid_constant__ mix_args a)
{
    const int row = blockIdx.y, at = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;

    wait_for_inputs();
    if (at >= a.n)
        return;
#pragma unroll 4
    for (int e = 0; e < a.n_used; e++)
        sum = __fmaf_rn(a.weight[row * a.ws + e], a.out[((int64_t)row * a.n_used + e) * a.os + at], sum);
    if (a.shared != NULL)
        sum = __fmaf_rn(a.open != NULL ? sigmoid(a.open[row * a.ps]) : 1.0f, a.shared[row * a.ss + at], sum);
    a.y[row * a.ys + at] = sum;
    if (a.res != NULL)
        a.res[row * a.rs + at] = __fmaf_rn(a.scale, sum, a.res[row * a.rs + at]);
}

/* ---- host ---- */

/* Working memory, cut up; shared: the shared expert's rounded rows, no longer than those of x; gate where the formats
 * of both differ or adapters come between, hid then or where it is rounded by another launch; out of a sum with
 * adapters. */
struct space {
    uint8_t *xq, *hq, *shared;
    float *gate, *hid, *out;
    size_t bytes;
};

static bool gates_alike(const struct op_moe &m)
{
    return m.gate.data == NULL || m.gate.type == m.up.type;
}

/* First products go to memory before they are activated. */
static bool first_apart(const struct node *v)
{
    return !gates_alike(v->moe) || adapted(v);
}

static struct space cut_space(const struct node *v, uint8_t *at)
{
    const struct op_moe &a = v->moe;
    const int64_t n = v->t[1].ne[1], pairs = n * a.n_used, ff = a.up.ne[1];
    struct space s = {};
    auto take = [&](size_t bytes) {
        uint8_t *p = at + s.bytes;

        s.bytes += round_up(bytes, 256);
        return p;
    };

    s.xq = take((size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.hq = take((size_t)(x_row_bytes(ff) * pairs));
    s.shared = take((size_t)(x_row_bytes(a.up.ne[0]) * n));
    s.hid = (float *)take((size_t)(pairs * ff) * sizeof(float));
    if (first_apart(v))
        s.gate = (float *)take((size_t)(pairs * ff) * sizeof(float));
    if (adapted(v) && v->op == DEV_OP_moe)
        s.out = (float *)take((size_t)(pairs * a.down.ne[1]) * sizeof(float));
    return s;
}

/* Matrices of a format with code of its own, of which strips begin at multiples of 16 bytes and none is cut short. */
static bool in_strips(struct tensor w)
{
    return cuda_is_common(w.type) && w.ne[1] % UNIT == 0 && w.ne[0] <= MOE_R2_16_K && (uintptr_t)w.data % 16 == 0 &&
           w.pitch * quant_row_bytes(w.type, w.ne[0]) % 16 == 0;
}

bool cuda_is_moe_r2_16(const struct node *v)
{
    const struct op_moe &a = v->moe;

    return v->t[1].ne[1] > 1 && v->t[1].ne[1] <= R2_16_MAX && in_strips(a.up) && in_strips(a.down) &&
           (a.gate.data == NULL || in_strips(a.gate));
}

size_t cuda_moe_r2_16_ws(const struct node *v)
{
    return cut_space(v, NULL).bytes;
}

/* Nothing where rows do not come so. */
template <int TYPE> static void box_of(struct cuda *c, CUtensorMap *box, const struct expert_matrix &m, int rows)
{
    if (m.w != NULL && rows_come(stage_of<TYPE>::BYTES, m.row_bytes) == ROWS_BOXED)
        make_box<TYPE>(c, box, m.w, m.row_bytes, m.expert_bytes, rows);
}

/* What a block can have beside what its kernel always takes. */
static size_t most_smem(struct cuda *c)
{
    return (size_t)cuda_attn_smem(c) - OTHER_SMEM;
}

template <int TYPE> static void launch_up_of(struct cuda *c, struct up_args *a)
{
    const int sides = 1 + a->gated, tasks = a->pairs * (a->ff / UNIT);
    const size_t tables = TYPE == QUANT_iq3_s ? sizeof(copied_tables<UP_COPIES>) : 0;
    const size_t most = most_smem(c) - tables, two = BLOCK_SMEM - tables; /* so that there are two */
    const size_t sums = (size_t)task_floats(a->k, sides) * sizeof(float);
    int at_once = 1;
    const auto bytes = [&](int each) { /* of a block with `each` tasks of a group */
                                       const int warps = at_once * sides * a->ways;

                                       return (size_t)(rows_room(at_once, a->k) + warps * warp_bytes<TYPE>()) +
                                              (size_t)(at_once * each) * sums;
    };

    while (a->ways > 1 && bytes(1) > most)
        a->ways /= 2;
    const int group = sides * a->ways;
    const size_t share = bytes(1) > two || most < two ? most : two;
    at_once = UP_WARPS / group;
    while (at_once > 1 && bytes(1) > share)
        at_once--;
    a->each = (int)ceil_div(tasks, (share > two ? 1 : BLOCKS) * c->sms * at_once);
    while (a->each > 1 && (a->each > MOST_TASKS || bytes(a->each) > share))
        a->each--;
    for (int i = 0; i < 2; i++)
        box_of<TYPE>(c, &a->box[i], a->m[i], a->ff);
    if (a->each % SHARE == 0 && a->ff / UNIT % SHARE == 0)
        a->hid = NULL;
    const int blocks = (int)ceil_div(tasks, a->each * at_once), left = (share > two ? 1 : BLOCKS) * c->sms - blocks;
    if (a->choice.logits != NULL ||
        (c->eight && a->sh_gate != NULL)) /* all are there at once, if there is room for one */
        a->keepers = left < 1 ? 1 : left < a->rows ? left : a->rows;
    const bool even = a->k == a->ways * 512 && a->n_used * (a->ff / UNIT) % (a->each * at_once) == 0;
    launch_early(c, "up_pairs",
                 even ? (c->eight ? up_pairs<TYPE, true, true> : up_pairs<TYPE, false, true>)
                      : (c->eight ? up_pairs<TYPE, true, false> : up_pairs<TYPE, false, false>),
                 dim3((unsigned)(a->keepers + blocks)), (unsigned)(at_once * group * 32), bytes(a->each), *a);
}

/* Rows of pairs, rounded to 8 bits, without waiting for the launch before to have left. */
static void round_pairs(struct cuda *c, const struct up_args *a)
{
    struct fused_args f = {};

    f.a.k = a->ff;
    f.a.nx = a->pairs;
    f.a.eight = true;
    f.mode = IN_PLAIN;
    f.x = a->hid;
    f.x_stride = a->ff;
    f.rounded = a->rounded;
    cuda_fused_round(c, &f);
}

/* to = silu(gate) up, and the same rounded; to may be up. */
static void round_gated(struct cuda *c, uint8_t *rounded, struct tensor to, struct tensor gate, struct tensor up)
{
    struct fused_args f = {};

    f.a.k = (int)up.ne[0];
    f.a.nx = (int)up.ne[1];
    f.a.eight = c->eight;
    f.mode = IN_GLU;
    f.x = (const float *)gate.data;
    f.x_stride = gate.stride;
    f.z = (const float *)up.data;
    f.z_stride = up.stride;
    f.floats = (float *)to.data;
    f.floats_stride = to.stride;
    f.rounded = rounded;
    cuda_fused_round(c, &f);
}

static void launch_up(struct cuda *c, struct up_args *a)
{
    const int segments = row_segments(a->k);

    a->ways = segments < 2 ? 1 : segments < 4 ? 2 : 4;
    a->tab = c->tab;
    switch (a->m[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_up_of<QUANT_##name>(c, a); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
    if (c->eight && a->hid != NULL)
        round_pairs(c, a);
}

template <int TYPE> static void launch_down_of(struct cuda *c, struct down_args *a, int rows)
{
    const int experts = a->n_used + (a->m[1].w != NULL), k = a->sh_k > a->k ? a->sh_k : a->k, all = a->n / STRIP;
    const auto bytes = [&](int warps) { return (size_t)(rows_room(warps, k) + warps * warp_bytes<TYPE>()); };
    int warps = experts < DOWN_WARPS ? experts : (int)DOWN_WARPS;
    size_t sums = 0;

    a->strips = 1;
    while (a->strips < MOST_STRIPS && rows * ceil_div(all, a->strips) > BLOCKS * c->sms)
        a->strips++;
    if (a->out == NULL)
        sums = (size_t)(a->n_used + 1) * (size_t)(a->strips * STRIP + 1) * sizeof(float);
    while (warps > 1 && bytes(warps) + sums > most_smem(c))
        warps--;
    for (int i = 0; i < 2; i++)
        box_of<TYPE>(c, &a->box[i], a->m[i], a->n);
    const bool even = a->k == 512 && (a->m[1].w == NULL || a->sh_k == 512) && warps == experts;
    launch_early(c, "down_pairs",
                 even ? (c->eight ? down_pairs<TYPE, true, true> : down_pairs<TYPE, false, true>)
                      : (c->eight ? down_pairs<TYPE, true, false> : down_pairs<TYPE, false, false>),
                 dim3((unsigned)ceil_div(all, a->strips), (unsigned)rows), (unsigned)warps * 32, bytes(warps) + sums,
                 *a);
}

static void launch_down(struct cuda *c, struct down_args *a, int rows)
{
    a->tab = c->tab;
    switch (a->m[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_down_of<QUANT_##name>(c, a, rows); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
}

static struct up_args up_of(const struct op_moe &m, const struct space &s, int rows)
{
    struct up_args a = {};

    a.m[0] = expert_matrix_of(m.gate.data != NULL ? m.gate : m.up);
    a.m[1] = expert_matrix_of(m.up);
    a.expert = m.expert;
    a.slot = m.slot;
    a.x = s.xq;
    a.rounded = s.hq;
    a.hid = s.hid;
    a.rows = rows;
    a.pairs = rows * m.n_used;
    a.n_used = m.n_used;
    a.k = (int)m.up.ne[0];
    a.ff = (int)m.up.ne[1];
    a.how = m.act;
    a.gated = m.gate.data != NULL;
    return a;
}

static struct down_args down_of(const struct op_moe &m, struct tensor w, const uint8_t *x)
{
    struct down_args d = {};

    d.m[0] = expert_matrix_of(w);
    d.expert = m.expert;
    d.slot = m.slot;
    d.n_used = m.n_used;
    d.k = (int)w.ne[0];
    d.n = (int)w.ne[1];
    d.x = x;
    return d;
}

/* First products of the routed experts, where formats differ or adapters come between. */
static void up_apart(struct cuda *c, const struct space &s, const struct node *v, int rows)
{
    const struct op_moe &m = v->moe;
    const int64_t ff = m.up.ne[1], pairs = (int64_t)rows * m.n_used;
    const struct tensor hid = { QUANT_f32, { ff, pairs, 1 }, ff, 0, s.hid, false, 0, 0 };

    for (int i = m.gate.data == NULL; i < 2; i++) {
        struct down_args d = down_of(m, i == 0 ? m.gate : m.up, s.xq);

        d.alike = true;
        d.out = i == 0 ? s.gate : s.hid;
        d.os = ff;
        launch_down(c, &d, rows);
    }
    if (adapted(v) && m.gate.data != NULL && m.act == OP_SILU && m.slot == NULL) {
        const struct adapt_experts added = { { s.gate, s.hid, NULL },     ff,      ff, v->t[1].ne[0], v->t[1].stride,
                                             (const float *)v->t[1].data, m.n_used };
        struct tensor gate = hid;

        gate.data = s.gate;
        cuda_adapt_experts(c, v, &added);
        round_gated(c, s.hq, hid, gate, hid);
        return;
    }
    cuda_activate(c, v, s.hid, m.gate.data != NULL ? s.gate : NULL);
    cuda_quantise(c, s.hq, hid);
}

template <class T> static void sum_of(T *d, struct tensor y, struct tensor weight)
{
    d->y = (float *)y.data;
    d->ys = y.stride;
    d->weight = (const float *)weight.data;
    d->ws = weight.stride;
}

/* How much the shared expert counts, and the residual stream. */
template <class T> static void ends_of(T *d, const struct moe_r2_16 *m)
{
    if (m->open != NULL) {
        d->open = (const float *)m->open->t[0].data;
        d->ps = m->open->t[0].stride;
    }
    if (m->add != NULL) {
        d->res = (float *)m->add->t[0].data;
        d->rs = m->add->t[0].stride;
        d->scale = m->add->f[0];
    }
}

void cuda_moe_r2_16(struct cuda *c, const struct node *v)
{
    const struct op_moe &m = v->moe;
    const struct tensor &y = v->t[0], &x = v->t[1];
    const struct space s = cut_space(v, c->ws);
    const int rows = (int)x.ne[1];

    cuda_quantise(c, s.xq, x);
    if (!first_apart(v)) {
        struct up_args up = up_of(m, s, rows);

        launch_up(c, &up);
    } else {
        up_apart(c, s, v, rows);
    }
    struct down_args down = down_of(m, m.down, s.hq);
    const bool sum = v->op == DEV_OP_moe;
    if (sum && !adapted(v)) {
        sum_of(&down, y, m.weight);
    } else {
        down.out = sum ? s.out : (float *)y.data;
        down.os = sum ? y.ne[0] : y.stride;
    }
    launch_down(c, &down, rows);
    if (!adapted(v))
        return;
    cuda_adapt_down(c, v, down.out, down.os, s.hid);
    if (sum)
        cuda_mix(c, y, m.weight, s.out, y.ne[0]);
}

void cuda_moe_mix(struct cuda *c, const struct moe_r2_16 *m, const float *out)
{
    const struct tensor &y = m->moe->t[0];
    mix_args a = {};

    a.out = out;
    a.os = m->moe->moe.down.ne[1];
    a.n_used = m->moe->moe.n_used;
    a.n = (int)a.os;
    sum_of(&a, y, m->route->t[0]);
    ends_of(&a, m);
    if (m->sh_down != NULL) {
        a.shared = (const float *)m->sh_down->t[0].data;
        a.ss = m->sh_down->t[0].stride;
    }
    launch_early(c, "mix_rows", mix_rows, dim3((unsigned)ceil_div(a.n, 256), (unsigned)y.ne[1]), 256, 0, a);
}

void cuda_moe_shared(struct cuda *c, const struct moe_r2_16 *m, const uint8_t *rounded)
{
    const struct tensor &w = m->sh_down->t[1], &y = m->sh_down->t[0];
    struct fused_args f = {};

    f.mode = IN_ROUNDED;
    f.a.x = rounded;
    f.a.k = (int)w.ne[0];
    f.a.nx = (int)y.ne[1];
    f.a.eight = c->eight;
    f.a.tab = c->tab;
    add_job(&f.a, w, y);
    cuda_fused_matvec(c, &f);
}

/* The shared expert's second product, in a launch of its own, with what adapters add. */
static void shared_apart(struct cuda *c, const struct moe_r2_16 *m, const struct space &s, int rows)
{
    const struct tensor out = m->sh_down->t[0];
    struct op_moe alone = {};

    alone.n_used = 1;
    struct down_args own = down_of(alone, m->sh_down->t[1], s.shared);
    own.out = (float *)out.data;
    own.os = out.stride;
    launch_down(c, &own, rows);
    if (m->sh_added != NULL)
        (void)cuda_adapt(c, m->sh_added, 1);
}

/* With adapters of the routed experts, whose outputs go to memory. */
static void second_adapted(struct cuda *c, const struct moe_r2_16 *m, const struct space &s, int rows)
{
    const struct op_moe &a = m->moe->moe;
    struct down_args d = down_of(a, a.down, s.hq);

    d.out = s.out;
    d.os = a.down.ne[1];
    launch_down(c, &d, rows);
    cuda_adapt_down(c, m->moe, s.out, d.os, s.hid);
    cuda_moe_mix(c, m, s.out);
}

/* The shared expert is computed in the same launch if its format is that of the others and no adapter comes between. */
static void second_products(struct cuda *c, const struct moe_r2_16 *m, const struct space &s, int rows)
{
    const struct op_moe &a = m->moe->moe;
    struct down_args d = down_of(a, a.down, s.hq);

    sum_of(&d, (m->sum != NULL ? m->sum : m->moe)->t[0], m->route->t[0]);
    if (m->out != NULL)
        d.hand = cuda_hand_over(c);
    if (m->sh_down != NULL) {
        const struct tensor w = m->sh_down->t[1], out = m->sh_down->t[0];

        if (w.type == a.down.type && m->sh_added == NULL && !adapted(m->moe)) {
            d.m[1] = expert_matrix_of(w);
            d.sh_k = (int)w.ne[0];
            d.sh_x = s.shared;
        } else {
            shared_apart(c, m, s, rows);
            d.shared = (const float *)out.data;
            d.ss = out.stride;
        }
    }
    ends_of(&d, m);
    if (adapted(m->moe))
        second_adapted(c, m, s, rows);
    else
        launch_down(c, &d, rows);
}

void cuda_moe_r2_16_fused(struct cuda *c, const struct moe_r2_16 *m)
{
    const struct node *v = m->moe;
    const int rows = (int)v->t[1].ne[1];
    const bool apart = adapted(v), rounds = m->sh_down != NULL && (apart || m->sh_added != NULL);
    const struct space s = cut_space(v, c->ws);
    const choice_args choice = choice_of(m->route);
    struct up_args up = up_of(v->moe, s, rows);

    if (m->out != NULL) { /* the host begins before the device's own products */
        launch_early(c, "choose_rows", choose_rows, dim3((unsigned)rows), UP_WARPS * 32, 0, choice);
        cuda_hand_out(c, m->out);
    } else {
        up.choice = choice;
    }
    if (rounds) /* adapters of the second product take floats */
        round_gated(c, s.shared, m->sh_glu->t[0], m->sh_gate->t[0], m->sh_up->t[0]);
    if (m->sh_down != NULL && !rounds) {
        up.sh_gate = (const float *)m->sh_gate->t[0].data;
        up.sh_up = (const float *)m->sh_up->t[0].data;
        up.sh_stride = m->sh_up->t[0].stride;
        up.sh_rounded = s.shared;
        up.sh_ff = (int)m->sh_up->t[0].ne[0];
    }
    if (apart) {
        cuda_route(c, m->route); /* ends before the next begins, which reads the choice early */
        up_apart(c, s, v, rows);
    } else {
        launch_up(c, &up);
    }
    second_products(c, m, s, rows);
}
