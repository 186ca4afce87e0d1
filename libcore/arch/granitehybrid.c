/* SPDX-License-Identifier: Apache-2.0 */
/* granitehybrid.c - Granite 4.0 hybrids and Bamba: Mamba-2 or attention, then a dense feed-forward or experts
 * with an ungated shared one; embedding, residual, score and logit multipliers. */
#include "arch/arch.h"

static void plan_granite(struct arch_plan *p, struct arch_keys *k)
{
    int kv[ARCH_LAYERS_MAX] = { 0 };
    bool moe = arch_int_or(k, "expert_count", 0, ARCH_EXPERTS_MAX, 0) > 0;
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    int n_kv = arch_shared(k, "attention.head_count_kv", kv, p->n_layer);
    arch_ssm2(p, k);
    if (n_kv > 0) /* positions are rotated in Bamba's files and absent in Granite's */
        arch_attn(p, k, n_kv, arch_bool_or(k, "rope.scaling.finetuned", true) ? ROPE_PAIRS : ROPE_NONE);
    if (moe) {
        arch_moe(p, k);
        p->moe.n_ff = p->moe.n_ff == 0 ? n_ff : p->moe.n_ff;
    }
    p->embd_scale = arch_float_or(k, "embedding_scale", -1e6f, 1e6f, 1.0f);
    p->residual_scale = arch_float_or(k, "residual_scale", -1e6f, 1e6f, 1.0f);
    p->logit_scale = 1.0f / arch_float_or(k, "logit_scale", 1e-6f, 1e6f, 1.0f);
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = (struct arch_layer_plan){ kv[i] > 0 ? MIX_ATTN : MIX_SSM2, moe ? FFN_MOE : FFN_DENSE, n_ff };
}

const struct arch arch_granitehybrid = { .name = "granitehybrid", .make = plan_granite };
