/* SPDX-License-Identifier: Apache-2.0 */
/* kimi_linear.c - Kimi Linear: Kimi delta attention, every few layers multi-head latent attention without
 * positions; leading dense feed-forwards, then experts routed by sigmoids. */
#include <math.h>

#include "arch/arch.h"

/* Attention reads one compressed row per position: a query head is taken into the compressed space. */
static void make_mla(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_attn_plan *a = &p->attn;
    int heads = arch_int(k, "attention.head_count", 1, ARCH_HEADS_MAX);
    int key = arch_int(k, "attention.key_length_mla", 1, ARCH_HEAD_MAX);

    p->mla.rank = arch_int(k, "attention.kv_lora_rank", 1, ARCH_HEAD_MAX);
    p->mla.dim_rope = arch_int(k, "rope.dimension_count", 0, ARCH_HEAD_MAX);
    p->mla.dim_v = arch_int(k, "attention.value_length_mla", 1, ARCH_HEAD_MAX);
    p->mla.dim_nope = key - p->mla.dim_rope;
    if (k->e->code == ERR_OK && p->mla.dim_nope < 1)
        arch_bad(k, "attention.key_length_mla is not more than rope.dimension_count");
    a->n_head = heads;
    a->n_head_kv = 1;
    a->dim_k = p->mla.rank + p->mla.dim_rope;
    a->dim_v = p->mla.rank;
    a->scale = 1.0f / sqrtf((float)(key > 0 ? key : 1));
}

static void plan_kimi_linear(struct arch_plan *p, struct arch_keys *k)
{
    int kv[ARCH_LAYERS_MAX] = { 0 };
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    int dense = arch_int_or(k, "leading_dense_block_count", 0, ARCH_LAYERS_MAX, 0);

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    make_mla(p, k);
    p->gdn.n_k = p->gdn.n_v = p->attn.n_head;
    p->gdn.dim = p->gdn.dim_v = arch_int(k, "kda.head_dim", 1, ARCH_HEAD_MAX);
    p->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    arch_moe(p, k);
    p->moe.sigmoid = arch_int(k, "expert_gating_func", 1, 2) == 2;
    p->moe.bias = true;
    p->moe.n_ff_shared = p->moe.n_ff * arch_int_or(k, "expert_shared_count", 0, 64, 1);
    if (k->e->code == ERR_OK && p->moe.n_ff_shared > ARCH_WIDTH_MAX)
        arch_bad(k, "expert_shared_count is too large");
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = (struct arch_layer_plan){ kv[i] > 0 ? MIX_MLA : MIX_KDA, i < dense ? FFN_DENSE : FFN_MOE, n_ff };
}

const struct arch arch_kimi_linear = { .name = "kimi-linear", .make = plan_kimi_linear };
