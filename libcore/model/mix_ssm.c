/* SPDX-License-Identifier: Apache-2.0 */
/* mix_ssm.c - Mamba (Gu & Dao 2023) and Mamba-2 (Dao & Gu 2024) blocks. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_ssm1(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct ssm_weights *w = &l->ssm;
    const struct arch_ssm_plan *m = &p->ssm;

    w->in = bind_mat(b, "ssm_in.weight", p->n_embd, (int64_t)2 * m->inner, 1);
    w->x = bind_mat(b, "ssm_x.weight", m->inner, m->dt_rank + (int64_t)2 * m->n_state, 1);
    w->dt = bind_mat(b, "ssm_dt.weight", m->dt_rank, m->inner, 1);
    if (!p->joined)
        w->out = bind_mat(b, "ssm_out.weight", m->inner, p->n_embd, 1);
    w->conv = bind_transposed(b, (const char *[]){ "ssm_conv1d.weight" }, 1, p->taps, m->inner);
    w->conv_bias = bind_vec_opt(b, "ssm_conv1d.bias", m->inner);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", m->inner);
    w->a = bind_transposed(b, (const char *[]){ "ssm_a" }, 1, m->n_state, m->inner);
    w->d = bind_vec(b, "ssm_d", m->inner);
    w->dt_norm = bind_vec_opt(b, "ssm_dt_norm.weight", m->dt_rank);
    w->b_norm = bind_vec_opt(b, "ssm_b_norm.weight", m->n_state);
    w->c_norm = bind_vec_opt(b, "ssm_c_norm.weight", m->n_state);
}

/* Columns of a Mamba-1 layer's inputs: x before the convolution, dt, b, c. */
struct ssm1_inputs {
    struct tensor x, dt, b, c;
};

static struct ssm1_inputs ssm1_cut(struct tensor in, const struct arch_ssm_plan *m)
{
    int64_t inner = m->inner;

    return (struct ssm1_inputs){ op_cols(in, 0, inner), op_cols(in, inner, inner), op_cols(in, 2 * inner, m->n_state),
                                 op_cols(in, 2 * inner + m->n_state, m->n_state) };
}

static void ssm1_conv(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                      struct tensor mixed, struct tensor x)
{
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct op_conv conv = { s->m->plan.taps, w->conv, w->conv_bias, true, mem->conv, 1 };

    op_conv(s->d, mixed, x, &conv, part);
}

static void ssm1_rule(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                      struct tensor o, struct tensor mixed, struct tensor in)
{
    const struct arch_ssm_plan *m = &s->m->plan.ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct op_ssm1 rule = { m->n_state, w->a, w->d, w->dt_bias, mem->rec };
    struct ssm1_inputs i = ssm1_cut(in, m);

    op_ssm1(s->d, o, mixed, i.dt, i.b, i.c, &rule, part);
}

void model_scan_ssm1(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                     struct tensor o, struct tensor in)
{
    const struct arch_ssm_plan *m = &s->m->plan.ssm;
    struct tensor mixed = model_mixed(s, &mem->conv, part, m->inner);

    ssm1_conv(s, layer, part, mem, mixed, ssm1_cut(in, m).x);
    ssm1_rule(s, layer, part, mem, o, mixed, in);
}

