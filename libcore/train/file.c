/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - block networks in GGUF files, and what they take from their target's. */
#include "train/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/simd.h"
#include "cpu/format.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

/* ---- the target's embedding and head ---- */

struct train_embed {
    const struct gguf_tensor *t;
    quant_decode_fn *decode;
    int64_t row_bytes;
};

static void embed_row(const void *ctx, int32_t token, float *row)
{
    const struct train_embed *d = ctx;

    d->decode(row, (const unsigned char *)d->t->data + token * d->row_bytes, d->t->ne[0]);
}

static struct train_embed rows_of(const struct gguf_tensor *t)
{
    return (struct train_embed){ t, cpu_decoder(t->type, simd_features()), quant_row_bytes(t->type, t->ne[0]) };
}

void train_frozen_close(struct train_frozen *f)
{
    free(f->embed);
    if (f->m != NULL)
        f->m->give(f->m, f->head);
    *f = (struct train_frozen){ 0 };
}

/* The matrix in float32 to m's memory, some rows at a time. */
static bool send_rows(struct dev_math *m, float *to, const struct train_embed *rows, int64_t n, int64_t n_embd)
{
    enum { SOME = 256 };
    float *row = malloc((size_t)(SOME * n_embd) * sizeof *row);

    for (int64_t i = 0, k; row != NULL && i < n; i += k) {
        k = n - i < SOME ? n - i : SOME;
        for (int64_t j = 0; j < k; j++)
            embed_row(rows, (int32_t)(i + j), row + j * n_embd);
        m->put(m, to + i * n_embd, row, k * n_embd * (int64_t)sizeof *row);
    }
    free(row);
    return row != NULL;
}

enum err_code train_frozen_open(struct train_frozen *f, const struct gguf *model, int n_embd, struct dev_math *m,
                                struct err *e)
{
    const struct gguf_tensor *embd = gguf_find(model, "token_embd.weight"), *head = gguf_find(model, "output.weight");
    struct train_embed rows;

    *f = (struct train_frozen){ .m = m };
    head = head == NULL ? embd : head; /* tied */
    if (embd == NULL || embd->ne[0] != n_embd || head->ne[0] != n_embd || embd->ne[1] < head->ne[1] ||
        head->ne[1] > INT32_MAX || embd->ne[2] * embd->ne[3] * head->ne[2] * head->ne[3] != 1)
        return err_set(e, ERR_FORMAT, "%s: no embedding and output matrix of %d columns", gguf_path(model), n_embd);
    rows = rows_of(head);
    f->embed = malloc(sizeof *f->embed);
    f->head = m->take(m, head->ne[1] * n_embd * (int64_t)sizeof *f->head);
    if (f->embed == NULL || f->head == NULL || !send_rows(m, f->head, &rows, head->ne[1], n_embd)) {
        train_frozen_close(f);
        return err_set(e, ERR_NOMEM, "out of memory: %lld MiB for the output matrix",
                       (long long)(head->ne[1] * n_embd * (int64_t)sizeof(float) >> 20));
    }
    *f->embed = rows_of(embd);
    f->t = (struct train_target){ head->ne[1], f->head, embed_row, f->embed };
    return ERR_OK;
}

/* ---- reading ---- */

static void read_int(const struct gguf *g, const char *key, int lo, int hi, int *out, struct err *e)
{
    char name[96];
    uint32_t v = 0;

    (void)snprintf(name, sizeof name, "dflash.%s", key);
    if (e->code != ERR_OK)
        return;
    if (!gguf_u32(g, name, &v) || v < (uint32_t)lo || v > (uint32_t)hi)
        err_set(e, ERR_FORMAT, "%s: %s is not in %d .. %d", gguf_path(g), name, lo, hi);
    else
        *out = (int)v;
}

static void read_float(const struct gguf *g, const char *key, float lo, float *out, struct err *e)
{
    float v = 0;

    if (e->code != ERR_OK)
        return;
    if (!gguf_f32(g, key, &v) || !(v > lo) || !isfinite(v))
        err_set(e, ERR_FORMAT, "%s: %s is not a number above %g", gguf_path(g), key, (double)lo);
    else
        *out = v;
}

