/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - the block network forward and backward. */
#include <string.h>

#include "train/work.h"

static const struct train_tensor *tensor_of(const struct train_net *net, int layer, int which)
{
    return &net->tensor[layer < 0 ? which : FIRST_LAYER + layer * EACH + which];
}

static const float *weights_of(const struct train_net *net, int layer, int which)
{
    return net->at + tensor_of(net, layer, which)->at;
}

static float *gradient(const struct train_net *net, int layer, int which)
{
    return net->grad + tensor_of(net, layer, which)->at;
}

static struct dev_matrix rows_of(const float *v, int64_t ld)
{
    return (struct dev_matrix){ v, ld, false };
}

static struct dev_matrix columns_of(const float *v, int64_t ld)
{
    return (struct dev_matrix){ v, ld, true };
}

/* y[rows][n_out] = x W^T. */
static void layer_product(const struct train_net *net, int layer, int which, float *y, const float *x, int64_t rows)
{
    const struct train_tensor *t = tensor_of(net, layer, which);

    net->m->product(net->m, rows, t->n_out, t->n_in, rows_of(x, t->n_in), columns_of(net->at + t->at, t->n_in), 0, y,
                    t->n_out);
}

/* dx = dy W (add: added), dW += dy^T x. */
static void product_back(const struct train_net *net, int layer, int which, float *dx, bool add, const float *dy,
                         const float *x, int64_t rows)
{
    const struct train_tensor *t = tensor_of(net, layer, which);

    if (dx != NULL)
        net->m->product(net->m, rows, t->n_in, t->n_out, rows_of(dy, t->n_out), rows_of(net->at + t->at, t->n_in),
                        add ? 1 : 0, dx, t->n_in);
    net->m->product(net->m, t->n_out, t->n_in, rows, columns_of(dy, t->n_out), rows_of(x, t->n_in), 1,
                    net->grad + t->at, t->n_in);
}

/* ---- forward ---- */

/* Texts, positions and tokens of a batch, and what of it counts, to the network's memory. */
static void send_batch(struct train_net *net, const struct train_target *target, const struct train_batch *b)
{
    struct train_work *w = net->work;
    struct train_ids *ids = &w->host;
    const int64_t d = net->s.n_embd;

    w->n_text = w->n_count = 0;
    w->seen_max = 0;
    w->total = 0;
    target->embed(target->ctx, net->s.mask, ids->first);
    for (int i = 0; i < b->n_block; i++) {
        const struct dev_block *k = &b->block[i];
        struct dev_text *t = &ids->text[w->n_text];

        if (i == 0 || k->context != b->block[i - 1].context)
            *t = (struct dev_text){ .first = i, .row = k->row, .context = k->context };
        t->n++;
        t->n_row += k->n;
        t->n_context = k->start > t->n_context ? k->start : t->n_context;
        w->seen_max = t->n_context > w->seen_max ? t->n_context : w->seen_max;
        w->n_text += i + 1 == b->n_block || b->block[i + 1].context != k->context;
        target->embed(target->ctx, b->token[k->row], ids->first + (i + 1) * d);
        for (int j = 0; j < k->n; j++) {
            ids->pos[k->row + j] = (int32_t)k->start + j;
            ids->embed[k->row + j] = j == 0 ? i + 1 : 0;
        }
    }
    for (int64_t i = 0; b->want != NULL && i < b->n_row; i++) {
        if (b->want[i] < 0)
            continue;
        ids->want[w->n_count] = b->want[i];
        ids->weight[w->n_count] = b->weight[i];
        ids->place[w->n_count++] = (int32_t)i;
        w->total += (double)b->weight[i];
    }
    memcpy(ids->block, b->block, (size_t)b->n_block * sizeof *b->block);
    memcpy(ids->from, b->from, (size_t)b->n_context * sizeof *b->from);
    memcpy(ids->context_pos, b->pos, (size_t)b->n_context * sizeof *b->pos);
    net->m->put(net->m, w->ids, w->host.block, w->ids_bytes);
}

