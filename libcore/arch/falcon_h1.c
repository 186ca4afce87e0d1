/* SPDX-License-Identifier: Apache-2.0 */
/* falcon_h1.c - Falcon-H1: attention and Mamba-2 side by side in every layer, then a dense feed-forward. Its
 * multipliers are folded into the file's matrices. */
#include "arch/arch.h"

static void plan_falcon_h1(struct arch_plan *p, struct arch_keys *k)
{
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);

    arch_attn(p, k, arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX), ROPE_HALVES);
    arch_ssm2(p, k);
    p->ffn_norm = "ffn_norm";
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = (struct arch_layer_plan){ MIX_ATTN | MIX_SSM2, FFN_DENSE, n_ff };
}

const struct arch arch_falcon_h1 = { .name = "falcon-h1", .make = plan_falcon_h1 };
