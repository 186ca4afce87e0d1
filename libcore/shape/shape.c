/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - from a row of shapes.def to a list of tensors and metadata. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "shape/internal.h"

static const struct row rows[] = {
#define SHAPE(name_, arch_, ...) { .name = (name_), .arch = (arch_), __VA_ARGS__ },
#include "shape/shapes.def"
#undef SHAPE
};

/* Roles of a matrix, in the order of MIX()'s columns. */
enum role { EMBD, OUT, ATTN_QK, ATTN_V, ATTN_O, REC, REC_GATE, FFN, EXPS, N_ROLES, F32 = N_ROLES };

static const struct mix {
    const char *name;
    int type[N_ROLES];
} mixes[] = {
#define MIX(name, embd, out, qk, v, o, rec, gate, ffn, exps) \
    { name, \
      { QUANT_##embd, QUANT_##out, QUANT_##qk, QUANT_##v, QUANT_##o, QUANT_##rec, QUANT_##gate, QUANT_##ffn, \
        QUANT_##exps } },
#include "shape/mixes.def"
#undef MIX
};

const char *shape_name_at(size_t i)
{
    return i < sizeof rows / sizeof rows[0] ? rows[i].name : NULL;
}

const char *shape_mix_at(size_t i)
{
    return i < sizeof mixes / sizeof mixes[0] ? mixes[i].name : NULL;
}

static enum err_code find_mix(struct mix *out, const char *name, struct err *e)
{
    int type = quant_find_name(str_of(name));

    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        if (strcmp(name, mixes[i].name) == 0) {
            *out = mixes[i];
            return ERR_OK;
        }
    if (type < 0 || !shape_can_fill(type))
        return err_set(e, ERR_ARG, "mix '%s' is neither a mix nor a type that can be filled", name);
    out->name = quant_types[type]->name;
    for (int i = 0; i < N_ROLES; i++)
        out->type[i] = type;
    return ERR_OK;
}

/* seen: a bit for each key that came before. */
static enum err_code set_number(struct row *r, unsigned *seen, const char *s, size_t n, struct err *e)
{
    static const struct {
        const char *key;
        long least, most;
    } keys[] = {
        { "layers=", 1, 1024 }, { "experts=", 1, 16384 }, { "vocab=", 16, 1L << 24 }, { "table=", 16, 1L << 26 }
    };
    int *to[] = { &r->n_layer, &r->n_expert, &r->n_vocab, &r->table };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        size_t k = strlen(keys[i].key);
        char *end;

        if (n <= k || memcmp(s, keys[i].key, k) != 0)
            continue;
        if ((*seen & 1u << i) != 0)
            return err_set(e, ERR_ARG, "shape: %s is given twice", keys[i].key);
        *seen |= 1u << i;
        long v = strtol(s + k, &end, 10);
        if (end != s + n || v < keys[i].least || v > keys[i].most)
            return err_set(e, ERR_ARG, "shape: %.*s: not a number in %ld .. %ld", (int)n, s, keys[i].least,
                           keys[i].most);
        if (i == 1 && r->n_expert == 0)
            return err_set(e, ERR_ARG, "shape: %s has no experts", r->name);
        if (i == 3 && r->table == 0)
            return err_set(e, ERR_ARG, "shape: %s has no table of n-grams", r->name);
        if (i == 1 && v < r->n_used)
            return err_set(e, ERR_ARG, "shape: %s uses %d experts for each token", r->name, r->n_used);
        *to[i] = (int)v;
        return ERR_OK;
    }
    return err_set(e, ERR_ARG, "shape: '%.*s' is none of layers=N, experts=N, vocab=N, table=N", (int)n, s);
}

static enum err_code unknown_shape(const char *spec, size_t n, struct err *e)
{
    char known[500] = "";
    size_t used = 0;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", rows[i].name);
    return err_set(e, ERR_ARG, "shape '%.*s' is not known; there is %s", (int)(n < 100 ? n : 100), spec, known);
}

static enum err_code parse(struct row *r, const char *spec, struct err *e)
{
    size_t n = strcspn(spec, ",");
    unsigned seen = 0;

    r->name = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].name) == n && memcmp(spec, rows[i].name, n) == 0)
            *r = rows[i];
    if (r->name == NULL)
        return unknown_shape(spec, n, e);
    while (spec[n] == ',') {
        spec += n + 1;
        n = strcspn(spec, ",");
        if (set_number(r, &seen, spec, n < 100 ? n : 100, e))
            return e->code;
    }
    const int groups = r->exp_groups;
    if (groups > 0 && (r->n_expert % groups != 0 || r->n_used > r->n_expert / groups * r->exp_groups_used))
        return err_set(e, ERR_ARG, "shape: %s uses %d experts of %d of its %d groups: %d do not fit", r->name,
                       r->n_used, r->exp_groups_used, groups, r->n_expert);
    return ERR_OK;
}

