/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c - a DFlash drafter learns from texts of its model. */
#include "train/dflash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "train/half.h"
#include "train/muon.h"

enum { BAD_MAX = 20 };
#define MUON_RATE 10 /* times the rate of norms */

/* Memory for a batch. */
struct train_draw {
    int32_t *from, *pos, *token, *want;
    float *weight;
    struct dev_block *block;
    int64_t n_row, n_context, cap_context;
    int n_block;
    uint64_t drawn; /* random numbers of this step */
};

/* ---- opening ---- */

static int64_t rows_max(const struct train_shape *s, const struct train_dflash_opts *o)
{
    return (int64_t)o->n_text * o->n_anchor * s->block;
}

/* Bytes of an array of its weights; the few of norms are left out. */
static int64_t weight_bytes(const struct train_shape *s)
{
    const int64_t d = s->n_embd, each = d * (2 * s->n_head + 2 * s->n_head_kv) * s->head_dim + 3 * d * s->n_ff;

    return (s->n_layer * each + s->n_tap * d * d) * (int64_t)sizeof(float);
}

int64_t train_dflash_bytes(const struct train_shape *s, const struct train_shape *old,
                           const struct train_dflash_opts *o, const struct dev_math *m, int64_t n_vocab)
{
    const int64_t context = (int64_t)o->n_text * s->ctx_tokens;
    const int64_t steps = train_net_bytes(s, m, context, rows_max(s, o), o->n_text * o->n_anchor, n_vocab);
    const int64_t walk = old == NULL
                             ? 0
                             : 2 * weight_bytes(old) + train_net_bytes(old, m, context, (int64_t)o->n_text * old->block,
                                                                       o->n_text, n_vocab);

    return 8 * weight_bytes(s) + (walk > steps ? walk : steps);
}

int64_t train_dflash_host_bytes(const struct train_shape *s, const struct dev_math *m)
{
    return m->host ? 0 : 3 * weight_bytes(s); /* weights and moments, which a file that keeps them is written from */
}

/* The step of Muon takes too long for few threads and small batches. */
static bool by_muon(const struct train_dflash *d)
{
    return !d->net.m->host;
}

static bool note_how(struct train_dflash *d)
{
    const int matrices = by_muon(d) ? DEV_ADAM_NOT : DEV_ADAM_DECAYED;
    unsigned char *on = malloc((size_t)d->net.n_params);

    for (int i = 0; on != NULL && i < d->net.n_tensor; i++) {
        const struct train_tensor *t = &d->net.tensor[i];

        memset(on + t->at, t->n_out == 1 ? DEV_ADAM_PLAIN : matrices, (size_t)(t->n_in * t->n_out));
    }
    if (on != NULL)
        d->net.m->put(d->net.m, d->how, on, d->net.n_params);
    free(on);
    return on != NULL;
}

static bool take_moments(struct train_dflash *d)
{
    struct dev_math *m = d->net.m;
    const int64_t bytes = d->net.n_params * (int64_t)sizeof *d->m;

    d->m = m->host ? d->adam.m : m->take(m, bytes);
    d->v = m->host ? d->adam.v : m->take(m, bytes);
    d->how = m->take(m, d->net.n_params);
    d->scratch = m->take(m, by_muon(d) ? train_muon_bytes(&d->net) : 0);
    if (d->scratch == NULL || d->m == NULL || d->v == NULL || d->how == NULL || !note_how(d))
        return false;
    m->zero(m, d->m, bytes);
    m->zero(m, d->v, bytes);
    return true;
}

enum err_code train_dflash_open(struct train_dflash *d, const struct train_shape *s, const struct gguf *model,
                                struct dev_math *m, const struct train_dflash_opts *o, struct err *e)
{
    const size_t rows = (size_t)rows_max(s, o);
    struct train_draw *w;

