/* SPDX-License-Identifier: Apache-2.0 */
/* write.c - a shape as a GGUF file, with random weights or as a skeleton. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "shape/internal.h"

#define ROUTE_MOST 0.45 /* of the tokens, for one expert */

enum { STOCK_ELEMS = 1 << 18, STOCKS_MAX = 64 };

/* Encoded random rows of one type and width. */
struct stock {
    int type;
    int64_t ne0, n_rows;
    size_t row_bytes;
    unsigned char *rows;
};

struct filler {
    struct gguf_writer *w;
    uint64_t seed, draws;
    struct stock stock[STOCKS_MAX];
    int n_stocks;
    int64_t done, total;
    const struct progress *progress;
};

/* ---- metadata ---- */

struct keys {
    struct gguf_writer *w;
    const char *arch;
    struct err *e;
    enum err_code code; /* the first failure */
    char full[128];
};

static const char *full(struct keys *k, const char *key)
{
    (void)snprintf(k->full, sizeof k->full, "%s.%s", k->arch, key);
    return k->full;
}

static void put_u32(struct keys *k, const char *key, int v)
{
    if (k->code == ERR_OK)
        k->code = gguf_write_u32(k->w, full(k, key), (uint32_t)v, k->e);
}

static void put_f32(struct keys *k, const char *key, float v)
{
    if (k->code == ERR_OK && v != 0.0f)
        k->code = gguf_write_f32(k->w, full(k, key), v, k->e);
}

/* v for layers whose letter is in `letters`, else 0. */
static void put_layers(struct keys *k, const char *key, const struct row *r, const char *letters, int v)
{
    int32_t *list = calloc((size_t)r->n_layer, sizeof *list);

    if (list == NULL && k->code == ERR_OK)
        k->code = err_nomem(k->e);
    for (int i = 0; list != NULL && i < r->n_layer; i++)
        list[i] = strchr(letters, shape_letter(r, i)) != NULL ? v : 0;
    if (k->code == ERR_OK)
        k->code = gguf_write_arr(k->w, full(k, key), GGUF_I32, list, (uint64_t)r->n_layer, k->e);
    free(list);
}

static void put_moe(struct keys *k, const struct row *r)
{
    put_u32(k, "expert_count", r->n_expert);
    put_u32(k, "expert_used_count", r->n_used);
    put_u32(k, "expert_feed_forward_length", r->n_ff_exp);
    put_u32(k, "expert_shared_feed_forward_length", r->n_ff_shared);
    if (r->expert_scale == 0.0f)
        return;
    put_u32(k, "expert_shared_count", 1);
    put_u32(k, "expert_group_count", r->exp_groups > 0 ? r->exp_groups : 1);
    put_u32(k, "expert_group_used_count", r->exp_groups > 0 ? r->exp_groups_used : 1);
    put_f32(k, "expert_weights_scale", r->expert_scale);
    if (k->code == ERR_OK)
        k->code = gguf_write_bool(k->w, full(k, "expert_weights_norm"), true, k->e);
}

static void put_attn(struct keys *k, const struct row *r)
{
    bool some = strpbrk(r->pattern, "Mm") != NULL; /* others need no list */

    put_u32(k, "attention.head_count", r->n_head);
    if (some)
        put_layers(k, "attention.head_count_kv", r, "AaB", r->n_head_kv);
    else
        put_u32(k, "attention.head_count_kv", r->n_head_kv);
    put_u32(k, "attention.key_length", r->dim);
    put_u32(k, "attention.value_length", r->dim);
    put_f32(k, "attention.scale", r->attn_scale);
    put_f32(k, "attention.layer_norm_rms_epsilon", r->eps);
    put_u32(k, "rope.dimension_count", r->n_rot > 0 ? r->n_rot : r->dim);
    put_f32(k, "rope.freq_base", r->rope_base);
    if (r->n_rot == 0 && k->code == ERR_OK)
        k->code = gguf_write_bool(k->w, full(k, "rope.scaling.finetuned"), false, k->e);
    if (strncmp(r->arch, "qwen", 4) == 0 && k->code == ERR_OK) {
        static const int32_t sections[4] = { 11, 11, 10, 0 };

        put_u32(k, "full_attention_interval", (int)strlen(r->pattern));
        if (k->code == ERR_OK)
            k->code = gguf_write_arr(k->w, full(k, "rope.dimension_sections"), GGUF_I32, sections, 4, k->e);
    }
}

