/* SPDX-License-Identifier: Apache-2.0 */
/* rec.c - recurrent blocks: live and base, the log of inputs after them, serial form. */
#include <assert.h>
#include <string.h>

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

static void copy_rec(struct dev *d, const struct op_rec *to, int dst, const struct op_rec *from, int src)
{
    if (from->floats > 0 && to->data != NULL)
        dev_copy(d, rec_at(to, dst), rec_at(from, src), rec_bytes(from));
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

int state_slots(const struct state *s)
{
    return s->n_seq;
}

int state_log_rows(const struct state *s)
{
    return s->log_rows;
}

bool state_recurrent(const struct state *s)
{
    for (int i = 0; i < s->plan->n_layer; i++)
        if (s->layer[i].live.conv.floats > 0)
            return true;
    return false;
}

int state_again(const struct state *s, int slot)
{
    return state_recurrent(s) ? (int)(s->slot[slot].pos - s->slot[slot].stored) : 0;
}

int state_logged(const struct state *s, int slot)
{
    return state_recurrent(s) ? (int)(s->slot[slot].pos - s->slot[slot].base) : 0;
}

/* From where on inputs are logged. */
static int64_t first_logged(const struct slot *q)
{
    return q->stored < q->base ? q->stored : q->base;
}

int64_t state_undoable(const struct state *s, int slot)
{
    const int64_t logged = s->slot[slot].pos - first_logged(&s->slot[slot]), own = state_pos(s, slot);

    return logged < own ? logged : own;
}

void state_advance(struct state *s, int slot, int64_t n, int drafts)
{
    struct slot *q = &s->slot[slot];

    q->pos += n;
    if (!state_recurrent(s))
        return; /* every row can be undone */
    q->stored = q->pos - drafts;
    if (s->undo == 0)
        q->base = q->stored;
    else if (n - drafts > s->undo)
        q->base = q->stored - s->undo; /* the step moved it */
    assert(q->pos - q->base <= s->log_rows);
}

void state_committed(struct state *s, int slot)
{
    struct slot *q = &s->slot[slot];

    q->stored = q->pos;
    if (s->undo == 0)
        q->base = q->pos;
}

void state_settle(struct state *s, int slot, int64_t n)
{
    struct slot *q = &s->slot[slot];

    q->pos -= n;
    assert(n >= 0 && q->pos >= q->stored);
    state_kv_drop(s, slot, q->pos);
}

void state_rebase(struct state *s, int layer, int slot, bool conv, bool rec)
{
    struct layer_memory *l = &s->layer[layer];

    if (conv)
        copy_rec(l->dev, &l->base.conv, slot, &l->live.conv, slot);
    if (rec)
        copy_rec(l->dev, &l->base.rec, slot, &l->live.rec, slot);
}

void state_rebase_table(struct state *s, int layer, int slot)
{
    struct layer_memory *l = &s->layer[layer];

    copy_rec(l->dev, &l->base.table, slot, &l->live.table, slot);
}

void state_note_tokens(struct state *s, int slot, const int32_t *token, int64_t n)
{
    for (int64_t i = n > s->n_recent ? n - s->n_recent : 0; i < n; i++)
        s->recent[(int64_t)slot * s->n_recent + (s->slot[slot].pos + i) % s->n_recent] = token[i];
}

int32_t state_token(const struct state *s, int slot, int64_t pos)
{
    assert(pos >= 0 && pos >= s->slot[slot].pos - s->n_recent && pos < s->slot[slot].pos);
    return s->recent[(int64_t)slot * s->n_recent + pos % s->n_recent];
}

void state_rewind(struct state *s, int slot, int64_t n)
{
    struct slot *q = &s->slot[slot];

    q->stored = q->base;
    for (int i = 0; i < s->plan->n_layer; i++) {
        struct layer_memory *l = &s->layer[i];

        copy_rec(l->dev, &l->live.conv, slot, &l->base.conv, slot);
        copy_rec(l->dev, &l->live.rec, slot, &l->base.rec, slot);
        copy_rec(l->dev, &l->live.table, slot, &l->base.table, slot);
    }
    state_settle(s, slot, n);
}

void state_folded(struct state *s, int slot, int n)
{
    s->slot[slot].base += n;
    assert(s->slot[slot].base <= s->slot[slot].pos);
}

/* Logged rows from position `from` on; they may begin at the end of the ring and go on at its beginning. */
static void copy_log(const struct state *s, struct dev *d, const struct op_log *l, int dst, int src, int64_t from)
{
    for (int64_t at = from, end = s->slot[src].pos, n; at < end; at += n) {
        int64_t row = at % l->rows;

        n = l->rows - row < end - at ? l->rows - row : end - at;
        dev_copy(d, l->data + dst * l->floats + row * l->width, l->data + src * l->floats + row * l->width,
                 (size_t)(n * l->width) * sizeof(float));
    }
}

void state_fork(struct state *s, int dst, int src)
{
    const struct slot *from = &s->slot[src];

    if (dst == src)
        return;
    state_kv_share(s, dst, src);
    s->slot[dst].pos = from->pos;
    s->slot[dst].stored = from->stored;
    s->slot[dst].base = from->base;
    memcpy(s->recent + (int64_t)dst * s->n_recent, s->recent + (int64_t)src * s->n_recent,
           (size_t)s->n_recent * sizeof *s->recent);
    for (int i = 0; i < s->plan->n_layer; i++) {
        struct layer_memory *l = &s->layer[i];

        copy_rec(l->dev, &l->live.conv, dst, &l->live.conv, src);
        copy_rec(l->dev, &l->live.rec, dst, &l->live.rec, src);
        copy_rec(l->dev, &l->base.conv, dst, &l->base.conv, src);
        copy_rec(l->dev, &l->base.rec, dst, &l->base.rec, src);
        copy_rec(l->dev, &l->live.table, dst, &l->live.table, src);
        copy_rec(l->dev, &l->base.table, dst, &l->base.table, src);
        if (l->live.conv.log.rows > 0)
            copy_log(s, l->dev, &l->live.conv.log, dst, src, first_logged(from));
    }
}

int64_t state_layer_rec_bytes(const struct state *s, int layer)
{
    const struct state_rec *l = &s->layer[layer].live;
    const int64_t floats = l->conv.floats + l->rec.floats + l->table.floats;

    return (int64_t)sizeof(float) * s->n_slots * (floats * (s->undo > 0 ? 2 : 1) + l->conv.log.floats);
}

size_t state_rec_bytes(const struct state *s)
{
    size_t n = (size_t)s->n_last * sizeof(int32_t);

    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct state_rec *l = &s->layer[i].live;

        n += rec_bytes(&l->conv) + rec_bytes(&l->rec) + rec_bytes(&l->table);
    }
    return n;
}

