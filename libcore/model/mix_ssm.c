/* SPDX-License-Identifier: Apache-2.0 */
/* mix_ssm.c - Mamba (Gu & Dao 2023) and Mamba-2 (Dao & Gu 2024) blocks. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_ssm1(struct layer_weights *l, const struct plan *p, struct binder *b)
{
    struct ssm_weights *w = &l->ssm;
    const struct ssm_plan *m = &p->ssm;

    w->in = bind_mat(b, "ssm_in.weight", p->n_embd, (int64_t)2 * m->inner, 1);
    w->x = bind_mat(b, "ssm_x.weight", m->inner, m->dt_rank + (int64_t)2 * m->n_state, 1);
    w->dt = bind_mat(b, "ssm_dt.weight", m->dt_rank, m->inner, 1);
    w->out = bind_mat(b, "ssm_out.weight", m->inner, p->n_embd, 1);
    w->conv = bind_conv(b, "ssm_conv1d.weight", p->taps, m->inner);
    w->conv_bias = bind_vec_opt(b, "ssm_conv1d.bias", m->inner);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", m->inner);
    w->a = bind_conv(b, "ssm_a", m->n_state, m->inner);
    w->d = bind_vec(b, "ssm_d", m->inner);
    w->dt_norm = bind_vec_opt(b, "ssm_dt_norm.weight", m->dt_rank);
    w->b_norm = bind_vec_opt(b, "ssm_b_norm.weight", m->n_state);
    w->c_norm = bind_vec_opt(b, "ssm_c_norm.weight", m->n_state);
}

void model_mix_ssm1(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct plan *p = &s->m->plan;
    const struct ssm_plan *m = &p->ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct op_conv conv = { p->taps, w->conv, w->conv_bias, true, state_conv(s->state, layer) };
    const struct op_ssm1 scan = { m->n_state, w->a, w->d, w->dt_bias, state_rec(s->state, layer) };
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor xz = dev_scratch(d, (int64_t)2 * m->inner, n), mixed = dev_scratch(d, m->inner, n);
    struct tensor small = dev_scratch(d, w->x.ne[1], n), dt = dev_scratch(d, m->inner, n);
    struct tensor o = dev_scratch(d, m->inner, n);
    struct tensor rank = op_cols(small, 0, m->dt_rank), b = op_cols(small, m->dt_rank, m->n_state);
    struct tensor c = op_cols(small, (int64_t)m->dt_rank + m->n_state, m->n_state);

    op_matmul(d, xz, w->in, x);
    op_conv(d, mixed, op_cols(xz, 0, m->inner), &conv, s->rows);
    op_matmul(d, small, w->x, mixed);
    if (m->norm || w->dt_norm != NULL)
        op_rms_norm(d, rank, rank, w->dt_norm, m->dt_rank, 0, p->norm_eps);
    if (m->norm || w->b_norm != NULL)
        op_rms_norm(d, b, b, w->b_norm, m->n_state, 0, p->norm_eps);
    if (m->norm || w->c_norm != NULL)
        op_rms_norm(d, c, c, w->c_norm, m->n_state, 0, p->norm_eps);
    op_matmul(d, dt, w->dt, rank);
    op_ssm1(d, o, mixed, dt, b, c, &scan, s->rows);
    op_glu(d, o, op_cols(xz, m->inner, m->inner), o);
    op_matmul(d, y, w->out, o);
}

void model_bind_ssm2(struct layer_weights *l, const struct plan *p, struct binder *b)
{
    struct ssm_weights *w = &l->ssm;
    const struct ssm_plan *m = &p->ssm;
    int64_t channels = m->inner + (int64_t)2 * m->n_group * m->n_state;

    w->in = bind_mat(b, "ssm_in.weight", p->n_embd, m->inner + channels + m->n_head, 1);
    w->out = bind_mat(b, "ssm_out.weight", m->inner, p->n_embd, 1);
    w->conv = bind_conv(b, "ssm_conv1d.weight", p->taps, channels);
    w->conv_bias = bind_vec_opt(b, "ssm_conv1d.bias", channels);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", m->n_head);
    w->a = bind_vec(b, "ssm_a", m->n_head);
    w->d = bind_vec(b, "ssm_d", m->n_head);
    w->norm = bind_vec_opt(b, "ssm_norm.weight", m->inner);
}

void model_mix_ssm2(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct plan *p = &s->m->plan;
    const struct ssm_plan *m = &p->ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct op_conv conv = { p->taps, w->conv, w->conv_bias, true, state_conv(s->state, layer) };
    const struct op_ssm2 scan = { m->n_head, m->inner / m->n_head, m->n_group, m->n_state, w->a, w->d,
                                  w->dt_bias, state_rec(s->state, layer) };
    struct dev *d = s->d;
    int64_t n = x.ne[1], channels = m->inner + (int64_t)2 * m->n_group * m->n_state;
    struct tensor in = dev_scratch(d, w->in.ne[1], n); /* z, xbc, dt */
    struct tensor mixed = dev_scratch(d, channels, n), o = dev_scratch(d, m->inner, n);

    op_matmul(d, in, w->in, x);
    op_conv(d, mixed, op_cols(in, m->inner, channels), &conv, s->rows);
    op_ssm2(d, o, mixed, op_cols(in, m->inner + channels, m->n_head), &scan, s->rows);
    op_glu(d, o, op_cols(in, 0, m->inner), o);
    if (w->norm != NULL) /* group by group, after the gate */
        op_rms_norm(d, o, o, w->norm, m->inner, m->inner / m->n_group, p->norm_eps);
    op_matmul(d, y, w->out, o);
}
