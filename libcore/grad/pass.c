/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - the walk over the layers, forward and backward. */
#include <stdlib.h>
#include <string.h>

#include "grad/internal.h"

float *grad_take(struct stack *s, int64_t n)
{
    float *at = s->base == NULL ? NULL : s->base + s->used;

    s->used += (n + 15) / 16 * 16;
    s->top = s->used > s->top ? s->used : s->top;
    return at;
}

float *grad_zeros(struct pass *p, int64_t n)
{
    float *v = grad_take(&p->stack, n);

    if (v != NULL)
        p->g->ops->zero(p, v, n);
    return v;
}

int32_t *grad_take_ints(struct stack *s, int64_t n)
{
    return (int32_t *)(void *)grad_take(s, n);
}

int64_t *grad_take_longs(struct stack *s, int64_t n)
{
    return (int64_t *)(void *)grad_take(s, 2 * n);
}

static void take_layer(struct pass *p, int layer, struct layer_acts *a)
{
    const struct arch_plan *pl = &p->g->plan;
    int64_t n = p->n * pl->n_embd;

    a->normed = grad_take(&p->stack, n);
    a->mid = grad_take(&p->stack, n);
    a->ffn_in = grad_take(&p->stack, n);
    if (pl->layer[layer].mixers == MIX_ATTN)
        grad_attn_take(p, &a->attn);
    else
        grad_gdn_take(p, &a->gdn);
    if (pl->layer[layer].ffn == FFN_MOE)
        grad_moe_take(p, &a->moe);
    else
        grad_glu_take(p, &a->dense, p->n, pl->layer[layer].n_ff);
}

static void layer_forward(struct pass *p, int layer, struct layer_acts *a, float *out, const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct layer_at *w = &p->g->layer[layer];
    const struct grad_ops *o = p->g->ops;
    bool real = p->stack.base != NULL;

    if (real)
        o->norm(p, a->normed, x, w->mix_norm, pl->n_embd, p->n);
    if (pl->layer[layer].mixers == MIX_ATTN)
        grad_attn_forward(p, &w->attn, &a->attn, a->mid, a->normed);
    else
        grad_gdn_forward(p, &w->gdn, &a->gdn, a->mid, a->normed);
    if (real) {
        o->add(p, a->mid, x, p->n * pl->n_embd);
        o->norm(p, a->ffn_in, a->mid, w->ffn_norm, pl->n_embd, p->n);
    }
    if (pl->layer[layer].ffn == FFN_MOE) {
        grad_moe_forward(p, &w->moe, &a->moe, out, a->ffn_in);
    } else {
        struct glu_acts dense = a->dense;

        dense.out = out;
        grad_glu_forward(p, &w->dense, (struct at){ 0 }, &dense, a->ffn_in, p->n);
    }
    if (real)
        o->add(p, out, a->mid, p->n * pl->n_embd);
}

/* dx: of the layer's output, then of its input */
static void layer_backward(struct pass *p, int layer, struct layer_acts *a, float *dx, const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct layer_at *w = &p->g->layer[layer];
    const struct grad_ops *o = p->g->ops;
    int64_t mark = p->stack.used, n = p->n * pl->n_embd;
    float *d = grad_zeros(p, n);
    bool real = p->stack.base != NULL;

    if (pl->layer[layer].ffn == FFN_MOE)
        grad_moe_backward(p, &w->moe, &a->moe, d, dx, a->ffn_in);
    else
        grad_glu_backward(p, &w->dense, (struct at){ 0 }, &a->dense, d, dx, a->ffn_in, p->n);
    if (real) {
        o->norm_back(p, dx, d, a->mid, w->ffn_norm, pl->n_embd, p->n);
        o->zero(p, d, n);
    }
    if (pl->layer[layer].mixers == MIX_ATTN)
        grad_attn_backward(p, &w->attn, &a->attn, d, dx, a->normed);
    else
        grad_gdn_backward(p, &w->gdn, &a->gdn, d, dx, a->normed);
    if (real)
        o->norm_back(p, dx, d, x, w->mix_norm, pl->n_embd, p->n);
    p->stack.used = mark;
}

