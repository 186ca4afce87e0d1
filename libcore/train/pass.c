/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - the block network forward and backward. */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "quant/quant.h"
#include "train/parts.h"
#include "train/work.h"

static const struct train_tensor *tensor_of(const struct train_net *net, int layer, int which)
{
    return &net->tensor[layer < 0 ? which : FIRST_LAYER + layer * EACH + which];
}

static const float *weights(const struct train_net *net, int layer, int which)
{
    return net->w + tensor_of(net, layer, which)->at;
}

static float *gradient(const struct train_net *net, int layer, int which)
{
    return net->grad + tensor_of(net, layer, which)->at;
}

static struct train_matrix rows_of(const float *v, int64_t ld)
{
    return (struct train_matrix){ v, ld, false };
}

static struct train_matrix columns_of(const float *v, int64_t ld)
{
    return (struct train_matrix){ v, ld, true };
}

/* y[rows][n_out] = x W^T. */
static void product(const struct train_net *net, int layer, int which, float *y, const float *x, int64_t rows)
{
    const struct train_tensor *t = tensor_of(net, layer, which);

    train_gemm(&net->gemms, rows, t->n_out, t->n_in, rows_of(x, t->n_in), columns_of(net->w + t->at, t->n_in), 0, y,
               t->n_out);
}

/* dx = dy W (add: added), dW += dy^T x. */
static void product_back(const struct train_net *net, int layer, int which, float *dx, bool add, const float *dy,
                         const float *x, int64_t rows)
{
    const struct train_tensor *t = tensor_of(net, layer, which);

    if (dx != NULL)
        train_gemm(&net->gemms, rows, t->n_in, t->n_out, rows_of(dy, t->n_out), rows_of(net->w + t->at, t->n_in),
                   add ? 1 : 0, dx, t->n_in);
    train_gemm(&net->gemms, t->n_out, t->n_in, rows, columns_of(dy, t->n_out), rows_of(x, t->n_in), 1,
               net->grad + t->at, t->n_in);
}

/* ---- forward ---- */

static void find_texts(struct train_work *w, const struct train_batch *b)
{
    w->n_text = 0;
    for (int i = 0; i < b->n_block; i++) {
        const struct train_block *k = &b->block[i];
        struct train_text *t = &w->text[w->n_text];

        if (i == 0 || k->context != b->block[i - 1].context)
            *t = (struct train_text){ .first = i, .row = k->row, .context = k->context };
        t->n++;
        t->n_row += k->n;
        t->n_context = k->start > t->n_context ? k->start : t->n_context;
        w->n_text += i + 1 == b->n_block || b->block[i + 1].context != k->context;
        for (int j = 0; j < k->n; j++)
            w->pos[k->row + j] = (int32_t)k->start + j;
    }
}

struct features {
    float          *to;
    const uint16_t *from;
};

static void widen(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct features *f = ctx;

    (void)worker;
    quant_types[QUANT_bf16]->decode(f->to + begin, f->from + begin, end - begin);
}

/* Keys and values of contexts in every layer. */
static void contexts(struct train_net *net, const struct train_batch *b)
{
    enum { FLOATS = 1 << 14 };
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct features f = { w->f, b->feature };

    pool_for(net->pool, b->n_context * s->n_tap * s->n_embd, FLOATS, widen, &f);
    product(net, -1, FC, w->g0, w->f, b->n_context);
    train_rms(net->pool, w->g, w->inv_g, w->g0, weights(net, -1, ENC_NORM), b->n_context, s->n_embd, s->eps);
    for (int i = 0; i < s->n_layer; i++) {
        struct train_layer *l = &w->layer[i];

        product(net, i, ATTN_K, l->kc0, w->g, b->n_context);
        product(net, i, ATTN_V, l->vc, w->g, b->n_context);
        train_rms(net->pool, l->kc, l->inv_kc, l->kc0, weights(net, i, K_NORM), b->n_context * s->n_head_kv,
                  s->head_dim, s->eps);
        train_rope(net->pool, l->kc, b->pos, b->n_context, s->n_head_kv, s->head_dim, w->turn, false);
    }
}

static struct train_attend attention_of(const struct train_net *net, const struct train_batch *b, int i)
{
    const struct train_work *w = net->work;
    const struct train_layer *l = &w->layer[i];

    return (struct train_attend){ .s = &net->s, .gemms = &net->gemms, .b = b, .text = w->text, .q = l->q, .k = l->k, .v = l->v,
                                  .kc = l->kc, .vc = l->vc, .o = l->o, .lse = l->lse, .d_o = w->d1, .dq = w->dq,
                                  .dk = w->dk, .dv = w->dv, .dkc = w->dkc, .dvc = w->dvc,
                                  .scratch = w->attend, .part = w->attend_part };
}

