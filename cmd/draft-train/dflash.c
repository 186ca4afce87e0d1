/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c - the command dflash: a block drafter.                            room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "draft-train/drafter.h"
#include "gguf/gguf.h"
#include "train/dflash.h"

enum { ANCHORS = 16, WARM = 100 };

struct dflash {
    struct cli_train_drafter d;
    struct gguf *old; /* the drafter that serves; NULL: none */
    bool same;        /* it has the shape that is trained */
    struct train_shape shape, old_shape;
    struct train_dflash net;
};

static enum err_code read_list(const char *text, int n_layer, struct train_shape *s, struct err *e)
{
    const char *at = text;

    for (s->n_tap = 0;; at++) {
        char *end;
        const long v = strtol(at, &end, 10);

        if (end == at || v < 0 || v >= n_layer || s->n_tap == TRAIN_TAPS_MAX)
            return err_set(e, ERR_ARG, "--taps %s: up to %d layers in 0 .. %d, as 1,3,5", text, TRAIN_TAPS_MAX,
                           n_layer - 1);
        for (int i = 0; i < s->n_tap; i++)
            if (s->tap[i] == v)
                return err_set(e, ERR_ARG, "--taps %s: layer %ld is named twice", text, v);
        s->tap[s->n_tap++] = (int)v;
        if (*end == '\0')
            return ERR_OK;
        if (*end != ',')
            return err_set(e, ERR_ARG, "--taps %s: numbers with commas between", text);
        at = end;
    }
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* A new drafter: as wide as the model, heads of 64; five layers from the second to the last but one, evenly apart. */
static enum err_code new_shape(struct dflash *j, struct err *e)
{
    enum { TAPS = 5, HEAD = 64 };
    const struct model_info *m = model_info(j->d.x.model);
    const struct text_info *t = text_info(j->d.x.text);
    struct train_shape *s = &j->shape;
    const int last = m->n_layer > 2 ? m->n_layer - 2 : m->n_layer - 1, first = last > 1 ? 1 : 0;

    *s = (struct train_shape){ .n_layer = j->d.o->n_layer,
                               .n_embd = m->n_embd,
                               .block = j->d.o->block,
                               .n_ff = j->d.o->n_ff > 0 ? j->d.o->n_ff : 3 * m->n_embd,
                               .rope_base = 10000,
                               .eps = 1e-6f,
                               .ctx_tokens = j->d.o->model.ctx_tokens,
                               .head_dim = m->n_embd >= 2 * HEAD ? HEAD : 16 };
    s->n_head = m->n_embd / s->head_dim > 0 ? m->n_embd / s->head_dim : 1;
    s->n_head_kv = s->n_head % 4 == 0 && s->n_head > 4 ? s->n_head / 4 : s->n_head % 2 == 0 ? s->n_head / 2 : s->n_head;
    s->mask = t->pad >= 0 ? t->pad : t->eos >= 0 ? t->eos : 0;
    if (j->d.o->taps != NULL)
        return read_list(j->d.o->taps, m->n_layer, s, e);
    s->n_tap = at_most(TAPS, last - first + 1);
    for (int i = 0; i < s->n_tap; i++)
        s->tap[i] = s->n_tap == 1 ? first : first + (2 * i * (last - first) + s->n_tap - 1) / (2 * (s->n_tap - 1));
    return ERR_OK;
}

static bool shape_asked(const struct dflash *j)
{
    return cli_given(j->d.cli, "layers") || cli_given(j->d.cli, "ff") || cli_given(j->d.cli, "block") ||
           cli_given(j->d.cli, "taps");
}

static bool same_shape(struct train_shape a, struct train_shape b)
{
    bool same = a.n_layer == b.n_layer && a.n_embd == b.n_embd && a.n_ff == b.n_ff && a.n_head == b.n_head &&
                a.n_head_kv == b.n_head_kv && a.head_dim == b.head_dim && a.n_tap == b.n_tap && a.block == b.block &&
                a.mask == b.mask && a.rope_base >= b.rope_base && a.rope_base <= b.rope_base && a.eps >= b.eps &&
                a.eps <= b.eps;

    for (int i = 0; same && i < a.n_tap; i++)
        same = a.tap[i] == b.tap[i];
    return same;
}

/* Opens the file of --out, if there is one. Only a drafter for this model may be replaced. */
static enum err_code open_old(struct dflash *j, struct train_shape *s, struct err *e)
{
    const struct model_info *m = model_info(j->d.x.model);

