/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cu - turns recorded nodes into launches: one to one, or fused where a pattern matches. */
#include <string.h>

#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/device/reads.cuh"

size_t cuda_route_ws(const struct node *v);

size_t cuda_ws(const struct node *v)
{
    switch (v->op) {
    case DEV_OP_matmul:
        return cuda_matmul_ws(v->t[1].ne[0], v->t[2].ne[1]);
    case DEV_OP_moe:
    case DEV_OP_moe_pairs:
        return cuda_moe_ws(v);
    case DEV_OP_attn:
        return cuda_attn_ws(v);
    case DEV_OP_route:
        return cuda_route_ws(v);
    case DEV_OP_index_pick:
        return cuda_index_ws(v);
    case DEV_OP_top:
        return cuda_top_ws(v);
    default:
        return cuda_rec_ws(v);
    }
}

/* Products of the same activations that follow each other go together. Returns how many. */
static int matmuls(struct cuda *c, const struct node *v, int n)
{
    struct job job[JOBS];
    int k = 0;

    while (k < n && k < JOBS && v[k].op == DEV_OP_matmul && memcmp(&v[k].t[2], &v[0].t[2], sizeof v->t[2]) == 0) {
        job[k] = (struct job){ v[k].t[1], v[k].t[0] };
        k++;
        if (overlap(v[k - 1].t[0], v[0].t[2]))
            break;
    }
    cuda_matmul(c, job, k, v[0].t[2]);
    return k;
}

/* ---- one row, or few: nodes that go together ---- */

/* Rows that may be read 16 bytes at a time. */
static bool in_quads(struct tensor x)
{
    return (uintptr_t)x.data % 16 == 0 && (x.ne[1] == 1 || x.stride % 4 == 0);
}

/* x: the activations, as large as they are. */
static void start_args(struct cuda *c, struct fused_args *f, struct tensor x)
{
    memset(f, 0, sizeof *f);
    f->a.k = (int)x.ne[0];
    f->a.nx = (int)x.ne[1];
    f->a.eight = c->eight;
    f->a.tab = c->tab;
    f->rounded = c->ws;
}

static void take_input(struct fused_args *f, enum input mode, struct tensor x)
{
    f->mode = mode;
    f->x = (const float *)x.data;
    f->x_stride = x.stride;
}

static bool whole_norm(const struct node *v)
{
    return v->op == DEV_OP_rms_norm && v->i[1] == v->t[1].ne[0] && v->p[0] != NULL && gemm_fuses_norm(v->i[1]) &&
           in_quads(v->t[0]) && in_quads(v->t[1]) && (uintptr_t)v->p[0] % 16 == 0;
}

static void norm_args(struct cuda *c, struct fused_args *f, const struct node *v)
{
    start_args(c, f, v->t[1]);
    take_input(f, IN_NORM, v->t[1]);
    f->w = (const float *)v->p[0];
    f->eps = v->f[0];
    f->floats = v->t[0].data == v->t[1].data ? NULL : (float *)v->t[0].data;
    f->floats_stride = v->t[0].stride;
}

static bool product_of(const struct node *v, struct tensor x)
{
    return v->op == DEV_OP_matmul && same_tensor(v->t[2], x) && gemm_fuses_product(v->t[1].type, x.ne[1], x.ne[0]);
}

/* Floats are multiplied where they lie. */
static bool floats_there(const struct node *v, bool written)
{
    return v->t[1].type != QUANT_f32 || written;
}

/* The node's adapters add to a product of f, whose launch can have it. */
static bool adds_to_job(const struct cuda *c, const struct fused_args *f, const struct node *v, enum input mode)
{
    int type = -1;

    for (int i = 0; i < f->a.n; i++) {
        if (f->a.job[i].type == QUANT_f32) /* whose results warps have that do not wait */
            return false;
        type = (void *)f->a.job[i].y == v->t[0].data ? f->a.job[i].type : type;
    }
    return type >= 0 && cuda_adds_here(c, v, mode, type);
}

/* A norm and the products of its output. */
static int fuse_norm(struct cuda *c, const struct node *v, int n)
{
    struct fused_args f;
    int k = 1;

    if (!whole_norm(v))
        return 0;
    norm_args(c, &f, v);
    while (k < n && f.a.n < JOBS && product_of(&v[k], v->t[0]) && floats_there(&v[k], f.floats != NULL)) {
        add_job(&f.a, v[k].t[1], v[k].t[0]);
        k++;
    }
    if (k == 1 || (f.floats == NULL && read_later(v + k, n - k, v->t[0])))
        return 0;
    struct fused_added added = {};
    while (f.floats != NULL && k < n && added.n < f.a.n && adds_to_job(c, &f, &v[k], IN_READY) &&
           same_tensor(v[k].t[1], v->t[0]))
        added.v[added.n++] = &v[k++];
    cuda_fused_matvec(c, &f, &added);
    return k;
}

