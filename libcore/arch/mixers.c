/* SPDX-License-Identifier: Apache-2.0 */
/* mixers.c - the fixed memory that each way of mixing positions needs in a layer. */
#include "arch/arch.h"

int64_t arch_plan_conv_channels(const struct arch_plan *p, int layer)
{
    unsigned mixers = p->layer[layer].mixers;

    if (mixers & (MIX_GDN | MIX_KDA))
        return (int64_t)2 * p->gdn.n_k * p->gdn.dim + (int64_t)p->gdn.n_v * p->gdn.dim_v;
    if (mixers & MIX_SSM1)
        return p->ssm.inner;
    if (mixers & MIX_SSM2)
        return p->ssm.inner + (int64_t)2 * p->ssm.n_group * p->ssm.n_state;
    return mixers & MIX_CONV ? p->n_embd : 0;
}

int64_t arch_plan_conv_floats(const struct arch_plan *p, int layer)
{
    return arch_plan_conv_channels(p, layer) * (p->taps - 1);
}

int64_t arch_plan_rec_floats(const struct arch_plan *p, int layer)
{
    unsigned mixers = p->layer[layer].mixers;

    if (mixers & (MIX_GDN | MIX_KDA))
        return (int64_t)p->gdn.n_v * p->gdn.dim * p->gdn.dim_v;
    return mixers & (MIX_SSM1 | MIX_SSM2) ? (int64_t)p->ssm.inner * p->ssm.n_state : 0;
}

int64_t arch_plan_table_floats(const struct arch_plan *p, int layer)
{
    const struct arch_table_plan *t = &p->table;

    return arch_plan_has_table(p, layer) ? arch_plan_width(p) * (t->taps - 1) * t->ngram : 0;
}

bool arch_plan_has_table(const struct arch_plan *p, int layer)
{
    return p->table.ngram > 0 && p->table.layer == layer;
}

int64_t arch_plan_width(const struct arch_plan *p)
{
    return (int64_t)p->streams.n * p->n_embd;
}

int64_t arch_plan_scan_floats(const struct arch_plan *p, int layer)
{
    unsigned mixers = p->layer[layer].mixers;

    if (mixers & (MIX_GDN | MIX_KDA))
        return (int64_t)p->gdn.n_v * p->gdn.dim_v;
    if (mixers & (MIX_SSM1 | MIX_SSM2))
        return p->ssm.inner;
    return mixers & MIX_CONV ? p->n_embd : 0;
}

/* Of the mixer itself. */
static int64_t mixer_input_floats(const struct arch_plan *p, int layer)
{
    unsigned mixers = p->layer[layer].mixers;
    int64_t conv = arch_plan_conv_channels(p, layer);

    if (mixers & MIX_GDN) /* and alpha, beta */
        return conv + (int64_t)2 * p->gdn.n_v;
    if (mixers & MIX_KDA) /* and decay, beta */
        return conv + (int64_t)p->gdn.n_v * (p->gdn.dim + 1);
    if (mixers & MIX_SSM1) /* and dt, b, c */
        return conv + p->ssm.inner + (int64_t)2 * p->ssm.n_state;
    return conv + (mixers & MIX_SSM2 ? p->ssm.n_head : 0); /* and dt */
}

int64_t arch_plan_input_floats(const struct arch_plan *p, int layer)
{
    return mixer_input_floats(p, layer) + (arch_plan_has_table(p, layer) ? arch_plan_width(p) : 0);
}
