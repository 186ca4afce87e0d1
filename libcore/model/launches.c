/* SPDX-License-Identifier: Apache-2.0 */
/* launches.c - the operations of each part of a layer, and what they become on a GPU. */
#include "model/launches.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"

/* What a layer, or a part of it, is like. */
enum {
    FIRST = 1 << 0, /* the norm before it is its own: not a second mixer beside another */
    ADDED = 1 << 1, /* an addition to the residual stream, or to the first mixer's output, follows */
    GATED = 1 << 2, /* attention, or a feed-forward with gate and up */
    QK_NORM = 1 << 3,
    ROTARY = 1 << 4,
    ROTATED = 1 << 5,
    ALPHA_BETA = 1 << 6, /* one matrix for both */
    OUT_NORM = 1 << 7,   /* Mamba-2: a norm after the gate */
    DT_NORM = 1 << 8,
    B_NORM = 1 << 9,
    C_NORM = 1 << 10,
    SHARED = 1 << 11,
    OPEN = 1 << 12, /* the shared expert has a gate for each row */
    LATENT = 1 << 13,
    PICKED = 1 << 14, /* some rows have logits, not all */
    SCALED = 1 << 15,
    DIGEST = 1 << 16,
    LAST_ADDS = 1 << 17,    /* the addition follows the part's last product */
    ONE_PIECE = 1 << 18,    /* goes together as a whole */
    NORM_PRODUCT = 1 << 19, /* Mamba-2: the norm goes together with the product after it */
};
enum { DENSE = 1 << 8, EXPERTS = 1 << 9, BEGIN = 1 << 10, END = 1 << 11 }; /* parts, beside enum mixer */

/* Operations of a part that follow each other. fusion: how they go together, if they do; GEMM_ALONE: they never do. `n`
 * products in an entry have the same input. */
struct part_op {
    const char *name;
    int n;
    unsigned when, unless;
    bool each_head;
};
enum { SPAN_OPS = 16 };
struct span {
    unsigned part, when, unless;
    enum gemm_fusion fusion;
    struct part_op op[SPAN_OPS];
};

