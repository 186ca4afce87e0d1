/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c - block-diffusion drafters (arXiv 2602.06036), from GGUF files of architecture "dflash".
 *
 * With f the rows of all taps of a token, side by side, the token's context row is
 *   g = RMS(fc f, enc.output_norm)
 * Every layer makes keys and values of g with the same matrices as of its own input. A block is the
 * embedding of the newest token and of n mask tokens, at the positions after the context. Layers:
 *   a = RMS(x, attn_norm);  x += Wo attention(a)
 *   m = RMS(x, ffn_norm);   x += down(silu(gate m) * (up m))
 * Each row of a block attends to the whole context and to the whole block, with normed and rotated
 * queries and keys. Row i > 0 of RMS(x, output_norm), times the model's output matrix, is the guess
 * for the token at its own place.
 *
 * Layers with a sliding window see whole pages: up to OP_KV_PAGE - 1 keys beyond the window. */
#include <math.h>

#include "gguf/gguf.h"
#include "model/drafter_internal.h"

enum { BLOCK_MAX = MODEL_GUESSES_MAX };

/* ---- computing ---- */

static void take_taps(struct model_drafter *d, struct tensor x)
{
    const struct op_rows rows = model_draft_rows(d, AS_STORED);
    const int64_t n_embd = d->net.plan.n_embd;
    struct dev *dev = d->net.dev;
    const struct step s = { .m = &d->net, .d = dev };
    struct tensor g = dev_scratch(dev, n_embd, x.ne[1]);

    op_matmul(dev, g, d->mix, x);
    op_rms_norm(dev, g, g, d->hidden_norm, n_embd, 0, d->net.plan.norm_eps);
    model_draft_note(d, &d->trace.fused, g);
    for (int i = 0; i < d->net.plan.n_layer; i++) {
        size_t mark = dev_mark(dev);

        model_draft_remember(&s, i, g, state_kv(d->state, i), &rows, &rows);
        dev_release(dev, mark);
    }
}

/* y = attention of layer i for the block's normed rows x. */
static void attend_block(struct model_drafter *d, int i, struct tensor y, struct tensor x)
{
    const struct arch_attn_plan *a = &d->net.plan.attn;
    const struct attn_weights *w = &d->net.layer[i].attn;
    const struct op_rope rope = { a->dim_k, a->n_rot, d->net.layer[i].rope_freq, false, 0 };
    const bool part = d->windowed[i];
    const struct op_rows turn = model_draft_rows(d, AS_STORED);
    const struct op_rows store = model_draft_rows(d, part ? AS_STORED_IN_WINDOW : AS_STORED);
    const struct op_rows see = model_draft_rows(d, part ? AS_SEEN_IN_WINDOW : AS_SEEN);
    struct op_kv kv = *state_kv(d->state, i);
    struct dev *dev = d->net.dev;
    const struct step s = { .m = &d->net, .d = dev };
    struct tensor q = dev_scratch(dev, w->q.ne[1], x.ne[1]);
    struct tensor o = dev_scratch(dev, w->o.ne[0], x.ne[1]);

    kv.page = part ? d->page : kv.page;
    model_draft_remember(&s, i, x, &kv, &turn, &store);
    op_matmul(dev, q, w->q, x);
    op_rms_norm(dev, q, q, w->q_norm, a->dim_k, a->dim_k, d->net.plan.norm_eps);
    op_rope(dev, q, &rope, &turn);
    if (op_kv_rotated(&kv))
        op_hadamard(dev, q, q, a->dim_k);
    op_attn(dev, o, q, &kv, a->scale, &see);
    op_matmul(dev, y, w->o, o);
}

/* The rows of d->batch through all layers. */
static struct tensor pass_layers(struct model_drafter *d)
{
    const struct arch_plan *p = &d->net.plan;
    struct dev *dev = d->net.dev;
    const struct step s = { .m = &d->net, .d = dev };
    struct tensor x = dev_scratch(dev, p->n_embd, d->batch.n);
    struct tensor in = dev_scratch(dev, p->n_embd, d->batch.n);
    struct tensor out = dev_scratch(dev, p->n_embd, d->batch.n);

    op_embed(dev, x, d->embd, d->batch.token, NULL, 1.0f);
    for (int i = 0; i < p->n_layer; i++) {
        const struct layer_weights *w = &d->net.layer[i];
        size_t mark = dev_mark(dev);

        op_rms_norm(dev, in, x, w->mix_norm, p->n_embd, 0, p->norm_eps);
        attend_block(d, i, out, in);
        op_add(dev, x, out, 1.0f);
        op_rms_norm(dev, in, x, w->ffn_norm, p->n_embd, 0, p->norm_eps);
        model_glu(&s, &w->dense, out, in);
        op_add(dev, x, out, 1.0f);
        dev_release(dev, mark);
    }
    return x;
}

/* Appends the newest token of a slot and n masks; rows of d->pick from *at on are those to be
 * guessed. */