/* A product, what adapters add to it if the launch can have that, and the addition of its output to the residual
 * stream. */
static int product_and_add(struct cuda *c, struct fused_args *f, const struct node *v, int n)
{
    struct fused_added added = {};
    int k = 1;

    add_job(&f->a, v[0].t[1], v[0].t[0]);
    if (n > 1 && f->mode == IN_ROUNDED && adds_to_job(c, f, v + 1, IN_ROUNDED))
        added.v[added.n++] = v + k++;
    if (n > k && v[k].op == DEV_OP_add && same_tensor(v[k].t[1], v[0].t[0])) {
        f->res = (float *)v[k].t[0].data;
        f->res_stride = v[k].t[0].stride;
        f->scale = v[k++].f[0];
    }
    cuda_fused_matvec(c, f, &added);
    return k;
}

/* glu or sigmoid_mul, the product of its output, the addition. */
static int fuse_gate(struct cuda *c, const struct node *v, int n)
{
    struct fused_args f;

    if ((v->op != DEV_OP_glu && v->op != DEV_OP_sigmoid_mul) || n < 2 || !gemm_fuses_width(v->t[0].ne[0]) ||
        !product_of(v + 1, v->t[0]) || !floats_there(v + 1, false) || read_later(v + 2, n - 2, v->t[0]) ||
        !in_quads(v->t[0]) || !in_quads(v->t[1]) || (v->op == DEV_OP_glu && !in_quads(v->t[2])))
        return 0;
    const struct tensor &z = v->t[v->op == DEV_OP_glu ? 2 : 1];
    if (z.ne[0] != v->t[0].ne[0])
        return 0;
    start_args(c, &f, v->t[0]);
    take_input(&f, v->op == DEV_OP_glu ? IN_GLU : IN_SIGMOID, v->t[v->op == DEV_OP_glu]);
    f.z = (const float *)z.data;
    f.z_stride = z.stride;
    return 1 + product_and_add(c, &f, v + 1, n - 1);
}

/* The node adds adapters to y, of x unless that is NULL. */
static bool adds_to(const struct node *v, int n, struct tensor y, const struct tensor *x)
{
    return n > 0 && v->op == DEV_OP_adapt && same_tensor(v->t[0], y) && (x == NULL || same_tensor(v->t[1], *x));
}

/* Convolution, delta rule, gated norm, product, of one row with the addition. */
static int fuse_gdn(struct cuda *c, const struct node *v, int n)
{
    const struct node *norm = v + 2, *out = v + 3;
    struct fused_args f;

    if (n < 4 || v->op != DEV_OP_conv || v[1].op != DEV_OP_gdn || v[1].t[1].data != v->t[0].data || v->r.n > FEW_ROWS ||
        read_later(v + 2, n - 2, v->t[0]))
        return 0;
    const struct tensor o = v[1].t[0];
    if (norm->op != DEV_OP_rms_norm_gated || norm->t[1].data != o.data || !gemm_fuses_width(norm->t[0].ne[0]) ||
        !product_of(out, norm->t[0]) || out->t[1].type == QUANT_f32)
        return 0;
    const bool both = adds_to(out + 1, n - 4, out->t[0], &norm->t[0]); /* who takes floats */
    if (read_later(out + 1 + both, n - 4 - both, o) || read_later(out + 1 + both, n - 4 - both, norm->t[0]) ||
        !cuda_fused_gdn(c, v, c->ws, both))
        return 0;
    start_args(c, &f, norm->t[0]);
    f.mode = IN_ROUNDED;
    f.a.x = c->ws;
    const struct op_log &log = v->conv.rec.log;
    const int channels = (int)v->t[1].ne[0];
    f.past = (struct past_move){ v->conv.rec.data,
                                 (const float *)v->t[1].data,
                                 v->r.seq,
                                 v->conv.rec.floats,
                                 v->t[1].stride,
                                 channels,
                                 v->r.logs ? (int)log.width : channels,
                                 v->r.n_seq,
                                 log };
    return 3 + product_and_add(c, &f, out, n - 3);
}