/* clang-format off */
#define NORM_OF(products) GEMM_FUSE_NORM, { { "rms_norm", 1, FIRST, 0, 0 }, { "matmul", products, 0, 0, 0 } }
#define ADD_AFTER         { "matmul", 1, 0, 0, 0 }, { "add", 1, ADDED, 0, 0 }
#define OP(name, n)       { name, n, 0, 0, 0 }
#define IF(fact, name, n) { name, n, fact, 0, 0 }
#define NOT(fact, name, n) { name, n, 0, fact, 0 }
#define HEADS(name, n)    { name, n, 0, 0, true }
/* clang-format on */
static const struct span spans[] = {
    { BEGIN, 0, 0, GEMM_ALONE, { OP("transfer", 1), OP("embed", 1) } },

    { MIX_ATTN,
      ONE_PIECE,
      0,
      GEMM_FUSE_ATTN,
      { OP("rms_norm", 1), OP("matmul", 3), IF(GATED, "heads_pick", 2), IF(QK_NORM, "rms_norm", 2),
        IF(ROTARY, "rope", 2), IF(ROTATED, "hadamard", 2), OP("kv_store", 1), OP("attn", 1),
        IF(GATED, "sigmoid_mul", 1), ADD_AFTER } },
    { MIX_ATTN, GATED, ONE_PIECE, NORM_OF(1) },
    { MIX_ATTN, 0, ONE_PIECE | GATED, NORM_OF(3) },
    { MIX_ATTN,
      0,
      ONE_PIECE,
      GEMM_ALONE,
      { IF(GATED, "heads_pick", 2), IF(GATED, "matmul", 2), IF(QK_NORM, "rms_norm", 2), IF(ROTARY, "rope", 2),
        IF(ROTATED, "hadamard", 2), OP("kv_store", 1), OP("attn", 1) } },
    { MIX_ATTN, GATED, ONE_PIECE, GEMM_FUSE_GATE, { OP("sigmoid_mul", 1), ADD_AFTER } },
    { MIX_ATTN, 0, ONE_PIECE | GATED, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_MLA, 0, 0, NORM_OF(2) },
    { MIX_MLA,
      0,
      0,
      GEMM_ALONE,
      { OP("rms_norm", 1), HEADS("matmul", 1), HEADS("heads_pick", 1), IF(ROTATED, "hadamard", 2), OP("kv_store", 1),
        OP("attn", 1), HEADS("matmul", 1) } },
    { MIX_MLA, 0, 0, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_GDN, 0, ALPHA_BETA, NORM_OF(4) },
    { MIX_GDN, ALPHA_BETA, 0, NORM_OF(3) },
    { MIX_GDN, ALPHA_BETA, 0, GEMM_ALONE, { OP("heads_pick", 2) } },
    { MIX_GDN, ONE_PIECE, 0, GEMM_FUSE_DELTA, { OP("conv", 1), OP("gdn", 1), OP("rms_norm_gated", 1), ADD_AFTER } },
    { MIX_GDN, 0, ONE_PIECE, GEMM_ALONE, { OP("conv", 1), OP("gdn", 1), OP("rms_norm_gated", 1) } },
    { MIX_GDN, 0, ONE_PIECE, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_KDA, 0, 0, NORM_OF(4) },
    { MIX_KDA,
      0,
      0,
      GEMM_ALONE,
      { OP("matmul", 1), OP("matmul", 1), OP("conv", 1), OP("kda", 1), OP("rms_norm", 1), OP("matmul", 1),
        OP("matmul", 1) } },
    { MIX_KDA, 0, 0, GEMM_FUSE_GATE, { OP("sigmoid_mul", 1), ADD_AFTER } },

    { MIX_SSM1, 0, 0, NORM_OF(1) },
    { MIX_SSM1,
      0,
      0,
      GEMM_ALONE,
      { OP("heads_pick", 1), OP("conv", 1), OP("matmul", 1), IF(DT_NORM, "rms_norm", 1), OP("matmul", 1),
        OP("heads_pick", 2), IF(B_NORM, "rms_norm", 1), IF(C_NORM, "rms_norm", 1), OP("ssm1", 1) } },
    { MIX_SSM1, 0, 0, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },

    { MIX_SSM2, 0, 0, NORM_OF(1) },
    { MIX_SSM2, 0, 0, GEMM_ALONE, { OP("conv", 1), OP("ssm2", 1), IF(OUT_NORM, "glu", 1) } },
    { MIX_SSM2, 0, OUT_NORM, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },
    { MIX_SSM2, NORM_PRODUCT, 0, GEMM_FUSE_NORM, { OP("rms_norm", 1), OP("matmul", 1) } },
    { MIX_SSM2, NORM_PRODUCT, 0, GEMM_ALONE, { IF(ADDED, "add", 1) } },
    { MIX_SSM2, OUT_NORM, NORM_PRODUCT, GEMM_ALONE, { OP("rms_norm", 1) } },
    { MIX_SSM2, OUT_NORM, NORM_PRODUCT, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_CONV, 0, 0, NORM_OF(1) },
    { MIX_CONV, 0, 0, GEMM_ALONE, { OP("mul", 1), OP("conv", 1), OP("mul", 1) } },
    { MIX_CONV, 0, 0, GEMM_FUSE_ADD, { ADD_AFTER } },

    { DENSE, GATED, 0, NORM_OF(2) },
    { DENSE, GATED, 0, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },
    { DENSE, 0, GATED, NORM_OF(1) },
    { DENSE, 0, GATED, GEMM_ALONE, { OP("relu2", 1) } },
    { DENSE, 0, GATED, GEMM_FUSE_ADD, { ADD_AFTER } },

    { EXPERTS,
      ONE_PIECE,
      0,
      GEMM_FUSE_MIXTURE,
      { OP("rms_norm", 1), OP("router", 1), OP("route", 1), OP("moe", 1), IF(SHARED, "matmul", 2), IF(SHARED, "glu", 1),
        IF(SHARED, "matmul", 1), IF(OPEN, "router", 1), IF(OPEN, "add_gated", 1), IF(LAST_ADDS, "add", 1),
        OP("add", 1) } },
    { EXPERTS, 0, ONE_PIECE, GEMM_FUSE_NORM, { OP("rms_norm", 1), OP("router", 1) } },
    { EXPERTS, 0, ONE_PIECE, GEMM_ALONE, { OP("route", 1), IF(LATENT, "matmul", 1), OP("moe", 1) } },
    { EXPERTS, LATENT, ONE_PIECE | SHARED, GEMM_FUSE_ADD, { ADD_AFTER } },
    { EXPERTS, LATENT | SHARED, ONE_PIECE, GEMM_ALONE, { OP("matmul", 1) } },
    { EXPERTS, SHARED | GATED, ONE_PIECE, GEMM_ALONE, { OP("matmul", 2) } },
    { EXPERTS, SHARED | GATED, ONE_PIECE, GEMM_FUSE_GATE, { OP("glu", 1), OP("matmul", 1), IF(LAST_ADDS, "add", 1) } },
    { EXPERTS, SHARED, ONE_PIECE | GATED, GEMM_ALONE, { OP("matmul", 1), OP("relu2", 1) } },
    { EXPERTS, SHARED, ONE_PIECE | GATED, GEMM_FUSE_ADD, { OP("matmul", 1), IF(LAST_ADDS, "add", 1) } },
    { EXPERTS, OPEN, ONE_PIECE, GEMM_ALONE, { OP("router", 1), OP("add_gated", 1) } },
    { EXPERTS, SHARED, ONE_PIECE, GEMM_ALONE, { OP("add", 1) } },
    { EXPERTS, 0, ONE_PIECE | SHARED | LATENT, GEMM_ALONE, { OP("add", 1) } },

    { END, 0, 0, GEMM_ALONE, { IF(PICKED, "rows_pick", 1) } },
    { END, 0, 0, GEMM_FUSE_NORM, { OP("rms_norm", 1), OP("matmul", 1) } },
    { END, 0, 0, GEMM_ALONE, { IF(SCALED, "scale", 1), IF(DIGEST, "top", 1) } },
};
#undef NORM_OF
#undef ADD_AFTER
#undef OP
#undef IF
#undef NOT
#undef HEADS

