/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c - a DFlash drafter learns from texts of its model. */
#include "train/dflash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"
#include "train/half.h"

enum { BAD_MAX = 20 };

/* Memory for a batch. */
struct train_draw {
    uint16_t           *feature;
    int32_t            *pos, *token, *want;
    float              *weight;
    struct train_block *block;
    int64_t             n_row, n_context, cap_context;
    int                 n_block;
    uint64_t            drawn; /* random numbers of this step */
};

/* ---- opening ---- */

static int64_t rows_max(const struct train_shape *s, const struct train_dflash_opts *o)
{
    return (int64_t)o->n_text * o->n_anchor * s->block;
}

int64_t train_dflash_bytes(const struct train_shape *s, const struct train_dflash_opts *o, int64_t n_vocab, int threads)
{
    const int64_t texts = o->n_text > TRAIN_WALK_TEXTS ? o->n_text : TRAIN_WALK_TEXTS; /* steps, or a test */
    const int64_t context = texts * s->ctx_tokens, d = s->n_embd;
    const int64_t each = d * (2 * s->n_head + 2 * s->n_head_kv) * s->head_dim + 3 * d * s->n_ff;
    const int64_t params = s->n_layer * each + s->n_tap * d * d;

    return 4 * params * (int64_t)sizeof(float) + train_net_bytes(s, context, rows_max(s, o), n_vocab, threads) +
           context * s->n_tap * d * (int64_t)sizeof(uint16_t);
}

static void note_decayed(struct train_dflash *d)
{
    for (int i = 0; i < d->net.n_tensor; i++) {
        const struct train_tensor *t = &d->net.tensor[i];

        memset(d->decayed + t->at, t->n_out > 1, (size_t)(t->n_in * t->n_out));
    }
}

enum err_code train_dflash_open(struct train_dflash *d, const struct train_shape *s, const struct gguf *model,
                                struct pool *pool, const struct train_dflash_opts *o, struct err *e)
{
    const size_t rows = (size_t)rows_max(s, o);
    struct train_draw *w;

    *d = (struct train_dflash){ .o = *o };
    if (train_net_open(&d->net, s, pool, e) || train_adam_open(&d->adam, d->net.n_params, e) ||
        train_frozen_open(&d->frozen, model, s->n_embd, e)) {
        train_dflash_close(d);
        return e->code;
    }
    d->decayed = malloc((size_t)d->net.n_params);
    w = d->draw = calloc(1, sizeof *d->draw);
    if (w != NULL) {
        w->token = malloc(rows * sizeof *w->token);
        w->want = malloc(rows * sizeof *w->want);
        w->weight = malloc(rows * sizeof *w->weight);
        w->block = malloc((size_t)(o->n_text * o->n_anchor) * sizeof *w->block);
    }
    if (d->decayed == NULL || w == NULL || w->token == NULL || w->want == NULL || w->weight == NULL || w->block == NULL) {
        train_dflash_close(d);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    note_decayed(d);
    train_net_init(&d->net, o->seed);
    return ERR_OK;
}

void train_dflash_close(struct train_dflash *d)
{
    if (d->draw != NULL) {
        free(d->draw->feature);
        free(d->draw->pos);
        free(d->draw->token);
        free(d->draw->want);
        free(d->draw->weight);
        free(d->draw->block);
    }
    free(d->draw);
    free(d->decayed);
    train_frozen_close(&d->frozen);
    train_adam_close(&d->adam);
    train_net_close(&d->net);
    *d = (struct train_dflash){ 0 };
}

/* ---- a batch ---- */

static double draw(struct train_dflash *d)
{
    return rng_unit(d->o.seed, 1000 + (uint64_t)d->adam.step, d->draw->drawn++);
}

static int draw_size(struct train_dflash *d)
{
    const double x = draw(d);
    const int most = d->net.s.block, size = x < 0.6 ? most : x < 0.82 ? most / 2 : most / 4;

    return size < 2 ? 2 : size;
}

/* A block after a token that the model wrote. */
static void add_block(struct train_dflash *d, const int32_t *token, const struct train_text_entry *text, int64_t context)
{
    struct train_draw *w = d->draw;
    const int64_t written = text->n - text->n_prompt;
    const int64_t start = text->n_prompt + (int64_t)(draw(d) * (double)(written - 1));
    const int n = draw_size(d);
    const float gamma = n > 8 ? 7.0f : 4.0f;

    w->block[w->n_block++] = (struct train_block){ w->n_row, n, context, start };
    for (int i = 0; i < n; i++) {
        w->token[w->n_row] = i == 0 ? token[start] : d->net.s.mask;
        w->want[w->n_row] = i == 0 || start + i >= text->n ? -1 : token[start + i];
        w->weight[w->n_row++] = expf(-(float)(i - 1) / gamma);
    }
}

static enum err_code context_room(struct train_dflash *d, int64_t n, struct err *e)
{
    struct train_draw *w = d->draw;
    const int64_t width = (int64_t)d->net.s.n_tap * d->net.s.n_embd;