/* A mixture of experts as it is recorded; NULL: not there. */
struct mixture {
    const struct node *norm, *router, *route, *tally, *out, *moe;
    const struct node *up, *gate, *glu, *down, *open; /* of the shared expert */
    const struct node *added[3];                      /* its adapters, of gate, up, down */
    const struct node *in, *sum, *join, *add;         /* join: of the shared expert's output */
    int n;
};

/* The shared expert, if there is one; false: it cannot share a launch with the routed experts. */
static bool find_shared(struct mixture *m, const struct node *v, int n)
{
    const struct tensor &x = m->norm->t[0];

    if (n < 1 || v->op != DEV_OP_matmul)
        return true;
    if (n < 5 || !product_of(v, x) || !product_of(v + 1, x))
        return false;
    m->up = v;
    m->gate = v + 1;
    int k = 2;
    for (int i = 1; i >= 0; i--)
        if (adds_to(v + k, n - k, v[1 - i].t[0], &x))
            m->added[i] = v + k++;
    if (n < k + 3 || v[k].op != DEV_OP_glu || v[k + 1].op != DEV_OP_matmul || !same_tensor(v[k].t[1], v[1].t[0]) ||
        !same_tensor(v[k].t[2], v[0].t[0]) || !same_tensor(v[k + 1].t[2], v[k].t[0]))
        return false;
    m->glu = v + k++;
    m->down = v + k++;
    if (v[0].t[1].type == QUANT_f32 || v[1].t[1].type == QUANT_f32 || m->down->t[1].type == QUANT_f32 ||
        !product_of(m->down, m->glu->t[0]) || !gemm_fuses_width(m->down->t[1].ne[0]) || !in_quads(m->glu->t[0]))
        return false;
    if (adds_to(v + k, n - k, m->down->t[0], &m->glu->t[0]))
        m->added[2] = v + k++;
    if (k < n && product_of(v + k, x))
        m->open = v + k++;
    m->n += k;
    return true;
}

/* The addition of its output to y. */
static bool find_join(struct mixture *m, const struct node *v, int n, struct tensor y)
{
    if (m->down == NULL)
        return true;
    if (n < 1 || v->op != (m->open != NULL ? DEV_OP_add_gated : DEV_OP_add) || !same_tensor(v->t[0], y) ||
        !same_tensor(v->t[1], m->down->t[0]) || (m->open == NULL && v->f[0] != 1.0f) ||
        read_later(v + 1, n - 1, m->up->t[0]) || read_later(v + 1, n - 1, m->gate->t[0]) ||
        read_later(v + 1, n - 1, m->glu->t[0]) || read_later(v + 1, n - 1, m->down->t[0]))
        return false;
    m->join = v;
    m->n++;
    return true;
}

static bool take_node(const struct node **out, struct mixture *m, const struct node *v, int n, int op)
{
    if (m->n >= n || v[m->n].op != op)
        return false;
    *out = v + m->n++;
    return true;
}

/* Norm, router, experts (all here, or some on the host), shared expert, addition. */
static bool find_mixture(struct mixture *m, const struct node *v, int n)
{
    *m = (struct mixture){};
    m->norm = v;
    m->n = 1;
    if (!whole_norm(v) || v->t[0].data == v->t[1].data || !take_node(&m->router, m, v, n, DEV_OP_matmul) ||
        !product_of(m->router, v->t[0]) || !take_node(&m->route, m, v, n, DEV_OP_route))
        return false;
    (void)take_node(&m->tally, m, v, n, DEV_OP_tally);
    bool split = take_node(&m->out, m, v, n, DEV_OP_hand_out);
    (void)take_node(&m->moe, m, v, n, split ? DEV_OP_moe_pairs : DEV_OP_moe);
    if ((split ? !same_tensor(m->out->t[1], v->t[0]) : m->moe == NULL) ||
        (m->moe != NULL && !same_tensor(m->moe->t[1], v->t[0])) || !find_shared(m, v + m->n, n - m->n))
        return false;
    if (split && (!take_node(&m->in, m, v, n, DEV_OP_hand_in) || !take_node(&m->sum, m, v, n, DEV_OP_moe_sum) ||
                  m->sum->t[2].data != m->route->t[0].data))
        return false;
    struct tensor y = split ? m->sum->t[0] : m->moe->t[0];
    if (!find_join(m, v + m->n, n - m->n, y))
        return false;
    if (m->n < n && v[m->n].op == DEV_OP_add && same_tensor(v[m->n].t[1], y))
        m->add = v + m->n++;
    return true;
}