/* x = mix [ RMS(embedding) ; RMS(hidden) ] (model/mtp.c). On the host: blocks have no other device. */
static void mix_in(struct pass *p, float *x)
{
    const struct grad *g = p->g;
    const int64_t n = g->plan.n_embd;

    g->ops->embed(p, x);
    grad_host_norm(p, x, x, g->embd_norm, n, p->n);
    for (int64_t r = 0; r < p->n; r++)
        memcpy(p->both + 2 * r * n, x + r * n, (size_t)n * sizeof *x);
    for (int s = 0; s < p->b->n_seq; s++)
        memcpy(x + p->first[s] * n, p->b->seq[s].hidden, (size_t)(p->b->seq[s].n * n) * sizeof *x);
    grad_host_norm(p, x, x, g->hidden_norm, n, p->n);
    for (int64_t r = 0; r < p->n; r++)
        memcpy(p->both + (2 * r + 1) * n, x + r * n, (size_t)n * sizeof *x);
    grad_host_product(p, (struct at){ .matrix = g->mix }, x, p->both, p->n);
}

/* After a layer. False: the caller wants no more. */
static bool go_on(struct pass *p, int done)
{
    const int n = p->g->plan.n_layer;
    const struct progress *to = p->b->progress != NULL ? p->b->progress : p->g->progress;

    p->stopped = !progress_tick(to, (uint64_t)done, (uint64_t)(p->backward ? 2 * n - p->lowest : n));
    return !p->stopped;
}

static double walk_layers(struct pass *p)
{
    const struct arch_plan *pl = &p->g->plan;
    const bool real = p->stack.base != NULL, backward = p->backward, keep = backward && p->b->keep;
    int64_t size = p->n * pl->n_embd, step = backward ? size : 0, mark, inner;
    float *x = grad_take(&p->stack, size + step * pl->n_layer), *dx = NULL;
    struct layer_acts *kept = p->g->kept, a;
    double loss;

    if (p->g->mix >= 0)
        p->both = grad_take(&p->stack, 2 * size);
    if (real && p->g->mix >= 0)
        mix_in(p, x);
    else if (real)
        p->g->ops->embed(p, x);
    for (int i = 0; i < pl->n_layer; i++) {
        float *out = real ? x + (i + 1) * step : NULL;

        mark = p->stack.used;
        take_layer(p, i, keep ? &kept[i] : &a);
        if (!backward)
            out = grad_take(&p->stack, size);
        layer_forward(p, i, keep ? &kept[i] : &a, out, real ? x + i * step : NULL);
        if (real && !backward)
            p->g->ops->copy(p, x, out, size);
        if (!keep)
            p->stack.used = mark;
        if (real && !go_on(p, i + 1))
            return 0.0;
    }
    if (backward)
        dx = grad_zeros(p, size);
    loss = p->g->ops->loss(p, dx, real ? x + pl->n_layer * step : NULL);
    for (int i = pl->n_layer - 1; backward && i >= p->lowest; i--) {
        const float *in = real ? x + i * step : NULL;

        inner = p->stack.used;
        if (!keep) {
            take_layer(p, i, &a);
            layer_forward(p, i, &a, grad_take(&p->stack, size), in);
        }
        layer_backward(p, i, keep ? &kept[i] : &a, dx, in);
        p->stack.used = inner;
        if (real && !go_on(p, 2 * pl->n_layer - i))
            return 0.0;
    }
    if (real && backward && p->g->mix >= 0) { /* what goes into the block has no gradient */
        if (p->lowest == 0)
            grad_host_product_back(p, (struct at){ .matrix = p->g->mix }, NULL, dx, p->both, p->n);
    } else if (real && backward && p->b->trace != NULL) {
        p->g->ops->embed_back(p, dx);
    }
    return loss;
}

static int64_t count_floats(struct pass p)
{
    if (p.g->ops->begin(&p))
        (void)walk_layers(&p);
    return p.stack.top;
}

void grad_hidden(const struct grad *g, float *rows, int64_t n)
{
    const struct pass p = { .g = (struct grad *)(uintptr_t)g, .loops = grad_loops(g->simd) };

    grad_host_norm(&p, rows, rows, g->trunk_norm, g->plan.n_embd, n);
}

int64_t grad_bytes(const struct grad *g, int64_t n_rows, int rank, bool keep)
{
    const int64_t first[2] = { 0, n_rows };
    const struct grad_batch one = { .n_seq = 1, .keep = keep };

    return count_floats((struct pass){ .g = (struct grad *)(uintptr_t)g,
                                       .b = &one,
                                       .loops = grad_loops(g->simd),
                                       .n = n_rows,
                                       .rank = rank,
                                       .backward = true,
                                       .first = first }) *
           (int64_t)sizeof(float);
}

