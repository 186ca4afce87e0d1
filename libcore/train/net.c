/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - the DFlash block network: its tensors, and memory for its passes. */
#include "train/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
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

struct train_tensor *train_net_find(const struct train_net *net, const char *name)
{
    for (int i = 0; i < net->n_tensor; i++)
        if (strcmp(net->tensor[i].name, name) == 0)
            return &net->tensor[i];
    return NULL;
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
}

/* ---- memory ---- */

/* Hands out parts of a piece of memory; without one it counts. */
struct parts {
    float  *mem;
    int64_t n;
};

static float *take(struct parts *p, int64_t n)
{
    const int64_t from = p->n;

    p->n += (n + 15) / 16 * 16;
    return p->mem == NULL ? NULL : p->mem + from;
}

static int32_t *take_ids(struct parts *p, int64_t n)
{
    return (int32_t *)(void *)take(p, n);
}

static void lay_layer(struct train_layer *l, struct parts *p, const struct train_shape *s, int64_t c, int64_t r)
{
    const int64_t d = s->n_embd, q = (int64_t)s->n_head * s->head_dim, k = (int64_t)s->n_head_kv * s->head_dim;

    l->x = take(p, r * d);
    l->inv_a = take(p, r);
    l->a = take(p, r * d);
    l->q0 = take(p, r * q);
    l->inv_q = take(p, r * s->n_head);
    l->q = take(p, r * q);
    l->k0 = take(p, r * k);
    l->inv_k = take(p, r * s->n_head_kv);
    l->k = take(p, r * k);
    l->v = take(p, r * k);
    l->o = take(p, r * q);
    l->lse = take(p, r * s->n_head);
    l->x1 = take(p, r * d);
    l->inv_m = take(p, r);
    l->m = take(p, r * d);
    l->gate = take(p, r * s->n_ff);
    l->up = take(p, r * s->n_ff);
    l->kc0 = take(p, c * k);
    l->inv_kc = take(p, c * s->n_head_kv);
    l->kc = take(p, c * k);
    l->vc = take(p, c * k);
}

/* Everything for c rows of contexts and r rows of blocks. */
static void lay(struct train_work *w, struct parts *p, const struct train_shape *s, int64_t c, int64_t r,
                int64_t n_vocab, int threads)
{
    const int64_t d = s->n_embd, q = (int64_t)s->n_head * s->head_dim, k = (int64_t)s->n_head_kv * s->head_dim;
    const int64_t wide = s->n_ff > q ? s->n_ff : q, seen = c < s->ctx_tokens ? c : s->ctx_tokens;
    struct train_layer none;

    for (int i = 0; i < s->n_layer; i++)
        lay_layer(w->layer != NULL ? &w->layer[i] : &none, p, s, c, r);
    w->pos = take_ids(p, r);
    w->f = take(p, c * d * s->n_tap);
    w->g0 = take(p, c * d);
    w->inv_g = take(p, c);
    w->g = take(p, c * d);
    w->dg = take(p, c * d);
    w->dkc = take(p, c * k);
    w->dvc = take(p, c * k);
    w->x = take(p, r * d);
    w->inv_y = take(p, r);
    w->y = take(p, r * d);
    w->dx = take(p, r * d);
    w->d1 = take(p, r * wide);
    w->d2 = take(p, r * d);
    w->h = take(p, r * s->n_ff);
    w->dq = take(p, r * q);
    w->dk = take(p, r * k);
    w->dv = take(p, r * k);
    w->picked = take(p, r * d);
    w->d_picked = take(p, r * d);
    w->n_chunk = CHUNK_FLOATS / n_vocab < 1 ? 1 : CHUNK_FLOATS / n_vocab < r ? CHUNK_FLOATS / n_vocab : r;
    w->logits = take(p, w->n_chunk * n_vocab);
    w->loss = take(p, r);
    w->weight = take(p, r);
    w->want = take_ids(p, r);
    w->best = take_ids(p, r);
    w->place = take_ids(p, r);
    w->attend_part = 2 * (int64_t)TRAIN_ATTEND_ROWS * seen;
    w->attend = take(p, w->attend_part * threads);
}

int64_t train_net_bytes(const struct train_shape *s, int64_t n_context, int64_t n_row, int64_t n_vocab, int threads)
{
    struct train_work w = { 0 };
    struct parts p = { 0 };

    lay(&w, &p, s, n_context, n_row, n_vocab, threads);
    return p.n * (int64_t)sizeof(float);
}

enum err_code train_net_room(struct train_net *net, const struct train_batch *b, int64_t n_vocab, struct err *e)
{
    struct train_work *w = net->work;
    struct parts p = { 0 };

    if (b->n_context > w->n_context || b->n_row > w->n_row) {
        const int64_t c = b->n_context > w->n_context ? b->n_context : w->n_context;
        const int64_t r = b->n_row > w->n_row ? b->n_row : w->n_row;

        free(w->mem);
        w->n_context = w->n_row = 0;
        w->mem = malloc((size_t)train_net_bytes(&net->s, c, r, n_vocab, pool_size(net->pool)));
        if (w->mem == NULL)
            return err_set(e, ERR_NOMEM, "out of memory: a batch of %lld rows", (long long)(c + r));
        p.mem = w->mem;
        lay(w, &p, &net->s, c, r, n_vocab, pool_size(net->pool));
        w->n_context = c;
        w->n_row = r;
    }
    free(w->text);
    w->text = calloc((size_t)b->n_block + 1, sizeof *w->text);
    return w->text != NULL ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory");
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

enum err_code train_net_open(struct train_net *net, const struct train_shape *s, struct pool *pool, struct err *e)
{
    const int64_t positions = s->ctx_tokens + s->block;

    *net = (struct train_net){ .s = *s, .pool = pool, .gemms = train_gemm_open(pool) };
    net->tensor = calloc((size_t)(FIRST_LAYER + EACH * s->n_layer), sizeof *net->tensor);
    net->work = calloc(1, sizeof *net->work);
    if (net->tensor != NULL && net->work != NULL) {
        add_tensors(net);
        net->w = calloc((size_t)net->n_params, sizeof *net->w);
        net->grad = calloc((size_t)net->n_params, sizeof *net->grad);
        net->work->layer = calloc((size_t)s->n_layer, sizeof *net->work->layer);
        net->work->turn = calloc((size_t)(positions * s->head_dim), sizeof(float));
    }
    if (net->w == NULL || net->grad == NULL || net->work->layer == NULL || net->work->turn == NULL) {
        train_net_close(net);
        return err_set(e, ERR_NOMEM, "out of memory: a network of %d layers", s->n_layer);
    }
    turn_table(net->work->turn, s, positions);
    return ERR_OK;
}

void train_net_close(struct train_net *net)
{
    if (net->work != NULL) {
        free(net->work->mem);
        free(net->work->text);
        free(net->work->layer);
        free(net->work->turn);
    }
    free(net->work);
    free(net->tensor);
    free(net->w);
    free(net->grad);
    *net = (struct train_net){ 0 };
}
