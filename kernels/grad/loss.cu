/* SPDX-License-Identifier: Apache-2.0 */
/* loss.cu - gradients: the output's matrix and the loss of the rows that have one, some rows at a time, as
 * libcore/grad/loss.c and soft.c have them.                                        room: kernels */
#include <stdlib.h>

#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"
extern "C" {
#include "base/pool.h"
}

enum { THREADS = 256, WARPS = THREADS / 32 };

/* to[i] = from[row of i], or back. A block has a row. */
static __global__ void __launch_bounds__(THREADS)
    move_rows(float *to, const float *from, const loss_row *row, int d, bool back)
{
    const int64_t here = (int64_t)blockIdx.x * d, there = (int64_t)row[blockIdx.x].row * d;

    for (int i = threadIdx.x; i < d; i += THREADS)
        to[(back ? there : here) + i] = from[(back ? here : there) + i];
}

static __device__ double block_total(double v, double *tmp)
{
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, half);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        tmp[threadIdx.x / 32] = v;
    __syncthreads();
    v = tmp[0];
    for (int i = 1; i < WARPS; i++)
        v += tmp[i];
    return v;
}

/* grad_divergence() with the largest logit and the sum of the exponentials; q: GRAD_SOFT of them. Returns the factor of
 * the exponentials in the gradient. Of one thread. */
static __device__ double divergence(const grad_soft *want, const float *logits, int n, float top, double sum,
                                    float weight, double *q, float *each)
{
    double loss = 0, p_rest = 1, q_rest = 1;
    int have = 0;

    for (; have < GRAD_SOFT && want->id[have] >= 0; have++) {
        const double p = (double)want->p[have];

        q[have] = exp((double)(logits[want->id[have]] - top)) / sum;
        p_rest -= p;
        q_rest -= q[have];
        if (p > 0)
            loss += p * (log(p) - ((double)(logits[want->id[have]] - top) - log(sum)));
    }
    p_rest = p_rest > 0 && have < n ? p_rest : 0;
    q_rest = q_rest > 1e-12 ? q_rest : 1e-12;
    if (p_rest > 0)
        loss += p_rest * log(p_rest / q_rest);
    *each = (float)((double)weight * (1 - p_rest / q_rest) / sum);
    return (double)weight * loss;
}

/* A block has a row, whose logits become the gradient. */
static __global__ void __launch_bounds__(THREADS)
    losses(float *logits, double *loss, const loss_row *row, const grad_soft *said, int n)
{
    __shared__ float tmp[WARPS], each;
    __shared__ double tmp2[WARPS], q[GRAD_SOFT];
    const loss_row r = row[blockIdx.x];
    const grad_soft *want = r.said < 0 ? NULL : said + r.said;
    float *l = logits + (int64_t)blockIdx.x * n, top = -INFINITY;
    double sum = 0;

    for (int i = threadIdx.x; i < n; i += THREADS)
        top = fmaxf(top, l[i]);
    top = block_max(top, tmp);
    for (int i = threadIdx.x; i < n; i += THREADS)
        sum += (double)expf(l[i] - top);
    sum = block_total(sum, tmp2);
    if (threadIdx.x == 0 && want != NULL)
        loss[blockIdx.x] = divergence(want, l, n, top, sum, r.weight, q, &each);
    if (threadIdx.x == 0 && want == NULL) {
        loss[blockIdx.x] = (double)r.weight * (log(sum) - (double)(l[r.target] - top));
        each = (float)((double)r.weight / sum);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS)
        l[i] = each * expf(l[i] - top);
    __syncthreads();
    if (threadIdx.x == 0 && want == NULL)
        l[r.target] -= r.weight;
    if (threadIdx.x < GRAD_SOFT && want != NULL && want->id[threadIdx.x] >= 0)
        l[want->id[threadIdx.x]] = (float)((double)r.weight * (q[threadIdx.x] - (double)want->p[threadIdx.x]));
}

/* The caller's losses, on the host. */
struct asked {
    const struct pass *p;
    float *logits;
    const int32_t *row, *seq;
    double *loss;
};

static void asked_piece(void *ctx, int64_t begin, int64_t end, int)
{
    const struct asked *a = (const struct asked *)ctx;
    const int32_t n = a->p->g->plan.n_vocab;

    for (int64_t i = begin; i < end; i++)
        a->loss[i] = a->p->b->loss(a->p->b->loss_ctx, a->seq[i], (int)(a->row[i] - a->p->first[a->seq[i]]),
                                   a->logits + i * n, n);
}