/* A part of a layer: what it is like, the products after its norm, its last product. */
struct part {
    unsigned part, facts;
    const struct tensor *in[4], *out, *moe; /* moe: of experts, up */
    int n_in, heads;
    int64_t n_embd, rows;
    bool floats; /* its matrices are floats */
    bool shared; /* struct gemm_unit */
};

struct planner {
    const struct model_step_shape *s;
    struct model_step_plan *to;
};

static void add_count(struct model_count *list, int *n, const char *what, int64_t more_n, int64_t more)
{
    int i = 0;

    while (i < *n && strcmp(list[i].what, what) != 0)
        i++;
    assert(i < MODEL_COUNTS);
    if (i == *n)
        list[(*n)++] = (struct model_count){ .what = what };
    list[i].n += more_n;
    list[i].more += more;
}

/* Its launches, `times` over. */
static void add_launches(const struct planner *p, const struct gemm_unit *u, int times)
{
    const struct gemm_launch *l;

    for (int i = 0; (l = gemm_launch_at(i)) != NULL; i++) {
        const int64_t slices = l->sliced ? (u->rows + GEMM_FEW_ROWS - 1) / GEMM_FEW_ROWS : 1;

        if (gemm_launch_is_of(i, u))
            add_count(p->to->kernel, &p->to->n_kernels, l->kernel, times * slices * l->n, times * slices * l->more);
    }
}

static bool fits(const struct tensor *w, int64_t rows, bool float_fits)
{
    return gemm_fuses_product(w->type, rows, w->ne[0]) && (float_fits || w->type != QUANT_f32);
}