    *s = (struct train_shape){ .ctx_tokens = j->d.o->model.ctx_tokens };
    if (access(j->d.o->out, F_OK) != 0)
        return ERR_OK;
    if (gguf_open(&j->old, j->d.o->out, e) || train_shape_read(s, j->old, e) ||
        text_same_tokens(j->old, j->d.x.gguf, e))
        return err_wrap(e, "cannot replace the file of --out");
    if (s->n_embd != m->n_embd)
        return err_set(e, ERR_FORMAT, "%s: drafts for rows of %d elements, and the model's have %d", j->d.o->out,
                       s->n_embd, m->n_embd);
    for (int i = 0; i < s->n_tap; i++)
        if (s->tap[i] >= m->n_layer)
            return err_set(e, ERR_FORMAT, "%s: reads layer %d, and the model has %d", j->d.o->out, s->tap[i],
                           m->n_layer);
    return s->mask < m->n_vocab ? ERR_OK
                                : err_set(e, ERR_FORMAT, "%s: its mask is not a token of the model", j->d.o->out);
}

static enum err_code choose_shape(struct cli_train_drafter *d, struct err *e)
{
    struct dflash *j = (struct dflash *)d;
    const struct train_shape *old = &j->old_shape;

    if (open_old(j, &j->old_shape, e) || new_shape(j, e))
        return e->code;
    if (j->old != NULL && !shape_asked(j))
        j->shape = *old;
    j->same = j->old != NULL && same_shape(*old, j->shape);
    d->old = d->had = j->old != NULL;
    d->n_tap = j->shape.n_tap;
    memcpy(d->tap, j->shape.tap, sizeof d->tap);
    d->ctx_tokens = j->shape.ctx_tokens;
    if (j->old == NULL || j->same)
        return ERR_OK;
    for (int i = 0; i < old->n_tap; i++) /* both are tested on the same rows */
        if (old->n_tap != j->shape.n_tap || old->tap[i] != j->shape.tap[i])
            return err_set(e, ERR_ARG, "%s reads other layers: a drafter that reads others needs another --out",
                           d->o->out);
    cli_warn("%s has another shape: the new drafter begins with random weights", d->o->out);
    return ERR_OK;
}

static struct train_dflash_opts opts_of(const struct cli_train_drafter *d)
{
    return (struct train_dflash_opts){ d->o->n_text, ANCHORS, d->o->rate, WARM, (uint64_t)d->o->seed };
}

static int64_t memory_bytes(const struct cli_train_drafter *d, int64_t *host)
{
    const struct dflash *j = (const struct dflash *)d;
    const struct train_dflash_opts to = opts_of(d);
    const struct model_info *m = model_info(d->x.model);

    *host = train_dflash_host_bytes(&j->shape, d->math);
    return *host + train_dflash_bytes(&j->shape, j->old != NULL ? &j->old_shape : NULL, &to, d->math, m->n_vocab) +
           (int64_t)m->n_vocab * m->n_embd * (int64_t)sizeof(float);
}

static enum err_code open_net(struct cli_train_drafter *d, struct err *e)
{
    struct dflash *j = (struct dflash *)d;
    const struct train_dflash_opts to = opts_of(d);

