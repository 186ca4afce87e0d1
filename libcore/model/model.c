/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - opens a model: plan, weights, device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/reads.h"
#include "gguf/gguf.h"
#include "model/forward.h"
#include "model/internal.h"
#include "model/placement.h"
#include "quant/quant.h"

#define MODEL_LEAVES ((int64_t)256 << 20) /* of free memory, beside copies of weights: for what a run takes */

typedef void bind_fn(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
static const struct {
    enum arch_mixer bit;
    bind_fn *bind;
} mixers[] = {
    { MIX_ATTN, model_bind_attn }, { MIX_MLA, model_bind_mla },   { MIX_GDN, model_bind_gdn },
    { MIX_KDA, model_bind_kda },   { MIX_SSM1, model_bind_ssm1 }, { MIX_SSM2, model_bind_ssm2 },
    { MIX_CONV, model_bind_conv },
};

/* What follows lies on device k. */
static void bind_on(struct model *m, struct binder *b, int k)
{
    b->dev = m->part[k];
    b->bytes = &m->bytes_on[k];
}

static void bind_layer(struct model *m, struct binder *b, const struct model_experts *place, int i)
{
    struct layer_weights *w = &m->layer[i];
    const struct arch_layer_plan *l = &m->plan.layer[i];
    int n_expert = m->plan.moe.n_expert;

    b->layer = i;
    bind_on(m, b, m->on[i]);
    b->here = m->host != NULL && l->ffn == FFN_MOE && place->n_here[i] < n_expert ? place->here + (int64_t)i * n_expert
                                                                                  : NULL;
    if (m->plan.front && l->ffn != FFN_NONE) {
        w->front_norm = bind_vec(b, "post_attention_norm.weight", (int64_t)2 * m->plan.n_embd);
        w->front_mix = bind_mat(b, "ssm_mix.weight", m->plan.n_embd, m->plan.n_embd, 1);
    }
    if (m->plan.joined) {
        w->join_norm[0] = bind_vec(b, "attn_output_norm.weight", m->plan.ssm.inner);
        w->join_norm[1] = bind_vec(b, "ssm_norm.weight", m->plan.ssm.inner);
    }
    if (m->plan.streams.n > 1) {
        model_bind_streams(&w->mix_streams, &m->plan, "hc_attn", b);
        model_bind_streams(&w->ffn_streams, &m->plan, "hc_ffn", b);
    } else if (l->mixers != 0) {
        w->mix_norm = bind_vec(b, "attn_norm.weight", m->plan.n_embd);
    }
    if (arch_plan_has_table(&m->plan, i))
        model_bind_table(&m->table, &m->plan, b);
    for (size_t j = 0; j < sizeof mixers / sizeof mixers[0]; j++)
        if (l->mixers & mixers[j].bit)
            mixers[j].bind(w, &m->plan, b);
    if (l->ffn != FFN_NONE && m->plan.streams.n == 1)
        /* a layer that has nothing else keeps its one norm under attn_norm */
        w->ffn_norm = bind_vec(b, l->mixers != 0 ? m->plan.ffn_norm : "attn_norm.weight", m->plan.n_embd);
    if (l->ffn == FFN_MOE)
        model_bind_moe(&w->moe, &m->plan, b);
    if (l->ffn == FFN_DENSE)
        model_bind_dense(&w->dense, &m->plan, l->n_ff, b);
}

/* A multi-token-prediction block (Qwen3.5 and its kin: attention and a feed-forward; Ling 3.0: latent attention). Those
 * that nobody uses stay in the file; that they are whole is checked. */
static void bind_nextn(struct model *m, struct binder *b, int i, struct nextn_weights *w)
{
    const struct arch_layer_plan *like = &m->plan.layer[m->plan.n_layer - 1];
    int n_embd = m->plan.n_embd;

    b->layer = i;
    b->here = NULL;
    w->layer.mix_norm = bind_vec(b, "attn_norm.weight", n_embd);
    w->layer.ffn_norm = bind_vec(b, m->plan.ffn_norm, n_embd);
    if (m->plan.nextn_mixer == MIX_MLA)
        model_bind_mla(&w->layer, &m->plan, b);
    else
        model_bind_attn(&w->layer, &m->plan, b);
    if (like->ffn == FFN_MOE)
        model_bind_moe(&w->layer.moe, &m->plan, b);
    else
        model_bind_dense(&w->layer.dense, &m->plan, like->n_ff, b);
    w->mix = bind_mat(b, "nextn.eh_proj.weight", (int64_t)2 * n_embd, n_embd, 1);
    w->embd_norm = bind_vec(b, "nextn.enorm.weight", n_embd);
    w->hidden_norm = bind_vec(b, "nextn.hnorm.weight", n_embd);
    w->out_norm = bind_vec_opt(
        b, bind_has(b, "layer_output_norm.weight") ? "layer_output_norm.weight" : "nextn.shared_head_norm.weight",
        n_embd);
    if (bind_has(b, "nextn.embed_tokens.weight"))
        w->embd = bind_rows(b, "nextn.embed_tokens.weight", n_embd, m->plan.n_vocab, true);
    w->head = bind_mat_opt(b, "nextn.shared_head_head.weight", n_embd, m->plan.n_vocab, 1);
}

/* The first block may be wanted. */
static void bind_nextns(struct model *m, struct binder *b, bool wanted)
{
    b->cache = false; /* its experts are in the mapping: a drafter that fails would end all requests */
    if (wanted && m->info.n_nextn > 0) {
        m->nextn = arena_array(&m->arena, 1, sizeof *m->nextn);
        if (m->nextn == NULL) {
            err_nomem(b->e);
            return;
        }
        bind_on(m, b, m->n_dev - 1);
        m->nextn->layer.rope_freq = m->layer[m->plan.n_layer - 1].rope_freq;
        bind_nextn(m, b, m->plan.n_layer, m->nextn);
    }
    b->dev = NULL;
    for (int i = m->nextn != NULL; i < m->plan.n_nextn && b->e->code == ERR_OK; i++)
        bind_nextn(m, b, m->plan.n_layer + i, &(struct nextn_weights){ .mix = { .data = NULL } });
}

/* The embedding lies on the first device, the head on the last; a drafter there needs the embedding, too. */
static void bind_ends(struct model *m, struct binder *b, const struct model_opts *o)
{
    const struct arch_plan *p = &m->plan;
    const int64_t n_rows = p->n_vocab + p->n_meta;
    const int last = m->n_dev - 1;
    const bool by_ids = o->nextn && m->info.n_nextn > 0;

    if (bind_has(b, "output.weight")) {
        m->embd = bind_rows(b, "token_embd.weight", p->n_embd, n_rows, by_ids && last == 0);
        bind_on(m, b, last);
        m->embd_last = last == 0 ? m->embd : bind_rows(b, "token_embd.weight", p->n_embd, n_rows, by_ids);
        if (last > 0)
            m->bytes_on[last].host[MODEL_EMBEDDING] = 0; /* counted with the first */
        m->head = bind_mat(b, "output.weight", p->n_embd, p->n_vocab, 1);
    } else {
        if (last > 0)
            m->embd = bind_rows(b, "token_embd.weight", p->n_embd, n_rows, false);
        bind_on(m, b, last);
        b->as_stored = true; /* its rows are read, too */
        m->head = m->embd_last = bind_mat(b, "token_embd.weight", p->n_embd, n_rows, 1);
        m->head.ne[1] = p->n_vocab;
        b->as_stored = o->placement.as_stored;
        if (last == 0)
            m->embd = m->embd_last;
    }
    if (p->streams.n > 1)
        model_bind_streams(&m->out_streams, p, "output_hc", b);
    else
        m->out_norm = bind_vec(b, p->out_norm, p->n_embd);
}

/* Each device has the rotary frequencies. */
static enum err_code bind_freq(struct model *m, struct binder *b, struct err *e)
{
    const int n = m->plan.attn.n_rot / 2 + 1;
    float *freq = arena_array(&m->arena, (size_t)n, sizeof *freq);

    if (freq == NULL)
        return err_nomem(e);
    for (int i = 0; i < n - 1; i++)
        freq[i] = (float)(1.0 / pow((double)m->plan.attn.rope_base, 2.0 * i / m->plan.attn.n_rot));
    for (int k = 0; k < m->n_dev; k++) {
        bind_on(m, b, k);
        const float *there = bind_own(b, "rope_freqs", freq, n);

        for (int i = m->first[k]; i < m->first[k + 1]; i++)
            m->layer[i].rope_freq = there;
    }
    bind_on(m, b, 0);
    return ERR_OK;
}

/* The devices in turns: one takes weights while those of the others are on their way. */
static enum err_code bind_layers(struct model *m, struct binder *b, const struct model_opts *o)
{
    const uint64_t n = (uint64_t)m->plan.n_layer;
    uint64_t done = 0;

    for (int at = 0; done < n && b->e->code == ERR_OK; at++)
        for (int k = 0; k < m->n_dev && b->e->code == ERR_OK; k++) {
            if (m->first[k] + at >= m->first[k + 1])
                continue;
            bind_layer(m, b, o->placement.experts, m->first[k] + at);
            if (b->e->code == ERR_OK && !progress_tick(o->progress, ++done, n))
                return err_set(b->e, ERR_CANCEL, "interrupted");
        }
    return b->e->code;
}

static void add_bytes(struct model_weights *all, const struct model_weights *w)
{
    for (int c = 0; c < MODEL_N_CLASSES; c++) {
        all->device[c] += w->device[c];
        all->host[c] += w->host[c];
    }
    all->copied += w->copied;
    all->laid += w->laid;
}

/* Takes each cache's share of the memory, where layers of experts have been bound to a device. */
static enum err_code open_caches(const struct model *m, int64_t bytes, struct err *e)
{
    struct io_cache_stats all, s;

    if (bytes == 0 || !model_cache_stats(m, &all))
        return ERR_OK;
    for (int k = 0; k <= m->n_dev; k++) {
        struct dev *d = k < m->n_dev ? m->part[k] : m->host;

        if (d != NULL && dev_cache_stats(d, &s) &&
            dev_cache_open(d, (size_t)((double)bytes * (double)s.expert_bytes / (double)all.expert_bytes), e))
            return e->code;
    }
    return ERR_OK;
}

bool model_cache_stats(const struct model *m, struct io_cache_stats *out)
{
    struct io_cache_stats s;
    bool any = false;

    *out = (struct io_cache_stats){ .direct = true };
    for (int k = 0; k <= m->n_dev; k++) {
        const struct dev *d = k < m->n_dev ? m->part[k] : m->host;

        if (d == NULL || !dev_cache_stats(d, &s))
            continue;
        any = true;
        out->hits += s.hits;
        out->reads += s.reads;
        out->ahead += s.ahead;
        out->bytes += s.bytes;
        out->wait_ns += s.wait_ns;
        out->memory += s.memory;
        out->expert_bytes += s.expert_bytes;
        out->slots += s.slots;
        out->experts += s.experts;
        out->kept += s.kept;
        out->direct &= s.direct;
    }
    return any;
}

static enum err_code bind_all(struct model *m, const struct gguf *g, const struct model_opts *o, struct err *e)
{
    const struct arch_plan *p = &m->plan;
    struct binder b = { .g = g,
                        .arena = &m->arena,
                        .e = e,
                        .host = m->host,
                        .layer = -1,
                        .n_layer = p->n_layer,
                        .copy = o->placement.copy_weights,
                        .as_stored = o->placement.as_stored,
                        .cache = o->placement.cache_bytes > 0,
                        .uses = o->placement.uses,
                        .used = arena_array(&m->arena, gguf_n_tensors(g), sizeof(bool)),
                        .multiplied = arena_array(&m->arena, gguf_n_tensors(g), sizeof(bool)) };

    e->code = ERR_OK;
    m->layer = arena_array(&m->arena, (size_t)p->n_layer, sizeof *m->layer);
    if (m->layer == NULL || b.used == NULL || b.multiplied == NULL)
        return err_nomem(e);
    m->multiplied = b.multiplied;
    if (bind_freq(m, &b, e))
        return e->code;
    bind_ends(m, &b, o);
    if (bind_layers(m, &b, o) == ERR_CANCEL)
        return e->code;
    bind_nextns(m, &b, o->nextn);
    bind_unread(&b, p->n_layer + p->n_nextn, p->n_unread);
    for (int k = 0; k < m->n_dev; k++)
        add_bytes(&m->bytes, &m->bytes_on[k]);
    return bind_all_used(&b) ? e->code : open_caches(m, o->placement.cache_bytes, e);
}

static void fill_info(struct model *m, const struct gguf *g)
{
    struct model_info *f = &m->info;

    f->arch = m->plan.arch->name;
    f->n_layer = m->plan.n_layer;
    f->n_vocab = m->plan.n_vocab;
    f->n_embd = m->plan.n_embd;
    f->n_streams = m->plan.streams.n;
    f->ctx_train = m->plan.ctx_train;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        f->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        f->weight_bytes += (int64_t)t->size_bytes;
    }
    f->n_threads = dev_threads(m->dev);
    f->device = m->names[0] != '\0' ? m->names : dev_name(m->dev);
    f->simd = dev_simd(m->dev);
}