/* Whether these operations go together; those that do as a whole are asked about before. */
static bool goes_together(const struct span *s, const struct part *a)
{
    if (s->fusion == GEMM_ALONE || a->rows > GEMM_FEW_ROWS)
        return false;
    switch (s->fusion) {
    case GEMM_FUSE_NORM:
        if ((s->when & NORM_PRODUCT) != 0)
            return true;
        for (int i = 0; i < a->n_in; i++)
            if (!fits(a->in[i], a->rows, (a->facts & PICKED) == 0)) /* picked rows are normalised in place */
                return false;
        return (a->facts & FIRST) != 0 && gemm_fuses_norm(a->n_embd);
    case GEMM_FUSE_GATE:
        return fits(a->out, a->rows, false) && gemm_fuses_width(a->out->ne[0]);
    case GEMM_FUSE_ADD:
        return (a->facts & (ADDED | LAST_ADDS)) != 0 && fits(a->out, a->rows, true) && gemm_fuses_width(a->out->ne[0]);
    default:
        return true;
    }
}

/* An operation of its own; n matrices of floats are as many launches. */
static void add_alone(const struct planner *p, const struct part *a, const struct part_op *o, int times)
{
    const bool router = strcmp(o->name, "router") == 0, product = router || strcmp(o->name, "matmul") == 0;
    const bool floats = router ? a->in[0]->type == QUANT_f32 : a->floats;
    const char *name = o->name;

    if (product)
        name = floats ? "matmul f32" : "matmul";
    else if (strcmp(name, "moe") == 0 && gemm_formats_have(GEMM_FORMATS_FLOAT, a->moe->type))
        name = "moe f32";
    const struct gemm_unit u = {
        .fusion = GEMM_ALONE, .op = name, .rows = a->rows, .eight = p->s->eight, .sm = p->s->sm, .shared = a->shared
    };
    add_launches(p, &u, product && !floats ? times : times * o->n);
}

static void add_span(const struct planner *p, const struct span *s, const struct part *a)
{
    const bool together = p->s->sm != 0 && goes_together(s, a);

    if (s->fusion == GEMM_FUSE_GATE && !together) { /* the product may still take the addition */
        struct span gate = { .fusion = GEMM_ALONE, .op = { s->op[0] } }, rest = { .fusion = GEMM_FUSE_ADD };

        memcpy(rest.op, s->op + 1, (SPAN_OPS - 1) * sizeof rest.op[0]);
        add_span(p, &gate, a);
        add_span(p, &rest, a);
        return;
    }
    for (int i = 0; i < SPAN_OPS && s->op[i].name != NULL; i++) {
        const struct part_op *o = &s->op[i];
        const int times = o->each_head ? a->heads : 1;

        if ((a->facts & o->when) != o->when || (a->facts & o->unless) != 0)
            continue;
        if (strcmp(o->name, "transfer") != 0)
            add_count(p->to->op, &p->to->n_ops, strcmp(o->name, "router") == 0 ? "matmul" : o->name, times * o->n, 0);
        if (!together && p->s->sm != 0)
            add_alone(p, a, o, times);
    }
    if (!together)
        return;
    const bool floats = s->part == EXPERTS ? a->in[0]->type == QUANT_f32 : a->floats;
    const struct gemm_unit u = {
        .fusion = s->fusion, .op = floats ? "f32" : "rounded", .rows = a->rows, .eight = p->s->eight, .sm = p->s->sm
    };

    p->to->fusion[s->fusion].n++;
    add_launches(p, &u, 1);
}

static void add_part(const struct planner *p, const struct part *a)
{
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        const struct span *s = &spans[i];

        if (s->part == a->part && (a->facts & s->when) == s->when && (a->facts & s->unless) == 0)
            add_span(p, s, a);
    }
}

static void set_in(struct part *a, const struct tensor *w)
{
    if (w->data != NULL)
        a->in[a->n_in++] = w;
}

static bool norm_product(const struct arch_plan *p, const struct ssm_weights *w, int64_t rows)
{
    return rows <= GEMM_FEW_ROWS && w->norm != NULL && p->ssm.n_group == 1 && gemm_fuses_norm(p->ssm.inner) &&
           fits(&w->out, rows, false);
}

