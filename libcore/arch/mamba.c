/* SPDX-License-Identifier: Apache-2.0 */
/* mamba.c - Mamba, FalconMamba and Mamba-2: nothing but selective scans. */
#include "arch/arch.h"

static void make_mamba(struct arch_plan *p, struct arch_keys *k)
{
    arch_ssm1(p, k);
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i].mixers = MIX_SSM1;
}

static void make_mamba2(struct arch_plan *p, struct arch_keys *k)
{
    arch_ssm2(p, k);
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i].mixers = MIX_SSM2;
}

const struct arch arch_mamba = { .name = "mamba", .make = make_mamba };
const struct arch arch_mamba2 = { .name = "mamba2", .make = make_mamba2 };
