/* SPDX-License-Identifier: Apache-2.0 */
/* shield.c - an adapter learns beside what old texts use. */
#include "tune/shield.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/pool.h"
#include "base/simd.h"
#include "grad/grad.h"
#include "tune/lora.h"

/* One matrix, or one expert of it. */
struct part {
    int64_t n_in;
    float *c; /* [n_in][n_in]: sums of x x', then P */
};

struct tune_shield {
    struct tune_lora *l;
    struct part *part; /* [n] in the order of theta: matrices, their experts */
    int n;
    int *first;    /* [l->n] part of each matrix */
    float *turned; /* [rank][n_in], the largest */
    struct grad_tools tools;
};

static int64_t turned_floats(const struct tune_lora *l)
{
    int64_t most = 0;

    for (int i = 0; i < l->n; i++) {
        const struct adapter_mat *m = &l->file->mat[i];

        most = m->rank * m->n_in > most ? m->rank * m->n_in : most;
    }
    return most;
}

int64_t tune_shield_bytes(const struct tune_lora *l)
{
    int64_t n = turned_floats(l), widest = 0;

    for (int i = 0; i < l->n; i++) {
        const struct adapter_mat *m = &l->file->mat[i];

        n += m->n_mat * m->n_in * m->n_in;
        widest = m->n_in > widest ? m->n_in : widest;
    }
    return n * (int64_t)sizeof(float) + pool_size(grad_pool(l->g)) * 2 * widest * widest * (int64_t)sizeof(double);
}

void tune_shield_close(struct tune_shield *s)
{
    if (s == NULL)
        return;
    for (int i = 0; s->part != NULL && i < s->n; i++)
        free(s->part[i].c);
    free(s->part);
    free(s->first);
    free(s->turned);
    free(s->tools.scratch);
    free(s);
}

static bool alloc_parts(struct tune_shield *s)
{
    int at = 0;

    for (int i = 0; i < s->l->n; i++) {
        const struct adapter_mat *m = &s->l->file->mat[i];

        s->first[i] = at;
        for (int64_t x = 0; x < m->n_mat; x++, at++) {
            s->part[at].n_in = m->n_in;
            s->part[at].c = calloc((size_t)(m->n_in * m->n_in), sizeof(float));
            if (s->part[at].c == NULL)
                return false;
        }
    }
    return true;
}

enum err_code tune_shield_open(struct tune_shield **out, struct tune_lora *l, struct err *e)
{
    struct tune_shield *s = calloc(1, sizeof *s);

    if (s == NULL)
        return err_nomem(e);
    s->l = l;
    for (int i = 0; i < l->n; i++)
        s->n += (int)l->file->mat[i].n_mat;
    s->part = calloc((size_t)s->n, sizeof *s->part);
    s->first = calloc((size_t)l->n, sizeof *s->first);
    s->turned = calloc((size_t)turned_floats(l), sizeof *s->turned);
    s->tools = (struct grad_tools){ grad_pool(l->g), simd_features(),
                                    calloc(grad_product_floats(pool_size(grad_pool(l->g))), sizeof(float)) };
    if (s->part == NULL || s->first == NULL || s->turned == NULL || s->tools.scratch == NULL || !alloc_parts(s)) {
        tune_shield_close(s);
        return err_nomem(e);
    }
    *out = s;
    return ERR_OK;
}

static void add_inputs(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy,
                       const int32_t *row)
{
    struct tune_shield *s = ctx;

    (void)dy;
    (void)row;
    for (int i = 0; i < s->l->n && x != NULL; i++) {
        const struct part *p = &s->part[s->first[i] + expert];

        if (s->l->matrix[i] == matrix)
            grad_product(&s->tools, &(struct grad_product){ p->n_in, p->n_in, n, x, x, 1, p->n_in, p->n_in, 1, p->c,
                                                            p->n_in, 1.0f, true });
    }
}

enum err_code tune_shield_see(struct tune_shield *s, const struct grad_seq *seq, int n_seq, struct err *e)
{
    double loss;

    return grad_backward(
        s->l->g, &(struct grad_batch){ .seq = seq, .n_seq = n_seq, .trace = add_inputs, .trace_ctx = s }, &loss, e);
}

/* l [n][n], symmetric, becomes its lower Cholesky factor; false: it has none. All three of these end early, with
 * something useless, if progress says so. */
static bool factor(double *l, int64_t n, const struct progress *progress)
{
    for (int64_t i = 0; i < n && progress_tick(progress, 0, 0); i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = l[i * n + j];

            for (int64_t k = 0; k < j; k++)
                sum -= l[i * n + k] * l[j * n + k];
            if (i == j && !(sum > 0 && sum < INFINITY))
                return false;
            l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
        }
    return true;
}