/* Layer i: l->x in, x out. */
static void layer_forward(struct train_net *net, const struct train_batch *b, int i, float *x)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];
    const int64_t n = b->n_row, all = n * s->n_embd;
    const struct train_attend a = attention_of(net, b, i);

    memcpy(l->x, x, (size_t)all * sizeof *x);
    train_rms(net->pool, l->a, l->inv_a, x, weights(net, i, ATTN_NORM), n, s->n_embd, s->eps);
    product(net, i, ATTN_Q, l->q0, l->a, n);
    product(net, i, ATTN_K, l->k0, l->a, n);
    product(net, i, ATTN_V, l->v, l->a, n);
    train_rms(net->pool, l->q, l->inv_q, l->q0, weights(net, i, Q_NORM), n * s->n_head, s->head_dim, s->eps);
    train_rms(net->pool, l->k, l->inv_k, l->k0, weights(net, i, K_NORM), n * s->n_head_kv, s->head_dim, s->eps);
    train_rope(net->pool, l->q, w->pos, n, s->n_head, s->head_dim, w->turn, false);
    train_rope(net->pool, l->k, w->pos, n, s->n_head_kv, s->head_dim, w->turn, false);
    train_attend(net->pool, &a, w->n_text);
    product(net, i, ATTN_OUTPUT, l->x1, l->o, n);
    train_add(net->pool, l->x1, l->x, all);
    train_rms(net->pool, l->m, l->inv_m, l->x1, weights(net, i, FFN_NORM), n, s->n_embd, s->eps);
    product(net, i, FFN_GATE, l->gate, l->m, n);
    product(net, i, FFN_UP, l->up, l->m, n);
    train_glu(net->pool, w->h, l->gate, l->up, n * s->n_ff);
    product(net, i, FFN_DOWN, x, w->h, n);
    train_add(net->pool, x, l->x1, all);
}

struct rows {
    const struct train_target *target;
    const struct train_batch  *b;
    float                     *x;
    int64_t                    dim;
};

static void embed(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct rows *r = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        r->target->embed(r->target->ctx, r->b->token[i], r->x + i * r->dim);
}

static void forward(struct train_net *net, const struct train_target *t, const struct train_batch *b, bool again)
{
    enum { GRAIN = 16 };
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct rows r = { t, b, w->x, s->n_embd };

    find_texts(w, b);
    if (!again)
        contexts(net, b);
    pool_for(net->pool, b->n_row, GRAIN, embed, &r);
    for (int i = 0; i < s->n_layer; i++)
        layer_forward(net, b, i, w->x);
    train_rms(net->pool, w->y, w->inv_y, w->x, weights(net, -1, OUT_NORM), b->n_row, s->n_embd, s->eps);
}

static void logits_of(const struct train_net *net, const struct train_target *t, const float *y, int64_t rows,
                      float *logits)
{
    const int64_t d = net->s.n_embd;

    train_gemm(&net->gemms, rows, t->n_vocab, d, rows_of(y, d), columns_of(t->head, d), 0, logits, t->n_vocab);
}

enum err_code train_net_guess(struct train_net *net, const struct train_target *t, const struct train_batch *b,
                              bool again, int32_t *best, float *logits, struct err *e)
{
    struct train_work *w = net->work;

    if (train_net_room(net, b, t->n_vocab, e))
        return e->code;
    forward(net, t, b, again);
    for (int64_t i = 0, n; i < b->n_row; i += n) {
        n = b->n_row - i < w->n_chunk ? b->n_row - i : w->n_chunk;
        logits_of(net, t, w->y + i * net->s.n_embd, n, w->logits);
        train_best(net->pool, w->logits, best + i, n, t->n_vocab);
        if (logits != NULL)
            memcpy(logits + i * t->n_vocab, w->logits, (size_t)(n * t->n_vocab) * sizeof *logits);
    }
    return ERR_OK;
}

/* ---- backward ---- */

/* The loss of rows that count, and w->dx = its gradient by y. */
static void head_back(struct train_net *net, const struct train_target *t, const struct train_batch *b,
                      struct train_loss *loss)
{
    const int64_t d = net->s.n_embd;
    const size_t bytes = (size_t)d * sizeof(float);
    struct train_work *w = net->work;
    int64_t n = 0;

    *loss = (struct train_loss){ 0 };
    for (int64_t i = 0; i < b->n_row; i++) {
        if (b->want[i] < 0)
            continue;
        memcpy(w->picked + n * d, w->y + i * d, bytes);
        w->want[n] = b->want[i];
        w->weight[n] = b->weight[i];
        w->place[n++] = (int32_t)i;
        loss->weight += (double)b->weight[i];
    }
    for (int64_t i = 0, k; i < n; i += k) {
        k = n - i < w->n_chunk ? n - i : w->n_chunk;
        logits_of(net, t, w->picked + i * d, k, w->logits);
        train_cross_entropy(net->pool, w->logits, w->want + i, w->weight + i, loss->weight, w->loss + i, w->best + i, k,
                            t->n_vocab);
        train_gemm(&net->gemms, k, d, t->n_vocab, rows_of(w->logits, t->n_vocab), rows_of(t->head, d), 0,
                   w->d_picked + i * d, d);
    }
    memset(w->dx, 0, (size_t)b->n_row * bytes);
    for (int64_t i = 0; i < n; i++) {
        memcpy(w->dx + w->place[i] * d, w->d_picked + i * d, bytes);
        loss->sum += (double)w->weight[i] * (double)w->loss[i];
        loss->right += w->best[i] == w->want[i];
    }
    loss->n = n;
}