void state_rec_read(const struct state *s, int slot, void *out)
{
    unsigned char *at = out;

    assert(state_again(s, slot) == 0);
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct state_rec *l = &s->layer[i].live;
        const struct op_rec *rec[3] = { &l->conv, &l->rec, &l->table };

        for (int j = 0; j < 3; at += rec_bytes(rec[j]), j++)
            if (rec[j]->floats > 0)
                dev_copy(s->layer[i].dev, at, rec_at(rec[j], slot), rec_bytes(rec[j]));
    }
    for (int i = 0; i < s->n_last; i++) {
        int64_t pos = s->slot[slot].pos - s->n_last + i;
        int32_t token = pos < 0 ? 0 : state_token(s, slot, pos);

        memcpy(at + (size_t)i * sizeof token, &token, sizeof token);
    }
}

void state_rec_write(struct state *s, int slot, int64_t pos, const void *in)
{
    const unsigned char *at = in;

    pos += s->plan->n_meta;
    s->slot[slot].pos = pos;
    s->slot[slot].stored = s->slot[slot].base = state_recurrent(s) ? pos : 0;
    state_kv_drop(s, slot, pos);
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct state_rec *l = &s->layer[i].live;
        const struct op_rec *rec[3] = { &l->conv, &l->rec, &l->table };

        for (int j = 0; j < 3; at += rec_bytes(rec[j]), j++)
            if (rec[j]->floats > 0)
                dev_copy(s->layer[i].dev, rec_at(rec[j], slot), at, rec_bytes(rec[j]));
        state_rebase(s, i, slot, true, true);
        state_rebase_table(s, i, slot);
    }
    for (int i = 0; i < s->n_last; i++)
        if (pos - s->n_last + i >= 0)
            memcpy(&s->recent[(int64_t)slot * s->n_recent + (pos - s->n_last + i) % s->n_recent],
                   at + (size_t)i * sizeof *s->recent, sizeof *s->recent);
}