/* The type itself, or one with blocks of 32 when a row is no multiple of its block. */
static int fitting_type(int type, int64_t ne0)
{
    const struct quant_type *t = quant_types[type];
    double bits = 8.0 * t->block_bytes / t->block_elems;

    if (ne0 % t->block_elems == 0)
        return type;
    if (ne0 % 32 != 0)
        return QUANT_f16;
    return bits < 4.4 ? QUANT_iq4_nl : bits < 5.2 ? QUANT_q5_0 : bits < 6.2 ? QUANT_q5_1 : QUANT_q8_0;
}

/* Adds a tensor; the first failure is kept. */
static void add_tensor(struct shape *s, int layer, const char *name, int role, int64_t ne0, int64_t ne1, int64_t ne2)
{
    struct shape_tensor *t;

    if (memory_room(&s->tensor, &s->room, s->n + 1, sizeof *s->tensor, NULL)) {
        s->failed = true;
        return;
    }
    t = &s->tensor[s->n++];
    *t = (struct shape_tensor){ .ne = { ne0, ne1, ne2, 1 }, .n_dims = ne2 > 1 ? 3 : ne1 > 1 ? 2 : 1 };
    t->type = role == F32 ? QUANT_f32 : fitting_type(s->type[role], ne0);
    t->size_bytes = quant_row_bytes(t->type, ne0) * ne1 * ne2;
    if (layer < 0)
        (void)snprintf(t->name, sizeof t->name, "%s", name);
    else
        (void)snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
}

static void add_attn(struct shape *s, int i)
{
    const struct row *r = &s->row;
    int64_t d = r->n_embd, q = (int64_t)r->n_head * r->dim, kv = (int64_t)r->n_head_kv * r->dim;
    bool qwen = strncmp(r->arch, "qwen", 4) == 0;

    add_tensor(s, i, "attn_q.weight", ATTN_QK, d, qwen ? 2 * q : q, 1);
    add_tensor(s, i, "attn_k.weight", ATTN_QK, d, kv, 1);
    add_tensor(s, i, "attn_v.weight", ATTN_V, d, kv, 1);
    add_tensor(s, i, "attn_output.weight", ATTN_O, q, d, 1);
    if (qwen) {
        add_tensor(s, i, "attn_q_norm.weight", F32, r->dim, 1, 1);
        add_tensor(s, i, "attn_k_norm.weight", F32, r->dim, 1, 1);
    }
    if (r->index_ratio == 0)
        return;
    add_tensor(s, i, "indexer.q_proj.weight", ATTN_QK, d, (int64_t)r->index_heads * r->index_dim, 1);
    add_tensor(s, i, "indexer.k_proj.weight", ATTN_QK, d, r->index_dim, 1);
    add_tensor(s, i, "indexer.q_norm.weight", F32, r->index_dim, 1, 1);
    add_tensor(s, i, "indexer.k_norm.weight", F32, r->index_dim, 1, 1);
}

