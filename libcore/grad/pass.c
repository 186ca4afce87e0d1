/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - the walk over the layers, forward and backward. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/simd.h"
#include "cpu/format.h"
#include "grad/internal.h"
#include "quant/quant.h"

const struct grad_loops *grad_loops(unsigned simd)
{
#if defined(__x86_64__)
    return simd & SIMD_AVX512 ? &grad_loops_avx512 : simd & SIMD_AVX2 ? &grad_loops_avx2 : &grad_loops_scalar;
#else
    (void)simd;
    return &grad_loops_scalar;
#endif
}

int64_t grad_grain(int64_t work_each)
{
    return 1 + 32768 / (work_each > 0 ? work_each : 1);
}

float *grad_take(struct stack *s, int64_t n)
{
    float *at = s->base == NULL ? NULL : s->base + s->used;

    s->used += (n + 15) / 16 * 16;
    s->top = s->used > s->top ? s->used : s->top;
    return at;
}

float *grad_zeros(struct stack *s, int64_t n)
{
    float *v = grad_take(s, n);

    if (v != NULL)
        memset(v, 0, (size_t)n * sizeof *v);
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

struct norm_job {
    const struct pass *p;
    float             *y;
    const float       *x, *w, *dy;
    int64_t            n;
};

static void norm_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct norm_job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->n;
        float f = 1.0f / sqrtf(j->p->loops->dot(x, x, j->n) / (float)j->n + j->p->g->plan.norm_eps);

        for (int64_t i = 0; i < j->n; i++)
            j->y[r * j->n + i] = x[i] * f * j->w[i];
    }
}

void grad_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows)
{
    pool_for(p->g->pool, n_rows, grad_grain(2 * n), norm_piece, &(struct norm_job){ p, y, x, w, NULL, n });
}

static void norm_back_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct norm_job *j = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->n, *dy = j->dy + r * j->n;
        float f = 1.0f / sqrtf(j->p->loops->dot(x, x, j->n) / (float)j->n + j->p->g->plan.norm_eps), along = 0.0f;
        float *dx = j->y + r * j->n;

        for (int64_t i = 0; i < j->n; i++)
            along = fmaf(j->w[i] * dy[i], x[i], along);
        along *= f * f / (float)j->n;
        for (int64_t i = 0; i < j->n; i++)
            dx[i] += f * (j->w[i] * dy[i] - along * x[i]);
    }
}