    if (w->n_context + n <= w->cap_context)
        return ERR_OK;
    const int64_t most = d->o.n_text * d->net.s.ctx_tokens, wanted = 2 * (w->n_context + n);
    const int64_t cap = wanted < most ? wanted : most;
    uint16_t *feature = realloc(w->feature, (size_t)(cap * width) * sizeof *feature);

    w->feature = feature != NULL ? feature : w->feature;
    int32_t *pos = realloc(w->pos, (size_t)cap * sizeof *pos);

    w->pos = pos != NULL ? pos : w->pos;
    if (feature == NULL || pos == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: a batch");
    w->cap_context = cap;
    return ERR_OK;
}

/* The rows of a text that its blocks see, those from `first` on. */
static enum err_code add_context(struct train_dflash *d, const struct train_texts *t,
                                 const struct train_text_entry *text, int64_t rows, struct err *e)
{
    struct train_draw *w = d->draw;
    const int64_t width = t->width;

    if (context_room(d, rows, e))
        return e->code;
    memcpy(w->feature + w->n_context * width, t->feature + text->at * width, (size_t)(rows * width) * sizeof *w->feature);
    for (int64_t i = 0; i < rows; i++)
        w->pos[w->n_context + i] = (int32_t)i;
    w->n_context += rows;
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

        if (train_texts_draw(t, draw(d), &text, e))
            return e->code;
        for (int a = 0; a < d->o.n_anchor; a++)
            add_block(d, t->token + text->at, text, w->n_context);
        for (int k = first; k < w->n_block; k++)
            seen = w->block[k].start > seen ? w->block[k].start : seen;
        if (add_context(d, t, text, seen, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code train_dflash_step(struct train_dflash *d, struct train_texts *t, double part,
                                struct train_loss *loss, struct err *e)
{
    const struct train_draw *w = d->draw;

    if (make_batch(d, t, e))
        return e->code;
    const struct train_batch b = { w->n_context, w->feature, w->pos, w->n_block, w->block, w->n_row, w->token, w->want,
                                   w->weight };

    if (train_net_step(&d->net, &d->frozen.t, &b, loss, e))
        return e->code;
    const double rate = train_rate((double)d->o.rate, d->adam.step, d->o.n_warm, part);
    const double norm = train_adam_step(&d->adam, d->net.pool, &train_adam_usual, (float)rate, d->net.w, d->net.grad,
                                        d->decayed);

    if (isfinite(norm) && isfinite(loss->sum))
        d->bad = 0;
    else if (++d->bad >= BAD_MAX)
        return err_set(e, ERR_FORMAT, "the loss is not a number in %d steps in a row: a smaller step size (--rate) may help",
                       BAD_MAX);
    else
        d->adam.step++; /* another batch */
    return ERR_OK;
}

/* ---- a job in a file ---- */

static struct train_half half_of(const struct train_dflash *d)
{
    return (struct train_half){ d->net.n_params, d->net.w, d->adam.m, d->adam.v, (uint32_t)d->adam.step, d->spent_s };
}

enum err_code train_dflash_save(const struct train_dflash *d, const char *path, struct str job, struct err *e)
{
    const struct train_half h = half_of(d);

    return train_half_write(&h, path, job, e);
}

enum err_code train_dflash_load(struct train_dflash *d, const char *path, struct str job, struct err *e)
{
    struct train_half h = half_of(d);

    if (train_half_read(&h, path, job, e))
        return e->code;
    if (!train_net_finite(&d->net))
        return err_set(e, ERR_FORMAT, "%s: a weight is not a number: remove the file", path);
    d->adam.step = h.step;
    d->spent_s = h.spent_s;
    return ERR_OK;
}