/* Keys: back through positions and norm, in place. */
static void keys_back(struct train_net *net, int i, float *dk, const float *k0, const float *inv, const int32_t *pos,
                      int64_t rows)
{
    const struct train_shape *s = &net->s;

    train_rope(net->pool, dk, pos, rows, s->n_head_kv, s->head_dim, net->work->turn, true);
    train_rms_back(net->pool, dk, false, gradient(net, i, K_NORM), dk, k0, inv, weights(net, i, K_NORM),
                   rows * s->n_head_kv, s->head_dim);
}

static void ffn_back(struct train_net *net, int64_t n, int i)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];

    train_glu(net->pool, w->h, l->gate, l->up, n * s->n_ff);
    product_back(net, i, FFN_DOWN, w->d1, false, w->dx, w->h, n);
    train_glu_back(net->pool, l->gate, l->up, w->d1, n * s->n_ff);
    product_back(net, i, FFN_GATE, w->d2, false, l->gate, l->m, n);
    product_back(net, i, FFN_UP, w->d2, true, l->up, l->m, n);
    train_rms_back(net->pool, w->dx, true, gradient(net, i, FFN_NORM), w->d2, l->x1, l->inv_m,
                   weights(net, i, FFN_NORM), n, s->n_embd);
}

/* w->dx: the gradient by what layer i gives, then by what came in. */
static void layer_back(struct train_net *net, const struct train_batch *b, int i)
{
    const struct train_shape *s = &net->s;
    const size_t keys = (size_t)s->n_head_kv * (size_t)s->head_dim * sizeof(float);
    struct train_work *w = net->work;
    struct train_layer *l = &w->layer[i];
    const struct train_attend a = attention_of(net, b, i);
    const int64_t n = b->n_row, c = b->n_context;

    ffn_back(net, n, i);
    product_back(net, i, ATTN_OUTPUT, w->d1, false, w->dx, l->o, n);
    memset(w->dk, 0, (size_t)n * keys);
    memset(w->dv, 0, (size_t)n * keys);
    memset(w->dkc, 0, (size_t)c * keys);
    memset(w->dvc, 0, (size_t)c * keys);
    train_attend_back(net->pool, &a, w->n_text);
    train_rope(net->pool, w->dq, w->pos, n, s->n_head, s->head_dim, w->turn, true);
    train_rms_back(net->pool, w->dq, false, gradient(net, i, Q_NORM), w->dq, l->q0, l->inv_q, weights(net, i, Q_NORM),
                   n * s->n_head, s->head_dim);
    keys_back(net, i, w->dk, l->k0, l->inv_k, w->pos, n);
    keys_back(net, i, w->dkc, l->kc0, l->inv_kc, b->pos, c);
    product_back(net, i, ATTN_Q, w->d2, false, w->dq, l->a, n);
    product_back(net, i, ATTN_K, w->d2, true, w->dk, l->a, n);
    product_back(net, i, ATTN_V, w->d2, true, w->dv, l->a, n);
    product_back(net, i, ATTN_K, w->dg, true, w->dkc, w->g, c);
    product_back(net, i, ATTN_V, w->dg, true, w->dvc, w->g, c);
    train_rms_back(net->pool, w->dx, true, gradient(net, i, ATTN_NORM), w->d2, l->x, l->inv_a,
                   weights(net, i, ATTN_NORM), n, s->n_embd);
}

enum err_code train_net_step(struct train_net *net, const struct train_target *t, const struct train_batch *b,
                             struct train_loss *loss, struct err *e)
{
    const struct train_shape *s = &net->s;
    struct train_work *w = net->work;

    if (train_net_room(net, b, t->n_vocab, e))
        return e->code;
    forward(net, t, b, false);
    memset(net->grad, 0, (size_t)net->n_params * sizeof *net->grad);
    head_back(net, t, b, loss);
    memset(w->dg, 0, (size_t)(b->n_context * s->n_embd) * sizeof *w->dg);
    train_rms_back(net->pool, w->dx, false, gradient(net, -1, OUT_NORM), w->dx, w->x, w->inv_y,
                   weights(net, -1, OUT_NORM), b->n_row, s->n_embd);
    for (int i = s->n_layer - 1; i >= 0; i--)
        layer_back(net, b, i);
    train_rms_back(net->pool, w->dg, false, gradient(net, -1, ENC_NORM), w->dg, w->g0, w->inv_g,
                   weights(net, -1, ENC_NORM), b->n_context, s->n_embd);
    product_back(net, -1, FC, NULL, false, w->dg, w->f, b->n_context);
    return ERR_OK;
}