void grad_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                    int64_t n_rows)
{
    pool_for(p->g->pool, n_rows, grad_grain(4 * n), norm_back_piece, &(struct norm_job){ p, dx, x, w, dy, n });
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

static void add(const struct pass *p, float *y, const float *x)
{
    p->loops->axpy(y, x, 1.0f, p->n * p->g->plan.n_embd);
}

static void layer_forward(struct pass *p, int layer, struct layer_acts *a, float *out, const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct layer_at *w = &p->g->layer[layer];
    bool real = p->stack.base != NULL;

    if (real)
        grad_norm(p, a->normed, x, w->mix_norm, pl->n_embd, p->n);
    if (pl->layer[layer].mixers == MIX_ATTN)
        grad_attn_forward(p, &w->attn, &a->attn, a->mid, a->normed);
    else
        grad_gdn_forward(p, &w->gdn, &a->gdn, a->mid, a->normed);
    if (real) {
        add(p, a->mid, x);
        grad_norm(p, a->ffn_in, a->mid, w->ffn_norm, pl->n_embd, p->n);
    }
    if (pl->layer[layer].ffn == FFN_MOE) {
        grad_moe_forward(p, &w->moe, &a->moe, out, a->ffn_in);
    } else {
        struct glu_acts dense = a->dense;

        dense.out = out;
        grad_glu_forward(p, &w->dense, (struct at){ 0, 0, NULL }, &dense, a->ffn_in, p->n);
    }
    if (real)
        add(p, out, a->mid);
}

/* dx: of the layer's output, then of its input */
static void layer_backward(struct pass *p, int layer, struct layer_acts *a, float *dx, const float *x)
{
    const struct arch_plan *pl = &p->g->plan;
    const struct layer_at *w = &p->g->layer[layer];
    int64_t mark = p->stack.used, n = p->n * pl->n_embd;
    float *d = grad_zeros(&p->stack, n);
    bool real = p->stack.base != NULL;

    if (pl->layer[layer].ffn == FFN_MOE)
        grad_moe_backward(p, &w->moe, &a->moe, d, dx, a->ffn_in);
    else
        grad_glu_backward(p, &w->dense, (struct at){ 0, 0, NULL }, &a->dense, d, dx, a->ffn_in, p->n);
    if (real) {
        grad_norm_back(p, dx, d, a->mid, w->ffn_norm, pl->n_embd, p->n);
        memset(d, 0, (size_t)n * sizeof *d);
    }
    if (pl->layer[layer].mixers == MIX_ATTN)
        grad_attn_backward(p, &w->attn, &a->attn, d, dx, a->normed);
    else
        grad_gdn_backward(p, &w->gdn, &a->gdn, d, dx, a->normed);
    if (real)
        grad_norm_back(p, dx, d, x, w->mix_norm, pl->n_embd, p->n);
    p->stack.used = mark;
}

static void embed(const struct pass *p, float *x)
{
    const struct grad_matrix *m = &p->g->mat[p->g->embd];
    quant_decode_fn *decode = cpu_decoder(m->type, p->g->simd);

    for (int s = 0; s < p->b->n_seq; s++)
        for (int i = 0; i < p->b->seq[s].n; i++)
            decode(x + (p->first[s] + i) * m->n_in,
                   (const unsigned char *)m->data + p->b->seq[s].token[i] * quant_row_bytes(m->type, m->n_in), m->n_in);
}

/* x = mix [ RMS(embedding) ; RMS(hidden) ] (model/mtp.c) */
static void mix_in(struct pass *p, float *x)
{
    const struct grad *g = p->g;
    const int64_t n = g->plan.n_embd;

    embed(p, x);
    grad_norm(p, x, x, g->embd_norm, n, p->n);
    for (int64_t r = 0; r < p->n; r++)
        memcpy(p->both + 2 * r * n, x + r * n, (size_t)n * sizeof *x);
    for (int s = 0; s < p->b->n_seq; s++)
        memcpy(x + p->first[s] * n, p->b->seq[s].hidden, (size_t)(p->b->seq[s].n * n) * sizeof *x);
    grad_norm(p, x, x, g->hidden_norm, n, p->n);
    for (int64_t r = 0; r < p->n; r++)
        memcpy(p->both + (2 * r + 1) * n, x + r * n, (size_t)n * sizeof *x);
    grad_mat_forward(p, (struct at){ g->mix, 0, NULL }, x, p->both, p->n);
}

static double walk(struct pass *p, bool backward)
{
    const struct arch_plan *pl = &p->g->plan;
    const bool real = p->stack.base != NULL, keep = backward && p->b->keep;
    int64_t size = p->n * pl->n_embd, step = backward ? size : 0, mark, inner;
    float *x = grad_take(&p->stack, size + step * pl->n_layer), *dx = NULL;
    struct layer_acts *kept = p->g->kept, a;
    double loss;

    if (p->g->mix >= 0)
        p->both = grad_take(&p->stack, 2 * size);
    if (real && p->g->mix >= 0)
        mix_in(p, x);
    else if (real)
        embed(p, x);
    for (int i = 0; i < pl->n_layer; i++) {
        float *out = real ? x + (i + 1) * step : NULL;

        mark = p->stack.used;
        take_layer(p, i, keep ? &kept[i] : &a);
        if (!backward)
            out = grad_take(&p->stack, size);
        layer_forward(p, i, keep ? &kept[i] : &a, out, real ? x + i * step : NULL);
        if (real && !backward)
            memcpy(x, out, (size_t)size * sizeof *x);
        if (!keep)
            p->stack.used = mark;
    }
    if (backward)
        dx = grad_zeros(&p->stack, size);
    loss = grad_loss(p, dx, real ? x + pl->n_layer * step : NULL);
    for (int i = pl->n_layer - 1; backward && i >= p->lowest; i--) {
        const float *in = real ? x + i * step : NULL;

        inner = p->stack.used;
        if (!keep) {
            take_layer(p, i, &a);
            layer_forward(p, i, &a, grad_take(&p->stack, size), in);
        }
        layer_backward(p, i, keep ? &kept[i] : &a, dx, in);
        p->stack.used = inner;
    }
    if (real && backward && p->g->mix >= 0) { /* what goes into the block has no gradient */
        if (p->lowest == 0)
            grad_mat_backward(p, (struct at){ p->g->mix, 0, NULL }, NULL, dx, p->both, p->n);
    } else if (real && backward && p->b->trace != NULL)
        p->b->trace(p->b->trace_ctx, p->g->embd, 0, p->n, NULL, dx, p->all_rows);
    return loss;
}

/* What is the same through the pass: where sequences begin, and room for products. */
static void begin(struct pass *p, int rank)
{
    int64_t *first = grad_take_longs(&p->stack, p->b->n_seq + 1);
    int32_t *rows = grad_take_ints(&p->stack, p->n);

    p->tile = grad_take(&p->stack, p->g->tile);
    p->tools = (struct grad_tools){ p->g->pool, p->g->simd,
                                    grad_take(&p->stack, (int64_t)grad_product_floats(pool_size(p->g->pool))) };
    p->low = grad_take(&p->stack, 2 * p->n * rank);
    if (p->stack.base == NULL)
        return;
    first[0] = 0;
    for (int i = 0; i < p->b->n_seq; i++)
        first[i + 1] = first[i] + p->b->seq[i].n;
    for (int64_t i = 0; i < p->n; i++)
        rows[i] = (int32_t)i;
    p->first = first;
    p->all_rows = rows;
}

static int64_t count(struct grad *g, const struct grad_batch *b, const int64_t *first, int64_t n, int rank, bool backward)
{
    struct pass p = { .g = g, .b = b, .loops = grad_loops(g->simd), .n = n, .first = first };

    begin(&p, rank);
    (void)walk(&p, backward);
    return p.stack.top;
}

void grad_hidden(const struct grad *g, float *rows, int64_t n)
{
    const struct pass p = { .g = (struct grad *)(uintptr_t)g, .loops = grad_loops(g->simd) };

    grad_norm(&p, rows, rows, g->trunk_norm, g->plan.n_embd, n);
}

int64_t grad_bytes(const struct grad *g, int64_t n_rows, int rank, bool keep)
{
    const int64_t first[2] = { 0, n_rows };
    const struct grad_batch one = { .n_seq = 1, .keep = keep };

    return count((struct grad *)(uintptr_t)g, &one, first, n_rows, rank, true) * (int64_t)sizeof(float);
}

static enum err_code check(const struct grad *g, const struct grad_batch *b, bool backward, int64_t *n, int *rank, int *lowest,
                           struct err *e)
{
    *n = 0;
    *rank = 0;
    *lowest = b->trace != NULL ? 0 : g->plan.n_layer;
    for (int s = 0; s < b->n_seq; s++) {
        if (b->seq[s].n < 1)
            return err_set(e, ERR_ARG, "sequence %d is empty", s);
        if ((b->seq[s].hidden != NULL) != (g->mix >= 0))
            return err_set(e, ERR_ARG, "sequence %d: hidden rows are for a multi-token-prediction block", s);
        *n += b->seq[s].n;
        for (int i = 0; i < b->seq[s].n; i++)
            if (b->seq[s].token[i] < 0 || b->seq[s].token[i] >= g->plan.n_vocab || b->seq[s].target[i] >= g->plan.n_vocab)
                return err_set(e, ERR_ARG, "sequence %d has a token that the model does not have", s);
    }
    for (int i = 0; i < b->n_adapter; i++) {
        const struct grad_adapter *a = &b->adapter[i];

        if (a->matrix < 0 || a->matrix >= g->n_mat || a->matrix == g->embd || a->rank < 0 || a->from < 0 || a->from > a->to ||
            a->to > b->n_seq)
            return err_set(e, ERR_ARG, "adapter %d is for no matrix or no sequences of the batch", i);
        if (a->rank == 0 && backward)
            return err_set(e, ERR_ARG, "adapter %d is scales, which have no gradient", i);
        *rank = a->rank > *rank ? a->rank : *rank;
        if ((a->da != NULL || a->db != NULL) && a->matrix != g->head)
            *lowest = g->mat[a->matrix].layer < *lowest ? g->mat[a->matrix].layer : *lowest;
    }
    return *n > 0 && *n < INT32_MAX ? ERR_OK : err_set(e, ERR_ARG, "no rows");
}

static enum err_code run(struct grad *g, const struct grad_batch *b, bool backward, double *loss, struct err *e)
{
    struct pass p = { .g = g, .b = b, .loops = grad_loops(g->simd) };
    int64_t *first, need;
    int rank;

    if (check(g, b, backward, &p.n, &rank, &p.lowest, e))
        return e->code;
    first = calloc((size_t)b->n_seq + 1, sizeof *first);
    if (first == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int i = 0; i < b->n_seq; i++)
        first[i + 1] = first[i] + b->seq[i].n;
    need = count(g, b, first, p.n, rank, backward);
    free(first);
    if (need > g->memory_floats) {
        free(g->memory);
        g->memory = malloc((size_t)need * sizeof *g->memory);
        g->memory_floats = g->memory == NULL ? 0 : need;
        if (g->memory == NULL)
            return err_set(e, ERR_NOMEM, "out of memory: a pass of %lld rows takes %.2f GB", (long long)p.n,
                           (double)need * sizeof(float) / 1e9);
    }
    p.stack.base = g->memory;
    begin(&p, rank);
    *loss = walk(&p, backward);
    return ERR_OK;
}

enum err_code grad_forward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e)
{
    return run(g, b, false, loss, e);
}

enum err_code grad_backward(struct grad *g, const struct grad_batch *b, double *loss, struct err *e)
{
    return run(g, b, true, loss, e);
}
