/* SPDX-License-Identifier: Apache-2.0 */
/* f32_vec.h - loops with accumulators in registers, for x86 vectors of any length.
 *
 * Included after f32_body.h by a file that defines VEC (the type), LANES, V_LOAD(p), V_HALVES(p), V_STORE(p, v),
 * V_SET(f), V_ZERO, V_FMA(a, b, c), V_MUL(a, b) and V_SUB(a, b). Columns are independent of each other,
 * so taking four vectors of them at a time gives the bytes of the loops in f32_scalar.c. */

#define V_COLS (4 * LANES)

#define W         float
#define W_LOAD(p) V_LOAD(p)
#define MIX(name) mix_##name
#define AXPY      axpy
#include "cpu/f32_mix.h"

#define W         uint16_t
#define W_LOAD(p) V_HALVES(p)
#define MIX(name) half_mix_##name
#define AXPY      axpy_halves
#include "cpu/f32_mix.h"

/* States of recurrent layers, some vectors of columns from column j on: of several tokens two, which stay in the
 * first-level cache from one token to the next, of one token four, whose rows come in longer pieces. */
#define STATE_2(F) F(0) F(1)
#define STATE_4(F) STATE_2(F) F(2) F(3)
#define COL(p, i)  V_LOAD((p) + (i)*LANES)
#define ZERO_Y(i)  VEC y##i = V_ZERO;
#define PUT_Y(i)   V_STORE(y + (i)*LANES, y##i);

/* What a token asks of the state (sums of S k) is added up while the one before it writes that. A row: S = g S + k d,
 * y += S q. */
#define ZERO_C(i)  VEC c##i = V_ZERO;
#define CLEAR_C(i) c##i = V_ZERO;
#define ASK(i)     c##i = V_FMA(COL(s, i), ki, c##i);
#define ASK_NEW(i) c##i = V_FMA(s##i, V_SET(k[dim + row]), c##i);
#define NEW_D(i)   const VEC d##i = V_MUL(b, V_SUB(COL(v, i), V_MUL(g, c##i)));
#define NEW_S(i) \
    const VEC s##i = V_FMA(ki, d##i, V_MUL(g, COL(s, i))); \