    if (train_dflash_open(&j->net, &j->shape, d->x.gguf, d->math, &to, e))
        return e->code;
    d->step = &j->net.adam.step;
    d->n_params = j->net.net.n_params;
    return j->same && !d->o->scratch ? train_net_read(&j->net.net, j->old, e) : ERR_OK;
}

static void close_net(struct cli_train_drafter *d)
{
    struct dflash *j = (struct dflash *)d;

    train_dflash_close(&j->net);
    gguf_close(j->old);
}

/* The shape and what it begins with: random numbers of the seed, or an old file's. */
static void note_shape(const struct cli_train_drafter *d, char *text, size_t n)
{
    const struct dflash *j = (const struct dflash *)d;
    const struct train_shape *s = &j->shape;

    (void)snprintf(text, n, "layers %d ff %d block %d%s%s begin %016llx", s->n_layer, s->n_ff, s->block,
                   d->math->host ? "" : " muon", d->o->scratch ? " scratch" : "",
                   (unsigned long long)io_hash(0, j->net.net.w, (size_t)j->net.net.n_params * sizeof(float)));
}

static enum err_code begin_dflash(struct cli_train_drafter *d, bool resumed, struct err *e)
{
    struct dflash *j = (struct dflash *)d;

    if (!resumed)
        return ERR_OK;
    if (train_dflash_load(&j->net, d->half, str_of(d->name), e))
        return e->code;
    d->before_s = j->net.spent_s;
    return ERR_OK;
}

static enum err_code step_dflash(struct cli_train_drafter *d, double part, struct err *e)
{
    return train_dflash_step(&((struct dflash *)d)->net, &d->texts, part, e);
}

static enum err_code loss_of(struct cli_train_drafter *d, struct train_loss *loss, struct err *e)
{
    return train_dflash_loss(&((struct dflash *)d)->net, loss, e);
}

/* Whole blocks, halves and quarters. */
static int size_at(const struct cli_train_drafter *d, int i)
{
    const int block = ((const struct dflash *)d)->shape.block;

    return block >> i >= 4 ? block >> i : 0;
}

static enum err_code walk_old(struct dflash *j, int64_t *to, const struct progress *progress, struct err *e)
{
    struct train_net net;
    enum err_code code;

    train_net_give_room(&j->net.net);
    if (train_net_open(&net, &j->old_shape, j->d.math, e))
        return e->code;
    code = train_net_read(&net, j->old, e);
    if (code == ERR_OK)
        code = train_walk(&net, &j->net.frozen.t, &j->d.tests, j->old_shape.block, j->d.o->n_text, to, progress, e);
    train_net_close(&net);
    return code;
}

static enum err_code walk_tests(struct cli_train_drafter *d, bool old, int size, int64_t *to,
                                const struct progress *progress, struct err *e)
{
    struct dflash *j = (struct dflash *)d;

    return old ? walk_old(j, to, progress, e)
               : train_walk(&j->net.net, &j->net.frozen.t, &d->tests, size, d->o->n_text, to, progress, e);
}

static enum err_code save_dflash(struct cli_train_drafter *d, struct err *e)
{
    struct dflash *j = (struct dflash *)d;

    j->net.spent_s = cli_train_spent_s(d);
    return train_dflash_save(&j->net, d->half, str_of(d->name), e);
}

static enum err_code write_net(struct cli_train_drafter *d, struct err *e)
{
    struct dflash *j = (struct dflash *)d;

    if (train_net_write(&j->net.net, d->x.gguf, d->fresh, e))
        return e->code;
    train_net_round(&j->net.net);
    return ERR_OK;
}

static const struct cli_train_kind kind = { "dflash",     NULL,         true,     WARM,      0,
                                            choose_shape, memory_bytes, open_net, close_net, note_shape,
                                            begin_dflash, step_dflash,  loss_of,  size_at,   walk_tests,
                                            save_dflash,  write_net };

int cli_train_dflash(const struct cli_train_options *o, const struct cli *cli, char *const *files)
{
    struct dflash j = { .d.kind = &kind };

    return cli_train_drafter(&j.d, o, cli, files);
}