static void read_taps(const struct gguf *g, struct train_shape *s, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "dflash.target_layers");
    int64_t j = 0;

    if (e->code != ERR_OK)
        return;
    if (kv == NULL || kv->n < 1 || kv->n > TRAIN_TAPS_MAX) {
        err_set(e, ERR_FORMAT, "%s: dflash.target_layers is not a list of 1 .. %d layers", gguf_path(g),
                TRAIN_TAPS_MAX);
        return;
    }
    s->n_tap = (int)kv->n;
    for (int i = 0; i < s->n_tap; i++) {
        if (!gguf_kv_i64(kv, (uint64_t)i, &j) || j < 1 || j > INT16_MAX) {
            err_set(e, ERR_FORMAT, "%s: dflash.target_layers: not a layer", gguf_path(g));
            return;
        }
        s->tap[i] = (int)j - 1;
    }
}

enum err_code train_shape_read(struct train_shape *out, const struct gguf *g, struct err *e)
{
    enum { WIDTH_MAX = 1 << 16, LAYERS_MAX = 256, HEADS_MAX = 1024 };
    struct train_shape s = { .ctx_tokens = out->ctx_tokens };
    struct str arch = { 0 };
    uint32_t mask = UINT32_MAX;
    int width = 0;

    e->code = ERR_OK;
    if (!gguf_str(g, "general.architecture", &arch) || !str_is(arch, "dflash"))
        return err_set(e, ERR_UNSUPPORTED, "%s: not a DFlash drafter", gguf_path(g));
    if (gguf_kv_find(g, "dflash.attention.sliding_window") != NULL)
        return err_set(e, ERR_UNSUPPORTED, "%s: drafters with a sliding window are not trained", gguf_path(g));
    read_int(g, "block_count", 1, LAYERS_MAX, &s.n_layer, e);
    read_int(g, "embedding_length", 1, WIDTH_MAX, &s.n_embd, e);
    read_int(g, "feed_forward_length", 1, WIDTH_MAX, &s.n_ff, e);
    read_int(g, "attention.head_count", 1, HEADS_MAX, &s.n_head, e);
    read_int(g, "attention.head_count_kv", 1, HEADS_MAX, &s.n_head_kv, e);
    read_int(g, "attention.key_length", 2, HEADS_MAX, &s.head_dim, e);
    read_int(g, "attention.value_length", 2, HEADS_MAX, &width, e);
    read_int(g, "block_size", 2, TRAIN_BLOCK_MAX, &s.block, e);
    read_float(g, "dflash.rope.freq_base", 0, &s.rope_base, e);
    read_float(g, "dflash.attention.layer_norm_rms_epsilon", 0, &s.eps, e);
    read_taps(g, &s, e);
    if (e->code != ERR_OK)
        return e->code;
    if (width != s.head_dim || s.head_dim % 2 != 0 || s.n_head % s.n_head_kv != 0)
        return err_set(e, ERR_FORMAT, "%s: %d heads of %d and %d of keys of %d do not go together", gguf_path(g),
                       s.n_head, s.head_dim, s.n_head_kv, width);
    if (!gguf_u32(g, "tokenizer.ggml.mask_token_id", &mask) || mask > INT32_MAX)
        return err_set(e, ERR_FORMAT, "%s: no mask token", gguf_path(g));
    s.mask = (int32_t)mask;
    *out = s;
    return ERR_OK;
}

bool train_net_finite(const struct train_net *net)
{
    for (int64_t i = 0; i < net->n_params; i++)
        if (!isfinite(net->w[i]))
            return false;
    return true;
}

enum err_code train_net_read(struct train_net *net, const struct gguf *g, struct err *e)
{
    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];
        const struct gguf_tensor *from = gguf_find(g, t->name);

        if (from == NULL || from->ne[0] != t->n_in || from->ne[1] != t->n_out || from->ne[2] * from->ne[3] != 1)
            return err_set(e, ERR_FORMAT, "%s: tensor %s is not there, or not of %lld x %lld", gguf_path(g), t->name,
                           (long long)t->n_in, (long long)t->n_out);
        const struct train_embed rows = rows_of(from);

        for (int64_t j = 0; j < t->n_out; j++)
            embed_row(&rows, (int32_t)j, net->w + t->at + j * t->n_in);
    }
    train_net_push(net);
    return train_net_finite(net) ? ERR_OK : err_set(e, ERR_FORMAT, "%s: a weight is not a number", gguf_path(g));
}

/* ---- writing ---- */