    *d = (struct train_dflash){ .o = *o };
    if (train_net_open(&d->net, s, m, e) || train_adam_open(&d->adam, d->net.n_params, e) ||
        train_frozen_open(&d->frozen, model, s->n_embd, m, e)) {
        train_dflash_close(d);
        return e->code;
    }
    w = d->draw = calloc(1, sizeof *d->draw);
    if (w != NULL) {
        w->token = malloc(rows * sizeof *w->token);
        w->want = malloc(rows * sizeof *w->want);
        w->weight = malloc(rows * sizeof *w->weight);
        w->block = malloc((size_t)(o->n_text * o->n_anchor) * sizeof *w->block);
    }
    if (!take_moments(d) || w == NULL || w->token == NULL || w->want == NULL || w->weight == NULL || w->block == NULL) {
        train_dflash_close(d);
        return err_nomem(e);
    }
    train_net_init(&d->net, o->seed);
    return ERR_OK;
}

void train_dflash_close(struct train_dflash *d)
{
    if (d->draw != NULL) {
        free(d->draw->from);
        free(d->draw->pos);
        free(d->draw->token);
        free(d->draw->want);
        free(d->draw->weight);
        free(d->draw->block);
    }
    free(d->draw);
    if (d->net.m != NULL) {
        struct dev_math *m = d->net.m;

        m->give(m, m->host ? NULL : d->m);
        m->give(m, m->host ? NULL : d->v);
        m->give(m, d->how);
        m->give(m, d->scratch);
    }
    train_frozen_close(&d->frozen);
    train_adam_close(&d->adam);
    train_net_close(&d->net);
    *d = (struct train_dflash){ 0 };
}

/* ---- a batch ---- */

static double draw_unit(struct train_dflash *d)
{
    return rng_unit(d->o.seed, 1000 + (uint64_t)d->adam.step, d->draw->drawn++);
}

static int draw_size(struct train_dflash *d)
{
    const double x = draw_unit(d);
    const int most = d->net.s.block, size = x < 0.6 ? most : x < 0.82 ? most / 2 : most / 4;

    return size < 2 ? 2 : size;
}

/* A block after a token that the model wrote. */
static void add_block(struct train_dflash *d, const int32_t *token, const struct train_text_entry *text,
                      int64_t context)
{
    struct train_draw *w = d->draw;
    const int64_t written = text->n - text->n_prompt;
    const int64_t start = text->n_prompt + (int64_t)(draw_unit(d) * (double)(written - 1));
    const int n = draw_size(d);
    const float gamma = n > 8 ? 7.0f : 4.0f;

    w->block[w->n_block++] = (struct dev_block){ w->n_row, n, context, start };
    for (int i = 0; i < n; i++) {
        w->token[w->n_row] = i == 0 ? token[start] : d->net.s.mask;
        w->want[w->n_row] = i == 0 || start + i >= text->n ? -1 : token[start + i];
        w->weight[w->n_row++] = expf(-(float)(i - 1) / gamma);
    }
}

static enum err_code context_room(struct train_dflash *d, int64_t n, struct err *e)
{
    struct train_draw *w = d->draw;

    if (w->n_context + n <= w->cap_context)
        return ERR_OK;
    const int64_t cap = 2 * (w->n_context + n);
    int32_t *from = realloc(w->from, (size_t)cap * sizeof *from);

    w->from = from != NULL ? from : w->from;
    int32_t *pos = realloc(w->pos, (size_t)cap * sizeof *pos);

    w->pos = pos != NULL ? pos : w->pos;
    if (from == NULL || pos == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: a batch");
    w->cap_context = cap;
    return ERR_OK;
}

/* The rows of a text that its blocks see, those from its first on. */
static enum err_code add_context(struct train_dflash *d, const struct train_text_entry *text, int64_t rows,
                                 struct err *e)
{
    struct train_draw *w = d->draw;

