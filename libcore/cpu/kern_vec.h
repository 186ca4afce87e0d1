/* SPDX-License-Identifier: Apache-2.0 */
/* kern_vec.h - loops with accumulators in registers, for x86 vectors of any length.
 *
 * Included after kern_body.h by a file that defines VEC (the type), LANES, V_LOAD(p), V_STORE(p, v),
 * V_SET(f), V_ZERO, V_FMA(a, b, c), V_MUL(a, b) and V_SUB(a, b). Columns are independent of each other,
 * so taking four vectors of them at a time gives the bytes of the loops in kern_scalar.c. */

#define V_COLS (4 * LANES)

/* Two sums over the same rows: eight accumulators. */
TARGET static void mix_2(float *ya, float *yb, const float *wa, const float *wb, const float *v, int64_t ldv,
                         int n_rows)
{
    VEC a0 = V_LOAD(ya), a1 = V_LOAD(ya + LANES), a2 = V_LOAD(ya + 2 * LANES), a3 = V_LOAD(ya + 3 * LANES);
    VEC b0 = V_LOAD(yb), b1 = V_LOAD(yb + LANES), b2 = V_LOAD(yb + 2 * LANES), b3 = V_LOAD(yb + 3 * LANES);

    for (int r = 0; r < n_rows; r++, v += ldv) {
        VEC a = V_SET(wa[r]), b = V_SET(wb[r]), t = V_LOAD(v);

        a0 = V_FMA(a, t, a0);
        b0 = V_FMA(b, t, b0);
        t = V_LOAD(v + LANES);
        a1 = V_FMA(a, t, a1);
        b1 = V_FMA(b, t, b1);
        t = V_LOAD(v + 2 * LANES);
        a2 = V_FMA(a, t, a2);
        b2 = V_FMA(b, t, b2);
        t = V_LOAD(v + 3 * LANES);
        a3 = V_FMA(a, t, a3);
        b3 = V_FMA(b, t, b3);
    }
    V_STORE(ya, a0);
    V_STORE(ya + LANES, a1);
    V_STORE(ya + 2 * LANES, a2);
    V_STORE(ya + 3 * LANES, a3);
    V_STORE(yb, b0);
    V_STORE(yb + LANES, b1);
    V_STORE(yb + 2 * LANES, b2);
    V_STORE(yb + 3 * LANES, b3);
}

TARGET static void mix_1(float *y, const float *w, const float *v, int64_t ldv, int n_rows)
{
    VEC a0 = V_LOAD(y), a1 = V_LOAD(y + LANES), a2 = V_LOAD(y + 2 * LANES), a3 = V_LOAD(y + 3 * LANES);

    for (int r = 0; r < n_rows; r++, v += ldv) {
        VEC a = V_SET(w[r]);

        a0 = V_FMA(a, V_LOAD(v), a0);
        a1 = V_FMA(a, V_LOAD(v + LANES), a1);
        a2 = V_FMA(a, V_LOAD(v + 2 * LANES), a2);
        a3 = V_FMA(a, V_LOAD(v + 3 * LANES), a3);
    }
    V_STORE(y, a0);
    V_STORE(y + LANES, a1);
    V_STORE(y + 2 * LANES, a2);
    V_STORE(y + 3 * LANES, a3);
}

TARGET static void mix(float *const *y, const float *const *w, int ny, const float *v, int64_t ldv, int n_rows,
                       int64_t n)
{
    int64_t i = 0;

    for (; i + V_COLS <= n; i += V_COLS) {
        int g = 0;

        for (; g + 2 <= ny; g += 2)
            mix_2(y[g] + i, y[g + 1] + i, w[g], w[g + 1], v + i, ldv, n_rows);
        if (g < ny)
            mix_1(y[g] + i, w[g], v + i, ldv, n_rows);
    }
    if (i < n)
        for (int g = 0; g < ny; g++)
            for (int r = 0; r < n_rows; r++)
                axpy(y[g] + i, v + r * ldv + i, w[g][r], n - i);
}

/* Two vectors of columns from column j on: so narrow that they stay in the first-level cache from token to token. What a
 * token asks of the state (sums of S k) is added up while the one before it writes that. */
#define GDN_COLS (2 * LANES)

/* Row i of a token: S = g S + k d, y += S q. */
#define GDN_ROW \
    const VEC ki = V_SET(k[i]), qi = V_SET(q[i]); \
    const VEC s0 = V_FMA(ki, d0, V_MUL(g, V_LOAD(s))), s1 = V_FMA(ki, d1, V_MUL(g, V_LOAD(s + LANES))); \
\
    V_STORE(s, s0); \
    V_STORE(s + LANES, s1); \
    y0 = V_FMA(s0, qi, y0); \
    y1 = V_FMA(s1, qi, y1);
#define GDN_ASK(s0, s1, key) \
    const VEC ask = V_SET((key)[i]); \
\
    c0 = V_FMA(s0, ask, c0); \
    c1 = V_FMA(s1, ask, c1);

TARGET static void gdn_cols(float *S, const struct cpu_gdn *t, int64_t j, int dim, int64_t dim_v)
{
    const float *k = t->k, *q = t->q, *v = t->v + j;
    VEC c0 = V_ZERO, c1 = V_ZERO;
    float *s = S + j, *y = t->y + j;

    for (int i = 0; i < dim; i++, s += dim_v) {
        GDN_ASK(V_LOAD(s), V_LOAD(s + LANES), k)
    }
    for (int r = 0; r < t->n; r++, k += dim, q += dim, v += t->ldv, y += t->ldy) {
        const VEC g = V_SET(t->g[r]), b = V_SET(t->b[r]);
        const VEC d0 = V_MUL(b, V_SUB(V_LOAD(v), V_MUL(g, c0)));
        const VEC d1 = V_MUL(b, V_SUB(V_LOAD(v + LANES), V_MUL(g, c1)));
        VEC y0 = V_ZERO, y1 = V_ZERO;

        c0 = c1 = V_ZERO;
        s = S + j;
        if (r + 1 < t->n)
            for (int i = 0; i < dim; i++, s += dim_v) {
                GDN_ROW
                GDN_ASK(s0, s1, k + dim)
            }
        else
            for (int i = 0; i < dim; i++, s += dim_v) {
                GDN_ROW
            }
        V_STORE(y, y0);
        V_STORE(y + LANES, y1);
    }
}

TARGET static void gdn(float *S, const struct cpu_gdn *t, int dim, int dim_v)
{
    int j = 0;

    for (; j + GDN_COLS <= dim_v; j += GDN_COLS)
        gdn_cols(S, t, j, dim, dim_v);
    if (j < dim_v)
        gdn_rest(S, t, j, dim, dim_v);
}

TARGET static void conv(float *y, const float *const *x, const float *w, int64_t ldw, const float *bias,
                        int taps, int64_t n)
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
