/* SPDX-License-Identifier: Apache-2.0 */
/* math.h - float32 operations of training, on a GPU or by the host.                room: ops
 *
 * Whoever implements them fills a struct dev_math. All operands lie in its memory, as take() gives it, unless a comment
 * says "host". Matrices are row-major, rows are [rows][dim] without gaps. Operations run in the order in which they are
 * asked for; a call may return before its work is done, and get() and wait() wait for all of it. A failure is sticky:
 * later calls do nothing, and wait() reports it. Sums have a fixed order on one device, but not the same one on all.
 * One thread. */
#ifndef OPS_MATH_H
#define OPS_MATH_H
#include "base/base.h"

struct dev_matrix {
    const float *v;
    int64_t ld;  /* floats from row to row */
    bool turned; /* use the transpose */
};

/* Rows of a block see the first `start` rows of their context, and each other. */
struct dev_block {
    int64_t row;     /* first of its rows in the batch */
    int n;           /* rows, <= DEV_BLOCK_MAX */
    int64_t context; /* first row of its text in the batch; blocks of one text follow each other */
    int64_t start;   /* rows that it sees; its rows' positions are start, start + 1 ... */
};
enum { DEV_BLOCK_MAX = 16, DEV_HEAD_MAX = 256 /* head_dim on a GPU */ };
/* Blocks of one text. */
struct dev_text {
    int first, n; /* blocks */
    int64_t row, n_row, context, n_context;
};
/* Attention of blocks over their contexts and themselves: q, o [rows][n_head][head_dim], k and v
 * [rows][n_head_kv][head_dim], kc and vc the same of contexts; lse [rows][n_head]: log of the sum of a row's weights.
 */
struct dev_attend {
    int n_head, n_head_kv, head_dim;
    const struct dev_block *block;
    const struct dev_text *text;
    int n_block, n_text;
    int64_t seen_max; /* context rows of a text, at most */
    const float *q, *k, *v, *kc, *vc;
    float *o, *lse;
    const float *d_o;                /* gradient of o, and: */
    float *dq, *dk, *dv, *dkc, *dvc; /* dq is written, the others are added to */
    float *scratch;                  /* attend_floats() of them */
};

struct dev_adam {
    int64_t n, step; /* this update is the step-th, from 1 */
    float *w, *m, *v;
    const float *grad;
    const unsigned char *how; /* [n] DEV_ADAM_*: without decay, with it, or not at all; NULL: all with it */
    float rate, b1, b2, eps, decay, clip;
};
enum { DEV_ADAM_PLAIN, DEV_ADAM_DECAYED, DEV_ADAM_NOT };

struct dev_math {
    const char *products; /* what computes them: "cublas", "openblas", "loops" */
    bool host;            /* its memory is the host's, who may read and write there */

    void (*close)(struct dev_math *m);
    int64_t (*left)(const struct dev_math *m);        /* bytes of memory; -1: not known */
    void *(*take)(struct dev_math *m, int64_t bytes); /* NULL: there is no room */
    void (*give)(struct dev_math *m, void *p);        /* NULL is allowed */
    /* From and to the host's memory. put() has read it when it returns. */
    void (*put)(struct dev_math *m, void *to, const void *host, int64_t bytes);
    void (*get)(struct dev_math *m, void *host, const void *from, int64_t bytes);
    void (*copy)(struct dev_math *m, void *to, const void *from, int64_t bytes);
    void (*zero)(struct dev_math *m, void *to, int64_t bytes);
    enum err_code (*wait)(struct dev_math *m, struct err *e); /* ERR_DEVICE */
    bool (*busy)(struct dev_math *m);                         /* something is not done yet */

