/* SPDX-License-Identifier: Apache-2.0 */
/* qwen35moe.c - Qwen3.5 and Qwen3.6 mixture-of-experts models: every full_attention_interval-th layer is
 * gated attention, the others are gated delta nets; each is followed by routed and shared experts. */
#include <math.h>

#include "arch/arch.h"
#include "gguf/gguf.h"

static enum err_code make_attn(struct attn_plan *a, struct arch_keys *k)
{
    const struct gguf_kv *sections = gguf_kv_find(k->g, "qwen35moe.rope.dimension_sections");
    int64_t pairs = 0;

    a->n_head = arch_int(k, "attention.head_count", 1, ARCH_HEADS_MAX);
    a->n_head_kv = arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX);
    a->dim_k = arch_int(k, "attention.key_length", 1, ARCH_HEAD_MAX);
    a->dim_v = arch_int(k, "attention.value_length", 1, ARCH_HEAD_MAX);
    a->n_rot = arch_int(k, "rope.dimension_count", 0, ARCH_HEAD_MAX);
    a->rope_base = arch_float(k, "rope.freq_base", 1.0f, 1e12f);
    a->gated = true;
    if (k->e->code != ERR_OK)
        return k->e->code;
    if (a->n_head % a->n_head_kv != 0)
        return err_set(k->e, ERR_FORMAT, "%s: attention.head_count is not a multiple of head_count_kv",
                       gguf_path(k->g));
    if (a->dim_k != a->dim_v)
        return err_set(k->e, ERR_FORMAT, "%s: attention.key_length and value_length differ",
                       gguf_path(k->g));
    if (a->n_rot > a->dim_k || a->n_rot % 2 != 0)
        return err_set(k->e, ERR_FORMAT, "%s: rope.dimension_count is odd or exceeds key_length",
                       gguf_path(k->g));
    /* Sections share the rotated pairs between time, height and width, interleaved; for text the
     * three positions are one, so only their sum matters. */
    for (uint64_t i = 0; sections != NULL && i < 4; i++) {
        int64_t n = 0;

        if (!gguf_kv_i64(sections, i, &n) || n < 0 || n > ARCH_HEAD_MAX)
            return err_set(k->e, ERR_FORMAT, "%s: rope.dimension_sections is not 4 numbers",
                           gguf_path(k->g));
        pairs += n;
    }
    if (sections != NULL && pairs != a->n_rot / 2)
        return err_set(k->e, ERR_FORMAT, "%s: rope.dimension_sections do not add up to dimension_count / 2",
                       gguf_path(k->g));
    a->scale = 1.0f / sqrtf((float)a->dim_k);
    return ERR_OK;
}

static enum err_code make_gdn(struct gdn_plan *d, struct arch_keys *k)
{
    int inner = arch_int(k, "ssm.inner_size", 1, ARCH_WIDTH_MAX);

    d->dim = arch_int(k, "ssm.state_size", 1, ARCH_HEAD_MAX);
    d->n_k = arch_int(k, "ssm.group_count", 1, ARCH_HEADS_MAX);
    d->n_v = arch_int(k, "ssm.time_step_rank", 1, ARCH_HEADS_MAX);
    d->taps = arch_int(k, "ssm.conv_kernel", 2, ARCH_TAPS_MAX);
    if (k->e->code != ERR_OK)
        return k->e->code;
    if (d->n_v % d->n_k != 0)
        return err_set(k->e, ERR_FORMAT, "%s: ssm.time_step_rank is not a multiple of group_count",
                       gguf_path(k->g));
    if (inner % d->n_v != 0 || inner / d->n_v > ARCH_HEAD_MAX)
        return err_set(k->e, ERR_FORMAT, "%s: ssm.inner_size does not divide into time_step_rank heads",
                       gguf_path(k->g));
    d->dim_v = inner / d->n_v;
    return ERR_OK;
}

static enum err_code make_moe(struct moe_plan *m, struct arch_keys *k)
{
    m->n_expert = arch_int(k, "expert_count", 1, ARCH_EXPERTS_MAX);
    m->n_used = arch_int(k, "expert_used_count", 1, ARCH_EXPERTS_MAX);
    m->n_ff = arch_int(k, "expert_feed_forward_length", 1, ARCH_WIDTH_MAX);
    m->n_ff_shared = arch_int_or(k, "expert_shared_feed_forward_length", 0, ARCH_WIDTH_MAX, 0);
    m->normalise = true;
    m->scale = 1.0f;
    if (k->e->code == ERR_OK && m->n_used > m->n_expert)
        return err_set(k->e, ERR_FORMAT, "%s: expert_used_count exceeds expert_count", gguf_path(k->g));
    return k->e->code;
}

static enum err_code make(struct plan *p, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "qwen35moe", e };
    const struct gguf_kv *recurrent = gguf_kv_find(g, "qwen35moe.attention.recurrent_layers");
    int period = arch_int_or(&k, "full_attention_interval", 1, ARCH_LAYERS_MAX, 4);

    if (e->code != ERR_OK || make_attn(&p->attn, &k) != ERR_OK || make_gdn(&p->gdn, &k) != ERR_OK ||
        make_moe(&p->moe, &k) != ERR_OK)
        return e->code;
    for (int i = 0; i < p->n_layer; i++) {
        int64_t is_recurrent = (i + 1) % period != 0;

        if (recurrent != NULL && !gguf_kv_i64(recurrent, (uint64_t)i, &is_recurrent))
            return err_set(e, ERR_FORMAT, "%s: attention.recurrent_layers is too short", gguf_path(g));
        p->layer[i] = (struct layer_plan){ is_recurrent ? MIX_GDN : MIX_ATTN, FFN_MOE };
    }
    return ERR_OK;
}

const struct arch arch_qwen35moe = { "qwen35moe", make };
