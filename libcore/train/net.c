/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - the DFlash block network: its tensors, and memory for its passes. */
#include "train/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "train/work.h"

#define CHUNK_FLOATS ((int64_t)1 << 24) /* of logits at once */

/* ---- tensors ---- */

static void add_tensor(struct train_net *net, int layer, const char *name, int64_t n_in, int64_t n_out)
{
    struct train_tensor *t = &net->tensor[net->n_tensor++];

    t->n_in = n_in;
    t->n_out = n_out;
    t->at = net->n_params;
    net->n_params += n_in * n_out;
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s.weight", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", layer, name);
}

static void add_tensors(struct train_net *net)
{
    const struct train_shape *s = &net->s;
    const int64_t d = s->n_embd, q = (int64_t)s->n_head * s->head_dim, k = (int64_t)s->n_head_kv * s->head_dim;

    add_tensor(net, -1, "fc", s->n_tap * d, d);
    add_tensor(net, -1, "enc.output_norm", d, 1);
    add_tensor(net, -1, "output_norm", d, 1);
    for (int i = 0; i < s->n_layer; i++) {
        add_tensor(net, i, "attn_norm", d, 1);
        add_tensor(net, i, "attn_q", d, q);
        add_tensor(net, i, "attn_k", d, k);
        add_tensor(net, i, "attn_v", d, k);
        add_tensor(net, i, "attn_output", q, d);
        add_tensor(net, i, "attn_q_norm", s->head_dim, 1);
        add_tensor(net, i, "attn_k_norm", s->head_dim, 1);
        add_tensor(net, i, "ffn_norm", d, 1);
        add_tensor(net, i, "ffn_gate", d, s->n_ff);
        add_tensor(net, i, "ffn_up", d, s->n_ff);
        add_tensor(net, i, "ffn_down", s->n_ff, d);
    }
}

void train_net_init(struct train_net *net, uint64_t seed)
{
    const double part = 1.0 / sqrt(2.0 * net->s.n_layer);

    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];
        const int kind = i < FIRST_LAYER ? -1 : (i - FIRST_LAYER) % EACH;
        const double size = 0.5 / sqrt((double)t->n_in) * (kind == ATTN_OUTPUT || kind == FFN_DOWN ? part : 1.0);

        for (int64_t j = 0; j < t->n_in * t->n_out; j++)
            net->w[t->at + j] = t->n_out == 1 ? 1.0f : (float)size * rng_gauss(seed, (uint64_t)i, (uint64_t)j);
    }
    train_net_push(net);
}

/* ---- memory ---- */

/* Hands out parts of a piece of memory; without one it counts. */
struct parts {
    unsigned char *mem;
    int64_t n;
};

static void *take_bytes(struct parts *p, int64_t n)
{
    const int64_t from = p->n;

    p->n += (n + 63) / 64 * 64;
    return p->mem == NULL ? NULL : p->mem + from;
}

static float *take_part(struct parts *p, int64_t n)
{
    return take_bytes(p, n * (int64_t)sizeof(float));
}

static int32_t *take_ids(struct parts *p, int64_t n)
{
    return take_bytes(p, n * (int64_t)sizeof(int32_t));
}

static void lay_ids(struct train_ids *i, struct parts *p, int64_t c, int64_t r, int64_t blocks, int64_t n_embd)
{
    i->block = take_bytes(p, blocks * (int64_t)sizeof *i->block);
    i->text = take_bytes(p, blocks * (int64_t)sizeof *i->text);
    i->from = take_ids(p, c);
    i->context_pos = take_ids(p, c);
    i->pos = take_ids(p, r);
    i->embed = take_ids(p, r);
    i->place = take_ids(p, r);
    i->want = take_ids(p, r);
    i->weight = take_part(p, r);
    i->first = take_part(p, (1 + blocks) * n_embd);
}

static void lay_layer(struct train_layer *l, struct parts *p, const struct train_shape *s, int64_t c, int64_t r)
{
    const int64_t d = s->n_embd, q = (int64_t)s->n_head * s->head_dim, k = (int64_t)s->n_head_kv * s->head_dim;

    l->x = take_part(p, r * d);
    l->inv_a = take_part(p, r);
    l->a = take_part(p, r * d);
    l->q0 = take_part(p, r * q);
    l->inv_q = take_part(p, r * s->n_head);
    l->q = take_part(p, r * q);
    l->k0 = take_part(p, r * k);
    l->inv_k = take_part(p, r * s->n_head_kv);
    l->k = take_part(p, r * k);
    l->v = take_part(p, r * k);
    l->o = take_part(p, r * q);
    l->lse = take_part(p, r * s->n_head);
    l->x1 = take_part(p, r * d);
    l->inv_m = take_part(p, r);
    l->m = take_part(p, r * d);
    l->gate = take_part(p, r * s->n_ff);
    l->up = take_part(p, r * s->n_ff);
    l->kc0 = take_part(p, c * k);
    l->inv_kc = take_part(p, c * s->n_head_kv);
    l->kc = take_part(p, c * k);
    l->vc = take_part(p, c * k);
}

