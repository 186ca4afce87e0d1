/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - KV pages and recurrent blocks of every layer and sequence, in one reservation. */
#include <stdlib.h>

#include "arch/arch.h"
#include "quant/quant.h"
#include "state/state.h"

struct layer_memory {
    struct op_kv  kv;
    struct op_rec conv, rec;
};

struct state {
    struct dev          *dev;
    const struct plan   *plan;
    int                  n_seq;
    int64_t              pages;  /* of each sequence */
    int64_t             *pos;    /* [n_seq] */
    struct layer_memory *layer;  /* [n_layer] */
    void               **page;   /* [attention layers][n_seq][pages] */
    void               **table;  /* [attention layers][n_seq] -> page */
    unsigned char       *data;
    size_t               bytes;
};

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

static size_t page_bytes(const struct attn_plan *a, const struct state_opts *o)
{
    return (size_t)a->n_head_kv * OP_KV_PAGE *
           (size_t)(quant_row_bytes(o->type_k, a->dim_k) + quant_row_bytes(o->type_v, a->dim_v));
}

/* Bytes of layer i for all sequences. */
static size_t layer_bytes(const struct state *s, const struct state_opts *o, int i)
{
    const struct plan *p = s->plan;
    size_t n = (size_t)s->n_seq, bytes = 0;

    if (p->layer[i].mixers & (MIX_ATTN | MIX_MLA))
        bytes += n * (size_t)s->pages * page_bytes(&p->attn, o);
    bytes += aligned(n * (size_t)plan_conv_floats(p, i) * sizeof(float));
    bytes += aligned(n * (size_t)plan_rec_floats(p, i) * sizeof(float));
    return bytes;
}

/* Cuts the reservation into layers. */
static void lay_out(struct state *s, const struct state_opts *o)
{
    const struct plan *p = s->plan;
    unsigned char *at = s->data;
    void **page = s->page, **table = s->table;

    for (int i = 0; i < p->n_layer; i++) {
        struct layer_memory *l = &s->layer[i];

        if (p->layer[i].mixers & (MIX_ATTN | MIX_MLA)) {
            l->kv = (struct op_kv){ o->type_k, o->type_v, p->attn.n_head_kv, p->attn.dim_k, p->attn.dim_v,
                                    (void *const *const *)table };
            for (int q = 0; q < s->n_seq; q++) {
                *table++ = page;
                for (int64_t j = 0; j < s->pages; j++, at += page_bytes(&p->attn, o))
                    *page++ = at;
            }
        }
        l->conv = (struct op_rec){ (float *)(void *)at, plan_conv_floats(p, i) };
        at += aligned((size_t)s->n_seq * (size_t)l->conv.floats * sizeof(float));
        l->rec = (struct op_rec){ (float *)(void *)at, plan_rec_floats(p, i) };
        at += aligned((size_t)s->n_seq * (size_t)l->rec.floats * sizeof(float));
    }
}

static enum err_code check_kv(const struct plan *p, int type, int dim, const char *what, struct err *e)
{
    if (quant_types[type]->encode == NULL)
        return err_set(e, ERR_ARG, "%s cannot be stored as %s", what, quant_types[type]->name);
    if (p->attn.n_head_kv > 0 && quant_row_bytes(type, dim) < 0)
        return err_set(e, ERR_ARG, "%s of %d elements a head cannot be stored as %s (blocks of %d)", what,
                       dim, quant_types[type]->name, quant_types[type]->block_elems);
    return ERR_OK;
}

enum err_code state_open(struct state **out, struct dev *d, const struct plan *p,
                         const struct state_opts *o, struct err *e)
{
    struct state *s = NULL;
    size_t n_attn = 0;

    if (check_kv(p, o->type_k, p->attn.dim_k, "keys", e) ||
        check_kv(p, o->type_v, p->attn.dim_v, "values", e))
        return e->code;
    if (o->ctx_tokens < 1 || o->ctx_tokens > ARCH_CTX_MAX || o->n_seq < 1 || o->n_seq > 4096)
        return err_set(e, ERR_ARG, "context of %lld tokens for %d sequences is out of range",
                       (long long)o->ctx_tokens, o->n_seq);
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    s->dev = d;
    s->plan = p;
    s->n_seq = o->n_seq;
    s->pages = (o->ctx_tokens + OP_KV_PAGE - 1) / OP_KV_PAGE;
    for (int i = 0; i < p->n_layer; i++) {
        size_t bytes = layer_bytes(s, o, i);

        n_attn += p->layer[i].mixers & (MIX_ATTN | MIX_MLA) ? 1 : 0;
        s->bytes = bytes > SIZE_MAX / 2 - s->bytes ? SIZE_MAX / 2 : s->bytes + bytes;
    }
    s->pos = calloc((size_t)s->n_seq, sizeof *s->pos);
    s->layer = calloc((size_t)p->n_layer, sizeof *s->layer);
    s->page = calloc(n_attn * (size_t)s->n_seq * (size_t)s->pages + 1, sizeof *s->page);
    s->table = calloc(n_attn * (size_t)s->n_seq + 1, sizeof *s->table);
    s->data = dev_alloc(d, s->bytes);
    if (s->pos == NULL || s->layer == NULL || s->page == NULL || s->table == NULL || s->data == NULL) {
        enum err_code code = err_set(e, ERR_NOMEM,
                                     "out of memory: %zu MiB for %lld tokens of context in %d sequences",
                                     s->bytes >> 20, (long long)o->ctx_tokens, o->n_seq);
        state_close(s);
        return code;
    }
    lay_out(s, o);
    *out = s;
    return ERR_OK;
}

void state_close(struct state *s)
{
    if (s == NULL)
        return;
    dev_free(s->dev, s->data, s->bytes);
    free(s->table);
    free(s->page);
    free(s->layer);
    free(s->pos);
    free(s);
}

int64_t state_bytes(const struct state *s)
{
    return (int64_t)s->bytes;
}

int64_t state_pos(const struct state *s, int slot)
{
    return s->pos[slot];
}

void state_advance(struct state *s, int slot, int64_t n)
{
    s->pos[slot] += n;
}

void state_clear(struct state *s, int slot)
{
    s->pos[slot] = 0;
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct op_rec *rec[2] = { &s->layer[i].conv, &s->layer[i].rec };

        for (int j = 0; j < 2; j++)
            if (rec[j]->floats > 0)
                dev_zero(s->dev, rec[j]->data + slot * rec[j]->floats, (size_t)rec[j]->floats * sizeof(float));
    }
}

const struct op_kv *state_kv(const struct state *s, int layer)
{
    return &s->layer[layer].kv;
}

struct op_rec state_conv(const struct state *s, int layer)
{
    return s->layer[layer].conv;
}

struct op_rec state_rec(const struct state *s, int layer)
{
    return s->layer[layer].rec;
}
