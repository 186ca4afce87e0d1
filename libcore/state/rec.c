/* SPDX-License-Identifier: Apache-2.0 */
/* rec.c - recurrent blocks: live and base, the log of inputs between them, serial form. */
#include <assert.h>

#include "quant/quant.h"
#include "state/internal.h"

static size_t rec_bytes(const struct op_rec *r)
{
    return (size_t)r->floats * sizeof(float);
}

static float *rec_at(const struct op_rec *r, int slot)
{
    return r->data + slot * r->floats;
}

static void copy_rec(struct state *s, const struct op_rec *to, int dst, const struct op_rec *from, int src)
{
    if (from->floats > 0 && to->data != NULL)
        dev_copy(s->dev, rec_at(to, dst), rec_at(from, src), rec_bytes(from));
}

struct state_rec state_live(const struct state *s, int layer)
{
    return s->layer[layer].live;
}

struct state_rec state_base(const struct state *s, int layer)
{
    return s->layer[layer].base;
}

int state_undo_tokens(const struct state *s)
{
    return s->undo;
}

int state_logged(const struct state *s, int slot)
{
    return (int)(s->slot[slot].pos - s->slot[slot].base);
}

static bool recurrent(const struct state *s)
{
    for (int i = 0; i < s->plan->n_layer; i++)
        if (s->layer[i].live.conv.floats > 0)
            return true;
    return false;
}

int64_t state_undoable(const struct state *s, int slot)
{
    return s->slot[slot].pos - s->slot[slot].base;
}

struct tensor state_log(const struct state *s, int layer, int slot, int row, int n)
{
    const struct layer_memory *l = &s->layer[layer];

    assert(row >= 0 && row + n <= 2 * s->undo);
    return (struct tensor){
        .type = QUANT_f32, .ne = { l->inputs, n, 1 }, .stride = l->inputs,
        .data = l->log + ((int64_t)slot * 2 * s->undo + row) * l->inputs,
    };
}

void state_advance(struct state *s, int slot, int64_t n)
{
    struct slot *q = &s->slot[slot];

    q->pos += n;
    if (!recurrent(s))
        return; /* base stays 0: every row can be undone */
    if (n > s->undo)
        q->base = q->pos - s->undo; /* the step rebased and logged its last rows */
    assert(q->pos - q->base <= 2 * (int64_t)s->undo);
}

void state_rebase(struct state *s, int layer, int slot, bool conv, bool rec)
{
    struct layer_memory *l = &s->layer[layer];

    if (conv)
        copy_rec(s, &l->base.conv, slot, &l->live.conv, slot);
    if (rec)
        copy_rec(s, &l->base.rec, slot, &l->live.rec, slot);
}

void state_rewind(struct state *s, int slot, int64_t n)
{
    assert(n >= 0 && n <= state_undoable(s, slot));
    s->slot[slot].pos -= n;
    state_kv_drop(s, slot, s->slot[slot].pos);
    for (int i = 0; i < s->plan->n_layer; i++) {
        struct layer_memory *l = &s->layer[i];

        copy_rec(s, &l->live.conv, slot, &l->base.conv, slot);
        copy_rec(s, &l->live.rec, slot, &l->base.rec, slot);
    }
}

void state_folded(struct state *s, int slot, int n)
{
    int left = state_logged(s, slot) - n;

    assert(left >= 0);
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct layer_memory *l = &s->layer[i];
        float *log = l->log + (int64_t)slot * 2 * s->undo * l->inputs;

        if (l->log != NULL && left > 0)
            dev_copy(s->dev, log, log + (int64_t)n * l->inputs, (size_t)left * (size_t)l->inputs * sizeof *log);
    }
    s->slot[slot].base += n;
}

void state_fork(struct state *s, int dst, int src)
{
    if (dst == src)
        return;
    state_kv_share(s, dst, src);
    s->slot[dst].pos = s->slot[src].pos;
    s->slot[dst].base = s->slot[src].base;
    for (int i = 0; i < s->plan->n_layer; i++) {
        struct layer_memory *l = &s->layer[i];
        int64_t log = (int64_t)2 * s->undo * l->inputs;

        copy_rec(s, &l->live.conv, dst, &l->live.conv, src);
        copy_rec(s, &l->live.rec, dst, &l->live.rec, src);
        copy_rec(s, &l->base.conv, dst, &l->base.conv, src);
        copy_rec(s, &l->base.rec, dst, &l->base.rec, src);
        if (l->log != NULL && state_logged(s, src) > 0)
            dev_copy(s->dev, l->log + dst * log, l->log + src * log,
                     (size_t)state_logged(s, src) * (size_t)l->inputs * sizeof(float));
    }
}

size_t state_rec_bytes(const struct state *s)
{
    size_t n = 0;

    for (int i = 0; i < s->plan->n_layer; i++)
        n += rec_bytes(&s->layer[i].live.conv) + rec_bytes(&s->layer[i].live.rec);
    return n;
}

void state_rec_read(const struct state *s, int slot, void *out)
{
    unsigned char *at = out;

    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct op_rec *rec[2] = { &s->layer[i].live.conv, &s->layer[i].live.rec };

        for (int j = 0; j < 2; at += rec_bytes(rec[j]), j++)
            dev_copy(s->dev, at, rec_at(rec[j], slot), rec_bytes(rec[j]));
    }
}

void state_rec_write(struct state *s, int slot, int64_t pos, const void *in)
{
    const unsigned char *at = in;

    s->slot[slot].pos = pos;
    s->slot[slot].base = recurrent(s) ? pos : 0;
    state_kv_drop(s, slot, pos);
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct op_rec *rec[2] = { &s->layer[i].live.conv, &s->layer[i].live.rec };

        for (int j = 0; j < 2; at += rec_bytes(rec[j]), j++)
            dev_copy(s->dev, rec_at(rec[j], slot), at, rec_bytes(rec[j]));
        state_rebase(s, i, slot, true, true);
    }
}