/* The inverse of a lower factor, row by row. */
static void invert(double *to, const double *l, int64_t n, const struct progress *progress)
{
    for (int64_t i = 0; i < n && progress_tick(progress, 0, 0); i++) {
        double *row = to + i * n;

        memset(row, 0, (size_t)n * sizeof *row);
        row[i] = 1;
        for (int64_t k = 0; k < i; k++)
            for (int64_t j = 0; j <= k; j++)
                row[j] -= l[i * n + k] * to[k * n + j];
        for (int64_t j = 0; j <= i; j++)
            row[j] /= l[i * n + i];
    }
}

/* c = m' m for a lower m, scaled to a mean of 1 on its diagonal; sum is scratch. */
static void square(float *c, double *sum, const double *m, int64_t n, const struct progress *progress)
{
    double trace = 0;

    memset(sum, 0, (size_t)(n * n) * sizeof *sum);
    for (int64_t k = 0; k < n && progress_tick(progress, 0, 0); k++)
        for (int64_t i = 0; i <= k; i++)
            for (int64_t j = 0; j <= i; j++)
                sum[i * n + j] += m[k * n + i] * m[k * n + j];
    for (int64_t i = 0; i < n; i++)
        trace += sum[i * n + i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            c[i * n + j] = c[j * n + i] = (float)(sum[i * n + j] * (double)n / trace);
}

struct raising {
    struct tune_shield *s;
    double rho;
    double *scratch; /* [workers][2][widest^2] */
    int64_t each;
    unsigned char *failed; /* [s->n] 0: not */
    const struct progress *progress;
};
enum { NOT_NUMBERS = 1, TOO_SMALL };

static void raise_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct raising *r = ctx;
    double *l = r->scratch + worker * 2 * r->each, *inverse = l + r->each;

    for (int64_t p = begin; p < end; p++) {
        const int64_t n = r->s->part[p].n_in;
        float *c = r->s->part[p].c;
        double trace = 0;

        for (int64_t i = 0; i < n; i++)
            trace += (double)c[i * n + i];
        if (trace <= 0) { /* nobody came by */
            for (int64_t i = 0; i < n; i++)
                c[i * n + i] = 1;
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                l[i * n + j] = (double)c[i * n + j] * (double)n / trace + (i == j ? r->rho : 0);
        r->failed[p] = factor(l, n, r->progress) ? 0 : isfinite(trace) ? TOO_SMALL : NOT_NUMBERS;
        if (!r->failed[p]) {
            invert(inverse, l, n, r->progress);
            square(c, l, inverse, n, r->progress);
        }
    }
}

enum err_code tune_shield_raise(struct tune_shield *s, double rho, const struct progress *progress, struct err *e)
{
    struct pool *pool = grad_pool(s->l->g);
    struct raising r = { .s = s, .rho = rho, .progress = progress };
    enum err_code code = ERR_OK;

    for (int i = 0; i < s->n; i++)
        r.each = s->part[i].n_in * s->part[i].n_in > r.each ? s->part[i].n_in * s->part[i].n_in : r.each;
    r.scratch = malloc((size_t)pool_size(pool) * 2 * (size_t)r.each * sizeof *r.scratch);
    r.failed = calloc((size_t)s->n, sizeof *r.failed);
    if (r.scratch == NULL || r.failed == NULL)
        code = err_nomem(e);
    else
        pool_for(pool, s->n, 1, raise_piece, &r);
    if (code == ERR_OK && !progress_tick(progress, 1, 1))
        code = err_set(e, ERR_CANCEL, "interrupted");
    for (int i = 0; i < s->n && code == ERR_OK; i++)
        if (r.failed[i] == NOT_NUMBERS)
            code = err_set(e, ERR_FORMAT, "what the model computes for its own texts is not a number");
        else if (r.failed[i])
            code = err_set(e, ERR_ARG, "a shield of %g is too small to be computed", rho);
    free(r.scratch);
    free(r.failed);
    return code;
}

void tune_shield_apply(const struct tune_shield *s, float *v)
{
    for (int i = 0; i < s->l->n; i++) {
        const struct adapter_mat *m = &s->l->file->mat[i];
        const int64_t n = m->rank * m->n_in;

        for (int64_t x = 0; x < m->n_mat; x++, v += n) {
            grad_product(&s->tools, &(struct grad_product){ m->rank, m->n_in, m->n_in, v, s->part[s->first[i] + x].c,
                                                            m->n_in, 1, m->n_in, 1, s->turned, m->n_in, 1.0f, false });
            memcpy(v, s->turned, (size_t)n * sizeof *v);
        }
        v += adapter_b_floats(m);
    }
}
