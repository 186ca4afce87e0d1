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

/* Four vectors of columns; S and the others begin at the first of them. */
TARGET static void gdn_cols(float *S, float *y, const float *k, const float *q, const float *v, float g,
                            float b, int dim, int dim_v)
{
    VEC c0 = V_ZERO, c1 = V_ZERO, c2 = V_ZERO, c3 = V_ZERO, gv = V_SET(g), bv = V_SET(b);
    VEC y0 = V_ZERO, y1 = V_ZERO, y2 = V_ZERO, y3 = V_ZERO;
    float *s = S;

    for (int i = 0; i < dim; i++, s += dim_v) {
        VEC ki = V_SET(k[i]);

        c0 = V_FMA(V_LOAD(s), ki, c0);
        c1 = V_FMA(V_LOAD(s + LANES), ki, c1);
        c2 = V_FMA(V_LOAD(s + 2 * LANES), ki, c2);
        c3 = V_FMA(V_LOAD(s + 3 * LANES), ki, c3);
    }
    c0 = V_MUL(bv, V_SUB(V_LOAD(v), V_MUL(gv, c0)));
    c1 = V_MUL(bv, V_SUB(V_LOAD(v + LANES), V_MUL(gv, c1)));
    c2 = V_MUL(bv, V_SUB(V_LOAD(v + 2 * LANES), V_MUL(gv, c2)));
    c3 = V_MUL(bv, V_SUB(V_LOAD(v + 3 * LANES), V_MUL(gv, c3)));
    s = S;
    for (int i = 0; i < dim; i++, s += dim_v) {
        VEC ki = V_SET(k[i]), qi = V_SET(q[i]);
        VEC s0 = V_FMA(ki, c0, V_MUL(gv, V_LOAD(s)));
        VEC s1 = V_FMA(ki, c1, V_MUL(gv, V_LOAD(s + LANES)));
        VEC s2 = V_FMA(ki, c2, V_MUL(gv, V_LOAD(s + 2 * LANES)));
        VEC s3 = V_FMA(ki, c3, V_MUL(gv, V_LOAD(s + 3 * LANES)));

        V_STORE(s, s0);
        V_STORE(s + LANES, s1);
        V_STORE(s + 2 * LANES, s2);
        V_STORE(s + 3 * LANES, s3);
        y0 = V_FMA(s0, qi, y0);
        y1 = V_FMA(s1, qi, y1);
        y2 = V_FMA(s2, qi, y2);
        y3 = V_FMA(s3, qi, y3);
    }
    V_STORE(y, y0);
    V_STORE(y + LANES, y1);
    V_STORE(y + 2 * LANES, y2);
    V_STORE(y + 3 * LANES, y3);
}

TARGET static void gdn_step(float *S, float *y, const float *k, const float *q, const float *v, float g,
                            float b, int dim, int dim_v)
{
    int j = 0;

    for (; j + V_COLS <= dim_v; j += V_COLS)
        gdn_cols(S + j, y + j, k, q, v + j, g, b, dim, dim_v);
    if (j < dim_v)
        gdn_rest(S + j, y + j, k, q, v + j, g, b, dim, dim_v, dim_v - j);
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
