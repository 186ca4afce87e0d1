/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the operations of a pass on the host: the specification of those of other devices. */
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

static const float *vector(struct grad *g, const float *v, int64_t n)
{
    (void)g;
    (void)n;
    return v;
}

static float *pass_memory(struct grad *g, int64_t floats)
{
    if (floats > g->memory_floats) {
        free(g->memory);
        g->memory = malloc((size_t)floats * sizeof *g->memory);
        g->memory_floats = g->memory == NULL ? 0 : floats;
    }
    return g->memory;
}

/* What is the same through the pass: numbers of rows, and room for products. */
static bool begin_pass(struct pass *p)
{
    int32_t *rows = grad_take_ints(&p->stack, p->n);

    p->tile = grad_take(&p->stack, p->g->tile);
    p->tools = (struct grad_tools){ p->g->pool, p->g->simd,
                                    grad_take(&p->stack, (int64_t)grad_product_floats(pool_size(p->g->pool))) };
    p->low = grad_take(&p->stack, 2 * p->n * p->rank);
    for (int64_t i = 0; rows != NULL && i < p->n; i++)
        rows[i] = (int32_t)i;
    p->all_rows = rows;
    return true;
}

static enum err_code end_pass(struct pass *p, struct err *e)
{
    (void)p;
    (void)e;
    return ERR_OK;
}

static void zero_floats(const struct pass *p, float *x, int64_t n)
{
    (void)p;
    memset(x, 0, (size_t)n * sizeof *x);
}

static void copy_floats(const struct pass *p, float *to, const float *from, int64_t n)
{
    (void)p;
    memcpy(to, from, (size_t)n * sizeof *to);
}

static void add_floats(const struct pass *p, float *y, const float *x, int64_t n)
{
    p->loops->axpy(y, x, 1.0f, n);
}

struct norm_job {
    const struct pass *p;
    float *y;
    const float *x, *w, *dy;
    int64_t n;
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

void grad_host_norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t n_rows)
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

void grad_host_norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                         int64_t n_rows)
{
    pool_for(p->g->pool, n_rows, grad_grain(4 * n), norm_back_piece, &(struct norm_job){ p, dx, x, w, dy, n });
}

struct words {
    const struct pass *p;
    float *to;
};

static void words_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct words *w = ctx;
    const struct pass *p = w->p;
    const struct grad_matrix *m = &p->g->mat[p->g->embd];
    quant_decode_fn *decode = cpu_decoder(m->type, p->g->simd);

    (void)worker;
    for (int64_t s = begin; s < end; s++)
        for (int i = 0; i < p->b->seq[s].n; i++)
            decode(w->to + (p->first[s] + i) * m->n_in,
                   (const unsigned char *)m->data + p->b->seq[s].token[i] * quant_row_bytes(m->type, m->n_in), m->n_in);
}

void grad_host_embed(const struct pass *p, float *x)
{
    pool_for(p->g->pool, p->b->n_seq, 1, words_piece, &(struct words){ p, x });
}

static void embed_back(const struct pass *p, const float *dx)
{
    p->b->trace(p->b->trace_ctx, p->g->embd, 0, p->n, NULL, dx, p->all_rows);
}

const struct grad_ops grad_host_ops = {
    .vector = vector,
    .memory = pass_memory,
    .begin = begin_pass,
    .end = end_pass,
    .zero = zero_floats,
    .copy = copy_floats,
    .add = add_floats,
    .embed = grad_host_embed,
    .embed_back = embed_back,
    .norm = grad_host_norm,
    .norm_back = grad_host_norm_back,
    .product = grad_host_product,
    .product_back = grad_host_product_back,
    .attn = grad_host_attn,
    .attn_back = grad_host_attn_back,
    .gdn = grad_host_gdn,
    .gdn_back = grad_host_gdn_back,
    .glu = grad_host_glu,
    .glu_back = grad_host_glu_back,
    .route = grad_host_route,
    .moe_sum = grad_host_moe_sum,
    .moe_sum_back = grad_host_moe_sum_back,
    .gather_back = grad_host_gather_back,
    .loss = grad_host_loss,
    .noise_pairs = grad_host_noise_pairs,
    .noise_add = grad_host_noise_add,
};