/* What a mixer goes together as a whole needs. */
static bool mixer_fits(const struct planner *p, const struct arch_plan *a, const struct part *t)
{
    const struct gemm_attn attn = { a->attn.n_head, a->attn.dim_k, a->attn.dim_v, p->s->eight };
    const struct gemm_delta delta = { a->gdn.dim, a->gdn.dim_v, a->gdn.dim_v, a->taps, true, p->s->eight };

    if (t->rows > GEMM_FEW_ROWS || !fits(t->out, t->rows, false) || !gemm_fuses_width(t->out->ne[0]))
        return false;
    if (t->part == MIX_GDN)
        return gemm_fuses_delta(&delta);
    for (int i = 0; i < t->n_in; i++)
        if (!fits(t->in[i], t->rows, true))
            return false;
    return t->part == MIX_ATTN && (t->facts & FIRST) != 0 && gemm_fuses_norm(a->n_embd) && gemm_fuses_attn(&attn);
}

static void set_attn(struct part *t, const struct arch_plan *a, const struct attn_weights *w)
{
    set_in(t, &w->q);
    set_in(t, &w->k);
    set_in(t, &w->v);
    t->out = &w->o;
    t->facts |=
        (a->attn.gated ? GATED : 0u) | (a->attn.qk_norm ? QK_NORM : 0u) | (a->attn.rope != ROPE_NONE ? ROTARY : 0u);
}

static void set_gdn(struct part *t, const struct arch_plan *a, const struct gdn_weights *w)
{
    set_in(t, &w->qkv);
    set_in(t, &w->z);
    if (a->gdn.ba_fused) {
        set_in(t, &w->ba);
    } else {
        set_in(t, &w->alpha);
        set_in(t, &w->beta);
    }
    t->out = &w->out;
    t->facts |= a->gdn.ba_fused ? ALPHA_BETA : 0u;
}

static void set_ssm(struct part *t, const struct arch_plan *a, const struct ssm_weights *w)
{
    set_in(t, &w->in);
    t->out = &w->out;
    if (t->part == MIX_SSM1)
        t->facts |= (a->ssm.norm || w->dt_norm != NULL ? DT_NORM : 0u) |
                    (a->ssm.norm || w->b_norm != NULL ? B_NORM : 0u) | (a->ssm.norm || w->c_norm != NULL ? C_NORM : 0u);
    else
        t->facts |= (w->norm != NULL ? OUT_NORM : 0u) | (norm_product(a, w, t->rows) ? NORM_PRODUCT : 0u);
}

static void set_mixer(struct part *t, const struct arch_plan *a, const struct layer_weights *w)
{
    switch (t->part) {
    case MIX_ATTN:
        set_attn(t, a, &w->attn);
        break;
    case MIX_MLA:
        set_in(t, &w->mla.q);
        set_in(t, &w->mla.kv_a);
        t->out = &w->mla.o;
        break;
    case MIX_GDN:
        set_gdn(t, a, &w->gdn);
        break;
    case MIX_KDA:
        set_in(t, &w->kda.q);
        set_in(t, &w->kda.k);
        set_in(t, &w->kda.v);
        set_in(t, &w->kda.f_a);
        t->out = &w->kda.out;
        break;
    case MIX_CONV:
        set_in(t, &w->conv.in);
        t->out = &w->conv.out;
        break;
    default:
        set_ssm(t, a, &w->ssm);
        break;
    }
}

/* Kernels are counted by the formats of a part's matrices, if these are all of one. */
static void note_formats(const struct planner *p, struct part *t)
{
    const int type = t->out->type;

    t->floats = gemm_formats_have(GEMM_FORMATS_FLOAT, type);
    for (int i = t->part == EXPERTS; i < t->n_in; i++)
        p->to->exact &= t->in[i]->type == type || (t->floats && gemm_formats_have(GEMM_FORMATS_FLOAT, t->in[i]->type));
    p->to->exact &= t->floats || (gemm_formats_have(GEMM_FORMATS_COMMON, type) &&
                                  (!p->s->eight || gemm_formats_have(GEMM_FORMATS_WHOLE, type)));
}