/* Kimi delta attention and latent attention of Ling 3.0. */
static void put_latent(struct keys *k, const struct row *r)
{
    put_u32(k, "attention.head_count", r->n_head);
    put_layers(k, "attention.head_count_kv", r, "L", 1);
    if (r->rank_q > 0)
        put_u32(k, "attention.q_lora_rank", r->rank_q);
    put_u32(k, "attention.kv_lora_rank", r->rank_kv);
    put_u32(k, "attention.key_length", r->rank_kv + r->n_rot);
    put_u32(k, "attention.value_length", r->dim);
    put_u32(k, "attention.key_length_mla", r->dim + r->n_rot);
    put_u32(k, "attention.value_length_mla", r->dim);
    put_f32(k, "attention.layer_norm_rms_epsilon", r->eps);
    put_u32(k, "rope.dimension_count", r->n_rot);
    put_f32(k, "rope.freq_base", r->rope_base);
    put_u32(k, "kda.head_dim", r->dim);
    put_f32(k, "kda.gate_lower_bound", -5.0f);
    if (k->code == ERR_OK)
        k->code = gguf_write_bool(k->w, full(k, "kda.safe_gate"), true, k->e);
    put_u32(k, "leading_dense_block_count", r->n_dense);
    put_u32(k, "expert_gating_func", 2);
}

static void put_u64s(struct keys *k, const char *key, const uint64_t *v, int n)
{
    if (k->code == ERR_OK)
        k->code = gguf_write_arr(k->w, full(k, key), GGUF_U64, v, (uint64_t)n, k->e);
}

static void put_table(struct keys *k, const struct row *r)
{
    enum { HEADS_MAX = 64 };
    static const uint64_t multiplier[] = { 0x5851f42d4c957f2du, 0x14057b7ef767814fu, 0x2545f4914f6cdd1du };
    static const int32_t layer = SHAPE_TABLE_LAYER;
    const int heads = shape_table_heads(r);
    uint64_t first[HEADS_MAX], size[HEADS_MAX];

    if (heads == 0 || heads > HEADS_MAX)
        return;
    for (int h = 0; h < heads; h++) {
        first[h] = (uint64_t)shape_table_first(r, h);
        size[h] = (uint64_t)shape_table_first(r, h + 1) - first[h];
    }
    if (k->code == ERR_OK)
        k->code = gguf_write_arr(k->w, full(k, "ple.layers"), GGUF_I32, &layer, 1, k->e);
    put_u32(k, "ple.ngram_size", r->ngram);
    put_u32(k, "ple.heads_per_ngram", r->table_heads);
    put_u32(k, "ple.conv_kernel", 4);
    put_u32(k, "ple.eos_token_id", 0);
    put_u32(k, "embedding_length_per_layer_input", r->n_embd / heads);
    put_u64s(k, "ple.layer_multipliers", multiplier, r->ngram);
    put_u64s(k, "ple.head_offsets", first, heads);
    put_u64s(k, "ple.head_vocab_sizes", size, heads);
}

static void put_streams(struct keys *k, const struct row *r)
{
    put_u32(k, "hyper_connection.count", r->streams);
    put_u32(k, "hyper_connection.low_rank", r->stream_rank);
    put_u32(k, "attention.indexer.head_count", r->index_heads);
    put_u32(k, "attention.indexer.key_length", r->index_dim);
    put_u32(k, "attention.indexer.top_k", r->index_budget);
    put_layers(k, "attention.compress_ratios", r, "A", r->index_ratio);
    put_table(k, r);
}

static enum err_code put_keys(struct gguf_writer *w, const struct row *r, struct err *e)
{
    struct keys k = { .w = w, .arch = r->arch, .e = e };