\
    V_STORE(s + (i)*LANES, s##i); \
    y##i = V_FMA(s##i, qi, y##i);
/* Columns from j on, of a state whose rows are ldS apart and begin there. */
#define GDN_COLS(some) \
    TARGET static void gdn_cols_##some(float *S, int64_t ldS, const struct cpu_gdn *t, int64_t j, int dim) \
    { \
        const float *k = t->k, *q = t->q, *v = t->v + j; \
        float *s = S, *y = t->y + j; \
\
        STATE_##some(ZERO_C) for (int row = 0; row < dim; row++, s += ldS) \
        { \
            const VEC ki = V_SET(k[row]); \
\
            STATE_##some(ASK) \
        } \
        for (int r = 0; r < t->n; r++, k += dim, q += dim, v += t->ldv, y += t->ldy) { \
            const VEC g = V_SET(t->g[r]), b = V_SET(t->b[r]); \
\
            STATE_##some(NEW_D) STATE_##some(ZERO_Y) STATE_##some(CLEAR_C) s = S; \
            if (r + 1 < t->n) \
                for (int row = 0; row < dim; row++, s += ldS) { \
                    const VEC ki = V_SET(k[row]), qi = V_SET(q[row]); \
\
                    STATE_##some(NEW_S) STATE_##some(ASK_NEW) \
                } \
            else \
                for (int row = 0; row < dim; row++, s += ldS) { \
                    const VEC ki = V_SET(k[row]), qi = V_SET(q[row]); \
\
                    STATE_##some(NEW_S) \
                } \
            STATE_##some(PUT_Y) \
        } \
    }
GDN_COLS(2)
GDN_COLS(4)

TARGET static void copy_cols(float *to, int64_t ld_to, const float *from, int64_t ld_from, int dim)
{
    for (int row = 0; row < dim; row++, to += ld_to, from += ld_from) {
        V_STORE(to, COL(from, 0));
        V_STORE(to + LANES, COL(from, 1));
    }
}

TARGET static void gdn(float *S, const struct cpu_gdn *t, int dim, int dim_v)
{
    enum { NEAR = 256 };
    _Alignas(64) float cols[NEAR * 2 * LANES];
    int j = 0;

    for (; t->n == 1 && j + 4 * LANES <= dim_v; j += 4 * LANES)
        gdn_cols_4(S + j, dim_v, t, j, dim);
    for (; j + 2 * LANES <= dim_v; j += 2 * LANES) {
        if (t->n == 1 || dim > NEAR) {
            gdn_cols_2(S + j, dim_v, t, j, dim);
            continue;
        }
        /* of several tokens side by side: where they lie, columns of rows of 128 floats share a quarter of the
         * first-level cache's sets, or less */
        copy_cols(cols, 2 * LANES, S + j, dim_v, dim);
        gdn_cols_2(cols, 2 * LANES, t, j, dim);
        copy_cols(S + j, dim_v, cols, 2 * LANES, dim);
    }
    if (j < dim_v)
        gdn_rest(S, t, j, dim, dim_v);
}

#define NEW_X(i)   const VEC x##i = V_MUL(dt, COL(x, i));
#define BEGIN_Y(i) VEC y##i = V_MUL(d, COL(x, i));
#define NEW_H(i) \
    const VEC s##i = V_FMA(bi, x##i, V_MUL(decay, COL(s, i))); \
\
    V_STORE(s + (i)*LANES, s##i); \
    y##i = V_FMA(s##i, ci, y##i);
#define SSM2_COLS(some) \
    TARGET static void ssm2_cols_##some(float *h, const struct cpu_ssm2 *t, int64_t j, int n_state, int64_t dim) \
    { \
        const float *x = t->x + j, *b = t->b, *c = t->c; \
        float *y = t->y + j; \
\
        for (int r = 0; r < t->n; r++, x += t->ldx, b += t->ldx, c += t->ldx, y += t->ldy) { \
            const VEC decay = V_SET(t->decay[r]), dt = V_SET(t->dt[r]), d = V_SET(t->d); \
            float *s = h + j; \
\
            STATE_##some(NEW_X) STATE_##some(BEGIN_Y) for (int row = 0; row < n_state; row++, s += dim) \
            { \
                const VEC bi = V_SET(b[row]), ci = V_SET(c[row]); \
\
                STATE_##some(NEW_H) \
            } \
            STATE_##some(PUT_Y) \
        } \
    }
SSM2_COLS(2)
SSM2_COLS(4)

TARGET static void ssm2(float *h, const struct cpu_ssm2 *t, int n_state, int dim)
{
    int j = 0;

    for (; t->n == 1 && j + 4 * LANES <= dim; j += 4 * LANES)
        ssm2_cols_4(h, t, j, n_state, dim);
    for (; j + 2 * LANES <= dim; j += 2 * LANES)
        ssm2_cols_2(h, t, j, n_state, dim);
    if (j < dim)
        ssm2_rest(h, t, j, n_state, dim);
}

TARGET static void conv(float *y, const float *const *x, const float *w, int64_t ldw, const float *bias, int taps,
                        int64_t n)
{
    int64_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        VEC a = bias == NULL ? V_ZERO : V_LOAD(bias + i);
        VEC b = bias == NULL ? V_ZERO : V_LOAD(bias + i + LANES);

        for (int j = 0; j < taps; j++) {
            a = V_FMA(V_LOAD(w + j * ldw + i), V_LOAD(x[j] + i), a);
            b = V_FMA(V_LOAD(w + j * ldw + i + LANES), V_LOAD(x[j] + i + LANES), b);
        }
        V_STORE(y + i, a);
        V_STORE(y + i + LANES, b);
    }
    for (; i < n; i++) {
        float sum = bias == NULL ? 0.0f : bias[i];

        for (int j = 0; j < taps; j++)
            sum = fmaf(w[j * ldw + i], x[j][i], sum);
        y[i] = sum;
    }
}
