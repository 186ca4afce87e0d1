/* SPDX-License-Identifier: Apache-2.0 */
/* launches_plan.h - what a step of a model becomes on a GPU by the tables of model/launches.c and gemm/launch.c: the
 * operations of each part of a layer, those that go together with such shapes and types, the launches of both. */
#ifndef TESTS_UNIT_LAUNCHES_PLAN_H
#define TESTS_UNIT_LAUNCHES_PLAN_H
#include <assert.h>
#include <string.h>

#include "model/internal.h"
#include "model/spans.h"

/* Rows of one sequence of at most 256 positions, without drafts, adapters, undo, and with all experts on the GPU. */
struct step_shape {
    int rows, picks; /* rows with logits, the last ones */
    bool digest;     /* of which only digests are wanted */
    bool rotated;    /* keys are stored in a type that is rotated */
    bool eight;      /* activations of 8 bits */
    int sm;          /* 90, 120; 0: not on a GPU, where all operations are alone */
};

struct count {
    const char *what;
    int64_t n, more; /* n, or up to `more` more */
};
enum { COUNTS = 48 };
struct step_plan {
    struct count fusion[GEMM_N_FUSIONS]; /* by gemm_fusion_name() */
    struct count op[COUNTS];             /* calls of operations, by name */
    struct count kernel[COUNTS];         /* launches, by file */
    int n_ops, n_kernels;
    bool exact; /* kernels: every part's matrices are of one format, or floats */
};

/* A fusion, or an operation alone, in a step. */
struct launch_unit {
    enum gemm_fusion fusion;
    const char *op; /* a word of struct gemm_launch */
    int64_t rows;
    bool eight;
    int sm;
    enum gemm_uses uses; /* of experts; struct gemm_launch */
};

static bool names_op(const char *list, const char *op)
{
    const size_t n = strlen(op);

    if (strchr(op, ' ') != NULL) /* of floats: an entry of its own */
        return strcmp(list, op) == 0;
    for (const char *p = list; (p = strstr(p, op)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == '\0' || (p[n] == ' ' && strcmp(p + n, " f32") != 0)))
            return true;
    return false;
}

static bool launch_takes(const struct gemm_launch *l, const struct launch_unit *u)
{
    return l->fusion == u->fusion && (l->ops == NULL || names_op(l->ops, u->op)) && u->rows >= l->rows_min &&
           u->rows <= l->rows_max && (l->acts & (u->eight ? GEMM_ACTS_8 : GEMM_ACTS_16)) != 0 &&
           (l->sm == 0 || l->sm == u->sm) && (l->uses == GEMM_USES_ANY || l->uses == u->uses);
}

/* Rows for any GPU give way to those for this one, if they multiply. */
static bool gives_way(const struct gemm_launch *l, const struct launch_unit *u)
{
    const struct gemm_launch *o;

    for (int i = 0; l->sm == 0 && l->acts != (GEMM_ACTS_16 | GEMM_ACTS_8) && (o = gemm_launch_at(i)) != NULL; i++)
        if (o->sm != 0 && launch_takes(o, u))
            return true;
    return false;
}

static bool is_launch_of(const struct gemm_launch *l, const struct launch_unit *u)
{
    return launch_takes(l, u) && !gives_way(l, u);
}

/* A part of a layer: what it is like, the products after its norm, its last product. */
struct part {
    unsigned part, facts;
    const struct tensor *in[6], *out, *moe; /* moe: of experts, up */
    int n_in, heads;
    int64_t n_embd, rows;
    bool floats;         /* its matrices are floats */
    enum gemm_uses uses; /* struct launch_unit */
};

struct planner {
    const struct step_shape *s;
    struct step_plan *to;
};

static void add_count(struct count *list, int *n, const char *what, int64_t more_n, int64_t more)
{
    int i = 0;

    while (i < *n && strcmp(list[i].what, what) != 0)
        i++;
    assert(i < COUNTS);
    if (i == *n)
        list[(*n)++] = (struct count){ .what = what };
    list[i].n += more_n;
    list[i].more += more;
}