static void ask_rows(const struct pass *p, float *logits, struct asked a, int64_t n)
{
    struct cuda *c = cgrad_of(p)->c;
    const size_t bytes = (size_t)(n * p->g->plan.n_vocab) * sizeof *logits;

    a.logits = (float *)malloc(bytes);
    if (a.logits == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "logits");
        return;
    }
    TRY(c, cudaMemcpyAsync(a.logits, logits, bytes, cudaMemcpyDeviceToHost, c->stream));
    TRY(c, cudaStreamSynchronize(c->stream));
    if (c->bad == cudaSuccess)
        pool_for(p->g->pool, n, 1, asked_piece, &a);
    if (p->backward) {
        TRY(c, cudaMemcpyAsync(logits, a.logits, bytes, cudaMemcpyHostToDevice, c->stream));
        TRY(c, cudaStreamSynchronize(c->stream));
    }
    free(a.logits);
}

struct part {
    float *in, *normed, *dnormed, *din, *logits;
    const int32_t *row; /* on the host */
    const struct loss_row *at;
    int64_t n;
};

static void part_back(const struct pass *p, const struct part *t, float *dx)
{
    const int64_t d = p->g->plan.n_embd;
    struct at at = {};

    at.matrix = p->g->head;
    at.row = t->row;
    cuda_grad_zero(p, t->dnormed, t->n * d);
    cuda_grad_zero(p, t->din, t->n * d);
    cuda_grad_product_back(p, at, t->dnormed, t->logits, t->normed, t->n);
    cuda_grad_norm_back(p, t->din, t->dnormed, t->in, p->g->out_norm, d, t->n);
    LAUNCH(cgrad_of(p)->c, move_rows, grid_of(t->n, 1), THREADS, 0, dx, t->din, t->at, (int)d, true);
}

static void part_forward(const struct pass *p, const struct part *t, const float *x)
{
    const int64_t d = p->g->plan.n_embd;
    struct at at = {};

    at.matrix = p->g->head;
    at.row = t->row;
    LAUNCH(cgrad_of(p)->c, move_rows, grid_of(t->n, 1), THREADS, 0, t->in, x, t->at, (int)d, false);
    cuda_grad_norm(p, t->normed, t->in, p->g->out_norm, d, t->n);
    cuda_grad_product(p, at, t->logits, t->normed, t->n);
}

/* All parts; what the host is asked for goes to asked[]. */
static void parts(struct pass *p, struct part t, float *dx, const float *x, int64_t max, int32_t *row, int32_t *seq,
                  double *asked)
{
    struct cgrad *g = cgrad_of(p);
    int s = 0, i = 0;

    t.row = row;
    for (int64_t at = 0, chunk = 0; (t.n = grad_loss_rows(p, &s, &i, max, row, seq)) > 0; at += t.n, chunk++) {
        g->lossy.cut = g->loss_cut + chunk * (p->b->n_seq + 1);
        g->lossy.n = p->b->n_seq + 1;
        t.at = g->loss_row + at;
        part_forward(p, &t, x);
        if (p->b->loss != NULL)
            ask_rows(p, t.logits, { p, NULL, row, seq, asked + at }, t.n);
        else
            LAUNCH(g->c, losses, grid_of(t.n, 1), THREADS, 0, t.logits, g->loss + at, t.at, g->said,
                   (int)p->g->plan.n_vocab);
        if (dx != NULL)
            part_back(p, &t, dx);
    }
}

double cuda_grad_loss(struct pass *p, float *dx, const float *x)
{
    const int64_t mark = p->stack.used, max = grad_loss_rows_max(p), d = p->g->plan.n_embd;
    struct cgrad *g = cgrad_of(p);
    struct part t = {};
    double sum = 0;
    int at = 0;

    t.in = grad_take(&p->stack, max * d);
    t.normed = grad_take(&p->stack, max * d);
    t.dnormed = grad_take(&p->stack, max * d);
    t.din = grad_take(&p->stack, max * d);
    t.logits = grad_take(&p->stack, max * p->g->plan.n_vocab);
    p->stack.used = mark;
    if (p->stack.base == NULL)
        return 0;
    int32_t *rows = (int32_t *)malloc(2 * (size_t)max * sizeof *rows);
    if (rows == NULL) {
        cuda_fail(g->c, cudaErrorMemoryAllocation, "rows");
        return 0;
    }
    parts(p, t, dx, x, max, rows, rows + max, g->loss_host);
    if (p->b->loss == NULL) {
        TRY(g->c, cudaMemcpyAsync(g->loss_host, g->loss, (size_t)g->n_loss * sizeof *g->loss, cudaMemcpyDeviceToHost,
                                  g->c->stream));
        TRY(g->c, cudaStreamSynchronize(g->c->stream));
    }
    for (int s = 0; s < p->b->n_seq; s++) {
        double of = 0;

        for (int i = 0; i < p->b->seq[s].n; i++)
            if (p->b->seq[s].target[i] >= 0) {
                of += g->loss_host[at];
                sum += g->loss_host[at++];
            }
        if (p->b->seq_loss != NULL)
            p->b->seq_loss[s] = of;
    }
    free(rows);
    return sum;
}