/* What takes a row from the streams, and gives one back unless it is the last. */
static void add_streams(struct shape *s, int i, const char *name)
{
    const int64_t n = s->row.streams, width = n * s->row.n_embd, rank = s->row.stream_rank;
    char full[64];

#define NAMED(part) ((void)snprintf(full, sizeof full, "%s_%s.weight", name, part), full)
    add_tensor(s, i, NAMED("norm"), F32, width, 1, 1);
    add_tensor(s, i, NAMED("down"), REC, width, rank, 1);
    add_tensor(s, i, NAMED("up"), REC, rank, width, 1);
    if (i >= 0)
        add_tensor(s, i, NAMED("inject"), REC_GATE, width, n, 1);
#undef NAMED
}

int64_t shape_table_first(const struct row *r, int head)
{
    return (int64_t)head * r->table + (int64_t)head * head; /* sizes: table + 1, + 3, + 5 ... */
}

static void add_table(struct shape *s, int i)
{
    const struct row *r = &s->row;
    const int64_t d = r->n_embd, width = r->streams * d;

    add_tensor(s, i, "ple_key.weight", REC, d, width, 1);
    add_tensor(s, i, "ple_value.weight", REC, d, d, 1);
    add_tensor(s, i, "ple_norm_key.weight", F32, width, 1, 1);
    add_tensor(s, i, "ple_norm_query.weight", F32, width, 1, 1);
    add_tensor(s, i, "ple_norm_conv.weight", F32, width, 1, 1);
    add_tensor(s, i, "ple_conv1d.weight", F32, 4, width, 1);
}

static void add_gdn(struct shape *s, int i)
{
    const struct row *r = &s->row;
    int64_t d = r->n_embd, channels = (int64_t)2 * r->n_group * r->n_state + r->inner;

    add_tensor(s, i, "attn_qkv.weight", REC, d, channels, 1);
    add_tensor(s, i, "attn_gate.weight", REC, d, r->inner, 1);
    add_tensor(s, i, "ssm_conv1d.weight", F32, 4, channels, 1);
    add_tensor(s, i, "ssm_dt.bias", F32, r->n_rec_head, 1, 1);
    add_tensor(s, i, "ssm_a", F32, r->n_rec_head, 1, 1);
    add_tensor(s, i, "ssm_beta.weight", REC_GATE, d, r->n_rec_head, 1);
    add_tensor(s, i, "ssm_alpha.weight", REC_GATE, d, r->n_rec_head, 1);
    add_tensor(s, i, "ssm_norm.weight", F32, r->inner / r->n_rec_head, 1, 1);
    add_tensor(s, i, "ssm_out.weight", REC, r->inner, d, 1);
}

static void add_mamba2(struct shape *s, int i)
{
    const struct row *r = &s->row;
    int64_t d = r->n_embd, channels = (int64_t)2 * r->n_group * r->n_state + r->inner;

    add_tensor(s, i, "ssm_in.weight", REC, d, r->inner + channels + r->n_rec_head, 1);
    add_tensor(s, i, "ssm_conv1d.weight", F32, 4, channels, 1);
    add_tensor(s, i, "ssm_conv1d.bias", F32, channels, 1, 1);
    add_tensor(s, i, "ssm_dt.bias", F32, r->n_rec_head, 1, 1);
    add_tensor(s, i, "ssm_a", F32, 1, r->n_rec_head, 1);
    add_tensor(s, i, "ssm_d", F32, 1, r->n_rec_head, 1);
    add_tensor(s, i, "ssm_norm.weight", F32, r->inner / r->n_group, r->n_group, 1);
    add_tensor(s, i, "ssm_out.weight", REC, r->inner, d, 1);
}

static void add_kda(struct shape *s, int i)
{
    static const char *const in[] = { "attn_q", "attn_k", "attn_v", "ssm_f_a", "ssm_g_a" };
    const struct row *r = &s->row;
    int64_t d = r->n_embd, inner = (int64_t)r->n_head * r->dim;
    char name[32];

    for (size_t j = 0; j < sizeof in / sizeof in[0]; j++) {
        (void)snprintf(name, sizeof name, "%s.weight", in[j]);
        add_tensor(s, i, name, REC, d, inner, 1);
    }
    for (const char *c = "qkv"; *c != '\0'; c++) {
        (void)snprintf(name, sizeof name, "ssm_conv1d_%c.weight", *c);
        add_tensor(s, i, name, F32, 4, inner, 1);
    }
    add_tensor(s, i, "ssm_beta.weight", REC_GATE, d, r->n_head, 1);
    add_tensor(s, i, "ssm_a", F32, 1, r->n_head, 1);
    add_tensor(s, i, "ssm_dt.bias", F32, inner, 1, 1);
    add_tensor(s, i, "ssm_norm.weight", F32, r->dim, 1, 1);
    add_tensor(s, i, "attn_output.weight", REC, inner, d, 1);
}

