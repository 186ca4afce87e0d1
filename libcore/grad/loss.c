/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - the output's matrix and the loss of the rows that have one, some rows at a time. */
#include <string.h>

#include "base/pool.h"
#include "grad/internal.h"

enum { LOGITS = 1 << 23, ROWS = 512 }; /* floats, rows at a time */

struct job {
    const struct pass *p;
    float *logits; /* [n][n_vocab] */
    const int32_t *row, *seq;
    double *loss;
};

int64_t grad_loss_rows_max(const struct pass *p)
{
    int64_t n = LOGITS / p->g->plan.n_vocab;

    n = n < 1 ? 1 : n > ROWS ? ROWS : n;
    return n < p->n ? n : p->n;
}

double grad_cross_entropy(float *logits, int32_t n, int32_t target, float weight)
{
    float top = logits[0], at, f;
    double sum = 0.0;

    for (int32_t i = 1; i < n; i++)
        top = logits[i] > top ? logits[i] : top;
    at = logits[target] - top;
    for (int32_t i = 0; i < n; i++) {
        logits[i] = expf(logits[i] - top);
        sum += (double)logits[i];
    }
    f = (float)((double)weight / sum);
    for (int32_t i = 0; i < n; i++)
        logits[i] *= f;
    logits[target] -= weight;
    return (double)weight * (log(sum) - (double)at);
}

/* The loss that a sequence wants of its row `at`. */
static double seq_loss(const struct grad_seq *s, int at, float *logits, int32_t n)
{
    int64_t before = 0;

    if (s->said == NULL)
        return grad_cross_entropy(logits, n, s->target[at], s->weight);
    for (int i = 0; i < at; i++)
        before += s->target[i] >= 0;
    return grad_divergence(&s->said[before], logits, n, s->weight);
}

static void loss_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const struct grad_batch *b = j->p->b;
    int32_t n = j->p->g->plan.n_vocab;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int s = j->seq[i];
        int at = (int)(j->row[i] - j->p->first[s]);
        float *logits = j->logits + i * n;

        j->loss[i] = b->loss != NULL ? b->loss(b->loss_ctx, s, at, logits, n) : seq_loss(&b->seq[s], at, logits, n);
    }
}

int64_t grad_loss_rows(const struct pass *p, int *s, int *i, int64_t max, int32_t *row, int32_t *seq)
{
    int64_t n = 0;

    for (; *s < p->b->n_seq; ++*s, *i = 0)
        for (; *i < p->b->seq[*s].n; ++*i) {
            if (p->b->seq[*s].target[*i] < 0)
                continue;
            if (n == max)
                return n;
            seq[n] = *s;
            row[n++] = (int32_t)(p->first[*s] + *i);
        }
    return n;
}

static void part_back(struct pass *p, const struct job *j, float *dx, const float *in, const float *normed,
                      float *dnormed, float *din, int64_t n)
{
    int64_t d = p->g->plan.n_embd;

    memset(dnormed, 0, (size_t)(n * d) * sizeof *dnormed);
    memset(din, 0, (size_t)(n * d) * sizeof *din);
    grad_host_product_back(p, (struct at){ .matrix = p->g->head, .row = j->row }, dnormed, j->logits, normed, n);
    grad_host_norm_back(p, din, dnormed, in, p->g->out_norm, d, n);
    for (int64_t i = 0; i < n; i++)
        memcpy(dx + j->row[i] * d, din + i * d, (size_t)d * sizeof *dx);
}

double grad_host_loss(struct pass *p, float *dx, const float *x)
{
    int64_t mark = p->stack.used, max = grad_loss_rows_max(p), d = p->g->plan.n_embd, n;
    float *in = grad_take(&p->stack, max * d), *normed = grad_take(&p->stack, max * d);
    float *dnormed = grad_take(&p->stack, max * d), *din = grad_take(&p->stack, max * d);
    float *logits = grad_take(&p->stack, max * p->g->plan.n_vocab);
    int32_t *row = grad_take_ints(&p->stack, max), *seq = grad_take_ints(&p->stack, max);
    struct job j = { p, logits, row, seq, (double *)(void *)grad_take(&p->stack, 2 * max) };
    double sum = 0.0;
    int s = 0, i = 0;

    p->stack.used = mark;
    if (p->stack.base == NULL)
        return 0.0;
    if (p->b->seq_loss != NULL)
        memset(p->b->seq_loss, 0, (size_t)p->b->n_seq * sizeof(double));
    while ((n = grad_loss_rows(p, &s, &i, max, row, seq)) > 0) {
        for (int64_t r = 0; r < n; r++)
            memcpy(in + r * d, x + row[r] * d, (size_t)d * sizeof *in);
        grad_host_norm(p, normed, in, p->g->out_norm, d, n);
        grad_host_product(p, (struct at){ .matrix = p->g->head, .row = row }, logits, normed, n);
        pool_for(p->g->pool, n, 1, loss_piece, &j);
        for (int64_t r = 0; r < n; r++) {
            sum += j.loss[r];
            if (p->b->seq_loss != NULL)
                p->b->seq_loss[seq[r]] += j.loss[r];
        }
        if (dx != NULL)
            part_back(p, &j, dx, in, normed, dnormed, din, n);
    }
    return sum;
}