static void add_mixers(const struct planner *p, const struct model *m, int layer)
{
    const unsigned all = m->plan.layer[layer].mixers;
    bool first = true;

    for (unsigned bit = 1; bit <= MIX_CONV; bit <<= 1) {
        struct part t = { .part = bit, .n_embd = m->plan.n_embd, .rows = p->s->rows, .heads = m->plan.attn.n_head };

        if ((all & bit) == 0)
            continue;
        t.facts = (first ? FIRST : 0u) | (!first || all == bit ? ADDED : 0u) | (p->s->rotated ? ROTATED : 0u);
        set_mixer(&t, &m->plan, &m->layer[layer]);
        t.facts |= p->s->sm != 0 && mixer_fits(p, &m->plan, &t) ? ONE_PIECE : 0u;
        note_formats(p, &t);
        add_part(p, &t);
        if (!first) { /* the residual of both */
            const struct part_op add = { .name = "add", .n = 1 };

            add_count(p->to->op, &p->to->n_ops, "add", 1, 0);
            if (p->s->sm != 0)
                add_alone(p, &t, &add, 1);
        }
        first = false;
    }
}

static bool mixture_fits(const struct arch_plan *a, const struct moe_weights *w, int64_t rows)
{
    const struct gemm_mixture mixture = { a->moe.n_expert,
                                          a->moe.n_used,
                                          a->moe.n_group,
                                          a->n_embd,
                                          a->moe.n_ff,
                                          a->moe.n_ff_shared,
                                          w->gate.data != NULL ? w->gate.type : -1,
                                          w->up.type,
                                          w->down.type };
    const bool shared = a->moe.n_ff_shared > 0;

    if (rows > GEMM_FEW_ROWS || a->moe.n_latent > 0 || !gemm_fuses_norm(a->n_embd) || !fits(&w->router, rows, true) ||
        !gemm_fuses_mixture(&mixture, rows))
        return false;
    return !shared || (!a->relu2 && fits(&w->sh_up, rows, false) && fits(&w->sh_gate, rows, false) &&
                       fits(&w->sh_down, rows, false) && gemm_fuses_width(w->sh_down.ne[0]));
}

static void add_experts(const struct planner *p, const struct model *m, int layer)
{
    const struct arch_plan *a = &m->plan;
    const struct moe_weights *w = &m->layer[layer].moe;
    const bool shared = a->moe.n_ff_shared > 0, open = w->sh_router.data != NULL;
    struct part t = { .part = EXPERTS, .n_embd = a->n_embd, .rows = p->s->rows, .moe = &w->up };

    set_in(&t, &w->router);
    t.shared = t.rows * a->moe.n_used >= GEMM_WIDE_PAIRS * a->moe.n_expert;
    t.out = shared ? &w->sh_down : a->moe.n_latent > 0 ? &w->latent_up : &w->down;
    t.facts = FIRST | (a->relu2 ? 0u : GATED) | (shared ? SHARED : 0u) | (open ? OPEN : 0u) |
              (shared && !open ? LAST_ADDS : 0u) | (a->moe.n_latent > 0 ? LATENT : 0u) | (!shared ? ADDED : 0u);
    t.facts |= p->s->sm != 0 && mixture_fits(a, w, t.rows) ? ONE_PIECE : 0u;
    note_formats(p, &t);
    p->to->exact &=
        w->up.type == w->down.type && (w->gate.data != NULL ? w->gate.type == w->up.type : t.rows > 1 && !t.floats);
    add_part(p, &t);
}

static void add_dense(const struct planner *p, const struct model *m, int layer)
{
    const struct dense_weights *w = &m->layer[layer].dense;
    struct part t = { .part = DENSE, .n_embd = m->plan.n_embd, .rows = p->s->rows, .out = &w->down };

    set_in(&t, &w->up);
    set_in(&t, &w->gate);
    t.facts = FIRST | ADDED | (m->plan.relu2 ? 0u : GATED);
    note_formats(p, &t);
    add_part(p, &t);
}

