/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2.c - LFM2, dense and with experts: gated short convolutions, every few layers attention with normed
 * queries and keys. */
#include "arch/arch.h"

static void plan_lfm2(struct arch_plan *p, struct arch_keys *k)
{
    const bool moe = p->arch->moe;
    int kv[ARCH_LAYERS_MAX] = { 0 };
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    int dense = moe ? arch_int_or(k, "leading_dense_block_count", 0, ARCH_LAYERS_MAX, 0) : p->n_layer;

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    int n_kv = arch_shared(k, "attention.head_count_kv", kv, p->n_layer);
    if (n_kv > 0)
        arch_attn(p, k, n_kv, ROPE_HALVES);
    p->attn.qk_norm = true;
    p->out_norm = "token_embd_norm.weight";
    p->taps = arch_int(k, "shortconv.l_cache", 2, ARCH_TAPS_MAX);
    if (moe) {
        arch_moe(p, k);
        p->moe.sigmoid = arch_int(k, "expert_gating_func", 1, 2) == 2;
        p->moe.bias = true;
    }
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] =
            (struct arch_layer_plan){ kv[i] > 0 ? MIX_ATTN : MIX_CONV, i < dense ? FFN_DENSE : FFN_MOE, n_ff };
}

const struct arch arch_lfm2 = { .name = "lfm2", .make = plan_lfm2 };
const struct arch arch_lfm2moe = { .name = "lfm2moe", .make = plan_lfm2, .moe = true };