int64_t grad_host_bytes(const struct grad *g, int64_t n_rows)
{
    const struct pass p = { .g = (struct grad *)(uintptr_t)g, .n = n_rows };
    int64_t widest = 0; /* what the trace of a product gets */

    for (int i = 0; i < g->n_mat && g->dev != NULL; i++) {
        const struct grad_matrix *m = &g->mat[i];
        const int64_t rows = i == g->head      ? grad_loss_rows_max(&p)
                             : m->n_expert > 1 ? n_rows * g->plan.moe.n_used
                                               : n_rows;

        widest = i != g->embd && rows * (m->n_in + m->n_out) > widest ? rows * (m->n_in + m->n_out) : widest;
    }
    if (widest == 0)
        return 0;
    return (widest + n_rows * g->plan.n_embd) * (int64_t)sizeof(float) +
           n_rows * (int64_t)(sizeof(struct grad_soft) + 64);
}

static enum err_code check_batch(struct pass *p, struct err *e)
{
    const struct grad *g = p->g;
    const struct grad_batch *b = p->b;

    p->lowest = b->trace != NULL ? 0 : g->plan.n_layer;
    for (int s = 0; s < b->n_seq; s++) {
        if (b->seq[s].n < 1)
            return err_set(e, ERR_ARG, "sequence %d is empty", s);
        if ((b->seq[s].hidden != NULL) != (g->mix >= 0))
            return err_set(e, ERR_ARG, "sequence %d: hidden rows are for a multi-token-prediction block", s);
        p->n += b->seq[s].n;
        for (int i = 0; i < b->seq[s].n; i++)
            if (b->seq[s].token[i] < 0 || b->seq[s].token[i] >= g->plan.n_vocab ||
                b->seq[s].target[i] >= g->plan.n_vocab)
                return err_set(e, ERR_ARG, "sequence %d has a token that the model does not have", s);
    }
    for (int i = 0; i < b->n_adapter; i++) {
        const struct grad_adapter *a = &b->adapter[i];

        if (a->matrix < 0 || a->matrix >= g->n_mat || a->matrix == g->embd || a->rank < 0 || a->from < 0 ||
            a->from > a->to || a->to > b->n_seq)
            return err_set(e, ERR_ARG, "adapter %d is for no matrix or no sequences of the batch", i);
        if (a->rank == 0 && p->backward)
            return err_set(e, ERR_ARG, "adapter %d is scales, which have no gradient", i);
        p->rank = a->rank > p->rank ? a->rank : p->rank;
        if ((a->da != NULL || a->db != NULL) && a->matrix != g->head)
            p->lowest = g->mat[a->matrix].layer < p->lowest ? g->mat[a->matrix].layer : p->lowest;
    }
    return p->n > 0 && p->n < INT32_MAX ? ERR_OK : err_set(e, ERR_ARG, "no rows");
}

static enum err_code compute(struct pass *p, double *loss, struct err *e)
{
    struct grad *g = p->g;
    const int64_t need = count_floats(*p);
    double sum = 0.0;

    p->stack.base = g->ops->memory(g, need);
    if (p->stack.base == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: a pass of %lld rows takes %.2f GB", (long long)p->n,
                       (double)need * sizeof(float) / 1e9);
    if (g->ops->begin(p))
        sum = walk_layers(p);
    if (g->ops->end(p, e))
        return e->code;
    if (p->stopped)
        return err_set(e, ERR_CANCEL, "interrupted");
    *loss = sum;
    return ERR_OK;
}

static enum err_code run_pass(struct grad *g, const struct grad_batch *b, bool backward, double *loss, struct err *e)
{
    struct pass p = { .g = g, .b = b, .loops = grad_loops(g->simd), .backward = backward };
    int64_t *first;
    enum err_code code;

    if (check_batch(&p, e))
        return e->code;
    first = calloc((size_t)b->n_seq + 1, sizeof *first);
    if (first == NULL)
        return err_nomem(e);
    for (int i = 0; i < b->n_seq; i++)
        first[i + 1] = first[i] + b->seq[i].n;
    p.first = first;
    code = compute(&p, loss, e);
    free(first);
    return code;
}

enum err_code grad_forward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e)
{
    return run_pass(g, b, false, loss, e);
}

enum err_code grad_backward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e)
{
    return run_pass(g, b, true, loss, e);
}
