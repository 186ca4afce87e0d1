/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - the inner loops, for each instruction set with the same bytes.      room: grad */
#ifndef GRAD_LOOPS_H
#define GRAD_LOOPS_H
#include "base/base.h"

enum {
    GRAD_COLS = 16,     /* of a panel of b */
    GRAD_ROWS_MAX = 12, /* rows of a at once */
};

/* A token of one head of the gated delta rule (ops/ops.h, op_gdn): q and k normalised, S [dim][dim_v]. */
struct grad_delta {
    int dim, dim_v;
    const float *q, *k, *v;
    float g, b;
};

struct grad_loops {
    int rows; /* of `panel` */
    /* out[i][j] = sum over t < n of a[i][t * a_k] * b[t * GRAD_COLS + j], t ascending, fused */
    void (*panel)(float *out, const float *const *a, int64_t a_k, const float *b, int64_t n);
    /* c = scale * sums, GRAD_COLS of them, or added to c */
    void (*put)(float *c, const float *sums, float scale, bool add);
    void (*times_add)(float *y, const float *x, const float *w, int64_t n); /* y[i] += w[i] x[i] */
    /* 16 running sums, element i to sum i % 16, folded by halves */
    float (*dot)(const float *x, const float *y, int64_t n);
    void (*axpy)(float *y, const float *x, float s, int64_t n); /* y += s x */
    /* to = the state after the token, from = before it, apart; y [dim_v]; tmp [dim_v] */
    void (*delta)(float *to, const float *from, float *y, float *tmp, const struct grad_delta *t);
    /* dS: the gradient of the state after the token, which becomes that before it. dq, dk, dv are set; dgb: of g, then
     * of b. tmp [4 * dim_v] */
    void (*delta_back)(float *dS, const float *from, const float *dy, float *dq, float *dk, float *dv, float dgb[2],
                       float *tmp, const struct grad_delta *t);
    void (*sigmoid)(float *y, const float *x, int64_t n); /* y may not be x */
};
extern const struct grad_loops grad_loops_scalar;
#if defined(__x86_64__)
extern const struct grad_loops grad_loops_avx2, grad_loops_avx512;
#endif
#endif