/* Copies and caches take memory as they are filled: that it is not there has to be found out before. A dry run says how
 * much. */
static enum err_code check_room(const struct model *m, const struct gguf *g, const struct model_opts *o, struct err *e)
{
    struct model_opts look = *o;
    struct model *dry;
    const bool takes = o->placement.copy_weights || o->placement.cache_bytes > 0;
    int64_t left = takes && !o->placement.dry_run ? memory_left("") : -1, copied, cache = 0;
    struct io_cache_stats s;

    if (left < 0 || (!dev_is_host(m->dev) && m->host == NULL))
        return ERR_OK;
    look.placement.dry_run = true;
    look.progress = NULL;
    look.n_threads = 1;
    look.placement.count_sets = 0;
    look.placement.weight_bytes = NULL;
    if (model_open(&dry, g, &look, e))
        return e->code;
    copied = dry->bytes.copied;
    if (model_cache_stats(dry, &s))
        cache = s.memory;
    model_close(dry);
    if (copied + cache <= left - MODEL_LEAVES)
        return ERR_OK;
    if (copied == 0)
        return err_set(e, ERR_NOMEM, "--expert-cache: %.2f GB do not leave %.2f of the %.2f GB that are free",
                       (double)cache / 1e9, (double)MODEL_LEAVES / 1e9, (double)left / 1e9);
    return err_set(e, ERR_NOMEM, "out of memory: a copy of %.2f GB of weights, and %.2f GB are free",
                   (double)(copied + cache) / 1e9, (double)left / 1e9);
}