    /* c[rows][n] = a[rows][k] b[k][n] + beta c, beta 0 or 1. With beta 0, c is not read. */
    void (*product)(struct dev_math *m, int64_t rows, int64_t n, int64_t k, struct dev_matrix a, struct dev_matrix b,
                    float beta, float *c, int64_t ld);
    /* `count` products of matrices that follow each other without gaps; beta 0. */
    void (*products_of)(struct dev_math *m, int64_t count, int64_t rows, int64_t n, int64_t k, const float *a,
                        bool turn_a, const float *b, bool turn_b, float *c);

    /* y = x inv w, inv[rows] = 1 / sqrt(mean of squares of the row + eps). */
    void (*rms)(struct dev_math *m, float *y, float *inv, const float *x, const float *w, int64_t rows, int64_t dim,
                float eps);
    /* Writes the gradient to dx, or adds it if `add` (dx NULL: not wanted); always adds that of w to dw [dim] (NULL:
     * not wanted). Without `add`, dx may be dy. */
    void (*rms_back)(struct dev_math *m, float *dx, bool add, float *dw, const float *dy, const float *x,
                     const float *inv, const float *w, int64_t rows, int64_t dim);
    /* Rotates pairs (i, i + dim / 2) of each head by the angles of the row's position, or back. turn: [positions][dim /
     * 2] of (cos, sin). */
    void (*rope)(struct dev_math *m, float *x, const int32_t *pos, int64_t rows, int heads, int64_t dim,
                 const float *turn, bool back);
    /* h = silu(gate) up. */
    void (*glu)(struct dev_math *m, float *h, const float *gate, const float *up, int64_t n);
    /* gate and up become their gradients. */
    void (*glu_back)(struct dev_math *m, float *gate, float *up, const float *dh, int64_t n);
    void (*add)(struct dev_math *m, float *y, const float *x, int64_t n); /* y += x */
    /* y = by y + ax x; checked: nothing changes if norm() is not finite. */
    void (*blend)(struct dev_math *m, float *y, float by, float ax, const float *x, int64_t n, bool checked);
    /* Each of `count` times n floats is divided by its norm + eps. */
    void (*unit)(struct dev_math *m, float *x, int64_t count, int64_t n, float eps);

    /* to[i] = from[index[i]], or to[index[i]] = from[i]. */
    void (*gather)(struct dev_math *m, float *to, const float *from, const int32_t *index, int64_t rows, int64_t dim);
    void (*scatter)(struct dev_math *m, float *to, const int32_t *index, const float *from, int64_t rows, int64_t dim);
    /* gather() from BF16. */
    void (*widen)(struct dev_math *m, float *to, const uint16_t *from, const int32_t *index, int64_t rows, int64_t dim);

    /* logits [rows][n] become the gradient of weight[i] / total * cross entropy of want[i]; loss[i] = that cross
     * entropy, best[i] the most likely token. */
    void (*cross_entropy)(struct dev_math *m, float *logits, const int32_t *want, const float *weight, double total,
                          float *loss, int32_t *best, int64_t rows, int64_t n);
    /* best[i] of each row. */
    void (*best)(struct dev_math *m, const float *logits, int32_t *best, int64_t rows, int64_t n);

    int64_t (*attend_floats)(const struct dev_math *m, int64_t rows, int n_head, int64_t seen_max);
    void (*attend)(struct dev_math *m, const struct dev_attend *a);
    void (*attend_back)(struct dev_math *m, const struct dev_attend *a);

    /* A step of AdamW, formulas: train/adam.h. If the norm of grad is not finite, nothing changes. */
    void (*adam)(struct dev_math *m, const struct dev_adam *a);
    double (*norm)(struct dev_math *m); /* waits for the last adam(): the norm of its grad */
};

/* Whether this build has what dev_math_open() needs. */
bool dev_math_built(void);
/* A GPU by dev_open()'s name, "cuda" or "cuda:N". ERR_DEVICE: the build lacks CUDA or cuBLAS, or
 * there is no such GPU; ERR_ARG: not a GPU's name. */
MUST_CHECK enum err_code dev_math_open(struct dev_math **out, const char *name, struct err *e);
#endif
