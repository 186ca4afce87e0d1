/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - finds the matrices and vectors of a model and checks their shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/simd.h"
#include "gguf/gguf.h"
#include "grad/internal.h"
#include "ops/context.h"
#include "quant/quant.h"

/* The first failure is kept in *e. */
struct finder {
    struct grad *g;
    struct err *e;
    int layer; /* -1: names without "blk.N." */
    int first; /* N of layer 0 of a pass */
};

static const struct gguf_tensor *need_tensor(struct finder *f, const char *name, char full[128])
{
    const struct gguf_tensor *t;

    if (f->layer < 0)
        (void)snprintf(full, 128, "%s", name);
    else
        (void)snprintf(full, 128, "blk.%d.%s", f->layer, name);
    if (f->e->code != ERR_OK)
        return NULL;
    t = gguf_find(f->g->gguf, full);
    if (t == NULL)
        err_set(f->e, ERR_FORMAT, "%s: tensor %s is missing", gguf_path(f->g->gguf), full);
    return t;
}

static int mat(struct finder *f, const char *name, int64_t n_in, int64_t n_out, int64_t n_expert)
{
    char full[128];
    struct grad *g = f->g;
    const struct gguf_tensor *t = need_tensor(f, name, full);
    char *kept;
    int64_t tile;

    if (t == NULL)
        return -1;
    if (t->ne[0] != n_in || t->ne[1] != n_out || t->ne[2] != n_expert || t->ne[3] != 1) {
        err_set(f->e, ERR_FORMAT, "%s: tensor %s is %lld x %lld x %lld, not %lld x %lld x %lld", gguf_path(g->gguf),
                full, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)n_in, (long long)n_out,
                (long long)n_expert);
        return -1;
    }
    kept = arena_strdup(&g->arena, str_of(full));
    if (kept == NULL) {
        err_nomem(f->e);
        return -1;
    }
    g->mat[g->n_mat] =
        (struct grad_matrix){ kept, n_in, n_out, n_expert, f->layer < 0 ? -1 : f->layer - f->first, t->type, t->data };
    tile = grad_tile_rows(&g->mat[g->n_mat]) * n_in;
    g->tile = tile > g->tile ? tile : g->tile;
    return g->n_mat++;
}

static const float *vec(struct finder *f, const char *name, int64_t n)
{
    char full[128];
    const struct gguf_tensor *t = need_tensor(f, name, full);
    int64_t rows = t == NULL ? 0 : t->ne[1] * t->ne[2] * t->ne[3];
    float *v;

    if (t == NULL)
        return NULL;
    if (t->ne[0] * rows != n) {
        err_set(f->e, ERR_FORMAT, "%s: tensor %s has %lld elements, not %lld", gguf_path(f->g->gguf), full,
                (long long)(t->ne[0] * rows), (long long)n);
        return NULL;
    }
    v = arena_array(&f->g->arena, (size_t)n, sizeof *v);
    if (v == NULL)
        err_nomem(f->e);
    for (int64_t r = 0; v != NULL && r < rows; r++)
        quant_types[t->type]->decode(v + r * t->ne[0],
                                     (const unsigned char *)t->data + r * quant_row_bytes(t->type, t->ne[0]), t->ne[0]);
    return v;
}

static void find_attn(struct finder *f, struct attn_at *w)
{
    const struct arch_plan *p = &f->g->plan;
    const struct arch_attn_plan *a = &p->attn;
    int64_t nq = (int64_t)a->n_head * a->dim_k, nkv = (int64_t)a->n_head_kv * a->dim_k;

    w->q = mat(f, "attn_q.weight", p->n_embd, 2 * nq, 1);
    w->k = mat(f, "attn_k.weight", p->n_embd, nkv, 1);
    w->v = mat(f, "attn_v.weight", p->n_embd, nkv, 1);
    w->o = mat(f, "attn_output.weight", nq, p->n_embd, 1);
    w->q_norm = vec(f, "attn_q_norm.weight", a->dim_k);
    w->k_norm = vec(f, "attn_k_norm.weight", a->dim_k);
}

/* [channels][taps] to [taps][channels] */
static const float *across(struct finder *f, const float *v, int64_t taps, int64_t channels)
{
    float *to = v == NULL ? NULL : arena_array(&f->g->arena, (size_t)(taps * channels), sizeof *to);

    if (to == NULL && f->e->code == ERR_OK)
        err_nomem(f->e);
    for (int64_t c = 0; to != NULL && c < channels; c++)
        for (int64_t t = 0; t < taps; t++)
            to[t * channels + c] = v[c * taps + t];
    return to;
}