/* The head takes the rows with logits only. */
static void add_end(const struct planner *p, const struct model *m)
{
    struct part t = { .part = END, .n_embd = m->plan.n_embd, .rows = p->s->picks, .out = &m->head };

    if (p->s->picks == 0)
        return;
    set_in(&t, &m->head);
    t.facts = FIRST | (p->s->picks < p->s->rows ? PICKED : 0u) | (m->plan.logit_scale != 1.0f ? SCALED : 0u) |
              (p->s->digest ? DIGEST : 0u);
    note_formats(p, &t);
    add_part(p, &t);
}

void model_plan_step(const struct model *m, const struct model_step_shape *s, struct model_step_plan *out)
{
    const struct planner p = { s, out };
    const struct part begin = { .part = BEGIN, .rows = s->rows };

    *out = (struct model_step_plan){ .exact = true };
    for (int i = 0; i < GEMM_N_FUSIONS; i++)
        out->fusion[i].what = gemm_fusion_name((enum gemm_fusion)i);
    add_part(&p, &begin);
    for (int i = 0; i < m->plan.n_layer; i++) {
        add_mixers(&p, m, i);
        if (m->plan.layer[i].ffn == FFN_MOE)
            add_experts(&p, m, i);
        else if (m->plan.layer[i].ffn == FFN_DENSE)
            add_dense(&p, m, i);
    }
    add_end(&p, m);
}

/* Facts in words: those that must hold, then those that must not. */
static size_t write_facts(char *to, size_t size, unsigned when, unsigned unless)
{
    static const char *const name[] = { "first",  "added",   "gated",  "qk_norm", "rotary", "rotated",     "alpha_beta",
                                        "norm",   "dt_norm", "b_norm", "c_norm",  "shared", "open",        "latent",
                                        "picked", "scaled",  "digest", "last",    "whole",  "norm_product" };
    size_t at = 0;

    to[0] = '\0';
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
        if (((when | unless) >> i & 1u) != 0)
            at += (size_t)snprintf(to + at, size - at, "%s%s%s", at > 0 ? " " : "", (unless >> i & 1u) != 0 ? "!" : "",
                                   name[i]);
    assert(at < size);
    return at;
}

bool model_span_at(int i, struct model_span *out)
{
    static const char *const part[] = { "attention", "mla", "gdn",   "kda",     "mamba", "mamba2",
                                        "conv",      NULL,  "dense", "experts", "begin", "end" };
    size_t at = 0;
    int bit = 0;

    if (i >= (int)(sizeof spans / sizeof spans[0]))
        return false;
    const struct span *s = &spans[i];
    while (s->part != 1u << bit)
        bit++;
    *out = (struct model_span){ .part = part[bit], .together = gemm_fusion_name(s->fusion) };
    (void)write_facts(out->when, sizeof out->when, s->when, s->unless);
    for (int k = 0; k < SPAN_OPS && s->op[k].name != NULL; k++) {
        const struct part_op *o = &s->op[k];

        at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, "%s%s", k > 0 ? ", " : "", o->name);
        if (o->n > 1 || o->each_head)
            at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, " %d%s", o->n,
                                   o->each_head ? " of each head" : "");
        if ((o->when | o->unless) == 0)
            continue;
        at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, " if ");
        at += write_facts(out->ops + at, sizeof out->ops - at, o->when, o->unless);
    }
    return true;
}

int model_launched(const struct model *m, struct model_launched *out, int max)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    const int n = dev_launched(m->dev, l, max < DEV_LAUNCHED_MAX ? max : DEV_LAUNCHED_MAX);

    for (int i = 0; i < n; i++)
        out[i] = (struct model_launched){ l[i].what, l[i].fusion, l[i].n };
    return n;
}

uint64_t model_launches(const struct model *m)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    uint64_t all = 0;

    for (int i = dev_launched(m->dev, l, DEV_LAUNCHED_MAX) - 1; i >= 0; i--)
        all += l[i].fusion ? 0 : l[i].n;
    return all;
}