/* Everything for c rows of contexts and r rows of blocks. */
static void lay_parts(struct train_work *w, struct parts *p, const struct train_shape *s, const struct dev_math *m,
                      int64_t c, int64_t r, int64_t n_vocab)
{
    const int64_t d = s->n_embd, q = (int64_t)s->n_head * s->head_dim, k = (int64_t)s->n_head_kv * s->head_dim;
    const int64_t wide = s->n_ff > q ? s->n_ff : q, seen = c < s->ctx_tokens ? c : s->ctx_tokens;
    struct train_layer none;

    for (int i = 0; i < s->n_layer; i++)
        lay_layer(w->layer != NULL ? &w->layer[i] : &none, p, s, c, r);
    w->f = take_part(p, c * d * s->n_tap);
    w->g0 = take_part(p, c * d);
    w->inv_g = take_part(p, c);
    w->g = take_part(p, c * d);
    w->dg = take_part(p, c * d);
    w->dkc = take_part(p, c * k);
    w->dvc = take_part(p, c * k);
    w->x = take_part(p, r * d);
    w->inv_y = take_part(p, r);
    w->y = take_part(p, r * d);
    w->dx = take_part(p, r * d);
    w->d1 = take_part(p, r * wide);
    w->d2 = take_part(p, r * d);
    w->h = take_part(p, r * s->n_ff);
    w->dq = take_part(p, r * q);
    w->dk = take_part(p, r * k);
    w->dv = take_part(p, r * k);
    w->picked = take_part(p, r * d);
    w->d_picked = take_part(p, r * d);
    w->n_chunk = CHUNK_FLOATS / n_vocab < 1 ? 1 : CHUNK_FLOATS / n_vocab < r ? CHUNK_FLOATS / n_vocab : r;
    w->logits = take_part(p, w->n_chunk * n_vocab);
    w->loss = take_part(p, r);
    w->best = take_ids(p, r);
    w->attend = take_part(p, m->attend_floats(m, r, s->n_head, seen));
}

int64_t train_net_bytes(const struct train_shape *s, const struct dev_math *m, int64_t n_context, int64_t n_row,
                        int64_t n_block, int64_t n_vocab)
{
    struct train_work w = { 0 };
    struct parts p = { 0 }, ids = { 0 };

    lay_parts(&w, &p, s, m, n_context, n_row, n_vocab);
    lay_ids(&w.dev, &ids, n_context, n_row, n_block, s->n_embd);
    return p.n + ids.n + n_row * (int64_t)(sizeof *w.host_loss + sizeof *w.host_best);
}

void train_net_give_room(struct train_net *net)
{
    struct train_work *w = net->work;

    net->m->give(net->m, w->mem);
    net->m->give(net->m, w->ids);
    free(w->host_mem);
    free(w->host_loss);
    free(w->host_best);
    w->mem = w->ids = w->host_mem = NULL;
    w->host_loss = NULL;
    w->host_best = NULL;
    w->n_context = w->n_row = w->n_block = 0;
}

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

enum err_code train_net_room(struct train_net *net, const struct train_batch *b, int64_t n_vocab, struct err *e)
{
    struct train_work *w = net->work;
    struct parts all = { 0 }, ids = { 0 };

    if (b->n_context <= w->n_context && b->n_row <= w->n_row && b->n_block <= w->n_block)
        return ERR_OK;
    const int64_t c = larger_of(b->n_context, w->n_context), r = larger_of(b->n_row, w->n_row);
    const int64_t blocks = larger_of(b->n_block, w->n_block);