/* dt, b and c come out of the convolved x, so the two halves of the scan stand apart here. */
void model_mix_ssm1(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_ssm_plan *m = &p->ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct state_rec live = state_live(s->state, layer);
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor in = dev_scratch(d, arch_plan_input_floats(p, layer), n);
    struct ssm1_inputs i = ssm1_cut(in, m);
    struct tensor xz = dev_scratch(d, (int64_t)2 * m->inner, n);
    struct tensor mixed = model_mixed(s, &live.conv, s->rows, m->inner);
    struct tensor small = dev_scratch(d, w->x.ne[1], n), o = p->joined ? y : dev_scratch(d, m->inner, n);
    struct tensor rank = op_cols(small, 0, m->dt_rank);

    model_mul(s, xz, w->in, x);
    op_heads_pick(d, i.x, xz, m->inner, (int64_t)2 * m->inner, 0);
    for (int part = 0; part < s->n_part; part++) {
        ssm1_conv(s, layer, &s->part[part], &live, mixed, i.x);
        model_part_done(s, layer, part, true, false);
    }
    model_mul(s, small, w->x, op_slice(mixed, 0, n));
    if (m->norm || w->dt_norm != NULL)
        op_rms_norm(d, rank, rank, w->dt_norm, m->dt_rank, 0, p->norm_eps);
    model_mul(s, i.dt, w->dt, rank);
    op_heads_pick(d, i.b, op_cols(small, m->dt_rank, m->n_state), m->n_state, m->n_state, 0);
    op_heads_pick(d, i.c, op_cols(small, (int64_t)m->dt_rank + m->n_state, m->n_state), m->n_state, m->n_state, 0);
    if (m->norm || w->b_norm != NULL)
        op_rms_norm(d, i.b, i.b, w->b_norm, m->n_state, 0, p->norm_eps);
    if (m->norm || w->c_norm != NULL)
        op_rms_norm(d, i.c, i.c, w->c_norm, m->n_state, 0, p->norm_eps);
    for (int part = 0; part < s->n_part; part++) {
        ssm1_rule(s, layer, &s->part[part], &live, o, mixed, in);
        model_part_done(s, layer, part, false, true);
    }
    op_glu(d, o, op_cols(xz, m->inner, m->inner), o);
    if (!p->joined)
        model_mul(s, y, w->out, o);
}

void model_bind_ssm2(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct ssm_weights *w = &l->ssm;
    const struct arch_ssm_plan *m = &p->ssm;
    int64_t channels = m->inner + (int64_t)2 * m->n_group * m->n_state;
    struct dev_section s[1 + DEV_SECTIONS_MAX]; /* z, x, b and c, dt */
    const int n = state_channels(s + 1, p, b->layer, 1);

    s[0] = s[1];
    s[n + 1] = (struct dev_section){ (size_t)m->n_head, 1, 1 };
    w->in = bind_heads(b, "ssm_in.weight", p->n_embd, m->inner + channels + m->n_head, s, n + 2);
    w->out = bind_mat(b, "ssm_out.weight", m->inner, p->n_embd, 1);
    w->conv = bind_transposed(b, (const char *[]){ "ssm_conv1d.weight" }, 1, p->taps, channels);
    w->conv_bias = bind_vec_opt(b, "ssm_conv1d.bias", channels);
    w->dt_bias = bind_vec(b, "ssm_dt.bias", m->n_head);
    w->a = bind_vec(b, "ssm_a", m->n_head);
    w->d = bind_vec(b, "ssm_d", m->n_head);
    w->norm = bind_vec_opt(b, "ssm_norm.weight", m->inner);
}

/* in: x, b and c before the convolution, dt */
void model_scan_ssm2(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                     struct tensor o, struct tensor in)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_ssm_plan *m = &p->ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    const struct op_conv conv = { p->taps, w->conv, w->conv_bias, true, mem->conv, 1 };
    const struct op_ssm2 rule = { m->n_head, m->inner / m->n_head, m->n_group, m->n_state, w->a,
                                  w->d,      w->dt_bias,           mem->rec };
    int64_t channels = arch_plan_conv_channels(p, layer);
    struct tensor mixed = model_mixed(s, &mem->conv, part, channels);

    op_conv(s->d, mixed, op_cols(in, 0, channels), &conv, part);
    op_ssm2(s->d, o, mixed, op_cols(in, channels, m->n_head), &rule, part);
}

void model_mix_ssm2(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_ssm_plan *m = &p->ssm;
    const struct ssm_weights *w = &s->m->layer[layer].ssm;
    struct dev *d = s->d;
    int64_t n = x.ne[1];
    struct tensor all = dev_scratch(d, w->in.ne[1], n), o = dev_scratch(d, m->inner, n);

    model_mul(s, all, w->in, x); /* z, then the inputs */
    model_scan(s, layer, model_scan_ssm2, o, op_cols(all, m->inner, arch_plan_input_floats(p, layer)));
    op_glu(d, o, op_cols(all, 0, m->inner), o);
    if (w->norm != NULL) /* group by group, after the gate */
        op_rms_norm(d, o, o, w->norm, m->inner, m->inner / m->n_group, m->norm_eps);
    model_mul(s, y, w->out, o);
}
