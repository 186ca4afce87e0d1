/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_moe.c - routed experts, and a shared expert with one sigmoid gate for each row. */
#include "model/internal.h"
#include "quant/quant.h"

void model_bind_moe(struct moe_weights *w, const struct plan *p, struct binder *b)
{
    const struct moe_plan *m = &p->moe;

    w->router = bind_mat(b, "ffn_gate_inp.weight", p->n_embd, m->n_expert, 1);
    if (bind_has(b, "ffn_gate_up_exps.weight")) { /* gate's rows, then up's, in each expert */
        struct tensor both = bind_mat(b, "ffn_gate_up_exps.weight", p->n_embd, (int64_t)2 * m->n_ff, m->n_expert);

        both.ne[1] = m->n_ff;
        w->gate = w->up = both;
        if (both.data != NULL)
            w->up.data = (unsigned char *)both.data + m->n_ff * quant_row_bytes(both.type, p->n_embd);
    } else {
        w->gate = bind_mat(b, "ffn_gate_exps.weight", p->n_embd, m->n_ff, m->n_expert);
        w->up = bind_mat(b, "ffn_up_exps.weight", p->n_embd, m->n_ff, m->n_expert);
    }
    w->down = bind_mat(b, "ffn_down_exps.weight", m->n_ff, p->n_embd, m->n_expert);
    if (m->n_ff_shared == 0)
        return;
    w->sh_router = bind_mat(b, "ffn_gate_inp_shexp.weight", p->n_embd, 1, 1);
    w->sh_gate = bind_mat(b, "ffn_gate_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_up = bind_mat(b, "ffn_up_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->sh_down = bind_mat(b, "ffn_down_shexp.weight", m->n_ff_shared, p->n_embd, 1);
}

void model_ffn_moe(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct moe_plan *m = &s->m->plan.moe;
    const struct moe_weights *w = &s->m->layer[layer].moe;
    const struct op_route route = { m->n_expert, m->n_used, m->normalise, m->scale };
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor logits = dev_scratch(d, m->n_expert, n), weight = dev_scratch(d, m->n_used, n);
    int32_t *expert = dev_scratch_bytes(d, (size_t)n * (size_t)m->n_used * sizeof *expert);
    const struct op_moe moe = { m->n_used, expert, weight, w->gate, w->up, w->down, OP_SILU };

    op_matmul(d, logits, w->router, x);
    op_route(d, expert, weight, logits, &route);
    op_moe(d, y, x, &moe);
    if (m->n_ff_shared == 0)
        return;
    struct tensor gate = dev_scratch(d, m->n_ff_shared, n), up = dev_scratch(d, m->n_ff_shared, n);
    struct tensor out = dev_scratch(d, y.ne[0], n), open = dev_scratch(d, 1, n);
    op_matmul(d, gate, w->sh_gate, x);
    op_matmul(d, up, w->sh_up, x);
    op_glu(d, up, gate, up, OP_SILU);
    op_matmul(d, out, w->sh_down, up);
    op_matmul(d, open, w->sh_router, x);
    op_add_gated(d, y, out, open);
}