static void fused_up_args(struct cuda *c, struct fused_up *u, const struct mixture *x, const struct op_moe &m)
{
    u->logits = (const float *)x->router->t[0].data;
    u->r = x->route->route;
    u->expert = (int *)x->route->out;
    u->weight = (float *)x->route->t[0].data;
    u->x = c->ws;
    u->k = (int)m.up.ne[0];
    u->routed = (struct expert_up){ expert_matrix_of(m.gate), expert_matrix_of(m.up), (int)m.up.ne[1], m.act,
                                    (float *)(c->ws + cuda_matmul_ws(u->k, 1)) };
    if (x->down != NULL)
        u->sh = (struct expert_up){ expert_matrix_of(x->gate->t[1]), expert_matrix_of(x->up->t[1]),
                                    (int)x->up->t[1].ne[1], OP_SILU, (float *)x->glu->t[0].data };
    u->eight = c->eight;
    u->tab = c->tab;
}

static void fused_down_args(struct cuda *c, struct fused_down *d, const struct mixture *x, const struct op_moe &m)
{
    d->routed = expert_matrix_of(m.down);
    d->n_used = m.n_used;
    d->ff = (int)m.down.ne[0];
    d->n = (int)m.down.ne[1];
    d->y = (float *)(x->sum != NULL ? x->sum->t[0].data : x->moe->t[0].data);
    d->res = x->add != NULL ? (float *)x->add->t[0].data : NULL;
    d->scale = x->add != NULL ? x->add->f[0] : 0.0f;
    if (x->down != NULL) {
        d->sh = expert_matrix_of(x->down->t[1]);
        d->sh_ff = (int)x->down->t[1].ne[0];
        d->sh_hid = (const float *)x->glu->t[0].data;
        d->sh_open = x->open != NULL ? (const float *)x->open->t[0].data : NULL;
    }
    d->eight = c->eight;
    d->tab = c->tab;
}

static bool has_adapters(const struct mixture *x)
{
    return (x->moe != NULL && adapted(x->moe)) || x->added[0] != NULL || x->added[1] != NULL || x->added[2] != NULL;
}

/* What comes between first and second products of one row with adapters, which leave them raw; false: there is no room.
 */
static bool middle_args(struct cuda *c, struct adapt_middle *a, struct fused_up *u, struct fused_down *d,
                        const struct mixture *x, const struct fused_args *f)
{
    const struct node *any = x->moe != NULL && adapted(x->moe) ? x->moe
                             : x->added[0] != NULL             ? x->added[0]
                             : x->added[1] != NULL             ? x->added[1]
                                                               : x->added[2];
    const int n_used = u->r.n_used;
    float *gates = u->routed.hid + (int64_t)n_used * u->routed.ff, *h = gates + (int64_t)n_used * u->routed.ff;

    *a = (struct adapt_middle){};
    a->list = (const struct adapt_term *)any->p[3];
    a->max = any->i[0];
    a->floats = any->i[2];
    a->routed = any == x->moe ? n_used : 0;
    a->used = n_used;
    a->n_in = u->k;
    a->act = u->routed.act;
    a->expert = u->expert;
    a->x = f->floats;
    a->h = h;
    if ((uint8_t *)(h + (int64_t)(n_used + 1) * a->floats) > c->ws + c->ws_cap)
        return false;
    if (any == x->moe) {
        u->routed.raw = true;
        u->routed.gates = gates;
        a->e[0] = (struct adapt_expert){ u->routed.gate.w != NULL ? gates : NULL, u->routed.hid, u->routed.ff, {} };
        for (int i = 0; i < 3; i++)
            a->e[0].part[i] = cuda_adapt_part(x->moe, i);
    }
    if (x->added[0] != NULL || x->added[1] != NULL || x->added[2] != NULL) {
        u->sh.raw = true;
        u->sh.gates = (float *)x->gate->t[0].data;
        a->e[1] = (struct adapt_expert){ u->sh.gates, u->sh.hid, u->sh.ff, {} };
        for (int i = 0; i < 3; i++)
            if (x->added[i] != NULL)
                a->e[1].part[i] = cuda_adapt_part(x->added[i], i);
    }
    a->near = a->max == 1 && a->floats <= NEAR_RANKS;
    d->added = (struct adapt_down){ { a->e[0].part[2], a->e[1].part[2] }, a->list, a->h, a->max, a->floats, a->near };
    return true;
}

