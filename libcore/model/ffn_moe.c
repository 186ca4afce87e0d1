/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_moe.c - routed experts, and a shared expert, perhaps with one sigmoid gate for each row. */
#include "model/internal.h"
#include "quant/quant.h"

void model_bind_moe(struct moe_weights *w, const struct plan *p, struct binder *b)
{
    const struct moe_plan *m = &p->moe;
    int64_t width = m->n_latent > 0 ? m->n_latent : p->n_embd;

    w->router = bind_mat(b, "ffn_gate_inp.weight", p->n_embd, m->n_expert, 1);
    if (m->bias)
        w->bias = bind_vec(b, "exp_probs_b.bias", m->n_expert);
    if (m->n_latent > 0) {
        w->latent_down = bind_mat(b, "ffn_latent_down.weight", p->n_embd, m->n_latent, 1);
        w->latent_up = bind_mat(b, "ffn_latent_up.weight", m->n_latent, p->n_embd, 1);
    }
    if (bind_has(b, "ffn_gate_up_exps.weight")) { /* gate's rows, then up's, in each expert */
        struct tensor both = bind_mat(b, "ffn_gate_up_exps.weight", width, (int64_t)2 * m->n_ff, m->n_expert);

        both.ne[1] = m->n_ff;
        w->gate = w->up = both;
        if (both.data != NULL)
            w->up.data = (unsigned char *)both.data + m->n_ff * quant_row_bytes(both.type, width);
    } else {
        if (!p->relu2)
            w->gate = bind_mat(b, "ffn_gate_exps.weight", width, m->n_ff, m->n_expert);
        w->up = bind_mat(b, "ffn_up_exps.weight", width, m->n_ff, m->n_expert);
    }
    w->down = bind_mat(b, "ffn_down_exps.weight", m->n_ff, width, m->n_expert);
    if (m->n_ff_shared == 0)
        return;
    if (m->shared_gate)
        w->sh_router = bind_mat(b, "ffn_gate_inp_shexp.weight", p->n_embd, 1, 1);
    if (!p->relu2)
        w->sh_gate = bind_mat(b, "ffn_gate_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_up = bind_mat(b, "ffn_up_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_down = bind_mat(b, "ffn_down_shexp.weight", m->n_ff_shared, p->n_embd, 1);
}

/* y += the shared expert's output, gated when the family says so. */
static void shared(const struct step *s, const struct moe_weights *w, struct tensor y, struct tensor x)
{
    struct dev *d = s->d;
    struct tensor out = dev_scratch(d, y.ne[0], y.ne[1]);

    model_glu(s, &(struct dense_weights){ w->sh_gate, w->sh_up, w->sh_down }, out, x);
    if (w->sh_router.data == NULL) {
        op_add(d, y, out, 1.0f);
        return;
    }
    struct tensor open = dev_scratch(d, 1, y.ne[1]);
    op_matmul(d, open, w->sh_router, x);
    op_add_gated(d, y, out, open);
}

void model_ffn_moe(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct moe_plan *m = &s->m->plan.moe;
    const struct moe_weights *w = &s->m->layer[layer].moe;
    const struct op_route route = { m->n_expert, m->n_used, m->normalise, m->scale, m->sigmoid, w->bias,
                                    m->n_group, m->n_group_used };
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor logits = dev_scratch(d, m->n_expert, n), weight = dev_scratch(d, m->n_used, n);
    int32_t *expert = dev_scratch_bytes(d, (size_t)n * (size_t)m->n_used * sizeof *expert);
    const struct op_moe moe = { m->n_used, expert, weight, w->gate, w->up, w->down,
                                s->m->plan.relu2 ? OP_RELU2 : OP_SILU };

    op_matmul(d, logits, w->router, x);
    op_route(d, expert, weight, logits, &route);
    if (m->n_latent > 0) {
        struct tensor in = dev_scratch(d, m->n_latent, n), out = dev_scratch(d, m->n_latent, n);

        op_matmul(d, in, w->latent_down, x);
        op_moe(d, out, in, &moe);
        op_matmul(d, y, w->latent_up, out);
    } else {
        op_moe(d, y, x, &moe);
    }
    if (m->n_ff_shared > 0)
        shared(s, w, y, x);
}
