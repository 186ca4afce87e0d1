/* SPDX-License-Identifier: Apache-2.0 */
/* kimi_linear.c - Kimi Linear: Kimi delta attention, every few layers multi-head latent attention without
 * positions; leading dense feed-forwards, then experts routed by sigmoids. And Ling 3.0 (bailingmoe3), where decays
 * are bounded, gates have full rank, and latent attention has positions, a gate for each head, queries of low rank. */
#include <math.h>

#include "arch/arch.h"
#include "gguf/gguf.h"

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

static void make_plan(struct arch_plan *p, struct arch_keys *k, int kv_most)
{
    int kv[ARCH_LAYERS_MAX] = { 0 };
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    int dense = arch_int_or(k, "leading_dense_block_count", 0, ARCH_LAYERS_MAX, 0);

    arch_ints(k, "attention.head_count_kv", 0, kv_most, kv, p->n_layer);
    make_mla(p, k);
    p->gdn.n_k = p->gdn.n_v = p->attn.n_head;
    p->gdn.dim = p->gdn.dim_v = arch_int(k, "kda.head_dim", 1, ARCH_HEAD_MAX);
    p->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    arch_moe(p, k);
    p->moe.sigmoid = arch_int(k, "expert_gating_func", 1, 2) == 2;
    p->moe.bias = true;
    if (p->moe.n_ff_shared == 0)
        p->moe.n_ff_shared = p->moe.n_ff * arch_int_or(k, "expert_shared_count", 0, 64, 1);
    if (k->e->code == ERR_OK && p->moe.n_ff_shared > ARCH_WIDTH_MAX)
        arch_bad(k, "expert_shared_count is too large");
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = (struct arch_layer_plan){ kv[i] > 0 ? MIX_MLA : MIX_KDA, i < dense ? FFN_DENSE : FFN_MOE, n_ff };
}

static void plan_kimi_linear(struct arch_plan *p, struct arch_keys *k)
{
    make_plan(p, k, ARCH_HEADS_MAX);
}

/* A limit of the feed-forwards' activations, for each layer; nobody has tested a file that has one. */
static void refuse_clamp(struct arch_keys *k, const char *key)
{
    const struct gguf_kv *kv = arch_kv(k, key);
    double v;

    for (uint64_t i = 0; kv != NULL && i < (kv->kind == GGUF_ARR ? kv->n : 1); i++)
        if (!gguf_kv_f64(kv, i, &v) || v != 0)
            arch_refuse(k, "a limit of the experts' activations (swiglu_clamp) is not supported");
}

static void plan_bailingmoe3(struct arch_plan *p, struct arch_keys *k)
{
    if (!arch_bool_or(k, "kda.safe_gate", true))
        arch_refuse(k, "kda.safe_gate false is not supported");
    refuse_clamp(k, "swiglu_clamp_exp");
    refuse_clamp(k, "swiglu_clamp_shexp");
    if (!arch_bool_or(k, "expert_weights_norm", true))
        arch_refuse(k, "expert_weights_norm false is not supported");
    make_plan(p, k, 1);
    if (!p->moe.sigmoid)
        arch_refuse(k, "expert_gating_func 1 is not supported");
    p->gdn.full_gates = true;
    p->gdn.decay_bound = arch_float(k, "kda.gate_lower_bound", -1e6f, 1e6f);
    if (k->e->code == ERR_OK && p->gdn.decay_bound >= 0.0f)
        arch_bad(k, "bailingmoe3.kda.gate_lower_bound is not below 0");
    p->mla.rank_q = arch_int_or(k, "attention.q_lora_rank", 0, ARCH_WIDTH_MAX, 0);
    p->mla.head_gate = true;
    arch_rope(p, k, ROPE_PAIRS, p->mla.dim_rope);
    p->nextn_mixer = MIX_MLA;
}

const struct arch arch_kimi_linear = { .name = "kimi-linear", .make = plan_kimi_linear };
const struct arch arch_bailingmoe3 = { .name = "bailingmoe3", .make = plan_bailingmoe3, .moe = true };