static enum err_code use_experts(struct model *m, int n_used, struct err *e)
{
    struct arch_moe_plan *p = &m->plan.moe;

    m->info.n_used_trained = p->n_used;
    if (n_used > 0 && p->n_expert == 0)
        return err_set(e, ERR_UNSUPPORTED, "--experts %d: the model has no routed experts", n_used);
    if (n_used > p->n_used)
        return err_set(e, ERR_ARG, "--experts %d: the model was trained with %d for each token, and more make it worse",
                       n_used, p->n_used);
    p->n_used = n_used > 0 ? n_used : p->n_used;
    m->info.n_used = p->n_used;
    return ERR_OK;
}

/* The plan, the devices and the weights. */
static enum err_code open_parts(struct model *m, const struct gguf *g, const struct model_opts *o, struct err *e)
{
    const double from = clock_ms();
    double opened;

    if (arch_plan_make(&m->plan, g, e) || use_experts(m, o->n_used, e) || model_open_devices(m, o, e))
        return e->code;
    m->info.n_nextn = m->plan.nextn_mixer == MIX_ATTN ? m->plan.n_nextn : 0;
    opened = clock_ms();
    if ((o->placement.count_sets > 0 && model_count_uses(m, e)) || check_room(m, g, o, e) || bind_all(m, g, o, e))
        return e->code;
    fill_info(m, g);
    m->info.device_ms = opened - from;
    m->info.weights_ms = clock_ms() - opened;
    return ERR_OK;
}

