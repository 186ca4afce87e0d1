/* SPDX-License-Identifier: Apache-2.0 */
/* mix_kda.c - the two mixers of Kimi Linear and Ling 3.0: Kimi delta attention, and multi-head latent attention in its
 * absorbed form (DeepSeek-V2, 2024): queries go into the compressed space, one row per position is kept. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_kda(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct kda_weights *w = &l->kda;
    int64_t dim = p->gdn.dim, inner = p->gdn.n_v * dim, gates = p->gdn.full_gates ? inner : dim;
    static const char *const conv[3] = { "ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight" };

    w->q = bind_mat(b, "attn_q.weight", p->n_embd, inner, 1);
    w->k = bind_mat(b, "attn_k.weight", p->n_embd, inner, 1);
    w->v = bind_mat(b, "attn_v.weight", p->n_embd, inner, 1);
    w->beta = bind_mat(b, "ssm_beta.weight", p->n_embd, p->gdn.n_v, 1);
    w->f_a = bind_mat(b, "ssm_f_a.weight", p->n_embd, gates, 1);
    w->g_a = bind_mat(b, "ssm_g_a.weight", p->n_embd, gates, 1);
    if (!p->gdn.full_gates) {
        w->f_b = bind_mat(b, "ssm_f_b.weight", dim, inner, 1);
        w->g_b = bind_mat(b, "ssm_g_b.weight", dim, inner, 1);
    }
    w->out = bind_mat(b, "attn_output.weight", inner, p->n_embd, 1);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", inner);
    w->a = bind_vec(b, "ssm_a", p->gdn.n_v);
    w->norm = bind_vec(b, "ssm_norm.weight", dim);
    w->conv = bind_transposed(b, conv, 3, p->taps, inner);
}

/* in: q, k, v before the convolution, decay, beta */
void model_scan_kda(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                    struct tensor o, struct tensor in)
{
    const struct arch_plan *p = &s->m->plan;
    const struct kda_weights *w = &s->m->layer[layer].kda;
    const struct op_conv conv = { p->taps, w->conv, NULL, true, mem->conv, 1 };
    const struct op_kda rule = { p->gdn.n_v, p->gdn.dim, p->norm_eps, w->a, w->dt_bias, mem->rec, p->gdn.decay_bound };
    int64_t inner = (int64_t)p->gdn.n_v * p->gdn.dim;
    struct tensor mixed = model_mixed(s, &mem->conv, part, 3 * inner);

    op_conv(s->d, mixed, op_cols(in, 0, 3 * inner), &conv, part);
    op_kda(s->d, o, mixed, op_cols(in, 3 * inner, inner), op_cols(in, 4 * inner, p->gdn.n_v), &rule, part);
}

void model_mix_kda(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct kda_weights *w = &s->m->layer[layer].kda;
    struct dev *d = s->d;
    const bool full = p->gdn.full_gates;
    int64_t n = x.ne[1], dim = p->gdn.dim, inner = p->gdn.n_v * dim;
    struct tensor in = dev_scratch(d, arch_plan_input_floats(p, layer), n);
    struct tensor low = dev_scratch(d, full ? 0 : dim, n), gate = dev_scratch(d, inner, n);
    struct tensor o = dev_scratch(d, inner, n), decay = op_cols(in, 3 * inner, inner);

    model_muls(s,
               (const struct op_product[]){ { op_cols(in, 0, inner), w->q },
                                            { op_cols(in, inner, inner), w->k },
                                            { op_cols(in, 2 * inner, inner), w->v },
                                            { full ? decay : low, w->f_a },
                                            { op_cols(in, 4 * inner, p->gdn.n_v), w->beta },
                                            { full ? gate : low, w->g_a } },
               full ? 6 : 4, x);
    if (!full) {
        model_mul(s, decay, w->f_b, low);
        model_mul(s, op_cols(in, 4 * inner, p->gdn.n_v), w->beta, x);
    }
    model_scan(s, layer, model_scan_kda, o, in);
    op_rms_norm(d, o, o, w->norm, dim, dim, p->norm_eps);
    if (!full) {
        model_mul(s, low, w->g_a, x);
        model_mul(s, gate, w->g_b, low);
    }
    op_sigmoid_mul(d, o, gate);
    model_mul(s, y, w->out, o);
}