/* Several rows with adapters: all experts are here, and the shared one's rows can be rounded with what was added. */
static bool adapters_fit(const struct mixture *x)
{
    return x->out == NULL && (x->glu == NULL || (in_quads(x->gate->t[0]) && in_quads(x->up->t[0])));
}

/* What adapters add to the shared expert's first products, whose nodes follow each other. */
static void adapt_first(struct cuda *c, const struct mixture *x)
{
    const struct node *v = x->added[1] != NULL ? x->added[1] : x->added[0];
    const int n = (x->added[0] != NULL) + (x->added[1] != NULL);

    for (int i = 0; i < n;)
        i += cuda_adapt(c, v + i, n - i);
}

/* More rows than moe_r2_16 has: all experts are here, and nothing is added to them. */
static bool moe_columns_fit(struct cuda *c, const struct mixture *x)
{
    return x->moe->t[1].ne[1] > R2_16_MAX && x->out == NULL && !has_adapters(x) && adapters_fit(x) &&
           cuda_is_moe_columns(c, x->moe);
}

/* A mixture of experts, several rows. */
static int moe_r2_16(struct cuda *c, const struct mixture *x)
{
    const struct moe_r2_16 m = { x->route, x->moe, x->gate,     x->up,  x->glu, x->down,
                                 x->open,  x->add, x->added[2], x->out, x->sum };
    struct fused_args f;

    if (x->moe == NULL || !(cuda_is_moe_r2_16(x->moe) || moe_columns_fit(c, x)) ||
        (has_adapters(x) && !adapters_fit(x)) || (x->glu != NULL && x->gate->t[0].stride != x->up->t[0].stride))
        return 0;
    norm_args(c, &f, x->norm);
    add_job(&f.a, x->router->t[1], x->router->t[0]);
    if (x->open != NULL)
        add_job(&f.a, x->open->t[1], x->open->t[0]);
    if (x->glu != NULL) {
        add_job(&f.a, x->gate->t[1], x->gate->t[0]);
        add_job(&f.a, x->up->t[1], x->up->t[0]);
    }
    cuda_fused_matvec(c, &f);
    adapt_first(c, x);
    if (x->moe->t[1].ne[1] > R2_16_MAX)
        cuda_moe_columns_fused(c, &m);
    else
        cuda_moe_r2_16_fused(c, &m);
    if (x->tally != NULL)
        cuda_tally(c, x->tally);
    return x->n;
}

static bool mixture_fits(const struct cuda *c, const struct mixture *x, const struct op_moe &m)
{
    const struct op_route &r = x->route->route;
    const struct gemm_mixture asked = { r.n_expert,
                                        r.n_used,
                                        r.n_group,
                                        m.up.ne[0],
                                        m.down.ne[0],
                                        x->glu != NULL ? x->glu->t[0].ne[0] : 0,
                                        m.gate.data != NULL ? m.gate.type : -1,
                                        m.up.type,
                                        m.down.type,
                                        c->eight,
                                        c->sm };

    return gemm_fuses_mixture(&asked, x->norm->t[0].ne[1]);
}

static int fuse_moe(struct cuda *c, const struct node *v, int n)
{
    struct fused_args f;
    struct mixture x;

    if (!find_mixture(&x, v, n))
        return 0;
    const struct op_hand *hand = x.in != NULL ? (const struct op_hand *)x.in->p[1] : NULL;
    const struct op_moe &m = x.moe != NULL ? x.moe->moe : hand->moe; /* of the latter, only what experts are like */
    if (!mixture_fits(c, &x, m))
        return 0;
    if (v->t[0].ne[1] > 1)
        return moe_r2_16(c, &x);
    struct fused_up u = {};
    struct fused_down d = {};
    fused_up_args(c, &u, &x, m);
    fused_down_args(c, &d, &x, m);
    if (!cuda_fused_up_fits(&u) || !cuda_fused_down_fits(&d))
        return 0;
    norm_args(c, &f, v);
    struct adapt_middle between;
    if (has_adapters(&x) && (f.floats == NULL || !middle_args(c, &between, &u, &d, &x, &f)))
        return 0;
    add_job(&f.a, x.router->t[1], x.router->t[0]);
    if (x.open != NULL)
        add_job(&f.a, x.open->t[1], x.open->t[0]);
    cuda_fused_matvec(c, &f);

    if (hand != NULL) {
        u.slot = hand->here;
        u.hand = cuda_hand_over(c);
        u.floats = f.floats;
    }
    cuda_fused_up(c, &u);
    if (has_adapters(&x)) {
        between.slot = u.slot;
        cuda_adapt_between(c, &between, between.routed + (u.sh.raw ? 1 : 0));
    }

    d.expert = u.expert;
    d.weight = u.weight;
    d.hid = u.routed.hid;
    d.slot = u.slot;
    d.n_expert = x.route->route.n_expert;
    d.hand = u.hand;
    cuda_fused_down(c, &d);
    if (x.tally != NULL)
        cuda_tally(c, x.tally);
    return x.n;
}

