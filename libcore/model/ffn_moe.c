/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_moe.c - routed experts, and a shared expert, perhaps with one sigmoid gate for each row. */
#include "model/internal.h"
#include "quant/quant.h"

/* One tensor with gate's rows, then up's, in each expert. */
static void cut_in_two(struct tensor both, int64_t n_ff, struct tensor *gate, struct tensor *up)
{
    both.ne[1] = n_ff;
    *gate = *up = both;
    up->from += n_ff;
    if (both.data != NULL)
        up->data = (unsigned char *)both.data + n_ff * quant_row_bytes(both.type, both.ne[0]);
}

static void bind_matrices(struct moe_weights *w, struct op_moe *host, const struct arch_plan *p, int64_t width,
                          struct binder *b)
{
    const struct arch_moe_plan *m = &p->moe;

    if (bind_has(b, "ffn_gate_up_exps.weight")) {
        struct tensor both_host = { .type = QUANT_f32 };
        struct tensor both =
            bind_experts(b, "ffn_gate_up_exps.weight", width, (int64_t)2 * m->n_ff, m->n_expert, &both_host);

        cut_in_two(both, m->n_ff, &w->gate, &w->up);
        cut_in_two(both_host, m->n_ff, &host->gate, &host->up);
    } else {
        if (!p->relu2)
            w->gate = bind_experts(b, "ffn_gate_exps.weight", width, m->n_ff, m->n_expert, &host->gate);
        w->up = bind_experts(b, "ffn_up_exps.weight", width, m->n_ff, m->n_expert, &host->up);
    }
    w->down = bind_experts(b, "ffn_down_exps.weight", m->n_ff, width, m->n_expert, &host->down);
}

static void bind_routed(struct moe_weights *w, const struct arch_plan *p, int64_t width, struct binder *b)
{
    const struct arch_moe_plan *m = &p->moe;
    struct op_moe host = { .n_used = m->n_used, .act = p->relu2 ? OP_RELU2 : OP_SILU };
    const bool copy = b->copy;

    b->copy = copy && !b->cache;
    bind_matrices(w, &host, p, width, b);
    b->copy = copy;
    if (b->here == NULL) {
        if (b->dev != NULL && dev_is_host(b->dev))
            w->cached = bind_cached(b, &(struct op_moe){ .gate = w->gate, .up = w->up, .down = w->down });
        return;
    }
    host.cached = bind_cached(b, &host);
    for (int i = 0; i < m->n_expert; i++)
        w->n_here += b->here[i];
    w->slot = bind_slots(b, m->n_expert, true);
    host.slot = bind_slots(b, m->n_expert, false);
    w->hand = arena_array(b->arena, 1, sizeof *w->hand);
    if (w->hand != NULL)
        *w->hand = (struct op_hand){ b->host, host, w->slot };
    else if (b->e->code == ERR_OK)
        err_nomem(b->e);
}