enum err_code model_open(struct model **out, const struct gguf *g, const struct model_opts *o, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);

    if (m == NULL)
        return err_nomem(e);
    m->count_sets = o->placement.count_sets;
    m->step_rows = o->placement.step_rows;
    m->dry_run = o->placement.dry_run;
    if (open_parts(m, g, o, e)) {
        model_close(m);
        return e->code;
    }
    m->gguf = g;
    *out = m;
    return ERR_OK;
}

enum err_code model_check(const struct gguf *g, struct err *e)
{
    const struct model_opts look = { .n_threads = 1, .placement.dry_run = true };
    struct str name = { 0 };
    struct model *m;

    /* A drafter has shapes of the model that it drafts for. */
    if (gguf_str(g, "general.architecture", &name) && str_is(name, "dflash"))
        return ERR_OK;
    if (model_open(&m, g, &look, e) != ERR_OK)
        return e->code;
    model_close(m);
    return ERR_OK;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    model_close_devices(m);
    arena_free(&m->arena);
    free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

int64_t model_expert_bytes(const struct model *m, int layer)
{
    const struct moe_weights *w = &m->layer[layer].moe;
    const struct tensor all[3] = { w->gate, w->up, w->down };
    int64_t n = 0;

    for (int i = 0; m->plan.layer[layer].ffn == FFN_MOE && i < 3; i++)
        n += all[i].ne[0] == 0 ? 0 : all[i].ne[1] * quant_row_bytes(all[i].type, all[i].ne[0]);
    return n;
}

int model_table_rows(const struct model *m)
{
    return m->plan.table.ngram > 0 ? (m->plan.table.ngram - 1) * m->plan.table.heads : 0;
}

struct dev *model_host(const struct model *m)
{
    return m->host;
}

bool model_is_dry(const struct model *m)
{
    return m->dry_run;
}

int model_step_rows(const struct model *m)
{
    return m->step_rows;
}

const struct arch_plan *model_plan(const struct model *m)
{
    return &m->plan;
}

const struct model_weights *model_weights(const struct model *m)
{
    return &m->bytes;
}

int model_n_expert(const struct model *m)
{
    return m->plan.moe.n_expert;
}

enum err_code model_read_speed(struct model_reads *r, const struct model_opts *o, int64_t bytes, struct err *e)
{
    size_t n = bytes < DEV_READ_UNIT ? DEV_READ_UNIT : (size_t)bytes / DEV_READ_UNIT * DEV_READ_UNIT;
    struct dev *d;

    if (model_one_dev(&d, o, e) != ERR_OK)
        return e->code;
    dev_may_stop(d, r->stop);
    enum err_code code = dev_read_speed(d, n, r->bytes_per_s, r->reps, e);

    if (code == ERR_OK) {
        r->n_threads = dev_threads(d);
        snprintf(r->device, sizeof r->device, "%s", dev_name(d));
        snprintf(r->kernels, sizeof r->kernels, "%s", dev_simd(d));
    }
    dev_close(d);
    return code;
}

enum err_code model_device_name(const char *name, struct err *e)
{
    return dev_check_name(name, e);
}

enum err_code model_gpu(int i, char *buf, size_t buf_bytes, struct err *e)
{
    char name[32];
    struct dev *d;

    snprintf(name, sizeof name, "cuda:%d", i);
    if (dev_open(&d, name, &(struct dev_opts){ .dry_run = true }, e) != ERR_OK)
        return e->code;
    const struct dev_memory m = dev_memory(d);

    snprintf(buf, buf_bytes, "%s, %.1f GB", dev_simd(d), (double)m.total_bytes / 1e9);
    dev_close(d);
    return ERR_OK;
}