/* Attention as it is recorded; gate.data NULL: none; norms, turns, rotations: of queries, then of keys; or NULL. added:
 * adapters of queries, keys and values; both: of the last product there are some, which take its input as floats. */
struct attention {
    const struct node *q, *key, *value, *norms, *turns, *rotations, *store, *attn, *out, *added[3];
    struct tensor qt, gate;
    int width; /* of a head, where there are gates */
    int n, n_added;
    bool both;
};

/* The next node, if it adds adapters to y. */
static void take_added(struct attention *x, const struct node *v, int n, struct tensor y)
{
    if (adds_to(v + x->n, n - x->n, y, NULL))
        x->added[x->n_added++] = v + x->n++;
}

/* The next two nodes, if they are of this kind and work on queries and keys in place. */
static void take_pair(const struct node **out, struct attention *x, const struct node *v, int n, int op)
{
    const struct tensor q = x->qt, k = x->key->t[0];

    if (x->n + 1 >= n || v[x->n].op != op || v[x->n + 1].op != op)
        return;
    const struct node *a = v + x->n, *b = a + 1;
    if (!same_tensor(a->t[0], q) || !same_tensor(b->t[0], k) ||
        (op != DEV_OP_rope && (!same_tensor(a->t[1], q) || !same_tensor(b->t[1], k))))
        return;
    *out = a;
    x->n += 2;
}

/* Norm, products for queries (and their gates), keys and values. */
static bool find_heads(struct attention *x, const struct node *v, int n)
{
    if (n < 6 || !whole_norm(v) || v->t[0].data == v->t[1].data || !product_of(v + 1, v->t[0]))
        return false;
    x->q = v + 1;
    x->qt = x->q->t[0];
    x->n = 2;
    take_added(x, v, n, x->qt);
    const struct node *pick = v + x->n;
    if (x->n + 3 < n && pick->op == DEV_OP_heads_pick) {
        if (pick[1].op != DEV_OP_heads_pick || pick->t[1].data != x->qt.data || pick[1].t[1].data != x->qt.data ||
            pick->i[1] != 2 * pick->i[0] || pick->i[2] != 0 || pick[1].i[2] != pick[1].i[0] ||
            pick[1].i[0] != pick->i[0] || pick[1].i[1] != pick->i[1])
            return false;
        x->qt = pick->t[0];
        x->gate = pick[1].t[0];
        x->n += 2;
        x->width = pick->i[0];
    }
    x->key = v + x->n;
    x->value = v + x->n + 1;
    x->n += 2;
    if (x->n >= n || !product_of(x->key, v->t[0]) || !product_of(x->value, v->t[0]))
        return false;
    take_added(x, v, n, x->key->t[0]);
    take_added(x, v, n, x->value->t[0]);
    return true;
}

/* The norms, turns and rotations are those of heads of this width. */
static bool heads_fit(const struct attention *x, int dim)
{
    const struct node *v = x->norms;

    if (v != NULL && (v[0].i[0] != dim || v[1].i[0] != dim || v[0].i[1] != dim || v[1].i[1] != dim ||
                      v[0].p[0] == NULL || v[1].p[0] == NULL || v[0].f[0] != v[1].f[0]))
        return false;
    v = x->turns;
    if (v != NULL &&
        (v[0].rope.dim != dim || v[0].rope.first != 0 || memcmp(&v[0].rope, &v[1].rope, sizeof v[0].rope) != 0))
        return false;
    v = x->rotations;
    return v == NULL || (v[0].i[0] == dim && v[1].i[0] == dim && op_hadamard_block(dim) >= 32);
}