void model_bind_mla(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct mla_weights *w = &l->mla;
    const struct arch_mla_plan *m = &p->mla;
    int64_t heads = p->attn.n_head;

    if (m->rank_q > 0) {
        w->q_a = bind_mat(b, "attn_q_a.weight", p->n_embd, m->rank_q, 1);
        w->q_norm = bind_vec(b, "attn_q_a_norm.weight", m->rank_q);
    }
    w->q = bind_mat(b, m->rank_q > 0 ? "attn_q_b.weight" : "attn_q.weight", m->rank_q > 0 ? m->rank_q : p->n_embd,
                    heads * (m->dim_nope + m->dim_rope), 1);
    if (m->head_gate)
        w->gate = bind_mat(b, "attn_gate.weight", p->n_embd, heads, 1);
    w->kv_a = bind_mat(b, "attn_kv_a_mqa.weight", p->n_embd, (int64_t)m->rank + m->dim_rope, 1);
    w->k_b = bind_mat(b, "attn_k_b.weight", m->dim_nope, m->rank, heads);
    w->v_b = bind_mat(b, "attn_v_b.weight", m->rank, m->dim_v, heads);
    w->o = bind_mat(b, "attn_output.weight", heads * m->dim_v, p->n_embd, 1);
    w->kv_norm = bind_vec(b, "attn_kv_a_norm.weight", m->rank);
}

void model_mix_mla(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_mla_plan *m = &p->mla;
    const struct mla_weights *w = &s->m->layer[layer].mla;
    const struct op_kv *kv = state_kv(s->state, layer);
    struct dev *d = s->d;
    int64_t n = x.ne[1], heads = p->attn.n_head, part = m->dim_nope + m->dim_rope, key = p->attn.dim_k;
    struct tensor q = dev_scratch(d, heads * part, n), wide = dev_scratch(d, heads * key, n);
    struct tensor row = dev_scratch(d, key, n), low = op_cols(row, 0, m->rank);
    struct tensor o = dev_scratch(d, heads * m->rank, n), v = dev_scratch(d, heads * m->dim_v, n);
    struct tensor q_a = dev_scratch(d, m->rank_q, n), gate = dev_scratch(d, m->head_gate ? heads : 0, n);
    const struct op_rope rope = { key, p->attn.n_rot, s->m->layer[layer].rope_freq, p->attn.rope == ROPE_PAIRS,
                                  m->rank };

    model_muls(s,
               (const struct op_product[]){
                   { m->rank_q > 0 ? q_a : q, m->rank_q > 0 ? w->q_a : w->q }, { row, w->kv_a }, { gate, w->gate } },
               m->head_gate ? 3 : 2, x);
    if (m->rank_q > 0) {
        op_rms_norm(d, q_a, q_a, w->q_norm, m->rank_q, 0, p->norm_eps);
        model_mul(s, q, w->q, q_a);
    }
    op_rms_norm(d, low, low, w->kv_norm, m->rank, 0, p->norm_eps);
    for (int h = 0; h < heads; h++) {
        model_mul(s, op_cols(wide, h * key, m->rank), op_matrix(w->k_b, h), op_cols(q, h * part, m->dim_nope));
        op_heads_pick(d, op_cols(wide, h * key + m->rank, m->dim_rope), op_cols(q, h * part + m->dim_nope, m->dim_rope),
                      m->dim_rope, m->dim_rope, 0);
    }
    if (p->attn.rope != ROPE_NONE) {
        op_rope(d, wide, &rope, s->rows);
        op_rope(d, row, &rope, s->rows);
    }
    if (op_kv_rotated(kv)) { /* values are the compressed part as it was */
        struct tensor turned = dev_scratch(d, key, n);

        op_hadamard(d, wide, wide, key);
        op_hadamard(d, turned, row, key);
        row = turned;
    }
    op_kv_store(d, row, low, kv, s->rows);
    op_attn(d, o, wide, kv, p->attn.scale, s->rows);
    for (int h = 0; h < heads; h++)
        model_mul(s, op_cols(v, (int64_t)h * m->dim_v, m->dim_v), op_matrix(w->v_b, h),
                  op_cols(o, (int64_t)h * m->rank, m->rank));
    if (m->head_gate)
        op_sigmoid_mul(d, v, gate);
    model_mul(s, y, w->o, v);
}