void model_bind_moe(struct moe_weights *w, const struct arch_plan *p, struct binder *b)
{
    const struct arch_moe_plan *m = &p->moe;
    int64_t width = m->n_latent > 0 ? m->n_latent : p->n_embd;

    w->router = bind_mat(b, "ffn_gate_inp.weight", p->n_embd, m->n_expert, 1);
    if (m->bias)
        w->bias = bind_vec(b, "exp_probs_b.bias", m->n_expert);
    if (m->n_latent > 0) {
        w->latent_down = bind_mat(b, "ffn_latent_down.weight", p->n_embd, m->n_latent, 1);
        w->latent_up = bind_mat(b, "ffn_latent_up.weight", m->n_latent, p->n_embd, 1);
    }
    bind_routed(w, p, width, b);
    if (m->n_ff_shared == 0)
        return;
    if (m->shared_gate)
        w->sh_router = bind_mat(b, "ffn_gate_inp_shexp.weight", p->n_embd, 1, 1);
    if (!p->relu2)
        w->sh_gate = bind_mat(b, "ffn_gate_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_up = bind_mat(b, "ffn_up_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_down = bind_mat(b, "ffn_down_shexp.weight", m->n_ff_shared, p->n_embd, 1);
}

/* The shared expert's output for x, and the gate of each row. */
struct shared {
    struct tensor out, open; /* data NULL: none */
};

static struct shared shared_start(const struct step *s, const struct moe_weights *w, struct tensor x)
{
    struct dev *d = s->d;
    struct shared sh = { .out = dev_scratch(d, s->m->plan.n_embd, x.ne[1]) };

    model_glu(s, &(struct dense_weights){ w->sh_gate, w->sh_up, w->sh_down }, sh.out, x);
    if (w->sh_router.data == NULL)
        return sh;
    sh.open = dev_scratch(d, 1, x.ne[1]);
    model_mul(s, sh.open, w->sh_router, x);
    return sh;
}

static void shared_add(const struct step *s, const struct moe_weights *w, struct tensor y, struct shared sh)
{
    if (w->sh_router.data == NULL)
        op_add(s->d, y, sh.out, 1.0f);
    else
        op_add_gated(s->d, y, sh.out, sh.open);
}

/* y = the routed experts' sum. Those on the host are at work while the device computes its own and the shared one. */
static struct shared split_experts(const struct step *s, const struct moe_weights *w, struct tensor y, struct tensor in,
                                   struct tensor x, const struct op_moe *moe)
{
    struct dev *d = s->d;
    struct tensor out = dev_scratch(d, y.ne[0], in.ne[1] * moe->n_used);
    struct moe_adapters adapt;
    struct op_hand hand = *w->hand;
    struct shared sh = { 0 };

    hand.moe.adapt = model_adapt_moe(s, &hand.moe, true, &adapt);
    op_hand_out(d, in, moe->expert, hand.moe.adapt != NULL ? &hand : w->hand);
    if (w->n_here > 0)
        op_moe_pairs(d, out, in, moe);
    if (s->m->plan.moe.n_ff_shared > 0)
        sh = shared_start(s, w, x);
    op_hand_in(d, out, in, moe->expert, hand.moe.adapt != NULL ? &hand : w->hand);
    op_moe_sum(d, y, out, moe->weight);
    return sh;
}

/* Counts uses, and whose scores are next: of each row the best n_used once more as part of the best 2 n_used, and so
 * on, as far as that leaves out half of those that can be chosen. */
static void count_uses(const struct step *s, int layer, struct tensor logits, const struct op_route *route,
                       const int32_t *expert)
{
    struct dev *d = s->d;
    const int on = s->m->on[layer];
    uint64_t *uses = s->m->uses[on] + (int64_t)(layer - s->m->first[on]) * route->n_expert;
    int64_t n = logits.ne[1];
    int n_used = route->n_used, n_expert = route->n_expert;
    int some = route->n_group > 1 ? n_expert / route->n_group * route->n_group_used : n_expert;
    struct op_route more = *route;
    size_t mark = dev_mark(d);

    op_tally(d, uses, n_expert, expert, n * n_used);
    for (int i = 2; i <= s->m->count_sets && i * n_used <= some / 2; i++) {
        struct tensor weight = dev_scratch(d, i * n_used, n);
        int32_t *next = dev_scratch_bytes(d, (size_t)n * (size_t)(i * n_used) * sizeof *next);

        more.n_used = i * n_used;
        op_route(d, next, weight, logits, &more);
        op_tally(d, uses, n_expert, next, n * more.n_used);
        dev_release(d, mark);
    }
}

void model_ffn_moe(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_moe_plan *m = &s->m->plan.moe;
    const struct moe_weights *w = &s->m->layer[layer].moe;
    const struct op_route route = { m->n_expert, m->n_used, m->normalise, m->scale,
                                    m->sigmoid,  w->bias,   m->n_group,   m->n_group_used };
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor logits = dev_scratch(d, m->n_expert, n), weight = dev_scratch(d, m->n_used, n);
    int32_t *expert = dev_scratch_bytes(d, (size_t)n * (size_t)m->n_used * sizeof *expert);
    struct op_moe moe = { m->n_used, expert, weight,   w->gate, w->up, w->down, s->m->plan.relu2 ? OP_RELU2 : OP_SILU,
                          w->slot,   NULL,   w->cached };
    struct moe_adapters adapt;
    struct tensor in = x, mixed = y;
    struct shared sh = { 0 };

    moe.adapt = model_adapt_moe(s, &moe, false, &adapt);
    model_mul(s, logits, w->router, x);
    op_route(d, expert, weight, logits, &route);
    if (s->m->count_sets > 0)
        count_uses(s, layer, logits, &route, expert);
    if (m->n_latent > 0) {
        in = dev_scratch(d, m->n_latent, n);
        mixed = dev_scratch(d, m->n_latent, n);
        model_mul(s, in, w->latent_down, x);
    }
    /* devices that share the layer exchange the shared expert's output together with those of pairs */
    const bool first = w->hand == NULL && m->n_ff_shared > 0 && dev_members(d) > 1;

    if (first)
        sh = shared_start(s, w, x);
    if (w->hand == NULL)
        op_moe(d, mixed, in, &moe);
    else
        sh = split_experts(s, w, mixed, in, x, &moe);
    if (m->n_latent > 0)
        model_mul(s, y, w->latent_up, mixed);
    if (m->n_ff_shared == 0)
        return;
    if (w->hand == NULL && !first)
        sh = shared_start(s, w, x);
    shared_add(s, w, y, sh);
}