/* Keys and values of contexts in every layer. */
static void contexts(struct train_net *net, const struct train_batch *b)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;

    net->m->widen(net->m, w->f, b->feature, w->dev.from, b->n_context, (int64_t)s->n_tap * s->n_embd);
    layer_product(net, -1, FC, w->g0, w->f, b->n_context);
    net->m->rms(net->m, w->g, w->inv_g, w->g0, weights_of(net, -1, ENC_NORM), b->n_context, s->n_embd, s->eps);
    for (int i = 0; i < s->n_layer; i++) {
        struct train_layer *l = &w->layer[i];

        layer_product(net, i, ATTN_K, l->kc0, w->g, b->n_context);
        layer_product(net, i, ATTN_V, l->vc, w->g, b->n_context);
        net->m->rms(net->m, l->kc, l->inv_kc, l->kc0, weights_of(net, i, K_NORM), b->n_context * s->n_head_kv,
                    s->head_dim, s->eps);
        net->m->rope(net->m, l->kc, w->dev.context_pos, b->n_context, s->n_head_kv, s->head_dim, w->turn, false);
    }
}

static struct dev_attend attention_of(const struct train_net *net, const struct train_batch *b, int i)
{
    const struct train_shape *s = &net->s;
    const struct train_work *w = net->work;
    const struct train_layer *l = &w->layer[i];

    return (struct dev_attend){ .n_head = s->n_head,
                                .n_head_kv = s->n_head_kv,
                                .head_dim = s->head_dim,
                                .block = w->dev.block,
                                .text = w->dev.text,
                                .n_block = b->n_block,
                                .n_text = w->n_text,
                                .seen_max = w->seen_max,
                                .q = l->q,
                                .k = l->k,
                                .v = l->v,
                                .kc = l->kc,
                                .vc = l->vc,
                                .o = l->o,
                                .lse = l->lse,
                                .d_o = w->d1,
                                .dq = w->dq,
                                .dk = w->dk,
                                .dv = w->dv,
                                .dkc = w->dkc,
                                .dvc = w->dvc,
                                .scratch = w->attend };
}

/* Layer i: l->x in, x out. */
static void layer_forward(struct train_net *net, const struct train_batch *b, int i, float *x)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];
    const int64_t n = b->n_row, all = n * s->n_embd;
    const struct dev_attend a = attention_of(net, b, i);

    net->m->copy(net->m, l->x, x, all * (int64_t)sizeof *x);
    net->m->rms(net->m, l->a, l->inv_a, x, weights_of(net, i, ATTN_NORM), n, s->n_embd, s->eps);
    layer_product(net, i, ATTN_Q, l->q0, l->a, n);
    layer_product(net, i, ATTN_K, l->k0, l->a, n);
    layer_product(net, i, ATTN_V, l->v, l->a, n);
    net->m->rms(net->m, l->q, l->inv_q, l->q0, weights_of(net, i, Q_NORM), n * s->n_head, s->head_dim, s->eps);
    net->m->rms(net->m, l->k, l->inv_k, l->k0, weights_of(net, i, K_NORM), n * s->n_head_kv, s->head_dim, s->eps);
    net->m->rope(net->m, l->q, w->dev.pos, n, s->n_head, s->head_dim, w->turn, false);
    net->m->rope(net->m, l->k, w->dev.pos, n, s->n_head_kv, s->head_dim, w->turn, false);
    net->m->attend(net->m, &a);
    layer_product(net, i, ATTN_OUTPUT, l->x1, l->o, n);
    net->m->add(net->m, l->x1, l->x, all);
    net->m->rms(net->m, l->m, l->inv_m, l->x1, weights_of(net, i, FFN_NORM), n, s->n_embd, s->eps);
    layer_product(net, i, FFN_GATE, l->gate, l->m, n);
    layer_product(net, i, FFN_UP, l->up, l->m, n);
    net->m->glu(net->m, w->h, l->gate, l->up, n * s->n_ff);
    layer_product(net, i, FFN_DOWN, x, w->h, n);
    net->m->add(net->m, x, l->x1, all);
}

