/* SPDX-License-Identifier: Apache-2.0 */
/* qwen.c - Qwen3.5/3.6 (mixture of experts and dense) and Qwen3-Next: every full_attention_interval-th
 * layer is gated attention, the others are gated delta nets. */
#include <string.h>

#include "arch/arch.h"
#include "gguf/gguf.h"

/* Sections share the rotated pairs between time, height and width, interleaved; for text the three
 * positions are one, so only their sum matters. */
static void check_sections(const struct arch_plan *p, struct arch_keys *k, const char *key)
{
    const struct gguf_kv *sections = gguf_kv_find(k->g, key);
    int64_t pairs = 0;

    for (uint64_t i = 0; sections != NULL && k->e->code == ERR_OK && i < 4; i++) {
        int64_t n = 0;

        if (!gguf_kv_i64(sections, i, &n) || n < 0 || n > ARCH_HEAD_MAX)
            (void)arch_bad(k, "rope.dimension_sections is not 4 numbers");
        pairs += n;
    }
    if (sections != NULL && k->e->code == ERR_OK && pairs != p->attn.n_rot / 2)
        (void)arch_bad(k, "rope.dimension_sections do not add up to rope.dimension_count / 2");
}

static enum err_code make(struct arch_plan *p, struct arch_keys *k, const struct gguf_kv *recurrent, bool moe)
{
    int period = arch_int_or(k, "full_attention_interval", 1, ARCH_LAYERS_MAX, 4);
    int n_ff = moe ? 0 : arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);

    arch_attn(p, k, arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX), ROPE_HALVES);
    p->attn.gated = p->attn.qk_norm = true;
    p->ffn_norm = "post_attention_norm.weight";
    arch_gdn(p, k);
    if (moe) {
        arch_moe(p, k);
        p->moe.shared_gate = true;
    }
    if (k->e->code != ERR_OK)
        return k->e->code;
    if (p->attn.dim_k != p->attn.dim_v)
        return arch_bad(k, "attention.key_length and attention.value_length differ");
    for (int i = 0; i < p->n_layer; i++) {
        int64_t is_recurrent = (i + 1) % period != 0;

        if (recurrent != NULL && !gguf_kv_i64(recurrent, (uint64_t)i, &is_recurrent))
            return arch_bad(k, "attention.recurrent_layers is too short");
        p->layer[i] = (struct layer_plan){ is_recurrent ? MIX_GDN : MIX_ATTN, moe ? FFN_MOE : FFN_DENSE, n_ff };
    }
    return ERR_OK;
}

static enum err_code make_qwen35moe(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "qwen35moe", e };

    (void)make(p, &k, gguf_kv_find(g, "qwen35moe.attention.recurrent_layers"), true);
    check_sections(p, &k, "qwen35moe.rope.dimension_sections");
    return e->code;
}

static enum err_code make_qwen35(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "qwen35", e };

    (void)make(p, &k, gguf_kv_find(g, "qwen35.attention.recurrent_layers"), false);
    check_sections(p, &k, "qwen35.rope.dimension_sections");
    return e->code;
}

static enum err_code make_qwen3next(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "qwen3next", e };

    p->gdn.k_grouped = p->gdn.ba_fused = true;
    return make(p, &k, gguf_kv_find(g, "qwen3next.attention.recurrent_layers"), true);
}

const struct arch arch_qwen35moe = { "qwen35moe", make_qwen35moe };
const struct arch arch_qwen35 = { "qwen35", make_qwen35 };
const struct arch arch_qwen3next = { "qwen3next", make_qwen3next };