static void add_mla(struct shape *s, int i)
{
    const struct row *r = &s->row;
    int64_t d = r->n_embd, q = (int64_t)r->n_head * (r->dim + r->n_rot);

    if (r->rank_q > 0) {
        add_tensor(s, i, "attn_q_a.weight", ATTN_QK, d, r->rank_q, 1);
        add_tensor(s, i, "attn_q_a_norm.weight", F32, r->rank_q, 1, 1);
        add_tensor(s, i, "attn_q_b.weight", ATTN_QK, r->rank_q, q, 1);
    } else {
        add_tensor(s, i, "attn_q.weight", ATTN_QK, d, q, 1);
    }
    add_tensor(s, i, "attn_kv_a_mqa.weight", ATTN_QK, d, (int64_t)r->rank_kv + r->n_rot, 1);
    add_tensor(s, i, "attn_kv_a_norm.weight", F32, r->rank_kv, 1, 1);
    add_tensor(s, i, "attn_k_b.weight", ATTN_QK, r->dim, r->rank_kv, r->n_head);
    add_tensor(s, i, "attn_v_b.weight", ATTN_V, r->rank_kv, r->dim, r->n_head);
    add_tensor(s, i, "attn_gate.weight", REC_GATE, d, r->n_head, 1);
    add_tensor(s, i, "attn_output.weight", ATTN_O, (int64_t)r->n_head * r->dim, d, 1);
}

static void add_ffn(struct shape *s, int i)
{
    const struct row *r = &s->row;
    int64_t d = r->n_embd, ff = r->n_ff_exp, sh = r->n_ff_shared, width = r->n_latent > 0 ? r->n_latent : d;
    bool gate = strncmp(r->arch, "nemotron", 8) != 0; /* squared ReLU has none */

    if (r->n_expert == 0 || i < r->n_dense) {
        add_tensor(s, i, "ffn_gate.weight", FFN, d, r->n_ff, 1);
        add_tensor(s, i, "ffn_up.weight", FFN, d, r->n_ff, 1);
        add_tensor(s, i, "ffn_down.weight", FFN, r->n_ff, d, 1);
        return;
    }
    add_tensor(s, i, "ffn_gate_inp.weight", F32, d, r->n_expert, 1);
    if (!gate || strcmp(r->arch, "bailingmoe3") == 0)
        add_tensor(s, i, "exp_probs_b.bias", F32, r->n_expert, 1, 1);
    if (r->n_latent > 0) {
        add_tensor(s, i, "ffn_latent_down.weight", FFN, d, r->n_latent, 1);
        add_tensor(s, i, "ffn_latent_up.weight", FFN, r->n_latent, d, 1);
    }
    if (strcmp(r->arch, "qwen35moe") == 0 || r->streams > 0)
        add_tensor(s, i, "ffn_gate_inp_shexp.weight", F32, d, 1, 1);
    if (gate)
        add_tensor(s, i, "ffn_gate_exps.weight", EXPS, width, ff, r->n_expert);
    add_tensor(s, i, "ffn_up_exps.weight", EXPS, width, ff, r->n_expert);
    add_tensor(s, i, "ffn_down_exps.weight", EXPS, ff, width, r->n_expert);
    if (gate)
        add_tensor(s, i, "ffn_gate_shexp.weight", FFN, d, sh, 1);
    add_tensor(s, i, "ffn_up_shexp.weight", FFN, d, sh, 1);
    add_tensor(s, i, "ffn_down_shexp.weight", FFN, sh, d, 1);
}

