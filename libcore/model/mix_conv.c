/* SPDX-License-Identifier: Apache-2.0 */
/* mix_conv.c - LFM2's gated short convolution: out(c * conv(b * x)). */
#include "model/internal.h"
#include "state/state.h"

void model_bind_conv(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct conv_weights *w = &l->conv;

    w->in = bind_mat(b, "shortconv.in_proj.weight", p->n_embd, (int64_t)3 * p->n_embd, 1);
    w->out = bind_mat(b, "shortconv.out_proj.weight", p->n_embd, p->n_embd, 1);
    w->conv = bind_transposed(b, (const char *[]){ "shortconv.conv.weight" }, 1, p->taps, p->n_embd);
}

/* in: b * x */
void model_scan_conv(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                     struct tensor o, struct tensor in)
{
    const struct op_conv conv = { s->m->plan.taps, s->m->layer[layer].conv.conv, NULL, false, mem->conv, 1 };

    op_conv(s->d, o, in, &conv, part);
}

void model_mix_conv(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct conv_weights *w = &s->m->layer[layer].conv;
    struct dev *d = s->d;
    int64_t n = x.ne[1], width = x.ne[0];
    struct tensor bcx = dev_scratch(d, 3 * width, n), o = dev_scratch(d, width, n);
    struct tensor in = op_cols(bcx, 2 * width, width);

    model_mul(s, bcx, w->in, x);
    op_mul(d, in, op_cols(bcx, 0, width));
    model_scan(s, layer, model_scan_conv, o, in);
    op_mul(d, o, op_cols(bcx, width, width));
    model_mul(s, y, w->out, o);
}
