/* SPDX-License-Identifier: Apache-2.0 */
/* jamba.c - Jamba: Mamba with normed dt, B and C, or attention without positions; dense feed-forwards and
 * experts by turns, as the file's tensors say. */
#include "arch/arch.h"

static void plan_jamba(struct arch_plan *p, struct arch_keys *k)
{
    int kv[ARCH_LAYERS_MAX] = { 0 };
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    int n_kv = arch_shared(k, "attention.head_count_kv", kv, p->n_layer);
    arch_ssm1(p, k);
    if (n_kv > 0)
        arch_attn(p, k, n_kv, ROPE_NONE);
    if (arch_int_or(k, "expert_count", 0, ARCH_EXPERTS_MAX, 0) > 0) {
        arch_moe(p, k);
        p->moe.n_ff = p->moe.n_ff == 0 ? n_ff : p->moe.n_ff;
        p->moe.normalise = false;
    }
    for (int i = 0; i < p->n_layer; i++) {
        bool moe = p->moe.n_expert > 0 && arch_has_tensor(k, "ffn_gate_inp.weight", i);

        p->layer[i] = (struct arch_layer_plan){ kv[i] > 0 ? MIX_ATTN : MIX_SSM1, moe ? FFN_MOE : FFN_DENSE, n_ff };
    }
}

const struct arch arch_jamba = { .name = "jamba", .make = plan_jamba };