/* w->y: the last norm of every row. again: w has the contexts' keys and values. */
static void forward_pass(struct train_net *net, const struct train_target *t, const struct train_batch *b, bool again)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;

    send_batch(net, t, b);
    if (!again)
        contexts(net, b);
    net->m->gather(net->m, w->x, w->dev.first, w->dev.embed, b->n_row, s->n_embd);
    for (int i = 0; i < s->n_layer; i++)
        layer_forward(net, b, i, w->x);
    net->m->rms(net->m, w->y, w->inv_y, w->x, weights_of(net, -1, OUT_NORM), b->n_row, s->n_embd, s->eps);
}

static void logits_of(const struct train_net *net, const struct train_target *t, const float *y, int64_t rows)
{
    const int64_t d = net->s.n_embd;

    net->m->product(net->m, rows, t->n_vocab, d, rows_of(y, d), columns_of(t->head, d), 0, net->work->logits,
                    t->n_vocab);
}

enum err_code train_net_guess(struct train_net *net, const struct train_target *t, const struct train_batch *b,
                              bool again, int32_t *best, float *logits, struct err *e)
{
    struct train_work *w = net->work;

    if (train_net_room(net, b, t->n_vocab, e))
        return e->code;
    forward_pass(net, t, b, again);
    for (int64_t i = 0, n; i < b->n_row; i += n) {
        n = b->n_row - i < w->n_chunk ? b->n_row - i : w->n_chunk;
        logits_of(net, t, w->y + i * net->s.n_embd, n);
        net->m->best(net->m, w->logits, w->best + i, n, t->n_vocab);
        if (logits != NULL)
            net->m->get(net->m, logits + i * t->n_vocab, w->logits, n * t->n_vocab * (int64_t)sizeof *logits);
    }
    net->m->get(net->m, best, w->best, b->n_row * (int64_t)sizeof *best);
    return net->m->wait(net->m, e);
}

/* ---- backward ---- */

/* The loss of rows that count, and w->dx = its gradient by y. */
static void head_back(struct train_net *net, const struct train_target *t, const struct train_batch *b)
{
    const int64_t d = net->s.n_embd, n = net->work->n_count;
    struct train_work *w = net->work;

    net->m->gather(net->m, w->picked, w->y, w->dev.place, n, d);
    for (int64_t i = 0, k; i < n; i += k) {
        k = n - i < w->n_chunk ? n - i : w->n_chunk;
        logits_of(net, t, w->picked + i * d, k);
        net->m->cross_entropy(net->m, w->logits, w->dev.want + i, w->dev.weight + i, w->total, w->loss + i, w->best + i,
                              k, t->n_vocab);
        net->m->product(net->m, k, d, t->n_vocab, rows_of(w->logits, t->n_vocab), rows_of(t->head, d), 0,
                        w->d_picked + i * d, d);
    }
    net->m->zero(net->m, w->dx, b->n_row * d * (int64_t)sizeof *w->dx);
    net->m->scatter(net->m, w->dx, w->dev.place, w->d_picked, n, d);
}

enum err_code train_net_loss(struct train_net *net, struct train_loss *loss, struct err *e)
{
    struct train_work *w = net->work;

    *loss = (struct train_loss){ .weight = w->total, .n = w->n_count };
    net->m->get(net->m, w->host_loss, w->loss, w->n_count * (int64_t)sizeof *w->loss);
    net->m->get(net->m, w->host_best, w->best, w->n_count * (int64_t)sizeof *w->best);
    for (int i = 0; i < w->n_count; i++) {
        loss->sum += (double)w->host.weight[i] * (double)w->host_loss[i];
        loss->right += w->host_best[i] == w->host.want[i];
    }
    return net->m->wait(net->m, e);
}

/* Keys: back through positions and norm, in place. */
static void keys_back(struct train_net *net, int i, float *dk, const float *k0, const float *inv, const int32_t *pos,
                      int64_t rows)
{
    const struct train_shape *s = &net->s;

    net->m->rope(net->m, dk, pos, rows, s->n_head_kv, s->head_dim, net->work->turn, true);
    net->m->rms_back(net->m, dk, false, gradient(net, i, K_NORM), dk, k0, inv, weights_of(net, i, K_NORM),
                     rows * s->n_head_kv, s->head_dim);
}

