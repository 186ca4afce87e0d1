/* SPDX-License-Identifier: Apache-2.0 */
/* mixers.c - the memory that each way of mixing positions needs in a layer. */
#include "arch/arch.h"

int64_t plan_conv_channels(const struct plan *p, int layer)
{
    const struct gdn_plan *d = &p->gdn;

    if (p->layer[layer].mixers & MIX_GDN)
        return (int64_t)2 * d->n_k * d->dim + (int64_t)d->n_v * d->dim_v;
    return 0;
}

int64_t plan_conv_floats(const struct plan *p, int layer)
{
    return plan_conv_channels(p, layer) * (p->gdn.taps - 1);
}

int64_t plan_rec_floats(const struct plan *p, int layer)
{
    if (p->layer[layer].mixers & MIX_GDN)
        return (int64_t)p->gdn.n_v * p->gdn.dim * p->gdn.dim_v;
    return 0;
}