static void find_gdn(struct finder *f, struct gdn_at *w)
{
    const struct arch_plan *p = &f->g->plan;
    const struct arch_gdn_plan *d = &p->gdn;
    int64_t inner = (int64_t)d->n_v * d->dim_v, channels = (int64_t)2 * d->n_k * d->dim + inner;

    w->qkv = mat(f, "attn_qkv.weight", p->n_embd, channels, 1);
    w->z = mat(f, "attn_gate.weight", p->n_embd, inner, 1);
    w->ba = w->alpha = w->beta = -1;
    if (d->ba_fused) {
        w->ba = mat(f, "ssm_ba.weight", p->n_embd, (int64_t)2 * d->n_v, 1);
    } else {
        w->alpha = mat(f, "ssm_alpha.weight", p->n_embd, d->n_v, 1);
        w->beta = mat(f, "ssm_beta.weight", p->n_embd, d->n_v, 1);
    }
    w->out = mat(f, "ssm_out.weight", inner, p->n_embd, 1);
    w->conv = across(f, vec(f, "ssm_conv1d.weight", p->taps * channels), p->taps, channels);
    w->dt_bias = vec(f, "ssm_dt.bias", d->n_v);
    w->a = vec(f, "ssm_a", d->n_v);
    w->norm = vec(f, "ssm_norm.weight", d->dim_v);
}