static void ffn_back(struct train_net *net, int64_t n, int i)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];

    net->m->glu(net->m, w->h, l->gate, l->up, n * s->n_ff);
    product_back(net, i, FFN_DOWN, w->d1, false, w->dx, w->h, n);
    net->m->glu_back(net->m, l->gate, l->up, w->d1, n * s->n_ff);
    product_back(net, i, FFN_GATE, w->d2, false, l->gate, l->m, n);
    product_back(net, i, FFN_UP, w->d2, true, l->up, l->m, n);
    net->m->rms_back(net->m, w->dx, true, gradient(net, i, FFN_NORM), w->d2, l->x1, l->inv_m,
                     weights_of(net, i, FFN_NORM), n, s->n_embd);
}

/* w->dx: the gradient by what layer i gives, then by what came in. */
static void layer_back(struct train_net *net, const struct train_batch *b, int i)
{
    const struct train_shape *s = &net->s;
    const int64_t keys = (int64_t)s->n_head_kv * s->head_dim * (int64_t)sizeof(float);
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];
    const struct dev_attend a = attention_of(net, b, i);
    const int64_t n = b->n_row, c = b->n_context;

    ffn_back(net, n, i);
    product_back(net, i, ATTN_OUTPUT, w->d1, false, w->dx, l->o, n);
    net->m->zero(net->m, w->dk, n * keys);
    net->m->zero(net->m, w->dv, n * keys);
    net->m->zero(net->m, w->dkc, c * keys);
    net->m->zero(net->m, w->dvc, c * keys);
    net->m->attend_back(net->m, &a);
    net->m->rope(net->m, w->dq, w->dev.pos, n, s->n_head, s->head_dim, w->turn, true);
    net->m->rms_back(net->m, w->dq, false, gradient(net, i, Q_NORM), w->dq, l->q0, l->inv_q, weights_of(net, i, Q_NORM),
                     n * s->n_head, s->head_dim);
    keys_back(net, i, w->dk, l->k0, l->inv_k, w->dev.pos, n);
    keys_back(net, i, w->dkc, l->kc0, l->inv_kc, w->dev.context_pos, c);
    product_back(net, i, ATTN_Q, w->d2, false, w->dq, l->a, n);
    product_back(net, i, ATTN_K, w->d2, true, w->dk, l->a, n);
    product_back(net, i, ATTN_V, w->d2, true, w->dv, l->a, n);
    product_back(net, i, ATTN_K, w->dg, true, w->dkc, w->g, c);
    product_back(net, i, ATTN_V, w->dg, true, w->dvc, w->g, c);
    net->m->rms_back(net->m, w->dx, true, gradient(net, i, ATTN_NORM), w->d2, l->x, l->inv_a,
                     weights_of(net, i, ATTN_NORM), n, s->n_embd);
}

enum err_code train_net_step(struct train_net *net, const struct train_target *t, const struct train_batch *b,
                             struct err *e)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;

    if (train_net_room(net, b, t->n_vocab, e))
        return e->code;
    forward_pass(net, t, b, false);
    net->m->zero(net->m, net->grad, net->n_params * (int64_t)sizeof *net->grad);
    head_back(net, t, b);
    net->m->zero(net->m, w->dg, b->n_context * s->n_embd * (int64_t)sizeof *w->dg);
    net->m->rms_back(net->m, w->dx, false, gradient(net, -1, OUT_NORM), w->dx, w->x, w->inv_y,
                     weights_of(net, -1, OUT_NORM), b->n_row, s->n_embd);
    for (int i = s->n_layer - 1; i >= 0; i--)
        layer_back(net, b, i);
    net->m->rms_back(net->m, w->dg, false, gradient(net, -1, ENC_NORM), w->dg, w->g0, w->inv_g,
                     weights_of(net, -1, ENC_NORM), b->n_context, s->n_embd);
    product_back(net, -1, FC, NULL, false, w->dg, w->f, b->n_context);
    return ERR_OK;
}
