/* SPDX-License-Identifier: Apache-2.0 */
/* f32_mix.h - sums of rows of W, each times a number. Included by f32_vec.h for each kind of row, with W (its numbers'
 * type), W_LOAD(p), MIX(name) and AXPY, which it undefines. */

/* Two sums over the same rows: eight accumulators. */
TARGET static void MIX(2)(float *ya, float *yb, const float *wa, const float *wb, const W *v, int64_t ldv, int n_rows)
{
    VEC a0 = V_LOAD(ya), a1 = V_LOAD(ya + LANES), a2 = V_LOAD(ya + 2 * LANES), a3 = V_LOAD(ya + 3 * LANES);
    VEC b0 = V_LOAD(yb), b1 = V_LOAD(yb + LANES), b2 = V_LOAD(yb + 2 * LANES), b3 = V_LOAD(yb + 3 * LANES);

    for (int r = 0; r < n_rows; r++, v += ldv) {
        VEC a = V_SET(wa[r]), b = V_SET(wb[r]), t = W_LOAD(v);

        a0 = V_FMA(a, t, a0);
        b0 = V_FMA(b, t, b0);
        t = W_LOAD(v + LANES);
        a1 = V_FMA(a, t, a1);
        b1 = V_FMA(b, t, b1);
        t = W_LOAD(v + 2 * LANES);
        a2 = V_FMA(a, t, a2);
        b2 = V_FMA(b, t, b2);
        t = W_LOAD(v + 3 * LANES);
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

TARGET static void MIX(1)(float *y, const float *w, const W *v, int64_t ldv, int n_rows)
{
    VEC a0 = V_LOAD(y), a1 = V_LOAD(y + LANES), a2 = V_LOAD(y + 2 * LANES), a3 = V_LOAD(y + 3 * LANES);

    for (int r = 0; r < n_rows; r++, v += ldv) {
        VEC a = V_SET(w[r]);

        a0 = V_FMA(a, W_LOAD(v), a0);
        a1 = V_FMA(a, W_LOAD(v + LANES), a1);
        a2 = V_FMA(a, W_LOAD(v + 2 * LANES), a2);
        a3 = V_FMA(a, W_LOAD(v + 3 * LANES), a3);
    }
    V_STORE(y, a0);
    V_STORE(y + LANES, a1);
    V_STORE(y + 2 * LANES, a2);
    V_STORE(y + 3 * LANES, a3);
}

TARGET static void MIX(rows)(float *const *y, const float *const *w, int ny, const W *v, int64_t ldv, int n_rows,
                             int64_t n)
{
    int64_t i = 0;

    for (; i + V_COLS <= n; i += V_COLS) {
        int g = 0;

        for (; g + 2 <= ny; g += 2)
            MIX(2)(y[g] + i, y[g + 1] + i, w[g], w[g + 1], v + i, ldv, n_rows);
        if (g < ny)
            MIX(1)(y[g] + i, w[g], v + i, ldv, n_rows);
    }
    if (i < n)
        for (int g = 0; g < ny; g++)
            for (int r = 0; r < n_rows; r++)
                AXPY(y[g] + i, v + r * ldv + i, w[g][r], n - i);
}

#undef W
#undef W_LOAD
#undef MIX
#undef AXPY