    if (gguf_write_str(w, "general.architecture", str_of(r->arch), e) ||
        gguf_write_str(w, "general.name", str_of(r->name), e) ||
        gguf_write_str(w, "general.description", STR("random weights of a true shape"), e) ||
        gguf_write_str(w, "tokenizer.ggml.model", STR("none"), e))
        return e->code;
    put_u32(&k, "block_count", r->n_layer);
    put_u32(&k, "context_length", r->ctx);
    put_u32(&k, "embedding_length", r->n_embd);
    put_u32(&k, "vocab_size", r->n_vocab);
    if (strpbrk(r->pattern, "e") != NULL)
        put_layers(&k, "feed_forward_length", r, "e", r->n_ff_exp);
    else if (r->n_ff > 0)
        put_u32(&k, "feed_forward_length", r->n_ff);
    if (r->rank_kv > 0)
        put_latent(&k, r);
    else
        put_attn(&k, r);
    if (r->n_expert > 0)
        put_moe(&k, r);
    if (r->n_latent > 0)
        put_u32(&k, "moe_latent_size", r->n_latent);
    if (r->streams > 0)
        put_streams(&k, r);
    put_u32(&k, "ssm.conv_kernel", 4);
    if (r->rank_kv > 0)
        return k.code;
    put_u32(&k, "ssm.state_size", r->n_state);
    put_u32(&k, "ssm.group_count", r->n_group);
    put_u32(&k, "ssm.time_step_rank", r->n_rec_head);
    put_u32(&k, "ssm.inner_size", r->inner);
    put_f32(&k, "embedding_scale", r->embd_scale);
    put_f32(&k, "residual_scale", r->residual_scale);
    put_f32(&k, "logit_scale", r->logit_scale);
    return k.code;
}

/* ---- weights ---- */

static bool ends_with(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail);

    return n >= k && strcmp(name + n - k, tail) == 0;
}

/* Values of a float tensor: what its part in the model takes. */
static float plain_value(const struct shape *s, const struct shape_tensor *t, uint64_t seed, uint64_t i)
{
    float x = rng_gauss(seed, 1, i);

    if (strstr(t->name, "norm") != NULL || ends_with(t->name, "ssm_d"))
        return 1.0f;
    if (ends_with(t->name, "ssm_a"))
        return s->row.rank_kv > 0 ? expf(x) : -expf(x); /* of bounded decays positive */
    if (strstr(t->name, "conv1d") != NULL && ends_with(t->name, ".weight"))
        return 0.3f * x;
    return 0.05f * x;
}

/* What a normal number is above with probability p, up to a half. */
static double quantile(double p)
{
    double low = 0, high = 8;

    for (int i = 0; i < 50; i++) {
        const double mid = (low + high) / 2;

        *(0.5 * erfc(mid / sqrt(2)) > p ? &low : &high) = mid;
    }
    return high;
}

static double share_of(double factor, int rank, double skew)
{
    const double share = factor * pow(1 + rank, -skew);

    return share < ROUTE_MOST ? share : ROUTE_MOST;
}

/* Logits of an expert are normal, and the scale of its row of the router says how often they are among the largest.
 * scale[n_expert], in an order of the layer's own; all are 1 where there are too few experts for a choice. */
static void route_scales(float *scale, const struct filler *f, const struct shape *s)
{
    const int n = s->row.n_expert, used = s->row.n_used;
    double low = 0, high = n * pow(n, s->skew);

    for (int i = 0; i < 100; i++) {
        const double mid = (low + high) / 2;
        double sum = 0;

        for (int r = 0; r < n; r++)
            sum += share_of(mid, r, s->skew);
        *(sum < used ? &low : &high) = mid;
    }
    for (int r = 0; r < n; r++) {
        const bool choice = used < ROUTE_MOST * n;
        const int to = (int)(rng_unit(f->seed, 4, f->draws + (uint64_t)r) * (r + 1));

        scale[r] = scale[to];
        scale[to] = choice ? (float)(quantile((double)used / n) / quantile(share_of(high, r, s->skew))) : 1.0f;
    }
}

static enum err_code write_plain(struct filler *f, const struct shape *s, const struct shape_tensor *t, struct err *e)
{
    const bool router = s->skew > 0 && ends_with(t->name, "ffn_gate_inp.weight");
    int64_t n = t->size_bytes / 4;
    float chunk[1024], *scale = router ? calloc((size_t)t->ne[1], sizeof *scale) : NULL;
    enum err_code code = ERR_OK;