static enum err_code write_shape(struct gguf_writer *w, const struct train_shape *s, struct err *e)
{
    const struct {
        const char *key;
        int64_t v;
    } ints[] = {
        { "dflash.block_count", s->n_layer },
        { "dflash.context_length", s->ctx_tokens },
        { "dflash.embedding_length", s->n_embd },
        { "dflash.feed_forward_length", s->n_ff },
        { "dflash.attention.head_count", s->n_head },
        { "dflash.attention.head_count_kv", s->n_head_kv },
        { "dflash.attention.key_length", s->head_dim },
        { "dflash.attention.value_length", s->head_dim },
        { "dflash.block_size", s->block },
    };
    int32_t layers[TRAIN_TAPS_MAX];

    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (gguf_write_u32(w, ints[i].key, (uint32_t)ints[i].v, e))
            return e->code;
    for (int i = 0; i < s->n_tap; i++)
        layers[i] = s->tap[i] + 1; /* files count layers by their inputs */
    return gguf_write_f32(w, "dflash.rope.freq_base", s->rope_base, e) ||
                   gguf_write_f32(w, "dflash.attention.layer_norm_rms_epsilon", s->eps, e) ||
                   gguf_write_arr(w, "dflash.target_layers", GGUF_I32, layers, (uint64_t)s->n_tap, e)
               ? e->code
               : gguf_write_u32(w, "tokenizer.ggml.mask_token_id", (uint32_t)s->mask, e);
}

/* The tokenizer, without the chat template: a drafter answers nobody. */
static enum err_code write_tokenizer(struct gguf_writer *w, const struct gguf *model, struct err *e)
{
    static const struct str prefix = { "tokenizer.", 10 };

    for (size_t i = 0; i < gguf_n_kv(model); i++) {
        const struct gguf_kv *kv = gguf_kv_at(model, i);

        if (kv->key.n > prefix.n && memcmp(kv->key.p, prefix.p, prefix.n) == 0 &&
            !str_is(kv->key, "tokenizer.chat_template") && !str_is(kv->key, "tokenizer.ggml.mask_token_id") &&
            gguf_write_kv(w, kv, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_tensor(struct gguf_writer *w, const struct train_net *net, const struct train_tensor *t,
                                  struct err *e)
{
    enum { FLOATS = 4096 };
    const float *v = net->w + t->at;
    const int64_t n = t->n_in * t->n_out;
    uint16_t part[FLOATS];

    if (t->n_out == 1)
        return gguf_write_data(w, v, (size_t)n * sizeof *v, e);
    for (int64_t i = 0, k; i < n; i += k) {
        k = n - i < FLOATS ? n - i : FLOATS;
        quant_types[QUANT_bf16]->encode(part, v + i, k, NULL);
        if (gguf_write_data(w, part, (size_t)k * sizeof *part, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_all(struct gguf_writer *w, const struct train_net *net, const struct gguf *model,
                               struct err *e)
{
    enum { FILE_TYPE_BF16 = 32 };

    if (gguf_write_str(w, "general.architecture", STR("dflash"), e) ||
        gguf_write_str(w, "general.type", STR("model"), e) ||
        gguf_write_u32(w, "general.file_type", FILE_TYPE_BF16, e) || write_shape(w, &net->s, e) ||
        write_tokenizer(w, model, e))
        return e->code;
    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];
        const bool norm = t->n_out == 1;

        if (gguf_write_tensor(w, str_of(t->name), norm ? QUANT_f32 : QUANT_bf16, norm ? 1 : 2,
                              (const int64_t[]){ t->n_in, t->n_out }, e))
            return e->code;
    }
    for (int i = 0; i < net->n_tensor; i++)
        if (write_tensor(w, net, &net->tensor[i], e))
            return e->code;
    return ERR_OK;
}

enum err_code train_net_write(struct train_net *net, const struct gguf *model, const char *path, struct err *e)
{
    struct gguf_writer *w;

    train_net_pull(net);
    if (net->m->wait(net->m, e))
        return e->code;
    if (!train_net_finite(net))
        return err_set(e, ERR_FORMAT, "%s: not written: a weight is not a number", path);
    if (gguf_write_open(&w, path, e))
        return e->code;
    if (write_all(w, net, model, e) == ERR_OK)
        return gguf_write_commit(w, e);
    gguf_write_abort(w);
    return e->code;
}

void train_net_round(struct train_net *net)
{
    train_net_pull(net);
    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];

        for (int64_t j = 0; t->n_out > 1 && j < t->n_in * t->n_out; j++) {
            uint16_t half;

            quant_types[QUANT_bf16]->encode(&half, net->w + t->at + j, 1, NULL);
            quant_types[QUANT_bf16]->decode(net->w + t->at + j, &half, 1);
        }
    }
    train_net_push(net);
}