/* From the norm to the product of what attention gives; nobody else reads what lies between. */
static bool find_attention(const struct cuda *c, struct attention *x, const struct node *v, int n)
{
    const struct node *open = NULL;

    *x = (struct attention){};
    if (!find_heads(x, v, n))
        return false;
    take_pair(&x->norms, x, v, n, DEV_OP_rms_norm);
    take_pair(&x->turns, x, v, n, DEV_OP_rope);
    take_pair(&x->rotations, x, v, n, DEV_OP_hadamard);
    const bool gated = x->gate.data != NULL;
    if (x->n + 3 + gated > n)
        return false;
    x->store = v + x->n++;
    x->attn = v + x->n++;
    open = gated ? v + x->n++ : NULL;
    x->out = v + x->n++;
    const struct op_kv &kv = x->attn->kv;
    const struct tensor y = x->attn->t[0];
    x->both = adds_to(v + x->n, n - x->n, x->out->t[0], &y);
    return x->store->op == DEV_OP_kv_store && same_tensor(x->store->t[0], x->key->t[0]) &&
           same_tensor(x->store->t[1], x->value->t[0]) && x->store->kv.pages == kv.pages &&
           x->attn->op == DEV_OP_attn && same_tensor(x->attn->t[1], x->qt) && cuda_attn_row_fits(c, x->attn) &&
           heads_fit(x, kv.dim_k) &&
           (!gated || (open->op == DEV_OP_sigmoid_mul && same_tensor(open->t[0], y) &&
                       same_tensor(open->t[1], x->gate) && x->width == kv.dim_k && kv.dim_v == kv.dim_k)) &&
           product_of(x->out, y) && x->out->t[1].type != QUANT_f32 && gemm_fuses_width(y.ne[0]) &&
           !read_later(v + x->n, n - x->n, x->qt) && !read_later(v + x->n, n - x->n, x->key->t[0]) &&
           !read_later(v + x->n + x->both, n - x->n - x->both, y) &&
           (!gated || !read_later(v + x->n, n - x->n, x->gate));
}

/* What lies between attention's first products and its last; where the rounded rows are. */
static const uint8_t *launch_attention(struct cuda *c, const struct attention *x)
{
    struct fused_heads h = {};

    h.qg = (const float *)x->q->t[0].data;
    h.k = (const float *)x->key->t[0].data;
    h.v = (const float *)x->value->t[0].data;
    h.qg_stride = (int)x->q->t[0].stride;
    h.k_stride = (int)x->key->t[0].stride;
    h.v_stride = (int)x->value->t[0].stride;
    h.gated = x->gate.data != NULL;
    if (x->norms != NULL) {
        h.q_norm = (const float *)x->norms[0].p[0];
        h.k_norm = (const float *)x->norms[1].p[0];
        h.eps = x->norms[0].f[0];
    }
    if (x->turns != NULL)
        h.rope = x->turns->rope;
    h.hadamard = x->rotations != NULL ? op_hadamard_block(x->rotations->i[0]) : 0;
    return cuda_attn_row(c, &h, x->attn, x->both);
}

/* Attention: norm, products, heads, pages, gate, product, of one row with the addition. */
static int fuse_attn(struct cuda *c, const struct node *v, int n)
{
    struct fused_args f;
    struct attention x = {};

    if (v->t[0].ne[1] > GEMM_ATTN_ROWS || !find_attention(c, &x, v, n))
        return 0;
    norm_args(c, &f, v);
    add_job(&f.a, x.q->t[1], x.q->t[0]);
    add_job(&f.a, x.key->t[1], x.key->t[0]);
    add_job(&f.a, x.value->t[1], x.value->t[0]);
    struct fused_added here = {};
    struct node added[3];
    int late = 0;
    for (int i = 0; i < x.n_added; i++) {
        const struct node *one = x.added[i];

        if (f.floats != NULL && adds_to_job(c, &f, one, IN_READY))
            here.v[here.n++] = one;
        else
            added[late++] = *one;
    }
    cuda_fused_matvec(c, &f, &here);
    for (int i = 0; i < late;)
        i += cuda_adapt(c, added + i, late - i);
    const uint8_t *rounded = launch_attention(c, &x);
    start_args(c, &f, x.attn->t[0]);
    f.mode = IN_ROUNDED;
    f.a.x = rounded;
    return x.n - 1 + product_and_add(c, &f, x.out, n - x.n + 1);
}