    if (router && scale == NULL)
        return err_nomem(e);
    if (router)
        route_scales(scale, f, s);
    for (int64_t i = 0; i < n && code == ERR_OK;) {
        int64_t k = n - i < 1024 ? n - i : 1024;

        for (int64_t j = 0; j < k; j++) {
            chunk[j] = plain_value(s, t, f->seed, f->draws++);
            if (router)
                chunk[j] *= scale[(i + j) / t->ne[0]];
        }
        code = gguf_write_data(f->w, chunk, (size_t)k * sizeof *chunk, e);
        i += k;
    }
    free(scale);
    return code;
}

static enum err_code make_stock(struct filler *f, int type, int64_t ne0, struct stock **out, struct err *e)
{
    struct stock *s = NULL;

    for (int i = 0; i < f->n_stocks; i++)
        if (f->stock[i].type == type && f->stock[i].ne0 == ne0)
            s = &f->stock[i];
    *out = s;
    if (s != NULL)
        return ERR_OK;
    if (f->n_stocks == STOCKS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d kinds of rows", STOCKS_MAX);
    s = &f->stock[f->n_stocks];
    *s = (struct stock){ .type = type, .ne0 = ne0, .n_rows = 16 + STOCK_ELEMS / ne0 };
    s->row_bytes = (size_t)quant_row_bytes(type, ne0);
    s->rows = malloc((size_t)s->n_rows * s->row_bytes);
    if (s->rows == NULL)
        return err_nomem(e);
    if (shape_fill(s->rows, type, ne0, s->n_rows, f->seed + (uint64_t)f->n_stocks, e)) {
        free(s->rows);
        return e->code;
    }
    f->n_stocks++;
    *out = s;
    return ERR_OK;
}

static enum err_code write_rows(struct filler *f, const struct shape_tensor *t, struct err *e)
{
    struct stock *s;
    int64_t left = t->ne[1] * t->ne[2], places;

    if (make_stock(f, t->type, t->ne[0], &s, e))
        return e->code;
    places = s->n_rows / 2;
    while (left > 0) {
        int64_t from = (int64_t)(rng_unit(f->seed, 3, f->draws++) * (double)places);
        int64_t n = s->n_rows - from < left ? s->n_rows - from : left;

        if (gguf_write_data(f->w, s->rows + (size_t)from * s->row_bytes, (size_t)n * s->row_bytes, e))
            return e->code;
        left -= n;
    }
    return ERR_OK;
}

static enum err_code write_weights(struct filler *f, const struct shape *s, struct err *e)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct shape_tensor *t = &s->tensor[i];

        if (!progress_tick(f->progress, (uint64_t)f->done, (uint64_t)f->total))
            return err_set(e, ERR_CANCEL, "interrupted");
        if (t->type == QUANT_f32 ? write_plain(f, s, t, e) : write_rows(f, t, e))
            return e->code;
        f->done += t->size_bytes;
    }
    return ERR_OK;
}

static enum err_code write_holes(struct filler *f, const struct shape *s, struct err *e)
{
    for (size_t i = 0; i < s->n; i++)
        if (gguf_write_data(f->w, NULL, (size_t)s->tensor[i].size_bytes, e))
            return e->code;
    return ERR_OK;
}

static enum err_code write_file(struct filler *f, const struct shape *s, const char *path, bool holes, struct err *e)
{
    enum err_code code;

    if (gguf_write_open(&f->w, path, e))
        return e->code;
    code = put_keys(f->w, &s->row, e);
    for (size_t i = 0; code == ERR_OK && i < s->n; i++)
        code = gguf_write_tensor(f->w, str_of(s->tensor[i].name), s->tensor[i].type, s->tensor[i].n_dims,
                                 s->tensor[i].ne, e);
    if (code == ERR_OK)
        code = holes ? write_holes(f, s, e) : write_weights(f, s, e);
    if (code == ERR_OK)
        return gguf_write_commit(f->w, e);
    gguf_write_abort(f->w);
    return code;
}

enum err_code shape_write(const struct shape *s, const char *path, uint64_t seed, const struct progress *progress,
                          struct err *e)
{
    struct filler f = { .seed = seed, .total = shape_bytes(s), .progress = progress };
    enum err_code code = write_file(&f, s, path, false, e);

    for (int i = 0; i < f.n_stocks; i++)
        free(f.stock[i].rows);
    return code;
}

enum err_code shape_write_holes(const struct shape *s, const char *path, struct err *e)
{
    struct filler f = { 0 };

    return write_file(&f, s, path, true, e);
}