static void append_block(struct model_drafter *d, int slot, int32_t token, int n, int *at)
{
    int32_t *place = d->batch.token + d->batch.n;

    place[0] = token;
    for (int j = 1; j <= n; j++) {
        place[j] = d->mask;
        d->pick[(*at)++] = d->batch.n + j;
    }
    model_draft_append(d, slot, n + 1);
}

static void blocks(struct model_drafter *d, int n_guess)
{
    const int64_t n_embd = d->net.plan.n_embd;
    struct tensor y = dev_scratch(d->net.dev, n_embd, n_guess);

    op_rows_pick(d->net.dev, y, pass_layers(d), d->pick);
    op_rms_norm(d->net.dev, y, y, d->out_norm, n_embd, 0, d->net.plan.norm_eps);
    model_draft_head(d, y, 0);
}

static int guess_blocks(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask)
{
    int at = 0;

    d->batch.n = d->batch.n_seq = 0;
    for (int i = 0; i < n_ask; i++)
        append_block(d, ask[i].slot, ask[i].token, ask[i].n, &at);
    blocks(d, at);
    return at;
}

static void finish_guesses(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask)
{
    int64_t at = 0;

    for (int i = 0; i < n_ask; i++)
        for (int j = 0; j < ask[i].n; j++)
            ask[i].guess[j] = model_draft_answer(d, at++, &ask[i].p[j]);
}

static void measure_guesses(struct model_drafter *d, int n_ask)
{
    int at = 0;

    d->batch.n = d->batch.n_seq = 0;
    for (int i = 0; i < n_ask; i++)
        append_block(d, i, d->mask, d->info.n_max, &at);
    blocks(d, at);
}

static const struct drafter_kind dflash = { take_taps, guess_blocks, finish_guesses, measure_guesses };

/* ---- opening ---- */

static void read_plan(struct model_drafter *d, struct arch_keys *k)
{
    struct arch_plan *p = &d->net.plan;

    p->n_layer = arch_int(k, "block_count", 1, ARCH_LAYERS_MAX);
    p->n_embd = arch_int(k, "embedding_length", 1, ARCH_WIDTH_MAX);
    p->norm_eps = arch_float(k, "attention.layer_norm_rms_epsilon", 0.0f, 1.0f);
    p->n_vocab = d->target->plan.n_vocab;
    p->embd_scale = p->residual_scale = p->logit_scale = 1.0f;
    if (k->e->code == ERR_OK)
        arch_attn(p, k, arch_int(k, "attention.head_count_kv", 1, ARCH_HEADS_MAX), ROPE_HALVES);
    p->attn.qk_norm = true;
    for (int i = 0; i < p->n_layer; i++)
        p->layer[i] = (struct arch_layer_plan){ MIX_ATTN, FFN_DENSE, 0 };
    p->layer[0].n_ff = arch_int(k, "feed_forward_length", 1, ARCH_WIDTH_MAX);
    d->info.block = true;
    d->info.n_embd = p->n_embd;
    d->info.n_max = arch_int(k, "block_size", 2, 1 << 16) - 1;
    d->info.n_max = d->info.n_max < BLOCK_MAX ? d->info.n_max : BLOCK_MAX - 1;
    if (k->e->code == ERR_OK && p->n_embd != d->target->plan.n_embd)
        err_set(k->e, ERR_FORMAT, "%s drafts for rows of %d elements, and the model's have %d", gguf_path(k->g),
                p->n_embd, d->target->plan.n_embd);
}

/* The file counts layers by their inputs: layer j reads what layer j - 1 gives. */
static void read_taps(struct model_drafter *d, struct arch_keys *k)
{
    const struct gguf_kv *kv = gguf_kv_find(k->g, "dflash.target_layers");
    const int n_layer = d->target->plan.n_layer;

    if (k->e->code == ERR_OK && (kv == NULL || kv->kind != GGUF_ARR || kv->n < 1 || kv->n > MODEL_TAPS_MAX)) {
        err_set(k->e, ERR_FORMAT, "%s: dflash.target_layers is not a list of 1 .. %d layers", gguf_path(k->g),
                MODEL_TAPS_MAX);
        return;
    }
    for (uint64_t i = 0; k->e->code == ERR_OK && i < kv->n; i++) {
        int64_t j = 0;

        if (!gguf_kv_i64(kv, i, &j) || j < 1 || j > n_layer)
            err_set(k->e, ERR_FORMAT, "%s: dflash.target_layers names a layer that is not in 1 .. %d, the model's",
                    gguf_path(k->g), n_layer);
        else
            d->info.tap[d->info.n_tap++] = (int)j - 1;
    }
    d->width = (int64_t)d->info.n_tap * d->net.plan.n_embd;
}

