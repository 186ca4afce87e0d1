/* SPDX-License-Identifier: Apache-2.0 */
/* mix_gdn.c - gated delta net (Yang et al. 2024): projections, causal convolution, delta rule, gated norm. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_gdn(struct layer_weights *l, const struct plan *p, struct binder *b)
{
    struct gdn_weights *w = &l->gdn;
    const struct gdn_plan *g = &p->gdn;
    int64_t inner = (int64_t)g->n_v * g->dim_v, channels = (int64_t)2 * g->n_k * g->dim + inner;

    w->qkv = bind_mat(b, "attn_qkv.weight", p->n_embd, channels, 1);
    w->z = bind_mat(b, "attn_gate.weight", p->n_embd, inner, 1);
    w->ba = bind_mat_opt(b, "ssm_ba.weight", p->n_embd, (int64_t)2 * g->n_v, 1);
    if (w->ba.data == NULL) {
        w->alpha = bind_mat(b, "ssm_alpha.weight", p->n_embd, g->n_v, 1);
        w->beta = bind_mat(b, "ssm_beta.weight", p->n_embd, g->n_v, 1);
    }
    w->out = bind_mat(b, "ssm_out.weight", inner, p->n_embd, 1);
    w->conv = bind_conv(b, "ssm_conv1d.weight", p->taps, channels);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", g->n_v);
    w->a = bind_vec(b, "ssm_a", g->n_v);
    w->norm = bind_vec(b, "ssm_norm.weight", g->dim_v);
}

void model_mix_gdn(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct plan *p = &s->m->plan;
    const struct gdn_plan *g = &p->gdn;
    const struct gdn_weights *w = &s->m->layer[layer].gdn;
    const struct op_conv conv = { p->taps, w->conv, NULL, true, state_conv(s->state, layer) };
    const struct op_gdn rule = { g->n_k, g->n_v, g->dim, g->dim_v, g->k_grouped, p->norm_eps, w->a,
                                 w->dt_bias, state_rec(s->state, layer) };
    struct dev *d = s->d;
    int64_t n = x.ne[1], inner = (int64_t)g->n_v * g->dim_v;
    struct tensor qkv = dev_scratch(d, w->qkv.ne[1], n), mixed = dev_scratch(d, w->qkv.ne[1], n);
    struct tensor z = dev_scratch(d, inner, n), o = dev_scratch(d, inner, n);
    struct tensor alpha = dev_scratch(d, g->n_v, n), beta = dev_scratch(d, g->n_v, n);

    op_matmul(d, qkv, w->qkv, x);
    op_matmul(d, z, w->z, x);
    if (w->ba.data != NULL) { /* for each key head: beta of its value heads, then alpha */
        struct tensor ba = dev_scratch(d, (int64_t)2 * g->n_v, n);
        int64_t each = g->n_v / g->n_k;

        op_matmul(d, ba, w->ba, x);
        op_heads_pick(d, beta, ba, each, 2 * each, 0);
        op_heads_pick(d, alpha, ba, each, 2 * each, each);
    } else {
        op_matmul(d, alpha, w->alpha, x);
        op_matmul(d, beta, w->beta, x);
    }
    op_conv(d, mixed, qkv, &conv, s->rows);
    op_gdn(d, o, mixed, alpha, beta, &rule, s->rows);
    op_rms_norm_gated(d, o, o, z, w->norm, g->dim_v, g->dim_v, p->norm_eps);
    op_matmul(d, y, w->out, o);
}
