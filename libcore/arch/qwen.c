/* SPDX-License-Identifier: Apache-2.0 */
/* qwen.c - Qwen3.5/3.6 (mixture of experts and dense) and Qwen3-Next: every full_attention_interval-th
 * layer is gated attention, the others are gated delta nets. */
#include "arch/arch.h"
#include "gguf/gguf.h"

/* Sections share the rotated pairs between time, height and width, interleaved; for text the three
 * positions are one, so only their sum matters. */
static void check_sections(const struct arch_plan *p, struct arch_keys *k)
{
    const struct gguf_kv *sections = arch_kv(k, "rope.dimension_sections");
    int64_t pairs = 0;

    for (uint64_t i = 0; sections != NULL && k->e->code == ERR_OK && i < 4; i++) {
        int64_t n = 0;

        if (!gguf_kv_i64(sections, i, &n) || n < 0 || n > ARCH_HEAD_MAX)
            arch_bad(k, "rope.dimension_sections is not 4 numbers");
        pairs += n;
    }
    if (sections != NULL && k->e->code == ERR_OK && pairs != p->attn.n_rot / 2)
        arch_bad(k, "rope.dimension_sections do not add up to rope.dimension_count / 2");
}

static void plan_qwen(struct arch_plan *p, struct arch_keys *k)
{
    const bool moe = p->arch->moe;
    int period = arch_int_or(k, "full_attention_interval", 1, ARCH_LAYERS_MAX, 4);
    int n_ff = moe ? 0 : arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    const struct gguf_kv *recurrent = arch_kv(k, "attention.recurrent_layers");

    arch_attn(p, k, arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX), ROPE_HALVES);
    p->attn.gated = p->attn.qk_norm = true;
    p->ffn_norm = "post_attention_norm.weight";
    arch_gdn(p, k);
    if (moe) {
        arch_moe(p, k);
        p->moe.shared_gate = true;
    }
    if (k->e->code != ERR_OK)
        return;
    if (p->attn.dim_k != p->attn.dim_v)
        arch_bad(k, "attention.key_length and attention.value_length differ");
    for (int i = 0; i < p->n_layer; i++) {
        int64_t is_recurrent = (i + 1) % period != 0;

        if (recurrent != NULL && !gguf_kv_i64(recurrent, (uint64_t)i, &is_recurrent))
            arch_bad(k, "attention.recurrent_layers is too short");
        p->layer[i] = (struct arch_layer_plan){ is_recurrent ? MIX_GDN : MIX_ATTN, moe ? FFN_MOE : FFN_DENSE, n_ff };
    }
}

static void make_qwen35(struct arch_plan *p, struct arch_keys *k)
{
    plan_qwen(p, k);
    check_sections(p, k);
}

static void make_qwen3next(struct arch_plan *p, struct arch_keys *k)
{
    p->gdn.k_grouped = p->gdn.ba_fused = true;
    plan_qwen(p, k);
}

const struct arch arch_qwen35moe = { .name = "qwen35moe", .make = make_qwen35, .moe = true };
const struct arch arch_qwen35 = { .name = "qwen35", .make = make_qwen35 };
const struct arch arch_qwen3next = { .name = "qwen3next", .make = make_qwen3next, .moe = true };