static int fuse_add(struct cuda *c, const struct node *v, int n)
{
    struct fused_args f;

    if (n < 2 || v[1].op != DEV_OP_add || !same_tensor(v[1].t[1], v->t[0]) || !product_of(v, v->t[2]) ||
        !gemm_fuses_width(v->t[1].ne[0]) || !in_quads(v->t[2]))
        return 0;
    start_args(c, &f, v->t[2]);
    take_input(&f, IN_PLAIN, v->t[2]);
    return product_and_add(c, &f, v, n);
}

/* By the first operation; of those with the same one, the largest first. */
static const struct {
    int first;
    enum gemm_fusion as;
    int (*fuse)(struct cuda *c, const struct node *v, int n);
} fusions[] = {
    { DEV_OP_rms_norm, GEMM_FUSE_MIXTURE, fuse_moe },  { DEV_OP_rms_norm, GEMM_FUSE_ATTN, fuse_attn },
    { DEV_OP_rms_norm, GEMM_FUSE_NORM, fuse_norm },    { DEV_OP_glu, GEMM_FUSE_GATE, fuse_gate },
    { DEV_OP_sigmoid_mul, GEMM_FUSE_GATE, fuse_gate }, { DEV_OP_conv, GEMM_FUSE_DELTA, fuse_gdn },
    { DEV_OP_matmul, GEMM_FUSE_ADD, fuse_add },
};

/* Launches the first nodes together; how many, or 0. */
static int fuse(struct cuda *c, const struct node *v, int n)
{
    if ((v->op == DEV_OP_conv ? v->r.n : v->t[0].ne[1]) > FEW_ROWS)
        return 0;
    for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++) {
        const int k = v->op == fusions[i].first ? fusions[i].fuse(c, v, n) : 0;

        if (k > 0) {
            c->clock.fused[fusions[i].as] += c->clock.on;
            return k;
        }
    }
    return 0;
}

/* Launches the first nodes as they are; how many. */
static int launch_nodes(struct cuda *c, const struct node *v, int n)
{
    switch (v->op) {
    case DEV_OP_matmul:
        return matmuls(c, v, n);
    case DEV_OP_adapt:
        return cuda_adapt(c, v, n);
    case DEV_OP_embed:
        cuda_embed(c, v);
        break;
    case DEV_OP_kv_store:
        cuda_kv_store(c, v);
        break;
    case DEV_OP_attn:
        cuda_attn(c, v);
        break;
    case DEV_OP_streams_mix:
    case DEV_OP_streams_add:
    case DEV_OP_streams_gate:
        cuda_streams(c, v);
        break;
    case DEV_OP_index_store:
    case DEV_OP_index_pick:
    case DEV_OP_attn_picked:
        cuda_index(c, v);
        break;
    case DEV_OP_conv:
    case DEV_OP_gdn:
    case DEV_OP_kda:
    case DEV_OP_ssm1:
    case DEV_OP_ssm2:
        cuda_rec(c, v);
        break;
    case DEV_OP_route:
        cuda_route(c, v);
        break;
    case DEV_OP_moe:
    case DEV_OP_moe_pairs:
        cuda_moe(c, v);
        break;
    case DEV_OP_moe_sum:
        cuda_moe_sum(c, v);
        break;
    case DEV_OP_hand_out:
        cuda_hand_out(c, v);
        break;
    case DEV_OP_hand_in:
        cuda_hand_in(c, v);
        break;
    case DEV_OP_tally:
        cuda_tally(c, v);
        break;
    case DEV_OP_top:
        cuda_top(c, v);
        break;
    case NODE_COPY:
    case NODE_DONE:
        return cuda_copy(c, v, n);
    case NODE_SEND:
        cuda_send(c, v);
        break;
    case NODE_ZERO:
        cuda_fail(c, cudaMemsetAsync(v->out, 0, v->n, c->stream), "zero");
        break;
    default:
        cuda_elem(c, v);
        break;
    }
    return 1;
}

void cuda_exec(struct cuda *c, const struct node *node, int n, bool captured)
{
    if (c->clock.on)
        cuda_clock_mark(c, node, 0, captured);
    for (int i = 0; i < n; i++)
        if (c->fuse && node[i].op == DEV_OP_adapt && node[i].t[0].ne[1] == 1) {
            cuda_added_begin(c);
            break;
        }
    for (int i = 0, k; i < n && c->bad == cudaSuccess; i += k) {
        k = c->fuse ? fuse(c, &node[i], n - i) : 0;
        k = k > 0 ? k : launch_nodes(c, &node[i], n - i);
        if (c->clock.on)
            cuda_clock_mark(c, &node[i], k, captured);
    }
}
