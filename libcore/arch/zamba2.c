/* SPDX-License-Identifier: Apache-2.0 */
/* zamba2.c - Zamba2 (Glorioso et al. 2024): Mamba-2 in every layer, in some of them behind attention and a gated
 * feed-forward, which read the layer's input beside the token's embedding. The weights of these are shared by turns and
 * differ by adapters; in a file every layer has its own, with the adapters merged. */
#include <math.h>

#include "arch/arch.h"

/* Layers with attention are those whose number of KV heads is not 0. */
static bool heads_are_plain(const struct arch_plan *p, struct arch_keys *k, const int *kv)
{
    const int shared = arch_shared(k, "attention.head_count_kv", kv, p->n_layer);

    if (k->e->code == ERR_OK && shared == 0)
        arch_bad(k, "zamba2.attention.head_count_kv is 0 for every layer");
    else if (k->e->code == ERR_OK && shared != p->attn.n_head)
        arch_bad(k, "zamba2.attention.head_count_kv is neither 0 nor attention.head_count");
    return k->e->code == ERR_OK;
}

static void plan_zamba2(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_attn_plan *a = &p->attn;
    int kv[ARCH_LAYERS_MAX] = { 0 };
    int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    int n_head = arch_int(k, "attention.head_count", 1, ARCH_HEADS_MAX);
    int n_rot = arch_int(k, "rope.dimension_count", 0, ARCH_HEAD_MAX);

    arch_ints(k, "attention.head_count_kv", 0, ARCH_HEADS_MAX, kv, p->n_layer);
    arch_attn(p, k, n_head, n_rot > 0 ? ROPE_HALVES : ROPE_NONE);
    arch_ssm2(p, k);
    if (!heads_are_plain(p, k, kv))
        return;
    a->n_in = 2 * p->n_embd;
    if (a->dim_k != a->dim_v || (int64_t)a->dim_k * n_head != a->n_in)
        arch_bad(k, "zamba2.attention.key_length and value_length are not 2 embedding_length / attention.head_count");
    else if (n_rot != 0 && n_rot != a->dim_k)
        arch_bad(k, "zamba2.rope.dimension_count is neither 0 nor attention.key_length");
    else if (p->ssm.inner != 2 * p->n_embd)
        arch_bad(k, "zamba2.ssm.inner_size is not 2 embedding_length");
    a->scale = 1.0f / sqrtf((float)a->dim_k / 2);
    p->ssm.norm_eps = 1e-5f; /* whatever the file says of the others */
    arch_need(p, k, (const char *const[]){ "ssm_norm.weight", "ssm_conv1d.bias" }, 2);
    p->gelu = p->up_gated = p->front = true;
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = kv[i] > 0 ? (struct arch_layer_plan){ MIX_ATTN | MIX_SSM2, FFN_DENSE, n_ff }
                                : (struct arch_layer_plan){ .mixers = MIX_SSM2 };
}

const struct arch arch_zamba2 = { .name = "zamba2", .make = plan_zamba2 };
