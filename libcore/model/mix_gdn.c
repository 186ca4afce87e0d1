/* SPDX-License-Identifier: Apache-2.0 */
/* mix_gdn.c - gated delta net (Yang et al. 2024): projections, causal convolution, delta rule, gated norm. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_gdn(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct gdn_weights *w = &l->gdn;
    const struct arch_gdn_plan *g = &p->gdn;
    int64_t inner = (int64_t)g->n_v * g->dim_v, channels = (int64_t)2 * g->n_k * g->dim + inner;
    struct dev_section s[DEV_SECTIONS_MAX];
    const int n = state_channels(s, p, b->layer, 1);

    w->qkv = bind_heads(b, "attn_qkv.weight", p->n_embd, channels, s, n);
    w->z = bind_heads(b, "attn_gate.weight", p->n_embd, inner, s + 1, 1); /* as values */
    if (g->ba_fused) {
        w->ba = bind_mat(b, "ssm_ba.weight", p->n_embd, (int64_t)2 * g->n_v, 1);
    } else {
        w->alpha = bind_mat(b, "ssm_alpha.weight", p->n_embd, g->n_v, 1);
        w->beta = bind_mat(b, "ssm_beta.weight", p->n_embd, g->n_v, 1);
    }
    w->out = bind_mat(b, "ssm_out.weight", inner, p->n_embd, 1);
    w->conv = bind_transposed(b, (const char *[]){ "ssm_conv1d.weight" }, 1, p->taps, channels);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", g->n_v);
    w->a = bind_vec(b, "ssm_a", g->n_v);
    w->norm = bind_vec(b, "ssm_norm.weight", g->dim_v);
}

/* in: qkv before the convolution, alpha, beta */
void model_scan_gdn(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                    struct tensor o, struct tensor in)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_gdn_plan *g = &p->gdn;
    const struct gdn_weights *w = &s->m->layer[layer].gdn;
    const struct op_conv conv = { p->taps, w->conv, NULL, true, mem->conv, 1 };
    const struct op_gdn rule = {
        g->n_k, g->n_v, g->dim, g->dim_v, g->k_grouped, p->norm_eps, w->a, w->dt_bias, mem->rec
    };
    int64_t channels = w->qkv.ne[1];
    struct tensor mixed = model_mixed(s, &mem->conv, part, channels);

    op_conv(s->d, mixed, op_cols(in, 0, channels), &conv, part);
    op_gdn(s->d, o, mixed, op_cols(in, channels, g->n_v), op_cols(in, channels + g->n_v, g->n_v), &rule, part);
}

void model_mix_gdn(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_gdn_plan *g = &p->gdn;
    const struct gdn_weights *w = &s->m->layer[layer].gdn;
    struct dev *d = s->d;
    int64_t n = x.ne[1], inner = (int64_t)g->n_v * g->dim_v, channels = w->qkv.ne[1];
    struct tensor in = dev_scratch(d, arch_plan_input_floats(p, layer), n);
    struct tensor alpha = op_cols(in, channels, g->n_v), beta = op_cols(in, channels + g->n_v, g->n_v);
    struct tensor z = dev_scratch(d, inner, n), o = dev_scratch(d, inner, n);

    struct op_product made[4] = { { op_cols(in, 0, channels), w->qkv }, { z, w->z } };

    if (g->ba_fused) { /* for each key head: beta of its value heads, then alpha */
        struct tensor ba = dev_scratch(d, (int64_t)2 * g->n_v, n);
        int64_t each = g->n_v / g->n_k;

        made[2] = (struct op_product){ ba, w->ba };
        model_muls(s, made, 3, x);
        op_heads_pick(d, beta, ba, each, 2 * each, 0);
        op_heads_pick(d, alpha, ba, each, 2 * each, each);
    } else {
        made[2] = (struct op_product){ alpha, w->alpha };
        made[3] = (struct op_product){ beta, w->beta };
        model_muls(s, made, 4, x);
    }
    model_scan(s, layer, model_scan_gdn, o, in);
    if (g->sigmoid) {
        op_rms_norm(d, o, o, w->norm, g->dim_v, g->dim_v, p->norm_eps);
        op_sigmoid_mul(d, o, z);
    } else {
        op_rms_norm_gated(d, o, o, z, w->norm, g->dim_v, g->dim_v, p->norm_eps);
    }
    model_mul(s, y, w->out, o);
}