static void read_mask(struct model_drafter *d, struct arch_keys *k)
{
    uint32_t mask = UINT32_MAX;

    if (k->e->code != ERR_OK)
        return;
    if (!gguf_u32(k->g, "tokenizer.ggml.mask_token_id", &mask) || mask >= (uint32_t)d->target->plan.n_vocab)
        err_set(k->e, ERR_FORMAT, "%s: tokenizer.ggml.mask_token_id is not a token of the model's %d", gguf_path(k->g),
                (int)d->target->plan.n_vocab);
    d->mask = (int32_t)mask;
}

/* A list says which layers have the window; a number n, that every n-th has not; without either all
 * have it. */
static void read_window(struct model_drafter *d, struct arch_keys *k)
{
    const struct gguf_kv *kv = gguf_kv_find(k->g, "dflash.attention.sliding_window_pattern");
    const int n = d->net.plan.n_layer;
    int64_t v = 0;

    d->window = arch_int_or(k, "attention.sliding_window", 0, ARCH_CTX_MAX, 0);
    d->windowed = arena_array(&d->net.arena, (size_t)n + 1, sizeof *d->windowed);
    if (d->windowed == NULL && k->e->code == ERR_OK)
        err_nomem(k->e);
    for (int i = 0; k->e->code == ERR_OK && i < n && d->window > 0; i++) {
        const bool list = kv != NULL && kv->kind == GGUF_ARR;

        if (kv != NULL && (!gguf_kv_i64(kv, list ? (uint64_t)i : 0, &v) || v < 0))
            err_set(k->e, ERR_FORMAT, "%s: dflash.attention.sliding_window_pattern says nothing of layer %d",
                    gguf_path(k->g), i);
        d->windowed[i] = kv == NULL || (list ? v != 0 : v == 0 || i % v < v - 1);
    }
}

static enum err_code bind(struct model_drafter *d, const struct gguf *g, struct err *e)
{
    struct model_weights bytes = { { 0 }, { 0 }, 0, 0 };
    const struct arch_plan *p = &d->net.plan;
    struct arena *arena = &d->net.arena;
    struct binder b = { .g = g,
                        .arena = arena,
                        .e = e,
                        .dev = d->net.dev,
                        .layer = -1,
                        .bytes = &bytes,
                        .used = arena_array(arena, gguf_n_tensors(g), sizeof(bool)) };
    float *freq = arena_array(arena, (size_t)p->attn.n_rot / 2 + 1, sizeof *freq);
    const float *rope_freq;

    d->net.layer = arena_array(arena, (size_t)p->n_layer, sizeof *d->net.layer);
    if (b.used == NULL || freq == NULL || d->net.layer == NULL)
        return err_nomem(e);
    for (int i = 0; i < p->attn.n_rot / 2; i++)
        freq[i] = (float)(1.0 / pow((double)p->attn.rope_base, 2.0 * i / p->attn.n_rot));
    rope_freq = bind_own(&b, "rope_freqs", freq, p->attn.n_rot / 2 + 1);
    d->mix = bind_mat(&b, "fc.weight", d->width, p->n_embd, 1);
    d->hidden_norm = bind_vec(&b, "enc.output_norm.weight", p->n_embd);
    d->out_norm = bind_vec(&b, "output_norm.weight", p->n_embd);
    for (int i = 0; i < p->n_layer && e->code == ERR_OK; i++) {
        struct layer_weights *w = &d->net.layer[i];

        b.layer = i;
        w->rope_freq = rope_freq;
        w->mix_norm = bind_vec(&b, "attn_norm.weight", p->n_embd);
        w->ffn_norm = bind_vec(&b, "ffn_norm.weight", p->n_embd);
        model_bind_attn(w, p, &b);
        model_bind_dense(&w->dense, p, p->layer[0].n_ff, &b);
    }
    return bind_all_used(&b);
}

static enum err_code open_file(struct model_drafter *d, const struct gguf *g, struct err *e)
{
    struct arch_keys k = { g, "dflash", e };
    struct str name = { 0 };

    e->code = ERR_OK;
    if (!gguf_str(g, "general.architecture", &name) || !str_is(name, "dflash"))
        return err_set(e, ERR_UNSUPPORTED, "%s: architecture '%.*s' is not dflash", gguf_path(g), STR_ARG(name));
    read_plan(d, &k);
    read_taps(d, &k);
    read_mask(d, &k);
    read_window(d, &k);
    d->embd = d->target->embd_last;
    d->head = d->target->head;
    return e->code != ERR_OK ? e->code : bind(d, g, e);
}

enum err_code model_drafter_dflash(struct model_drafter **out, const struct model *m, const struct gguf *g,
                                   struct err *e)
{
    struct model_drafter *d;

    if (model_draft_open(&d, m, &dflash, e) != ERR_OK)
        return e->code;
    if (open_file(d, g, e) != ERR_OK) {
        enum err_code code = e->code;

        model_drafter_close(d);
        return code;
    }
    *out = d;
    return ERR_OK;
}