int shape_table_heads(const struct row *r)
{
    return r->table > 0 && r->n_layer > SHAPE_TABLE_LAYER ? (r->ngram - 1) * r->table_heads : 0;
}

char shape_letter(const struct row *r, int layer)
{
    return r->pattern[(size_t)layer % strlen(r->pattern)];
}

static void add_layer(struct shape *s, int i)
{
    const struct row *r = &s->row;
    char c = shape_letter(r, i);

    if (r->streams > 0) {
        add_streams(s, i, "hc_attn");
        add_streams(s, i, "hc_ffn");
    } else {
        add_tensor(s, i, "attn_norm.weight", F32, r->n_embd, 1, 1);
    }
    if (r->table > 0 && i == SHAPE_TABLE_LAYER)
        add_table(s, i);
    if (c == 'A' || c == 'a' || c == 'B')
        add_attn(s, i);
    if (c == 'G')
        add_gdn(s, i);
    if (c == 'K')
        add_kda(s, i);
    if (c == 'L')
        add_mla(s, i);
    if (c == 'M' || c == 'm' || c == 'B')
        add_mamba2(s, i);
    if (c == 'm' || c == 'a')
        return;
    if (c != 'e' && r->streams == 0)
        add_tensor(s, i,
                   strncmp(r->arch, "qwen", 4) == 0        ? "post_attention_norm.weight"
                   : strncmp(r->arch, "falcon-h1", 9) == 0 ? "ffn_norm" /* so in its files */
                                                           : "ffn_norm.weight",
                   F32, r->n_embd, 1, 1);
    add_ffn(s, i);
}

enum err_code shape_open(struct shape **out, const char *spec, const char *mix, struct err *e)
{
    struct shape *s = calloc(1, sizeof *s);
    struct mix m;

    if (s == NULL)
        return err_nomem(e);
    if (parse(&s->row, spec, e) || find_mix(&m, mix, e)) {
        shape_close(s);
        return e->code;
    }
    memcpy(s->type, m.type, sizeof m.type);
    add_tensor(s, -1, "token_embd.weight", EMBD, s->row.n_embd, s->row.n_vocab, 1);
    if (s->row.streams > 0)
        add_streams(s, -1, "output_hc");
    else
        add_tensor(s, -1, "output_norm.weight", F32, s->row.n_embd, 1, 1);
    const int heads = shape_table_heads(&s->row);
    if (heads > 0)
        add_tensor(s, -1, "per_layer_token_embd.weight", EMBD, s->row.n_embd / heads, shape_table_first(&s->row, heads),
                   1);
    if (!s->row.tied)
        add_tensor(s, -1, "output.weight", OUT, s->row.n_embd, s->row.n_vocab, 1);
    for (int i = 0; i < s->row.n_layer; i++)
        add_layer(s, i);
    if (s->failed) {
        shape_close(s);
        return err_nomem(e);
    }
    *out = s;
    return ERR_OK;
}

enum err_code shape_set_type(struct shape *s, struct str name, int type, struct err *e)
{
    for (size_t i = 0; i < s->n; i++) {
        struct shape_tensor *t = &s->tensor[i];

        if (!str_is(name, t->name))
            continue;
        if (!shape_can_fill(type) || quant_row_bytes(type, t->ne[0]) < 0)
            return err_set(e, ERR_ARG, "shape: %s cannot have the type %s", t->name, quant_types[type]->name);
        t->type = type;
        t->size_bytes = quant_row_bytes(type, t->ne[0]) * t->ne[1] * t->ne[2];
        return ERR_OK;
    }
    return err_set(e, ERR_ARG, "shape: %s has no tensor %.*s", s->row.name, STR_ARG(name));
}

enum err_code shape_route(struct shape *s, double skew, struct err *e)
{
    if (s->row.n_expert == 0)
        return err_set(e, ERR_ARG, "shape: %s has no experts", s->row.name);
    s->skew = skew;
    return ERR_OK;
}

void shape_close(struct shape *s)
{
    if (s != NULL)
        free(s->tensor);
    free(s);
}

int64_t shape_bytes(const struct shape *s)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += s->tensor[i].size_bytes;
    return n;
}
