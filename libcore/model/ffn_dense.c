/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_dense.c - the plain feed-forward: gated SiLU or GELU, or squared ReLU without a gate. */
#include "model/internal.h"

void model_bind_dense(struct dense_weights *w, const struct arch_plan *p, int n_ff, struct binder *b)
{
    if (!p->relu2 && !p->up_gated)
        w->gate = bind_mat(b, "ffn_gate.weight", p->n_embd, n_ff, 1);
    w->up = bind_mat(b, "ffn_up.weight", p->n_embd, p->up_gated ? 2 * n_ff : n_ff, 1);
    w->down = bind_mat(b, "ffn_down.weight", n_ff, p->n_embd, 1);
}

void model_glu(const struct step *s, const struct dense_weights *w, struct tensor y, struct tensor x)
{
    struct dev *d = s->d;
    const struct arch_plan *p = &s->m->plan;
    struct tensor all = dev_scratch(d, w->up.ne[1], x.ne[1]), up = all, gate = all;

    if (p->up_gated) {
        gate = op_cols(all, 0, w->down.ne[0]);
        up = op_cols(all, w->down.ne[0], w->down.ne[0]);
        model_mul(s, all, w->up, x);
        (p->gelu ? op_geglu : op_glu)(d, up, gate, up);
    } else if (w->gate.data != NULL) {
        gate = dev_scratch(d, w->up.ne[1], x.ne[1]);
        model_muls(s, (const struct op_product[]){ { up, w->up }, { gate, w->gate } }, 2, x);
        (p->gelu ? op_geglu : op_glu)(d, up, gate, up);
    } else {
        model_mul(s, up, w->up, x);
        op_relu2(d, up);
    }
    model_mul(s, y, w->down, up);
}

void model_ffn_dense(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    model_glu(s, &s->m->layer[layer].dense, y, x);
}
