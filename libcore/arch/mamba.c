/* SPDX-License-Identifier: Apache-2.0 */
/* mamba.c - Mamba, FalconMamba and Mamba-2: nothing but selective scans. */
#include "arch/arch.h"

static enum err_code make_mamba(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "mamba", e };

    arch_ssm1(p, &k);
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i].mixers = MIX_SSM1;
    return e->code;
}

static enum err_code make_mamba2(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "mamba2", e };

    arch_ssm2(p, &k);
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i].mixers = MIX_SSM2;
    return e->code;
}

const struct arch arch_mamba = { "mamba", make_mamba };
const struct arch arch_mamba2 = { "mamba2", make_mamba2 };