static void find_moe(struct finder *f, struct moe_at *w)
{
    const struct arch_plan *p = &f->g->plan;
    const struct arch_moe_plan *m = &p->moe;

    w->router = mat(f, "ffn_gate_inp.weight", p->n_embd, m->n_expert, 1);
    w->routed.gate = mat(f, "ffn_gate_exps.weight", p->n_embd, m->n_ff, m->n_expert);
    w->routed.up = mat(f, "ffn_up_exps.weight", p->n_embd, m->n_ff, m->n_expert);
    w->routed.down = mat(f, "ffn_down_exps.weight", m->n_ff, p->n_embd, m->n_expert);
    if (m->n_ff_shared == 0)
        return;
    if (m->shared_gate)
        w->shared_router = mat(f, "ffn_gate_inp_shexp.weight", p->n_embd, 1, 1);
    w->shared.gate = mat(f, "ffn_gate_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->shared.up = mat(f, "ffn_up_shexp.weight", p->n_embd, m->n_ff_shared, 1);
    w->shared.down = mat(f, "ffn_down_shexp.weight", m->n_ff_shared, p->n_embd, 1);
}

static void find_layer(struct finder *f, int i)
{
    struct grad *g = f->g;
    const struct arch_layer_plan *l = &g->plan.layer[i];
    struct layer_at *w = &g->layer[i];

    f->layer = f->first + i;
    w->mix_norm = vec(f, "attn_norm.weight", g->plan.n_embd);
    w->ffn_norm = vec(f, g->plan.ffn_norm, g->plan.n_embd);
    if (l->mixers == MIX_ATTN)
        find_attn(f, &w->attn);
    else
        find_gdn(f, &w->gdn);
    if (l->ffn == FFN_MOE) {
        find_moe(f, &w->moe);
        return;
    }
    w->dense.gate = mat(f, "ffn_gate.weight", g->plan.n_embd, l->n_ff, 1);
    w->dense.up = mat(f, "ffn_up.weight", g->plan.n_embd, l->n_ff, 1);
    w->dense.down = mat(f, "ffn_down.weight", l->n_ff, g->plan.n_embd, 1);
}

static bool has_tensor(const struct finder *f, const char *name)
{
    char full[128];

    (void)snprintf(full, sizeof full, "blk.%d.%s", f->layer, name);
    return gguf_find(f->g->gguf, full) != NULL;
}

/* What goes into a multi-token-prediction block, and its last norm. */
static void find_mix(struct finder *f)
{
    struct grad *g = f->g;
    const struct arch_plan *p = &g->plan;

    g->trunk_norm = vec(f, p->out_norm, p->n_embd);
    f->layer = f->first;
    g->mix = mat(f, "nextn.eh_proj.weight", (int64_t)2 * p->n_embd, p->n_embd, 1);
    g->embd_norm = vec(f, "nextn.enorm.weight", p->n_embd);
    g->hidden_norm = vec(f, "nextn.hnorm.weight", p->n_embd);
    g->out_norm = has_tensor(f, "nextn.shared_head_norm.weight") ? vec(f, "nextn.shared_head_norm.weight", p->n_embd)
                                                                 : g->trunk_norm;
    if (!has_tensor(f, "nextn.embed_tokens.weight"))
        f->layer = -1;
    g->embd = mat(f, f->layer < 0 ? "token_embd.weight" : "nextn.embed_tokens.weight", p->n_embd, p->n_vocab, 1);
    f->layer = -1;
}

/* What the formulas of this room hold for. */
static bool supported(const struct arch_plan *p)
{
    bool ok = p->attn.gated && p->attn.qk_norm && p->attn.rope == ROPE_HALVES && p->attn.dim_k == p->attn.dim_v &&
              p->streams.n == 1 && !p->relu2 && p->embd_scale == 1.0f && p->residual_scale == 1.0f &&
              p->logit_scale == 1.0f;

    for (int i = 0; i < p->n_layer; i++)
        ok = ok && (p->layer[i].mixers == MIX_ATTN || p->layer[i].mixers == MIX_GDN) && p->layer[i].ffn != FFN_NONE &&
             (p->layer[i].ffn != FFN_MOE ||
              (!p->moe.sigmoid && !p->moe.bias && p->moe.n_group <= 1 && p->moe.n_latent == 0));
    return ok;
}

static enum err_code find_all(struct grad *g, struct err *e)
{
    enum { OF_LAYER = 16 };
    const struct arch_plan *p = &g->plan;
    struct finder f = { g, e, -1, g->plan.n_layer == g->n_trunk ? 0 : g->n_trunk };

    e->code = ERR_OK;
    g->mat = arena_array(&g->arena, (size_t)p->n_layer * OF_LAYER + 2, sizeof *g->mat);
    g->layer = arena_array(&g->arena, (size_t)p->n_layer, sizeof *g->layer);
    g->kept = arena_array(&g->arena, (size_t)p->n_layer, sizeof *g->kept);
    float *freq = arena_array(&g->arena, (size_t)p->attn.n_rot / 2 + 1, sizeof *freq);
    if (g->mat == NULL || g->layer == NULL || g->kept == NULL || freq == NULL)
        return err_nomem(e);
    for (int i = 0; i < p->attn.n_rot / 2; i++)
        freq[i] = (float)(1.0 / pow((double)p->attn.rope_base, 2.0 * i / p->attn.n_rot));
    g->rope_freq = freq;
    if (f.first > 0)
        find_mix(&f);
    else {
        g->embd = mat(&f, "token_embd.weight", p->n_embd, p->n_vocab, 1);
        g->out_norm = vec(&f, p->out_norm, p->n_embd);
    }
    for (int i = 0; i < p->n_layer && e->code == ERR_OK; i++)
        find_layer(&f, i);
    f.layer = f.first;
    if (f.first > 0 && has_tensor(&f, "nextn.shared_head_head.weight")) {
        g->head = mat(&f, "nextn.shared_head_head.weight", p->n_embd, p->n_vocab, 1);
        return e->code;
    }
    f.layer = -1;
    g->head = mat(&f, gguf_find(g->gguf, "output.weight") != NULL ? "output.weight" : "token_embd.weight", p->n_embd,
                  p->n_vocab, 1);
    return e->code;
}

/* The plan of the block alone: one layer, of the kind that model/mtp.c has. */
static enum err_code plan_nextn(struct grad *g, struct err *e)
{
    const struct arch_layer_plan like = g->plan.layer[g->n_trunk - 1];

    if (g->plan.n_nextn == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s has no multi-token-prediction block", gguf_path(g->gguf));
    g->plan.n_layer = 1;
    g->plan.layer[0] = (struct arch_layer_plan){ MIX_ATTN, like.ffn, like.n_ff };
    return ERR_OK;
}

static enum err_code make_plan(struct grad *g, bool nextn, struct err *e)
{
    if (arch_plan_make(&g->plan, g->gguf, e))
        return e->code;
    g->n_trunk = g->plan.n_layer;
    if (nextn && plan_nextn(g, e))
        return e->code;
    if (!supported(&g->plan))
        return err_set(e, ERR_UNSUPPORTED, "%s: gradients of architecture '%s' are not supported", gguf_path(g->gguf),
                       g->plan.arch->name);
    return ERR_OK;
}

/* Vectors as the device reads them. */
static bool hand_over(struct grad *g, const float **v, int64_t n)
{
    if (*v != NULL)
        *v = g->ops->vector(g, *v, n);
    return *v != NULL;
}

static bool hand_over_layer(struct grad *g, int i)
{
    const struct arch_plan *p = &g->plan;
    const struct arch_gdn_plan *d = &p->gdn;
    struct layer_at *w = &g->layer[i];

    if (!hand_over(g, &w->mix_norm, p->n_embd) || !hand_over(g, &w->ffn_norm, p->n_embd))
        return false;
    if (p->layer[i].mixers == MIX_ATTN)
        return hand_over(g, &w->attn.q_norm, p->attn.dim_k) && hand_over(g, &w->attn.k_norm, p->attn.dim_k);
    return hand_over(g, &w->gdn.conv, p->taps * ((int64_t)2 * d->n_k * d->dim + (int64_t)d->n_v * d->dim_v)) &&
           hand_over(g, &w->gdn.dt_bias, d->n_v) && hand_over(g, &w->gdn.a, d->n_v) &&
           hand_over(g, &w->gdn.norm, d->dim_v);
}

static enum err_code hand_over_all(struct grad *g, struct err *e)
{
    const float *freq = g->rope_freq;
    bool ok = hand_over(g, &g->out_norm, g->plan.n_embd) && hand_over(g, &freq, g->plan.attn.n_rot / 2 + 1);

    for (int i = 0; i < g->plan.n_layer && ok; i++)
        ok = hand_over_layer(g, i);
    g->rope_freq = freq;
    return ok ? ERR_OK : err_set(e, ERR_NOMEM, "%s: out of memory for vectors", dev_name(g->dev));
}

/* The matrices are known; this goes on where others compute. */
static enum err_code move_to(struct grad *g, const char *device, int64_t most_bytes, struct err *e)
{
    if (dev_open(&g->dev, device, &(struct dev_opts){ .n_threads = 1 }, e))
        return e->code;
    if (dev_is_host(g->dev)) /* this room computes */
        return ERR_OK;
#ifdef CHIMERE_CUDA
    if (strncmp(dev_name(g->dev), "cuda", 4) == 0)
        return cuda_grad_open(g, dev_context(g->dev), most_bytes, e) ? e->code : hand_over_all(g, e);
#else
    (void)most_bytes;
    (void)hand_over_all;
#endif
    return err_set(e, ERR_UNSUPPORTED, "device '%s' has no gradients", device);
}

static enum err_code open_grad(struct grad **out, const struct gguf *gguf, int n_threads, bool nextn, struct err *e)
{
    struct grad *g = calloc(1, sizeof *g);

    if (g == NULL)
        return err_nomem(e);
    g->gguf = gguf;
    g->ops = &grad_host_ops;
    g->simd = simd_features();
    g->mix = -1;
    e->code = ERR_OK;
    if (make_plan(g, nextn, e) || pool_open(&g->pool, n_threads > 0 ? n_threads : pool_cpus(), e) || find_all(g, e)) {
        enum err_code code = e->code;

        grad_close(g);
        return code;
    }
    *out = g;
    return ERR_OK;
}

enum err_code grad_open(struct grad **out, const struct gguf *gguf, int n_threads, struct err *e)
{
    return open_grad(out, gguf, n_threads, false, e);
}

enum err_code grad_open_on(struct grad **out, const struct gguf *gguf, const char *device, int64_t most_bytes,
                           int n_threads, struct err *e)
{
    struct grad *g;

    if (open_grad(&g, gguf, n_threads, false, e))
        return e->code;
    if (move_to(g, device, most_bytes, e)) {
        enum err_code code = e->code;

        grad_close(g);
        return code;
    }
    *out = g;
    return ERR_OK;
}

enum err_code grad_open_nextn(struct grad **out, const struct gguf *gguf, int n_threads, struct err *e)
{
    return open_grad(out, gguf, n_threads, true, e);
}

void grad_close(struct grad *g)
{
    if (g == NULL)
        return;
    if (g->device != NULL)
        g->ops->close(g->device);
    dev_close(g->dev);
    pool_close(g->pool);
    arena_free(&g->arena);
    free(g->memory);
    free(g);
}

int64_t grad_room(const struct grad *g)
{
    return g->ops->room == NULL ? -1 : g->ops->room(g);
}

int64_t grad_longest(const struct grad *g)
{
    return g->ops->longest == NULL ? INT64_MAX : g->ops->longest(g);
}

void grad_set_progress(struct grad *g, const struct progress *p)
{
    g->progress = p;
}

int32_t grad_n_vocab(const struct grad *g)
{
    return g->plan.n_vocab;
}

int grad_n_embd(const struct grad *g)
{
    return g->plan.n_embd;
}

int grad_n_layer(const struct grad *g)
{
    return g->n_trunk;
}

struct pool *grad_pool(const struct grad *g)
{
    return g->pool;
}

int grad_n_matrices(const struct grad *g)
{
    return g->n_mat;
}

const struct grad_matrix *grad_matrix_at(const struct grad *g, int i)
{
    return &g->mat[i];
}

int grad_matrix_find(const struct grad *g, struct str name)
{
    for (int i = 0; i < g->n_mat; i++)
        if (str_is(name, g->mat[i].name))
            return i;
    return -1;
}
