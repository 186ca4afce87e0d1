/* SPDX-License-Identifier: Apache-2.0 */
/* qwen.c - Qwen3.5/3.6 (mixture of experts and dense) and Qwen3-Next: every full_attention_interval-th
 * layer is gated attention, the others are gated delta nets. Qwen3.8-Flash-Next (qwen4exp) has them, too. */
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

/* Element i of a list of whole numbers from least to most. */
static int64_t element(struct arch_keys *k, const char *key, int i, int64_t least, int64_t most)
{
    const struct gguf_kv *kv = arch_kv(k, key);
    int64_t v = 0;

    if (k->e->code == ERR_OK && (kv == NULL || kv->n <= (uint64_t)i))
        err_set(k->e, ERR_FORMAT, "%s: %s.%s has fewer than %d elements", gguf_path(k->g), k->prefix, key, i + 1);
    else if (k->e->code == ERR_OK && (!gguf_kv_i64(kv, (uint64_t)i, &v) || v < least || v > most))
        err_set(k->e, ERR_FORMAT, "%s: element %d of %s.%s is not a whole number in %lld .. %lld", gguf_path(k->g), i,
                k->prefix, key, (long long)least, (long long)most);
    return v;
}

static void plan_table(struct arch_plan *p, struct arch_keys *k)
{
    struct arch_table_plan *t = &p->table;
    const struct gguf_kv *layers = arch_kv(k, "ple.layers"), *mul = arch_kv(k, "ple.layer_multipliers");
    const struct gguf_tensor *rows = gguf_find(k->g, "per_layer_token_embd.weight");

    if (layers == NULL || k->e->code != ERR_OK)
        return;
    if (layers->n > 1) {
        err_set(k->e, ERR_UNSUPPORTED, "%s: %s.ple.layers names %llu layers: only one is supported", gguf_path(k->g),
                k->prefix, (unsigned long long)layers->n);
        return;
    }
    t->layer = (int)element(k, "ple.layers", 0, 0, p->n_layer - 1);
    t->ngram = arch_int(k, "ple.ngram_size", 2, ARCH_NGRAM_MAX);
    t->heads = arch_int(k, "ple.heads_per_ngram", 1, ARCH_TABLE_HEADS_MAX);
    t->dim = arch_int(k, "embedding_length_per_layer_input", 1, ARCH_WIDTH_MAX);
    t->taps = arch_int(k, "ple.conv_kernel", 2, ARCH_TAPS_MAX);
    t->end_token = arch_int(k, "ple.eos_token_id", 0, p->n_vocab - 1);
    if (k->e->code != ERR_OK)
        return;
    if ((t->ngram - 1) * t->heads > ARCH_TABLE_HEADS_MAX || (int64_t)(t->ngram - 1) * t->heads * t->dim != p->n_embd)
        arch_bad(k, "embedding_length_per_layer_input times the heads of all orders is not embedding_length");
    if ((t->taps - 1) * t->ngram >= ARCH_TAPS_MAX)
        arch_bad(k, "ple.conv_kernel and ple.ngram_size reach back too far");
    if (p->layer[t->layer].mixers & MIX_ATTN)
        arch_bad(k, "ple.layers names a layer with attention");
    if (rows == NULL)
        arch_bad(k, "tensor per_layer_token_embd.weight is missing, which ple.layers asks for");
    if (mul == NULL || mul->n < (uint64_t)t->ngram)
        arch_bad(k, "ple.layer_multipliers has fewer elements than ple.ngram_size");
    for (int i = 0; i < t->ngram && k->e->code == ERR_OK; i++)
        if (!gguf_kv_u64(mul, (uint64_t)i, &t->multiplier[i]))
            arch_bad(k, "ple.layer_multipliers is not a list of whole numbers");
    for (int h = 0; h < (t->ngram - 1) * t->heads && k->e->code == ERR_OK; h++) {
        t->first[h] = element(k, "ple.head_offsets", h, 0, INT32_MAX);
        t->size[h] = element(k, "ple.head_vocab_sizes", h, 1, INT32_MAX);
        t->rows = t->first[h] + t->size[h] > t->rows ? t->first[h] + t->size[h] : t->rows;
    }
    if (k->e->code == ERR_OK && t->rows > rows->ne[1])
        err_set(k->e, ERR_FORMAT, "%s: tensor per_layer_token_embd.weight has %lld rows, but %s.ple reads %lld",
                gguf_path(k->g), (long long)rows->ne[1], k->prefix, (long long)t->rows);
    else if (k->e->code == ERR_OK && rows->ne[1] > INT32_MAX)
        arch_bad(k, "tensor per_layer_token_embd.weight has too many rows");
    else if (k->e->code == ERR_OK)
        t->rows = rows->ne[1];
}

static void plan_index(struct arch_plan *p, struct arch_keys *k)
{
    enum { QUERY_MAX = 8192, BUDGET_MAX = 8192 };
    struct arch_index_plan *x = &p->index;
    bool any = false;

    for (int i = 0; i < p->n_layer && k->e->code == ERR_OK; i++) {
        x->ratio[i] = (int)element(k, "attention.compress_ratios", i, 0, 256);
        any |= x->ratio[i] > 0;
        if (x->ratio[i] > 0 && !(p->layer[i].mixers & MIX_ATTN))
            arch_bad(k, "attention.compress_ratios is not 0 in a layer without attention");
    }
    if (!any)
        return;
    x->n_head = arch_int(k, "attention.indexer.head_count", 1, ARCH_HEADS_MAX);
    x->dim = arch_int(k, "attention.indexer.key_length", 1, ARCH_HEAD_MAX);
    x->budget = arch_int(k, "attention.indexer.top_k", 1, BUDGET_MAX);
    if (k->e->code == ERR_OK && x->n_head * x->dim > QUERY_MAX)
        arch_bad(k, "attention.indexer has too wide queries");
    if (k->e->code == ERR_OK && p->attn.n_rot > x->dim)
        arch_bad(k, "rope.dimension_count exceeds attention.indexer.key_length");
    for (int i = 0; i < p->n_layer && k->e->code == ERR_OK; i++)
        if (x->ratio[i] > 0 && x->budget % x->ratio[i] != 0)
            arch_bad(k, "attention.indexer.top_k is not a multiple of attention.compress_ratios");
}

/* Qwen3.8-Flash-Next: the layers of qwen35moe between hyper-connections; attention over chosen blocks; a table of
 * n-grams. The blocks for multi-token prediction are of another form, and nothing reads them. */
static void make_qwen4exp(struct arch_plan *p, struct arch_keys *k)
{
    p->n_unread = p->n_nextn;
    p->n_nextn = 0;
    make_qwen35(p, k);
    p->gdn.sigmoid = true;
    p->streams.n = arch_int(k, "hyper_connection.count", 2, 64);
    p->streams.rank = arch_int(k, "hyper_connection.low_rank", 1, ARCH_WIDTH_MAX);
    if (k->e->code == ERR_OK && arch_plan_width(p) > ARCH_WIDTH_MAX)
        arch_bad(k, "hyper_connection.count times embedding_length is too wide");
    plan_index(p, k);
    plan_table(p, k);
}

const struct arch arch_qwen35moe = { .name = "qwen35moe", .make = make_qwen35, .moe = true };
const struct arch arch_qwen35 = { .name = "qwen35", .make = make_qwen35 };
const struct arch arch_qwen3next = { .name = "qwen3next", .make = make_qwen3next, .moe = true };
const struct arch arch_qwen4exp = { .name = "qwen4exp", .make = make_qwen4exp, .moe = true };
