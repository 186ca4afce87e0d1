/* SPDX-License-Identifier: Apache-2.0 */
/* nemotron_h.c - Nemotron-H and Nemotron-3: each layer is one block only, Mamba-2, attention without positions,
 * or a squared-ReLU feed-forward (dense, or routed by sigmoids with a correction bias). */
#include "arch/arch.h"

static void plan_nemotron_h(struct arch_plan *p, struct arch_keys *k)
{
    const bool moe = p->arch->moe;
    int kv[ARCH_LAYERS_MAX] = { 0 }, ff[ARCH_LAYERS_MAX] = { 0 };

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    arch_ints(k, "feed_forward_length", 0, ARCH_WIDTH_MAX, ff, p->n_layer);
    int n_kv = arch_shared(k, "attention.head_count_kv", kv, p->n_layer);
    arch_ssm2(p, k);
    if (n_kv > 0)
        arch_attn(p, k, n_kv, ROPE_NONE);
    if (moe) {
        arch_moe(p, k);
        p->moe.sigmoid = p->moe.bias = true;
        p->moe.normalise = arch_bool_or(k, "expert_weights_norm", true);
        p->moe.n_latent = arch_int_or(k, "moe_latent_size", 0, ARCH_WIDTH_MAX, 0);
    }
    p->relu2 = true;
    for (int i = 0; i < p->n_layer; i++) {
        if (ff[i] > 0)
            p->layer[i] = (struct arch_layer_plan){ 0, moe ? FFN_MOE : FFN_DENSE, ff[i] };
        else
            p->layer[i].mixers = kv[i] > 0 ? MIX_ATTN : MIX_SSM2;
    }
}

const struct arch arch_nemotron_h = { .name = "nemotron_h", .make = plan_nemotron_h };
const struct arch arch_nemotron_h_moe = { .name = "nemotron_h_moe", .make = plan_nemotron_h, .moe = true };