    if (context_room(d, rows, e))
        return e->code;
    for (int64_t i = 0; i < rows; i++) {
        w->from[w->n_context] = (int32_t)(text->at + i);
        w->pos[w->n_context++] = (int32_t)i;
    }
    return ERR_OK;
}

static enum err_code make_batch(struct train_dflash *d, struct train_texts *t, struct err *e)
{
    struct train_draw *w = d->draw;

    w->n_row = w->n_context = w->n_block = 0;
    w->drawn = 0;
    for (int i = 0; i < d->o.n_text; i++) {
        const struct train_text_entry *text;
        const int first = w->n_block;
        int64_t seen = 0;

        if (train_texts_draw(t, draw_unit(d), &text, e))
            return e->code;
        for (int a = 0; a < d->o.n_anchor; a++)
            add_block(d, t->token + text->at, text, w->n_context);
        for (int k = first; k < w->n_block; k++)
            seen = w->block[k].start > seen ? w->block[k].start : seen;
        if (add_context(d, text, seen, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code train_dflash_step(struct train_dflash *d, struct train_texts *t, double part, struct err *e)
{
    const struct train_draw *w = d->draw;
    const struct train_adam_opts *o = &train_adam_usual;
    const double rate = train_rate((double)d->o.rate, d->adam.step, d->o.n_warm, part);

    if (make_batch(d, t, e))
        return e->code;
    const struct train_batch b = { w->n_context, t->feature, w->from,  w->pos,  w->n_block,
                                   w->block,     w->n_row,   w->token, w->want, w->weight };
    const struct dev_adam a = { d->net.n_params, ++d->adam.step, d->net.at, d->m,   d->v,     d->net.grad, d->how,
                                (float)rate,     o->b1,          o->b2,     o->eps, o->decay, o->clip };

    if (train_net_step(&d->net, &d->frozen.t, &b, e))
        return e->code;
    d->net.m->adam(d->net.m, &a);
    if (by_muon(d))
        train_muon_step(&d->net, d->m, MUON_RATE * (float)rate, d->scratch);
    return ERR_OK;
}

enum err_code train_dflash_loss(struct train_dflash *d, struct train_loss *loss, struct err *e)
{
    if (train_net_loss(&d->net, loss, e))
        return e->code;
    if (isfinite(d->net.m->norm(d->net.m)) && isfinite(loss->sum))
        d->bad = 0;
    else if (++d->bad >= BAD_MAX)
        return err_set(e, ERR_FORMAT,
                       "the loss is not a number in %d steps in a row: a smaller step size (--rate) may help", BAD_MAX);
    return ERR_OK;
}

/* ---- a job in a file ---- */

static struct train_half half_of(const struct train_dflash *d)
{
    return (struct train_half){ d->net.n_params, d->net.w, d->adam.m, d->adam.v, (uint32_t)d->adam.step, d->spent_s };
}

enum err_code train_dflash_save(struct train_dflash *d, const char *path, struct str job, struct err *e)
{
    const struct train_half h = half_of(d);
    const int64_t bytes = h.n * (int64_t)sizeof *h.m;
    struct dev_math *m = d->net.m;

    train_net_pull(&d->net);
    m->get(m, h.m, d->m, bytes);
    m->get(m, h.v, d->v, bytes);
    if (m->wait(m, e))
        return e->code;
    return train_half_write(&h, path, job, e);
}

enum err_code train_dflash_load(struct train_dflash *d, const char *path, struct str job, struct err *e)
{
    struct train_half h = half_of(d);

    if (train_half_read(&h, path, job, e))
        return e->code;
    if (!train_net_finite(&d->net))
        return err_set(e, ERR_FORMAT, "%s: a weight is not a number: remove the file", path);
    train_net_push(&d->net);
    d->net.m->put(d->net.m, d->m, h.m, h.n * (int64_t)sizeof *h.m);
    d->net.m->put(d->net.m, d->v, h.v, h.n * (int64_t)sizeof *h.v);
    d->adam.step = h.step;
    d->spent_s = h.spent_s;
    return ERR_OK;
}