/* Its launches, `times` over. */
static void add_launches(const struct planner *p, const struct launch_unit *u, int times)
{
    const struct gemm_launch *l;

    for (int i = 0; (l = gemm_launch_at(i)) != NULL; i++) {
        if (is_launch_of(l, u))
            add_count(p->to->kernel, &p->to->n_kernels, l->kernel, times * l->n, times * l->more);
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
    const struct launch_unit u = {
        .fusion = GEMM_ALONE, .op = name, .rows = a->rows, .eight = p->s->eight, .sm = p->s->sm, .uses = a->uses
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
    const struct launch_unit u = {
        .fusion = s->fusion, .op = floats ? "f32" : "rounded", .rows = a->rows, .eight = p->s->eight, .sm = p->s->sm
    };

    p->to->fusion[s->fusion].n++;
    add_launches(p, &u, 1);
}

static void add_part(const struct planner *p, const struct part *a)
{
    const struct span *s;

    for (int i = 0; (s = model_span(i)) != NULL; i++)
        if (s->part == a->part && (a->facts & s->when) == s->when && (a->facts & s->unless) == 0)
            add_span(p, s, a);
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

    if (t->rows > (t->part == MIX_ATTN ? GEMM_ATTN_ROWS : GEMM_FEW_ROWS) || !fits(t->out, t->rows, false) ||
        !gemm_fuses_width(t->out->ne[0]))
        return false;
    if (t->part == MIX_GDN)
        return !a->gdn.sigmoid && gemm_fuses_delta(&delta);
    for (int i = 0; i < t->n_in; i++)
        if (!fits(t->in[i], t->rows, true))
            return false;
    return t->part == MIX_ATTN && (t->facts & FIRST) != 0 && gemm_fuses_norm(t->n_embd) && gemm_fuses_attn(&attn);
}

static void set_attn(struct part *t, const struct arch_plan *a, const struct attn_weights *w)
{
    set_in(t, &w->q);
    set_in(t, &w->k);
    set_in(t, &w->v);
    t->out = &w->o;
    t->n_embd = a->attn.n_in;
    t->facts |= (w->index_q.data != NULL ? INDEXED : 0u) | (a->attn.gated ? GATED : 0u) |
                (a->attn.qk_norm ? QK_NORM : 0u) | (a->attn.rope != ROPE_NONE ? ROTARY : 0u);
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
    t->facts |= (a->gdn.ba_fused ? ALPHA_BETA : 0u) | (a->gdn.sigmoid ? SIGMOID : 0u);
}

static void set_ssm(struct part *t, const struct arch_plan *a, const struct ssm_weights *w)
{
    set_in(t, &w->in);
    t->out = a->joined ? &w->in : &w->out; /* the matrix that follows is a part of its own */
    if (t->part == MIX_SSM1)
        t->facts |= (a->ssm.norm || w->dt_norm != NULL ? DT_NORM : 0u) |
                    (a->ssm.norm || w->b_norm != NULL ? B_NORM : 0u) | (a->ssm.norm || w->c_norm != NULL ? C_NORM : 0u);
    else
        t->facts |= (w->norm != NULL ? OUT_NORM : 0u) | (norm_product(a, w, t->rows) ? NORM_PRODUCT : 0u);
}

static void set_mla(struct part *t, const struct arch_plan *a, const struct mla_weights *w)
{
    const bool low = a->mla.rank_q > 0;

    set_in(t, low ? &w->q_a : &w->q);
    set_in(t, &w->kv_a);
    set_in(t, &w->gate);
    t->out = &w->o;
    t->facts |=
        (low ? LOW_RANK : 0u) | (a->mla.head_gate ? GATED : 0u) | (a->attn.rope != ROPE_NONE ? ROTARY : 0u) |
        (low && t->rows <= GEMM_FEW_ROWS && gemm_fuses_norm(a->mla.rank_q) && fits(&w->q, t->rows, false) ? NORM_PRODUCT
                                                                                                          : 0u);
}

static void set_mixer(struct part *t, const struct arch_plan *a, const struct layer_weights *w)
{
    switch (t->part) {
    case MIX_ATTN:
        set_attn(t, a, &w->attn);
        break;
    case MIX_MLA:
        set_mla(t, a, &w->mla);
        break;
    case MIX_GDN:
        set_gdn(t, a, &w->gdn);
        break;
    case MIX_KDA:
        set_in(t, &w->kda.q);
        set_in(t, &w->kda.k);
        set_in(t, &w->kda.v);
        set_in(t, &w->kda.f_a);
        if (a->gdn.full_gates) {
            set_in(t, &w->kda.beta);
            set_in(t, &w->kda.g_a);
        }
        t->facts |= a->gdn.full_gates ? 0u : LOW_RANK;
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
                                  (!p->s->eight || gemm_formats_have(GEMM_FORMATS_A8, type)));
}

/* Hyper-connections around a part; inject NULL: before the head. */
static void add_streams(const struct planner *p, const struct model *m, const struct streams_weights *w, int64_t rows)
{
    struct part t = { .part = STREAMS, .n_embd = m->plan.n_embd, .rows = rows, .out = &w->up };

    if (m->plan.streams.n == 1)
        return;
    set_in(&t, &w->down);
    set_in(&t, &w->inject);
    t.facts = w->inject.data != NULL ? ADDED : 0u;
    note_formats(p, &t);
    add_part(p, &t);
}

static void add_table(const struct planner *p, const struct model *m)
{
    struct part t = { .part = TABLE, .n_embd = m->plan.n_embd, .rows = p->s->rows, .out = &m->table.value };

    set_in(&t, &m->table.key);
    note_formats(p, &t);
    add_part(p, &t);
}

/* A step from position 0 on. */
static bool has_choice(const struct planner *p, const struct arch_plan *a, int layer)
{
    const int ratio = a->index.ratio[layer];

    return ratio > 0 && p->s->rows >= a->index.budget + ratio;
}

static void add_mixers(const struct planner *p, const struct model *m, int layer, unsigned all, bool to_stream)
{
    const bool streams = m->plan.streams.n > 1;
    bool first = true;

    for (unsigned bit = 1; bit <= MIX_CONV; bit <<= 1) {
        struct part t = { .part = bit, .n_embd = m->plan.n_embd, .rows = p->s->rows, .heads = m->plan.attn.n_head };

        if ((all & bit) == 0)
            continue;
        t.facts = (first && !streams ? FIRST : 0u) |
                  (!streams && !m->plan.joined && (!first || (all == bit && to_stream)) ? ADDED : 0u) |
                  (has_choice(p, &m->plan, layer) ? CHOSEN : 0u) | (p->s->rotated ? ROTATED : 0u);
        set_mixer(&t, &m->plan, &m->layer[layer]);
        t.facts |=
            (m->plan.joined ? JOINED : 0u) | (bit == MIX_ATTN && m->plan.reach[layer].kv_from > 0 ? BORROWS : 0u);
        t.facts |= p->s->sm != 0 && !m->plan.joined && mixer_fits(p, &m->plan, &t) ? ONE_PIECE : 0u;
        note_formats(p, &t);
        add_part(p, &t);
        if (m->plan.joined && !first) {
            struct part join = { .part = JOIN, .facts = ADDED, .out = &m->layer[layer].attn.o, .rows = p->s->rows };

            note_formats(p, &join);
            add_part(p, &join);
        } else if (!first) { /* the residual of both */
            const struct part_op add = { .name = "add", .n = 1 };

            add_count(p->to->op, &p->to->n_ops, "add", 1, 0);
            if (p->s->sm != 0)
                add_alone(p, &t, &add, 1);
        }
        first = false;
    }
}

static bool mixture_fits(const struct planner *p, const struct arch_plan *a, const struct moe_weights *w, int64_t rows)
{
    const struct gemm_mixture mixture = { a->moe.n_expert,
                                          a->moe.n_used,
                                          a->moe.n_group,
                                          a->n_embd,
                                          a->moe.n_ff,
                                          a->moe.n_ff_shared,
                                          w->gate.data != NULL ? w->gate.type : -1,
                                          w->up.type,
                                          w->down.type,
                                          p->s->eight,
                                          p->s->sm };
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
    t.uses =
        gemm_few_uses(t.rows * a->moe.n_used, a->moe.n_expert, p->s->eight, p->s->sm) ? GEMM_USES_FEW : GEMM_USES_MANY;
    t.out = shared ? &w->sh_down : a->moe.n_latent > 0 ? &w->latent_up : &w->down;
    t.facts = (a->streams.n > 1 ? 0u : FIRST) | (a->relu2 ? 0u : GATED) | (shared ? SHARED : 0u) | (open ? OPEN : 0u) |
              (shared && !open ? LAST_ADDS : 0u) | (a->moe.n_latent > 0 ? LATENT : 0u) | (!shared ? ADDED : 0u);
    t.facts |= p->s->sm != 0 && a->streams.n == 1 && mixture_fits(p, a, w, t.rows) ? ONE_PIECE : 0u;
    note_formats(p, &t);
    p->to->exact &=
        w->up.type == w->down.type && (w->gate.data != NULL ? w->gate.type == w->up.type : t.rows > 1 && !t.floats);
    add_part(p, &t);
}

static void add_dense(const struct planner *p, const struct model *m, int layer, bool to_stream)
{
    const struct dense_weights *w = &m->layer[layer].dense;
    struct part t = { .part = DENSE, .n_embd = m->plan.n_embd, .rows = p->s->rows, .out = &w->down };

    set_in(&t, &w->up);
    set_in(&t, &w->gate);
    t.facts = FIRST | (to_stream ? ADDED : 0u) | (m->plan.up_gated ? UP_GATED : m->plan.relu2 ? 0u : GATED);
    note_formats(p, &t);
    add_part(p, &t);
}

/* Attention and feed-forward before the recurrent mixer. */
static void add_front(const struct planner *p, const struct model *m, int layer)
{
    struct part t = { .part = FRONT, .facts = FIRST, .n_embd = m->plan.n_embd, .rows = p->s->rows };

    t.out = &m->layer[layer].front_mix;
    note_formats(p, &t);
    add_part(p, &t);
    add_mixers(p, m, layer, MIX_ATTN, false);
    add_dense(p, m, layer, false);
    t.facts = ADDED;
    add_part(p, &t);
}

/* The head takes the rows with logits only. */
static void add_end(const struct planner *p, const struct model *m)
{
    struct part t = { .part = END, .n_embd = m->plan.n_embd, .rows = p->s->picks, .out = &m->head };

    if (p->s->picks == 0)
        return;
    add_streams(p, m, &m->out_streams, p->s->picks);
    set_in(&t, &m->head);
    t.facts = (m->plan.streams.n > 1 ? 0u : FIRST) | (p->s->picks < p->s->rows ? PICKED : 0u) |
              (m->plan.logit_scale != 1.0f ? SCALED : 0u) | (p->s->digest ? DIGEST : 0u);
    note_formats(p, &t);
    add_part(p, &t);
}

static inline void plan_step(const struct model *m, const struct step_shape *s, struct step_plan *out)
{
    const struct planner p = { s, out };
    const bool streams = m->plan.streams.n > 1;
    const struct part begin = { .part = BEGIN,
                                .facts = (m->plan.front ? FRONTED : 0u) | (streams ? STREAMED : 0u),
                                .rows = s->rows,
                                .heads = m->plan.streams.n - 1 };

    *out = (struct step_plan){ .exact = true };
    for (int i = 0; i < GEMM_N_FUSIONS; i++)
        out->fusion[i].what = gemm_fusion_name((enum gemm_fusion)i);
    add_part(&p, &begin);
    for (int i = 0; i < m->plan.n_layer; i++) {
        const struct arch_layer_plan *l = &m->plan.layer[i];
        const bool fronted = m->plan.front && l->ffn != FFN_NONE;

        if (arch_plan_has_table(&m->plan, i))
            add_table(&p, m);
        if (fronted)
            add_front(&p, m, i);
        add_streams(&p, m, &m->layer[i].mix_streams, s->rows);
        add_mixers(&p, m, i, fronted ? l->mixers & ~(unsigned)MIX_ATTN : l->mixers, true);
        add_streams(&p, m, &m->layer[i].ffn_streams, s->rows);
        if (l->ffn == FFN_MOE)
            add_experts(&p, m, i);
        else if (l->ffn == FFN_DENSE && !fronted)
            add_dense(&p, m, i, true);
    }
    add_end(&p, m);
}
#endif