    lay_parts(w, &all, &net->s, net->m, c, r, n_vocab);
    lay_ids(&w->dev, &ids, c, r, blocks, net->s.n_embd);
    train_net_give_room(net);
    w->mem = net->m->take(net->m, all.n);
    w->ids = net->m->take(net->m, ids.n);
    w->host_mem = net->m->host ? NULL : malloc((size_t)ids.n);
    w->host_loss = malloc((size_t)r * sizeof *w->host_loss);
    w->host_best = malloc((size_t)r * sizeof *w->host_best);
    if (w->mem == NULL || w->ids == NULL || (w->host_mem == NULL && !net->m->host) || w->host_loss == NULL ||
        w->host_best == NULL) {
        train_net_give_room(net);
        return err_set(e, ERR_NOMEM, "out of memory: a batch of %lld rows", (long long)(c + r));
    }
    w->ids_bytes = ids.n;
    lay_parts(w, &(struct parts){ w->mem, 0 }, &net->s, net->m, c, r, n_vocab);
    lay_ids(&w->dev, &(struct parts){ w->ids, 0 }, c, r, blocks, net->s.n_embd);
    lay_ids(&w->host, &(struct parts){ net->m->host ? w->ids : w->host_mem, 0 }, c, r, blocks, net->s.n_embd);
    w->n_context = c;
    w->n_row = r;
    w->n_block = blocks;
    return ERR_OK;
}

/* ---- opening ---- */

static void turn_table(float *turn, const struct train_shape *s, int64_t n)
{
    const int half = s->head_dim / 2;

    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < half; j++) {
            const double freq = (double)(float)(1.0 / pow((double)s->rope_base, 2.0 * j / s->head_dim));

            turn[(i * half + j) * 2] = (float)cos((double)i * freq);
            turn[(i * half + j) * 2 + 1] = (float)sin((double)i * freq);
        }
}

static float *take_floats(struct dev_math *m, int64_t n)
{
    return m->take(m, n * (int64_t)sizeof(float));
}

/* Weights and gradient, and the table of angles. */
static bool take_all(struct train_net *net)
{
    const int64_t positions = net->s.ctx_tokens + net->s.block, n = positions * net->s.head_dim;
    float *turn = calloc((size_t)n, sizeof *turn);

    net->w = calloc((size_t)net->n_params, sizeof *net->w);
    net->at = net->m->host ? net->w : take_floats(net->m, net->n_params);
    net->grad = take_floats(net->m, net->n_params);
    net->work->layer = calloc((size_t)net->s.n_layer, sizeof *net->work->layer);
    net->work->turn = take_floats(net->m, n);
    if (turn == NULL || net->w == NULL || net->at == NULL || net->grad == NULL || net->work->layer == NULL ||
        net->work->turn == NULL) {
        free(turn);
        return false;
    }
    turn_table(turn, &net->s, positions);
    net->m->put(net->m, net->work->turn, turn, n * (int64_t)sizeof *turn);
    net->m->zero(net->m, net->grad, net->n_params * (int64_t)sizeof *net->grad);
    train_net_push(net);
    free(turn);
    return true;
}

enum err_code train_net_open(struct train_net *net, const struct train_shape *s, struct dev_math *m, struct err *e)
{
    *net = (struct train_net){ 0 };
    if (!m->host && s->head_dim > DEV_HEAD_MAX)
        return err_set(e, ERR_UNSUPPORTED, "heads of %d elements are not trained on a GPU: use --device cpu",
                       s->head_dim);
    *net = (struct train_net){ .s = *s, .m = m };
    net->tensor = calloc((size_t)(FIRST_LAYER + EACH * s->n_layer), sizeof *net->tensor);
    net->work = calloc(1, sizeof *net->work);
    if (net->tensor != NULL)
        add_tensors(net);
    if (net->tensor == NULL || net->work == NULL || !take_all(net)) {
        train_net_close(net);
        return err_set(e, ERR_NOMEM, "out of memory: a network of %d layers", s->n_layer);
    }
    return ERR_OK;
}

void train_net_close(struct train_net *net)
{
    if (net->work != NULL) {
        train_net_give_room(net);
        net->m->give(net->m, net->work->turn);
        free(net->work->layer);
    }
    if (net->m != NULL && !net->m->host)
        net->m->give(net->m, net->at);
    if (net->m != NULL)
        net->m->give(net->m, net->grad);
    free(net->work);
    free(net->tensor);
    free(net->w);
    *net = (struct train_net){ 0 };
}

void train_net_push(struct train_net *net)
{
    net->m->put(net->m, net->at, net->w, net->n_params * (int64_t)sizeof *net->w);
}

void train_net_pull(struct train_net *net)
{
    net->m->get(net->m, net->w, net->at, net->n_params * (int64_t)sizeof *net->w);
}
