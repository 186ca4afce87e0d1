/* SPDX-License-Identifier: Apache-2.0 */
/* hymba.c - Hymba (Dong et al. 2024): attention and Mamba side by side in every layer, most with a window, some with
 * keys and values of a layer before; rows that are no tokens stand in front of every sequence. The names of keys and
 * tensors are those of chimere-families(7): no other program has any. */
#include "arch/arch.h"

/* Windows, and whose keys and values a layer reads. */
static void plan_layers(struct arch_plan *p, struct arch_keys *k, int n_ff)
{
    int windowed[ARCH_LAYERS_MAX] = { 0 }, of[ARCH_LAYERS_MAX] = { 0 };
    const int window = arch_int(k, "attention.sliding_window", 1, ARCH_CTX_MAX);

    arch_ints(k, "attention.sliding_window_pattern", 0, 1, windowed, p->n_layer);
    arch_ints(k, "attention.kv_of", 0, p->n_layer - 1, of, p->n_layer);
    for (int i = 0; i < p->n_layer && k->e->code == ERR_OK; i++) {
        if (of[i] > i || of[of[i]] != of[i])
            arch_bad(k, "hymba.attention.kv_of names a layer that comes later or reads another one's");
        p->layer[i] = (struct arch_layer_plan){ MIX_ATTN | MIX_SSM1, FFN_DENSE, n_ff };
        p->reach[i] = (struct arch_reach){ windowed[i] ? window : 0, of[i] == i ? 0 : 1 + of[i] };
    }
}

static void plan_hymba(struct arch_plan *p, struct arch_keys *k)
{
    static const char *const needed[] = { "ssm_conv1d.bias", "ssm_dt_norm.weight", "ssm_b_norm.weight",
                                          "ssm_c_norm.weight" };
    const struct arch_attn_plan *a = &p->attn;
    const int n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    const int n_vocab = arch_int(k, "vocab_size", 1, INT32_MAX / 4);

    p->n_meta = arch_int(k, "meta_token_count", 1, 4096);
    arch_attn(p, k, arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX), ROPE_HALVES);
    arch_ssm1(p, k);
    if (k->e->code != ERR_OK)
        return;
    if (n_vocab + p->n_meta != p->n_vocab)
        arch_bad(k, "token_embd.weight has not hymba.vocab_size + hymba.meta_token_count rows");
    else if (a->n_head * a->dim_k != p->n_embd || a->n_head * a->dim_v != 2 * p->n_embd)
        arch_bad(k, "hymba.attention.key_length is not embedding_length / head_count, or value_length not twice that");
    else if (a->n_rot != a->dim_k)
        arch_bad(k, "hymba.rope.dimension_count is not attention.key_length");
    else if (p->ssm.inner != 2 * p->n_embd)
        arch_bad(k, "hymba.ssm.inner_size is not 2 embedding_length");
    else if (p->ssm.norm)
        arch_bad(k, "hymba.ssm.dt_b_c_rms is true");
    p->n_vocab = n_vocab;
    p->joined = true;
    plan_layers(p, k, n_ff);
    arch_need(p, k, needed, (int)(sizeof needed / sizeof needed[0]));
}

const struct arch arch_hymba = { .name = "hymba", .make = plan_hymba };
