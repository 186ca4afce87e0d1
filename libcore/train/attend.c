/* SPDX-License-Identifier: Apache-2.0 */
/* attend.c - attention of blocks over their contexts and themselves, and its gradient.
 *
 * A piece of work is a text and a head of keys: nobody else writes to the gradients of these keys.
 * Rows of its blocks come up to ATTEND_ROWS at a time, in whole blocks. With P a row's weights,
 * S its scores and D = dO . O:
 *   dV += P^T dO;  dS = P (dO V^T - D);  dQ = scale dS K;  dK += scale dS^T Q */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "train/host.h"

/* Rows of some blocks of a text, for one head. */
struct some {
    const struct train_gemms *gemms;
    const struct dev_text *text;
    int first, n;      /* blocks */
    int64_t row, rows; /* of the batch */
    int64_t seen;      /* context rows that the last one sees, at most */
    int head, of;      /* of queries; of keys */
    float *s, *d;      /* [rows][seen]: weights, and gradients of scores */
};

enum { ATTEND_ROWS = 256 }; /* rows of blocks whose weights are in memory at a time */

static struct dev_matrix matrix_of(const float *v, int64_t ld, bool turned)
{
    return (struct dev_matrix){ v, ld, turned };
}

static float dot_floats(const float *x, const float *y, int64_t n)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void axpy(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static const struct dev_block *block_of(const struct dev_attend *a, int64_t row, int *i)
{
    while (row >= a->block[*i].row + a->block[*i].n)
        ++*i;
    return &a->block[*i];
}

static int64_t q_ld(const struct dev_attend *a)
{
    return (int64_t)a->n_head * a->head_dim;
}

static int64_t k_ld(const struct dev_attend *a)
{
    return (int64_t)a->n_head_kv * a->head_dim;
}

/* Where a row's head begins. */
static int64_t at_q(const struct dev_attend *a, int64_t row, int head)
{
    return row * q_ld(a) + (int64_t)head * a->head_dim;
}

static int64_t at_k(const struct dev_attend *a, int64_t row, int head)
{
    return row * k_ld(a) + (int64_t)head * a->head_dim;
}

/* Scores of the context: s = q kc^T. */
static void context_scores(const struct dev_attend *a, const struct some *m)
{
    train_gemm_one(m->gemms, m->rows, m->seen, a->head_dim, matrix_of(a->q + at_q(a, m->row, m->head), q_ld(a), false),
                   matrix_of(a->kc + at_k(a, m->text->context, m->of), k_ld(a), true), 0, m->s, m->seen);
}

static float scale_of(const struct dev_attend *a)
{
    return 1.0f / sqrtf((float)a->head_dim);
}

/* Scores of a row's own block. */
static void own_scores(const struct dev_attend *a, const struct some *m, const struct dev_block *b, int64_t row,
                       float own[DEV_BLOCK_MAX])
{
    for (int j = 0; j < b->n; j++)
        own[j] = scale_of(a) * dot_floats(a->q + at_q(a, row, m->head), a->k + at_k(a, b->row + j, m->of), a->head_dim);
}

/* Weights of one row in place of its scores; what it does not see is 0. */
static void weigh_row(const struct dev_attend *a, const struct some *m, const struct dev_block *b, int64_t row)
{
    float own[DEV_BLOCK_MAX], *s = m->s + (row - m->row) * m->seen, *o = a->o + at_q(a, row, m->head);
    const float scale = scale_of(a);
    float max = -INFINITY, sum = 0;

    own_scores(a, m, b, row, own);
    for (int j = 0; j < b->n; j++)
        max = own[j] > max ? own[j] : max;
    for (int64_t t = 0; t < b->start; t++) {
        s[t] *= scale;
        max = s[t] > max ? s[t] : max;
    }
    for (int64_t t = 0; t < b->start; t++) {
        s[t] = expf(s[t] - max);
        sum += s[t];
    }
    for (int j = 0; j < b->n; j++) {
        own[j] = expf(own[j] - max);
        sum += own[j];
    }
    for (int64_t t = 0; t < b->start; t++)
        s[t] /= sum;
    memset(s + b->start, 0, (size_t)(m->seen - b->start) * sizeof *s);
    memset(o, 0, (size_t)a->head_dim * sizeof *o);
    for (int j = 0; j < b->n; j++)
        axpy(o, own[j] / sum, a->v + at_k(a, b->row + j, m->of), a->head_dim);
    a->lse[row * a->n_head + m->head] = max + logf(sum);
}

static void attend_rows(const struct dev_attend *a, const struct some *m)
{
    int i = m->first;

    context_scores(a, m);
    for (int64_t r = m->row; r < m->row + m->rows; r++)
        weigh_row(a, m, block_of(a, r, &i), r);
    train_gemm_one(m->gemms, m->rows, a->head_dim, m->seen, matrix_of(m->s, m->seen, false),
                   matrix_of(a->vc + at_k(a, m->text->context, m->of), k_ld(a), false), 1,
                   a->o + at_q(a, m->row, m->head), q_ld(a));
}

/* One row: weights in m->s and gradients of scores in m->d, which holds dO Vc^T; its own block's part at once. */
static void row_back(const struct dev_attend *a, const struct some *m, const struct dev_block *b, int64_t row)
{
    float own[DEV_BLOCK_MAX], *s = m->s + (row - m->row) * m->seen, *d = m->d + (row - m->row) * m->seen;
    const float scale = scale_of(a), lse = a->lse[row * a->n_head + m->head];
    const float *d_o = a->d_o + at_q(a, row, m->head), *q = a->q + at_q(a, row, m->head);
    const float sum = dot_floats(d_o, a->o + at_q(a, row, m->head), a->head_dim);
    float *dq = a->dq + at_q(a, row, m->head);

    for (int64_t t = 0; t < b->start; t++) {
        s[t] = expf(s[t] * scale - lse);
        d[t] = s[t] * (d[t] - sum) * scale;
    }
    memset(s + b->start, 0, (size_t)(m->seen - b->start) * sizeof *s);
    memset(d + b->start, 0, (size_t)(m->seen - b->start) * sizeof *d);
    memset(dq, 0, (size_t)a->head_dim * sizeof *dq);
    own_scores(a, m, b, row, own);
    for (int j = 0; j < b->n; j++) {
        const int64_t at = at_k(a, b->row + j, m->of);
        const float p = expf(own[j] - lse), ds = p * (dot_floats(d_o, a->v + at, a->head_dim) - sum) * scale;

        axpy(a->dv + at, p, d_o, a->head_dim);
        axpy(a->dk + at, ds, q, a->head_dim);
        axpy(dq, ds, a->k + at, a->head_dim);
    }
}

static void attend_back(const struct dev_attend *a, const struct some *m)
{
    const struct dev_matrix q = matrix_of(a->q + at_q(a, m->row, m->head), q_ld(a), false);
    const struct dev_matrix d_o = matrix_of(a->d_o + at_q(a, m->row, m->head), q_ld(a), false);
    const int64_t at = at_k(a, m->text->context, m->of), dim = a->head_dim;
    int i = m->first;

    context_scores(a, m);
    train_gemm_one(m->gemms, m->rows, m->seen, dim, d_o, matrix_of(a->vc + at, k_ld(a), true), 0, m->d, m->seen);
    for (int64_t r = m->row; r < m->row + m->rows; r++)
        row_back(a, m, block_of(a, r, &i), r);
    train_gemm_one(m->gemms, m->rows, dim, m->seen, matrix_of(m->d, m->seen, false),
                   matrix_of(a->kc + at, k_ld(a), false), 1, a->dq + at_q(a, m->row, m->head), q_ld(a));
    train_gemm_one(m->gemms, m->seen, dim, m->rows, matrix_of(m->d, m->seen, true), q, 1, a->dkc + at, k_ld(a));
    train_gemm_one(m->gemms, m->seen, dim, m->rows, matrix_of(m->s, m->seen, true), d_o, 1, a->dvc + at, k_ld(a));
}

/* ---- all texts and heads ---- */

struct all {
    const struct dev_attend *a;
    const struct train_gemms *gemms;
    int64_t part; /* floats of a thread's scratch */
    void (*fn)(const struct dev_attend *a, const struct some *m);
};

static void one_head(const struct all *x, struct some *m)
{
    const struct dev_text *t = m->text;
    const struct dev_block *block = x->a->block;

    for (m->first = t->first; m->first < t->first + t->n; m->first += m->n) {
        m->row = block[m->first].row;
        m->rows = m->seen = 0;
        for (m->n = 0; m->first + m->n < t->first + t->n; m->n++) {
            const struct dev_block *b = &block[m->first + m->n];

            if (m->rows + b->n > ATTEND_ROWS)
                break;
            m->rows += b->n;
            m->seen = b->start > m->seen ? b->start : m->seen;
        }
        x->fn(x->a, m);
    }
}

static void attend_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct all *x = ctx;
    const struct dev_attend *a = x->a;
    const int each = a->n_head / a->n_head_kv;
    float *scratch = a->scratch + worker * x->part;

    for (int64_t i = begin; i < end; i++) {
        struct some m = { .gemms = x->gemms,
                          .text = &a->text[i / a->n_head_kv],
                          .of = (int)(i % a->n_head_kv),
                          .s = scratch,
                          .d = scratch + x->part / 2 };

        for (m.head = m.of * each; m.head < (m.of + 1) * each; m.head++)
            one_head(x, &m);
    }
}

enum { SCRATCH = 2 * ATTEND_ROWS };

static void all_heads(struct dev_math *m, const struct dev_attend *a,
                      void (*fn)(const struct dev_attend *a, const struct some *m))
{
    struct all x = { a, &train_host_of(m)->gemms, SCRATCH * a->seen_max, fn };

    pool_for(train_host_pool(m), (int64_t)a->n_text * a->n_head_kv, 1, attend_piece, &x);
}

static void attend_forward(struct dev_math *m, const struct dev_attend *a)
{
    all_heads(m, a, attend_rows);
}

static void backward(struct dev_math *m, const struct dev_attend *a)
{
    all_heads(m, a, attend_back);
}

static int64_t scratch_floats(const struct dev_math *m, int64_t rows, int n_head, int64_t seen_max)
{
    (void)rows;
    (void)n_head;
    return SCRATCH * seen_max * pool_size(((const struct train_host *)m)->gemms.pool);
}

void train_host_attend(struct dev_math *m)
{
    m->attend = attend_forward;
    m->attend_back = backward;
    m->attend_floats = scratch_floats;
}
